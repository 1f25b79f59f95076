// kernels/host/indexing.cpp: index_select and gather, for every dtype; their backwards are in index_add.cpp. torch makes embedding of
// index_select. Indices are int32 or int64, where the operator allows both. Other calls, wrong shapes among them, are left to the CPU
// fallback. For indices out of range see Note [Wrong indices] in indices.h.
#include <ATen/ops/gather_meta.h>
#include <backplane/structured.h>

#include <cstring>

#include "indices.h"

namespace {

using backplane::const_device_ptr;
using backplane::DeviceMemory;
using backplane::DevicePtr;
using indices::Blocks;
using indices::IndexList;
using indices::Indices;
using indices::Lattice;
using indices::wrap;

// Elements that are only moved, by their size in bytes; a bool becomes 0 or 1.
struct Bytes16 {
  char bytes[16];
};

template <typename Function>
void dispatch_moved(const at::Tensor& tensor, const Function& function) {
  if (tensor.scalar_type() == c10::kBool) return function(bool());
  switch (tensor.itemsize()) {
    case 1:
      return function(uint8_t());
    case 2:
      return function(uint16_t());
    case 4:
      return function(uint32_t());
    case 8:
      return function(uint64_t());
    default:
      return function(Bytes16());
  }
}

uint64_t address(const at::Tensor& read) { return backplane::const_device_ptr<char>(read).address; }
uint64_t address_to_write(const at::Tensor& written) { return backplane::device_ptr<char>(written).address; }

bool takes_index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  return self.dim() > 0 && dim >= -self.dim() && dim < self.dim() && index.dim() <= 1 && Indices::has(index.scalar_type()) &&
         !self.is_quantized() && self.numel() > 0;  // what the CPU makes of indices of nothing depends on the shape
}

c10::SmallVector<int64_t, 5> selected_sizes(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  c10::SmallVector<int64_t, 5> sizes(self.sizes().begin(), self.sizes().end());
  sizes[wrap(dim, self.dim())] = index.numel();
  return sizes;
}

// out[:, i, :] = self[:, index[i], :]; out is contiguous.
void select_rows(const at::Tensor& given, int64_t dim, const at::Tensor& index, const at::Tensor& out) {
  if (out.numel() == 0) return;
  const at::Tensor self = given.contiguous();
  indices::Check check(dim, self.size(dim));
  backplane::launch(self.device().index(),
                    [from = Blocks(self.sizes(), dim), list = IndexList(index), count = index.numel(), check, bytes = self.itemsize(),
                     pself = address(self), pout = address_to_write(out)](const DeviceMemory& memory) {
                      const auto at = list.map(memory);
                      const size_t row = from.inner * bytes;
                      const char* source = static_cast<const char*>(memory.at(pself));
                      char* to = static_cast<char*>(memory.at(pout));
                      for (int64_t outer = 0; outer < from.outer; ++outer, source += from.size * row) {
                        for (int64_t i = 0; i < count; ++i, to += row) {
                          const int64_t index = at(i);
                          if (!check(index)) return;
                          std::memcpy(to, source + index * row, row);
                        }
                      }
                    });
  check.raise();
}

struct IndexSelect : backplane::HostKernel {
  static bool takes(const at::Tensor& self, int64_t dim, const at::Tensor& index) { return takes_index_select(self, dim, index); }
  static at::Tensor run(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
    at::Tensor out = backplane::empty(selected_sizes(self, dim, index), self.scalar_type(), self.device().index());
    select_rows(self, wrap(dim, self.dim()), index, out);
    return out;
  }
};

struct Gather : backplane::HostKernel {
  static bool takes(const at::impl::MetaBase&, const at::Tensor& self, int64_t, const at::Tensor& index, bool) {
    return self.dim() == index.dim() && index.scalar_type() == c10::kLong;
  }
  static void run(const at::impl::MetaBase&, const at::Tensor& self, int64_t dim, const at::Tensor& index, bool, const at::Tensor& out) {
    if (out.numel() == 0) return;
    dim = wrap(dim, self.dim());
    indices::Check check(dim, self.dim() == 0 ? 1 : self.size(dim));
    dispatch_moved(self, [&](auto element) {
      using T = decltype(element);
      backplane::launch(self.device().index(), [lattice = Lattice(self, dim, index, out), check, pself = DevicePtr<const T>{address(self)},
                                                pindex = const_device_ptr<int64_t>(index),
                                                pout = DevicePtr<T>{address_to_write(out)}](const DeviceMemory& memory) {
        lattice.each(memory(pself), memory(pindex), memory(pout), check, [](const T& from, T& to) { to = backplane::load(&from); });
      });
    });
    check.raise_with_index();
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  backplane::function<IndexSelect>(m, "index_select");
  backplane::structured<at::meta::structured_gather, Gather>(m, {"gather", "gather.out"});
}
