// drivers/vulkan/vk.h: what this driver needs of Vulkan's declarations, so that nothing of Vulkan is needed to build it.
//
// Names, numbers and the order of members are those of the Vulkan specification (Khronos): 1.2, and VK_EXT_external_memory_host. What a
// device is asked for is in vk_query.h, the functions are in vk_functions.h. 64-bit hosts only: there each handle is a pointer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace backplane::driver::vulkan {

using VkBool32 = uint32_t;
using VkFlags = uint32_t;
using VkDeviceSize = uint64_t;
using VkResult = int32_t;

using VkInstance = struct VkInstance_T*;
using VkPhysicalDevice = struct VkPhysicalDevice_T*;
using VkDevice = struct VkDevice_T*;
using VkQueue = struct VkQueue_T*;
using VkCommandBuffer = struct VkCommandBuffer_T*;
using VkCommandPool = struct VkCommandPool_T*;
using VkSemaphore = struct VkSemaphore_T*;
using VkFence = struct VkFence_T*;
using VkBuffer = struct VkBuffer_T*;
using VkDeviceMemory = struct VkDeviceMemory_T*;
using VkQueryPool = struct VkQueryPool_T*;
using VkShaderModule = struct VkShaderModule_T*;
using VkPipelineCache = struct VkPipelineCache_T*;
using VkPipelineLayout = struct VkPipelineLayout_T*;
using VkPipeline = struct VkPipeline_T*;
static_assert(sizeof(void*) == 8, "the Vulkan driver is for 64-bit hosts");

using VkAllocator = const void;  // VkAllocationCallbacks, which this driver does not use
using VkVoidFunction = void (*)();

// Results.
constexpr VkResult VK_SUCCESS = 0, VK_NOT_READY = 1, VK_TIMEOUT = 2, VK_INCOMPLETE = 5, VK_ERROR_OUT_OF_HOST_MEMORY = -1,
                   VK_ERROR_OUT_OF_DEVICE_MEMORY = -2, VK_ERROR_INITIALIZATION_FAILED = -3, VK_ERROR_DEVICE_LOST = -4,
                   VK_ERROR_MEMORY_MAP_FAILED = -5, VK_ERROR_LAYER_NOT_PRESENT = -6, VK_ERROR_EXTENSION_NOT_PRESENT = -7,
                   VK_ERROR_FEATURE_NOT_PRESENT = -8, VK_ERROR_INCOMPATIBLE_DRIVER = -9, VK_ERROR_TOO_MANY_OBJECTS = -10,
                   VK_ERROR_FRAGMENTED_POOL = -12, VK_ERROR_UNKNOWN = -13, VK_ERROR_OUT_OF_POOL_MEMORY = -1000069000,
                   VK_ERROR_INVALID_EXTERNAL_HANDLE = -1000072003, VK_ERROR_FRAGMENTATION = -1000161000;

constexpr uint32_t make_version(uint32_t major, uint32_t minor) { return major << 22 | minor << 12; }
constexpr uint32_t major_of(uint32_t version) { return version >> 22 & 0x7f; }
constexpr uint32_t minor_of(uint32_t version) { return version >> 12 & 0x3ff; }

// ---- structs, each with its VkStructureType as kType

struct VkApplicationInfo {
  static constexpr int32_t kType = 0;
  int32_t sType;
  const void* pNext;
  const char* pApplicationName;
  uint32_t applicationVersion;
  const char* pEngineName;
  uint32_t engineVersion, apiVersion;
};

constexpr VkFlags VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR = 1;
struct VkInstanceCreateInfo {
  static constexpr int32_t kType = 1;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  const VkApplicationInfo* pApplicationInfo;
  uint32_t enabledLayerCount;
  const char* const* ppEnabledLayerNames;
  uint32_t enabledExtensionCount;
  const char* const* ppEnabledExtensionNames;
};

struct VkExtensionProperties {
  char extensionName[256];
  uint32_t specVersion;
};

struct VkDeviceQueueCreateInfo {
  static constexpr int32_t kType = 2;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  uint32_t queueFamilyIndex, queueCount;
  const float* pQueuePriorities;
};

