// kernels/portable/unit/unit.cpp: finds a unit's function by its pieces, or writes the pieces as definitions.
#include "kernels/portable/unit/unit.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/portable/unit/call.h"

namespace backplane::portable {
Unit& Unit::add_bytes(const void* bytes, size_t size) {
  add(name_, Role::bytes, size);  // the address is a placeholder
  key_.add_bytes(bytes, size);
  return *this;
}

Unit& Unit::add_made(Call call, void (*make)(), const void* bytes, size_t size) {
  add(reinterpret_cast<const void*>(call), static_cast<uint64_t>(Role::made));
  return add(reinterpret_cast<const void*>(make), size).add_bytes(bytes, size);
}

// Writes the pieces as text.
class UnitWriter {
 public:
  explicit UnitWriter(const Unit& unit) : unit_(unit) { source_.name = unit.name_; }

  KernelSource write() {
    const size_t end = unit_.text_size_ != 0 ? unit_.text_size_ : unit_.key_.size();
    for (at_ = 3; at_ < end; ++at_) {
      const KernelKey::Piece& piece = unit_.key_[at_];
      if (piece.text == nullptr) {
        append(text_, static_cast<int64_t>(piece.what));
      } else {
        write(static_cast<Unit::Role>(piece.what & 255), piece.text, piece.what >> 8);
      }
    }
    end_line();
    if (!parameters_.empty()) {
      define(text_, "PARAMETERS", parameters_);
      define(text_, "POINTERS", unit_.pointers_);
    }
    if (!dtypes_.empty() && source_.name.back() != ']') append(source_.name, "[", dtypes_, "]");
    add_file(unit_.file_);
    return std::move(source_);
  }

 private:
  void write(Unit::Role role, const void* text, uint64_t more) {
    using Role = Unit::Role;
    const auto* const word = static_cast<const char*>(text);
    const auto dtype = static_cast<c10::ScalarType>(more & 255), other = static_cast<c10::ScalarType>(more >> 8 & 255);
    if (role != Role::part && role != Role::bytes) end_line();
    switch (role) {
      case Role::part:
        text_ += word;
        break;
      case Role::bytes:
        text_.append(reinterpret_cast<const char*>(&unit_.key_[at_ + 1]), more);
        at_ += pieces_of(more);
        break;
      case Role::word:
        begin_line(word);
        break;
      case Role::number:
        define(text_, word, static_cast<int64_t>(more << 8) >> 8);  // sign-extended
        break;
      case Role::op:
        define(text_, join("OP_", word), 1);
        break;
      case Role::file:
        add_file(word);
        break;
      case Role::name:
        add_dtype(dtype);
        break;
      case Role::element:
        if (c10::isReducedFloatingType(dtype)) add_file("math.bpc");
        define(text_, join("T", word), memory_type(dtype));
        define(text_, join("LOAD", word, "(p, i)"), "bp_load_", dialect_name(dtype), "(p, i)");
        define(text_, join("STORE", word, "(p, i, x)"), "bp_store_", dialect_name(dtype), "(p, i, x)");
        add_dtype(dtype);
        break;
      case Role::compute:
      case Role::summed:
        define_type(dtype, role == Role::summed && c10::isIntegralType(dtype, /*includeBool=*/true) ? Literal("i64") : compute_type(dtype));
        break;
      case Role::wide:
      case Role::narrow:
        define(text_, "IDX", role == Role::wide ? "i64" : "i32");
        break;
      case Role::load: {
        const std::string loaded = join("bp_load_", dialect_name(dtype), "(", place(), ")");
        define(text_, word, "AS_C(", dtype == other ? loaded : join("bp_to_", dialect_name(other), "(", loaded, ")"), ")");
        break;
      }
      case Role::store:
        define(text_, word, "bp_store_", dialect_name(dtype), "(", place(), ")");
        break;
      case Role::read:
      case Role::write:
        append(parameters_, parameters_.empty() ? "" : ", ", "BP_GLOBAL ", role == Role::write ? "" : "const ", memory_type(dtype),
               "* BP_RESTRICT ", word);
        break;
      case Role::made: {
        const KernelKey::Piece& made = unit_.key_[at_ + 1];
        reinterpret_cast<Unit::Call>(const_cast<void*>(text))(source_, reinterpret_cast<void (*)()>(const_cast<void*>(made.text)),
                                                              &unit_.key_[at_ + 3]);
        at_ += 2 + pieces_of(made.what);
        break;
      }
    }
  }

  static size_t pieces_of(uint64_t bytes) { return (bytes + sizeof(KernelKey::Piece) - 1) / sizeof(KernelKey::Piece); }
  const char* place() { return static_cast<const char*>(unit_.key_[++at_].text); }

  void begin_line(const char* word) {
    append(text_, "#define ", word, " ");
    is_line_ = true;
  }
  void end_line() {
    if (is_line_) text_ += '\n';
    is_line_ = false;
  }

  // Defines C and the functions of its type.
  void define_type(c10::ScalarType dtype, Literal type) {
    define(text_, "C", type);
    define(text_, join("C_IS_", type), 1);
    define(text_, "AS_C(x)", is_complex(dtype) ? "(x)" : "((C)(x))");
    define(text_, join("K_", dialect_name(dtype)), 1);
    define(text_, "K_BITS", c10::elementSize(dtype) * 8);
    add_file("math.bpc");
    add_file(is_complex(dtype) ? "complex.bpc" : "compute.bpc");
    if (dtypes_.empty()) add_dtype(dtype);
  }

  void add_file(const char* file) {
    const auto is_it = [&](const char* other) { return std::strcmp(file, other) == 0; };
    if (std::none_of(source_.files.begin(), source_.files.end(), is_it)) source_.files.push_back(file);
  }
  void add_dtype(c10::ScalarType dtype) { append(dtypes_, dtypes_.empty() ? "" : ",", dialect_name(dtype)); }

  const Unit& unit_;
  KernelSource source_;
  std::string& text_ = source_.definitions;
  std::string parameters_, dtypes_;
  size_t at_ = 0;
  bool is_line_ = false;
};

KernelSource Unit::source(uint32_t per_item, uint32_t pointers, uint32_t words, uint64_t written) const {
  KernelSource source = UnitWriter(*this).write();
  source.kernel = kernel_;
  source.per_item = per_item;
  source.signature.struct_size = sizeof source.signature;
  source.signature.pointers = pointers;
  source.signature.value_bytes = 8 * words;
  source.signature.written = written;
  return source;
}

const Function* Unit::find(uint32_t per_item, uint32_t pointers, uint32_t words, uint64_t written) {
  text_size_ = key_.size();
  add(reinterpret_cast<const void*>(uint64_t{per_item} << 32 | pointers), words).add(nullptr, written);
  return key_.find(device_, [&] { return source(per_item, pointers, words, written); });
}

Arguments& Arguments::write(const at::Tensor& tensor) {
  add(writable_address_of(tensor));
  return *this;
}

Arguments& Arguments::read(const at::Tensor& tensor) {
  add(tensor.defined() ? address_of(tensor) : 0);
  return *this;
}

}  // namespace backplane::portable
