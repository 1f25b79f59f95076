// kernels/cuda/cudnn.cpp: finds cuDNN, describes convolutions to it, and caches its choice for each kind of convolution.
#include "cudnn.h"

#include <ATen/Context.h>
#include <backplane/kernel.h>
#include <backplane/structured.h>
#include <c10/util/Exception.h>

#include <map>
#include <mutex>
#include <tuple>

#include "library.h"

namespace backplane::cuda {
namespace {

// NVIDIA's binary interface (cudnn.h of cuDNN 8 and 9). Descriptions are opaque objects of the library's.
using Status = int;
using Object = void*;
enum : int { kFloat = 0, kHalf = 2, kBFloat16 = 9 };                 // cudnnDataType_t
enum : int { kByRows = 0 };                                          // cudnnTensorFormat_t: CUDNN_TENSOR_NCHW
enum : int { kCrossCorrelation = 1 };                                // cudnnConvolutionMode_t
enum : int { kTensorCores = 1, kTensorCoresConvert = 2, kFma = 3 };  // cudnnMathType_t
enum : int { kDeterministic = 1 };                                   // cudnnDeterminism_t

// Algorithms, fastest first: cudnnConvolutionFwdAlgoPerf_t, and those of the gradients.
struct Algorithm {
  int number;
  Status status;
  float milliseconds;
  size_t workspace;
  int determinism, math;
  int reserved[3];
};

struct Library {
  Status (*cudnnCreate)(Object* handle);
  Status (*cudnnSetStream)(Object handle, void* stream);
  Status (*cudnnCreateTensorDescriptor)(Object* desc);
  Status (*cudnnSetTensorNdDescriptor)(Object desc, int type, int dims, const int* sizes, const int* strides);
  Status (*cudnnCreateFilterDescriptor)(Object* desc);
  Status (*cudnnSetFilterNdDescriptor)(Object desc, int type, int format, int dims, const int* sizes);
  Status (*cudnnCreateConvolutionDescriptor)(Object* desc);
  Status (*cudnnSetConvolutionNdDescriptor)(Object desc, int dims, const int* padding, const int* stride, const int* dilation, int mode,
                                            int compute);
  Status (*cudnnSetConvolutionGroupCount)(Object desc, int groups);
  Status (*cudnnSetConvolutionMathType)(Object desc, int math);

  // By part: y (forward), x (data), w (filter), with the descriptions of the operands in order.
  using Algorithms = Status (*)(Object handle, Object first, Object second, Object windows, Object result, int asked, int* found,
                                Algorithm* algorithms);
  using Workspace = Status (*)(Object handle, Object first, Object second, Object windows, Object result, int number, size_t* bytes);
  using Run = Status (*)(Object handle, const void* alpha, Object first_desc, const void* first, Object second_desc, const void* second,
                         Object windows, int number, void* workspace, size_t workspace_bytes, const void* beta, Object result_desc,
                         void* result);
  Algorithms cudnnGetConvolutionForwardAlgorithm_v7, cudnnGetConvolutionBackwardDataAlgorithm_v7,
      cudnnGetConvolutionBackwardFilterAlgorithm_v7;
  Workspace cudnnGetConvolutionForwardWorkspaceSize, cudnnGetConvolutionBackwardDataWorkspaceSize,
      cudnnGetConvolutionBackwardFilterWorkspaceSize;
  Run cudnnConvolutionForward, cudnnConvolutionBackwardData, cudnnConvolutionBackwardFilter;

  static const Library* loaded() {
    static const Library* const one = load();
    return one;
  }

