// aten/host_view.cpp: maps a tensor's storage for the host and wraps it as a CPU tensor that keeps the source alive.
#include "aten/host_view.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <backplane/kernel.h>
#include <c10/core/InferenceMode.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/reports.h"
#include "runtime/stream.h"
#include "runtime/sync_debug.h"
#include "tensor/tensors.h"

namespace backplane {
namespace host_view_impl {
namespace {

// Wrapper tensors, or tensors without storage.
constexpr c10::DispatchKeySet kWithoutMemory{c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                             c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize,
                                             c10::DispatchKey::Batched};

// Storages under a host view, each with the number of its views. They are not resizable meanwhile: resizing a storage releases its memory,
// and a view would then read and write memory of another tensor.
struct Viewed {
  std::mutex mutex;
  std::unordered_map<c10::StorageImpl*, size_t> views;
};

Viewed& viewed() {
  static auto* const instance = new Viewed();
  return *instance;
}

// One view's reference; it keeps the storage alive, and maps its memory.
class Hold {
 public:
  explicit Hold(c10::Storage storage) : storage_(std::move(storage)) {
    c10::StorageImpl* const impl = storage_.unsafeGetStorageImpl();
    const std::lock_guard<std::mutex> lock(viewed().mutex);
    const auto found = viewed().views.find(impl);
    if (found != viewed().views.end()) {
      ++found->second;
    } else if (impl->resizable()) {
      impl->set_resizable(false);
      viewed().views.emplace(impl, 1);
    }
  }

  // Any thread. A forked child does nothing here: its copy of the lock may be held forever.
  ~Hold() {
    if (in_bad_fork()) return;
    c10::StorageImpl* const impl = storage_.unsafeGetStorageImpl();
    const std::lock_guard<std::mutex> lock(viewed().mutex);
    const auto found = viewed().views.find(impl);
    if (found == viewed().views.end() || --found->second > 0) return;
    viewed().views.erase(found);
    impl->set_resizable(true);
  }

  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void map(c10::DeviceIndex device, uint64_t address, uint64_t bytes) {
    call<&bp_host_view::map>(device, address, bytes, int32_t{BP_ACCESS_READ_WRITE}, &mapped_);
    device_ = device;
    address_ = address;
  }
  void unmap() { call_noexcept<&bp_host_view::unmap>(device_, address_, mapped_); }
  void* mapped() const { return mapped_; }

 private:
  c10::Storage storage_;  // not the tensor, so that its autograd graph is not kept alive
  c10::DeviceIndex device_ = -1;
  uint64_t address_ = 0;
  void* mapped_ = nullptr;
};

}  // namespace
}  // namespace host_view_impl

bool has_host_view() {
  const Driver* const driver = loaded_driver();
  return driver != nullptr && driver->host_view != nullptr && (driver->host_view->head.flags & BP_HOST_VIEW_COHERENT) != 0;
}

void check_host_view(const at::Tensor& source) {
  TORCH_CHECK_VALUE(source.device().type() == kDevice, "host_view: expected a tensor of ", device_name(), ", got one of ", source.device());
  TORCH_CHECK_NOT_IMPLEMENTED(source.layout() == c10::kStrided && !source.is_quantized() && !source.is_nested(),
                              "host_view: the tensor is not dense: call it with its parts, or copy with .cpu()");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !source.key_set().has_any(host_view_impl::kWithoutMemory),
      "host_view: the tensor has no memory of its own (a fake, a wrapper, or one inside of a transform of torch.func)");
  TORCH_CHECK(!source.is_conj() && !source.is_neg(),
              "host_view: the tensor has a lazy conjugate or negative bit: call .resolve_conj() or .resolve_neg()");
  check_span(source);
  refuse_in_capture(current_stream(source.device().index()), "A host view");
}

at::Tensor host_view(const at::Tensor& source) {
  check_host_view(source);
  open_driver();
  TORCH_CHECK_NOT_IMPLEMENTED(has_host_view(), "host_view: the driver of ", device_name(),
                              " has no coherent host view of its memory (bp.host_view): copy with .cpu()");
  const c10::DeviceIndex device = source.device().index();
  const auto address = device_ptr<char>(source).address;  // the host may write: a lazy clone gets its own memory first
  const c10::Stream stream = current_stream(device);
  about_to_wait("a host view");
  synchronize_stream(stream);
  raise_reports(stream);
  const c10::InferenceMode mode(false);  // so that writes increment the version, whatever mode the caller is in
  const auto options = source.options().device(c10::DeviceType::CPU).requires_grad(false);
  const size_t bytes = at::detail::computeStorageNbytes(source.sizes(), source.strides(), source.element_size());
  if (bytes == 0) {
    return at::from_blob(nullptr, source.sizes(), source.strides(), [](void*) {}, options);
  }
  auto hold = std::make_shared<host_view_impl::Hold>(source.storage());
  hold->map(device, address, bytes);
  return at::from_blob(hold->mapped(), source.sizes(), source.strides(), [hold](void*) { hold->unmap(); }, options);
}

}  // namespace backplane
