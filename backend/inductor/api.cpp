// inductor/api.cpp: the table of backplane/generated.h, and the operator through which code that is linked with nothing finds it.
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/mm.h>
#include <backplane/generated.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>

#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "inductor/kernel.h"
#include "memory/copy_bytes.h"
#include "modules/cache.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace backplane {
namespace generated_api_impl {
namespace {

// torch's handle is a pointer to a tensor.
const at::Tensor& tensor(const AtenTensorOpaque* handle) { return *reinterpret_cast<const at::Tensor*>(handle); }
at::Tensor& tensor(AtenTensorOpaque* handle) { return *reinterpret_cast<at::Tensor*>(handle); }

void* kernel(const generated::KernelText& text, const generated::Code* codes) {
  for (; codes != nullptr && codes->key != nullptr; ++codes) offer_code(codes->key, {codes->bytes, codes->size});
  return new GeneratedKernel(text.name, text.definitions, text.text, {text.files, text.files + text.file_count}, text.per_item,
                             text.tensors, text.numbers, text.written, text.reports != 0, {text.extents, text.extents + text.extent_count});
}

void launch(void* kernel, AtenTensorOpaque* const* tensors, const int64_t* numbers) {
  static_cast<GeneratedKernel*>(kernel)->launch([&](size_t i) -> const at::Tensor& { return tensor(tensors[i]); },
                                                [&](size_t i) { return numbers[i]; });
}

void* allocate(size_t bytes) { return c10::GetAllocator(kDevice)->raw_allocate(bytes); }
void release(void* memory) { c10::GetAllocator(kDevice)->raw_deallocate(memory); }

void copy_to_device(void* destination, const void* source, size_t bytes) {
  const auto end = [](const void* pointer) { return CopyEnd{reinterpret_cast<uint64_t>(pointer), device_of_pointer(pointer)}; };
  const CopyEnd to = end(destination);
  copy_bytes(to, end(source), bytes, current_stream(to.device), false);
}

int32_t mm_out(AtenTensorOpaque* out, AtenTensorOpaque* a, AtenTensorOpaque* b) {
  at::mm_out(tensor(out), tensor(a), tensor(b));
  return 0;
}
int32_t bmm_out(AtenTensorOpaque* out, AtenTensorOpaque* a, AtenTensorOpaque* b) {
  at::bmm_out(tensor(out), tensor(a), tensor(b));
  return 0;
}
int32_t addmm_out(AtenTensorOpaque* out, AtenTensorOpaque* bias, AtenTensorOpaque* a, AtenTensorOpaque* b, double beta, double alpha) {
  at::addmm_out(tensor(out), tensor(bias), tensor(a), tensor(b), beta, alpha);
  return 0;
}
int32_t baddbmm_out(AtenTensorOpaque* out, AtenTensorOpaque* bias, AtenTensorOpaque* a, AtenTensorOpaque* b, double beta, double alpha) {
  at::baddbmm_out(tensor(out), tensor(bias), tensor(a), tensor(b), beta, alpha);
  return 0;
}

std::optional<at::Tensor> optional(AtenTensorOpaque** handle) {
  return handle == nullptr ? std::nullopt : std::optional<at::Tensor>(tensor(*handle));
}
void set_result(AtenTensorOpaque** result, at::Tensor made) {
  if (result != nullptr) *result = reinterpret_cast<AtenTensorOpaque*>(new at::Tensor(std::move(made)));
}
at::IntArrayRef list(const int64_t* values, int64_t size) { return {values, static_cast<size_t>(size)}; }

int32_t convolution(AtenTensorOpaque* input, AtenTensorOpaque* weight, AtenTensorOpaque** bias, const int64_t* stride, int64_t stride_size,
                    const int64_t* padding, int64_t padding_size, const int64_t* dilation, int64_t dilation_size, int32_t transposed,
                    const int64_t* output_padding, int64_t output_padding_size, int64_t groups, AtenTensorOpaque** result) {
  set_result(result, at::convolution(tensor(input), tensor(weight), optional(bias), list(stride, stride_size), list(padding, padding_size),
                                     list(dilation, dilation_size), transposed != 0, list(output_padding, output_padding_size), groups));
  return 0;
}

int32_t attention(AtenTensorOpaque* query, AtenTensorOpaque* key, AtenTensorOpaque* value, AtenTensorOpaque** bias, double dropout,
                  int32_t is_causal, int32_t return_debug_mask, double* scale, AtenTensorOpaque** out, AtenTensorOpaque** logsumexp,
                  AtenTensorOpaque** first_of_query, AtenTensorOpaque** first_of_key, int64_t* most_queries, int64_t* most_keys,
                  AtenTensorOpaque** seed, AtenTensorOpaque** offset, AtenTensorOpaque** debug_mask) {
  auto results = at::_scaled_dot_product_fused_attention_overrideable(
      tensor(query), tensor(key), tensor(value), optional(bias), dropout, is_causal != 0, return_debug_mask != 0,
      scale == nullptr ? std::optional<double>() : std::optional<double>(*scale));
  set_result(out, std::get<0>(std::move(results)));
  set_result(logsumexp, std::get<1>(std::move(results)));
  set_result(first_of_query, std::get<2>(std::move(results)));
  set_result(first_of_key, std::get<3>(std::move(results)));
  if (most_queries != nullptr) *most_queries = std::get<4>(results).guard_int(__FILE__, __LINE__);
  if (most_keys != nullptr) *most_keys = std::get<5>(results).guard_int(__FILE__, __LINE__);
  set_result(seed, std::get<6>(std::move(results)));
  set_result(offset, std::get<7>(std::move(results)));
  set_result(debug_mask, std::get<8>(std::move(results)));
  return 0;
}

const generated::Api kApi = {
    sizeof(generated::Api),
    kernel,
    launch,
    allocate,
    release,
    copy_to_device,
    mm_out,
    bmm_out,
    addmm_out,
    baddbmm_out,
    convolution,
    attention,
};

int64_t address_of_api() { return reinterpret_cast<int64_t>(&kApi); }

TORCH_LIBRARY_FRAGMENT(backplane, m) { m.def("generated_api() -> int", TORCH_FN(address_of_api)); }

}  // namespace
}  // namespace generated_api_impl
}  // namespace backplane
