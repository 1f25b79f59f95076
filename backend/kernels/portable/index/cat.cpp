// kernels/portable/index/cat.cpp: concatenation, one launch for as many tensors as its arguments hold (cat.bpc).
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/places.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/unit.h"

namespace backplane::portable {
namespace cat_impl {
namespace {

constexpr size_t kSources = 24;       // per launch; their addresses and sizes fit into its arguments
constexpr size_t kFewSources = 4;     // of a kernel with fewer arguments
constexpr uint32_t kHostTile = 4096;  // elements of an item that is a core
constexpr uint32_t kLanes = 4;        // elements of another item

struct Source {
  at::Tensor tensor;
  int64_t length;  // of a row
  int64_t offset;  // in the result's row
};

// Writes the parameters, and the selection of source s.
void write_sources(KernelSource& source, const size_t& sources) {
  std::string parameters = "BP_GLOBAL T* BP_RESTRICT out", pick;
  for (size_t k = 0; k < sources; ++k) {
    append(parameters, ", BP_GLOBAL const T* BP_RESTRICT p", k);
    pick += k + 1 < sources ? join("(s) == ", k, " ? p", k, " : ") : join("p", k);
  }
  define(source.definitions, "PARAMETERS", parameters);
  define(source.definitions, "PICK(s)", "(", pick, ")");
}

bool launch_cat(const at::Tensor& out, c10::ScalarType bits, int64_t width, const Source* sources, size_t count) {
  const c10::DeviceIndex device = out.device().index();
  const Target& target = target_of(device);
  const size_t most = count <= kFewSources ? kFewSources : kSources;
  const auto pointers = static_cast<uint32_t>(most + 1);
  const uint32_t per_item = target.is_host() ? kHostTile : kLanes;
  Unit unit(device, "cat.bpc", "cat", "cat");
  unit.define("T", memory_type(bits)).define("SOURCES", most).define("POINTERS", pointers).made_by(&write_sources, most);
  const Function* function = unit.find(per_item, pointers, static_cast<uint32_t>(1 + 4 * most), 1);
  if (function == nullptr) return false;
  const int64_t tile = static_cast<int64_t>(function->group) * per_item;
  Arguments arguments;
  arguments.write(out);
  const uint64_t first = address_of(sources[0].tensor);
  for (size_t k = 0; k < most; ++k) arguments.add(0 < k && k < count ? address_of(sources[k].tensor) : first);
  arguments.words(width);
  int64_t tiles = 0;
  for (size_t k = 0; k < most; ++k) {
    if (k < count) tiles += (sources[k].tensor.numel() + tile - 1) / tile;
    arguments.words(tiles);
  }
  for (size_t k = 0; k < most; ++k) arguments.words(k < count ? sources[k].tensor.numel() : 0);
  for (size_t k = 0; k < most; ++k) arguments.words(k < count ? sources[k].length : 1);
  for (size_t k = 0; k < most; ++k) arguments.words(k < count ? sources[k].offset : 0);
  launch_function(device, *function, static_cast<uint64_t>(tiles), arguments);
  return true;
}

// The order of the dimensions in memory.
c10::SmallVector<int64_t, 5> order_of(at::MemoryFormat format, int64_t dims) {
  if (format == at::MemoryFormat::ChannelsLast) return {0, 2, 3, 1};
  if (format == at::MemoryFormat::ChannelsLast3d) return {0, 2, 3, 4, 1};
  c10::SmallVector<int64_t, 5> order;
  for (int64_t d = 0; d < dims; ++d) order.push_back(d);
  return order;
}

bool cat(Call& call) {
  const std::vector<at::Tensor> tensors = call[0].toTensorVector();
  if (tensors.empty()) return false;
  const at::Tensor* first = nullptr;
  c10::ScalarType dtype = tensors[0].scalar_type();
  std::optional<at::MemoryFormat> format;
  const auto is_skipped = [](const at::Tensor& tensor) { return tensor.dim() == 1 && tensor.size(0) == 0; };
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.dim() == 0 || tensor.layout() != c10::kStrided || tensor.device() != tensors[0].device()) return false;
    dtype = c10::promoteTypes(dtype, tensor.scalar_type());
    const at::MemoryFormat own = tensor.suggest_memory_format();
    format = !format || *format == own ? own : at::MemoryFormat::Contiguous;
    if (first == nullptr && !is_skipped(tensor)) first = &tensor;
  }
  const c10::Device device = tensors[0].device();
  if (device.type() != c10::kPrivateUse1 || first == nullptr) return false;
  const int64_t dims = first->dim();
  int64_t dim = call[1].toInt();
  if (dim < -dims || dim >= dims) return false;
  if (dim < 0) dim += dims;
  Strides sizes(first->sizes().begin(), first->sizes().end());
  sizes[dim] = 0;
  for (const at::Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    if (tensor.dim() != dims) return false;
    for (int64_t d = 0; d < dims; ++d) {
      if (d != dim && tensor.size(d) != sizes[d]) return false;
    }
    sizes[dim] += tensor.size(dim);
  }
  const c10::ScalarType bits = bits_of(dtype);
  if (bits == c10::ScalarType::Undefined) return false;

  at::Tensor out;
  if (call.is_functional()) {
    out = at::empty(sizes, at::TensorOptions(device).dtype(dtype).memory_format(*format));
  } else {
    const at::Tensor& given = *call.given();
    if (given.device() != device || given.layout() != c10::kStrided || !c10::canCast(dtype, given.scalar_type())) return false;
    if (given.sizes() != at::IntArrayRef(sizes) && *format != at::MemoryFormat::Contiguous) return false;
    for (const at::Tensor& tensor : tensors) {
      if (given.is_alias_of(tensor)) return false;
    }
    out = call.output(sizes, given.scalar_type(), device);
    if (repeats_places(out)) return false;
  }

  const auto order = order_of(*format, dims);
  const bool is_dense = out.scalar_type() == dtype && out.is_contiguous(*format);
  const auto place = std::find(order.begin(), order.end(), dim) - order.begin();
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(place) + 1; d < order.size(); ++d) inner *= sizes[order[d]];
  c10::SmallVector<Source, kSources> batch;
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    const int64_t length = tensor.size(dim);
    if (tensor.numel() != 0) {
      if (is_dense && tensor.scalar_type() == dtype && tensor.is_contiguous(*format)) {
        batch.push_back({tensor, length * inner, begin * inner});
      } else {
        out.narrow(dim, begin, length).copy_(tensor);
      }
    }
    begin += length;
    if (batch.size() == kSources) {
      if (!launch_cat(out, bits, sizes[dim] * inner, batch.data(), batch.size())) return false;
      batch.clear();
    }
  }
  if (!batch.empty() && !launch_cat(out, bits, sizes[dim] * inner, batch.data(), batch.size())) return false;
  call.give(std::move(out));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) { add_operator(kernels, {"cat", "cat.out"}, &cat); });

}  // namespace
}  // namespace cat_impl
}  // namespace backplane::portable
