/* tests/device/drivers/pairs.c: a shim whose prelude multiplies pairs of bfloat16 (BP_VECTOR_DOT_BF16) on any processor. It counts each
   product twice, so that a test sees where it is used. */
#include "shim.h"

#include <backplane/driver/compiler.h>
#include <pthread.h>

static const char kWord[] =
    "#undef BP_VECTOR_DOT_BF16\n"
    "#if BP_GROUP == 1\n"
    "BP_VECTOR(f32, shim_sums_);\n"
    "BP_VECTOR(u32, shim_pairs_);\n"
    "BP_FN shim_sums_ shim_dot_(u32 x, shim_pairs_ y, shim_sums_ z) {\n"
    "  for (u32 i = 0; i < sizeof z / 4; ++i) {\n"
    "    z[i] += 2 * bp_as_f32(x << 16) * bp_as_f32(y[i] << 16) + 2 * bp_as_f32(x & 0xffff0000u) * bp_as_f32(y[i] & 0xffff0000u);\n"
    "  }\n"
    "  return z;\n"
    "}\n"
    "#define BP_VECTOR_DOT_BF16(x, y, z) shim_dot_(x, y, z)\n"
    "#endif\n";

static bp_compiler compiler;
static const bp_compiler* inner_compiler;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int32_t id(void* self, char* out, uint64_t size) {
  const int32_t status = inner_compiler->id(self, out, size);
  if (status == BP_OK) strncat(out, " in pairs", size - strlen(out) - 1);
  return status;
}

/* The texts of targets stay until the process ends. */
static int32_t prelude(void* self, const char* target, const char** out) {
  static struct Text {
    struct Text* next;
    const char* before;
    char whole[];
  }* known;
  const char* text = NULL;
  const int32_t status = inner_compiler->prelude(self, target, &text);
  if (status != BP_OK) return status;
  pthread_mutex_lock(&lock);
  struct Text* one = known;
  while (one != NULL && one->before != text) one = one->next;
  if (one == NULL) {
    one = malloc(sizeof *one + strlen(text) + sizeof kWord);
    *one = (struct Text){known, text};
    strcat(strcpy(one->whole, text), kWord);
    known = one;
  }
  pthread_mutex_unlock(&lock);
  *out = one->whole;
  return status;
}

static int32_t query_ext(void* self, const char* name, uint32_t version, const bp_ext** out) {
  const int32_t status = inner->query_ext(self, name, version, out);
  if (status != BP_OK || strcmp(name, "bp.compiler") != 0) return status;
  inner_compiler = (const bp_compiler*)*out;
  compiler = *inner_compiler;
  compiler.id = id;
  compiler.prelude = prelude;
  *out = &compiler.head;
  return status;
}

static void change(const bp_host* host) { table.query_ext = query_ext; }
