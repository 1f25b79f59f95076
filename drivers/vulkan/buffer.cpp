// drivers/vulkan/buffer.cpp: makes buffers, of the device's memory or of the host's.
#include "buffer.h"

namespace backplane::driver::vulkan {

Buffer::Buffer(const DeviceCalls& calls, VkDevice device, uint64_t bytes, uint32_t memory_type, Mapped mapped)
    : calls_(calls), device_(device) {
  try {
    create(bytes ? bytes : 1, nullptr);
    VkMemoryRequirements need{};
    calls_.vkGetBufferMemoryRequirements(device_, buffer_, &need);
    if (!(need.memoryTypeBits >> memory_type & 1)) throw Error(BP_UNSUPPORTED, "the memory type of the device takes no buffers");
    auto flags = vk<VkMemoryAllocateFlagsInfo>();
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    auto wanted = vk<VkMemoryAllocateInfo>(&flags);
    wanted.allocationSize = need.size;
    wanted.memoryTypeIndex = memory_type;
    check(calls_.vkAllocateMemory(device_, &wanted, nullptr, &memory_), "vkAllocateMemory");
    bind();
    if (mapped == Mapped::no) return;
    void* at = nullptr;
    check(calls_.vkMapMemory(device_, memory_, 0, VK_WHOLE_SIZE, 0, &at), "vkMapMemory");
    host_ = static_cast<char*>(at);
  } catch (...) {
    release();
    throw;
  }
}

Buffer::Buffer(const DeviceCalls& calls, VkDevice device, void* begin, uint64_t bytes) : calls_(calls), device_(device) {
  constexpr VkFlags kind = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  try {
    auto outside = vk<VkExternalMemoryBufferCreateInfo>();
    outside.handleTypes = kind;
    create(bytes, &outside);
    VkMemoryRequirements need{};
    calls_.vkGetBufferMemoryRequirements(device_, buffer_, &need);
    auto of = vk<VkMemoryHostPointerPropertiesEXT>();
    check(calls_.vkGetMemoryHostPointerPropertiesEXT(device_, kind, begin, &of), "vkGetMemoryHostPointerPropertiesEXT");
    const uint32_t types = of.memoryTypeBits & need.memoryTypeBits;
    if (!types || need.size > bytes) throw Error(BP_UNSUPPORTED, "the device cannot use this memory of the host");
    auto import = vk<VkImportMemoryHostPointerInfoEXT>();
    import.handleType = kind;
    import.pHostPointer = begin;
    auto flags = vk<VkMemoryAllocateFlagsInfo>(&import);
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    auto wanted = vk<VkMemoryAllocateInfo>(&flags);
    wanted.allocationSize = bytes;
    wanted.memoryTypeIndex = static_cast<uint32_t>(__builtin_ctz(types));
    check(calls_.vkAllocateMemory(device_, &wanted, nullptr, &memory_), "vkAllocateMemory");
    bind();
  } catch (...) {
    release();
    throw;
  }
  host_ = static_cast<char*>(begin);
}

void Buffer::create(uint64_t bytes, const void* next) {
  auto wanted = vk<VkBufferCreateInfo>(next);
  wanted.size = bytes;
  wanted.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                 VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  check(calls_.vkCreateBuffer(device_, &wanted, nullptr, &buffer_), "vkCreateBuffer");
}

void Buffer::bind() {
  check(calls_.vkBindBufferMemory(device_, buffer_, memory_, 0), "vkBindBufferMemory");
  auto which = vk<VkBufferDeviceAddressInfo>();
  which.buffer = buffer_;
  address_ = calls_.vkGetBufferDeviceAddress(device_, &which);
}

void Buffer::release() noexcept {
  calls_.vkDestroyBuffer(device_, buffer_, nullptr);  // of NULL nothing
  calls_.vkFreeMemory(device_, memory_, nullptr);
}

}  // namespace backplane::driver::vulkan
