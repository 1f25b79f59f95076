/* tests/device/drivers/gate.c: a shim whose entries wait while they are shut. `shut` and `waiting` are used through ctypes. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <backplane/driver.h>
#include <backplane/driver/vmm.h>

enum { GATE_ALLOC = 1, GATE_FREE = 2, GATE_SYNCHRONIZE = 4, GATE_MAP = 8, GATE_UNMAP = 16 };

BP_EXPORT int32_t shut = 0;    /* GATE_* */
BP_EXPORT int32_t waiting = 0; /* threads */

static struct {
  bp_driver table; /* the inner driver's, some entries replaced; they get the inner driver's self */
  bp_vmm vmm;
  const bp_driver* inner;
  const bp_vmm* inner_vmm;
} gate;

static void pass(int32_t which) {
  if ((__atomic_load_n(&shut, __ATOMIC_ACQUIRE) & which) == 0) return;
  __atomic_add_fetch(&waiting, 1, __ATOMIC_ACQ_REL);
  while (__atomic_load_n(&shut, __ATOMIC_ACQUIRE) & which) sched_yield();
  __atomic_sub_fetch(&waiting, 1, __ATOMIC_ACQ_REL);
}

static int32_t gated_alloc(void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
  pass(GATE_ALLOC);
  return gate.inner->alloc(self, device, bytes, flags, out);
}

static int32_t gated_free(void* self, int32_t device, uint64_t address) {
  pass(GATE_FREE);
  return gate.inner->free(self, device, address);
}

static int32_t gated_synchronize(void* self, int32_t device, uint64_t timeout_ns) {
  pass(GATE_SYNCHRONIZE);
  return gate.inner->synchronize(self, device, timeout_ns);
}

static int32_t gated_map(void* self, int32_t device, uint64_t address, uint64_t bytes) {
  pass(GATE_MAP);
  return gate.inner_vmm->map(self, device, address, bytes);
}

static int32_t gated_unmap(void* self, int32_t device, uint64_t address, uint64_t bytes) {
  pass(GATE_UNMAP);
  return gate.inner_vmm->unmap(self, device, address, bytes);
}

static int32_t gated_query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  const int32_t status = gate.inner->query_ext(self, id, version, out);
  if (status == BP_OK && strcmp(id, BP_VMM_ID) == 0) {
    gate.inner_vmm = (const bp_vmm*)*out;
    gate.vmm = *gate.inner_vmm;
    gate.vmm.map = gated_map;
    gate.vmm.unmap = gated_unmap;
    *out = &gate.vmm.head;
  }
  return status;
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->inner == NULL) return BP_INVALID_ARGUMENT;
  gate.inner = host->inner;
  gate.table = *host->inner;
  gate.table.alloc = gated_alloc;
  gate.table.free = gated_free;
  gate.table.synchronize = gated_synchronize;
  gate.table.query_ext = gated_query_ext;
  *out = &gate.table;
  return BP_OK;
}
