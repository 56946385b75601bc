// Attention alone, for models whose other layers run in PyTorch: the same kernel as in the fused decoder, over the paged cache.
#include <omp.h>
#include "attention.h"
#include "team.h"

extern "C" {

struct AttentionCall {
    int64_t rows, table_width, block_size, query_stride;
    int32_t query_heads, kv_heads, head_size, threads;
    float scale;
    const int32_t *query_starts, *block_table, *kv_lengths;
    const void *queries, *keys, *values;      // queries: [tokens] rows of query_stride entries
    void* out;                                // [tokens, query_heads * head_size]
};

}

template <class T> static void run(const AttentionCall& call) {
    const Heads heads{call.query_heads, call.kv_heads, call.head_size, call.scale};
    const Paging paging{call.query_starts, call.block_table, call.kv_lengths, call.table_width, call.block_size, call.rows};
    const auto tiles = query_tiles(paging, heads);
    Team team(1);
#pragma omp parallel num_threads(call.threads)
    {
        AttentionScratch<T> scratch(heads);
        team.share(0, tiles.size(), [&](long item, long following) {
            attend(heads, paging, tiles[item], following < 0 ? nullptr : &tiles[following], (const T*)call.queries, call.query_stride, (const T*)call.keys, (const T*)call.values,
                   (T*)call.out, scratch);
        });
    }
}

extern "C" {

void paged_attention_float(const AttentionCall* call) { run<float>(*call); }
void paged_attention_bf16(const AttentionCall* call) { run<bf16>(*call); }

}
