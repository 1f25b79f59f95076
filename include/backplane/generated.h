// backplane/generated.h: what C++ code that torch.compile writes (cpp_wrapper, AOTInductor) calls of the backend. That code is compiled by
// itself and linked with nothing of the backend: it finds this table by the operator backplane::generated_api() -> int.
//
// A function throws a std::exception with the text of the error. Tensors are torch's AtenTensorHandle, borrowed.
#pragma once

#include <cstddef>
#include <cstdint>

struct AtenTensorOpaque;

namespace backplane::generated {

// One factor of the number of groups: a length, or number `argument` of the call, over the elements that a group takes of it. A kernel of
// several parts has the groups of all: the factors of each part follow an Extent that is none.
struct Extent {
  int64_t value;
  int32_t argument;  // -1: `value`; kFurtherPart: no factor, what follows is of another part
  int64_t elements;  // 0: a tile of the group's lanes; -n: n of each of its items, up to kMostPerItem
};
constexpr int32_t kFurtherPart = -2;
constexpr int64_t kMostPerItem = 1 << 20;

// A kernel as text of BP_KERNEL(generated, ...), and what a call of it takes. All of it lives as long as the library that it is in.
struct KernelText {
  const char* name;         // for messages
  const char* definitions;  // lines in front of everything
  const char* text;
  const char* const* files;  // of the dialect's library, in front of the text
  const Extent* extents;
  uint64_t written;  // bit i: the kernel writes tensor i
  uint32_t file_count, extent_count;
  uint32_t per_item;  // BP_PER_ITEM
  uint32_t tensors, numbers;
  uint32_t reports;  // 1: it tells of places that are out of range
};

// Code for one target, by the key that it has in the backend's cache; NULL at the end of a row of them.
struct Code {
  const char* key;
  const char* bytes;
  size_t size;
};

struct Api {
  uint32_t struct_size;  // what the backend has; members are only ever added
  // A kernel that lives as long as the process. Code that is for another target, compiler or version is left aside, and the text compiled.
  void* (*kernel)(const KernelText& text, const Code* codes);
  // Queues it on the current stream of the tensors' device.
  void (*launch)(void* kernel, AtenTensorOpaque* const* tensors, const int64_t* numbers);
  // Memory of the current device, of its caching allocator.
  void* (*allocate)(size_t bytes);
  void (*release)(void* memory);
  // Waits until it is done. From the host's memory or the device's.
  void (*copy_to_device)(void* destination, const void* source, size_t bytes);
  // Operators with the arguments that torch's C shims of its own devices have. They return 0.
  int32_t (*mm_out)(AtenTensorOpaque* out, AtenTensorOpaque* a, AtenTensorOpaque* b);
  int32_t (*bmm_out)(AtenTensorOpaque* out, AtenTensorOpaque* a, AtenTensorOpaque* b);
  int32_t (*addmm_out)(AtenTensorOpaque* out, AtenTensorOpaque* bias, AtenTensorOpaque* a, AtenTensorOpaque* b, double beta, double alpha);
  int32_t (*baddbmm_out)(AtenTensorOpaque* out, AtenTensorOpaque* bias, AtenTensorOpaque* a, AtenTensorOpaque* b, double beta,
                         double alpha);
  // bias: NULL, or where a handle is. result: a handle that the caller deletes.
  int32_t (*convolution)(AtenTensorOpaque* input, AtenTensorOpaque* weight, AtenTensorOpaque** bias, const int64_t* stride,
                         int64_t stride_size, const int64_t* padding, int64_t padding_size, const int64_t* dilation, int64_t dilation_size,
                         int32_t transposed, const int64_t* output_padding, int64_t output_padding_size, int64_t groups,
                         AtenTensorOpaque** result);
  // scale, results: NULL for one that is not wanted.
  int32_t (*_scaled_dot_product_fused_attention_overrideable)(AtenTensorOpaque* query, AtenTensorOpaque* key, AtenTensorOpaque* value,
                                                              AtenTensorOpaque** bias, double dropout, int32_t is_causal,
                                                              int32_t return_debug_mask, double* scale, AtenTensorOpaque** out,
                                                              AtenTensorOpaque** logsumexp, AtenTensorOpaque** first_of_query,
                                                              AtenTensorOpaque** first_of_key, int64_t* most_queries, int64_t* most_keys,
                                                              AtenTensorOpaque** seed, AtenTensorOpaque** offset,
                                                              AtenTensorOpaque** debug_mask);
};

}  // namespace backplane::generated
