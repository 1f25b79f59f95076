// drivers/vulkan/vk_functions.h: the functions of Vulkan that this driver calls, by what they are found with.
#pragma once

#include "vk_query.h"

namespace backplane::driver::vulkan {

/// X(result, name, parameters) for those of the loader itself.
#define BP_VULKAN_GLOBAL(X)                                                                             \
  X(VkResult, vkCreateInstance, (const VkInstanceCreateInfo*, VkAllocator*, VkInstance*))               \
  X(VkResult, vkEnumerateInstanceExtensionProperties, (const char*, uint32_t*, VkExtensionProperties*)) \
  X(VkResult, vkEnumerateInstanceVersion, (uint32_t*))

/// The same for those of an instance.
#define BP_VULKAN_INSTANCE(X)                                                                                           \
  X(void, vkDestroyInstance, (VkInstance, VkAllocator*))                                                                \
  X(VkResult, vkEnumeratePhysicalDevices, (VkInstance, uint32_t*, VkPhysicalDevice*))                                   \
  X(void, vkGetPhysicalDeviceProperties2, (VkPhysicalDevice, VkPhysicalDeviceProperties2*))                             \
  X(void, vkGetPhysicalDeviceFeatures2, (VkPhysicalDevice, VkPhysicalDeviceFeatures2*))                                 \
  X(void, vkGetPhysicalDeviceMemoryProperties2, (VkPhysicalDevice, VkPhysicalDeviceMemoryProperties2*))                 \
  X(void, vkGetPhysicalDeviceQueueFamilyProperties, (VkPhysicalDevice, uint32_t*, VkQueueFamilyProperties*))            \
  X(VkResult, vkEnumerateDeviceExtensionProperties, (VkPhysicalDevice, const char*, uint32_t*, VkExtensionProperties*)) \
  X(VkResult, vkCreateDevice, (VkPhysicalDevice, const VkDeviceCreateInfo*, VkAllocator*, VkDevice*))                   \
  X(VkVoidFunction, vkGetDeviceProcAddr, (VkDevice, const char*))

/// The same for those of a device.
#define BP_VULKAN_DEVICE(X)                                                                                                             \
  X(void, vkDestroyDevice, (VkDevice, VkAllocator*))                                                                                    \
  X(void, vkGetDeviceQueue, (VkDevice, uint32_t, uint32_t, VkQueue*))                                                                   \
  X(VkResult, vkQueueSubmit, (VkQueue, uint32_t, const VkSubmitInfo*, VkFence))                                                         \
  X(VkResult, vkDeviceWaitIdle, (VkDevice))                                                                                             \
  X(VkResult, vkAllocateMemory, (VkDevice, const VkMemoryAllocateInfo*, VkAllocator*, VkDeviceMemory*))                                 \
  X(void, vkFreeMemory, (VkDevice, VkDeviceMemory, VkAllocator*))                                                                       \
  X(VkResult, vkMapMemory, (VkDevice, VkDeviceMemory, VkDeviceSize, VkDeviceSize, VkFlags, void**))                                     \
  X(VkResult, vkCreateBuffer, (VkDevice, const VkBufferCreateInfo*, VkAllocator*, VkBuffer*))                                           \
  X(void, vkDestroyBuffer, (VkDevice, VkBuffer, VkAllocator*))                                                                          \
  X(void, vkGetBufferMemoryRequirements, (VkDevice, VkBuffer, VkMemoryRequirements*))                                                   \
  X(VkResult, vkBindBufferMemory, (VkDevice, VkBuffer, VkDeviceMemory, VkDeviceSize))                                                   \
  X(uint64_t, vkGetBufferDeviceAddress, (VkDevice, const VkBufferDeviceAddressInfo*))                                                   \
  X(VkResult, vkCreateSemaphore, (VkDevice, const VkSemaphoreCreateInfo*, VkAllocator*, VkSemaphore*))                                  \
  X(void, vkDestroySemaphore, (VkDevice, VkSemaphore, VkAllocator*))                                                                    \
  X(VkResult, vkGetSemaphoreCounterValue, (VkDevice, VkSemaphore, uint64_t*))                                                           \
  X(VkResult, vkWaitSemaphores, (VkDevice, const VkSemaphoreWaitInfo*, uint64_t))                                                       \
  X(VkResult, vkSignalSemaphore, (VkDevice, const VkSemaphoreSignalInfo*))                                                              \
  X(VkResult, vkCreateCommandPool, (VkDevice, const VkCommandPoolCreateInfo*, VkAllocator*, VkCommandPool*))                            \
  X(void, vkDestroyCommandPool, (VkDevice, VkCommandPool, VkAllocator*))                                                                \
  X(VkResult, vkAllocateCommandBuffers, (VkDevice, const VkCommandBufferAllocateInfo*, VkCommandBuffer*))                               \
  X(VkResult, vkBeginCommandBuffer, (VkCommandBuffer, const VkCommandBufferBeginInfo*))                                                 \
  X(VkResult, vkEndCommandBuffer, (VkCommandBuffer))                                                                                    \
  X(void, vkCmdCopyBuffer, (VkCommandBuffer, VkBuffer, VkBuffer, uint32_t, const VkBufferCopy*))                                        \
  X(void, vkCmdFillBuffer, (VkCommandBuffer, VkBuffer, VkDeviceSize, VkDeviceSize, uint32_t))                                           \
  X(void, vkCmdPipelineBarrier,                                                                                                         \
    (VkCommandBuffer, VkFlags, VkFlags, VkFlags, uint32_t, const VkMemoryBarrier*, uint32_t, const void*, uint32_t, const void*))       \
  X(void, vkCmdBindPipeline, (VkCommandBuffer, int32_t, VkPipeline))                                                                    \
  X(void, vkCmdPushConstants, (VkCommandBuffer, VkPipelineLayout, VkFlags, uint32_t, uint32_t, const void*))                            \
  X(void, vkCmdDispatch, (VkCommandBuffer, uint32_t, uint32_t, uint32_t))                                                               \
  X(void, vkCmdResetQueryPool, (VkCommandBuffer, VkQueryPool, uint32_t, uint32_t))                                                      \
  X(void, vkCmdWriteTimestamp, (VkCommandBuffer, VkFlags, VkQueryPool, uint32_t))                                                       \
  X(VkResult, vkCreateQueryPool, (VkDevice, const VkQueryPoolCreateInfo*, VkAllocator*, VkQueryPool*))                                  \
  X(void, vkDestroyQueryPool, (VkDevice, VkQueryPool, VkAllocator*))                                                                    \
  X(void, vkCmdCopyQueryPoolResults, (VkCommandBuffer, VkQueryPool, uint32_t, uint32_t, VkBuffer, VkDeviceSize, VkDeviceSize, VkFlags)) \
  X(VkResult, vkCreateShaderModule, (VkDevice, const VkShaderModuleCreateInfo*, VkAllocator*, VkShaderModule*))                         \
  X(void, vkDestroyShaderModule, (VkDevice, VkShaderModule, VkAllocator*))                                                              \
  X(VkResult, vkCreatePipelineLayout, (VkDevice, const VkPipelineLayoutCreateInfo*, VkAllocator*, VkPipelineLayout*))                   \
  X(void, vkDestroyPipelineLayout, (VkDevice, VkPipelineLayout, VkAllocator*))                                                          \
  X(VkResult, vkCreatePipelineCache, (VkDevice, const VkPipelineCacheCreateInfo*, VkAllocator*, VkPipelineCache*))                      \
  X(void, vkDestroyPipelineCache, (VkDevice, VkPipelineCache, VkAllocator*))                                                            \
  X(VkResult, vkGetPipelineCacheData, (VkDevice, VkPipelineCache, size_t*, void*))                                                      \
  X(VkResult, vkCreateComputePipelines,                                                                                                 \
    (VkDevice, VkPipelineCache, uint32_t, const VkComputePipelineCreateInfo*, VkAllocator*, VkPipeline*))                               \
  X(void, vkDestroyPipeline, (VkDevice, VkPipeline, VkAllocator*))

/// Of VK_EXT_external_memory_host and VK_EXT_calibrated_timestamps; NULL on a device without them.
#define BP_VULKAN_DEVICE_OPTIONAL(X)                                                                                         \
  X(VkResult, vkGetCalibratedTimestampsEXT, (VkDevice, uint32_t, const VkCalibratedTimestampInfoEXT*, uint64_t*, uint64_t*)) \
  X(VkResult, vkGetMemoryHostPointerPropertiesEXT, (VkDevice, VkFlags, const void*, VkMemoryHostPointerPropertiesEXT*))

}  // namespace backplane::driver::vulkan
