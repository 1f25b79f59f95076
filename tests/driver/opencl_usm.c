/* opencl_usm.c: an OpenCL library whose devices have what PoCL lacks: unified shared memory, priorities and throttling.
 *
 * It is linked to a real library, which does the work: what is not defined here is found there. Memory is shared virtual memory, which the
 * devices here say they have not. Properties of queues are written to the file OPENCL_USM_LOG and left out. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REAL(name, type) __typeof__(type)* const real = (__typeof__(type)*)dlsym(RTLD_NEXT, name)

enum { EXTENSIONS = 0x1030, SVM_CAPABILITIES = 0x1053, QUEUE_PROPERTIES = 0x1093, PRIORITY = 0x1096, THROTTLE = 0x1097 };
static const char more[] = " cl_intel_unified_shared_memory cl_khr_priority_hints cl_khr_throttle_hints";

int32_t clGetDeviceInfo(void* device, uint32_t what, size_t bytes, void* out, size_t* needed) {
  REAL("clGetDeviceInfo", int32_t(void*, uint32_t, size_t, void*, size_t*));
  if (what == SVM_CAPABILITIES) {
    if (out) memset(out, 0, bytes);
    if (needed) *needed = sizeof(uint64_t);
    return 0;
  }
  if (what != EXTENSIONS) return real(device, what, bytes, out, needed);
  size_t own = 0;
  real(device, what, 0, NULL, &own);
  if (needed) *needed = own + sizeof more - 1;
  if (!out) return 0;
  if (bytes < own + sizeof more - 1) return -30; /* CL_INVALID_VALUE */
  real(device, what, own, out, NULL);
  strcat(out, more);
  return 0;
}

void* clCreateCommandQueueWithProperties(void* context, void* device, const uint64_t* properties, int32_t* code) {
  REAL("clCreateCommandQueueWithProperties", void*(void*, void*, const uint64_t*, int32_t*));
  uint64_t kept[3] = {0};
  FILE* log = fopen(getenv("OPENCL_USM_LOG"), "a");
  for (; *properties; properties += 2) {
    if (*properties == QUEUE_PROPERTIES) kept[0] = properties[0], kept[1] = properties[1];
    if (log && *properties == PRIORITY) fprintf(log, "priority %d\n", (int)properties[1]);
    if (log && *properties == THROTTLE) fprintf(log, "throttle %d\n", (int)properties[1]);
  }
  if (log) fclose(log);
  return real(context, device, kept, code);
}

static void* device_alloc(void* context, void* device, const uint64_t* properties, size_t bytes, uint32_t alignment, int32_t* code) {
  REAL("clSVMAlloc", void*(void*, uint64_t, size_t, uint32_t));
  (void)device, (void)properties;
  void* memory = real(context, 1, bytes, alignment); /* CL_MEM_READ_WRITE */
  *code = memory ? 0 : -4;                           /* CL_MEM_OBJECT_ALLOCATION_FAILURE */
  return memory;
}

static int32_t blocking_free(void* context, void* memory) {
  REAL("clSVMFree", void(void*, void*));
  real(context, memory);
  return 0;
}

void* clGetExtensionFunctionAddressForPlatform(void* platform, const char* name) {
  (void)platform;
  if (!strcmp(name, "clDeviceMemAllocINTEL")) return (void*)device_alloc;
  if (!strcmp(name, "clMemBlockingFreeINTEL")) return (void*)blocking_free;
  if (!strcmp(name, "clEnqueueMemcpyINTEL")) return dlsym(RTLD_NEXT, "clEnqueueSVMMemcpy");
  if (!strcmp(name, "clEnqueueMemFillINTEL")) return dlsym(RTLD_NEXT, "clEnqueueSVMMemFill");
  if (!strcmp(name, "clSetKernelArgMemPointerINTEL")) return dlsym(RTLD_NEXT, "clSetKernelArgSVMPointer");
  return NULL;
}
