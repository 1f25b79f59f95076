// drivers/opencl/cl.h: what this driver needs of OpenCL's declarations, so that nothing of OpenCL is needed to build it.
//
// Names and numbers are those of the OpenCL specifications (Khronos): 1.2, what 2.0 adds for shared virtual memory and queue properties,
// and the extensions cl_khr_priority_hints, cl_khr_throttle_hints, cl_khr_device_uuid, cl_khr_pci_bus_info and
// cl_intel_unified_shared_memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace backplane::driver::opencl {

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_bool = cl_uint;
using cl_bitfield = cl_ulong;
using cl_properties = cl_ulong;
using cl_context_properties = intptr_t;
using cl_device_partition_property = intptr_t;

using cl_platform_id = struct _cl_platform_id*;
using cl_device_id = struct _cl_device_id*;
using cl_context = struct _cl_context*;
using cl_command_queue = struct _cl_command_queue*;
using cl_mem = struct _cl_mem*;
using cl_program = struct _cl_program*;
using cl_kernel = struct _cl_kernel*;
using cl_event = struct _cl_event*;

struct cl_device_pci_bus_info_khr {
  cl_uint domain, bus, device, function;
};

// Results.
constexpr cl_int CL_SUCCESS = 0, CL_DEVICE_NOT_FOUND = -1, CL_DEVICE_NOT_AVAILABLE = -2, CL_COMPILER_NOT_AVAILABLE = -3,
                 CL_MEM_OBJECT_ALLOCATION_FAILURE = -4, CL_OUT_OF_RESOURCES = -5, CL_OUT_OF_HOST_MEMORY = -6,
                 CL_PROFILING_INFO_NOT_AVAILABLE = -7, CL_BUILD_PROGRAM_FAILURE = -11, CL_INVALID_COMMAND_QUEUE = -36,
                 CL_INVALID_BINARY = -42, CL_INVALID_BUILD_OPTIONS = -43, CL_INVALID_KERNEL_NAME = -46, CL_INVALID_ARG_SIZE = -51,
                 CL_PLATFORM_NOT_FOUND_KHR = -1001;

// Kinds of devices.
constexpr cl_bitfield CL_DEVICE_TYPE_CPU = 1 << 1, CL_DEVICE_TYPE_GPU = 1 << 2, CL_DEVICE_TYPE_ACCELERATOR = 1 << 3,
                      CL_DEVICE_TYPE_ALL = 0xffffffff;

// What is asked of platforms and devices.
constexpr cl_uint CL_PLATFORM_VERSION = 0x0901, CL_PLATFORM_NAME = 0x0902;
constexpr cl_uint CL_DEVICE_TYPE = 0x1000, CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002, CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
                  CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C, CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010, CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
                  CL_DEVICE_SINGLE_FP_CONFIG = 0x101B, CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F, CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
                  CL_DEVICE_COMPILER_AVAILABLE = 0x1028, CL_DEVICE_NAME = 0x102B, CL_DEVICE_VENDOR = 0x102C, CL_DRIVER_VERSION = 0x102D,
                  CL_DEVICE_VERSION = 0x102F, CL_DEVICE_EXTENSIONS = 0x1030, CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
                  CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT = 0x103A,
                  CL_DEVICE_PARTITION_MAX_SUB_DEVICES = 0x1043, CL_DEVICE_PARTITION_PROPERTIES = 0x1044,
                  CL_DEVICE_SVM_CAPABILITIES = 0x1053, CL_DEVICE_IL_VERSION = 0x105B, CL_DEVICE_UUID_KHR = 0x106A,
                  CL_DEVICE_PCI_BUS_INFO_KHR = 0x410F, CL_DEVICE_WARP_SIZE_NV = 0x4003, CL_DEVICE_WAVEFRONT_WIDTH_AMD = 0x4043;
constexpr cl_bitfield CL_FP_FMA = 1 << 5, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7;
constexpr cl_bitfield CL_DEVICE_SVM_COARSE_GRAIN_BUFFER = 1 << 0, CL_DEVICE_SVM_FINE_GRAIN_BUFFER = 1 << 1;

// Sub-devices.
constexpr cl_device_partition_property CL_DEVICE_PARTITION_EQUALLY = 0x1086;

