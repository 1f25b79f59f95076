/* backplane/driver/compiler.h: group "bp.compiler" version 2: compiles source text, of the portable dialect (docs/dialect.md) or of Triton,
 * to code of a device, which "bp.module" loads.
 *
 * It uses no device and creates no context: every entry works before open, on a machine without the device, in a forked child and from any
 * number of threads at once, BP_DRIVER_SERIALIZE or not. It caches nothing that it compiled: the core does.
 *
 * Version 1 is without languages: its fields `languages` and `language` are reserved, its structs end before "of TTIR". A driver that
 * offers version 2 offers version 1 with the same entries; the core accepts either.
 */
#pragma once

#include "../driver.h"

#define BP_COMPILER_ID "bp.compiler"
#define BP_COMPILER_VERSION 2u

/* bp_compile_request.language. Bit 1 << language of bp_target_properties.languages: the target supports it. */
#define BP_LANGUAGE_DIALECT 0u
#define BP_LANGUAGE_TTIR 1u /* text of a module of Triton after the target-independent passes, with locations: see compile() */

/* head.flags: a compilation is a separate process: the core runs as many at once as there are processors. */
#define BP_COMPILER_SUBPROCESS (1u << 0)

/* flags of bp_compile_request */
#define BP_COMPILE_DEBUG (1u << 0)     /* line numbers for a debugger; BP_ASSERT of the dialect checks */
#define BP_COMPILE_FAST_MATH (1u << 1) /* torch.compile, if its user asks; what it may do: docs/dialect.md */
#define BP_COMPILE_LIGHT (1u << 2)     /* optimize little: needed soon, compiled again later */

/* bp_target_properties.atomics: of device memory */
#define BP_ATOMIC_ADD_I32 (1u << 0)
#define BP_ATOMIC_ADD_F32 (1u << 1)
#define BP_ATOMIC_CAS_32 (1u << 2)
#define BP_ATOMIC_ADD_I64 (1u << 3)
#define BP_ATOMIC_CAS_64 (1u << 4)

/* bp_target_properties.features: instructions of which the dialect has no word */
#define BP_FEATURE_FLOAT16 (1u << 0)     /* arithmetic of halves */
#define BP_FEATURE_INTEGER_DOT (1u << 1) /* dot products of 8-bit integers */
#define BP_FEATURE_MATRIX (1u << 2)      /* products of matrices by a subgroup */

/* What the kernels of a target may rely on; the core chooses BP_GROUP, BP_PER_ITEM and the sizes of tiles by it. 0: unknown, or none. */
typedef struct bp_target_properties {
  uint64_t struct_size;
  char target[64];          /* "sm_90", "x86-64-v3": a part of every cache key, so it names all that the code depends on but id() */
  uint64_t dtypes;          /* BP_DTYPE_* whose types the prelude defines: FLOAT32, INT32 and INT64 are required; FLOAT64 may be absent.
                               The others are not required: the core computes in these */
  uint64_t fast_dtypes;     /* of these, the ones that are not emulated */
  uint32_t group_size;      /* preferred items of a group, a power of two; 1: an item is a core, and its compiler vectorises lane loops */
  uint32_t max_group_size;  /* 1: no kernel with a larger BP_GROUP can run */
  uint32_t subgroup_size;   /* items that shuffle; 0: the prelude has no BP_SHUFFLE_XOR */
  uint32_t vector_bytes;    /* preferred width of an item's loads; with group_size 1 of its vector unit */
  uint32_t local_bytes;     /* of a kernel's BP_LOCAL_ARRAYs together; at least 16384 */
  uint32_t registers;       /* 32-bit values that an item may keep; sizes the tiles of matmul */
  uint64_t max_grid[3];     /* groups; at least 65535 each, 2^31 - 1 in the first where possible */
  uint32_t parameter_bytes; /* maximum bytes of a launch's arguments; at least 1024 */
  uint32_t atomics;         /* BP_ATOMIC_* that the prelude defines; kernels that need others are not used */
  uint64_t languages;       /* 1 << BP_LANGUAGE_*; 0: the dialect alone, as in version 1 */
  uint64_t features;        /* BP_FEATURE_*, for information: for kernels of the vendor's; doctor reports them */
  uint64_t reserved[6];
} bp_target_properties;

