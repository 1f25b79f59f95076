// drivers/shims/trace/arguments.h: the names of the entries' arguments, and how a call's arguments become text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "line.h"

namespace backplane::driver::trace {

/// The names of an entry's arguments, separated by spaces. In front of a name: @ written as hex, ~ a device or the host, # a timeout, & an
/// address that is not looked behind. An entry without names gets values alone.
template <auto Slot>
inline constexpr std::string_view kArguments = "";

#define BP_NAMES(slot, names) \
  template <>                 \
  inline constexpr std::string_view kArguments<&slot> = names
BP_NAMES(bp_driver::device_count, "out");
BP_NAMES(bp_driver::device_properties, "device out");
BP_NAMES(bp_driver::alloc, "device bytes @flags @out");
BP_NAMES(bp_driver::free, "device @address");
BP_NAMES(bp_driver::copy, "device stream @dst ~dst_device @src ~src_device bytes @flags");
BP_NAMES(bp_driver::synchronize, "device #timeout_ns");
BP_NAMES(bp_driver::last_error, "buf size");
BP_NAMES(bp_driver::stream_create, "device priority @flags out");
BP_NAMES(bp_driver::stream_destroy, "device stream");
BP_NAMES(bp_driver::stream_query, "device stream");
BP_NAMES(bp_driver::stream_synchronize, "device stream #timeout_ns");
BP_NAMES(bp_driver::copy_async, "device stream @dst ~dst_device @src ~src_device bytes @flags");
BP_NAMES(bp_driver::event_create, "device @flags out");
BP_NAMES(bp_driver::event_destroy, "device event");
BP_NAMES(bp_driver::event_record, "device stream event @flags");
BP_NAMES(bp_driver::event_query, "device event");
BP_NAMES(bp_driver::event_synchronize, "device event #timeout_ns");
BP_NAMES(bp_driver::stream_wait, "device stream event");
BP_NAMES(bp_driver::event_elapsed, "device start end ns");
BP_NAMES(bp_driver::host_alloc, "bytes @flags out");
BP_NAMES(bp_driver::host_free, "ptr");
BP_NAMES(bp_driver::host_register, "ptr bytes");
BP_NAMES(bp_driver::host_unregister, "ptr");
BP_NAMES(bp_driver::fill, "device stream @dst pattern pattern_size count @flags");
BP_NAMES(bp_driver::stream_callback, "device stream fn arg");
BP_NAMES(bp_driver::stream_native, "device stream @out");
BP_NAMES(bp_driver::stream_from_native, "device @native out");
BP_NAMES(bp_driver::pointer_info, "@address out");
BP_NAMES(bp_driver::memory_info, "device free_bytes total_bytes");
BP_NAMES(bp_driver::set_current, "device");
BP_NAMES(bp_driver::query_ext, "id version out");
BP_NAMES(bp_host_exec::enqueue, "device stream fn arg destroy");
BP_NAMES(bp_host_exec::map, "device @address out");
BP_NAMES(bp_host_view::map, "device @address bytes access out");
BP_NAMES(bp_host_view::unmap, "device @address ptr");
BP_NAMES(bp_peer::can_access, "device peer out");
BP_NAMES(bp_peer::enable, "device peer");
BP_NAMES(bp_vmm::granularity, "device out");
BP_NAMES(bp_vmm::reserve, "device bytes @out");
BP_NAMES(bp_vmm::release, "device @address bytes");
BP_NAMES(bp_vmm::map, "device @address bytes");
BP_NAMES(bp_vmm::unmap, "device @address bytes");
BP_NAMES(bp_ipc::memory_export, "device @address handle");
BP_NAMES(bp_ipc::memory_open, "device handle @out");
BP_NAMES(bp_ipc::memory_close, "device @address");
BP_NAMES(bp_ipc::event_export, "device event handle");
BP_NAMES(bp_ipc::event_open, "device handle out");
BP_NAMES(bp_compiler::id, "out size");
BP_NAMES(bp_compiler::target, "device out");
BP_NAMES(bp_compiler::prelude, "target out");
BP_NAMES(bp_compiler::compile, "request out");
BP_NAMES(bp_compiler::release, "&result");
BP_NAMES(bp_module::load, "device code bytes out");
BP_NAMES(bp_module::unload, "device module");
BP_NAMES(bp_module::function, "device module name signature out properties");
BP_NAMES(bp_module::launch, "device stream launch");
BP_NAMES(bp_collective::properties, "device out");
BP_NAMES(bp_collective::make_id, "device out");
BP_NAMES(bp_collective::create, "device config out");
BP_NAMES(bp_collective::split, "comm color config out");
BP_NAMES(bp_collective::destroy, "comm #timeout_ns");
BP_NAMES(bp_collective::abort, "comm");
BP_NAMES(bp_collective::status, "comm out text size");
BP_NAMES(bp_collective::all_reduce, "comm stream @out @in count @dtype op");
BP_NAMES(bp_collective::reduce, "comm stream @out @in count @dtype op root");
BP_NAMES(bp_collective::reduce_scatter, "comm stream @out @in count @dtype op");
BP_NAMES(bp_collective::broadcast, "comm stream @out @in bytes root");
BP_NAMES(bp_collective::all_gather, "comm stream @out @in bytes");
BP_NAMES(bp_collective::send, "comm stream @in bytes peer");
BP_NAMES(bp_collective::recv, "comm stream @out bytes peer");
BP_NAMES(bp_collective::all_to_all, "comm stream @out @in bytes");
BP_NAMES(bp_collective::all_to_all_v, "comm stream @out out_bytes out_at @in in_bytes in_at");
BP_NAMES(bp_collective::gather, "comm stream @out @in bytes root");
BP_NAMES(bp_collective::scatter, "comm stream @out @in bytes root");
BP_NAMES(bp_collective::barrier, "comm stream");
BP_NAMES(bp_profile::start, "@kinds fn arg");
BP_NAMES(bp_profile::stop, "dropped");
BP_NAMES(bp_profile::tag, "correlation");
BP_NAMES(bp_profile::launch_begin, "device stream");
BP_NAMES(bp_profile::launch_end, "device stream name");
BP_NAMES(bp_profile::range_push, "name");
BP_NAMES(bp_profile::range_pop, "");
BP_NAMES(bp_profile::mark, "name");
BP_NAMES(bp_graph::capture_begin, "device stream mode id");
BP_NAMES(bp_graph::capture_end, "device stream out");
BP_NAMES(bp_graph::capture_status, "device stream out id");
BP_NAMES(bp_graph::instantiate, "device recording @flags out");
BP_NAMES(bp_graph::launch, "device stream exec");
BP_NAMES(bp_graph::recording_destroy, "device recording");
BP_NAMES(bp_graph::exec_destroy, "device exec");
BP_NAMES(bp_graph::dump, "device recording path");
#undef BP_NAMES

/// How many names a list has.
constexpr size_t count_of(std::string_view names) {
  size_t count = names.empty() ? 0 : 1;
  for (const char c : names) count += c == ' ';
  return count;
}

/// One argument's name, taken off the front of a list.
struct Name {
  std::string_view text;
  char form = 0;

