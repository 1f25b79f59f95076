/* tests/device/drivers/odd_driver.c: a driver without devices that is wrong as the macro ODD names, for the loader's messages. */
#include <backplane/driver.h>
#include <stdlib.h>

enum { NO_SYMBOL = 1, OTHER_ABI, SHORT_TABLE, HALF_GROUP, REFUSES, NULL_TABLE, NO_DEVICES, OLD_ABI, NO_REASON };

static int32_t device_count(void* self, int32_t* out) {
  *out = 0;
  return BP_OK;
}
static int32_t device_properties(void* self, int32_t device, bp_device_properties* out) { return BP_INVALID_DEVICE; }
static int32_t life(void* self) { return BP_OK; }
static int32_t alloc(void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) { return BP_INVALID_DEVICE; }
static int32_t free_(void* self, int32_t device, uint64_t address) { return BP_INVALID_DEVICE; }
static int32_t copy(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                    uint64_t bytes, uint32_t flags) {
  return BP_INVALID_DEVICE;
}
static int32_t synchronize(void* self, int32_t device, uint64_t timeout_ns) { return BP_INVALID_DEVICE; }
static int32_t last_error(void* self, char* buf, uint64_t size) {
  if (size != 0) buf[0] = '\0';
  return BP_OK;
}
static int32_t event_query(void* self, int32_t device, bp_event* event) { return BP_OK; }

#if ODD != 1
BP_EXPORT
#else
#define bp_driver_get not_the_symbol
static
#endif
int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  bp_driver* table = calloc(1, sizeof *table);
  if (ODD == REFUSES) {
    host->set_error(host->ctx, "the runtime libodd.so.3 is not installed");
    free(table);
    return BP_UNSUPPORTED;
  }
  if (ODD == NO_REASON) {
    host->log(host->ctx, BP_LOG_ERROR, NULL);
    host->set_error(host->ctx, NULL);
    free(table);
    return BP_UNSUPPORTED;
  }
  if (ODD == NULL_TABLE) {
    free(table);
    return BP_OK;
  }
  table->struct_size = ODD == SHORT_TABLE ? 64 : sizeof *table;
  table->abi_major = BP_ABI_MAJOR;
  table->abi_minor = ODD == OTHER_ABI ? BP_ABI_MINOR + 1 : ODD == OLD_ABI ? 1 : BP_ABI_MINOR;
  table->device_count = device_count;
  table->device_properties = device_properties;
  table->open = life;
  table->close = life;
  table->alloc = alloc;
  table->free = free_;
  table->copy = copy;
  table->synchronize = synchronize;
  table->last_error = last_error;
  if (ODD == HALF_GROUP) table->event_query = event_query;
  *out = table;
  return BP_OK;
}
#if ODD == 1
void* odd_keep(void) { return (void*)bp_driver_get; }
#endif
