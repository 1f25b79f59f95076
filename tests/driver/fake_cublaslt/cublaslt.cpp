// tests/driver/fake_cublaslt/cublaslt.cpp: a libcublasLt.so for machines without a GPU: products on the host, over the memory and the
// streams of tests/driver/fake_cuda, by the descriptions that the library itself would get. FAKE_CUDA names that libcuda.so.1;
// FAKE_CUBLASLT_LOG a file that gets a line for each product.
#include "../fake_library.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kOk = 0, kInvalid = 7;

struct Desc {
  int compute, scale;
  int32_t trans_a = 0, trans_b = 0;
  uint32_t epilogue = 1;
  const void* bias = nullptr;
};

struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batches = 1;
  int64_t batch_stride = 0;
};

struct Result {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

fake::Type type_of(int type) {  // cudaDataType
  return type == 0 ? fake::Type::real32 : type == 1 ? fake::Type::real64 : type == 2 ? fake::Type::real16 : fake::Type::brain16;
}

struct Product {
  Desc desc;
  Layout a, b, d;
  const void *at_a, *at_b;
  void* at_d;
  double alpha, beta;
};

// Columns one behind the other.
void compute(const Product& p) {
  const uint64_t depth = p.desc.trans_a ? p.a.rows : p.a.columns;
  const fake::Type type = type_of(p.a.type);
  const int bytes = fake::bytes_of(type);
  const auto of = [&](const void* base, const Layout& layout, int batch) {
    return static_cast<const char*>(base) + layout.batch_stride * batch * bytes;
  };
  for (int batch = 0; batch < p.d.batches; ++batch) {
    const void *a = of(p.at_a, p.a, batch), *b = of(p.at_b, p.b, batch);
    void* d = const_cast<char*>(of(p.at_d, p.d, batch));
    for (uint64_t column = 0; column < p.d.columns; ++column) {
      for (uint64_t row = 0; row < p.d.rows; ++row) {
        double sum = 0;
        for (uint64_t k = 0; k < depth; ++k) {
          const auto at_a = static_cast<int64_t>(p.desc.trans_a ? k : row) + p.a.leading * static_cast<int64_t>(p.desc.trans_a ? row : k);
          const auto at_b =
              static_cast<int64_t>(p.desc.trans_b ? column : k) + p.b.leading * static_cast<int64_t>(p.desc.trans_b ? k : column);
          sum += fake::read(type, a, at_a) * fake::read(type_of(p.b.type), b, at_b);
        }
        const auto at = static_cast<int64_t>(row) + p.d.leading * static_cast<int64_t>(column);
        double value = p.alpha * sum + (p.beta == 0 ? 0 : p.beta * fake::read(type_of(p.d.type), d, at));
        if (p.desc.epilogue & 4) value += fake::read(type_of(p.d.type), p.desc.bias, static_cast<int64_t>(row));
        fake::write(type_of(p.d.type), d, at, value);
      }
    }
  }
}

template <class Value>
int set(Value& into, const void* value, size_t bytes) {
  if (bytes != sizeof into) return kInvalid;
  std::memcpy(&into, value, bytes);
  return kOk;
}

}  // namespace

EXPORT int cublasLtCreate(void** handle) { return *handle = new int(1), kOk; }

EXPORT int cublasLtMatmulDescCreate(Desc** desc, int compute, int scale) {
  if (!(compute == 68 && scale == 0) && !(compute == 70 && scale == 1)) return kInvalid;
  return *desc = new Desc{compute, scale}, kOk;
}

EXPORT int cublasLtMatmulDescSetAttribute(Desc* desc, int which, const void* value, size_t bytes) {
  if (which == 3) return set(desc->trans_a, value, bytes);
  if (which == 4) return set(desc->trans_b, value, bytes);
  if (which == 7) return set(desc->epilogue, value, bytes);
  if (which == 8) return set(desc->bias, value, bytes);
  return kInvalid;
}

EXPORT int cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return kInvalid;
  return *layout = new Layout{type, rows, columns, leading}, kOk;
}

EXPORT int cublasLtMatrixLayoutSetAttribute(Layout* layout, int which, const void* value, size_t bytes) {
  if (which == 5) return set(layout->batches, value, bytes);
  if (which == 6) return set(layout->batch_stride, value, bytes);
  return kInvalid;
}

EXPORT int cublasLtMatmulPreferenceCreate(void** preference) { return *preference = new int(1), kOk; }
EXPORT int cublasLtMatmulPreferenceDestroy(void* preference) { return delete static_cast<int*>(preference), kOk; }

EXPORT int cublasLtMatmulPreferenceSetAttribute(void*, int which, const void* value, size_t bytes) {
  if (which == 1) return bytes == 8 ? kOk : kInvalid;
  uint32_t alignment = 0;
  if (which < 5 || which > 8 || set(alignment, value, bytes) != kOk) return kInvalid;
  return alignment >= 2 && alignment <= 256 && (alignment & (alignment - 1)) == 0 ? kOk : kInvalid;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, Desc* desc, Layout* a, Layout* b, Layout*, Layout* d, void*, int asked, Result* results,
                                          int* found) {
  const uint64_t m = desc->trans_a ? a->columns : a->rows, k = desc->trans_a ? a->rows : a->columns;
  const uint64_t depth = desc->trans_b ? b->columns : b->rows, n = desc->trans_b ? b->rows : b->columns;
  if (asked < 1 || k != depth || d->rows != m || d->columns != n || a->batches != d->batches || b->batches != d->batches) return kInvalid;
  std::memset(results, 0, sizeof *results);
  results->workspace = 1024;
  return *found = 1, kOk;
}

EXPORT int cublasLtMatmul(void*, Desc* desc, const void* alpha, const void* at_a, Layout* a, const void* at_b, Layout* b, const void* beta,
                          const void* c, Layout*, void* d, Layout* d_layout, const void* algorithm, void* workspace, size_t workspace_bytes,
                          void* stream) {
  if (c != d || !algorithm || !workspace || workspace_bytes != 1024) return kInvalid;
  fake::log("FAKE_CUBLASLT_LOG", "%llux%llu x%d type %d trans %d %d epilogue %u\n", static_cast<unsigned long long>(d_layout->rows),
            static_cast<unsigned long long>(d_layout->columns), d_layout->batches, a->type, desc->trans_a, desc->trans_b, desc->epilogue);
  const fake::Type scale = type_of(desc->scale);
  const Product product{*desc, *a, *b, *d_layout, at_a, at_b, d, fake::read(scale, alpha, 0), fake::read(scale, beta, 0)};
  return fake::queue(stream, [product] { compute(product); });
}
