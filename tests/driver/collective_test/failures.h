// tests/driver/collective_test/failures.h: cases of collective_test.cpp: how communicators fail, by ranks that are not there, disagree,
// leave or break.
#pragma once

#include <unistd.h>

#include <backplane/driver/host_exec.h>

#include "support.h"

namespace {

/// Two come as rank 0: one of them is refused, and the other one still meets rank 1.
void a_rank_that_is_taken_is_refused() {
  std::atomic<int> refused{0};
  in_threads(3, "", [&](Rank& r, const Id& id) {
    r.size = 2;
    if (r.rank == 1) {
      while (refused == 0) std::this_thread::yield();
    }
    if (r.rank == 2) r.rank = 0;
    const int32_t status = r.join(id.data());
    if (status == BP_OK) {
      r.leave();
    } else {
      CHECK(status == BP_INVALID_ARGUMENT && r.rank == 0 && r.i.error() == "rank 0 of 2 is taken");
      CHECK(refused++ == 0);
    }
  });
  CHECK(refused == 1);
}

/// Whoever comes first has the size.
void another_size_is_refused() {
  std::atomic<int> refused{0}, alone{0};
  in_threads(2, "", [&](Rank& r, const Id& id) {
    r.size = 2 + r.rank;
    const int32_t status = r.join(id.data(), kSecond / 10);
    CHECK(status == BP_INVALID_ARGUMENT || status == BP_TIMEOUT);
    ++(status == BP_TIMEOUT ? alone : refused);
  });
  CHECK(refused == 1 && alone == 1);
}

/// No rank is done before: rank 0, all of whose own parts are right, would be long before the wrong one comes to rank 2, which is held up
/// by a message before it.
void ranks_of_an_all_to_all_compare_sizes() {
  in_threads(3, "", [&](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    const uint64_t large = 64 << 20, a = r.i.alloc(large, r.device), b = r.i.alloc(large, r.device);
    const uint64_t at[] = {0, 16, 32}, taken[] = {8, 8, 8};
    const uint64_t sent[] = {8, 8, r.rank == 1 ? uint64_t{16} : uint64_t{8}};
    OK(r(r.g.group_begin));
    if (r.rank == 1) OK(r(r.g.send, r.comm, nullptr, a, large, 2));
    if (r.rank == 2) OK(r(r.g.recv, r.comm, nullptr, b, large, 1));
    OK(r(r.g.all_to_all_v, r.comm, nullptr, b, taken, at, a, sent, at));
    OK(r(r.g.group_end));
    OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
    std::string why;
    CHECK(r.how(&why) == BP_INTERNAL && why.find("rank") != std::string::npos);
    r.leave();
  });
}

void a_work_timeout_fails_all() {
  in_threads(2, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data(), 20 * kSecond, kSecond / 20));
    if (r.rank == 0) OK(r(r.g.barrier, r.comm, nullptr));
    OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
    while (r.how() == BP_OK) std::this_thread::yield();
    CHECK(r.how() == BP_TIMEOUT);
    r.leave();
  });
}

void closing_ends_pending_work() {
  std::atomic<bool> closed{false};
  in_threads(2, "", [&](Rank& r, const Id& id) {
    Instance other(get(bp_sim_get, "devices=1,memory=64MiB"));
    Rank mine(other, 0, r.rank, 2);
    OK(mine.join(id.data()));
    if (r.rank == 0) {
      OK(mine(mine.g.barrier, mine.comm, nullptr));
      other.close();
      closed = true;
    }
    while (!closed) std::this_thread::yield();
  });
}

void a_device_in_error_is_gone_for_the_others() {
  in_threads(2, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    if (r.rank == 1) {
      static std::atomic<bool> go;
      go = false;
      const auto exec = *find_group<bp_host_exec>(*r.i.d);
      const auto fails = [](void*) -> int32_t {
        while (!go) std::this_thread::yield();
        return BP_FAULT;
      };
      OK(exec.enqueue(exec.head.self, r.device, nullptr, fails, nullptr, nullptr));
      OK(r(r.g.barrier, r.comm, nullptr));
      go = true;
      CHECK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT) == BP_FAULT);
      CHECK(r.how() == BP_INTERNAL);
    } else {
      const int32_t status = r(r.g.barrier, r.comm, nullptr);
      CHECK(status == BP_OK || status == BP_INTERNAL);  // where the other one was first
      OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
      CHECK(r.how() == BP_DEVICE_LOST);
    }
    r.leave();
  });
}

void a_rank_that_left_is_gone() {
  in_threads(2, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    if (r.rank == 0) {
      OK(r(r.g.barrier, r.comm, nullptr));
      OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
      CHECK(r.how() == BP_DEVICE_LOST);
    }
    r.leave();
  });
}

/// A child that a rank has forked keeps its descriptors, and yet the rank is gone with its process.
void a_child_of_a_killed_rank_is_no_rank() {
  in_processes(2, "", [](Rank& r, const Id& id, Shared& shared) {
    OK(r.join(id.data()));
    if (r.rank == 1) {
      if (fork() == 0) {
        while (shared.steps == 0) usleep(1000);
        _exit(0);
      }
      _exit(0);
    }
    OK(r(r.g.barrier, r.comm, nullptr));
    OK(r.i.d->synchronize(r.i.self, 0, BP_NO_TIMEOUT));
    CHECK(r.how() == BP_DEVICE_LOST);
    ++shared.steps;
  });
}

}  // namespace
