// inductor/kernel.cpp: the number of groups of a kernel that torch.compile wrote, and the address of its reports.
#include "inductor/kernel.h"

#include <ATen/record_function.h>
#include <c10/util/Float8_e4m3fn.h>

#include <algorithm>

#include "runtime/options.h"
#include "runtime/reports.h"

namespace backplane {

GeneratedKernel::GeneratedKernel(const std::string& name, std::string definitions, std::string text, const std::vector<std::string>& files,
                                 uint32_t per_item, size_t tensors, size_t numbers, uint64_t written, bool reports,
                                 std::vector<generated::Extent> extents)
    : source_{name, std::move(definitions), {}, "generated", per_item, {}, std::move(text)},
      tensors_(tensors),
      numbers_(numbers),
      extents_(std::move(extents)),
      reports_(reports) {
  static const std::vector<std::string> known = {"math.bpc", "special.bpc", "philox.bpc", "generated.bpc", "tiles.bpc"};
  for (const std::string& file : files) {
    const auto found = std::find(known.begin(), known.end(), file);
    TORCH_CHECK_VALUE(found != known.end(), "generated code cannot use the file ", file);
    source_.files.push_back(found->c_str());
  }
  if (source_.text.find("f8e4m3(") != std::string::npos) {  // torch's own conversion defines the result for values out of range
    source_.definitions += c10::str("#define BP_F8E4M3_OVERFLOW ", int{c10::Float8_e4m3fn(1000.0f).x}, "u\n");
  }
  for (const generated::Extent& extent : extents_) {
    TORCH_CHECK_VALUE(extent.argument >= generated::kFurtherPart && extent.argument < static_cast<int64_t>(numbers), name,
                      " has no number ", extent.argument);
    TORCH_CHECK_VALUE(extent.elements >= -generated::kMostPerItem, name, " takes ", -extent.elements, " elements per item");
  }
  source_.signature.written = written | (reports ? uint64_t{1} << tensors : 0);
  check_arguments();
}

GeneratedKernel::GeneratedKernel(const std::string& name, std::string ttir, std::string triton, uint32_t num_warps, uint32_t num_stages,
                                 size_t pointers, size_t numbers)
    : source_{name, "", {}, "ttir", 1, {}, std::move(ttir), std::move(triton), num_warps, num_stages},
      tensors_(pointers),
      numbers_(numbers),
      reports_(false) {
  source_.signature.written = pointers < 64 ? (uint64_t{1} << pointers) - 1 : ~uint64_t{0};
  check_arguments();
}

void GeneratedKernel::check_arguments() {
  TORCH_CHECK_VALUE(tensors_ + reports_ <= 64 && (tensors_ + reports_ + numbers_ + 1) * 8 <= KernelArguments::kMost, source_.name,
                    " takes ", tensors_, " tensors and ", numbers_, " numbers, more than a kernel can");
  bp_signature& signature = source_.signature;
  signature.struct_size = sizeof signature;
  signature.pointers = static_cast<uint32_t>(tensors_ + reports_);
  signature.value_bytes = static_cast<uint32_t>(8 * (numbers_ + 1));
}

const Function& GeneratedKernel::load(c10::DeviceIndex device) {
  const Function& function = require_function(device, source_);
  functions_.at(static_cast<size_t>(device)).store(&function, std::memory_order_release);
  return function;
}

void GeneratedKernel::refuse(const at::Tensor& tensor, size_t i, c10::DeviceIndex others) const {
  TORCH_CHECK_VALUE(tensor.device().type() == kDevice, source_.name, ": argument ", i, " is on ", tensor.device(), ", not on ",
                    device_name());
  TORCH_CHECK_VALUE(false, source_.name, ": argument ", i, " is on ", tensor.device(), ", others are on ", device_name(), ":",
                    static_cast<int>(others));
}

template <typename Launch>
void GeneratedKernel::profiled(Launch launch) const {
  at::RecordFunction record(at::RecordScope::FUNCTION);
  if (C10_UNLIKELY(record.isActive())) record.before(source_.name);
  launch();
}

void GeneratedKernel::launch_grid_at(c10::DeviceIndex device, const uint64_t* addresses, const int64_t* numbers,
                                     const std::array<int64_t, 3>& grid) {
  const Function& function = this->function(device);
  const auto& most = target_of(device).properties.max_grid;
  std::array<uint32_t, 3> groups;
  for (size_t axis = 0; axis < groups.size(); ++axis) {
    TORCH_CHECK_VALUE(grid[axis] > 0 && static_cast<uint64_t>(grid[axis]) <= std::min<uint64_t>(most[axis], UINT32_MAX), source_.name,
                      ": the grid has ", grid[axis], " programs along axis ", axis, ", and the target at most ", most[axis]);
    groups[axis] = static_cast<uint32_t>(grid[axis]);
  }
  KernelArguments block;
  for (size_t i = 0; i < tensors_; ++i) block.add(addresses[i]);
  for (size_t i = 0; i < numbers_; ++i) block.add(numbers[i]);
  block.add(uint64_t{0});
  profiled([&] { launch_grid(device, function, groups, block); });
}

void GeneratedKernel::finish(c10::DeviceIndex device, KernelArguments& block, const int64_t* numbers) {
  if (reports_) block.add(report_record(device));
  for (size_t i = 0; i < numbers_; ++i) block.add(numbers[i]);
  block.add(reports_ ? report_site(source_.name.c_str()) : uint64_t{0});
  const Function& function = this->function(device);
  uint64_t groups = 0, of_part = 1;
  for (const generated::Extent& extent : extents_) {
    if (extent.argument == generated::kFurtherPart) {
      groups += of_part;
      of_part = 1;
      continue;
    }
    const auto count = static_cast<uint64_t>(extent.argument < 0 ? extent.value : numbers[extent.argument]);
    const uint64_t per_item = extent.elements < 0 ? static_cast<uint64_t>(-extent.elements) : source_.per_item;
    const uint64_t tile = extent.elements > 0 ? static_cast<uint64_t>(extent.elements) : function.group * per_item;
    of_part *= (count + tile - 1) / tile;
  }
  groups += of_part;
  if (groups == 0) return;
  profiled([&] { launch_function(device, function, groups, block); });
  if (reports_) raise_visible_reports(device);
}

}  // namespace backplane
