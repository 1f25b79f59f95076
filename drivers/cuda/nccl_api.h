// drivers/cuda/nccl_api.h: what the driver uses of NCCL, declared here, so that nothing of NCCL is needed to build it.
//
// Names, values and layouts are NVIDIA's: they are the binary interface of libnccl.so.2. tests/driver/nccl_abi.cpp compares them with
// NVIDIA's own header where one is installed.
#pragma once

#include <climits>
#include <cstddef>

#include "cuda_api.h"

namespace backplane::driver::cuda {

using ncclResult_t = int;
using ncclDataType_t = int;
using ncclRedOp_t = int;
using ncclComm_t = struct NcclCommObject*;

enum : ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum : ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
};

enum : ncclRedOp_t {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
};

enum : int {
  NCCL_UNIQUE_ID_BYTES = 128,
  NCCL_CONFIG_UNDEF_INT = INT_MIN,
  NCCL_SPLIT_NOCOLOR = -1,
};

/// NCCL_API_MAGIC: how a config begins.
constexpr unsigned kNcclMagic = 0xcafebeef;

/// ncclResult_t of what ran out of time: only the latest versions have it.
constexpr ncclResult_t kNcclTimeout = 8;

struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};

/// As far as this driver uses it. NCCL reads as many bytes as `size` says, and takes its own defaults for the rest.
struct ncclConfig_t {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char* netName;
  int splitShare, trafficClass;  // trafficClass and what follows: from 2.27 on
  const char* commName;
};

/// NCCL's number of a version, from 2.9 on.
constexpr int nccl_version(int major, int minor) { return major * 10000 + minor * 100; }

/// X(symbol, parameters...) for each function that gives an ncclResult_t.
#define BP_NCCL_FUNCTIONS(X)                                                                                                               \
  X(ncclGetVersion, int* version)                                                                                                          \
  X(ncclGetUniqueId, ncclUniqueId* id)                                                                                                     \
  X(ncclCommInitRankConfig, ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config)                                  \
  X(ncclCommFinalize, ncclComm_t comm)                                                                                                     \
  X(ncclCommDestroy, ncclComm_t comm)                                                                                                      \
  X(ncclCommAbort, ncclComm_t comm)                                                                                                        \
  X(ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* state)                                                                           \
  X(ncclCommCount, ncclComm_t comm, int* ranks)                                                                                            \
  X(ncclCommUserRank, ncclComm_t comm, int* rank)                                                                                          \
  X(ncclGroupStart)                                                                                                                        \
  X(ncclGroupEnd)                                                                                                                          \
  X(ncclAllReduce, const void* in, void* out, size_t count, ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm, CUstream stream)        \
  X(ncclReduce, const void* in, void* out, size_t count, ncclDataType_t dtype, ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream) \
  X(ncclReduceScatter, const void* in, void* out, size_t count, ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm, CUstream stream)    \
  X(ncclBroadcast, const void* in, void* out, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm, CUstream stream)              \
  X(ncclAllGather, const void* in, void* out, size_t count, ncclDataType_t dtype, ncclComm_t comm, CUstream stream)                        \
  X(ncclSend, const void* in, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm, CUstream stream)                              \
  X(ncclRecv, void* out, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm, CUstream stream)

/// Functions from 2.18 on: NULL in older versions.
#define BP_NCCL_NEWER_FUNCTIONS(X) X(ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config)

/// Those that give a text.
#define BP_NCCL_TEXTS(X)                     \
  X(ncclGetErrorString, ncclResult_t result) \
  X(ncclGetLastError, ncclComm_t comm)

}  // namespace backplane::driver::cuda
