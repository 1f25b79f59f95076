// drivers/vulkan/module.cpp: makes kernels of code, and writes the arguments of a launch.
#include "module.h"

#include <algorithm>
#include <cstring>

#include "compiler.h"
#include "device.h"
#include "one_entry.h"

namespace backplane::driver::vulkan {
namespace {

constexpr uint32_t kMaxPush = 256;  // bytes that this driver uses of a device's

LaunchLimits limits_of(const Device& device, const spirv::Entry& entry) {
  const uint32_t (&grid)[3] = device.info().max_grid;
  const uint32_t left = device.info().local_bytes - std::min(entry.local_bytes, device.info().local_bytes);
  return {device.index(), 8 * uint64_t{entry.pointers} + entry.value_bytes, {grid[0], grid[1], grid[2]}, entry.group, entry.group, left};
}

/// The arguments, with the addresses as the device has them.
void write_arguments(void* to, const void* args, const spirv::Entry& entry) {
  std::memcpy(to, args, 8 * size_t{entry.pointers} + entry.value_bytes);
  auto* const bytes = static_cast<char*>(to);
  for (uint32_t i = 0; i < entry.pointers; ++i) {
    uint64_t address = 0;
    std::memcpy(&address, bytes + 8 * i, sizeof address);
    address = Device::untagged(address);
    std::memcpy(bytes + 8 * i, &address, sizeof address);
  }
}

}  // namespace

Kernel::Kernel(Device& device, const std::vector<uint32_t>& words, const spirv::Entry& entry)
    : device_(device),
      entry_(entry),
      limits_(limits_of(device, entry)),
      pipeline_(device.pipelines().make(one_entry(words, entry.name), entry.name.c_str(), entry.push_bytes)) {}

void Kernel::record(Commands& commands, const uint32_t (&grid)[3], const void* args) const {
  const DeviceCalls& calls = device_.calls();
  char push[kMaxPush] = {};
  if (entry_.placement == spirv::Placement::push) {
    write_arguments(push, args, entry_);
  } else {
    const Commands::Piece block = commands.place(limits_.args_bytes);
    write_arguments(block.host, args, entry_);
    std::memcpy(push, &block.address, sizeof block.address);
  }
  calls.vkCmdBindPipeline(commands.get(), VK_PIPELINE_BIND_POINT_COMPUTE, pipeline_->get());
  calls.vkCmdPushConstants(commands.get(), pipeline_->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, entry_.push_bytes, push);
  calls.vkCmdDispatch(commands.get(), grid[0], grid[1], grid[2]);
}

std::function<void(Commands& commands)> Kernel::recorded(const bp_launch& launch) const {
  const auto* bytes = static_cast<const char*>(launch.args);
  return [this, launch, args = std::vector<char>(bytes, bytes + launch.args_bytes)](Commands& commands) {
    record(commands, launch.grid, args.data());
  };
}

Module::Module(Device& on, std::string_view image)
    : device(on.index()), on_(on), code_(unpack_module(image)), kernels_(code_.entries.size()) {
  for (const spirv::Entry& entry : code_.entries) {
    const bool fits = entry.placement != spirv::Placement::push || 8 * uint64_t{entry.pointers} + entry.value_bytes <= kMaxPush;
    if (!fits || entry.push_bytes > kMaxPush || entry.placement > spirv::Placement::address) {
      throw Error(BP_INVALID_ARGUMENT, "module.load: the code is not for this driver; compile the source again");
    }
  }
}

Kernel& Module::kernel(const char* name, const bp_signature& signature) {
  const auto found = std::find_if(code_.entries.begin(), code_.entries.end(), [&](const auto& one) { return one.name == name; });
  const auto need = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(BP_INVALID_ARGUMENT, std::string("module.function: ") + name + ": " + what);
  };
  need(found != code_.entries.end(), "there is no kernel of that name");
  need(found->pointers == signature.pointers, format("the signature has %u pointers, the kernel %u", signature.pointers, found->pointers));
  need(found->value_bytes == signature.value_bytes,
       format("the signature has a value of %u bytes, the kernel one of %u", signature.value_bytes, found->value_bytes));
  std::lock_guard lock(mutex_);
  auto& known = kernels_[static_cast<size_t>(found - code_.entries.begin())];
  if (!known) known = std::make_unique<Kernel>(on_, code_.words, *found);
  return *known;
}

}  // namespace backplane::driver::vulkan
