// drivers/cuda/work.cpp: copies, fills and callbacks as CUDA's calls.
#include "work.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "../engine/fill.h"

namespace backplane::driver::cuda {

bool queue_copy_on(const Gpus& gpus, Gpu& gpu, const CopyRange& range, CUstream stream) {
  const Library& cuda = gpu.cuda;
  const int32_t own = gpu.device.ordinal();
  need(range.dst_device == own || range.src_device == own, "copy: neither side is of the stream's device");
  const auto side = [&](int32_t device, uint64_t address, const char* what) -> Gpu* {
    if (device == BP_HOST_DEVICE) return nullptr;
    Gpu& at = gpus.at(device);
    at.vmm->check(address, range.bytes, what);
    return &at;
  };
  Gpu* to = side(range.dst_device, range.dst, "copy: dst");
  Gpu* from = side(range.src_device, range.src, "copy: src");
  if (range.bytes == 0) return false;
  Device& device = gpu.device;
  if (!from) {
    device.check(cuda.cuMemcpyHtoDAsync_v2(range.dst, reinterpret_cast<const void*>(range.src), range.bytes, stream), "cuMemcpyHtoDAsync");
  } else if (!to) {
    device.check(cuda.cuMemcpyDtoHAsync_v2(reinterpret_cast<void*>(range.dst), range.src, range.bytes, stream), "cuMemcpyDtoHAsync");
  } else if (to == from) {
    device.check(cuda.cuMemcpyDtoDAsync_v2(range.dst, range.src, range.bytes, stream), "cuMemcpyDtoDAsync");
  } else {  // through the host where the two have no direct way
    to->device.check_sound();
    from->device.check_sound();
    device.check(cuda.cuMemcpyPeerAsync(range.dst, to->device.context(), range.src, from->device.context(), range.bytes, stream),
                 "cuMemcpyPeerAsync");
  }
  return true;
}

Fill::Fill(const void* pattern, uint32_t pattern_size, uint64_t dst, uint64_t count) : size_(pattern_size), dst_(dst), count_(count) {
  const FillPattern row(pattern, pattern_size, count, dst);
  std::memcpy(words_, &row.word, sizeof words_);
}

void Fill::queue(const Library& cuda, Device& device, CUstream stream) const {
  if (count_ == 0) return;
  if (size_ == 1) {
    device.check(cuda.cuMemsetD8Async(dst_, static_cast<unsigned char>(words_[0]), count_, stream), "cuMemsetD8Async");
  } else if (size_ == 2) {
    device.check(cuda.cuMemsetD16Async(dst_, static_cast<unsigned short>(words_[0]), count_, stream), "cuMemsetD16Async");
  } else if (size_ == 4 || words_[0] == words_[1]) {
    device.check(cuda.cuMemsetD32Async(dst_, words_[0], bytes() / 4, stream), "cuMemsetD32Async");
  } else {
    queue_pairs(cuda, device, stream);
  }
}

// CUDA has no fill by eight bytes: two columns of a few rows, which are then doubled by copies.
void Fill::queue_pairs(const Library& cuda, Device& device, CUstream stream) const {
  uint64_t done = std::min<uint64_t>(count_, 1024);
  for (uint64_t half : {0, 1}) {
    device.check(cuda.cuMemsetD2D32Async(dst_ + half * 4, 8, words_[half], 1, done, stream), "cuMemsetD2D32Async");
  }
  while (done < count_) {
    const uint64_t more = std::min(done, count_ - done);
    device.check(cuda.cuMemcpyDtoDAsync_v2(dst_ + done * 8, dst_, more * 8, stream), "cuMemcpyDtoDAsync");
    done += more;
  }
}

// cuStreamAddCallback and not cuLaunchHostFunc: that one calls nobody after a failure.
void queue_callback_on(const Library& cuda, Device& device, CUstream stream, bp_callback fn, void* arg) {
  struct Call {
    Device& device;
    bp_callback fn;
    void* arg;
  };
  auto call = std::make_unique<Call>(Call{device, fn, arg});
  const CUstreamCallback run = [](CUstream, CUresult result, void* given) {
    const std::unique_ptr<Call> one(static_cast<Call*>(given));
    one->device.note(result);
    one->fn(one->arg, status_of(result));
  };
  device.check(cuda.cuStreamAddCallback(stream, run, call.get(), 0), "cuStreamAddCallback");
  static_cast<void>(call.release());
}

CUstream stream_of_number(const Library& cuda, Device& device, uint64_t number) {
  if (number == 0 || number == kStreamLegacy) return nullptr;
  auto* stream = reinterpret_cast<CUstream>(number);
  need(number != kStreamPerThread, "stream_from_native: CU_STREAM_PER_THREAD is another stream on each thread; give the stream itself");
  if (device.knows(stream)) return stream;
  CUcontext context = nullptr;
  device.check(cuda.cuStreamGetCtx(stream, &context), "cuStreamGetCtx");
  need(context == device.context(), "stream_from_native: the stream is not of this device's primary context");
  device.adopt(stream);
  return stream;
}

}  // namespace backplane::driver::cuda
