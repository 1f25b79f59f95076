// tests/driver/cuda_abi.cpp: drivers/cuda/cuda_api.h beside NVIDIA's own headers: values, sizes, offsets, parameters. It only has to
// compile.
//
// test_cuda.py defines VALUES(X), the names of the constants in cuda_api.h.
#include "../../drivers/cuda/cuda_api.h"

#include <type_traits>

namespace ours = backplane::driver::cuda;
// Before NVIDIA's headers, where some are macros.
#define VALUE(name) constexpr long long our_##name = static_cast<long long>(ours::name);
VALUES(VALUE)
#undef VALUE

#include <cuda.h>
#include <nvrtc.h>

template <class A, class B>
constexpr bool same_value = sizeof(A) == sizeof(B) && alignof(A) == alignof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <class A, class B>
struct Same : std::false_type {};
template <class... A, class... B>
struct Same<ours::CUresult (*)(A...), CUresult (*)(B...)> : std::bool_constant<(same_value<A, B> && ...)> {};
template <class... A, class... B>
struct Same<ours::CUresult (*)(A...), nvrtcResult (*)(B...)> : std::bool_constant<(same_value<A, B> && ...)> {};

// The versions that the symbols name; the header's macros would give the newest.
#undef cuEventElapsedTime
#define TYPE(name, ...) static_assert(Same<ours::CUresult (*)(__VA_ARGS__), decltype(&::name)>::value, #name);
extern "C" CUresult cuEventElapsedTime(float*, CUevent, CUevent);
namespace backplane::driver::cuda {
BP_CUDA_FUNCTIONS(TYPE)
BP_CUDA_NEWER_FUNCTIONS(TYPE)
BP_NVRTC_FUNCTIONS(TYPE)
}  // namespace backplane::driver::cuda

#define VALUE(name) static_assert(our_##name == static_cast<long long>(name), #name);
VALUES(VALUE)

#define LAYOUT(name) static_assert(sizeof(ours::name) == sizeof(::name) && alignof(ours::name) == alignof(::name), #name);
LAYOUT(CUuuid)
LAYOUT(CUmemLocation)
LAYOUT(CUmemAllocationProp)
LAYOUT(CUmemAccessDesc)
LAYOUT(CUipcMemHandle)
LAYOUT(CUipcEventHandle)
#define MEMBER(name, member) static_assert(offsetof(ours::name, member) == offsetof(::name, member), #name "." #member);
MEMBER(CUmemAllocationProp, requestedHandleTypes)
MEMBER(CUmemAllocationProp, location)
MEMBER(CUmemAllocationProp, win32HandleMetaData)
MEMBER(CUmemAllocationProp, allocFlags)
MEMBER(CUmemLocation, id)
MEMBER(CUmemAccessDesc, flags)

int main() {}
