// tests/driver/nccl_abi.cpp: drivers/cuda/nccl_api.h beside NVIDIA's own nccl.h: values, sizes, offsets, parameters. It only has to
// compile.
//
// test_nccl.py defines VALUES(X), the names of the constants in nccl_api.h.
#include "../../drivers/cuda/nccl_api.h"

#include <type_traits>

namespace ours = backplane::driver::cuda;
// Before NVIDIA's header, where some are macros.
#define VALUE(name) constexpr long long our_##name = static_cast<long long>(ours::name);
VALUES(VALUE)
#undef VALUE

#include <nccl.h>

template <class A, class B>
constexpr bool same_value = sizeof(A) == sizeof(B) && alignof(A) == alignof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <class A, class B>
struct Same : std::false_type {};
template <class R, class... A, class S, class... B>
struct Same<R (*)(A...), S (*)(B...)> : std::bool_constant<same_value<R, S> && (same_value<A, B> && ...)> {};

namespace backplane::driver::cuda {
#define TYPE(name, ...) static_assert(Same<ours::ncclResult_t (*)(__VA_ARGS__), decltype(&::name)>::value, #name);
BP_NCCL_FUNCTIONS(TYPE)
BP_NCCL_NEWER_FUNCTIONS(TYPE)
#undef TYPE
#define TYPE(name, ...) static_assert(Same<const char* (*)(__VA_ARGS__), decltype(&::name)>::value, #name);
BP_NCCL_TEXTS(TYPE)
#undef TYPE
}  // namespace backplane::driver::cuda

#define VALUE(name) static_assert(our_##name == static_cast<long long>(name), #name);
VALUES(VALUE)
static_assert(ours::nccl_version(2, 27) == NCCL_VERSION(2, 27, 0));
constexpr ncclConfig_t kBeginning = NCCL_CONFIG_INITIALIZER;
static_assert(kBeginning.magic == ours::kNcclMagic);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
static_assert(ours::kNcclTimeout == ncclTimeout);
#endif

static_assert(sizeof(ours::ncclUniqueId) == sizeof(::ncclUniqueId) && alignof(ours::ncclUniqueId) == alignof(::ncclUniqueId));
static_assert(sizeof(ours::ncclConfig_t) <= sizeof(::ncclConfig_t));
#define MEMBER(member)                                                                                              \
  static_assert(offsetof(ours::ncclConfig_t, member) == offsetof(::ncclConfig_t, member), "ncclConfig_t." #member); \
  static_assert(sizeof(ours::ncclConfig_t::member) == sizeof(::ncclConfig_t::member), "ncclConfig_t." #member);
MEMBER(size)
MEMBER(magic)
MEMBER(version)
MEMBER(blocking)
MEMBER(cgaClusterSize)
MEMBER(minCTAs)
MEMBER(maxCTAs)
MEMBER(netName)
MEMBER(splitShare)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
MEMBER(trafficClass)
MEMBER(commName)
#endif

int main() {}
