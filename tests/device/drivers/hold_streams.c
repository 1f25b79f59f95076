/* tests/device/drivers/hold_streams.c: a shim that holds streams up, by a gate that stays shut or by a delay. Used through ctypes. */
#include <time.h>

#include "shim.h"

static int shut[64];

/* A callback should not block. This one does, so that the stream's work is not complete. */
static void pause_until(int* flag) {
  const struct timespec moment = {0, 50 * 1000};
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE)) nanosleep(&moment, NULL);
}

static void wait_at_gate(void* arg, int32_t status) {
  (void)status;
  pause_until(&shut[(size_t)arg]);
}

static void wait_a_while(void* arg, int32_t status) {
  const struct timespec time = {0, (long)(size_t)arg * 1000};
  (void)status;
  nanosleep(&time, NULL);
}

/* Later work of the stream waits until open_gate(gate). Only for streams that do not run on the caller's thread. */
BP_EXPORT int32_t shut_gate(int32_t gate, int32_t device, uint64_t stream) {
  __atomic_store_n(&shut[gate], 1, __ATOMIC_RELEASE);
  return inner->stream_callback(inner->self, device, (bp_stream*)stream, wait_at_gate, (void*)(size_t)gate);
}

BP_EXPORT void open_gate(int32_t gate) { __atomic_store_n(&shut[gate], 0, __ATOMIC_RELEASE); }

/* Later work of the stream comes so many microseconds later. */
BP_EXPORT int32_t delay(int32_t device, uint64_t stream, uint32_t microseconds) {
  return inner->stream_callback(inner->self, device, (bp_stream*)stream, wait_a_while, (void*)(size_t)microseconds);
}

static void change(const bp_host* host) { (void)host; }
