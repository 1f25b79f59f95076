// drivers/vulkan/commands.cpp: records commands, and hands out the memory that they read.
#include "commands.h"

#include "device.h"

namespace backplane::driver::vulkan {

ArgumentPool::Slot ArgumentPool::take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    auto made =
        std::make_unique<Buffer>(device_.calls(), device_.get(), kSlot * kSlots, device_.info().arguments_type, Buffer::Mapped::yes);
    buffers_.push_back(std::move(made));
    free_.reserve(kSlots * buffers_.size());
    for (uint64_t i = 0; i < kSlots; ++i) free_.push_back({buffers_.back().get(), i * kSlot});
  }
  const Slot slot = free_.back();
  free_.pop_back();
  return slot;
}

void ArgumentPool::give(const std::vector<Slot>& slots) {
  std::lock_guard lock(mutex_);
  free_.insert(free_.end(), slots.begin(), slots.end());  // there is room: it was reserved
}

CommandPool::CommandPool(Device& device) : device_(device) {
  auto wanted = vk<VkCommandPoolCreateInfo>();
  wanted.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  wanted.queueFamilyIndex = device_.info().family;
  check(device_.calls().vkCreateCommandPool(device_.get(), &wanted, nullptr, &pool_), "vkCreateCommandPool");
}

CommandPool::~CommandPool() { device_.calls().vkDestroyCommandPool(device_.get(), pool_, nullptr); }

VkCommandBuffer CommandPool::make() {
  auto wanted = vk<VkCommandBufferAllocateInfo>();
  wanted.commandPool = pool_;
  wanted.commandBufferCount = 1;
  VkCommandBuffer made = nullptr;
  check(device_.calls().vkAllocateCommandBuffers(device_.get(), &wanted, &made), "vkAllocateCommandBuffers");
  return made;
}

Commands::Commands(Device& device, CommandPool& pool) : device_(device), buffer_(pool.make()) {}

Commands::~Commands() { device_.arguments().give(slots_); }

void Commands::begin(VkFlags usage) {
  auto how = vk<VkCommandBufferBeginInfo>();
  how.flags = usage;
  check(device_.calls().vkBeginCommandBuffer(buffer_, &how), "vkBeginCommandBuffer");
}

void Commands::end() {
  barrier();
  check(device_.calls().vkEndCommandBuffer(buffer_), "vkEndCommandBuffer");
}

void Commands::barrier() {
  auto all = vk<VkMemoryBarrier>();
  all.srcAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT;
  all.dstAccessMask = all.srcAccessMask | VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT;
  device_.calls().vkCmdPipelineBarrier(buffer_, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                                       VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &all, 0, nullptr, 0, nullptr);
}

Commands::Piece Commands::place(uint64_t bytes) {
  if (bytes > ArgumentPool::kSlot) throw Error(BP_INTERNAL, format("a command reads %llu bytes of the host", wide(bytes)));
  if (slots_.empty() || used_ + bytes > ArgumentPool::kSlot) {
    slots_.reserve(slots_.size() + 1);
    slots_.push_back(device_.arguments().take());
    used_ = 0;
  }
  const auto& [of, begin] = slots_.back();
  const uint64_t at = begin + used_;
  used_ += (bytes + 15) & ~uint64_t{15};
  return {of->host() + at, of->address() + at, of->get(), at};
}

void Commands::recycle() {
  kept_.clear();
  used_ = 0;
  if (slots_.size() <= 1) return;  // the first one is used again
  device_.arguments().give({slots_.begin() + 1, slots_.end()});
  slots_.resize(1);
}

}  // namespace backplane::driver::vulkan
