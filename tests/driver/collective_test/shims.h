// tests/driver/collective_test/shims.h: cases of collective_test.cpp: bp.collective through the shims.
#pragma once

#include <unistd.h>

#include <backplane/driver/module.h>

#include "support.h"

namespace {

void fault_makes_a_communicator_fail() {
  Instance i(get(bp_fault_get, "collective=@2,device=0", sim(2, "")));
  in_threads(i, 2, [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    const auto barrier = [&] { return r(r.g.barrier, r.comm, nullptr); };
    OK(barrier());
    OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
    CHECK(r.how() == BP_OK || r.rank == 1);
    const int32_t second = barrier();
    CHECK(second == BP_OK || (second == BP_INTERNAL && r.rank == 1));
    OK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT));
    while (r.how() == BP_OK) std::this_thread::yield();
    std::string why;
    CHECK(r.how(&why) == (r.rank == 0 ? BP_INTERNAL : BP_DEVICE_LOST));
    CHECK(r.rank == 1 || why == "a transfer between ranks failed (injected by fault.collective=@2)");
    CHECK(barrier() == BP_INTERNAL);
    r.leave();
    uint64_t address = 0;
    OK(r.i.d->alloc(r.i.self, r.device, 64, 0, &address));
  });
}

void fault_makes_work_hang_until_it_is_aborted() {
  for (const char* options : {"", ",stream=inline"}) {
    Instance i(get(bp_fault_get, "collective_hang=@1,device=0", sim(2, options)));
    const bool inline_ = *options != 0;
    in_threads(i, 2, [&](Rank& r, const Id& id) {
      OK(r.join(id.data()));
      bp_stream* stream = r.i.stream(r.device);
      std::thread later;
      const auto abort = [&] {
        usleep(20'000);
        OK(r(r.g.abort, r.comm));
      };
      if (r.rank == 0 && inline_) later = std::thread(abort);
      OK(r(r.g.barrier, r.comm, stream));
      if (r.rank == 0 && !inline_) {
        CHECK(r.i.d->stream_synchronize(r.i.self, r.device, stream, 5'000'000) == BP_TIMEOUT);
        CHECK(r.how() == BP_OK);
        CHECK(r(r.g.destroy, r.comm, 1000) == BP_TIMEOUT);
        later = std::thread(abort);
      }
      OK(r.i.d->stream_synchronize(r.i.self, r.device, stream, BP_NO_TIMEOUT));
      CHECK(r.how() == (r.rank == 0 ? BP_INTERNAL : BP_DEVICE_LOST));
      if (later.joinable()) later.join();
      r.leave();
    });
  }
  // Closing ends it, too.
  Instance i(get(bp_fault_get, "collective_hang=@1", sim(1, "")));
  in_threads(i, 1, [&](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    OK(r(r.g.barrier, r.comm, nullptr));
  });
  i.close();
}

void fault_of_a_device_is_seen_by_the_peers() {
  Instance i(get(bp_fault_get, "kernel=@1,device=0", sim(2, "")));
  in_threads(i, 2, [](Rank& r, const Id& id) {
    OK(r.join(id.data()));
    const int32_t status = r(r.g.barrier, r.comm, nullptr);
    CHECK(status == BP_OK || (status == BP_INTERNAL && r.rank == 1));
    CHECK(r.i.d->synchronize(r.i.self, r.device, BP_NO_TIMEOUT) == (r.rank == 0 ? BP_FAULT : BP_OK));
    while (r.how() == BP_OK) std::this_thread::yield();
    CHECK(r.how() == (r.rank == 0 ? BP_INTERNAL : BP_DEVICE_LOST));
    r.leave();
  });
}

void trace_writes_the_calls() {
  const std::string file = "/tmp/backplane-collective-trace-" + std::to_string(getpid());
  {
    Instance i(get(bp_trace_get, ("filter=bp.collective.*,file=" + file).c_str(), sim(1, "")));
    in_threads(i, 1, [](Rank& r, const Id& id) {
      OK(r.join(id.data()));
      const uint64_t a = r.i.alloc(64);
      OK(r(r.g.all_reduce, r.comm, nullptr, a, a, 3, BP_DTYPE_FLOAT32, BP_REDUCE_MAX));
      CHECK(r.how() == BP_OK);
      r.leave();
    });
  }
  std::string text;
  std::FILE* lines = std::fopen(file.c_str(), "r");
  for (int one = std::fgetc(lines); one != EOF; one = std::fgetc(lines)) text += static_cast<char>(one);
  std::fclose(lines);
  unlink(file.c_str());
  for (const char* part : {"bp.collective.create device=0 config={name=\"test\" rank=0 size=1 timeout_ns=20000000000} -> OK out=0x",
                           " stream=default out=0x", " count=3 dtype=0x100 op=4 -> OK", "-> OK out=0 text=\"\"", "id_bytes=128"}) {
    CHECK(text.find(part) != std::string::npos);
  }
}

/// The inner driver cannot queue on streams of the shim, and under its lock ranks of one process would wait for each other.
void emulate_passes_it_where_it_can() {
  Instance whole(get(bp_emulate_get, "", sim(1, "")));
  CHECK(find_group<bp_collective>(*whole.d));
  static bp_driver serial;
  serial = *sim(1, "");
  serial.flags |= BP_DRIVER_SERIALIZE;
  Instance locked(get(bp_emulate_get, "", &serial));
  CHECK(!find_group<bp_collective>(*locked.d));
  static bp_driver bare;  // without streams and events, but with its groups
  bare = *sim(1, "");
  for (const Slot& slot : slots()) {
    void (*none)() = nullptr;
    if (slot.group == Group::streams || slot.group == Group::events) {
      std::memcpy(reinterpret_cast<char*>(&bare) + slot.offset, &none, sizeof none);
    }
  }
  Instance own_streams(get(bp_emulate_get, "", &bare));
  CHECK(find_group<bp_module>(*own_streams.d) && !find_group<bp_collective>(*own_streams.d));
}

}  // namespace
