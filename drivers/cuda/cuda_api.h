// drivers/cuda/cuda_api.h: what the driver uses of the CUDA driver API and of NVRTC, declared here, so that nothing of CUDA is needed to
// build it.
//
// Names, values, layouts and the versions in the symbols (cuMemAlloc_v2) are NVIDIA's: they are the binary interface of libcuda.so.1 and
// libnvrtc.so. tests/driver/cuda_abi.cpp compares them with NVIDIA's own header where one is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace backplane::driver::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
using CUcontext = struct ContextObject*;
using CUstream = struct StreamObject*;
using CUevent = struct EventObject*;
using CUmodule = struct ModuleObject*;
using CUfunction = struct FunctionObject*;
using CUgraph = struct GraphObject*;
using CUgraphExec = struct GraphExecObject*;
using CUstreamCallback = void (*)(CUstream stream, CUresult status, void* arg);

enum : CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_DEVICE_NOT_LICENSED = 102,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
  CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_CONTAINED = 226,
  CUDA_ERROR_INVALID_SOURCE = 300,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_INVALID_PC = 718,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_SYSTEM_NOT_READY = 802,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
  CUDA_ERROR_EXTERNAL_DEVICE = 911,
  CUDA_ERROR_UNKNOWN = 999,
};

/// CUdevice_attribute.
enum Attribute : int {
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
};

/// CUpointer_attribute.
enum PointerAttribute : int {
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
};

/// CUfunction_attribute.
enum FunctionAttribute : int {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};

enum : unsigned {
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_BLOCKING_SYNC = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_EVENT_INTERPROCESS = 4,
  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_MEMHOSTREGISTER_PORTABLE = 1,
  CU_MEM_ATTACH_GLOBAL = 1,
  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
  CU_MEMORYTYPE_HOST = 1,
  CU_MEMORYTYPE_DEVICE = 2,
};

enum : int {
  CU_MEM_ALLOCATION_TYPE_PINNED = 1,
  CU_MEM_LOCATION_TYPE_DEVICE = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
  CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
};

/// CUstreamCaptureMode and CUstreamCaptureStatus.
enum : int {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
};

struct CUuuid {
  char bytes[16];
};

struct CUmemLocation {
  int type, id;
};

struct CUmemAllocationProp {
  int type, requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};

struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};

struct CUipcMemHandle {
  char reserved[64];
};

struct CUipcEventHandle {
  char reserved[64];
};

/// Keys of cuLaunchKernel's `extra`: the arguments as one block of bytes.
inline void* const kLaunchBufferPointer = reinterpret_cast<void*>(1);
inline void* const kLaunchBufferSize = reinterpret_cast<void*>(2);

/// CU_STREAM_LEGACY and CU_STREAM_PER_THREAD: two numbers that stand for streams.
constexpr uint64_t kStreamLegacy = 1, kStreamPerThread = 2;

