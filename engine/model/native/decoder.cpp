// One step of a Llama-like decoder (Llama, Mistral, Qwen2, Qwen3 …) on the CPU, in float or bfloat16, as one native call.
//
// All layers run inside one parallel region, phase after phase (see team.h). Values are rounded to the model's type at the places where the
// transformers modules do, so bf16 tokens agree with theirs. The memory of a step is one workspace that the caller owns.
#include <chrono>
#include <omp.h>
#ifdef __linux__
#include <sys/mman.h>
#endif
#include "attention.h"
#include "team.h"

extern "C" {

struct Layer {                           // weights: packed matrices, plain vectors; a null pointer where the model has none
    const void *input_norm, *qkv, *qkv_bias, *query_norm, *key_norm, *output, *mlp_norm, *gate_up, *down;
    void *keys, *values;                 // this layer's K/V cache
};

struct Model {
    int32_t num_layers, hidden, query_heads, kv_heads, head_size, intermediate, vocabulary, threads;
    float norm_eps, attention_scale;
    const void *embedding, *final_norm, *head, *cosine, *sine;     // cosine, sine: [positions, head_size]
};

struct Step {
    int64_t tokens, rows, samples, table_width, block_size;
    const int64_t *input_ids, *position_ids, *slot_mapping, *sample_rows;
    const int32_t *query_starts, *block_table, *kv_lengths;
    void* workspace;
    void* logits;                        // [samples, vocabulary], or null when only the most likely tokens are wanted
    int64_t* most_likely;                // [samples], or null
    double* seconds;                     // [PHASES]: time per kind of phase is added here
};

}

enum Phase { EMBED, NORM, QKV, ROPE, ATTENTION, OUTPUT, GATE_UP, DOWN, HEAD, PHASES };
constexpr long ROWS_PER_ITEM = 256;      // more rows become more work items, so that the activations stay in the L2 cache

