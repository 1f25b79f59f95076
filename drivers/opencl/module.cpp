// drivers/opencl/module.cpp: loads binaries, checks signatures as far as OpenCL knows them, and sets the arguments of a launch.
#include "module.h"

#include <cstring>

#include "../engine/prelude.h"
#include "compiler.h"

namespace backplane::driver::opencl {
namespace {

constexpr uint32_t kMaxGrid = 0x7fffffff;

}  // namespace

// ---- kernels

Kernel::Kernel(Device& device, cl_program program, const char* name, const bp_signature& signature)
    : device_(device),
      name_(name),
      pointers_(signature.pointers),
      value_bytes_(signature.value_bytes),
      takes_offsets_(device.info().memory_kind == MemoryKind::buffers) {
  const auto need = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(BP_INVALID_ARGUMENT, "module.function: " + name_ + ": " + what);
  };
  const Api& api = device_.api();
  cl_int code = CL_SUCCESS;
  kernel_ = api.clCreateKernel(program, name, &code);
  need(code != CL_INVALID_KERNEL_NAME, "there is no kernel of that name");
  opencl::check(code, "module.function: clCreateKernel");
  try {
    cl_uint count = 0;
    opencl::check(api.clGetKernelInfo(kernel_, CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr), "clGetKernelInfo");
    const uint32_t others = takes_offsets_ ? 2 : 1;
    need(count == pointers_ + others, format("the signature has %u pointers, the kernel %u", pointers_, count - std::min(count, others)));
    const std::vector<uint64_t> zeros(value_bytes_ / 8);
    code = api.clSetKernelArg(kernel_, pointers_, value_bytes_, zeros.data());
    need(code != CL_INVALID_ARG_SIZE, format("the kernel's Params does not have the signature's %u bytes", value_bytes_));
    opencl::check(code, "module.function: clSetKernelArg");
    const auto ask = [&](cl_uint what, size_t bytes, void* out) {
      opencl::check(api.clGetKernelWorkGroupInfo(kernel_, device_.id(), what, bytes, out, nullptr), "clGetKernelWorkGroupInfo");
    };
    ask(CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof group_, group_);
    ask(CL_KERNEL_LOCAL_MEM_SIZE, sizeof local_bytes_, &local_bytes_);
    ask(CL_KERNEL_WORK_GROUP_SIZE, sizeof max_group_, &max_group_);
  } catch (...) {
    api.clReleaseKernel(kernel_);
    throw;
  }
}

Kernel::~Kernel() { device_.api().clReleaseKernel(kernel_); }

LaunchLimits Kernel::limits() const {
  const auto items = static_cast<uint32_t>(group_[0]);
  const uint64_t left = device_.info().local_memory - std::min<uint64_t>(local_bytes_, device_.info().local_memory);
  return {device_.index(),
          8 * uint64_t{pointers_} + value_bytes_,
          {kMaxGrid, kMaxGrid, kMaxGrid},
          items,
          items,
          static_cast<uint32_t>(std::min<uint64_t>(left, UINT32_MAX))};
}

void Kernel::set_arguments(const Memory& memory, const void* args) {
  const Api& api = device_.api();
  const char* block = static_cast<const char*>(args);
  uint64_t offsets[kMaxPointers];
  for (uint32_t i = 0; i < pointers_; ++i) {
    uint64_t address = 0;
    std::memcpy(&address, block + 8 * i, sizeof address);
    offsets[i] = memory.set_argument(kernel_, i, address);
  }
  opencl::check(api.clSetKernelArg(kernel_, pointers_, value_bytes_, block + 8 * pointers_), "module.launch: clSetKernelArg");
  if (takes_offsets_) {
    opencl::check(api.clSetKernelArg(kernel_, pointers_ + 1, 8 * pointers_, offsets), "module.launch: clSetKernelArg");
  }
}

void Kernel::launch(Queue& queue, const Memory& memory, const bp_launch& launch) {
  const size_t group[3] = {launch.group[0], 1, 1};
  const size_t items[3] = {size_t{launch.grid[0]} * group[0], launch.grid[1], launch.grid[2]};
  std::lock_guard lock(mutex_);
  set_arguments(memory, launch.args);
  queue.submit("clEnqueueNDRangeKernel", [&](cl_command_queue on, cl_event* event) {
    return device_.api().clEnqueueNDRangeKernel(on, kernel_, 3, nullptr, items, group, 0, nullptr, event);
  });
}

std::function<void(Queue& on)> Kernel::recorded(const Memory& memory, const bp_launch& launch) {
  std::lock_guard lock(mutex_);
  set_arguments(memory, launch.args);
  const auto* words = static_cast<const char*>(launch.args);
  return [this, &memory, again = launch, args = std::vector<char>(words, words + launch.args_bytes)](Queue& on) mutable {
    again.args = args.data();
    this->launch(on, memory, again);
  };
}

// ---- programs

Module::Module(Device& on, std::string_view binary) : device(on.index()), on_(on) {
  const Api& api = on.api();
  const cl_device_id id = on.id();
  const size_t bytes = binary.size();
  const auto* data = reinterpret_cast<const unsigned char*>(binary.data());
  cl_int status = CL_SUCCESS, code = CL_SUCCESS;
  const BuildLock lock;
  program_ = api.clCreateProgramWithBinary(on.context().get(), 1, &id, &bytes, &data, &status, &code);
  if (code == CL_INVALID_BINARY || status == CL_INVALID_BINARY) {
    if (program_) api.clReleaseProgram(program_);
    throw Error(BP_INVALID_ARGUMENT, "module.load: the runtime refuses the binary; compile the source again");
  }
  opencl::check(code, "module.load: clCreateProgramWithBinary");
  code = api.clBuildProgram(program_, 1, &id, "", nullptr, nullptr);
  if (code == CL_SUCCESS) return;
  const std::string log = build_log(api, program_, id);
  api.clReleaseProgram(program_);
  const Error error = failure(code, "module.load: clBuildProgram");
  throw Error(code == CL_BUILD_PROGRAM_FAILURE ? BP_INVALID_ARGUMENT : error.status(), error.what() + (": " + log));
}

Module::~Module() {
  kernels_.clear();
  on_.api().clReleaseProgram(program_);
}

Kernel& Module::kernel(const char* name, const bp_signature& signature) {
  std::lock_guard lock(mutex_);
  for (const auto& known : kernels_) {
    if (known->name() == name && known->has(signature)) return *known;
  }
  kernels_.push_back(std::make_unique<Kernel>(on_, program_, name, signature));
  return *kernels_.back();
}

}  // namespace backplane::driver::opencl