/// X(symbol, parameters...) for each function, as libcuda.so.1 exports it.
#define BP_CUDA_FUNCTIONS(X)                                                                                                          \
  X(cuInit, unsigned flags)                                                                                                           \
  X(cuDriverGetVersion, int* version)                                                                                                 \
  X(cuGetErrorName, CUresult error, const char** text)                                                                                \
  X(cuGetErrorString, CUresult error, const char** text)                                                                              \
  X(cuDeviceGetCount, int* count)                                                                                                     \
  X(cuDeviceGet, CUdevice* device, int ordinal)                                                                                       \
  X(cuDeviceGetName, char* name, int bytes, CUdevice device)                                                                          \
  X(cuDeviceGetPCIBusId, char* text, int bytes, CUdevice device)                                                                      \
  X(cuDeviceGetUuid_v2, CUuuid* uuid, CUdevice device)                                                                                \
  X(cuDeviceTotalMem_v2, size_t* bytes, CUdevice device)                                                                              \
  X(cuDeviceGetAttribute, int* value, int attribute, CUdevice device)                                                                 \
  X(cuDeviceCanAccessPeer, int* can, CUdevice device, CUdevice peer)                                                                  \
  X(cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device)                                                                    \
  X(cuDevicePrimaryCtxRelease_v2, CUdevice device)                                                                                    \
  X(cuDevicePrimaryCtxGetState, CUdevice device, unsigned* flags, int* active)                                                        \
  X(cuCtxGetCurrent, CUcontext* context)                                                                                              \
  X(cuCtxSetCurrent, CUcontext context)                                                                                               \
  X(cuCtxEnablePeerAccess, CUcontext peer, unsigned flags)                                                                            \
  X(cuMemGetInfo_v2, size_t* free_bytes, size_t* total)                                                                               \
  X(cuMemAlloc_v2, CUdeviceptr* address, size_t bytes)                                                                                \
  X(cuMemAllocManaged, CUdeviceptr* address, size_t bytes, unsigned flags)                                                            \
  X(cuMemFree_v2, CUdeviceptr address)                                                                                                \
  X(cuMemHostAlloc, void** memory, size_t bytes, unsigned flags)                                                                      \
  X(cuMemFreeHost, void* memory)                                                                                                      \
  X(cuMemHostRegister_v2, void* memory, size_t bytes, unsigned flags)                                                                 \
  X(cuMemHostUnregister, void* memory)                                                                                                \
  X(cuPointerGetAttributes, unsigned count, int* attributes, void** data, CUdeviceptr address)                                        \
  X(cuMemcpyHtoDAsync_v2, CUdeviceptr dst, const void* src, size_t bytes, CUstream stream)                                            \
  X(cuMemcpyDtoHAsync_v2, void* dst, CUdeviceptr src, size_t bytes, CUstream stream)                                                  \
  X(cuMemcpyDtoDAsync_v2, CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)                                            \
  X(cuMemcpyPeerAsync, CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes, CUstream stream) \
  X(cuMemsetD8Async, CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)                                             \
  X(cuMemsetD16Async, CUdeviceptr dst, unsigned short value, size_t count, CUstream stream)                                           \
  X(cuMemsetD32Async, CUdeviceptr dst, unsigned value, size_t count, CUstream stream)                                                 \
  X(cuMemsetD2D32Async, CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream)                  \
  X(cuStreamCreateWithPriority, CUstream* stream, unsigned flags, int priority)                                                       \
  X(cuStreamDestroy_v2, CUstream stream)                                                                                              \
  X(cuStreamQuery, CUstream stream)                                                                                                   \
  X(cuStreamSynchronize, CUstream stream)                                                                                             \
  X(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned flags)                                                                \
  X(cuStreamAddCallback, CUstream stream, CUstreamCallback callback, void* arg, unsigned flags)                                       \
  X(cuStreamGetCtx, CUstream stream, CUcontext* context)                                                                              \
  X(cuStreamBeginCapture_v2, CUstream stream, int mode)                                                                               \
  X(cuStreamEndCapture, CUstream stream, CUgraph* graph)                                                                              \
  X(cuStreamIsCapturing, CUstream stream, int* status)                                                                                \
  X(cuGraphInstantiateWithFlags, CUgraphExec* exec, CUgraph graph, unsigned long long flags)                                          \
  X(cuGraphLaunch, CUgraphExec exec, CUstream stream)                                                                                 \
  X(cuGraphDestroy, CUgraph graph)                                                                                                    \
  X(cuGraphExecDestroy, CUgraphExec exec)                                                                                             \
  X(cuGraphDebugDotPrint, CUgraph graph, const char* path, unsigned flags)                                                            \
  X(cuEventCreate, CUevent* event, unsigned flags)                                                                                    \
  X(cuEventDestroy_v2, CUevent event)                                                                                                 \
  X(cuEventRecord, CUevent event, CUstream stream)                                                                                    \
  X(cuEventQuery, CUevent event)                                                                                                      \
  X(cuEventElapsedTime, float* milliseconds, CUevent start, CUevent end)                                                              \
  X(cuMemGetAllocationGranularity, size_t* bytes, const CUmemAllocationProp* prop, int option)                                        \
  X(cuMemAddressReserve, CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags)          \
  X(cuMemAddressFree, CUdeviceptr address, size_t bytes)                                                                              \
  X(cuMemCreate, CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop, unsigned long long flags)       \
  X(cuMemRelease, CUmemGenericAllocationHandle handle)                                                                                \
  X(cuMemMap, CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)        \
  X(cuMemUnmap, CUdeviceptr address, size_t bytes)                                                                                    \
  X(cuMemSetAccess, CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count)                                   \
  X(cuIpcGetMemHandle, CUipcMemHandle* handle, CUdeviceptr address)                                                                   \
  X(cuIpcOpenMemHandle_v2, CUdeviceptr* address, CUipcMemHandle handle, unsigned flags)                                               \
  X(cuIpcCloseMemHandle, CUdeviceptr address)                                                                                         \
  X(cuIpcGetEventHandle, CUipcEventHandle* handle, CUevent event)                                                                     \
  X(cuIpcOpenEventHandle, CUevent* event, CUipcEventHandle handle)                                                                    \
  X(cuModuleLoadData, CUmodule* module, const void* image)                                                                            \
  X(cuModuleUnload, CUmodule module)                                                                                                  \
  X(cuModuleGetFunction, CUfunction* function, CUmodule module, const char* name)                                                     \
  X(cuFuncGetAttribute, int* value, int attribute, CUfunction function)                                                               \
  X(cuFuncSetAttribute, CUfunction function, int attribute, int value)                                                                \
  X(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,       \
    unsigned block_z, unsigned shared_bytes, CUstream stream, void** arguments, void** extra)

/// Functions that are NULL in older drivers.
#define BP_CUDA_NEWER_FUNCTIONS(X) X(cuFuncGetParamInfo, CUfunction function, size_t index, size_t* offset, size_t* bytes)

using nvrtcResult = int;
using nvrtcProgram = struct ProgramObject*;

enum : nvrtcResult {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_OUT_OF_MEMORY = 1,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
};

#define BP_NVRTC_FUNCTIONS(X)                                                                                                        \
  X(nvrtcVersion, int* major, int* minor)                                                                                            \
  X(nvrtcGetNumSupportedArchs, int* count)                                                                                           \
  X(nvrtcGetSupportedArchs, int* archs)                                                                                              \
  X(nvrtcCreateProgram, nvrtcProgram* program, const char* source, const char* name, int headers, const char* const* header_sources, \
    const char* const* header_names)                                                                                                 \
  X(nvrtcDestroyProgram, nvrtcProgram* program)                                                                                      \
  X(nvrtcCompileProgram, nvrtcProgram program, int count, const char* const* options)                                                \
  X(nvrtcGetProgramLogSize, nvrtcProgram program, size_t* bytes)                                                                     \
  X(nvrtcGetProgramLog, nvrtcProgram program, char* log)                                                                             \
  X(nvrtcGetPTXSize, nvrtcProgram program, size_t* bytes)                                                                            \
  X(nvrtcGetPTX, nvrtcProgram program, char* ptx)                                                                                    \
  X(nvrtcGetCUBINSize, nvrtcProgram program, size_t* bytes)                                                                          \
  X(nvrtcGetCUBIN, nvrtcProgram program, char* cubin)

}  // namespace backplane::driver::cuda
