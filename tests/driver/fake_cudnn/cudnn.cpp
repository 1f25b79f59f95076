// tests/driver/fake_cudnn/cudnn.cpp: a libcudnn.so for machines without a GPU: convolutions on the host, over the memory and the streams of
// tests/driver/fake_cuda, by the descriptions that the library itself would get. FAKE_CUDA names that libcuda.so.1; FAKE_CUDNN_LOG a file
// that gets a line for each convolution.
//
// Five groups it has no algorithm for; a padding of 7 it refuses when it is asked to run; it lists algorithms that are not supported, want
// too much memory, or are not deterministic.
#include <array>
#include <vector>

#include "../fake_library.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kOk = 0, kBadParameter = 3, kNotSupported = 9;
constexpr int kQuick = 1, kPlain = 0, kHuge = 4, kAbsent = 6;  // numbers of algorithms
constexpr size_t kQuickBytes = 1000, kPlainBytes = 0, kHugeBytes = size_t{5} << 30;

struct Tensor {
  int type = -1, dims = 0;
  std::array<int, 5> sizes{}, strides{};

  /// A size or stride of n, c, z, y, x.
  static int of(const std::array<int, 5>& list, int dims, size_t which, int otherwise) {
    if (dims == 5 || which < 2) return list[which];
    return which == 2 ? otherwise : list[which - 1];
  }
  int size(size_t which) const { return of(sizes, dims, which, 1); }
  int64_t stride(size_t which) const { return of(strides, dims, which, 0); }
};

struct Windows {
  int dims = 0, groups = 1, math = 0;
  std::array<int, 3> padding{0, 0, 0}, stride{1, 1, 1}, dilation{1, 1, 1};  // z, y, x
};

struct Row {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};

fake::Type type_of(const Tensor& tensor) {
  return tensor.type == 0 ? fake::Type::real32 : tensor.type == 2 ? fake::Type::real16 : fake::Type::brain16;
}

bool agree(const Tensor& x, const Tensor& w, const Windows& windows, const Tensor& y) {
  bool good = x.type == w.type && w.type == y.type && x.dims == w.dims && w.dims == y.dims && x.dims == windows.dims + 2 &&
              x.size(0) == y.size(0) && x.size(1) == w.size(1) * windows.groups && y.size(1) == w.size(0) &&
              w.size(0) % windows.groups == 0;
  for (size_t d = 0; d < 3; ++d) {
    const int reach = windows.dilation[d] * (w.size(d + 2) - 1) + 1;
    good = good && y.size(d + 2) == (x.size(d + 2) + 2 * windows.padding[d] - reach) / windows.stride[d] + 1;
  }
  return good;
}

/// Only FMA may compute float32 in full; halves want the matrix units.
bool is_math(const Tensor& x, const Windows& windows) { return windows.math == (x.type == 0 ? 3 : 1); }

int list(const Tensor& x, const Tensor& w, const Windows& windows, const Tensor& y, int asked, int* found, Row* rows) {
  if (!agree(x, w, windows, y) || !is_math(x, windows)) return kBadParameter;
  if (windows.groups == 5) return kNotSupported;
  const int tensor_cores = 1, math = windows.math;
  const Row all[] = {{kAbsent, kNotSupported, -1, 0, 1, math, {}},
                     {kHuge, kOk, 1, kHugeBytes, 1, math, {}},
                     {kQuick, kOk, 2, kQuickBytes, 1, tensor_cores, {}},
                     {kQuick, kOk, 3, kQuickBytes, 0, math, {}},
                     {kPlain, kOk, 4, kPlainBytes, 1, math, {}}};
  *found = 0;
  for (const Row& row : all) {
    if (*found < asked) rows[(*found)++] = row;
  }
  return kOk;
}

int bytes_of(const Tensor& x, const Tensor& w, const Windows& windows, const Tensor& y, int algorithm, size_t* bytes) {
  if (!agree(x, w, windows, y) || !is_math(x, windows)) return kBadParameter;
  if (algorithm == kQuick) return *bytes = kQuickBytes, kOk;
  if (algorithm == kPlain) return *bytes = kPlainBytes, kOk;
  if (algorithm == kHuge) return *bytes = kHugeBytes, kOk;
  return kNotSupported;
}

/// The part 'y', 'x' or 'w' of a convolution, from the other two.
struct Job {
  char part;
  Tensor x, w, y;
  Windows windows;
  char *at_x, *at_w, *at_y, *workspace;
  size_t workspace_bytes;
  double alpha, beta;

