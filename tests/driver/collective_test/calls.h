// tests/driver/collective_test/calls.h: cases of collective_test.cpp: parts of communicators, and calls that are refused.
#pragma once

#include "support.h"

namespace {

/// More than the wishes that are kept, in parts of which some take none; check-driver has who is which rank of a part.
void parts_of_parts() {
  in_threads(4, "", [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    for (int round = 0; round < 3; ++round) {
      Rank part(r.i, r.device, r.rank / 2, 2);
      const int32_t color = round == 2 && r.rank % 2 ? -1 : r.rank % 2;
      const bp_comm_config config = part.config(nullptr);
      OK(r(r.g.split, r.comm, color, color < 0 ? nullptr : &config, &part.comm));
      if (color < 0) continue;
      OK(part(part.g.barrier, part.comm, nullptr));
      OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
      part.leave();
    }
    bp_comm_config wrong = r.config(nullptr);
    wrong.rank = 0;  // of all
    bp_comm* none = nullptr;
    CHECK(r(r.g.split, r.comm, 0, &wrong, &none) == BP_INVALID_ARGUMENT && none == nullptr);
    r.leave();
  });
}

/// Those that check-driver does not try.
void wrong_calls_are_refused() {
  in_threads(1, ",collective_ranks=2", [](Rank& r, const Id& id) {
    Id bytes(id.size(), 'x');
    CHECK(r.join(bytes.data()) == BP_INVALID_ARGUMENT);
    r.size = 3;
    CHECK(r.join(id.data()) == BP_UNSUPPORTED);
    r.size = 1;
    OK(r.join(id.data()));
    const uint64_t a = r.i.alloc(64);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a, a, 17, BP_DTYPE_FLOAT32, BP_REDUCE_SUM) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a, a, UINT64_MAX / 2, BP_DTYPE_FLOAT32, BP_REDUCE_SUM) == BP_INVALID_ARGUMENT);
    CHECK(r(r.g.all_reduce, r.comm, nullptr, a + 2, a, 1, BP_DTYPE_FLOAT32, BP_REDUCE_SUM) == BP_INVALID_ARGUMENT);
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