struct VkPhysicalDeviceFeatures;
struct VkDeviceCreateInfo {
  static constexpr int32_t kType = 3;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  uint32_t queueCreateInfoCount;
  const VkDeviceQueueCreateInfo* pQueueCreateInfos;
  uint32_t enabledLayerCount;
  const char* const* ppEnabledLayerNames;
  uint32_t enabledExtensionCount;
  const char* const* ppEnabledExtensionNames;
  const VkPhysicalDeviceFeatures* pEnabledFeatures;
};

// Memory.
constexpr VkFlags VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT = 1 << 0, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT = 1 << 1,
                  VK_MEMORY_PROPERTY_HOST_COHERENT_BIT = 1 << 2, VK_MEMORY_PROPERTY_HOST_CACHED_BIT = 1 << 3;
constexpr VkFlags VK_MEMORY_HEAP_DEVICE_LOCAL_BIT = 1 << 0;
constexpr VkFlags VK_BUFFER_USAGE_TRANSFER_SRC_BIT = 1 << 0, VK_BUFFER_USAGE_TRANSFER_DST_BIT = 1 << 1,
                  VK_BUFFER_USAGE_STORAGE_BUFFER_BIT = 1 << 5, VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT = 1 << 17;
constexpr VkFlags VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT = 1 << 1;
constexpr VkFlags VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT = 1 << 7;
constexpr VkDeviceSize VK_WHOLE_SIZE = ~uint64_t{0};

struct VkBufferCreateInfo {
  static constexpr int32_t kType = 12;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  VkDeviceSize size;
  VkFlags usage;
  int32_t sharingMode;  // 0: one queue family
  uint32_t queueFamilyIndexCount;
  const uint32_t* pQueueFamilyIndices;
};
struct VkExternalMemoryBufferCreateInfo {
  static constexpr int32_t kType = 1000072000;
  int32_t sType;
  const void* pNext;
  VkFlags handleTypes;
};
struct VkMemoryRequirements {
  VkDeviceSize size, alignment;
  uint32_t memoryTypeBits;
};
struct VkMemoryAllocateInfo {
  static constexpr int32_t kType = 5;
  int32_t sType;
  const void* pNext;
  VkDeviceSize allocationSize;
  uint32_t memoryTypeIndex;
};
struct VkMemoryAllocateFlagsInfo {
  static constexpr int32_t kType = 1000060000;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  uint32_t deviceMask;
};
struct VkImportMemoryHostPointerInfoEXT {
  static constexpr int32_t kType = 1000178000;
  int32_t sType;
  const void* pNext;
  VkFlags handleType;
  void* pHostPointer;
};
struct VkMemoryHostPointerPropertiesEXT {
  static constexpr int32_t kType = 1000178001;
  int32_t sType;
  void* pNext;
  uint32_t memoryTypeBits;
};
struct VkBufferDeviceAddressInfo {
  static constexpr int32_t kType = 1000244001;
  int32_t sType;
  const void* pNext;
  VkBuffer buffer;
};

// Semaphores and submissions.
struct VkSemaphoreTypeCreateInfo {
  static constexpr int32_t kType = 1000207002;
  int32_t sType;
  const void* pNext;
  int32_t semaphoreType;  // 1: timeline
  uint64_t initialValue;
};
struct VkSemaphoreCreateInfo {
  static constexpr int32_t kType = 9;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
};
struct VkSemaphoreWaitInfo {
  static constexpr int32_t kType = 1000207004;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  uint32_t semaphoreCount;
  const VkSemaphore* pSemaphores;
  const uint64_t* pValues;
};
struct VkSemaphoreSignalInfo {
  static constexpr int32_t kType = 1000207005;
  int32_t sType;
  const void* pNext;
  VkSemaphore semaphore;
  uint64_t value;
};
struct VkTimelineSemaphoreSubmitInfo {
  static constexpr int32_t kType = 1000207003;
  int32_t sType;
  const void* pNext;
  uint32_t waitSemaphoreValueCount;
  const uint64_t* pWaitSemaphoreValues;
  uint32_t signalSemaphoreValueCount;
  const uint64_t* pSignalSemaphoreValues;
};
struct VkSubmitInfo {
  static constexpr int32_t kType = 4;
  int32_t sType;
  const void* pNext;
  uint32_t waitSemaphoreCount;
  const VkSemaphore* pWaitSemaphores;
  const VkFlags* pWaitDstStageMask;
  uint32_t commandBufferCount;
  const VkCommandBuffer* pCommandBuffers;
  uint32_t signalSemaphoreCount;
  const VkSemaphore* pSignalSemaphores;
};

