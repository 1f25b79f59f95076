// kernels/portable/unit/walk_text.cpp: the definitions for a walk, which pointwise.bpc describes.
#include <string>
#include <string_view>

#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace walk_text_impl {
namespace {

constexpr const char* kLetters[] = {"x", "y", "z", "w", "v", "u"};

bool is_wide_float(c10::ScalarType dtype) { return dtype == c10::kFloat || dtype == c10::kDouble; }

std::string convert(const std::string& value, c10::ScalarType from, c10::ScalarType to) {
  if (from == to) return value;
  if (!is_complex(from)) return join("bp_to_", dialect_name(to), "(", value, ")");
  if (to == c10::kBool) return join("c_is_true(", value, ")");
  return join("bp_to_", dialect_name(to), "((", value, ").re)");
}

// The statements of an expression: loads its inputs as x, y, ..., and stores its value.
class Body {
 public:
  explicit Body(const WalkForm& form) : form_(form) {
    // For bfloat16 if a function is called: a loop that hardly computes is faster in one pass.
    calls_ = std::string_view(form.expression).find("m_") != std::string_view::npos;
    for (int k = 0, n = 0; k < form.count; ++k) {
      const WalkForm::Operand& operand = form.operands[k];
      if (operand.step == Step::number) continue;
      const bool is_halves = in_rows(operand);
      if (is_halves) append(arrays_, "BP_LOCAL_ARRAY(f32, h", n, ", HALF_ROW); ");
      has_float16_ = has_float16_ || (is_halves && operand.dtype == c10::kHalf);
      if (k > 0) {
        const std::string loaded = join("LOAD", n, "(i", n, ")");
        append(values_, value(k, loaded));
        append(values_in_rows_, value(k, is_halves ? join("h", n, "[j]") : loaded));
        if (is_halves) append(rows_in_, "bp_", dialect_name(operand.dtype), "_row_to_f32(h", n, ", p", n, " + at", n, ", n); ");
      }
      ++n;
    }
    compute();
  }

  std::string text() const { return join(values_, "STORE0(i0, ", computed_, ");"); }

  // Defines what pointwise.bpc uses for rows of halves.
  void define_rows(std::string& text, const std::string& places, const std::string& names) const {
    const WalkForm::Operand& out = form_.operands[0];
    const bool is_cast = form_.count == 2 && in_rows(out) && out.dtype == c10::kHalf && form_.operands[1].dtype == c10::kFloat &&
                         form_.operands[1].step == Step::unit && std::string_view(form_.expression) == "x";
    if (!is_cast && arrays_.empty()) return;
    define(text, "HALVES", is_cast || has_float16_ ? 16 : 1);
    define(text, "HALF_ROWS", is_cast ? "" : arrays_);
    define(text, join("HALVES_IN(n, ", places, ")"), is_cast ? "" : rows_in_);
    if (is_cast) {  // from the operand's memory: a C compiler, for which these words are, has one address space
      define(text, join("HALVES_OUT(n, ", places, ")"), "bp_f32_row_to_f16(p0 + (at0), p1 + (at1), n);");
      define(text, join("APPLY_HALVES(j, ", places, ")"));
      return;
    }
    const std::string out_row = join("bp_f32_row_to_", dialect_name(out.dtype), "(p0 + (at0), h0, n);");
    const std::string store = join("STORE0(i0, ", computed_, ");");
    define(text, join("HALVES_OUT(n, ", places, ")"), in_rows(out) ? out_row : "");
    define(text, join("APPLY_HALVES(j, ", places, ")"), "{ ", names, values_in_rows_,
           in_rows(out) ? join("h0[j] = (f32)", computed_, ";") : store, " }");
  }

 private:
  bool in_rows(const WalkForm::Operand& operand) const {
    return operand.step == Step::unit && (operand.dtype == c10::kHalf || (calls_ && operand.dtype == c10::kBFloat16));
  }

  std::string value(int k, const std::string& text) const {
    const c10::ScalarType dtype = form_.operands[k].dtype;
    const bool stays = k == 2 && form_.keeps_numbers && is_wide_float(dtype) && !is_complex(form_.computed);
    return join("const C ", kLetters[k - 1], " = ", is_complex(form_.computed) ? "" : "(C)",
                stays ? text : convert(text, dtype, form_.computed), "; ");
  }

  void compute() {
    const c10::ScalarType out = form_.operands[0].dtype;
    computed_ = join("(", form_.expression, ")");
    if (form_.gives_bool) {
      if (is_complex(out)) computed_ = convert(computed_, c10::kBool, out);
      return;
    }
    const c10::ScalarType given = form_.gives_part ? c10::toRealValueType(form_.computed) : form_.computed;
    if (out == given) return;
    if (!form_.is_exact && !is_complex(given)) computed_ = convert(computed_, c10::ScalarType::Undefined, given);
    if (!c10::isFloatingType(out) || is_complex(given)) computed_ = convert(computed_, given, out);
  }

