// Attention over the paged cache, for decode rows and prefill slices alike.
//
// A work item is one K/V head of one tile of queries: up to TILE_QUERIES (query row, query head) pairs that share the head. It walks
// over the row's context in chunks of CHUNK tokens, found through the block table, and keeps a running softmax:
//
//     chunk: pack K and V  ->  scores = Q K^T  ->  mask, exp  ->  out = out * correction + P V
//
// Both products use the tile kernel of gemm.h, so a chunk is first packed into its layout; nothing is gathered beyond one chunk.
#pragma once
#include <vector>
#include "gemm.h"

constexpr int CHUNK = 64, TILE_QUERIES = 48, ATT_VECS = 2;

// The K/V cache of one layer, [blocks, block_size, kv_heads, head_dim], and where the rows of the step stand in it.
struct Paging {
    const int32_t* query_starts;    // [rows + 1]
    const int32_t* block_table;     // [rows, table_width]
    const int32_t* kv_lengths;      // [rows]
    long table_width, block_size, rows;
};

struct Heads { int query, kv, size; float scale; };

struct QueryTile { int row, first, count; };      // queries first … first+count-1 of a row

static inline std::vector<QueryTile> query_tiles(const Paging& paging, const Heads& heads) {
    const int share = heads.query / heads.kv, most = TILE_QUERIES / share > 0 ? TILE_QUERIES / share : 1;
    std::vector<QueryTile> tiles;
    for (int row = 0; row < paging.rows; row++) {
        const int count = paging.query_starts[row + 1] - paging.query_starts[row];
        for (int first = 0; first < count; first += most)
            tiles.push_back({row, first, count - first < most ? count - first : most});
    }
    return tiles;
}

#define SWAP_STAGE(d, ...)                                                                                           \
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) if (!(i & d)) {                                                                     \
        const uvec a = r[i], b = r[i + d];                                                                           \
        r[i] = __builtin_shufflevector(a, b, __VA_ARGS__
// 16 x 16 entries of 4 bytes, transposed by swapping off-diagonal squares of 1, 2, 4 and 8.
static inline void transpose16(uvec r[16]) {
    SWAP_STAGE(1, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30));
        r[i + 1] = __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31); }
    SWAP_STAGE(2, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29));
        r[i + 2] = __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31); }
    SWAP_STAGE(4, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27));
        r[i + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31); }
    SWAP_STAGE(8, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
        r[i + 8] = __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31); }
}
#undef SWAP_STAGE

// K of 16 tokens [16][size] -> [size / PAIR][CHUNK][PAIR] at column `token`. A pair of bf16 is one 4-byte entry.
template <class T> static inline void pack_keys(const T* const* keys, int size, T* packed, int token) {
    const int entries = size / PAIR<T>;
    for (int e = 0; e < entries; e += 16) {
        uvec r[16];
#pragma GCC unroll 16
        for (int t = 0; t < 16; t++) r[t] = *(const uvec*)(keys[t] + e * PAIR<T>);
        transpose16(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) *(uvec*)(packed + ((e + i) * CHUNK + token) * PAIR<T>) = r[i];
    }
}

// V of PAIR tokens [PAIR][size] -> [size][PAIR].
static inline void pack_values(const float* const* values, int size, float* packed) {
    for (int d = 0; d < size; d += LANES) store(packed + d, load(values[0] + d));
}
static inline void pack_values(const bf16* const* values, int size, bf16* packed) {
    for (int d = 0; d < size; d += LANES) {
        const uvec even = __builtin_convertvector(*(const hvec*)(values[0] + d), uvec);
        const uvec odd = __builtin_convertvector(*(const hvec*)(values[1] + d), uvec);
        *(uvec*)(packed + 2 * d) = even | (odd << 16);
    }
}

// The buffers of one thread. Rows of `zero` stand in for tokens behind the end of a context: garbage there could be NaN.
template <class T> struct AttentionScratch {
    explicit AttentionScratch(int size)
        : queries(TILE_QUERIES * size), keys(CHUNK * size), values(CHUNK * size), probs(TILE_QUERIES * CHUNK), zero(size),
          scores(TILE_QUERIES * CHUNK), part(TILE_QUERIES * size), out(TILE_QUERIES * size), top(TILE_QUERIES), total(TILE_QUERIES) {}
    std::vector<T> queries, keys, values, probs, zero;
    std::vector<float> scores, part, out, top, total;
};

// Where the tokens that a row sees stand in the cache.
struct Context {
    const int32_t* table;
    long block_size;

    // Entries from the cache's begin to each of `tokens` positions. Steps along, since dividing for each one would cost more than
    // the products.
    void locate(int position, int tokens, long stride, long* offsets) const {
        long block = position / block_size, inside = position % block_size;
        for (int t = 0; t < tokens; t++) {
            offsets[t] = (table[block] * block_size + inside) * stride;
            if (++inside == block_size) { inside = 0; block++; }
        }
    }
};

