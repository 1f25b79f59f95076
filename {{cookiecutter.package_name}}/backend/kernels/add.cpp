// backend/kernels/add.cpp: aten::add.Tensor for float32, float64, int32 and int64; other dtypes, and operands of mixed dtypes, are
// left to the CPU fallback. The example to start from: one operator family a file, kernel, limits and registration together.
#include <ATen/ops/add_meta.h>
#include <backplane/kernel.h>
#include <backplane/strided.h>
#include <backplane/structured.h>

namespace {

// Queues `out = self + alpha * other` on the current stream. A vendor calls its own kernel here instead, with native_stream(device) and the
// tensors' addresses; launch() runs a C++ function in the stream's order, for devices that offer that.
template <typename T>
void launch_add(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  const backplane::Elements<3> elements(iter);
  backplane::launch(iter.device(0).index(), [elements, alpha = alpha.to<T>()](const backplane::DeviceMemory& memory) {
    elements.map<T, T, T>(memory, [alpha](T a, T b) { return a + alpha * b; });
  });
}

struct Add {
  // Asked when shapes and dtypes are settled and before anything is computed: false leaves the call to the fallback.
  static bool takes(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const at::Scalar&) {
    const c10::ScalarType dtype = iter.common_dtype();
    for (int i = 0; i < iter.ntensors(); ++i) {
      if (iter.dtype(i) != dtype && !iter.is_cpu_scalar(i)) return false;
    }
    switch (dtype) {
      case c10::kFloat:
      case c10::kDouble:
      case c10::kInt:
      case c10::kLong:
        return true;
      default:
        return false;
    }
  }

  // ATen has checked the arguments, made or resized the output, and worked out how to walk the operands.
  static void run(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const at::Scalar& alpha, const at::Tensor&) {
    switch (iter.common_dtype()) {
      case c10::kFloat:
        return launch_add<float>(iter, alpha);
      case c10::kDouble:
        return launch_add<double>(iter, alpha);
      case c10::kInt:
        return launch_add<int32_t>(iter, alpha);
      default:
        return launch_add<int64_t>(iter, alpha);
    }
  }
};

}  // namespace

// torch's own wrappers lead add.Scalar, x + 2 and x += y here. Registered for PrivateUse1, so autograd works as on any device.
BACKPLANE_KERNELS(aten, m) {
  backplane::structured<at::meta::structured_add_Tensor, Add>(m, {"add.Tensor", "add.out", "add_.Tensor"});
}
