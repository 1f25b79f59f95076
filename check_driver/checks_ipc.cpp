// check_driver/checks_ipc.cpp: family "ipc": memory and events of one process in another.
#include <string.h>
#include <unistd.h>

#include "busy_stream.h"
#include "context.h"
#include "other_process.h"

namespace backplane::check {
namespace ipc_impl {

constexpr char open_rule[] = "The address of a handle's memory in this process: like one of alloc";
constexpr char untouched_rule[] = "Closes what memory_open returned; no work uses it any more. The exporter's memory is not affected";
constexpr char event_rule[] = "The event of a handle, for every entry that takes an event except event_elapsed";

uint64_t alloc_shared(Context& c, const bp_ipc& ipc, uint64_t bytes) {
  uint64_t address = 0;
  const uint32_t flags = ipc.head.flags & BP_IPC_ANY_MEMORY ? 0 : BP_ALLOC_SHARED;
  c.expect(CALL(c, alloc, 0, bytes, flags, &address), BP_OK, "memory that other processes will open");
  return address;
}

bp_ipc_handle export_memory(Context& c, const bp_ipc& ipc, uint64_t address) {
  bp_ipc_handle handle{};
  c.expect(CALL_GROUP(ipc, memory_export, 0, address, &handle), BP_OK, "Names an allocation of alloc by its base address");
  return handle;
}

uint64_t open_memory(Context& c, const bp_ipc& ipc, const bp_ipc_handle& handle) {
  uint64_t address = 0;
  c.expect(CALL_GROUP(ipc, memory_open, 0, &handle, &address), BP_OK, open_rule);
  c.require(address != 0, open_rule, "%s gave BP_OK and address 0", traced_call());
  return address;
}

// What one writes the other reads, in both directions, at every offset.
void memory(Context& c) {
  const uint64_t bytes = c.some_bytes(0), half = bytes / 2 / c.unit(0) * c.unit(0);
  const bp_ipc ipc = *c.group<bp_ipc>();
  HostBuffer first(bytes, 0), second(bytes, 0);
  first.fill_pattern(11);
  second.fill_pattern(12);
  const OtherProcess other(c, open_rule, [&](const Channel& parent) {
    const uint64_t address = open_memory(c, ipc, parent.receive<bp_ipc_handle>());
    c.holds(0, address, first.data(), bytes, open_rule, "memory of another process");
    c.upload(0, address + half, second.data() + half, bytes - half);
    c.synchronize(0);
    parent.send(true);
    parent.receive<bool>();
    c.expect(CALL_GROUP(ipc, memory_close, 0, address), BP_OK, untouched_rule);
    c.smoke(0, untouched_rule);
    parent.send(true);
  });
  c.open();
  const uint64_t before = c.alloc(0, bytes), address = alloc_shared(c, ipc, bytes);
  c.upload(0, address, first.data(), bytes);
  c.synchronize(0);
  other.channel().send(export_memory(c, ipc, address));
  other.channel().receive<bool>();
  memcpy(second.data(), first.data(), half);
  c.holds(0, address, second.data(), bytes, open_rule, "memory that another process wrote to");
  other.channel().send(true);
  other.channel().receive<bool>();
  c.free(0, address);
  c.free(0, before);
  c.smoke(0, open_rule);
}

// Closing, opening again and the end of the other process leave the exporter's memory alone.
void close(Context& c) {
  const uint64_t bytes = c.some_bytes(0);
  const bp_ipc ipc = *c.group<bp_ipc>();
  HostBuffer data(bytes);
  data.fill_pattern(13);
  const OtherProcess other(c, open_rule, [&](const Channel& parent) {
    const auto handle = parent.receive<bp_ipc_handle>();
    for (int i = 0; i < 20; ++i) {
      const uint64_t address = open_memory(c, ipc, handle);
      c.holds(0, address, data.data(), bytes, open_rule, "memory of another process that was opened again");
      c.expect(CALL_GROUP(ipc, memory_close, 0, address), BP_OK, untouched_rule);
      c.expect(CALL_GROUP(ipc, memory_close, 0, address), BP_INVALID_ARGUMENT,
               "errors: INVALID_ARGUMENT for an address that memory_open did not return");
      // What takes its place must not reach the exporter's memory.
      const uint64_t own = c.alloc(0, bytes);
      HostBuffer noise(bytes, static_cast<uint8_t>(i));
      c.upload(0, own, noise.data(), bytes);
      c.free(0, own);
    }
    open_memory(c, ipc, handle);
    parent.send(true);
    pause();  // killed with the memory open
  });
  c.open();
  const uint64_t address = alloc_shared(c, ipc, bytes);
  c.upload(0, address, data.data(), bytes);
  c.synchronize(0);
  other.channel().send(export_memory(c, ipc, address));
  other.channel().receive<bool>();
  other.kill_now();
  c.holds(0, address, data.data(), bytes, untouched_rule, "exported memory after another process closed it");
  c.free(0, address);
}

// An event of this process is pending in the other one, too, and orders its streams.
void events(Context& c) {
  const bp_ipc ipc = *c.group<bp_ipc>();
  if (!(ipc.head.flags & BP_IPC_EVENTS)) throw NotOffered{"no BP_IPC_EVENTS"};
  const OtherProcess other(c, open_rule, [&](const Channel& parent) {
    bp_stream* stream = c.stream(0);
    const auto handle = parent.receive<bp_ipc_handle>();
    bp_event* event = nullptr;
    c.expect(CALL_GROUP(ipc, event_open, 0, &handle, &event), BP_OK, event_rule);
    for (int i = 0; i < 20; ++i) c.expect(CALL(c, event_query, 0, event), BP_PENDING, event_rule);
    c.expect(CALL(c, event_synchronize, 0, event, 1'000'000), BP_TIMEOUT, event_rule);
    c.expect(CALL(c, stream_wait, 0, stream, event), BP_OK, event_rule);
    c.expect(CALL(c, stream_query, 0, stream), BP_PENDING, event_rule);
    parent.send(true);
    c.expect(CALL(c, event_synchronize, 0, event, BP_NO_TIMEOUT), BP_OK, event_rule);
    c.expect(CALL(c, event_query, 0, event), BP_OK, event_rule);
    c.synchronize(0, stream);
    c.expect(CALL(c, event_destroy, 0, event), BP_OK, "owner: the caller, until event_destroy");
    parent.send(true);
  });
  c.open();
  bp_stream* stream = c.stream(0);
  bp_event* event = c.event(0, BP_EVENT_IPC);
  BusyStream hold(c, 0, stream);
  c.expect(CALL(c, event_record, 0, stream, event, 0u), BP_OK, event_rule);
  bp_ipc_handle handle{};
  c.expect(CALL_GROUP(ipc, event_export, 0, event, &handle), BP_OK, "Names an event that was made with BP_EVENT_IPC");
  other.channel().send(handle);
  other.channel().receive<bool>();
  hold.release();
  other.channel().receive<bool>();
  c.synchronize(0, stream);
  c.expect(CALL(c, event_query, 0, event), BP_OK, event_rule);
  c.expect(CALL(c, event_destroy, 0, event), BP_OK, "owner: the caller, until event_destroy");
}

void invalid(Context& c) {
  const char* export_rule = "errors: INVALID_ARGUMENT for an address that alloc did not return";
  const char* handle_rule = "errors: INVALID_ARGUMENT for bytes that are not a handle";
  const bp_ipc ipc = *c.group<bp_ipc>();
  const uint64_t bytes = c.some_bytes(0), address = alloc_shared(c, ipc, bytes);
  bp_ipc_handle handle;
  memset(&handle, 0x5a, sizeof handle);
  uint64_t out = 77;
  c.expect(CALL_GROUP(ipc, memory_open, 0, &handle, &out), BP_INVALID_ARGUMENT, handle_rule);
  c.require(out == 77, rules::errors, "%s failed and yet set *out", traced_call());
  for (uint64_t wrong : {address + c.unit(0), uint64_t{0x10}}) {
    c.expect(CALL_GROUP(ipc, memory_export, 0, wrong, &handle), BP_INVALID_ARGUMENT, export_rule);
  }
  c.expect(CALL_GROUP(ipc, memory_close, 0, address), BP_INVALID_ARGUMENT,
           "errors: INVALID_ARGUMENT for an address that memory_open did not return");
  c.expect(CALL_GROUP(ipc, memory_export, c.devices(), address, &handle), BP_INVALID_DEVICE, rules::no_such_device);
  c.free(0, address);
}

}  // namespace ipc_impl

Checks ipc_checks() {
  using namespace ipc_impl;
  return {
      {"ipc.memory", "two processes see one memory", needs_ipc | starts_closed, memory},
      {"ipc.close", "closing leaves the exporter's memory alone", needs_ipc | starts_closed, close},
      {"ipc.events", "an event orders another process's work", needs_ipc | needs_events | starts_closed, events},
      {"ipc.invalid", "what is no handle is refused", needs_ipc, invalid},
  };
}

}  // namespace backplane::check
