"""The paged KV cache: bookkeeping only. Tensors live with the executor, which is told block numbers."""
