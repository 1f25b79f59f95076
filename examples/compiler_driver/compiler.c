/* compiler.c: bp.compiler runs the machine's C compiler, and bp.module loads what it made into this process and calls it.
 *
 * For your chip, put its words into prelude.h, its compiler into compile(), and your runtime's calls into load, function and launch;
 * `torch-backplane check-driver` names the word or the rule that does not hold yet. Work is done when launch returns: there are no streams
 * here, and the emulate shim, which supplies them, also keeps a FAULT for the device. */
#define _POSIX_C_SOURCE 200809L
#include "compiler.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prelude.h"

/* Integers that wrap and f32 that is exact, as docs/dialect.md says; what is not defined is an error of the source. */
#define FLAGS                                                                                                    \
  "-std=gnu11 -shared -fPIC -fvisibility=hidden -fwrapv -fno-strict-aliasing -fno-math-errno -ffp-contract=off " \
  "-Werror=implicit-function-declaration -Wl,-z,defs"

#if defined(__x86_64__)
#define TARGET "x86-64"
#elif defined(__aarch64__)
#define TARGET "aarch64"
#else
#define TARGET "host"
#endif

enum { LOCAL_BYTES = 64 << 10, PARAMETER_BYTES = 4096, MOST_GROUPS = 0x7fffffff };

extern char** environ;

typedef struct kernel { /* bp_kernel of the prelude: what a bp_function is here */
  uint32_t pointers, value_bytes;
  void (*run)(const uint64_t* args, const uint32_t* at, const uint32_t* grid);
} kernel;

static int32_t fail(const compiler* me, int32_t status, const char* format, ...) {
  char why[256];
  va_list words;
  va_start(words, format);
  vsnprintf(why, sizeof why, format, words);
  va_end(words);
  return me->fail(status, why);
}

static int32_t check_device(const compiler* me, int32_t device) {
  return device >= 0 && device < me->devices ? BP_OK : fail(me, BP_INVALID_DEVICE, "no device %d", device);
}

static int32_t check_target(const compiler* me, const char* name) {
  return strcmp(name, TARGET) == 0 ? BP_OK : fail(me, BP_INVALID_ARGUMENT, "no target \"%.64s\": there is " TARGET, name);
}

/* FNV-1a of the target and these bytes. It stands in front of the code, so that what was cut off or changed never comes to dlopen. */
static uint64_t checksum(const char* bytes, uint64_t size) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (const char* at = TARGET; *at; ++at) sum = (sum ^ (unsigned char)*at) * 0x100000001b3u;
  while (size--) sum = (sum ^ (unsigned char)*bytes++) * 0x100000001b3u;
  return sum;
}

/* The caller's struct may be an older, shorter one. */
static void give(void* out, const void* from, uint64_t size, uint64_t wanted) { memcpy(out, from, wanted < size ? wanted : size); }

/* ---- files and processes */

typedef struct scratch { /* a private folder, and what may lie in it */
  char folder[512], source[528], object[528], log[528];
} scratch;

static int make_scratch(scratch* s) {
  const char* base = getenv("TMPDIR");
  snprintf(s->folder, sizeof s->folder, "%s/backplane-XXXXXX", base && *base ? base : "/tmp");
  const int made = mkdtemp(s->folder) != NULL;
  snprintf(s->source, sizeof s->source, "%s/kernels.c", s->folder);
  snprintf(s->object, sizeof s->object, "%s/kernels.so", s->folder);
  snprintf(s->log, sizeof s->log, "%s/log", s->folder);
  return made;
}

static void drop_scratch(const scratch* s) { remove(s->source), remove(s->object), remove(s->log), remove(s->folder); }

static int write_file(const char* path, const char* first, const char* rest, uint64_t size) {
  FILE* file = fopen(path, "wb");
  if (!file) return 0;
  const int written = fputs(first, file) >= 0 && fwrite(rest, 1, size, file) == size;
  return fclose(file) == 0 && written;
}