  explicit Name(std::string_view& list) : text(list.substr(0, list.find(' '))) {
    list.remove_prefix(std::min(list.size(), text.size() + 1));
    if (text.empty() || std::string_view("@~#&").find(text[0]) == std::string_view::npos) return;
    form = text[0];
    text.remove_prefix(1);
  }
  /// " bytes=", or a space where there is no name.
  Line& start(Line& line) const { return text.empty() ? line << " " : line << " " << text << "="; }
};

template <class T, class = void>
struct Described : std::false_type {};
template <class T>
struct Described<T, std::void_t<decltype(describe(std::declval<Line&>(), std::declval<const T&>()))>> : std::true_type {};

/// True for what a call writes behind a pointer: numbers, pointers, structs that can be described, text.
template <class Argument>
constexpr bool is_output() {
  using Behind = std::remove_pointer_t<Argument>;
  if constexpr (!std::is_pointer_v<Argument> || std::is_const_v<Behind> || std::is_function_v<Behind>) {
    return false;
  } else {
    return std::is_arithmetic_v<Behind> || std::is_pointer_v<Behind> || Described<Behind>::value;
  }
}

/// A value as text.
template <class Value>
void write(Line& line, char form, Value value) {
  if constexpr (std::is_integral_v<Value>) {
    if (form == '@') {
      line.hex(static_cast<uint64_t>(value));
    } else if (form == '~' && static_cast<int64_t>(value) == BP_HOST_DEVICE) {
      line << "host";
    } else if (form == '#' && static_cast<uint64_t>(value) == BP_NO_TIMEOUT) {
      line << "none";
    } else {
      line << value;
    }
  } else if constexpr (std::is_same_v<Value, const char*>) {
    line.quoted(value);
  } else if constexpr (std::is_same_v<Value, bp_stream*>) {
    value ? line.address(value) : line << "default";
  } else if constexpr (Described<std::remove_pointer_t<Value>>::value) {
    if (!value || form == '&') {
      line.address(value);
      return;
    }
    line << "{";
    describe(line, *value);
    line << "}";
  } else {
    line.address(reinterpret_cast<const void*>(value));
  }
}

/// What goes into a call.
inline void write_inputs(Line&, std::string_view) {}
template <class First, class... Rest>
void write_inputs(Line& line, std::string_view names, First first, Rest... rest);
/// fill's pattern, as the number that it is.
template <class... Rest>
void write_inputs(Line& line, std::string_view names, const void* pattern, uint32_t size, Rest... rest) {
  const Name name(names), of_size(names);
  uint64_t word = 0;
  if (pattern && (size == 1 || size == 2 || size == 4 || size == 8)) std::memcpy(&word, pattern, size);
  name.start(line).hex(word);
  write(of_size.start(line), of_size.form, size);
  write_inputs(line, names, rest...);
}
template <class First, class... Rest>
void write_inputs(Line& line, std::string_view names, First first, Rest... rest) {
  const Name name(names);
  if (!is_output<First>() || name.form == '&') write(name.start(line), name.form, first);
  write_inputs(line, names, rest...);
}

/// What comes out of one that succeeded.
inline void write_outputs(Line&, std::string_view) {}
template <class First, class... Rest>
void write_outputs(Line& line, std::string_view names, First first, Rest... rest);
/// Text, of which no more than its room may be looked at.
template <class... Rest>
void write_outputs(Line& line, std::string_view names, char* text, uint64_t room, Rest... rest) {
  const Name name(names), size(names);
  if (text && room) name.start(line).quoted(text, std::min<uint64_t>(room, 200));
  write_outputs(line, names, rest...);
}
template <class First, class... Rest>
void write_outputs(Line& line, std::string_view names, First first, Rest... rest) {
  const Name name(names);
  if constexpr (is_output<First>() && !std::is_same_v<First, char*>) {
    if (first && name.form != '&') {
      if constexpr (Described<std::remove_pointer_t<First>>::value) {
        write(name.start(line), name.form, first);
      } else if constexpr (std::is_pointer_v<std::remove_pointer_t<First>>) {
        name.start(line).address(reinterpret_cast<const void*>(*first));
      } else {
        write(name.start(line), name.form, *first);
      }
    }
  }
  write_outputs(line, names, rest...);
}

}  // namespace backplane::driver::trace
