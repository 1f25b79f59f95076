// tests/driver/collective_test/calls.h: cases of collective_test.cpp: the order of messages, parts of communicators, and calls that are
// refused.
#pragma once

#include "support.h"

namespace {

/// Two messages between the same two in one group: the packets of the first all come before those of the second.
void messages_of_a_group_keep_their_order() {
  in_threads(2, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    const uint64_t count = 2'000'000, a = r.i.alloc(count * 8, r.device), b = r.i.alloc(count * 8, r.device);
    std::vector<int32_t> in(count * 2);
    for (uint64_t at = 0; at < in.size(); ++at) in[at] = value(7, 0, 0, at);
    r.i.put(a, in.data(), in.size() * 4, r.device);
    OK(r(r.g.group_begin));
    for (uint64_t at : {uint64_t{0}, count * 4}) {
      OK(r(r.g.send, r.comm, nullptr, a + at, count * 4, 1 - r.rank));
      OK(r(r.g.recv, r.comm, nullptr, b + at, count * 4, 1 - r.rank));
    }
    OK(r(r.g.group_end));
    CHECK(std::memcmp(r.i.take(b, in.size() * 4, r.device).data(), in.data(), in.size() * 4) == 0);
    CHECK(r.how() == BP_OK);
    r.leave();
  });
}

void parts_of_parts() {
  in_threads(4, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    for (int round = 0; round < 3; ++round) {  // more than the wishes that are kept
      Rank part(r.i, r.device, r.rank / 2, 2);
      const int32_t color = round == 2 && r.rank % 2 ? -1 : r.rank % 2;
      const bp_comm_config config = part.config(nullptr);
      OK(r(r.g.split, r.comm, color, color < 0 ? nullptr : &config, &part.comm));
      CHECK((part.comm == nullptr) == (color < 0));
      if (color < 0) continue;
      const int32_t mine = r.rank;
      const uint64_t a = r.i.alloc(4, r.device);
      r.i.put(a, &mine, 4, r.device);
      OK(part(part.g.all_reduce, part.comm, nullptr, a, a, 1, BP_DTYPE_INT32, BP_REDUCE_SUM));
      OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
      int32_t sum = 0;
      std::memcpy(&sum, r.i.take(a, 4, r.device).data(), 4);
      CHECK(sum == (r.rank % 2 ? 4 : 2));
      part.leave();
    }
    bp_comm_config wrong = r.config(nullptr);
    wrong.rank = 0;  // of all
    bp_comm* none = nullptr;
    CHECK(r(r.g.split, r.comm, 0, &wrong, &none) == BP_INVALID_ARGUMENT && none == nullptr);
    r.leave();
  });
}

void wrong_calls_are_refused() {
  in_threads(1, ",collective_ranks=2", [](Rank& r, const Id& id) {
    Id bytes(id.size(), 'x');
    CHECK(r.join(bytes.data()) == BP_INVALID_ARGUMENT);
    r.size = 3;
    CHECK(r.join(id.data()) == BP_UNSUPPORTED);
    r.size = 1;
    r.rank = 1;
    CHECK(r.join(id.data()) == BP_INVALID_ARGUMENT);
    r.rank = 0;
    OK(r.join(id.data()));
    const uint64_t a = r.i.alloc(64);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a, a, 4, BP_DTYPE_COMPLEX64, BP_REDUCE_MAX) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a, a, 4, BP_DTYPE_FLOAT32, BP_REDUCE_COUNT) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a, a, 17, BP_DTYPE_FLOAT32, BP_REDUCE_SUM) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a, a, UINT64_MAX / 2, BP_DTYPE_FLOAT32, BP_REDUCE_SUM) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a + 2, a, 1, BP_DTYPE_FLOAT32, BP_REDUCE_SUM) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.broadcast, r.comm, nullptr, a, a, 4, 1) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.send, r.comm, nullptr, a, 4, 0) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.group_end) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.abort, reinterpret_cast<bp_comm*>(&r)) == BP_INVALID_ARGUMENT);
    OK(r(r.g.group_begin));
    OK(r(r.g.send, r.comm, nullptr, a, 4, 0));
    CHECK(r(r.g.recv, r.comm, r.i.stream(), a + 8, 4, 0) == BP_INVALID_ARGUMENT);  // another stream
    OK(r(r.g.recv, r.comm, nullptr, a + 8, 4, 0));
    OK(r(r.g.group_end));
    CHECK(r.how() == BP_OK);
    r.leave();
    CHECK(r(r.g.destroy, r.comm, 0) == BP_INVALID_ARGUMENT);
  });
  Instance off(get(bp_sim_get, "collective=off"));
  CHECK(!find_group<bp_collective>(*off.d));
}

}  // namespace