 private:
  static const Library* load() {
    void* const file = open_library({"libcudnn.so.9", "libcudnn.so.8"});
    if (!file) return nullptr;
    static Library made;
    Functions functions(file);
#define BP_FIND(name) functions.find(made.name, #name)
    BP_FIND(cudnnCreate), BP_FIND(cudnnSetStream), BP_FIND(cudnnCreateTensorDescriptor), BP_FIND(cudnnSetTensorNdDescriptor);
    BP_FIND(cudnnCreateFilterDescriptor), BP_FIND(cudnnSetFilterNdDescriptor), BP_FIND(cudnnCreateConvolutionDescriptor);
    BP_FIND(cudnnSetConvolutionNdDescriptor), BP_FIND(cudnnSetConvolutionGroupCount), BP_FIND(cudnnSetConvolutionMathType);
    BP_FIND(cudnnGetConvolutionForwardAlgorithm_v7), BP_FIND(cudnnGetConvolutionBackwardDataAlgorithm_v7);
    BP_FIND(cudnnGetConvolutionBackwardFilterAlgorithm_v7), BP_FIND(cudnnGetConvolutionForwardWorkspaceSize);
    BP_FIND(cudnnGetConvolutionBackwardDataWorkspaceSize), BP_FIND(cudnnGetConvolutionBackwardFilterWorkspaceSize);
    BP_FIND(cudnnConvolutionForward), BP_FIND(cudnnConvolutionBackwardData), BP_FIND(cudnnConvolutionBackwardFilter);
#undef BP_FIND
    return functions.are_whole() ? &made : nullptr;
  }
};

/// False for what the library does not support: CUDNN_STATUS_NOT_SUPPORTED, ARCH_MISMATCH, and from version 9 on a range of them.
bool is_done(Status status, const char* call) {
  if (status == 6 || status == 9 || (status >= 3000 && status < 4000)) return false;
  TORCH_CHECK(status == 0, call, " gave cudnnStatus_t ", status);
  return true;
}

// A part of a kind of convolution and its algorithm. Lives as long as the process.
struct Plan {
  Object x = nullptr, w = nullptr, y = nullptr, windows = nullptr;
  bool is_supported = false;
  int algorithm = 0;
  size_t workspace = 0;
};

constexpr size_t kMostWorkspace = size_t{1} << 30;
constexpr int kMostAlgorithms = 16;

int type_of(c10::ScalarType dtype) { return dtype == at::kFloat ? kFloat : dtype == at::kHalf ? kHalf : kBFloat16; }

bool describe(const Library& lib, const Convolution& convolution, Plan& plan) {
  const int type = type_of(convolution.dtype), dims = convolution.dims + 2;
  const auto tensor = [&](Object& desc, const std::array<int, 5>& sizes) {
    std::array<int, 5> strides{};
    int stride = 1;
    for (int d = dims; d-- > 0; stride *= sizes[d]) strides[d] = stride;
    return is_done(lib.cudnnCreateTensorDescriptor(&desc), "cudnnCreateTensorDescriptor") &&
           is_done(lib.cudnnSetTensorNdDescriptor(desc, type, dims, sizes.data(), strides.data()), "cudnnSetTensorNdDescriptor");
  };
  return tensor(plan.x, convolution.x) && tensor(plan.y, convolution.y) &&
         is_done(lib.cudnnCreateFilterDescriptor(&plan.w), "cudnnCreateFilterDescriptor") &&
         is_done(lib.cudnnSetFilterNdDescriptor(plan.w, type, kByRows, dims, convolution.w.data()), "cudnnSetFilterNdDescriptor") &&
         is_done(lib.cudnnCreateConvolutionDescriptor(&plan.windows), "cudnnCreateConvolutionDescriptor") &&
         is_done(lib.cudnnSetConvolutionNdDescriptor(plan.windows, convolution.dims, convolution.padding.data(), convolution.stride.data(),
                                                     convolution.dilation.data(), kCrossCorrelation, kFloat),
                 "cudnnSetConvolutionNdDescriptor") &&
         is_done(lib.cudnnSetConvolutionGroupCount(plan.windows, convolution.groups), "cudnnSetConvolutionGroupCount");
}

// The operands of a part, in the library's order.
template <typename T>
std::tuple<T, T, T> operands(Part part, T x, T w, T y) {
  if (part == Part::y) return {x, w, y};
  if (part == Part::x) return {w, y, x};
  return {x, y, w};
}

template <typename T>
T of_part(Part part, T y, T x, T w) {
  return part == Part::y ? y : part == Part::x ? x : w;
}

Plan make_plan(const Library& lib, Object handle, const Convolution& convolution, Part part, bool deterministic) {
  Plan plan;
  if (!describe(lib, convolution, plan)) return plan;
  // float32 is computed in float32, not in TF32. Half types use tensor cores if an algorithm does.
  const bool exact = convolution.dtype == at::kFloat;
  const auto set_math = [&](int math) {
    return is_done(lib.cudnnSetConvolutionMathType(plan.windows, math), "cudnnSetConvolutionMathType");
  };
  if (!set_math(exact ? kFma : kTensorCores)) return plan;
  const auto algorithms = of_part(part, lib.cudnnGetConvolutionForwardAlgorithm_v7, lib.cudnnGetConvolutionBackwardDataAlgorithm_v7,
                                  lib.cudnnGetConvolutionBackwardFilterAlgorithm_v7);
  const auto workspace = of_part(part, lib.cudnnGetConvolutionForwardWorkspaceSize, lib.cudnnGetConvolutionBackwardDataWorkspaceSize,
                                 lib.cudnnGetConvolutionBackwardFilterWorkspaceSize);
  const auto [first, second, result] = operands(part, plan.x, plan.w, plan.y);
  std::array<Algorithm, kMostAlgorithms> choices{};
  int count = 0;
  if (!is_done(algorithms(handle, first, second, plan.windows, result, kMostAlgorithms, &count, choices.data()),
               "cudnnGetConvolutionAlgorithm_v7")) {
    return plan;
  }
  for (int i = 0; i < count; ++i) {
    const Algorithm& choice = choices[static_cast<size_t>(i)];
    const bool is_wanted = choice.status == 0 && (!deterministic || choice.determinism == kDeterministic) &&
                           !(exact && (choice.math == kTensorCores || choice.math == kTensorCoresConvert));
    if (!is_wanted || (!exact && !set_math(choice.math))) continue;
    size_t bytes = 0;
    if (!is_done(workspace(handle, first, second, plan.windows, result, choice.number, &bytes), "cudnnGetConvolutionWorkspaceSize") ||
        bytes > kMostWorkspace) {
      continue;
    }
    plan.algorithm = choice.number;
    plan.workspace = bytes;
    plan.is_supported = true;
    return plan;
  }
  return plan;
}

auto key_of(const Convolution& c, Part part, bool deterministic) {
  return std::tuple{c.dtype, c.groups, c.x, c.w, c.y, c.padding, c.stride, c.dilation, part, deterministic};
}

// The library's objects for a device; `mutex` protects each use, since a handle is not thread safe.
struct OfDevice {
  std::mutex mutex;
  Object handle = nullptr;
  std::map<decltype(key_of({}, {}, {})), Plan> plans;

