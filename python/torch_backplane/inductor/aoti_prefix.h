// torch's part of a package (aoti_runtime/model_base.h) has a list of devices; of these only "mps" allocates by replaceable functions. Here
// they are the backend's; backend/inductor/runner.cpp makes a model by that name.
#include <torch/csrc/inductor/aoti_torch/c/shim_mps.h>

namespace backplane::generated {

inline AOTITorchError allocate(void** memory, size_t bytes) {
  *memory = api().allocate(bytes);
  return 0;
}
inline AOTITorchError release(void* memory) {
  api().release(memory);
  return 0;
}
inline AOTITorchError copy_constant(void* memory, size_t offset, size_t from, size_t bytes, uint8_t* constants) {
  api().copy_to_device(static_cast<char*>(memory) + offset, constants + from, bytes);
  return 0;
}
inline AOTITorchError copy_buffer(void* source, void* memory, size_t bytes, size_t from, size_t offset) {
  if (from != 0) throw std::runtime_error("a new constant of a model must begin where its storage does: pass tensor.clone()");
  api().copy_to_device(static_cast<char*>(memory) + offset, source, bytes);
  return 0;
}

}  // namespace backplane::generated

#define USE_MPS 1
#define aoti_torch_device_type_mps aoti_torch_device_type_privateuse1
#define aoti_torch_mps_malloc backplane::generated::allocate
#define aoti_torch_mps_free backplane::generated::release
#define aoti_torch_mps_memcpy backplane::generated::copy_constant
#define aoti_torch_mps_copy_buffer backplane::generated::copy_buffer
#include <torch/csrc/inductor/aoti_include/common.h>
