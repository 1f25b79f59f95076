// bindings/history.cpp: memory snapshots and the recorded history, in the format of PyTorch's memory viewer.
#include "bindings/module.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/caching_allocator.h"

namespace backplane::bindings {
namespace {

using Action = HistoryEvent::Action;

const std::map<std::string, Action>& actions() {
  static const auto* all = new std::map<std::string, Action>{{"alloc", Action::alloc},
                                                             {"free_requested", Action::free_requested},
                                                             {"free_completed", Action::free_completed},
                                                             {"segment_alloc", Action::segment_alloc},
                                                             {"segment_free", Action::segment_free},
                                                             {"segment_map", Action::segment_map},
                                                             {"segment_unmap", Action::segment_unmap},
                                                             {"snapshot", Action::snapshot},
                                                             {"oom", Action::out_of_memory}};
  return *all;
}

std::string action_name(Action action) {
  for (const auto& [name, value] : actions()) {
    if (value == action) return name;
  }
  return "unknown";
}

StackContext gather(bool cpp) {
  const bool python = Py_IsInitialized() != 0;  // frees may follow the interpreter's end
  return torch::CapturedTraceback::gather(python, /*script=*/python, cpp);
}
StackContext gather_python() { return gather(false); }
StackContext gather_all() { return gather(true); }

// The frame lists of many stacks, filled at once: looking up C++ frames starts a process.
class Frames {
 public:
  py::list of(const StackContext& context) {
    py::list frames;
    if (context != nullptr) wanted_[context.get()].push_back(frames);
    return frames;
  }

  void fill() {
    std::vector<torch::CapturedTraceback*> stacks;
    for (const auto& entry : wanted_) stacks.push_back(torch::getCapturedTracebackFromContext(StackContext(StackContext(), entry.first)));
    const torch::SymbolizedTracebacks found = torch::symbolize(stacks);
    std::vector<py::dict> frames;
    for (const auto& frame : found.all_frames) {
      py::dict& d = frames.emplace_back();
      d["name"] = frame.funcname;
      d["filename"] = frame.filename;
      d["line"] = frame.lineno;
    }
    size_t i = 0;
    for (auto& entry : wanted_) {
      for (py::list& list : entry.second) {
        for (const uint64_t frame : found.tracebacks[i]) list.append(frames[frame]);
      }
      ++i;
    }
  }

 private:
  std::unordered_map<c10::GatheredContext*, std::vector<py::list>> wanted_;
};

py::dict block_dict(const c10::CachingDeviceAllocator::BlockInfo& block, size_t address, Frames& frames) {
  py::dict d;
  d["address"] = address;
  d["size"] = block.size;
  d["requested_size"] = block.requested_size;
  d["state"] = block.allocated ? "active_allocated" : block.active ? "active_pending_free" : "inactive";
  d["frames"] = frames.of(block.context_when_allocated);
  return d;
}

py::dict segment_dict(const SegmentInfo& segment, Frames& frames) {
  py::dict d;
  d["device"] = static_cast<int>(segment.device);
  d["address"] = segment.address;
  d["total_size"] = segment.total_size;
  d["allocated_size"] = segment.allocated_size;
  d["active_size"] = segment.active_size;
  d["requested_size"] = segment.requested_size;
  d["stream"] = reinterpret_cast<uint64_t>(segment.stream);
  d["segment_type"] = segment.is_large ? "large" : "small";
  d["segment_pool_id"] = py::make_tuple(segment.owner_private_pool_id.first, segment.owner_private_pool_id.second);
  d["is_expandable"] = segment.is_expandable;
  d["frames"] = frames.of(segment.context_when_allocated);
  py::list blocks;
  size_t address = segment.address;
  for (const auto& block : segment.blocks) {
    blocks.append(block_dict(block, address, frames));
    address += block.size;
  }
  d["blocks"] = blocks;
  return d;
}

py::dict event_dict(const HistoryEvent& event, Frames& frames) {
  py::dict d;
  d["action"] = action_name(event.action);
  d[event.action == Action::out_of_memory ? "device_free" : "addr"] = event.address;
  d["size"] = event.size;
  d["stream"] = event.stream;
  d["time_us"] = event.time_us;
  d["pool_id"] = py::make_tuple(event.pool.first, event.pool.second);
  d["compile_context"] = "";
  d["frames"] = frames.of(event.context);
  return d;
}

// The keys of torch.cuda.memory._snapshot. Without `with_events` it is not recorded in the history.
py::dict snapshot(bool with_events) {
  std::vector<SegmentInfo> segments;
  std::vector<std::vector<HistoryEvent>> events;
  {
    const py::gil_scoped_release no_gil;
    segments = caching_allocator().snapshot(with_events ? &events : nullptr);
  }
  events.resize(static_cast<size_t>(device_count()));
  Frames frames;
  py::list segment_list;
  for (const auto& segment : segments) segment_list.append(segment_dict(segment, frames));
  py::list traces;
  for (const auto& of_device : events) {
    py::list list;
    for (const auto& event : of_device) list.append(event_dict(event, frames));
    traces.append(list);
  }
  frames.fill();
  py::dict d;
  d["segments"] = segment_list;
  d["device_traces"] = traces;
  d["external_annotations"] = py::list();
  return d;
}

// The arguments are checked in Python (torch_backplane.device.memory); stacks: 0 none ... 3 all, as HistorySettings::Stacks.
void record_history(bool events, int stacks, bool cpp, size_t max_entries, bool clear, const std::vector<std::string>& skip) {
  HistorySettings settings;
  settings.events = events;
  settings.stacks = static_cast<HistorySettings::Stacks>(stacks);
  settings.max_entries = max_entries;
  settings.gather = cpp ? &gather_all : &gather_python;
  for (const auto& name : skip) settings.skipped |= 1u << static_cast<uint32_t>(actions().at(name));
  caching_allocator().record_history(settings, clear);
}

// The observer is never removed; its exception is printed and does not hide the out-of-memory error.
void attach_out_of_memory_observer(const py::function& observer) {
  auto* kept = new py::function(observer);
  caching_allocator().attach_out_of_memory_observer([kept](c10::DeviceIndex device, size_t asked, size_t total, size_t free) {
    if (Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire gil;
    try {
      (*kept)(static_cast<int>(device), asked, total, free);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("an out-of-memory observer");
    }
  });
}

}  // namespace

void bind_history(py::module_& module) {
  def_quick(module, "snapshot", snapshot);
  def_blocking(module, "record", record_history);
  def_blocking(module, "stop", [] { caching_allocator().record_history(std::nullopt, true); });
  def_quick(module, "actions", [] {
    std::vector<std::string> names;
    for (const auto& entry : actions()) names.push_back(entry.first);
    return names;
  });
  def_quick(module, "attach_out_of_memory_observer", attach_out_of_memory_observer);
}

}  // namespace backplane::bindings
