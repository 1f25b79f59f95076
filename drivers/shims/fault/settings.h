// drivers/shims/fault/settings.h: which faults are asked for.
//
// Options; <when> is 17 (every 17th), @17 (that one), @17-19 or @17+ (from then on):
//   alloc=<when>       an allocation of device memory: OUT_OF_MEMORY
//   host_alloc=<when>  one of pinned memory: OUT_OF_MEMORY
//   copy=<when>        a copy, blocking or not: INTERNAL, and nothing is copied; not sticky
//   kernel=<when>      a piece of queued work (host function, launch, fill, copy_async, what a vendor queues by stream_native) fails when
//                      its stream reaches it: FAULT, sticky
//   lost=<when>        at an allocation, a copy or a piece of work the device is gone: DEVICE_LOST, sticky
//   hang=<when>        a piece of queued work never completes, nor does what is behind it
//   stream=<when>      stream_create: INTERNAL
//   event=<when>       event_create: INTERNAL
//   free=<when>        free: INTERNAL, and the memory stays taken
//   reserve=<when>     bp.vmm: addresses are set aside: OUT_OF_MEMORY
//   map=<when>         of it: memory is put behind them: OUT_OF_MEMORY
//   unmap=<when>       of it: memory is taken away: INTERNAL, and it stays where it is
//   compile=<when>     bp.compiler: a compilation: INTERNAL
//   load=<when>        bp.module: code is loaded: INTERNAL
//   capture=<when>     bp.graph: capture_begin: INTERNAL, and nothing is captured
//   instantiate=<when> of it: OUT_OF_MEMORY
//   collective=<when>  a queued call of bp.collective: its communicator fails with INTERNAL, and the work ends at once
//   collective_hang=<when>  such a call never ends, nor does what is behind it, until the communicator is aborted
//   profile=<when>     bp.profile: a recording is started: INTERNAL
//   device=<n>|any     whose calls are counted (any); pinned memory and compilations belong to none
//   armed_by=<file>    nothing is counted until that file exists: `touch` it when the program is where the fault is wanted
#pragma once

#include <atomic>
#include <charconv>
#include <string>

#include <backplane/driver/cxx/error.hpp>
#include <backplane/driver/cxx/options.hpp>

#include "injected.h"

namespace backplane::driver::fault {

struct Settings {
  explicit Settings(Options options)
      : alloc(options, "alloc"),
        host_alloc(options, "host_alloc"),
        copy(options, "copy"),
        kernel(options, "kernel"),
        lost(options, "lost"),
        hang(options, "hang"),
        stream(options, "stream"),
        event(options, "event"),
        free(options, "free"),
        reserve(options, "reserve"),
        map(options, "map"),
        unmap(options, "unmap"),
        compile(options, "compile"),
        load(options, "load"),
        capture(options, "capture"),
        instantiate(options, "instantiate"),
        collective(options, "collective"),
        collective_hang(options, "collective_hang"),
        profile(options, "profile"),
        armed_by(options.text("armed_by", "", "<file>")),
        armed(armed_by.empty()) {
    const std::string only = options.text("device", "any", "<n>|any");
    options.finish();
    if (only == "any") return;
    const auto [end, error] = std::from_chars(only.data(), only.data() + only.size(), device);
    if (error != std::errc() || end != only.data() + only.size() || device < 0) {
      throw Error(BP_INVALID_ARGUMENT, "options: fault.device=" + only + ": the number of a device, or any, is needed");
    }
  }

  FaultKind alloc, host_alloc, copy, kernel, lost, hang, stream, event, free, reserve, map, unmap, compile, load, capture, instantiate,
      collective, collective_hang, profile;
  const std::string armed_by;
  std::atomic<bool> armed;
  int32_t device = -1;
};

}  // namespace backplane::driver::fault