typedef struct bp_compile_request {
  uint64_t struct_size;
  const char* target;  /* as returned by target(); never NULL */
  const char* source;  /* complete: definitions, the prelude, the core's part, the kernels. NUL-terminated, UTF-8, LF */
  const char* name;    /* of the unit, for messages: "pointwise/exp[f32]"; never NULL */
  const char* options; /* the user's own, for the vendor's compiler; never NULL; a part of the cache key */
  uint32_t flags;      /* BP_COMPILE_* */
  uint32_t language;   /* BP_LANGUAGE_* */
  /* of TTIR; else NULL and 0 */
  const char* triton; /* the release that wrote the text, "3.7.1": its syntax differs between releases */
  uint32_t num_warps; /* as the kernel's user chose; hints */
  uint32_t num_stages;
} bp_compile_request;

/* The result of compile(). The memory is the driver's until release(). */
typedef struct bp_compile_result {
  uint64_t struct_size;
  const void* code; /* opaque to all but the module group of a driver with the same id(); NULL if the source is wrong */
  uint64_t bytes;
  const char* log; /* never NULL: warnings, or why it failed, with line numbers of `source`; "" if there is nothing to say */
  void* owner;     /* the driver's own */
  /* of TTIR; else NULL and 0 */
  const char* kernel;     /* its name for bp.module's function: letters, digits, _ . and $ */
  const char* parameters; /* one letter for each argument of the module's function, in their order: p a pointer, i an integer, d a float64,
                             f any other floating-point number */
  uint32_t group_size;    /* items of a group: group[0] of a launch */
  uint32_t local_bytes;   /* of a group. More than the target's: the core loads no such code, and autotuning skips it */
} bp_compile_result;

typedef struct bp_compiler {
  bp_ext head;

  /* Names compiler, version, flags and prelude, NUL-terminated and truncated to size, which is at least 1. Whatever may change the code
   * for the same source changes the id: code with another id is never loaded. blocks: shortly; may run a process ("cc --version").
   * Without a compiler on this machine it still returns BP_OK, and compile() returns UNSUPPORTED. */
  int32_t (*id)(void* self, char* out, uint64_t size);

  /* The target for a device's code (struct_size set by the caller). Creates no context. For a build machine, which has no device: device
   * = -1 - n is the n-th target that this compiler supports, including that of each device. errors: INVALID_DEVICE: no such device, or
   * no target of that number. */
  int32_t (*target)(void* self, int32_t device, bp_target_properties* out);

  /* The dialect's words in this compiler's language (docs/dialect.md, "The prelude"). owner: the driver, until close. The same text each
   * time. errors: INVALID_ARGUMENT: an unknown target; UNSUPPORTED: it does not support the dialect. */
  int32_t (*prelude)(void* self, const char* target, const char** out);

  /* Compiles. blocks: up to seconds. The result (struct_size set by the caller) is filled on BP_OK, and on INVALID_ARGUMENT if the
   * source is wrong: code is NULL and log has the reason; both must then be released. errors: INVALID_ARGUMENT without a result (log
   * NULL): an unknown target, language or flag; UNSUPPORTED: the target does not support the language, or there is no compiler on this
   * machine: last_error names the one that was looked for; OUT_OF_MEMORY; INTERNAL: the compiler crashed. None is sticky.
   *
   * A module of TTIR has one public function. Its programs are the groups of a launch, whose grid has three dimensions. The arguments of a
   * launch are its pointers in their order, one of 0 if it has none, then its numbers in theirs, 8 bytes each: integers extended with their
   * sign, a float64, or a float32 in the low half; then 8 bytes of 0. It may write through all pointers. */
  int32_t (*compile)(void* self, const bp_compile_request* request, bp_compile_result* out);

  /* Releases a result of compile(). */
  int32_t (*release)(void* self, bp_compile_result* result);
} bp_compiler;

#define BP_COMPILER_SLOTS(X) X(id) X(target) X(prelude) X(compile) X(release)