// Contexts, queues and events.
constexpr cl_context_properties CL_CONTEXT_PLATFORM = 0x1084;
constexpr cl_properties CL_QUEUE_PROPERTIES = 0x1093, CL_QUEUE_PRIORITY_KHR = 0x1096, CL_QUEUE_THROTTLE_KHR = 0x1097;
constexpr cl_bitfield CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE = 1 << 0, CL_QUEUE_PROFILING_ENABLE = 1 << 1;
constexpr cl_properties CL_QUEUE_HINT_HIGH_KHR = 1 << 0, CL_QUEUE_HINT_MED_KHR = 1 << 1, CL_QUEUE_HINT_LOW_KHR = 1 << 2;  // of both
constexpr cl_uint CL_QUEUE_CONTEXT = 0x1090, CL_QUEUE_DEVICE = 0x1091;
constexpr cl_uint CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3, CL_PROFILING_COMMAND_END = 0x1283;
constexpr cl_int CL_COMPLETE = 0;

// Memory.
constexpr cl_bitfield CL_MEM_READ_WRITE = 1 << 0, CL_MEM_ALLOC_HOST_PTR = 1 << 4, CL_MEM_SVM_FINE_GRAIN_BUFFER = 1 << 10;
constexpr cl_bitfield CL_MAP_READ = 1 << 0, CL_MAP_WRITE = 1 << 1, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED = 1 << 1;

// Programs and kernels.
constexpr cl_uint CL_PROGRAM_BINARY_SIZES = 0x1165, CL_PROGRAM_BINARIES = 0x1166, CL_PROGRAM_BUILD_LOG = 0x1183;
constexpr cl_uint CL_KERNEL_NUM_ARGS = 0x1191, CL_KERNEL_WORK_GROUP_SIZE = 0x11B0, CL_KERNEL_COMPILE_WORK_GROUP_SIZE = 0x11B1,
                  CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2;

using cl_context_callback = void (*)(const char* text, const void* data, size_t bytes, void* user);
using cl_event_callback = void (*)(cl_event event, cl_int status, void* user);
using cl_program_callback = void (*)(cl_program program, void* user);

/// X(result, name, parameters) for the functions of OpenCL 1.2.
#define BP_OPENCL_FUNCTIONS(X)                                                                                                           \
  X(cl_int, clGetPlatformIDs, (cl_uint, cl_platform_id*, cl_uint*))                                                                      \
  X(cl_int, clGetPlatformInfo, (cl_platform_id, cl_uint, size_t, void*, size_t*))                                                        \
  X(cl_int, clGetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id*, cl_uint*))                                             \
  X(cl_int, clGetDeviceInfo, (cl_device_id, cl_uint, size_t, void*, size_t*))                                                            \
  X(cl_int, clCreateSubDevices, (cl_device_id, const cl_device_partition_property*, cl_uint, cl_device_id*, cl_uint*))                   \
  X(void*, clGetExtensionFunctionAddressForPlatform, (cl_platform_id, const char*))                                                      \
  X(cl_context, clCreateContext, (const cl_context_properties*, cl_uint, const cl_device_id*, cl_context_callback, void*, cl_int*))      \
  X(cl_int, clReleaseContext, (cl_context))                                                                                              \
  X(cl_command_queue, clCreateCommandQueue, (cl_context, cl_device_id, cl_bitfield, cl_int*))                                            \
  X(cl_int, clRetainCommandQueue, (cl_command_queue))                                                                                    \
  X(cl_int, clReleaseCommandQueue, (cl_command_queue))                                                                                   \
  X(cl_int, clGetCommandQueueInfo, (cl_command_queue, cl_uint, size_t, void*, size_t*))                                                  \
  X(cl_int, clFlush, (cl_command_queue))                                                                                                 \
  X(cl_int, clFinish, (cl_command_queue))                                                                                                \
  X(cl_mem, clCreateBuffer, (cl_context, cl_bitfield, size_t, void*, cl_int*))                                                           \
  X(cl_int, clReleaseMemObject, (cl_mem))                                                                                                \
  X(cl_int, clEnqueueReadBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void*, cl_uint, const cl_event*, cl_event*))        \
  X(cl_int, clEnqueueWriteBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void*, cl_uint, const cl_event*, cl_event*)) \
  X(cl_int, clEnqueueCopyBuffer, (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event*, cl_event*))        \
  X(cl_int, clEnqueueFillBuffer, (cl_command_queue, cl_mem, const void*, size_t, size_t, size_t, cl_uint, const cl_event*, cl_event*))   \
  X(void*, clEnqueueMapBuffer,                                                                                                           \
    (cl_command_queue, cl_mem, cl_bool, cl_bitfield, size_t, size_t, cl_uint, const cl_event*, cl_event*, cl_int*))                      \
  X(cl_int, clEnqueueUnmapMemObject, (cl_command_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*))                             \
  X(cl_int, clEnqueueMigrateMemObjects, (cl_command_queue, cl_uint, const cl_mem*, cl_bitfield, cl_uint, const cl_event*, cl_event*))    \
  X(cl_int, clEnqueueMarkerWithWaitList, (cl_command_queue, cl_uint, const cl_event*, cl_event*))                                        \
  X(cl_int, clEnqueueBarrierWithWaitList, (cl_command_queue, cl_uint, const cl_event*, cl_event*))                                       \
  X(cl_int, clWaitForEvents, (cl_uint, const cl_event*))                                                                                 \
  X(cl_int, clGetEventInfo, (cl_event, cl_uint, size_t, void*, size_t*))                                                                 \
  X(cl_int, clGetEventProfilingInfo, (cl_event, cl_uint, size_t, void*, size_t*))                                                        \
  X(cl_event, clCreateUserEvent, (cl_context, cl_int*))                                                                                  \
  X(cl_int, clSetUserEventStatus, (cl_event, cl_int))                                                                                    \
  X(cl_int, clSetEventCallback, (cl_event, cl_int, cl_event_callback, void*))                                                            \
  X(cl_int, clRetainEvent, (cl_event))                                                                                                   \
  X(cl_int, clReleaseEvent, (cl_event))                                                                                                  \
  X(cl_program, clCreateProgramWithSource, (cl_context, cl_uint, const char**, const size_t*, cl_int*))                                  \
  X(cl_program, clCreateProgramWithBinary,                                                                                               \
    (cl_context, cl_uint, const cl_device_id*, const size_t*, const unsigned char**, cl_int*, cl_int*))                                  \
  X(cl_int, clBuildProgram, (cl_program, cl_uint, const cl_device_id*, const char*, cl_program_callback, void*))                         \
  X(cl_int, clGetProgramInfo, (cl_program, cl_uint, size_t, void*, size_t*))                                                             \
  X(cl_int, clGetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void*, size_t*))                                          \
  X(cl_int, clReleaseProgram, (cl_program))                                                                                              \
  X(cl_kernel, clCreateKernel, (cl_program, const char*, cl_int*))                                                                       \
  X(cl_int, clReleaseKernel, (cl_kernel))                                                                                                \
  X(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void*))                                                                   \
  X(cl_int, clGetKernelInfo, (cl_kernel, cl_uint, size_t, void*, size_t*))                                                               \
  X(cl_int, clGetKernelWorkGroupInfo, (cl_kernel, cl_device_id, cl_uint, size_t, void*, size_t*))                                        \
  X(cl_int, clEnqueueNDRangeKernel,                                                                                                      \
    (cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint, const cl_event*, cl_event*))

