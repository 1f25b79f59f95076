// extend/copy.cpp: a copy path of one's own: for a device with its own engine for some copies, or, as here, to see every one of them.
//
// Derive from CopyPath. copy() takes any two tensors and breaks the work into steps (runs of bytes from and to the host, on a device,
// between devices; elements with strides or another dtype); override the step that the device does better, or copy() itself. The base class
// does everything that an override hands on.
#include <backplane/extend.h>
#include <torch/library.h>

#include <atomic>

namespace {

std::atomic<int64_t> copies{0};
std::atomic<int64_t> bytes_from_host{0};

class CountingCopy : public backplane::CopyPath {
 public:
  void copy(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) override {
    ++copies;
    CopyPath::copy(src, dst, non_blocking);
  }

 protected:
  // Both are dense in the same order and of one dtype: one run of src.nbytes() bytes.
  void run_from_host(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) override {
    bytes_from_host += static_cast<int64_t>(src.nbytes());
    CopyPath::run_from_host(src, dst, non_blocking);
  }
};

const backplane::extend::Copy<CountingCopy> copy_path;

}  // namespace

// For the test.
TORCH_LIBRARY_FRAGMENT(extdevice, m) {
  m.def("copies_made", [] { return copies.load(); });
  m.def("bytes_from_host", [] { return bytes_from_host.load(); });
}
