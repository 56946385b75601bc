// Attention over the paged cache, for decode rows and prefill slices alike.
//
// A work item is one K/V head (for decode rows: all of them) of one tile of queries: up to TILE_QUERIES (query row, query head) pairs
// that share the head. It walks over the row's context in chunks of CHUNK tokens, found through the block table, and keeps a running softmax:
//
//     chunk: pack K and V  ->  scores = Q K^T  ->  mask, exp  ->  out = out * correction + P V
//
// Both products use the tile kernel of gemm.h, so a chunk is first packed into its layout; nothing is gathered beyond one chunk.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <initializer_list>
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

// Queries first … first+count-1 of a row, for K/V heads begin … end-1.
struct QueryTile { int row, first, count, begin_head, end_head; };

static inline std::vector<QueryTile> query_tiles(const Paging& paging, const Heads& heads) {
    const int share = heads.query / heads.kv, most = TILE_QUERIES / share > 0 ? TILE_QUERIES / share : 1;
    std::vector<QueryTile> tiles;
    for (int row = 0; row < paging.rows; row++) {
        const int count = paging.query_starts[row + 1] - paging.query_starts[row];
        // A decode row takes all its heads in one item: the K of a token lie side by side, and reading memory in order is twice as fast
        // as picking one head out of it. With few rows that would leave threads idle.
        const int together = count == 1 && paging.rows >= 4 ? heads.kv : 1;
        for (int first = 0; first < count; first += most)
            for (int head = 0; head < heads.kv; head += together)
                tiles.push_back({row, first, count - first < most ? count - first : most, head, head + together});
    }
    return tiles;
}

// An array that begins at a cache line, so that no vector in it straddles two.
template <class T> class Buffer {
public:
    explicit Buffer(long size) : data((T*)aligned_alloc(64, (size * sizeof(T) + 63) / 64 * 64)) { memset(data, 0, size * sizeof(T)); }
    ~Buffer() { free(data); }
    Buffer(const Buffer&) = delete;
    T& operator[](long i) { return data[i]; }
private:
    T* data;
};

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
    explicit AttentionScratch(const Heads& heads)
        : rows(heads.query > TILE_QUERIES ? heads.query : TILE_QUERIES), queries(rows * heads.size), keys(CHUNK * heads.size),
          values(CHUNK * heads.size), probs(TILE_QUERIES * CHUNK), zero(heads.size), scores(TILE_QUERIES * CHUNK),
          part(TILE_QUERIES * heads.size), out(rows * heads.size), top(rows), total(rows),
          lines(2l * CHUNK * heads.kv * (heads.size * sizeof(T) / 64 + 1)) {}
    const int rows;      // queries of a tile, over all its heads
    Buffer<T> queries, keys, values, probs, zero;
    Buffer<float> scores, part, out, top, total;
    Buffer<const char*> lines;      // cache lines of the chunk that comes next, of which the first `asked` were requested
    int num_lines = 0, asked = 0;
};

// Entries from the cache's begin to each of `tokens` positions. Steps along, since dividing for each one would cost more than the
// products do.
static inline void locate(const int32_t* table, long block_size, int position, int tokens, long stride, long* offsets) {
    long block = position / block_size, inside = position % block_size;
    for (int t = 0; t < tokens; t++) {
        offsets[t] = (table[block] * block_size + inside) * stride;
        if (++inside == block_size) { inside = 0; block++; }
    }
}

// A product of the attention. While it computes, the memory of the next chunk is requested: the blocks lie anywhere, where the hardware
// does not look ahead, and a burst of requests would block the core until most of them are answered.
template <class T>
static inline void attention_product(int rows, const T* a, long a_stride, const T* b, long b_stride, int steps, float* out, long out_stride,
                                     AttentionScratch<T>& s) {
    for (int first = 0; first < rows; first += TILE_ROWS) {
        const int count = rows - first < TILE_ROWS ? rows - first : TILE_ROWS;
        if (s.asked + 2 * steps <= s.num_lines) {
            rows_tile<ATT_VECS>(count, a + first * a_stride, a_stride, b, b_stride, steps, out + first * out_stride, out_stride,
                                FetchList{&s.lines[s.asked]});
            s.asked += 2 * steps;
        } else {
            rows_tile<ATT_VECS>(count, a + first * a_stride, a_stride, b, b_stride, steps, out + first * out_stride, out_stride, NoFetch{});
        }
    }
}

// One chunk for the queries of one head: `pairs` rows of `out` (not yet divided by `total`) take in the packed K and V.
template <class T>
static inline void attend_chunk(int pairs, int share, int size, int columns, int allowed, float scale, const T* queries, float* out,
                                float* tops, float* totals, AttentionScratch<T>& s) {
    for (int c = 0; c < columns; c += ATT_VECS * LANES)
        attention_product(pairs, queries, size, &s.keys[c * PAIR<T>], CHUNK * PAIR<T>, size / PAIR<T>, &s.scores[c], CHUNK, s);
    for (int p = 0; p < pairs; p++) {
        float* row = &s.scores[p * CHUNK];
        const float end = allowed + p / share;                      // columns below it may be seen
        vec top = splat(tops[p]);
        for (int c = 0; c < columns; c += LANES) {
            const vec score = lanes_from(c) < end ? load(row + c) * scale : splat(-1e30f);
            store(row + c, score);
            top = larger(top, score);
        }
        const float highest = largest(top);
        vec total = {};
        for (int c = 0; c < columns; c += LANES) {
            // A fully masked row has highest = -1e30 and would get exp(0) = 1: the mask is applied again.
            const vec prob = lanes_from(c) < end ? exponential(load(row + c) - highest) : vec{};
            total += prob;
            store(&s.probs[p * CHUNK + c], prob);
        }
        const float correction = exponential(splat(tops[p] - highest))[0];
        totals[p] = totals[p] * correction + sum(total);
        tops[p] = highest;
        for (int d = 0; d < size; d += LANES) store(out + p * size + d, load(out + p * size + d) * correction);
    }
    for (int d = 0; d < size; d += ATT_VECS * LANES)
        attention_product(pairs, &s.probs[0], CHUNK, &s.values[d * PAIR<T>], size * PAIR<T>, columns / PAIR<T>, &s.part[d], size, s);
    for (int i = 0; i < pairs * size; i += LANES) store(out + i, load(out + i) + load(&s.part[i]));
}