/// The same for those of 2.0 and 2.1, NULL in a library of 1.2.
#define BP_OPENCL_FUNCTIONS_2(X)                                                                                              \
  X(cl_command_queue, clCreateCommandQueueWithProperties, (cl_context, cl_device_id, const cl_properties*, cl_int*))          \
  X(void*, clSVMAlloc, (cl_context, cl_bitfield, size_t, cl_uint))                                                            \
  X(void, clSVMFree, (cl_context, void*))                                                                                     \
  X(cl_int, clEnqueueSVMMemcpy, (cl_command_queue, cl_bool, void*, const void*, size_t, cl_uint, const cl_event*, cl_event*)) \
  X(cl_int, clEnqueueSVMMemFill, (cl_command_queue, void*, const void*, size_t, size_t, cl_uint, const cl_event*, cl_event*)) \
  X(cl_int, clSetKernelArgSVMPointer, (cl_kernel, cl_uint, const void*))                                                      \
  X(cl_program, clCreateProgramWithIL, (cl_context, const void*, size_t, cl_int*))

/// Of cl_intel_unified_shared_memory; found by platform.
#define BP_OPENCL_FUNCTIONS_USM(X)                                                                                              \
  X(void*, clDeviceMemAllocINTEL, (cl_context, cl_device_id, const cl_properties*, size_t, cl_uint, cl_int*))                   \
  X(cl_int, clMemBlockingFreeINTEL, (cl_context, void*))                                                                        \
  X(cl_int, clEnqueueMemcpyINTEL, (cl_command_queue, cl_bool, void*, const void*, size_t, cl_uint, const cl_event*, cl_event*)) \
  X(cl_int, clEnqueueMemFillINTEL, (cl_command_queue, void*, const void*, size_t, size_t, cl_uint, const cl_event*, cl_event*)) \
  X(cl_int, clSetKernelArgMemPointerINTEL, (cl_kernel, cl_uint, const void*))

}  // namespace backplane::driver::opencl
