// check_driver/checks_error.cpp: family "error": last_error, and what a failing entry leaves alone.
#include <string.h>

#include <string>
#include <thread>

#include "context.h"

namespace backplane::check {
namespace error_impl {

constexpr char text_rule[] =
    "Writes the text of the calling thread's last error, NUL-terminated and truncated to size; an empty text if there is none. "
    "Always BP_OK";

// Fails on purpose, so that there is a text.
void provoke(Context& c) {
  uint64_t address = 0x77;
  c.expect(CALL(c, alloc, c.devices(), 4096, 0u, &address), BP_INVALID_DEVICE, rules::no_such_device);
}

void text(Context& c) {
  char none[16];
  memset(none, 'x', sizeof none);
  std::thread([&] { CALL(c, last_error, none, sizeof none); }).join();
  c.require(none[0] == 0, text_rule, "a thread without an error got the text \"%.15s\"", none);
  provoke(c);
  char whole[512];
  memset(whole, 'x', sizeof whole);
  c.expect(CALL(c, last_error, whole, sizeof whole), BP_OK, text_rule);
  c.require(memchr(whole, 0, sizeof whole) != nullptr, text_rule, "last_error wrote no NUL into %zu bytes", sizeof whole);
  c.require(whole[0] != 0, rules::errors, "alloc failed with INVALID_DEVICE and last_error gives an empty text");
  provoke(c);
  char again[512];
  c.expect(CALL(c, last_error, again, sizeof again), BP_OK, text_rule);
  c.require(!strcmp(whole, again), text_rule, "the same failure is reported as \"%.200s\" and as \"%.200s\"", whole, again);
}

void cut(Context& c) {
  provoke(c);
  char whole[512];
  c.expect(CALL(c, last_error, whole, sizeof whole), BP_OK, text_rule);
  whole[sizeof whole - 1] = 0;
  for (uint64_t size : {0, 1, 2, 5, 8}) {
    provoke(c);
    char small[16];
    memset(small, 0x7e, sizeof small);
    c.expect(CALL(c, last_error, small, size), BP_OK, text_rule);
    for (uint64_t i = size; i < sizeof small; ++i) {
      c.require(small[i] == 0x7e, text_rule, "last_error with size %llu wrote byte %llu", wide(size), wide(i));
    }
    if (!size) continue;
    c.require(memchr(small, 0, size) != nullptr, text_rule, "last_error with size %llu wrote no NUL", wide(size));
    c.require(!strncmp(small, whole, strlen(small)) && (strlen(small) == size - 1 || strlen(small) == strlen(whole)), text_rule,
              "last_error with size %llu wrote \"%s\", expected the start of \"%.200s\"", wide(size), small, whole);
  }
}

void per_thread(Context& c) {
  provoke(c);
  std::string other = "unset";
  std::thread([&] { other = c.last_error(); }).join();
  c.require(other.empty(), text_rule, "a thread that made no failing call got the text of another one: \"%.200s\"", other.c_str());
  std::string own;
  std::thread([&] {
    uint64_t address = 0;
    CALL(c, alloc, 0, UINT64_MAX / 2, 0u, &address);  // a different failure
    own = c.last_error();
  }).join();
  c.require(!own.empty(), rules::errors, "alloc failed on a second thread and last_error gives an empty text there");
  const std::string mine = c.last_error();
  provoke(c);
  c.require(mine == c.last_error(), text_rule, "the text of a failure was overwritten by one on another thread: \"%.200s\"", mine.c_str());
}

void outputs(Context& c) { c.refuses_device(c.devices()); }

// Every entry with flags, with one that no version of this header names.
void flags(Context& c) {
  constexpr uint32_t unknown = 1u << 30;
  const bp_driver& t = c.table();
  const auto refused = [&](int32_t status) { c.expect(status, BP_INVALID_ARGUMENT, rules::flags); };
  const uint64_t bytes = c.some_bytes(0);
  const uint64_t a = c.alloc(0, bytes);
  HostBuffer host(bytes);
  uint64_t address = 0;
  refused(CALL(c, alloc, 0, bytes, unknown, &address));
  refused(CALL(c, copy, 0, nullptr, a, 0, host.address(), BP_HOST_DEVICE, bytes, unknown));
  const uint64_t pattern = 0;
  if (t.fill) refused(CALL(c, fill, 0, nullptr, a, &pattern, 8u, 1u, unknown));
  if (t.host_alloc) {
    void* memory = nullptr;
    refused(CALL(c, host_alloc, bytes, unknown, &memory));
  }
  if (t.stream_create) {
    bp_stream* stream = nullptr;
    refused(CALL(c, stream_create, 0, 0, unknown, &stream));
    const uint64_t b = c.alloc(0, bytes);
    refused(CALL(c, copy_async, 0, nullptr, b, 0, a, 0, bytes, unknown));
  }
  if (t.event_create) {
    bp_event* event = nullptr;
    refused(CALL(c, event_create, 0, unknown, &event));
    refused(CALL(c, event_record, 0, nullptr, c.event(0), unknown));
  }
}

}  // namespace error_impl

Checks error_checks() {
  using namespace error_impl;
  return {
      {"error.text", "a failure has a text", needs_nothing, text},
      {"error.cut", "the text is cut to the buffer's size", needs_nothing, cut},
      {"error.per_thread", "the text is the calling thread's", needs_nothing, per_thread},
      {"error.outputs", "a failing entry leaves its outputs alone", needs_nothing, outputs},
      {"error.flags", "unknown flags are refused", needs_nothing, flags},
  };
}

}  // namespace backplane::check