// Lists the cache lines of up to CHUNK tokens from `begin` on of the row of `tile`, in order of address.
template <class T>
static void plan_fetch(const Heads& heads, const Paging& paging, const QueryTile& tile, int begin, int tokens, const T* keys, const T* values,
                       AttentionScratch<T>& s) {
    const int entries = (tile.end_head - tile.begin_head) * heads.size, per_line = 64 / (int)sizeof(T);
    long offsets[CHUNK];
    s.num_lines = s.asked = 0;
    locate(paging.block_table + tile.row * paging.table_width, paging.block_size, begin, tokens, (long)heads.kv * heads.size, offsets);
    for (const T* cache : {keys, values})
        for (int t = 0; t < tokens; t++)
            for (int entry = 0; entry < entries; entry += per_line)
                s.lines[s.num_lines++] = (const char*)(cache + offsets[t] + tile.begin_head * heads.size + entry);
}

static inline int last_visible(const Paging& paging, const QueryTile& tile) {
    const int count = paging.query_starts[tile.row + 1] - paging.query_starts[tile.row];
    return paging.kv_lengths[tile.row] - count + tile.first + tile.count;
}

// queries: [tokens] rows of `query_stride` entries with all query heads side by side; out: [tokens, heads.query * heads.size].
template <class T>
static void attend(const Heads& heads, const Paging& paging, const QueryTile& tile, const QueryTile* following, const T* queries,
                   long query_stride, const T* keys, const T* values, T* out, AttentionScratch<T>& s) {
    const int size = heads.size, share = heads.query / heads.kv, pairs = tile.count * share, tile_heads = tile.end_head - tile.begin_head;
    const long token = paging.query_starts[tile.row] + tile.first;
    const int end = last_visible(paging, tile), visible = end - tile.count + 1;     // by the tile's first query; one more for each next
    const int32_t* table = paging.block_table + tile.row * paging.table_width;
    const long slot_stride = (long)heads.kv * size;

    for (int h = 0; h < tile_heads; h++)
        for (int q = 0; q < tile.count; q++)
            memcpy(&s.queries[(h * pairs + q * share) * size], queries + (token + q) * query_stride + (tile.begin_head + h) * (long)share * size,
                   sizeof(T) * share * size);
    for (int p = 0; p < tile_heads * pairs; p++) { s.top[p] = -1e30f; s.total[p] = 0; }
    memset(&s.out[0], 0, sizeof(float) * tile_heads * pairs * size);

    for (int begin = 0; begin < end; begin += CHUNK) {
        const int tokens = end - begin < CHUNK ? end - begin : CHUNK, columns = (tokens + 31) / 32 * 32, rest = end - begin - tokens;
        long here[CHUNK];
        locate(table, paging.block_size, begin, tokens, slot_stride, here);
        if (rest > 0) plan_fetch(heads, paging, tile, begin + CHUNK, rest < CHUNK ? rest : CHUNK, keys, values, s);
        else if (following) plan_fetch(heads, paging, *following, 0, std::min(CHUNK, last_visible(paging, *following)), keys, values, s);
        for (int h = 0; h < tile_heads; h++) {
            const long column = (long)(tile.begin_head + h) * size;
            for (int t = 0; t < columns; t += 16) {
                const T *key[16], *value[16];
                for (int i = 0; i < 16; i++) {
                    key[i] = t + i < tokens ? keys + here[t + i] + column : &s.zero[0];
                    value[i] = t + i < tokens ? values + here[t + i] + column : &s.zero[0];
                }
                pack_keys(key, size, &s.keys[0], t);
                for (int i = 0; i < 16; i += PAIR<T>) pack_values(value + i, size, &s.values[(t + i) * size]);
            }
            attend_chunk(pairs, share, size, columns, visible - begin, heads.scale, &s.queries[h * pairs * size], &s.out[h * pairs * size],
                         &s.top[h * pairs], &s.total[h * pairs], s);
        }
        for (; s.asked < s.num_lines; s.asked++) request(s.lines[s.asked]);
    }
    for (int h = 0; h < tile_heads; h++)
        for (int p = 0; p < pairs; p++) {
            T* to = out + (token + p / share) * (long)heads.query * size + ((long)(tile.begin_head + h) * share + p % share) * size;
            const float* from = &s.out[(h * pairs + p) * size];
            for (int d = 0; d < size; d += LANES) store(to + d, load(from + d) / s.total[h * pairs + p]);
        }
}
