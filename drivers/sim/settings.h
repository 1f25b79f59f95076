// drivers/sim/settings.h: the options of the simulated device.
//
// Options: devices=<0..64>, memory=<size> of each, kind=unified|discrete (memory.h), stream=async|inline (drivers/engine/stream.h),
// streams=<1..1024> besides the default one, compiler=<name>|none (compiler.h), target=<name> of an older level of this machine
// (targets.h), items=<1..256> of a group at most, order=up|down in which they take turns (fibers.h), languages=dialect|ttir|dialect+ttir
// of kernels, python=<name or path> that translates TTIR (translator.h), collective=on|off, collective_ranks=<1..256> of a communicator at
// most, profile=on|off, graph=on|off, float64=on|off of its kernels' dtypes; and what it does badly on request: fault_injection.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <backplane/driver/cxx/options.hpp>

#include "fault_injection.h"
#include "fibers.h"
#include "memory.h"
#include "targets.h"

namespace backplane::driver::sim {

enum class StreamKind { async, inline_ };

struct Settings {
  int32_t devices;
  uint64_t memory;
  Kind kind;
  StreamKind stream;
  int32_t streams;
  std::string compiler;
  const Target* target;
  uint64_t languages;  // bits of bp_target_properties.languages
  std::string python;
  uint32_t items;
  Order order;
  bool collective;
  int32_t ranks;
  bool profile, graph;
  bool float64;  // of kernels
  std::unique_ptr<FaultInjection> faults;

  explicit Settings(const char* config) {
    Options options(config);
    devices = static_cast<int32_t>(options.integer("devices", 2, 0, 64));
    memory = options.size("memory", uint64_t{8} << 30);
    kind = options.choice("kind", Kind::unified, {{"unified", Kind::unified}, {"discrete", Kind::discrete}});
    stream = options.choice("stream", StreamKind::async, {{"async", StreamKind::async}, {"inline", StreamKind::inline_}});
    streams = static_cast<int32_t>(options.integer("streams", 32, 1, 1024));
    compiler = options.text("compiler", "", "<name or path>|none");
    target = &own_target(options.text("target", "", "<name of an older level>"));
    constexpr uint64_t dialect = 1u << BP_LANGUAGE_DIALECT, ttir = 1u << BP_LANGUAGE_TTIR;
    languages = options.choice("languages", dialect, {{"dialect", dialect}, {"ttir", ttir}, {"dialect+ttir", dialect | ttir}});
    python = options.text("python", "", "<name or path>");
    items = static_cast<uint32_t>(options.integer("items", 1, 1, 256));
    order = options.choice("order", Order::up, {{"up", Order::up}, {"down", Order::down}});
    collective = options.choice("collective", true, {{"on", true}, {"off", false}});
    ranks = static_cast<int32_t>(options.integer("collective_ranks", 64, 1, 256));
    profile = options.choice("profile", true, {{"on", true}, {"off", false}});
    graph = options.choice("graph", true, {{"on", true}, {"off", false}});
    float64 = options.choice("float64", true, {{"on", true}, {"off", false}});
    faults = std::make_unique<FaultInjection>(options);
    options.finish();
    if (memory > (uint64_t{4} << 40)) throw Error(BP_INVALID_ARGUMENT, "options: memory must not exceed 4TiB");
    if (items & (items - 1)) throw Error(BP_INVALID_ARGUMENT, "options: items must be a power of two, not " + std::to_string(items));
  }
};

}  // namespace backplane::driver::sim
