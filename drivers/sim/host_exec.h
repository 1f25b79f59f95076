// drivers/sim/host_exec.h: the entries of bp.host_exec: host functions in stream order.
#pragma once

#include <string>

#include <backplane/driver/host_exec.h>

#include "devices.h"

namespace backplane::driver::sim {

class HostExecEntries {
 public:
  explicit HostExecEntries(Devices& devices) : devices_(devices) {}

  void enqueue(int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    try {
      if (!fn) throw Error(BP_INVALID_ARGUMENT, "host_exec.enqueue: fn must not be NULL");
      Stream& on = devices_.usable(device, stream);
      devices_.pause(on, devices_.delay());
      const Job job{run_host_function,
                    {reinterpret_cast<uint64_t>(fn), reinterpret_cast<uint64_t>(arg), reinterpret_cast<uint64_t>(destroy)}};
      devices_.queue_job(on, {BP_ACTIVITY_KERNEL}, job, repeat_host_function, destroy_host_function);
    } catch (...) {
      if (destroy) destroy(arg);
      throw;
    }
  }

  void map(int32_t device, uint64_t address, void** out) {
    devices_.check_index(device);
    void* at = out ? devices_.reach(device, address) : nullptr;
    if (!at) {
      throw Error(
          BP_INVALID_ARGUMENT,
          format("host_exec.map: 0x%llx is not in an allocation of device %d, nor of a peer that it has access to", wide(address), device));
    }
    *out = at;
  }

 private:
  static void run_host_function(Job& job, int32_t status) {
    struct Destroy {
      void (*call)(void*);
      void* arg;
      ~Destroy() {
        if (call) call(arg);
      }
    } destroy{reinterpret_cast<void (*)(void*)>(job.words[2]), reinterpret_cast<void*>(job.words[1])};
    repeat_host_function(job, status);
  }
  static void repeat_host_function(Job& job, int32_t status) {
    if (status != BP_OK) return;
    const int32_t result = reinterpret_cast<int32_t (*)(void*)>(job.words[0])(reinterpret_cast<void*>(job.words[1]));
    if (result != BP_OK) [[unlikely]]
      throw Error(BP_FAULT, std::string("a host_exec function returned ") + status_name(result));
  }
  static void destroy_host_function(Job& job) {
    if (job.words[2]) reinterpret_cast<void (*)(void*)>(job.words[2])(reinterpret_cast<void*>(job.words[1]));
  }

  Devices& devices_;
};

}  // namespace backplane::driver::sim
