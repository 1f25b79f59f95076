// drivers/vulkan/pipelines.h: pipelines of kernels, and a folder where a driver's own code for them is kept between processes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "library.h"

namespace backplane::driver::vulkan {

class Device;

/// A kernel as the device runs it.
class Pipeline {
 public:
  Pipeline(Device& device, VkPipelineLayout layout, VkPipeline pipeline) : device_(device), layout_(layout), pipeline_(pipeline) {}
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  VkPipelineLayout layout() const { return layout_; }
  VkPipeline get() const { return pipeline_; }

 private:
  Device& device_;
  const VkPipelineLayout layout_;
  const VkPipeline pipeline_;
};

/// Any thread.
class Pipelines {
 public:
  /// folder: "": nothing is kept.
  Pipelines(Device& device, std::string folder);

  /// Throws Error.
  std::unique_ptr<Pipeline> make(const std::vector<uint32_t>& words, const char* entry, uint32_t push_bytes);

 private:
  std::string file_of(const std::vector<uint32_t>& words, const char* entry) const;

  Device& device_;
  const std::string folder_;
  std::string device_key_;
};

}  // namespace backplane::driver::vulkan
