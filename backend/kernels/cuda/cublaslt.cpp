// kernels/cuda/cublaslt.cpp: finds cuBLASLt, describes products to it, and caches its choice for each kind of product.
#include "cublaslt.h"

#include <backplane/kernel.h>
#include <backplane/structured.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "library.h"

namespace backplane::cuda {
namespace {

// NVIDIA's binary interface (cublasLt.h of CUDA 11.4 to 13). Descriptions are opaque objects of the library's.
using Status = int;
using Object = void*;
enum : int { kReal32 = 0, kReal64 = 1, kReal16 = 2, kRealB16 = 14 };  // cudaDataType
enum : int { kCompute32 = 68, kCompute64 = 70 };                      // cublasComputeType_t
enum : int { kDescTransA = 3, kDescTransB = 4, kDescEpilogue = 7, kDescBias = 8 };
enum : int { kLayoutBatches = 5, kLayoutBatchStride = 6 };
enum : int { kPreferWorkspace = 1, kPreferAlignmentA = 5 };  // followed by those of B, C and D
enum : int32_t { kTranspose = 1 };
enum : uint32_t { kAddBias = 4 };
constexpr int kReal[] = {kReal32, kReal64, kReal16, kRealB16};

struct Choice {
  struct {
    uint64_t data[8];
  } algorithm;
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

struct Library {
  Status (*cublasLtCreate)(Object* handle);
  Status (*cublasLtMatmulDescCreate)(Object* desc, int compute, int scale);
  Status (*cublasLtMatmulDescSetAttribute)(Object desc, int which, const void* value, size_t bytes);
  Status (*cublasLtMatrixLayoutCreate)(Object* layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
  Status (*cublasLtMatrixLayoutSetAttribute)(Object layout, int which, const void* value, size_t bytes);
  Status (*cublasLtMatmulPreferenceCreate)(Object* preference);
  Status (*cublasLtMatmulPreferenceDestroy)(Object preference);
  Status (*cublasLtMatmulPreferenceSetAttribute)(Object preference, int which, const void* value, size_t bytes);
  Status (*cublasLtMatmulAlgoGetHeuristic)(Object handle, Object desc, Object a, Object b, Object c, Object d, Object preference, int asked,
                                           Choice* choices, int* found);
  Status (*cublasLtMatmul)(Object handle, Object desc, const void* alpha, const void* a, Object a_layout, const void* b, Object b_layout,
                           const void* beta, const void* c, Object c_layout, void* d, Object d_layout, const void* algorithm,
                           void* workspace, size_t workspace_bytes, void* stream);

  static const Library* loaded() {
    static const Library* const one = load();
    return one;
  }

 private:
  static const Library* load() {
    void* const file = open_library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"});
    if (!file) return nullptr;
    static Library made;
    Functions functions(file);
#define BP_FIND(name) functions.find(made.name, #name)
    BP_FIND(cublasLtCreate), BP_FIND(cublasLtMatmulDescCreate), BP_FIND(cublasLtMatmulDescSetAttribute);
    BP_FIND(cublasLtMatrixLayoutCreate), BP_FIND(cublasLtMatrixLayoutSetAttribute), BP_FIND(cublasLtMatmulPreferenceCreate);
    BP_FIND(cublasLtMatmulPreferenceDestroy), BP_FIND(cublasLtMatmulPreferenceSetAttribute), BP_FIND(cublasLtMatmulAlgoGetHeuristic);
    BP_FIND(cublasLtMatmul);
#undef BP_FIND
    return functions.are_whole() ? &made : nullptr;
  }
};

void check(Status status, const char* call) { TORCH_CHECK(status == 0, call, " gave cublasStatus_t ", status); }

// A matrix as the library sees it: column by column. A tensor's rows are the columns of its transpose, which is described; `turned`: the
// tensor itself has dense columns.
struct Matrix {
  explicit Matrix(const at::Tensor& tensor)
      : rows(tensor.size(-2)), columns(tensor.size(-1)), batch(tensor.dim() == 3 ? tensor.stride(0) : 0) {
    // A dimension of one element may have any stride.
    const int64_t down = rows == 1 ? std::max<int64_t>(columns, 1) : tensor.stride(-2);
    const int64_t across = columns == 1 ? 1 : tensor.stride(-1);
    if (across == 1 && down >= columns) {
      leading = down;
    } else if (tensor.stride(-2) == 1 && across >= rows) {
      turned = true;
      leading = across;
    }
  }
  int64_t rows, columns, batch;
  int64_t leading = 0;  // 0: neither
  bool turned = false;
};

int64_t alignment(const void* address) {
  const auto bits = reinterpret_cast<uint64_t>(address);
  return static_cast<int64_t>(std::min<uint64_t>(bits & (~bits + 1), 256));
}

// A kind of product and the choice for it. Lives as long as the process.
struct Plan {
  Object desc, first, second, result;
  Choice choice;
};

constexpr uint64_t kWorkspace = 32u << 20;

int type_index(c10::ScalarType dtype) { return dtype == at::kFloat ? 0 : dtype == at::kDouble ? 1 : dtype == at::kHalf ? 2 : 3; }

Object layout(const Library& lib, int type, const Matrix& matrix, int64_t batches) {
  Object out = nullptr;
  const auto [rows, columns] = matrix.turned ? std::pair{matrix.rows, matrix.columns} : std::pair{matrix.columns, matrix.rows};
  check(lib.cublasLtMatrixLayoutCreate(&out, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), matrix.leading),
        "cublasLtMatrixLayoutCreate");
  const auto count = static_cast<int32_t>(batches);
  check(lib.cublasLtMatrixLayoutSetAttribute(out, kLayoutBatches, &count, sizeof count), "cublasLtMatrixLayoutSetAttribute");
  check(lib.cublasLtMatrixLayoutSetAttribute(out, kLayoutBatchStride, &matrix.batch, sizeof matrix.batch),
        "cublasLtMatrixLayoutSetAttribute");
  return out;
}

// The library's objects for a device; `mutex` protects each use, since a plan's bias is set for each call.
struct OfDevice {
  std::mutex mutex;
  Object handle = nullptr;
  std::map<std::array<int64_t, 20>, Plan> plans;
};

OfDevice& of_device(c10::DeviceIndex device) {
  static auto& all = *new std::array<OfDevice, kMostDevices>;
  return all.at(static_cast<size_t>(device));
}

}  // namespace

bool has_cublaslt(c10::DeviceIndex device) { return is_cuda(device) && Library::loaded(); }

bool is_matrix(const at::Tensor& tensor) { return Matrix(tensor).leading > 0 && Matrix(tensor).leading <= INT32_MAX; }

bool is_result(const at::Tensor& out) { return is_matrix(out) && !Matrix(out).turned; }

// out^T = b^T a^T: row-major memory read column by column is the transpose.
void multiply(const at::Tensor& a, const at::Tensor& b, double alpha, double beta, const at::Tensor& bias, const at::Tensor& out) {
  const Library& lib = *Library::loaded();
  const Matrix left(a), right(b), to(out);
  const int64_t batches = out.dim() == 3 ? out.size(0) : 1;
  const int kind = type_index(out.scalar_type());
  void* const d = out.mutable_data_ptr();
  const void *const first = b.const_data_ptr(), *const second = a.const_data_ptr();
  const void* const added = bias.defined() ? bias.const_data_ptr() : nullptr;

  const c10::DeviceIndex device = out.device().index();
  const NativeLaunch launch(device, "cublasLtMatmul");
  OfDevice& kept = of_device(device);
  const std::lock_guard<std::mutex> lock(kept.mutex);
  if (!kept.handle) check(lib.cublasLtCreate(&kept.handle), "cublasLtCreate");
  const std::array<int64_t, 20> key = {kind,
                                       batches,
                                       left.rows,
                                       left.columns,
                                       left.leading,
                                       left.turned,
                                       left.batch,
                                       right.columns,
                                       right.leading,
                                       right.turned,
                                       right.batch,
                                       to.leading,
                                       to.batch,
                                       alignment(first),
                                       alignment(second),
                                       alignment(d),
                                       added ? alignment(added) : 0,
                                       beta == 0,
                                       0,
                                       0};
  auto found = kept.plans.find(key);
  if (found == kept.plans.end()) {
    Plan plan{};
    check(lib.cublasLtMatmulDescCreate(&plan.desc, kind == 1 ? kCompute64 : kCompute32, kind == 1 ? kReal64 : kReal32),
          "cublasLtMatmulDescCreate");
    const auto set = [&](int which, const auto& value) {
      check(lib.cublasLtMatmulDescSetAttribute(plan.desc, which, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
    };
    if (right.turned) set(kDescTransA, static_cast<int32_t>(kTranspose));
    if (left.turned) set(kDescTransB, static_cast<int32_t>(kTranspose));
    if (added) {
      set(kDescEpilogue, static_cast<uint32_t>(kAddBias));
      set(kDescBias, added);
    }
    plan.first = layout(lib, kReal[kind], right, batches);
    plan.second = layout(lib, kReal[kind], left, batches);
    plan.result = layout(lib, kReal[kind], to, batches);
    Object preference = nullptr;
    check(lib.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    check(lib.cublasLtMatmulPreferenceSetAttribute(preference, kPreferWorkspace, &kWorkspace, sizeof kWorkspace),
          "cublasLtMatmulPreferenceSetAttribute");
    int which = kPreferAlignmentA;
    for (const void* address : {first, second, static_cast<const void*>(d), static_cast<const void*>(d)}) {
      const auto bytes = static_cast<uint32_t>(alignment(address));
      check(lib.cublasLtMatmulPreferenceSetAttribute(preference, which++, &bytes, sizeof bytes), "cublasLtMatmulPreferenceSetAttribute");
    }
    int count = 0;
    const Status status = lib.cublasLtMatmulAlgoGetHeuristic(kept.handle, plan.desc, plan.first, plan.second, plan.result, plan.result,
                                                             preference, 1, &plan.choice, &count);
    lib.cublasLtMatmulPreferenceDestroy(preference);
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    TORCH_CHECK(count > 0, "cuBLASLt has no algorithm for a product of ", a.sizes(), " and ", b.sizes(), " of ", out.scalar_type());
    found = kept.plans.emplace(key, plan).first;
  }
  const Plan& plan = found->second;
  if (added) check(lib.cublasLtMatmulDescSetAttribute(plan.desc, kDescBias, &added, sizeof added), "cublasLtMatmulDescSetAttribute");
  at::Tensor workspace;
  if (plan.choice.workspace) workspace = empty({static_cast<int64_t>(plan.choice.workspace)}, at::kByte, device);
  const float factors[] = {static_cast<float>(alpha), static_cast<float>(beta)};
  const double exact[] = {alpha, beta};
  const void* const scale = kind == 1 ? static_cast<const void*>(&exact[0]) : &factors[0];
  const void* const keep = kind == 1 ? static_cast<const void*>(&exact[1]) : &factors[1];
  check(lib.cublasLtMatmul(kept.handle, plan.desc, scale, first, plan.first, second, plan.second, keep, d, plan.result, d, plan.result,
                           &plan.choice.algorithm, workspace.defined() ? workspace.mutable_data_ptr() : nullptr, plan.choice.workspace,
                           reinterpret_cast<void*>(launch.stream())),
        "cublasLtMatmul");
}

}  // namespace backplane::cuda