// Commands.
constexpr VkFlags VK_COMMAND_POOL_CREATE_TRANSIENT_BIT = 1 << 0, VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT = 1 << 1;
constexpr VkFlags VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT = 1 << 0, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT = 1 << 2;
constexpr VkFlags VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT = 1 << 13, VK_PIPELINE_STAGE_HOST_BIT = 1 << 14,
                  VK_PIPELINE_STAGE_ALL_COMMANDS_BIT = 1 << 16;
constexpr VkFlags VK_ACCESS_HOST_READ_BIT = 1 << 13, VK_ACCESS_HOST_WRITE_BIT = 1 << 14, VK_ACCESS_MEMORY_READ_BIT = 1 << 15,
                  VK_ACCESS_MEMORY_WRITE_BIT = 1 << 16;
constexpr int32_t VK_PIPELINE_BIND_POINT_COMPUTE = 1;
constexpr VkFlags VK_SHADER_STAGE_COMPUTE_BIT = 1 << 5;
constexpr int32_t VK_QUERY_TYPE_TIMESTAMP = 2;
constexpr VkFlags VK_QUERY_RESULT_64_BIT = 1 << 0, VK_QUERY_RESULT_WAIT_BIT = 1 << 1;

struct VkCommandPoolCreateInfo {
  static constexpr int32_t kType = 39;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  uint32_t queueFamilyIndex;
};
struct VkCommandBufferAllocateInfo {
  static constexpr int32_t kType = 40;
  int32_t sType;
  const void* pNext;
  VkCommandPool commandPool;
  int32_t level;  // 0: primary
  uint32_t commandBufferCount;
};
struct VkCommandBufferBeginInfo {
  static constexpr int32_t kType = 42;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  const void* pInheritanceInfo;
};
struct VkMemoryBarrier {
  static constexpr int32_t kType = 46;
  int32_t sType;
  const void* pNext;
  VkFlags srcAccessMask, dstAccessMask;
};
struct VkBufferCopy {
  VkDeviceSize srcOffset, dstOffset, size;
};
struct VkQueryPoolCreateInfo {
  static constexpr int32_t kType = 11;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  int32_t queryType;
  uint32_t queryCount;
  VkFlags pipelineStatistics;
};

// Clocks.
struct VkCalibratedTimestampInfoEXT {
  static constexpr int32_t kType = 1000184000;
  int32_t sType;
  const void* pNext;
  int32_t timeDomain;  // 0: the device's, as its timestamps have it
};

// Pipelines.
struct VkShaderModuleCreateInfo {
  static constexpr int32_t kType = 16;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  size_t codeSize;
  const uint32_t* pCode;
};
struct VkPipelineCacheCreateInfo {
  static constexpr int32_t kType = 17;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  size_t initialDataSize;
  const void* pInitialData;
};
struct VkPushConstantRange {
  VkFlags stageFlags;
  uint32_t offset, size;
};
struct VkPipelineLayoutCreateInfo {
  static constexpr int32_t kType = 30;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  uint32_t setLayoutCount;
  const void* pSetLayouts;
  uint32_t pushConstantRangeCount;
  const VkPushConstantRange* pPushConstantRanges;
};
struct VkPipelineShaderStageCreateInfo {
  static constexpr int32_t kType = 18;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  VkFlags stage;
  VkShaderModule module;
  const char* pName;
  const void* pSpecializationInfo;
};
struct VkComputePipelineCreateInfo {
  static constexpr int32_t kType = 29;
  int32_t sType;
  const void* pNext;
  VkFlags flags;
  VkPipelineShaderStageCreateInfo stage;
  VkPipelineLayout layout;
  VkPipeline basePipelineHandle;
  int32_t basePipelineIndex;
};

/// A zeroed struct with its type, followed by `next`.
template <class Struct>
Struct vk(const void* next = nullptr) {
  Struct made{};
  made.sType = Struct::kType;
  made.pNext = const_cast<void*>(next);
  return made;
}

}  // namespace backplane::driver::vulkan