  const Tensor& result() const { return part == 'y' ? y : part == 'x' ? x : w; }

  void operator()() const {
    if (workspace) std::memset(workspace, 0xab, workspace_bytes);
    const Tensor& out = result();
    char* const at = part == 'y' ? at_y : part == 'x' ? at_x : at_w;
    const fake::Type type = type_of(x);
    int64_t span = 1;
    for (size_t d = 0; d < 5; ++d) span += out.stride(d) * (out.size(d) - 1);
    std::vector<double> sums(static_cast<size_t>(span));
    each_pair([&](int64_t in_x, int64_t in_w, int64_t in_y) {
      double& sum = sums[static_cast<size_t>(part == 'y' ? in_y : part == 'x' ? in_x : in_w)];
      sum += (part == 'x' ? 1 : fake::read(type, at_x, in_x)) * (part == 'w' ? 1 : fake::read(type, at_w, in_w)) *
             (part == 'y' ? 1 : fake::read(type, at_y, in_y));
    });
    for (int64_t i = 0; i < span; ++i) {
      fake::write(type, at, i, alpha * sums[static_cast<size_t>(i)] + (beta == 0 ? 0 : beta * fake::read(type, at, i)));
    }
  }

  /// What is multiplied: elements of x, w and the y that their product is part of.
  template <typename Function>
  void each_pair(Function&& function) const {
    const int channels = w.size(1), rows = w.size(0) / windows.groups;
    const auto along = [&](size_t d, auto&& inner) {  // the points of y and of the window, in one dimension
      for (int point = 0; point < y.size(d + 2); ++point) {
        for (int tap = 0; tap < w.size(d + 2); ++tap) {
          const int source = point * windows.stride[d] - windows.padding[d] + tap * windows.dilation[d];
          if (source >= 0 && source < x.size(d + 2)) inner(source * x.stride(d + 2), tap * w.stride(d + 2), point * y.stride(d + 2));
        }
      }
    };
    for (int n = 0; n < x.size(0); ++n) {
      for (int k = 0; k < w.size(0); ++k) {
        for (int c = 0; c < channels; ++c) {
          const int64_t x0 = n * x.stride(0) + (k / rows * channels + c) * x.stride(1), w0 = k * w.stride(0) + c * w.stride(1),
                        y0 = n * y.stride(0) + k * y.stride(1);
          along(0, [&](int64_t xz, int64_t wz, int64_t yz) {
            along(1, [&](int64_t xy, int64_t wy, int64_t yy) {
              along(2, [&](int64_t xx, int64_t wx, int64_t yx) { function(x0 + xz + xy + xx, w0 + wz + wy + wx, y0 + yz + yy + yx); });
            });
          });
        }
      }
    }
  }
};

struct Handle {
  void* stream = nullptr;
};

int run(Handle* handle, const Job& job, int algorithm) {
  size_t bytes = 0;
  const int status = bytes_of(job.x, job.w, job.windows, job.y, algorithm, &bytes);
  if (status != kOk) return status;
  if (job.workspace_bytes != bytes || (bytes != 0) != (job.workspace != nullptr)) return kBadParameter;
  if (job.windows.padding[2] == 7) return kNotSupported;
  fake::log("FAKE_CUDNN_LOG", "%c type %d dims %d groups %d algorithm %d\n", job.part, job.x.type, job.windows.dims, job.windows.groups,
            algorithm);
  return fake::queue(handle->stream, job);
}

char* address(const void* pointer) { return const_cast<char*>(static_cast<const char*>(pointer)); }
double factor(const void* at) { return fake::read(fake::Type::real32, at, 0); }

int fill(Tensor& tensor, int type, int dims, const int* sizes, const int* strides) {
  if ((type != 0 && type != 2 && type != 9) || dims < 4 || dims > 5) return kBadParameter;
  tensor.type = type;
  tensor.dims = dims;
  int stride = 1;
  for (size_t d = static_cast<size_t>(dims); d-- > 0; stride *= sizes[d]) {
    if (sizes[d] <= 0) return kBadParameter;
    tensor.sizes[d] = sizes[d];
    tensor.strides[d] = strides ? strides[d] : stride;
  }
  return kOk;
}

}  // namespace

EXPORT int cudnnCreate(Handle** handle) { return *handle = new Handle, kOk; }
EXPORT int cudnnSetStream(Handle* handle, void* stream) { return handle->stream = stream, kOk; }

