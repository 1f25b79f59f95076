// aten/paged.cpp: operators over a cache of keys and values in pages (docs/operators.md). torch_backplane/paged.py has their compositions
// and fakes, kernels/portable/nn/paged.cpp their kernels.
#include <backplane/library.h>

BACKPLANE_LIBRARY(backplane, m) {
  m.python_module("torch_backplane.paged");
  m.def(
      "paged_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor seq_lens, Tensor query_starts, "
      "Tensor(a!) out, *, float scale, SymInt max_query_len, bool causal=True, int window=0, float softcap=0, Tensor? sinks=None, "
      "Tensor? alibi_slopes=None, Tensor? k_scale=None, Tensor? v_scale=None) -> ()");
  m.def(
      "paged_write(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slots, *, "
      "Tensor(c!)? k_scale=None, Tensor(d!)? v_scale=None) -> ()");
}
