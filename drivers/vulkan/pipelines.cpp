// drivers/vulkan/pipelines.cpp: makes pipelines, over a VkPipelineCache each, whose bytes are a file.
#include "pipelines.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include <backplane/driver/cxx/code.hpp>

#include "device.h"

namespace backplane::driver::vulkan {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Whole or not at all, whoever else writes it. What cannot be written is made again next time.
void write(const std::string& path, const std::string& bytes) {
  static std::atomic<uint32_t> number{0};
  const std::string part = path + format(".%d.%u", static_cast<int>(::getpid()), number++);
  std::ofstream file(part, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file || ::rename(part.c_str(), path.c_str()) != 0) ::unlink(part.c_str());
}

}  // namespace

Pipeline::~Pipeline() {
  device_.calls().vkDestroyPipeline(device_.get(), pipeline_, nullptr);
  device_.calls().vkDestroyPipelineLayout(device_.get(), layout_, nullptr);
}

Pipelines::Pipelines(Device& device, std::string folder) : device_(device), folder_(std::move(folder)) {
  if (folder_.empty()) return;
  auto properties = vk<VkPhysicalDeviceProperties2>();
  device.session().vkGetPhysicalDeviceProperties2(device.session().physical()[device.info().index], &properties);
  const auto& of = properties.properties;
  device_key_.assign(reinterpret_cast<const char*>(of.pipelineCacheUUID), sizeof of.pipelineCacheUUID);
  device_key_ += format("%x.%x.%x", of.vendorID, of.deviceID, of.driverVersion);
}

std::string Pipelines::file_of(const std::vector<uint32_t>& words, const char* entry) const {
  if (folder_.empty()) return "";
  const uint64_t code = checksum({reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint32_t)});
  return folder_ + format("/%016llx-%016llx.vkpc", wide(code), wide(checksum(device_key_ + entry)));
}

std::unique_ptr<Pipeline> Pipelines::make(const std::vector<uint32_t>& words, const char* entry, uint32_t push_bytes) {
  const DeviceCalls& calls = device_.calls();
  const VkDevice device = device_.get();
  const std::string path = file_of(words, entry);
  const std::string before = path.empty() ? "" : contents(path);

  struct Made {  // until the pipeline has them
    const DeviceCalls& calls;
    const VkDevice device;
    VkPipelineCache cache = nullptr;
    VkShaderModule module = nullptr;
    VkPipelineLayout layout = nullptr;
    ~Made() {
      calls.vkDestroyPipelineLayout(device, layout, nullptr);
      calls.vkDestroyShaderModule(device, module, nullptr);
      calls.vkDestroyPipelineCache(device, cache, nullptr);
    }
  } made{calls, device};
  if (!path.empty()) {
    auto wanted = vk<VkPipelineCacheCreateInfo>();
    wanted.initialDataSize = before.size();
    wanted.pInitialData = before.data();
    // Another device's bytes, or damaged ones, are no error: the driver begins with none.
    check(calls.vkCreatePipelineCache(device, &wanted, nullptr, &made.cache), "vkCreatePipelineCache");
  }
  auto code = vk<VkShaderModuleCreateInfo>();
  code.codeSize = words.size() * sizeof(uint32_t);
  code.pCode = words.data();
  check(calls.vkCreateShaderModule(device, &code, nullptr, &made.module), "vkCreateShaderModule");
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes};
  auto layout = vk<VkPipelineLayoutCreateInfo>();
  layout.pushConstantRangeCount = push_bytes ? 1 : 0;
  layout.pPushConstantRanges = &range;
  check(calls.vkCreatePipelineLayout(device, &layout, nullptr, &made.layout), "vkCreatePipelineLayout");
  auto wanted = vk<VkComputePipelineCreateInfo>();
  wanted.stage = vk<VkPipelineShaderStageCreateInfo>();
  wanted.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  wanted.stage.module = made.module;
  wanted.stage.pName = entry;
  wanted.layout = made.layout;
  VkPipeline pipeline = nullptr;
  const VkResult result = calls.vkCreateComputePipelines(device, made.cache, 1, &wanted, nullptr, &pipeline);
  if (result != VK_SUCCESS) device_.refused(result, "vkCreateComputePipelines");
  auto out = std::make_unique<Pipeline>(device_, std::exchange(made.layout, nullptr), pipeline);
  if (path.empty()) return out;
  size_t bytes = 0;
  if (calls.vkGetPipelineCacheData(device, made.cache, &bytes, nullptr) != VK_SUCCESS || bytes == before.size()) return out;
  std::string after(bytes, '\0');
  if (calls.vkGetPipelineCacheData(device, made.cache, &bytes, after.data()) == VK_SUCCESS) write(path, after.substr(0, bytes));
  return out;
}

}  // namespace backplane::driver::vulkan
