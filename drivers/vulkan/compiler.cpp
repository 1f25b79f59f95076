// drivers/vulkan/compiler.cpp: what kernels may rely on, and the bytes of a compiled unit.
#include "compiler.h"

#include <algorithm>
#include <cstring>

#include "../engine/surveyed.h"

namespace backplane::driver::vulkan {
namespace {

constexpr uint32_t kParameterBytes = 4096;

/// SPIR-V 1.3 is what Vulkan 1.1 knows; 1.2 knows 1.5, 1.3 knows 1.6.
uint32_t spirv_version(const DeviceInfo& info) { return info.api_version >= make_version(1, 3) ? 0x00010600 : 0x00010500; }

spirv::Facts facts_of(const DeviceInfo& info) {
  spirv::Facts out;
  out.flavour = spirv::Flavour::vulkan;
  out.version = spirv_version(info);
  out.max_group = std::min(info.max_group, 1024u);
  out.local_bytes = info.local_bytes;
  out.push_bytes = info.push_bytes;
  out.subgroup_size = info.shuffle ? info.warp : 0;
  out.memory_8 = info.storage_8;
  out.memory_16 = info.storage_16;
  out.int8 = info.int8;
  out.int16 = info.int16;
  out.float64 = info.float64;
  out.atomic_i64 = info.atomics_64;
  out.atomic_add_f32 = info.atomic_add_f32;
  out.denorm_preserve = info.denorm_preserve;
  out.signed_zero_inf_nan = info.signed_zero_inf_nan;
  out.round_to_nearest = info.round_to_nearest;
  out.float64_controls = info.float64_controls;
  // Vulkan has no way to ask. Lavapipe divides by the processor's own instructions, and has no fma.
  out.exact_division = out.exact_sqrt = info.is_lavapipe;
  out.hide_zero = info.is_lavapipe;
  out.hide_sign = info.is_mesa;
  return out;
}

uint32_t preferred_items(const DeviceInfo& info, const Settings& settings) {
  uint32_t items = settings.items ? settings.items : info.cpu() ? 64 : 256;
  while (items > info.max_group) items /= 2;
  return items;
}

}  // namespace

Compiler::Compiler(const Survey& survey, const Settings& settings) : survey_(survey), settings_(settings), prelude_(spirv::prelude()) {
  id_ = format("spirv %u %016llx", spirv::kVersion, wide(checksum(prelude_)));
}

std::vector<bp_target_properties> Compiler::targets() const {
  return targets_of(survey_, [&](const DeviceInfo& info) { return target(info); });
}

bp_target_properties Compiler::target(int32_t device) const {
  if (static_cast<size_t>(device) >= survey_.devices.size()) throw Error(BP_INVALID_DEVICE, format("no device %d", device));
  return target(survey_.devices[static_cast<size_t>(device)]);
}

bp_target_properties Compiler::target(const DeviceInfo& info) const {
  auto out = sized<bp_target_properties>();
  std::memcpy(out.target, info.target, sizeof out.target);
  out.dtypes = BP_DTYPE_INT8 | BP_DTYPE_UINT8 | BP_DTYPE_INT16 | BP_DTYPE_INT32 | BP_DTYPE_INT64 | BP_DTYPE_BOOL | BP_DTYPE_FLOAT32 |
               (info.float64 ? BP_DTYPE_FLOAT64 : 0);
  out.fast_dtypes = out.dtypes;
  out.group_size = preferred_items(info, settings_);
  out.max_group_size = std::min(info.max_group, 1024u);
  out.subgroup_size = info.shuffle ? info.warp : 0;
  out.vector_bytes = 16;
  out.local_bytes = info.local_bytes;
  out.registers = 64;
  std::copy_n(info.max_grid, 3, out.max_grid);
  for (uint64_t& groups : out.max_grid) groups = std::min<uint64_t>(groups, 0x7fffffff);  // numbers of groups are i32
  out.parameter_bytes = kParameterBytes;
  out.atomics = BP_ATOMIC_ADD_I32 | BP_ATOMIC_ADD_F32 | BP_ATOMIC_CAS_32;
  if (info.atomics_64) out.atomics |= BP_ATOMIC_ADD_I64 | BP_ATOMIC_CAS_64;
  if (info.float16) out.features |= BP_FEATURE_FLOAT16;
  if (info.integer_dot) out.features |= BP_FEATURE_INTEGER_DOT;
  if (info.cooperative_matrix) out.features |= BP_FEATURE_MATRIX;
  return out;
}

Compiled Compiler::compile(const bp_compile_request& request) const {
  const DeviceInfo& info = *std::find_if(survey_.devices.begin(), survey_.devices.end(),
                                         [&](const DeviceInfo& one) { return std::strcmp(one.target, request.target) == 0; });
  if (request.options[0]) {
    throw Error(BP_INVALID_ARGUMENT,
                "compiler.compile: the compiler to SPIR-V takes no options, '" + std::string(request.options) + "' was given");
  }
  spirv::Options options;
  options.name = named_unit(request);
  options.fast_math = request.flags & BP_COMPILE_FAST_MATH;
  try {
    return {pack_code("vk", info.target, checksum(id_), pack_module(spirv::compile(request.source, facts_of(info), options))), ""};
  } catch (const spirv::Error& error) {
    return {"", error.what()};
  }
}

// ---- the image

namespace {

struct Header {
  uint32_t entries, words;
};
/// Of an entry; its name follows, in `name_bytes` bytes.
struct EntryImage {
  uint32_t name_bytes, placement, pointers, value_bytes, push_bytes, group, local_bytes;
};

template <class Plain>
void append(std::string& out, const Plain& plain) {
  out.append(reinterpret_cast<const char*>(&plain), sizeof plain);
}

}  // namespace

std::string pack_module(const spirv::Module& module) {
  std::string out;
  append(out, Header{static_cast<uint32_t>(module.entries.size()), static_cast<uint32_t>(module.words.size())});
  for (const spirv::Entry& entry : module.entries) {
    append(out, EntryImage{static_cast<uint32_t>(entry.name.size()), static_cast<uint32_t>(entry.placement), entry.pointers,
                           entry.value_bytes, entry.push_bytes, entry.group, entry.local_bytes});
    out += entry.name;
  }
  return out.append(reinterpret_cast<const char*>(module.words.data()), module.words.size() * sizeof(uint32_t));
}

spirv::Module unpack_module(std::string_view image) {
  const auto take = [&](void* to, size_t bytes) {
    if (bytes > image.size()) throw Error(BP_INVALID_ARGUMENT, "module.load: the code is cut off; compile the source again");
    std::memcpy(to, image.data(), bytes);
    image.remove_prefix(bytes);
  };
  Header header{};
  take(&header, sizeof header);
  spirv::Module out;
  for (uint32_t i = 0; i < header.entries; ++i) {
    EntryImage one{};
    take(&one, sizeof one);
    spirv::Entry entry{};
    entry.name.resize(std::min<size_t>(one.name_bytes, image.size()));
    take(entry.name.data(), one.name_bytes);
    entry.placement = static_cast<spirv::Placement>(one.placement);
    entry.pointers = one.pointers;
    entry.value_bytes = one.value_bytes;
    entry.push_bytes = one.push_bytes;
    entry.group = one.group;
    entry.local_bytes = one.local_bytes;
    out.entries.push_back(std::move(entry));
  }
  out.words.resize(std::min<size_t>(header.words, image.size() / sizeof(uint32_t)));
  take(out.words.data(), size_t{header.words} * sizeof(uint32_t));
  return out;
}

}  // namespace backplane::driver::vulkan
