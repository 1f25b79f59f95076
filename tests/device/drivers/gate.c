/* tests/device/drivers/gate.c: a shim whose entries wait while they are shut. `shut` and `waiting` are used through ctypes. */
#include <sched.h>

#include <backplane/driver/vmm.h>
#include "shim.h"

enum { GATE_ALLOC = 1, GATE_FREE = 2, GATE_SYNCHRONIZE = 4, GATE_MAP = 8, GATE_UNMAP = 16 };

BP_EXPORT int32_t shut = 0;    /* GATE_* */
BP_EXPORT int32_t waiting = 0; /* threads */

static bp_vmm vmm;
static const bp_vmm* inner_vmm = NULL;

static void pass(int32_t which) {
  if ((__atomic_load_n(&shut, __ATOMIC_ACQUIRE) & which) == 0) return;
  __atomic_add_fetch(&waiting, 1, __ATOMIC_ACQ_REL);
  while (__atomic_load_n(&shut, __ATOMIC_ACQUIRE) & which) sched_yield();
  __atomic_sub_fetch(&waiting, 1, __ATOMIC_ACQ_REL);
}

static int32_t gated_alloc(void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
  pass(GATE_ALLOC);
  return inner->alloc(self, device, bytes, flags, out);
}

static int32_t gated_free(void* self, int32_t device, uint64_t address) {
  pass(GATE_FREE);
  return inner->free(self, device, address);
}

static int32_t gated_synchronize(void* self, int32_t device, uint64_t timeout_ns) {
  pass(GATE_SYNCHRONIZE);
  return inner->synchronize(self, device, timeout_ns);
}

static int32_t gated_map(void* self, int32_t device, uint64_t address, uint64_t bytes) {
  pass(GATE_MAP);
  return inner_vmm->map(self, device, address, bytes);
}

static int32_t gated_unmap(void* self, int32_t device, uint64_t address, uint64_t bytes) {
  pass(GATE_UNMAP);
  return inner_vmm->unmap(self, device, address, bytes);
}

static int32_t gated_query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  const int32_t status = inner->query_ext(self, id, version, out);
  if (status == BP_OK && strcmp(id, BP_VMM_ID) == 0) {
    inner_vmm = (const bp_vmm*)*out;
    vmm = *inner_vmm;
    vmm.map = gated_map;
    vmm.unmap = gated_unmap;
    *out = &vmm.head;
  }
  return status;
}

static void change(const bp_host* host) {
  table.alloc = gated_alloc;
  table.free = gated_free;
  table.synchronize = gated_synchronize;
  table.query_ext = gated_query_ext;
}