// queries: [tokens] rows of `query_stride` entries with all query heads side by side; out: [tokens, heads.query * heads.size].
template <class T>
static void attend(const Heads& heads, const Paging& paging, const QueryTile& tile, int head, const T* queries, long query_stride,
                   const T* keys, const T* values, T* out, AttentionScratch<T>& s) {
    const int size = heads.size, share = heads.query / heads.kv, pairs = tile.count * share;
    const long token = paging.query_starts[tile.row] + tile.first;
    const int count = paging.query_starts[tile.row + 1] - paging.query_starts[tile.row];
    const int visible = paging.kv_lengths[tile.row] - count + tile.first + 1;       // by the tile's first query; one more for each next
    const int end = visible + tile.count - 1;
    const Context context{paging.block_table + tile.row * paging.table_width, paging.block_size};
    const long slot_stride = (long)heads.kv * size;

    for (int q = 0; q < tile.count; q++)
        memcpy(&s.queries[q * share * size], queries + (token + q) * query_stride + (long)head * share * size, sizeof(T) * share * size);
    for (int p = 0; p < pairs; p++) { s.top[p] = -1e30f; s.total[p] = 0; }
    memset(s.out.data(), 0, sizeof(float) * pairs * size);

    long offsets[CHUNK], next_offsets[CHUNK];
    context.locate(0, end < CHUNK ? end : CHUNK, slot_stride, offsets);
    for (int begin = 0; begin < end; begin += CHUNK) {
        const int tokens = end - begin < CHUNK ? end - begin : CHUNK, columns = (tokens + 31) / 32 * 32;
        // The K and V of the next chunk are requested while this one is computed: they lie in blocks anywhere, where the hardware
        // does not look ahead.
        const int following = end - begin - CHUNK < CHUNK ? end - begin - CHUNK : CHUNK;
        if (begin > 0) memcpy(offsets, next_offsets, sizeof(offsets));
        context.locate(begin + CHUNK, following, slot_stride, next_offsets);
        for (int t = 0; t < columns; t += 16) {
            const T *key[16], *value[16];
            for (int i = 0; i < 16; i++) {
                key[i] = t + i < tokens ? keys + offsets[t + i] + head * size : s.zero.data();
                value[i] = t + i < tokens ? values + offsets[t + i] + head * size : s.zero.data();
            }
            for (int i = t; i < t + 16 && i < following; i++)
                for (int entry = 0; entry < size; entry += 64 / (int)sizeof(T)) {
                    __builtin_prefetch(keys + next_offsets[i] + head * size + entry);
                    __builtin_prefetch(values + next_offsets[i] + head * size + entry);
                }
            pack_keys(key, size, s.keys.data(), t);
            for (int i = 0; i < 16; i += PAIR<T>) pack_values(value + i, size, &s.values[(t + i) * size]);
        }

        for (int c = 0; c < columns; c += ATT_VECS * LANES)
            for (int p = 0; p < pairs; p += TILE_ROWS)
                rows_tile<ATT_VECS, 0>(pairs - p < TILE_ROWS ? pairs - p : TILE_ROWS, &s.queries[p * size], size, &s.keys[c * PAIR<T>],
                                       CHUNK * PAIR<T>, size / PAIR<T>, &s.scores[p * CHUNK + c], CHUNK, nullptr);
        for (int p = 0; p < pairs; p++) {
            float* row = &s.scores[p * CHUNK];
            const float allowed = visible + p / share - begin;                      // columns below it may be seen
            vec top = splat(s.top[p]);
            for (int c = 0; c < columns; c += LANES) {
                const vec score = lanes_from(c) < allowed ? load(row + c) * heads.scale : splat(-1e30f);
                store(row + c, score);
                top = larger(top, score);
            }
            const float highest = largest(top);
            vec total = {};
            for (int c = 0; c < columns; c += LANES) {
                // A fully masked row has highest = -1e30 and would get exp(0) = 1: the mask is applied again.
                const vec prob = lanes_from(c) < allowed ? exponential(load(row + c) - highest) : vec{};
                total += prob;
                store(&s.probs[p * CHUNK + c], prob);
            }
            const float correction = exponential(splat(s.top[p] - highest))[0];
            s.total[p] = s.total[p] * correction + sum(total);
            s.top[p] = highest;
            for (int d = 0; d < size; d += LANES) store(&s.out[p * size + d], load(&s.out[p * size + d]) * correction);
        }
        for (int d = 0; d < size; d += ATT_VECS * LANES)
            for (int p = 0; p < pairs; p += TILE_ROWS)
                rows_tile<ATT_VECS, 0>(pairs - p < TILE_ROWS ? pairs - p : TILE_ROWS, &s.probs[p * CHUNK], CHUNK, &s.values[d * PAIR<T>],
                                       size * PAIR<T>, columns / PAIR<T>, &s.part[p * size + d], size, nullptr);
        for (int i = 0; i < pairs * size; i += LANES) store(&s.out[i], load(&s.out[i]) + load(&s.part[i]));
    }
    for (int p = 0; p < pairs; p++) {
        T* to = out + (token + p / share) * (long)heads.query * size + ((long)head * share + p % share) * size;
        for (int d = 0; d < size; d += LANES) store(to + d, load(&s.out[p * size + d]) / s.total[p]);
    }
}