namespace {

template <class T> void normalize(const T* x, const T* weight, int n, float eps, T* out) {
    vec squares = {};
    for (int i = 0; i < n; i += LANES) squares += load(x + i) * load(x + i);
    const float factor = 1.f / __builtin_sqrtf(sum(squares) / n + eps);
    for (int i = 0; i < n; i += LANES) store(out + i, load(weight + i) * as_stored<T>(load(x + i) * factor));
}

template <class T> void rotate(T* x, const T* cosine, const T* sine, int size) {
    for (int i = 0; i < size / 2; i += LANES) {
        const vec a = load(x + i), b = load(x + size / 2 + i);
        store(x + i, as_stored<T>(a * load(cosine + i)) - as_stored<T>(b * load(sine + i)));
        store(x + size / 2 + i, as_stored<T>(b * load(cosine + size / 2 + i)) + as_stored<T>(a * load(sine + size / 2 + i)));
    }
}

// What one thread of the team does in a step.
template <class T> class Worker {
public:
    Worker(const Model& m, const Step& s, const Paging& paging, const std::vector<QueryTile>& tiles, Team& team, bool timing)
        : m(m), s(s), paging(paging), tiles(tiles), team(team), timing(timing),
          heads{m.query_heads, m.kv_heads, m.head_size, m.attention_scale},
          qkv_width((m.query_heads + 2l * m.kv_heads) * m.head_size), scratch(heads) {
        hidden = (T*)s.workspace;
        normed = hidden + s.tokens * m.hidden;
        qkv = normed + s.tokens * m.hidden;
        attended = qkv + s.tokens * qkv_width;
        activated = attended + s.tokens * m.query_heads * m.head_size;
    }

    void run(const Layer* layers) {
        clock = now();
        team.share(phase, s.tokens, [&](long t, long) {
            memcpy(hidden + t * m.hidden, (const T*)m.embedding + s.input_ids[t] * m.hidden, sizeof(T) * m.hidden);
        });
        finish(EMBED);
        for (int i = 0; i < m.num_layers; i++) layer(layers[i]);
        if (s.samples) head();
    }

    std::vector<float> best_value;
    std::vector<int64_t> best_token;

private:
    void layer(const Layer& w) {
        norm_rows((const T*)w.input_norm);
        multiply(normed, s.tokens, m.hidden, (const T*)w.qkv, qkv_width, [&](long t, long column, vec x) {
            if (w.qkv_bias) x += load((const T*)w.qkv_bias + column);
            store(qkv + t * qkv_width + column, x);
        });
        finish(QKV);
        team.share(phase, s.tokens, [&](long t, long) { place(t, w); });
        finish(ROPE);
        team.share(phase, tiles.size(), [&](long item, long following) {
            attend(heads, paging, tiles[item], following < 0 ? nullptr : &tiles[following], qkv, qkv_width, (const T*)w.keys, (const T*)w.values, attended, scratch);
        });
        finish(ATTENTION);
        const auto add = [&](long t, long column, vec x) {
            T* to = hidden + t * m.hidden + column;
            store(to, load(to) + as_stored<T>(x));
        };
        multiply(attended, s.tokens, (long)m.query_heads * m.head_size, (const T*)w.output, m.hidden, add);
        finish(OUTPUT);
        norm_rows((const T*)w.mlp_norm);
        gate_up((const T*)w.gate_up);
        finish(GATE_UP);
        multiply(activated, s.tokens, m.intermediate, (const T*)w.down, m.hidden, add);
        finish(DOWN);
    }

    void norm_rows(const T* weight) {
        team.share(phase, s.tokens, [&](long t, long) { normalize(hidden + t * m.hidden, weight, m.hidden, m.norm_eps, normed + t * m.hidden); });
        finish(NORM);
    }

    // Norms q and k per head where the model does, turns them by their position, and writes k and v into the cache.
    void place(long t, const Layer& w) {
        T* q = qkv + t * qkv_width;
        const T *cosine = (const T*)m.cosine + s.position_ids[t] * m.head_size, *sine = (const T*)m.sine + s.position_ids[t] * m.head_size;
        for (int h = 0; h < m.query_heads + m.kv_heads; h++) {
            T* x = q + h * m.head_size;
            const T* weight = (const T*)(h < m.query_heads ? w.query_norm : w.key_norm);
            if (weight) normalize(x, weight, m.head_size, m.norm_eps, x);
            rotate(x, cosine, sine, m.head_size);
        }
        const long width = (long)m.kv_heads * m.head_size;
        const T* k = q + (long)m.query_heads * m.head_size;
        memcpy((T*)w.keys + s.slot_mapping[t] * width, k, sizeof(T) * width);
        memcpy((T*)w.values + s.slot_mapping[t] * width, k + width, sizeof(T) * width);
    }

    // done(row, column, 16 sums) for every 16 columns of a[rows, k] * weight^T.
    template <class Done> void multiply(const T* a, long rows, long k, const T* weight, long n, Done done) {
        items(a, rows, k, weight, n, 1, [&](long row, long column, const float* sums) {
            for (int v = 0; v < WIDTH && column + v < n; v += LANES) done(row, column + v, load(sums + v));
        });
    }

    void gate_up(const T* weight) {
        items(normed, s.tokens, m.hidden, weight, m.intermediate, 2, [&](long t, long column, const float* sums) {
            for (int v = 0; v < WIDTH && column + v < m.intermediate; v += LANES) {
                const vec gate = as_stored<T>(load(sums + v)), up = as_stored<T>(load(sums + WIDTH + v));
                store(activated + t * m.intermediate + column + v, as_stored<T>(gate / (1.f + exponential(-gate))) * up);
            }
        });
    }

    // Shares the panels of a packed weight among the threads; row(row, first column, sums) gets the sums of one row of one panel.
    template <class Row> void items(const T* a, long rows, long k, const T* weight, long n, int parts, Row row) {
        const long blocks = (rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM, size = parts * panel_size<T>(k);
        team.share(phase, panels(n) * blocks, [&](long item, long following) {
            const long panel = item / blocks, first = item % blocks * ROWS_PER_ITEM;
            const T* next = following < 0 || following / blocks == panel ? nullptr : weight + following / blocks * size;
            product(a + first * k, rows - first < ROWS_PER_ITEM ? rows - first : ROWS_PER_ITEM, k, weight + panel * size, parts, next,
                    [&](long tile, int count, const float* block) {
                for (int r = 0; r < count; r++) row(first + tile + r, panel * WIDTH, block + r * parts * WIDTH);
            });
        });
    }

    // Logits of the sampled rows only. The most likely token is found on the way: the first of equal ones, after rounding to T.
    void head() {
        team.share(phase, s.samples, [&](long i, long) {
            normalize(hidden + s.sample_rows[i] * m.hidden, (const T*)m.final_norm, m.hidden, m.norm_eps, normed + i * m.hidden);
        });
        finish(NORM);
        best_value.assign(s.samples, -__builtin_inff());
        best_token.assign(s.samples, 0);
        T rounded[WIDTH];
        items(normed, s.samples, m.hidden, (const T*)m.head, m.vocabulary, 1, [&](long i, long column, const float* sums) {
            const int count = m.vocabulary - column < WIDTH ? m.vocabulary - column : WIDTH;
            for (int v = 0; v < WIDTH; v += LANES) store(rounded + v, load(sums + v));
            if (s.logits) memcpy((T*)s.logits + i * m.vocabulary + column, rounded, sizeof(T) * count);
            vec top = splat(-__builtin_inff());
            for (int v = 0; v < WIDTH; v += LANES) top = larger(top, lanes_from(v) < (float)count ? load(rounded + v) : splat(-__builtin_inff()));
            const float value = largest(top);
            // A thread meets the columns of one row in ascending order, so `>` keeps the first of equals.
            if (value > best_value[i]) {
                int at = 0;
                while (to_float(rounded[at]) != value) at++;
                best_value[i] = value; best_token[i] = column + at;
            }
        });
        finish(HEAD);
    }

    void finish(Phase kind) {
        phase++;
        if (timing) { const double t = now(); s.seconds[kind] += t - clock; clock = t; }
    }

    static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

    const Model& m; const Step& s; const Paging& paging; const std::vector<QueryTile>& tiles; Team& team;
    const bool timing;
    const Heads heads;
    const long qkv_width;
    AttentionScratch<T> scratch;
    T *hidden, *normed, *qkv, *attended, *activated;
    int phase = 0;
    double clock = 0;
};

template <class T> void run(const Model& m, const Layer* layers, const Step& s) {
    const Paging paging{s.query_starts, s.block_table, s.kv_lengths, s.table_width, s.block_size, s.rows};
    const auto tiles = query_tiles(paging, {m.query_heads, m.kv_heads, m.head_size, m.attention_scale});
    Team team(8 * m.num_layers + 3);
    std::vector<float> value(s.samples, -__builtin_inff());
#pragma omp parallel num_threads(m.threads)
    {
        const bool timing = s.seconds && omp_get_thread_num() == 0;
        Worker<T> worker(m, s, paging, tiles, team, timing);
        worker.run(layers);
#pragma omp critical
        if (s.most_likely)
            for (long i = 0; i < s.samples; i++)
                if (worker.best_value[i] > value[i] || (worker.best_value[i] == value[i] && worker.best_token[i] < s.most_likely[i])) {
                    value[i] = worker.best_value[i];
                    s.most_likely[i] = worker.best_token[i];
                }
    }
}

}  // namespace

extern "C" {

int panel_width() { return WIDTH; }
int num_phases() { return PHASES; }

void decoder_step_float(const Model* m, const Layer* layers, const Step* s) { run<float>(*m, layers, *s); }
void decoder_step_bf16(const Model* m, const Layer* layers, const Step* s) { run<bf16>(*m, layers, *s); }

// Entries of one packed panel for rows of k weights.
int64_t packed_panel_float(int64_t k) { return panel_size<float>(k); }
int64_t packed_panel_bf16(int64_t k) { return panel_size<bf16>(k); }

void pack_float(const float* w, int64_t n, int64_t k, float* packed, int64_t stride) { pack(w, n, k, packed, stride); }
void pack_bf16(const bf16* w, int64_t n, int64_t k, bf16* packed, int64_t stride) { pack(w, n, k, packed, stride); }

// Ask for huge pages: streaming through hundreds of megabytes in pages of 4 KiB spends a third of the time on address translation.
void advise_huge_pages(void* memory, int64_t bytes) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 4096, begin = ((uintptr_t)memory + page - 1) / page * page, end = ((uintptr_t)memory + bytes) / page * page;
    if (end > begin) madvise((void*)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)memory; (void)bytes;
#endif
}

}
