// bindings/modules.cpp: compiled kernels: the policy, their targets, and their statistics.
#include "bindings/module.h"

#include <backplane/driver/cxx/compiler.hpp>

#include "dispatch/defaults.h"
#include "modules/cache.h"
#include "modules/unit.h"

namespace backplane::bindings {
namespace {

py::dict properties_of(const Target& target) {
  const bp_target_properties& p = target.properties;
  py::dict result;
  result["name"] = std::string(p.target);
  result["compiler"] = target.compiler;
  result["dtypes"] = p.dtypes;
  result["fast_dtypes"] = p.fast_dtypes;
  result["group_size"] = p.group_size;
  result["max_group_size"] = p.max_group_size;
  result["subgroup_size"] = p.subgroup_size;
  result["vector_bytes"] = p.vector_bytes;
  result["local_bytes"] = p.local_bytes;
  result["registers"] = p.registers;
  result["max_grid"] = py::make_tuple(p.max_grid[0], p.max_grid[1], p.max_grid[2]);
  result["parameter_bytes"] = p.parameter_bytes;
  result["atomics"] = p.atomics;
  py::list languages;
  if (driver::supports(p, BP_LANGUAGE_DIALECT)) languages.append("dialect");
  if (driver::supports(p, BP_LANGUAGE_TTIR)) languages.append("ttir");
  result["languages"] = py::tuple(languages);
  py::list features;
  if (p.features & BP_FEATURE_FLOAT16) features.append("float16 arithmetic");
  if (p.features & BP_FEATURE_INTEGER_DOT) features.append("integer dot products");
  if (p.features & BP_FEATURE_MATRIX) features.append("matrix products");
  result["features"] = py::tuple(features);
  return result;
}

}  // namespace

void bind_modules(py::module_& module) {
  def_quick(module, "policy", [] { return std::string(kKernelPolicies[static_cast<size_t>(kernel_policy())]); });
  def_quick(module, "set_policy", [](const std::string& word) {
    const auto policy = kernel_policy_named(word);
    TORCH_CHECK_VALUE(policy, "the policy for kernels must be wait, background, off or strict, not '", word, "'");
    TORCH_CHECK(policy == KernelPolicy::off || !portable_is_left_out(),
                "compiled kernels were left out when the backend was imported (" BACKPLANE_ENV_PREFIX
                "_KERNELS=off). Unset it; set_policy('off') disables them temporarily");
    set_kernel_policy(*policy);
  });
  def_blocking(module, "can_compile", [] { return can_compile(); });
  def_blocking(module, "can_compile_ttir", [] { return can_compile(BP_LANGUAGE_TTIR); });
  def_quick(module, "target", [](int64_t device) { return properties_of(target_of(device_index(device))); });
  def_quick(module, "target_named", [](const std::string& name) { return properties_of(target_named(name)); });
  def_blocking(module, "targets", [] { return all_targets(); });
  def_quick(module, "wanted", [] {
    py::list sources;
    for (const KernelSource& source : wanted_kernels()) {
      py::list files;
      for (const char* file : source.files) files.append(file);
      sources.append(py::make_tuple(source.name, source.definitions, files, source.per_item, source.text, source.triton, source.num_warps,
                                    source.num_stages));
    }
    return sources;
  });
  def_blocking(module, "precompile",
               [](const std::string& target, const std::string& name, const std::string& definitions, const std::vector<std::string>& files,
                  uint32_t per_item, const std::string& text, const std::string& triton, uint32_t num_warps, uint32_t num_stages,
                  const std::string& folder) {
                 KernelSource source{name, definitions, {}, "", per_item, {}, text, triton, num_warps, num_stages};
                 for (const std::string& file : files) source.files.push_back(file.c_str());
                 return precompile(target, source, folder);
               });
  def_blocking(module, "finish", [] { finish_compiling(); });
  def_quick(module, "counts", [] {
    const KernelCounts now = kernel_counts();
    py::dict result;
    result["compiled"] = now.compiled;
    result["from_cache"] = now.from_cache;
    result["failed"] = now.failed;
    result["waiting"] = now.waiting;
    return result;
  });
  def_blocking(module, "why_not", [](const std::string& name) { return why_no_kernel(name); });
  add_generated_kernel(module);
  add_triton_launcher(module);
  add_empty_strided(module);
  def_quick(module, "cache_folder", [] { return std::make_pair(cache_folder().path, cache_folder().refusal); });
}

}  // namespace backplane::bindings
