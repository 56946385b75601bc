// The threads of one step: one parallel region, in which phases follow each other.
//
// Within a phase the threads claim work items one by one, so a thread that the operating system sends away delays only the item it
// holds. Between phases they meet at a barrier that spins shortly and then yields: fast when alone, polite when the machine is shared.
#pragma once
#include <atomic>
#include <memory>
#include <thread>

class Team {
public:
    explicit Team(int phases) : next_item(new std::atomic<long>[phases]) {
        for (int i = 0; i < phases; i++) next_item[i].store(0, std::memory_order_relaxed);
    }

    void barrier() {
        const int mine = epoch.load(std::memory_order_relaxed);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) == threads - 1) {
            arrived.store(0, std::memory_order_relaxed);
            epoch.store(mine + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; epoch.load(std::memory_order_acquire) == mine; spins++) {
            if (spins < SPINS) pause(); else std::this_thread::yield();
        }
    }

    // Calls work(item, following) for every item of the phase that this thread gets. `following` is the item it will get next (or
    // -1), so that its memory can be fetched early: items are claimed one ahead.
    template <class Work> void share(int phase, long items, Work work) {
        long item = claim(phase);
        while (item < items) {
            const long following = claim(phase);
            work(item, following < items ? following : -1);
            item = following;
        }
    }

    int threads = 1;       // set before the first phase

private:
    static constexpr int SPINS = 4000;
    long claim(int phase) { return next_item[phase].fetch_add(1, std::memory_order_relaxed); }
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    std::unique_ptr<std::atomic<long>[]> next_item;
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<int> epoch{0};
};
