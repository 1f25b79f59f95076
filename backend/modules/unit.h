// modules/unit.h: from a kernel's source to a function on a device: compiled once in a process, or read from the cache, and loaded on each
// device that uses it. Any thread.
//
// What happens when a kernel is wanted that is not there yet, <PREFIX>_KERNELS or set_kernel_policy():
//   wait         the calling thread compiles it (the default)
//   background   another thread does; until then there is none, and the caller computes in another way
//   off          there is none, ever
//   strict       as wait, and a compiler that fails is an error; else it is a warning, and there is none
#pragma once

#include <backplane/driver/module.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "modules/cache.h"
#include "modules/target.h"
#include "modules/ttir.h"

namespace backplane {

enum class KernelPolicy : uint8_t { wait, background, off, strict };
inline constexpr const char* kKernelPolicies[] = {"wait", "background", "off", "strict"};
std::optional<KernelPolicy> kernel_policy_named(std::string_view word);

// Throws for an invalid word in the environment.
KernelPolicy kernel_policy();
void set_kernel_policy(KernelPolicy policy);

// The source of a kernel, as a family of kernels builds it.
struct KernelSource {
  std::string name;                // for messages: "exp[f32]"
  std::string definitions;         // lines of #define, before everything else
  std::vector<const char*> files;  // of the library, in this order, after dialect/core.bpc
  const char* kernel;              // in the last file
  uint32_t per_item;               // BP_PER_ITEM
  bp_signature signature;
  std::string text = {};  // after the files: a kernel outside the library, for which there is no other implementation
  // The text is all there is, of TTIR, by this release of Triton; "": of the dialect.
  std::string triton = {};
  uint32_t num_warps = 0, num_stages = 0;
};

// A kernel on one device; lives as long as the process.
struct Function {
  bp_function* handle;
  uint32_t group;    // items
  const char* name;  // "mul.Tensor[f32,f64]"
};

// NULL: there is none (yet, if `later`); why_no_kernel(name) returns the reason. Throws errors of a device, and of the compiler with
// `strict`.
const Function* find_function(c10::DeviceIndex device, const KernelSource& source, bool* later);

// As above for callers without another implementation, whatever the policy: throws why there is none.
const Function& require_function(c10::DeviceIndex device, const KernelSource& source);

// What the driver says of a kernel of TTIR, compiled for a device's target or read from the cache. Throws why there is none.
TtirFacts ttir_facts(c10::DeviceIndex device, const KernelSource& source);

// Waits until everything that was queued for the background is compiled.
void finish_compiling();

// What this process has requested so far, compiled or not: `precompile` compiles it again elsewhere.
std::vector<KernelSource> wanted_kernels();

// Compiles a kernel for a target of all_targets() into the folder of a package (cache.h). Uses no device, and does not open the driver.
// Returns "", or why the compiler failed. Throws if there is no compiler, no such target, or the folder cannot be written.
std::string precompile(const std::string& target, const KernelSource& source, const std::string& folder);

// The code of a kernel for a target of all_targets(), from the cache or compiled, and its key there. Throws why there is none.
std::pair<std::string, Code> code_for(const std::string& target, const KernelSource& source);

struct KernelCounts {
  uint64_t compiled = 0;    // by the compiler
  uint64_t from_cache = 0;  // read from disk
  uint64_t failed = 0;
  uint64_t waiting = 0;  // queued for the background
};
KernelCounts kernel_counts();

// Why a unit of that name is not available, in this process: the compiler's log. Empty if no error is known.
std::string why_no_kernel(const std::string& name);

}  // namespace backplane