/* What is in a file, with room for `ahead` bytes in front and a NUL behind it; NULL if there is no such file, or no memory. */
static char* read_file(const char* path, uint64_t ahead, uint64_t* size) {
  FILE* file = fopen(path, "rb");
  const long end = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
  char* bytes = end < 0 ? NULL : calloc(1, ahead + (uint64_t)end + 1);
  if (bytes) rewind(file), *size = fread(bytes + ahead, 1, (uint64_t)end, file);
  if (file) fclose(file);
  return bytes;
}

static const char* program(void) {
  const char* given = getenv("CC");
  return given && *given ? given : "cc";
}

/* Runs a command, cut at its spaces, and `last` behind it; what it says goes into the log. Returns why it did not start, an errno, or 0. */
static int run(char* command, char* const* last, const scratch* s, int* status) {
  char *words[256] = {NULL}, *rest = NULL;
  int n = 0;
  for (char* word = strtok_r(command, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    if (n == 240) return E2BIG;
    words[n++] = word;
  }
  while (*last) words[n++] = *last++;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, s->log, O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t child;
  const int error = posix_spawnp(&child, words[0], &files, NULL, words, environ);
  posix_spawn_file_actions_destroy(&files);
  *status = 0; /* it stays so where SIGCHLD is ignored */
  while (!error && waitpid(child, status, 0) < 0 && errno == EINTR) continue;
  return error;
}

/* ---- bp.compiler */

static int32_t compiler_id(void* self, char* out, uint64_t size) {
  const compiler* me = self;
  char command[256], *version = NULL;
  uint64_t bytes;
  int status;
  scratch s;
  snprintf(command, sizeof command, "%s", program());
  if (make_scratch(&s) && !run(command, (char*[]){"--version", NULL}, &s, &status)) version = read_file(s.log, 0, &bytes);
  drop_scratch(&s);
  if (version) version[strcspn(version, "\n")] = 0;
  const unsigned long long words = checksum(me->prelude, strlen(me->prelude));
  snprintf(out, size, "%s [%s] " FLAGS " %016llx", program(), version ? version : "none", words);
  return free(version), BP_OK;
}

static int32_t compiler_target(void* self, int32_t device, bp_target_properties* out) {
  if (device != -1 && check_device(self, device)) return BP_INVALID_DEVICE; /* -1: the list, which has one target */
  bp_target_properties t = {.struct_size = out->struct_size, .target = TARGET, .group_size = 1, .max_group_size = 1};
  t.dtypes = t.fast_dtypes = BP_DTYPE_FLOAT32 | BP_DTYPE_FLOAT64 | BP_DTYPE_INT32 | BP_DTYPE_INT64;
  t.vector_bytes = 16, t.registers = 64;
  t.local_bytes = LOCAL_BYTES, t.parameter_bytes = PARAMETER_BYTES;
  t.max_grid[0] = t.max_grid[1] = t.max_grid[2] = MOST_GROUPS;
  t.atomics = BP_ATOMIC_ADD_I32 | BP_ATOMIC_ADD_F32 | BP_ATOMIC_CAS_32 | BP_ATOMIC_ADD_I64 | BP_ATOMIC_CAS_64;
  return give(out, &t, sizeof t, out->struct_size), BP_OK;
}

static int32_t compiler_prelude(void* self, const char* target, const char** out) {
  if (check_target(self, target)) return BP_INVALID_ARGUMENT;
  return *out = ((const compiler*)self)->prelude, BP_OK;
}

static int32_t compile_in(const scratch* s, const compiler* me, const bp_compile_request* request, bp_compile_result* out) {
  char command[4096], line[128];
  const char* level = request->flags & BP_COMPILE_LIGHT ? "-O1" : "-O3"; /* FAST_MATH asks for nothing that must be done */
  const char* debug = request->flags & BP_COMPILE_DEBUG ? "-g -DBP_DEBUG" : "";
  const int length = snprintf(command, sizeof command, "%s " FLAGS " %s %s %s", program(), level, debug, request->options);
  if (length >= (int)sizeof command) return fail(me, BP_INVALID_ARGUMENT, "compile: too many options");
  snprintf(line, sizeof line, "#line 1 \"%.64s\"\n", request->name); /* messages name the unit and its lines */
  if (!write_file(s->source, line, request->source, strlen(request->source))) {
    return fail(me, BP_OUT_OF_MEMORY, "compile: cannot write the source: %s", strerror(errno));
  }
  int ended;
  char* const files[] = {"-o", (char*)s->object, (char*)s->source, "-lm", NULL};
  const int error = run(command, files, s, &ended);
  if (error == ENOMEM || error == EAGAIN) return fail(me, BP_OUT_OF_MEMORY, "compile: %s: %s", program(), strerror(error));
  if (error) return fail(me, BP_UNSUPPORTED, "compile: %s: %s. Install a C compiler, or name it by CC", program(), strerror(error));
  if (!WIFEXITED(ended) || WEXITSTATUS(ended) > 1) return fail(me, BP_INTERNAL, "compile: %s broke: wait status %d", program(), ended);

  const int wrong = WEXITSTATUS(ended) == 1;
  uint64_t bytes = 0, sum = 0, unused;
  char *log = read_file(s->log, 0, &unused), *code = wrong ? NULL : read_file(s->object, sizeof sum, &bytes);
  if (!log || (!wrong && !code)) return free(log), free(code), fail(me, BP_INTERNAL, "compile: %s left nothing to read", program());
  if (code) sum = checksum(code + sizeof sum, bytes), memcpy(code, &sum, sizeof sum), bytes += sizeof sum;
  const bp_compile_result result = {.struct_size = out->struct_size, .code = code, .bytes = bytes, .log = log, .owner = log};
  give(out, &result, sizeof result, out->struct_size);
  return wrong ? fail(me, BP_INVALID_ARGUMENT, "compile: the source is wrong, as the log tells") : BP_OK;
}

static int32_t compiler_compile(void* self, const bp_compile_request* request, bp_compile_result* out) {
  const uint32_t unknown = request->flags & ~(BP_COMPILE_DEBUG | BP_COMPILE_FAST_MATH | BP_COMPILE_LIGHT);
  if (check_target(self, request->target)) return BP_INVALID_ARGUMENT;
  if (unknown) return fail(self, BP_INVALID_ARGUMENT, "compile: unknown flags 0x%x", unknown);
  scratch s;
  if (!make_scratch(&s)) return fail(self, BP_INTERNAL, "compile: no folder %.100s: %s; set TMPDIR", s.folder, strerror(errno));
  const int32_t status = compile_in(&s, self, request, out);
  drop_scratch(&s);
  return status;
}

static int32_t compiler_release(void* self, bp_compile_result* result) {
  return (void)self, free((void*)result->code), free(result->owner), BP_OK; /* the owner is the log */
}

/* ---- bp.module: a bp_module_code is a library of dlopen's, a bp_function a `kernel` in it */

static _Thread_local jmp_buf leave; /* the kernel that this thread runs */
static _Thread_local uint32_t failed_line;

static void fail_kernel(uint32_t line) { failed_line = line, longjmp(leave, 1); }

static int32_t module_load(void* self, int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
  uint64_t sum = 0;
  const char* object = (const char*)code + sizeof sum;
  if (check_device(self, device)) return BP_INVALID_DEVICE;
  if (bytes >= sizeof sum) memcpy(&sum, code, sizeof sum), bytes -= sizeof sum;
  if (!sum || sum != checksum(object, bytes)) {
    return fail(self, BP_INVALID_ARGUMENT, "load: no code for " TARGET ", or cut off, or changed: compile it again");
  }
  scratch s;
  if (!make_scratch(&s)) return fail(self, BP_INTERNAL, "load: no folder %.100s: %s; set TMPDIR", s.folder, strerror(errno));
  const int written = write_file(s.object, "", object, bytes);
  void* library = written ? dlopen(s.object, RTLD_NOW | RTLD_LOCAL) : NULL;
  const char* why = written ? dlerror() : strerror(errno);
  drop_scratch(&s);
  if (!library) return fail(self, written ? BP_INVALID_ARGUMENT : BP_OUT_OF_MEMORY, "load: %.200s", why);
  void (**place)(uint32_t) = dlsym(library, "bp_fail");
  if (!place) return dlclose(library), fail(self, BP_INVALID_ARGUMENT, "load: the code was compiled without the prelude");
  *place = fail_kernel;
  return *out = library, BP_OK;
}

static int32_t module_unload(void* self, int32_t device, bp_module_code* module) {
  if (check_device(self, device)) return BP_INVALID_DEVICE;
  return dlclose(module), BP_OK;
}

static int32_t module_function(void* self, int32_t device, bp_module_code* module, const char* name, const bp_signature* signature,
                               bp_function** out, bp_function_properties* properties) {
  char symbol[256];
  if (check_device(self, device)) return BP_INVALID_DEVICE;
  snprintf(symbol, sizeof symbol, "bp_kernel_%s", name);
  kernel* found = dlsym(module, symbol);
  if (!found) return fail(self, BP_INVALID_ARGUMENT, "function: no kernel \"%.64s\"", name);
  if (signature->pointers != found->pointers || signature->value_bytes != found->value_bytes) {
    return fail(self, BP_INVALID_ARGUMENT, "function: %.64s takes %u pointers and %u bytes", name, found->pointers, found->value_bytes);
  }
  const bp_function_properties p = {.struct_size = properties ? properties->struct_size : 0, .max_group_size = 1};
  if (properties) give(properties, &p, sizeof p, p.struct_size);
  return *out = (bp_function*)found, BP_OK;
}

static void run_grid(const kernel* function, const uint64_t* args, const uint32_t* grid) {
  uint32_t at[3];
  for (at[2] = 0; at[2] < grid[2]; ++at[2])
    for (at[1] = 0; at[1] < grid[1]; ++at[1])
      for (at[0] = 0; at[0] < grid[0]; ++at[0]) function->run(args, at, grid);
}

static int32_t module_launch(void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
  const kernel* function = (const kernel*)launch->function;
  if (check_device(self, device)) return BP_INVALID_DEVICE;
  if (stream || launch->flags) return fail(self, BP_INVALID_ARGUMENT, "launch: stream and flags must be 0");
  for (int i = 0; i < 3; ++i) {
    if (launch->grid[i] - 1 >= MOST_GROUPS) return fail(self, BP_INVALID_ARGUMENT, "launch: grid[%d] is %u", i, launch->grid[i]);
    if (launch->group[i] != 1) return fail(self, BP_INVALID_ARGUMENT, "launch: group[%d] is %u, not 1", i, launch->group[i]);
  }
  if (launch->args_bytes != 8 * (uint64_t)function->pointers + function->value_bytes || launch->local_bytes > LOCAL_BYTES) {
    return fail(self, BP_INVALID_ARGUMENT, "launch: args_bytes or local_bytes are not what the kernel takes");
  }
  if (setjmp(leave)) return fail(self, BP_FAULT, "launch: a BP_ASSERT does not hold: line %u of the source", failed_line);
  return run_grid(function, launch->args, launch->grid), BP_OK;
}

/* ---- the two groups */

void compiler_init(compiler* me, int32_t devices, fail_fn keep) {
  *me = (compiler){.devices = devices, .fail = keep};
  const size_t lines = sizeof prelude_lines / sizeof *prelude_lines, size = sizeof me->prelude;
  for (size_t i = 0, used = 0; i < lines && used < size; ++i) {
    used += (size_t)snprintf(me->prelude + used, size - used, "%s\n", prelude_lines[i]);
  }
  const bp_ext compiler_head = {sizeof me->compiler, BP_COMPILER_ID, 1, BP_COMPILER_SUBPROCESS, me}; /* the dialect alone */
  const bp_ext module_head = {sizeof me->module, BP_MODULE_ID, BP_MODULE_VERSION, 0, me};
  me->compiler = (bp_compiler){compiler_head, compiler_id, compiler_target, compiler_prelude, compiler_compile, compiler_release};
  me->module = (bp_module){module_head, module_load, module_unload, module_function, module_launch};
}

int32_t compiler_query(const compiler* me, const char* id, uint32_t version, const bp_ext** out) {
  if (!strcmp(id, BP_COMPILER_ID) && version == 1) return *out = &me->compiler.head, BP_OK;
  if (!strcmp(id, BP_MODULE_ID) && version == BP_MODULE_VERSION) return *out = &me->module.head, BP_OK;
  return fail(me, BP_UNSUPPORTED, "no group %.64s version %u", id, version);
}
