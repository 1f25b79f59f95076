// backend/kernels/indices.h: indices that only the device can read, checked by the kernel that uses them.
//
// Note [Wrong indices]: the operator is queued before its indices are known. This simulated device waits until the kernel has seen them, so
// that a wrong one is an error of the call itself, as on the CPU; the device goes on. That costs these operators their asynchrony, as
// the CPU fallback would. A chip for which that is too much lets its kernel fault instead, as CUDA does: then the error comes later, and
// the device is lost to the process. Nothing is read or written out of bounds in either case.
#pragma once

#include <backplane/kernel.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <future>
#include <memory>

namespace indices {

// Made where the kernel is launched; the launched function has a copy.
class Check {
 public:
  Check(int64_t dim, int64_t size) : dim_(dim), size_(size), finished_(running_->get_future().share()) {}

  // In the launched function. False: the index is wrong, and the function returns.
  bool operator()(int64_t index) const {
    if (C10_LIKELY(index >= 0 && index < size_)) return true;
    found_->is_wrong = true;
    found_->index = index;
    return false;
  }

  int64_t size() const { return size_; }

  // After the launch: waits for the function, also where it is skipped because the device has faulted.
  // The two errors of the CPU's operators.
  void raise() {
    wait();
    TORCH_CHECK_INDEX(!found_->is_wrong, "index out of range in self");
  }
  void raise_with_index() {
    wait();
    TORCH_CHECK(!found_->is_wrong, "index ", found_->index, " is out of bounds for dimension ", dim_, " with size ", size_);
  }

 private:
  struct Found {
    bool is_wrong = false;
    int64_t index = 0;
  };

  void wait() {
    running_.reset();
    finished_.wait();
  }

  int64_t dim_;
  int64_t size_;
  std::shared_ptr<Found> found_ = std::make_shared<Found>();
  std::shared_ptr<std::promise<void>> running_ = std::make_shared<std::promise<void>>();  // broken when the last copy of the function goes
  std::shared_future<void> finished_;
};

}  // namespace indices