  // Call it within a NativeLaunch and with the lock.
  Plan& plan(const Library& lib, const Convolution& convolution, Part part, bool deterministic) {
    const auto key = key_of(convolution, part, deterministic);
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
    if (!handle) TORCH_CHECK(is_done(lib.cudnnCreate(&handle), "cudnnCreate"), "cuDNN does not support this GPU or its driver");
    return plans.emplace(key, make_plan(lib, handle, convolution, part, deterministic)).first->second;
  }
};

OfDevice& of_device(c10::DeviceIndex device) {
  static auto& all = *new std::array<OfDevice, kMostDevices>;
  return all.at(static_cast<size_t>(device));
}

bool is_to_be_deterministic() { return at::globalContext().deterministicAlgorithms(); }

}  // namespace

bool can_convolve(c10::DeviceIndex device, const Convolution& convolution, Part part) {
  if (!is_cuda(device) || !Library::loaded()) return false;
  OfDevice& kept = of_device(device);
  const bool deterministic = is_to_be_deterministic();
  {
    const std::lock_guard<std::mutex> lock(kept.mutex);
    const auto found = kept.plans.find(key_of(convolution, part, deterministic));
    if (found != kept.plans.end()) return found->second.is_supported;
  }
  const NativeLaunch launch(device, "cudnnGetConvolutionAlgorithm_v7");
  const std::lock_guard<std::mutex> lock(kept.mutex);
  return kept.plan(*Library::loaded(), convolution, part, deterministic).is_supported;
}

bool convolve(const Convolution& convolution, Part part, const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) {
  const Library& lib = *Library::loaded();
  const auto run = of_part(part, lib.cudnnConvolutionForward, lib.cudnnConvolutionBackwardData, lib.cudnnConvolutionBackwardFilter);
  const auto [first, second, result] = operands(part, &x, &w, &y);
  const void *const at_first = first->const_data_ptr(), *const at_second = second->const_data_ptr();
  void* const at_result = result->mutable_data_ptr();

  const c10::DeviceIndex device = x.device().index();
  const NativeLaunch launch(device, "cudnnConvolution");
  OfDevice& kept = of_device(device);
  const std::lock_guard<std::mutex> lock(kept.mutex);
  Plan& plan = kept.plan(lib, convolution, part, is_to_be_deterministic());
  if (!plan.is_supported) return false;
  at::Tensor workspace;
  if (plan.workspace) workspace = empty({static_cast<int64_t>(plan.workspace)}, at::kByte, device);
  const auto [first_desc, second_desc, result_desc] = operands(part, plan.x, plan.w, plan.y);
  const float one = 1, zero = 0;
  TORCH_CHECK(is_done(lib.cudnnSetStream(kept.handle, reinterpret_cast<void*>(launch.stream())), "cudnnSetStream"),
              "cuDNN does not take this stream");
  plan.is_supported =
      is_done(run(kept.handle, &one, first_desc, at_first, second_desc, at_second, plan.windows, plan.algorithm,
                  workspace.defined() ? workspace.mutable_data_ptr() : nullptr, plan.workspace, &zero, result_desc, at_result),
              "cudnnConvolution");
  return plan.is_supported;
}

}  // namespace backplane::cuda
