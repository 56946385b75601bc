// The threads of one step: one parallel region, in which phases follow each other.
//
// The threads claim the work items of a phase one by one, and a phase is over when its items are done, not when every thread has come:
// a thread that the operating system has sent away holds up nobody unless it left in the middle of an item. On a crowded machine that
// is the difference between tens of milliseconds a step and seconds. A thread that comes late finds nothing to claim and catches up.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

class Team {
public:
    explicit Team(int phases) : phases(new Phase[phases]) {}

    // Calls work(item, following) for every item of the phase that this thread gets; returns when all items are done, by whomever.
    // `following` is the item this thread will get next (or -1), so that its memory can be fetched early: items are claimed one ahead.
    // Every thread passes through all phases in order, with the same number of items.
    template <class Work> void share(int phase, long items, Work work) {
        Phase& p = phases[phase];
        long item = p.claimed.fetch_add(1, std::memory_order_relaxed);
        while (item < items) {
            const long following = p.claimed.fetch_add(1, std::memory_order_relaxed);
            work(item, following < items ? following : -1);
            p.done.fetch_add(1, std::memory_order_release);
            item = following;
        }
        wait(p.done, items);
    }

private:
    struct alignas(64) Phase { std::atomic<long> claimed{0}, done{0}; };

    // Spins for a while, then yields: fast when alone, polite when the machine is shared.
    static void wait(const std::atomic<long>& done, long items) {
        for (int spins = 0; done.load(std::memory_order_acquire) < items; spins++)
            if (spins < SPINS) pause(); else std::this_thread::yield();
    }
    static constexpr int SPINS = 4000;
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    std::unique_ptr<Phase[]> phases;
};
