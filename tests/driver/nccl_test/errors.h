// tests/driver/nccl_test/errors.h: cases of nccl_test.cpp: NCCL's errors one by one, of calls and of communicators.
#pragma once

#include "support.h"

namespace {

void errors() {
  constexpr struct {
    int result;
    int32_t status;
  } meanings[] = {{ncclSystemError, BP_INTERNAL},
                  {ncclInternalError, BP_INTERNAL},
                  {ncclInvalidArgument, BP_INVALID_ARGUMENT},
                  {ncclInvalidUsage, BP_INVALID_ARGUMENT},
                  {99, BP_INTERNAL}};
  Ranks r;
  bp_comm* comm = r.join();
  const uint64_t at = r.number(1);
  for (const auto& [result, status] : meanings) {
    nccl().fail("ncclAllReduce", result);
    CHECK(r.sum(comm, at) == status);
    SAME(r.error(), "ncclAllReduce: some other error (" + std::to_string(result) + "): the test lets ncclAllReduce fail");
  }
  nccl().fail("ncclAllReduce", ncclUnhandledCudaError);
  CHECK(r.sum(comm, at) == BP_INTERNAL);  // of which CUDA itself knows nothing
  HAS(r.error(), "ncclAllReduce: unhandled cuda error (1): ");
  nccl().fail("ncclAllReduce", 0);
  nccl().fail("ncclGroupEnd", ncclSystemError);
  OK(r.g.group_begin(r.g.head.self));
  OK(r.sum(comm, at));
  CHECK(r.g.group_end(r.g.head.self) == BP_INTERNAL);
  HAS(r.error(), "ncclGroupEnd: ");
  nccl().fail("ncclGroupEnd", 0);
  nccl().fail("ncclGetUniqueId", ncclSystemError);
  CHECK(r.g.make_id(r.g.head.self, 0, r.id) == BP_INTERNAL);
  nccl().fail("ncclGetUniqueId", 0);
  nccl().fail("ncclCommInitRankConfig", ncclSystemError);
  bp_comm* other = nullptr;
  const bp_comm_config config = r.config(0, 1);
  CHECK(r.g.create(r.g.head.self, 0, &config, &other) == BP_INTERNAL && !other);
  nccl().fail("ncclCommInitRankConfig", 0);
  OK(r.sum(comm, at));
  // A failure of the device is reported as the device's.
  fake().break_(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  nccl().fail("ncclAllReduce", ncclUnhandledCudaError);
  CHECK(r.sum(comm, at) == BP_FAULT);
  nccl().fail("ncclAllReduce", 0);
  std::string why;
  CHECK(r.state(comm, &why) == BP_INTERNAL);
  HAS(why, "device 0 is in error");
  OK(r.destroy(comm));
}

void failures_of_communicators() {
  constexpr struct {
    int result;
    int32_t status;
  } meanings[] = {
      {ncclRemoteError, BP_DEVICE_LOST}, {kNcclTimeout, BP_TIMEOUT}, {ncclSystemError, BP_INTERNAL}, {ncclInternalError, BP_INTERNAL}};
  for (const auto& [result, status] : meanings) {
    Ranks r;
    bp_comm* comm = r.join();
    nccl().record();
    nccl().break_(result, "a cable was pulled");
    std::string why;
    CHECK(r.state(comm, &why) == status);
    HAS(why, "(" + std::to_string(result) + "): a cable was pulled");
    eventually("ncclCommAbort");  // so that what is queued ends
    OK(r.g.abort(r.g.head.self, comm));
    CHECK(r.state(comm) == status);  // what it was first
    CHECK(r.sum(comm, r.number(1)) == BP_INTERNAL);
    OK(r.destroy(comm));
  }
}

}  // namespace
