// tests/driver/collective_test/programs.h: cases of collective_test.cpp: random programs, and ranks that are killed in the middle of one.
#pragma once

#include <random>
#include <utility>

#include "support.h"

namespace {

/// Random calls, the same on every rank, on two streams, each looked at when some more are queued. Stops at the first failure of the
/// communicator, if that may fail.
template <class Step>
void program(Rank& r, uint32_t seed, int steps, bool may_fail, Step&& step_done) {
  std::mt19937 random(seed);
  bp_stream* streams[2] = {r.i.stream(r.device), r.i.stream(r.device)};
  struct Result {
    uint64_t in, out;
    std::vector<int32_t> want;
  };
  std::vector<Result> open;
  const auto finish = [&] {
    for (bp_stream* stream : streams) OK(r.i.d->stream_synchronize(r.i.self, r.device, stream, BP_NO_TIMEOUT));
    const bool failed = r.how() != BP_OK;
    CHECK(may_fail || !failed);
    for (const Result& one : open) {
      const auto bytes = r.i.take(one.out, one.want.size() * 4, r.device);
      CHECK(failed || one.want.empty() || std::memcmp(bytes.data(), one.want.data(), bytes.size()) == 0);
      OK(r.i.d->free(r.i.self, r.device, one.in));
      OK(r.i.d->free(r.i.self, r.device, one.out));
    }
    open.clear();
    return !failed;
  };
  const auto n = static_cast<uint64_t>(r.size);
  for (int step = 0; step < steps; ++step) {
    static constexpr uint64_t counts[] = {0, 1, 5, 1000, 17'001, 300'000};
    const uint64_t count = counts[random() % 6];
    const auto kind = random() % 9;
    const auto root = static_cast<int32_t>(random() % n);
    bp_stream* stream = streams[random() % 2];
    const auto from = [&](int32_t rank, uint64_t at) { return value(seed, step, rank, at); };
    std::vector<int32_t> in(count * n), want;
    for (uint64_t at = 0; at < in.size(); ++at) in[at] = from(r.rank, at);
    const uint64_t space = in.size() * 4;
    const uint64_t a = r.i.alloc(space, r.device), b = r.i.alloc(space, r.device);
    r.i.put(a, in.data(), space, r.device);
    const auto sum = [&](uint64_t first, uint64_t many) {
      for (uint64_t at = first; at < first + many; ++at) {
        int32_t all = 0;
        for (int32_t rank = 0; rank < r.size; ++rank) all += from(rank, at);
        want.push_back(all);
      }
    };
    const auto gathered = [&](uint64_t shift) {
      for (int32_t rank = 0; rank < r.size; ++rank) {
        for (uint64_t at = 0; at < count; ++at) want.push_back(from(rank, shift * count + at));
      }
    };
    int32_t status = BP_OK;
    const auto me = static_cast<uint64_t>(r.rank);
    const auto next = static_cast<int32_t>((me + 1) % n), before = static_cast<int32_t>((me + n - 1) % n);
    switch (kind) {
      case 0:
        status = r(r.g.all_reduce, r.comm, stream, b, a, count, BP_DTYPE_INT32, BP_REDUCE_SUM);
        sum(0, count);
        break;
      case 1:
        status = r(r.g.reduce, r.comm, stream, b, a, count, BP_DTYPE_INT32, BP_REDUCE_SUM, root);
        if (root == r.rank) sum(0, count);
        break;
      case 2:
        status = r(r.g.reduce_scatter, r.comm, stream, b, a, count, BP_DTYPE_INT32, BP_REDUCE_SUM);
        sum(me * count, count);
        break;
      case 3:
        status = r(r.g.broadcast, r.comm, stream, b, a, count * 4, root);
        for (uint64_t at = 0; at < count; ++at) want.push_back(from(root, at));
        break;
      case 4:
        status = r(r.g.all_gather, r.comm, stream, b, a, count * 4);
        gathered(0);
        break;
      case 5:
        status = r(r.g.all_to_all, r.comm, stream, b, a, count * 4);
        gathered(me);
        break;
      case 6:
        status = r(r.g.gather, r.comm, stream, b, a, count * 4, root);
        if (root == r.rank) gathered(0);
        break;
      case 7:
        status = r(r.g.scatter, r.comm, stream, b, a, count * 4, root);
        for (uint64_t at = 0; at < count; ++at) want.push_back(from(root, me * count + at));
        break;
      default:  // a ring, whose sends all come first
        OK(r(r.g.group_begin));
        status = r(r.g.send, r.comm, stream, a, count * 4, next);
        if (status == BP_OK) status = r(r.g.recv, r.comm, stream, b, count * 4, before);
        OK(r(r.g.group_end));
        for (uint64_t at = 0; at < count; ++at) want.push_back(from(before, at));
    }
    open.push_back({a, b, std::move(want)});
    CHECK(status == BP_OK || (may_fail && status == BP_INTERNAL));
    step_done();
    if ((status != BP_OK || random() % 4 == 0) && !finish()) break;
  }
  finish();
  for (bp_stream* stream : streams) OK(r.i.d->stream_destroy(r.i.self, r.device, stream));
}

void a_program_in_threads(uint32_t seed) {
  static constexpr const char* kinds[] = {"", ",kind=discrete", ",delay=200", ",stream=inline", ",kind=discrete,strict=on"};
  in_threads(static_cast<int32_t>(2 + seed % 3), kinds[seed % 5], [&](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    program(r, seed, 12, false, [] {});
    r.leave();
  });
}
void a_program_in_processes(uint32_t seed) {
  static constexpr const char* kinds[] = {",kind=discrete,delay=100", "", ",stream=inline"};
  static constexpr int32_t sizes[] = {1, 2, 3, 4, 8};
  in_processes(sizes[seed % 5], kinds[seed % 3], [&](Rank& r, const Id& id, Shared&) {
    OK(r.join(id.data()));
    program(r, seed, 15, false, [] {});
    r.leave();
  });
}
void a_rank_is_killed(uint32_t seed) {
  const auto size = static_cast<int32_t>(2 + seed % 3);
  const auto killed = static_cast<int32_t>(seed / 3) % size;
  in_processes(
      size, seed % 2 ? "" : ",stream=inline",
      [&](Rank& r, const Id& id, Shared& shared) {
        const int32_t joined = r.join(id.data(), kSecond);
        CHECK(joined == BP_OK || joined == BP_TIMEOUT || joined == BP_INTERNAL || joined == BP_INVALID_ARGUMENT);
        if (joined != BP_OK) return;
        program(r, seed, 1'000'000, true, [&] { ++shared.steps; });
        CHECK(r.how() == BP_DEVICE_LOST);
        const uint64_t address = r.i.alloc(64);  // the device is as it was
        r.i.take(address, 64);
        r.leave();
      },
      killed, static_cast<int>(seed % 17) * 3);
}

}  // namespace