  const WalkForm& form_;
  bool calls_ = false, has_float16_ = false;
  std::string values_, computed_;
  std::string arrays_, rows_in_, values_in_rows_;
};

// The struct's member for a scalar, and the declaration of its value.
void declare(const WalkForm& form, const std::string& name, bool is_number, std::string& members, std::string& begin) {
  if (is_number && is_complex(form.computed)) {
    append(members, "f32 ", name, "_re, ", name, "_im; ");
    append(begin, "const C ", name, " = bp_c64(bp_arg.", name, "_re, bp_arg.", name, "_im); ");
    return;
  }
  const std::string_view type = (is_number && c10::isFloatingType(form.computed) ? compute_type(form.computed) : Literal("i64")).view();
  append(members, type, " ", name, "; ");
  if (type == "f32") append(members, "u32 ", name, "_; ");
  append(begin, "const ", is_number ? "C " : "i64 ", name, " = ", is_number ? "(C)" : "", "bp_arg.", name, "; ");
}

}  // namespace
}  // namespace walk_text_impl

void write_walk(KernelSource& source, const WalkForm& form) {
  using namespace walk_text_impl;
  std::string& text = source.definitions;
  std::string parameters, members, begin, places, names, flat, row;
  const bool computes = form.computed != c10::ScalarType::Undefined;
  const bool is_expression = form.expression != nullptr;
  const char* const type =
      is_complex(form.computed) ? "* p" : "* BP_RESTRICT p";  // in place, one part may be written before the other is read
  int pointers = 0, n = 0;
  std::string dtypes;
  for (int k = 0; k < form.count; ++k) {
    const auto [dtype, step] = form.operands[k];
    if (dtype != c10::ScalarType::Undefined && (k > 0 || !is_expression)) append(dtypes, dtypes.empty() ? "" : ",", dialect_name(dtype));
    if (step == Step::number) {
      declare(form, kLetters[k - 1], true, members, begin);
      continue;
    }
    const char* const separator = n == 0 ? "" : ", ";
    append(places, separator, "at", n);
    append(names, "const IDX i", n, " = at", n, "; ");  // declared before the body's own names
    append(flat, separator, step == Step::zero ? "0" : "(i)");
    append(row, separator, "(o[", n, "]", step == Step::unit ? " + (c)" : step == Step::reversed ? " - (c)" : "");
    if (step == Step::other) append(row, " + (c) * (IDX)bp_arg.inner[", n, "]");
    if (form.is_ordered) append(row, " + r * (IDX)bp_arg.along[", n, "]");
    row += ")";
    if (dtype != c10::ScalarType::Undefined) {
      append(parameters, separator, "BP_GLOBAL ", k < form.written ? "" : "const ", memory_type(dtype), type, n);
      define(text, join("LOAD", n, "(i)"), "bp_load_", dialect_name(dtype), "(p", n, ", i)");
      define(text, join("STORE", n, "(i, x)"), "bp_store_", dialect_name(dtype), "(p", n, ", i, x)");
      define(text, join("T", n), memory_type(dtype));
      ++pointers;
    }
    ++n;
  }
  for (int k = 0; k < form.scalars; ++k) declare(form, join("s", k), (form.numbers >> k & 1) != 0, members, begin);
  if (form.reports) {
    parameters += ", BP_GLOBAL i64* BP_RESTRICT record";
    members += "i64 site; ";
    begin += "const i64 site = bp_arg.site; ";
    define(text, "REPORT(place, size)", "bp_report(record, site, place, size)");
    ++pointers;
  }
  if (computes) define(text, "K_ROUND(x)", "bp_to_", dialect_name(form.computed), "(x)");
  define(text, "BP_F8E4M3_OVERFLOW", int{c10::Float8_e4m3fn(1000.0f).x}, "u");  // as torch itself converts
  define(text, "IDX", form.is_wide ? "i64" : "i32");
  define(text, "POINTERS", pointers);
  define(text, "PLACES", n);
  define(text, "PARAMETERS", parameters);
  define(text, "MEMBERS", members);
  define(text, "BEGIN", begin);
  if (is_expression) {
    const Body body(form);
    define(text, "BODY", body.text());
    body.define_rows(text, places, names);
  }
  define(text, join("APPLY(", places, ")"), "{ ", names, "BODY }");
  define(text, "AT_FLAT(i)", flat);
  define(text, "AT_ROW(c)", row);
  if (form.strip != 0) define(text, "ACROSS", form.strip);
  if (form.is_ordered) define(text, "ORDERED", 1);
  if (form.is_serial) define(text, "SERIAL", 1);
  define(text, form.rows == 0 ? "FLAT" : "DIMS", form.rows == 0 ? 1 : int{form.rows});
  append(source.name, "[", dtypes, "]");
}

}  // namespace backplane::portable
