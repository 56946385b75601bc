// Products with weights that were packed once: out[rows, n] = a[rows, k] * w[n, k]^T.
//
// Packed layout: panels of WIDTH outputs; in a panel, for each step of k (one float, or a pair of bf16), WIDTH entries side by side:
//
//     w[n, k]  ->  packed[n / WIDTH][k / PAIR][n % WIDTH][k % PAIR]
//
// so a panel is read once, front to back, at the speed of memory, and stays in the L2 cache while all rows pass over it.
#pragma once
#include "numbers.h"

template <class T> constexpr int PAIR = 1;
template <> constexpr int PAIR<bf16> = 2;

#ifdef __AVX512F__
constexpr int TILE_ROWS = 8, TILE_VECS = 3;      // 24 accumulators of the 32 registers
#else
constexpr int TILE_ROWS = 2, TILE_VECS = 3;      // a 16-float vector takes two or four of the 16 or 32 narrower registers
#endif
constexpr int WIDTH = TILE_VECS * LANES;

static inline long panels(long n) { return (n + WIDTH - 1) / WIDTH; }
template <class T> static inline long panel_size(long k) { return (k + PAIR<T> - 1) / PAIR<T> * PAIR<T> * WIDTH; }

// acc += a * b for one step of k: `a` is one entry (or pair) of a row, `b` the 16 packed entries (or pairs) of a vector.
static inline void dot(vec& acc, const float* a, const float* b) { acc += *a * load(b); }
static inline void dot(vec& acc, const bf16* a, const bf16* b) {
#ifdef __AVX512BF16__
    int pair; memcpy(&pair, a, 4);
    acc = _mm512_dpbf16_ps(acc, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)_mm512_loadu_si512(b));
#else
    uvec both = *(const uvec*)b;
    acc += to_float(a[0]) * (vec)(both << 16);
    acc += to_float(a[1]) * (vec)(both & 0xffff0000u);
#endif
}

// Requests a cache line into L2. Not into L1: it holds what is computed with now, and few requests can wait there at a time.
static inline void request(const char* line) { __builtin_prefetch(line, 0, 2); }

// What a tile requests from memory at each step, hidden behind its arithmetic: nothing; one cache line after another; or the lines of
// a list, two a step.
struct NoFetch { void operator()(int) const {} };
struct FetchRange { const char* from; void operator()(int step) const { request(from + 64l * step); } };
struct FetchList {
    const char* const* lines;
    void operator()(int step) const { request(lines[2 * step]); request(lines[2 * step + 1]); }
};

// out[ROWS, VECS * 16] = a[ROWS, k] * b, with `steps` = k / PAIR. `b` advances by `b_stride` entries a step.
template <int ROWS, int VECS, class T, class Fetch>
static inline void tile(const T* a, long a_stride, const T* b, long b_stride, int steps, float* out, long out_stride, Fetch fetch) {
    vec acc[ROWS][VECS] = {};
    for (int s = 0; s < steps; s++) {
        fetch(s);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++) dot(acc[r][v], a + r * a_stride + s * PAIR<T>, b + v * LANES * PAIR<T>);
        b += b_stride;
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECS; v++) store(out + r * out_stride + v * LANES, acc[r][v]);
}

// The same for 1 to 8 rows known at run time.
template <int VECS, class T, class Fetch>
static inline void rows_tile(int rows, const T* a, long a_stride, const T* b, long b_stride, int steps, float* out, long out_stride, Fetch fetch) {
    switch (rows) {
        case 1: return tile<1, VECS>(a, a_stride, b, b_stride, steps, out, out_stride, fetch);
        case 2: return tile<2, VECS>(a, a_stride, b, b_stride, steps, out, out_stride, fetch);
        case 3: return tile<3, VECS>(a, a_stride, b, b_stride, steps, out, out_stride, fetch);
        case 4: return tile<4, VECS>(a, a_stride, b, b_stride, steps, out, out_stride, fetch);
        case 5: return tile<5, VECS>(a, a_stride, b, b_stride, steps, out, out_stride, fetch);
        case 6: return tile<6, VECS>(a, a_stride, b, b_stride, steps, out, out_stride, fetch);
        case 7: return tile<7, VECS>(a, a_stride, b, b_stride, steps, out, out_stride, fetch);
        default: return tile<8, VECS>(a, a_stride, b, b_stride, steps, out, out_stride, fetch);
    }
}

// One work item: `parts` panels that lie one behind the other, for `rows` rows of `a`. Calls done(first_row, rows, block) tile by tile,
// with block[rows][parts * WIDTH] floats. `next` is where this thread's next item begins (or null): it is fetched meanwhile.
constexpr int MAX_PARTS = 2;
template <class T, class Done>
static inline void product(const T* a, long rows, long k, const T* panel, int parts, const T* next, Done done) {
    const long size = panel_size<T>(k);
    const int steps = size / (WIDTH * PAIR<T>);
    float block[TILE_ROWS * WIDTH * MAX_PARTS];
    const char* ahead = (const char*)next;
    const char* end = (const char*)(next + parts * size);
    for (long row = 0; row < rows; row += TILE_ROWS) {
        const int count = rows - row < TILE_ROWS ? rows - row : TILE_ROWS;
        for (int part = 0; part < parts; part++) {
            const T* b = panel + part * size;
            float* out = block + part * WIDTH;
            // During the first tile the panel itself comes from memory; only after it is there bandwidth for the next one.
            if (row == 0 || !ahead) {
                rows_tile<TILE_VECS>(count, a + row * k, k, b, WIDTH * PAIR<T>, steps, out, parts * WIDTH, NoFetch{});
            } else {
                rows_tile<TILE_VECS>(count, a + row * k, k, b, WIDTH * PAIR<T>, steps, out, parts * WIDTH, FetchRange{ahead});
                ahead += 64l * steps;
                if (ahead >= end) ahead = nullptr;
            }
        }
        done(row, count, block);
    }
}

// Packs w[n, k]; panel p goes to packed + p * stride entries, so that two matrices can share an item (see MAX_PARTS).
template <class T> static void pack(const T* w, long n, long k, T* packed, long stride) {
    const long padded = panel_size<T>(k) / WIDTH;
    for (long p = 0; p < panels(n); p++) {
        T* to = packed + p * stride;
        for (long c = 0; c < padded; c += PAIR<T>)
            for (int j = 0; j < WIDTH; j++)
                for (int i = 0; i < PAIR<T>; i++) {
                    const bool inside = p * WIDTH + j < n && c + i < k;
                    *to++ = inside ? w[(p * WIDTH + j) * k + c + i] : T{};
                }
    }
}