EXPORT int cudnnCreateTensorDescriptor(Tensor** desc) { return *desc = new Tensor, kOk; }
EXPORT int cudnnSetTensorNdDescriptor(Tensor* desc, int type, int dims, const int* sizes, const int* strides) {
  return fill(*desc, type, dims, sizes, strides);
}
EXPORT int cudnnCreateFilterDescriptor(Tensor** desc) { return *desc = new Tensor, kOk; }
EXPORT int cudnnSetFilterNdDescriptor(Tensor* desc, int type, int format, int dims, const int* sizes) {
  return format == 0 ? fill(*desc, type, dims, sizes, nullptr) : kBadParameter;
}
EXPORT int cudnnCreateConvolutionDescriptor(Windows** desc) { return *desc = new Windows, kOk; }
EXPORT int cudnnSetConvolutionNdDescriptor(Windows* desc, int dims, const int* padding, const int* stride, const int* dilation, int mode,
                                           int compute) {
  if (dims < 2 || dims > 3 || mode != 1 || compute != 0) return kBadParameter;
  *desc = Windows{};
  desc->dims = dims;
  for (int i = 0; i < dims; ++i) {
    const auto d = static_cast<size_t>(3 - dims + i);
    if (padding[i] < 0 || stride[i] < 1 || dilation[i] < 1) return kBadParameter;
    desc->padding[d] = padding[i], desc->stride[d] = stride[i], desc->dilation[d] = dilation[i];
  }
  return kOk;
}
EXPORT int cudnnSetConvolutionGroupCount(Windows* desc, int groups) { return desc->groups = groups, kOk; }
EXPORT int cudnnSetConvolutionMathType(Windows* desc, int math) { return desc->math = math, kOk; }

EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(Handle*, Tensor* x, Tensor* w, Windows* windows, Tensor* y, int asked, int* found,
                                                  Row* rows) {
  return list(*x, *w, *windows, *y, asked, found, rows);
}
EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(Handle*, Tensor* w, Tensor* y, Windows* windows, Tensor* x, int asked, int* found,
                                                       Row* rows) {
  return list(*x, *w, *windows, *y, asked, found, rows);
}
EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(Handle*, Tensor* x, Tensor* y, Windows* windows, Tensor* w, int asked, int* found,
                                                         Row* rows) {
  return list(*x, *w, *windows, *y, asked, found, rows);
}

EXPORT int cudnnGetConvolutionForwardWorkspaceSize(Handle*, Tensor* x, Tensor* w, Windows* windows, Tensor* y, int algorithm,
                                                   size_t* bytes) {
  return bytes_of(*x, *w, *windows, *y, algorithm, bytes);
}
EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(Handle*, Tensor* w, Tensor* y, Windows* windows, Tensor* x, int algorithm,
                                                        size_t* bytes) {
  return bytes_of(*x, *w, *windows, *y, algorithm, bytes);
}
EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(Handle*, Tensor* x, Tensor* y, Windows* windows, Tensor* w, int algorithm,
                                                          size_t* bytes) {
  return bytes_of(*x, *w, *windows, *y, algorithm, bytes);
}

EXPORT int cudnnConvolutionForward(Handle* handle, const void* alpha, Tensor* x, const void* at_x, Tensor* w, const void* at_w,
                                   Windows* windows, int algorithm, void* workspace, size_t bytes, const void* beta, Tensor* y,
                                   void* at_y) {
  return run(
      handle,
      {'y', *x, *w, *y, *windows, address(at_x), address(at_w), address(at_y), address(workspace), bytes, factor(alpha), factor(beta)},
      algorithm);
}
EXPORT int cudnnConvolutionBackwardData(Handle* handle, const void* alpha, Tensor* w, const void* at_w, Tensor* y, const void* at_y,
                                        Windows* windows, int algorithm, void* workspace, size_t bytes, const void* beta, Tensor* x,
                                        void* at_x) {
  return run(
      handle,
      {'x', *x, *w, *y, *windows, address(at_x), address(at_w), address(at_y), address(workspace), bytes, factor(alpha), factor(beta)},
      algorithm);
}
EXPORT int cudnnConvolutionBackwardFilter(Handle* handle, const void* alpha, Tensor* x, const void* at_x, Tensor* y, const void* at_y,
                                          Windows* windows, int algorithm, void* workspace, size_t bytes, const void* beta, Tensor* w,
                                          void* at_w) {
  return run(
      handle,
      {'w', *x, *w, *y, *windows, address(at_x), address(at_w), address(at_y), address(workspace), bytes, factor(alpha), factor(beta)},
      algorithm);
}
