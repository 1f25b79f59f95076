// tests/driver/nccl_test/ranks.h: cases of nccl_test.cpp with ranks that meet, are aborted, do not come, or come late.
#pragma once

#include "support.h"

namespace {

void both_ranks() {
  Ranks r;
  bp_comm* comms[2];
  r.join_both(comms);
  const uint64_t at[2] = {r.number(1, 0), r.number(10, 1)};
  bp_stream* streams[2] = {r.stream(0), r.stream(1)};
  OK(r.g.group_begin(r.g.head.self));
  for (int rank : {1, 0}) OK(r.sum(comms[rank], at[rank], 1, streams[rank]));
  OK(r.g.group_end(r.g.head.self));
  for (int rank : {0, 1}) {
    OK(r.d->stream_synchronize(r.self, rank, streams[rank], 5 * kSecond));
    CHECK(r.number_at(at[rank], rank) == 11);
  }
  // The other way round, into one communicator of both.
  bp_comm* parts[2] = {nullptr, nullptr};
  auto other = std::async(std::launch::async, [&] {
    const bp_comm_config config = r.config(0, 2);
    return r.g.split(r.g.head.self, comms[1], 4, &config, &parts[1]);
  });
  const bp_comm_config config = r.config(1, 2);
  OK(r.g.split(r.g.head.self, comms[0], 4, &config, &parts[0]));
  OK(other.get());
  const uint64_t own[2] = {r.number(3, 0), r.number(7, 1)};
  for (int rank : {0, 1}) OK(r.g.broadcast(r.g.head.self, parts[rank], streams[rank], own[rank], own[rank], 4, 0));
  for (int rank : {0, 1}) {
    OK(r.d->stream_synchronize(r.self, rank, streams[rank], 5 * kSecond));
    CHECK(r.number_at(own[rank], rank) == 7);
  }
  // Ranks that do not fit the part.
  auto wrong = std::async(std::launch::async, [&] {
    const bp_comm_config too_many = r.config(1, 3);
    bp_comm* part = nullptr;
    return r.g.split(r.g.head.self, comms[1], 0, &too_many, &part);
  });
  const bp_comm_config too_many = r.config(0, 3);
  bp_comm* part = nullptr;
  CHECK(r.g.split(r.g.head.self, comms[0], 0, &too_many, &part) == BP_INVALID_ARGUMENT);
  HAS(r.error(), "rank 0 of 2, config has rank 0 of 3");
  CHECK(wrong.get() == BP_INVALID_ARGUMENT && part == nullptr);
}

// An abort ends work that waits for a peer, and the peer's communicator.
void aborts() {
  Ranks r;
  bp_comm* comms[2];
  r.join_both(comms);
  bp_stream* stream = r.stream();
  const uint64_t at = r.number(1);
  OK(r.sum(comms[0], at, 1, stream));
  CHECK(r.d->stream_synchronize(r.self, 0, stream, 20'000'000) == BP_TIMEOUT);
  CHECK(r.destroy(comms[0], 1'000'000) == BP_TIMEOUT);
  CHECK(r.state(comms[0]) == BP_OK);
  nccl().record();
  std::thread([&] { OK(r.g.abort(r.g.head.self, comms[0])); }).join();
  OK(r.g.abort(r.g.head.self, comms[0]));
  OK(r.d->stream_synchronize(r.self, 0, stream, 5 * kSecond));
  std::string why;
  CHECK(r.state(comms[0], &why) == BP_INTERNAL);
  SAME(why, "the test's: it was aborted");
  CHECK(r.sum(comms[0], at) == BP_INTERNAL);
  HAS(r.error(), "the communicator has failed: the test's: it was aborted");
  CHECK(r.state(comms[1], &why) == BP_DEVICE_LOST);
  HAS(why, "the test's: NCCL: remote process exited (6): ");
  OK(r.destroy(comms[0]));
  OK(r.destroy(comms[1]));
  SAME(calls(), "ncclCommAbort\nncclCommAbort\n");  // one each
}

void peers_that_do_not_come() {
  Ranks r;
  r.make_id();
  const bp_comm_config config = r.config(0, 2, 30'000'000);
  bp_comm* comm = nullptr;
  nccl().record();
  CHECK(r.g.create(r.g.head.self, 0, &config, &comm) == BP_TIMEOUT && !comm);
  HAS(r.error(), "not all ranks came within 0.030 s");
  eventually("ncclCommAbort");
  // Ranks that NCCL connects in the first call.
  comm = r.join(0, 1, 30'000'000);
  nccl().hold(1, 0);
  CHECK(r.sum(comm, r.number(1)) == BP_TIMEOUT);
  HAS(r.error(), "ncclAllReduce: not all ranks came");
  CHECK(r.state(comm) == BP_TIMEOUT);
  nccl().hold(0, 0);
  OK(r.destroy(comm));
  comm = r.join();
  nccl().hold(1, 0);
  auto other = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    OK(r.g.abort(r.g.head.self, comm));
  });
  CHECK(r.sum(comm, r.number(1)) == BP_INTERNAL);  // while it waits
  other.get();
  nccl().hold(0, 0);
  OK(r.destroy(comm));
}

// NCCL may wait for the other ranks of the machine in its last step: the caller does not.
void late_ranks() {
  Ranks r;
  bp_comm* comm = r.join();
  OK(r.sum(comm, r.number(1)));
  nccl().record();
  nccl().hold(0, 1);
  OK(r.destroy(comm, 50'000'000));
  CHECK(r.destroy(comm) == BP_INVALID_ARGUMENT);
  eventually("ncclCommDestroy");
  r.close();  // nor does this
  nccl().hold(0, 0);
}

// What is left at close is ended, also in the middle of work.
void left() {
  nccl().record();
  {
    Ranks r;
    bp_comm* comms[2];
    r.join_both(comms);
    OK(r.sum(comms[0], r.number(1), 1, r.stream()));
  }
  const std::string all = calls();
  CHECK(all.find("ncclCommAbort") != all.rfind("ncclCommAbort"));
}

}  // namespace
