// Precedes C++ that Inductor writes for the device: the backend's table, and a kernel as an object of the file.
#include <backplane/generated.h>
#include <torch/csrc/inductor/aoti_runtime/utils.h>

#include <cstring>
#include <initializer_list>
#include <mutex>
#include <stdexcept>

namespace backplane::generated {

inline const Api& api() {
  static const Api* const found = [] {
    StableIValue stack[1] = {0};
    if (aoti_torch_call_dispatcher("backplane::generated_api", "", stack) != 0) {
      throw std::runtime_error("this program was compiled for the device BACKPLANE_DEVICE, whose backend is not loaded");
    }
    const Api* api = reinterpret_cast<const Api*>(static_cast<uintptr_t>(stack[0]));
    if (api->struct_size < sizeof(Api)) {
      throw std::runtime_error("this program was compiled for a newer backend of the device BACKPLANE_DEVICE than the one that is loaded");
    }
    return api;
  }();
  return *found;
}

struct Kernel {
  KernelText text;
  const Code* codes;
  std::once_flag once{};
  void* made = nullptr;

  void launch(std::initializer_list<AtenTensorHandle> tensors, std::initializer_list<int64_t> numbers) {
    std::call_once(once, [this] { made = api().kernel(text, codes); });
    api().launch(made, tensors.begin(), numbers.begin());
  }
};

// The bits of a number on the CPU, as the integer that a kernel takes for it.
inline int64_t bits_of(AtenTensorHandle number) {
  void* data = nullptr;
  int32_t dtype = 0;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(number, &data));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(number, &dtype));
  int64_t bits = 0;
  std::memcpy(&bits, data, aoti_torch_dtype_element_size(dtype));
  return bits;
}

// The bits of a number that a call has computed.
template <class T>
int64_t bits_of_number(T number) {
  int64_t bits = 0;
  std::memcpy(&bits, &number, sizeof number);
  return bits;
}
inline int64_t bits_of_float64(double number) { return bits_of_number(number); }
inline int64_t bits_of_float32(double number) { return bits_of_number(static_cast<float>(number)); }

}  // namespace backplane::generated

using backplane::generated::bits_of;
using backplane::generated::bits_of_float64;
using backplane::generated::bits_of_float32;
