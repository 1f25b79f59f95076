// kernels/portable/unit/unit.h: a unit, which is a kernel of the library with the definitions in front of its file.
//
//   Unit unit(device, "pool.bpc", "pool", op.name);
//   unit.element("", dtype).define("BACKWARD", op.backward);
//   const Function* function = unit.find(per_item, 3, 38, 1);
//
// The definitions are kept as pieces, and written out as text when no function was compiled for them yet. The pieces are the key of the
// function, so equal keys mean equal texts.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstring>
#include <type_traits>

#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/text.h"
#include "modules/key.h"
#include "modules/launch.h"

namespace backplane::portable {

class Unit {
 public:
  // file: the last file of the text; kernel: its name there; name: for messages, followed by the dtypes of element() or that of
  // compute_in().
  Unit(c10::DeviceIndex device, Literal file, Literal kernel, Literal name) : device_(device), file_(file), kernel_(kernel), name_(name) {
    add(file_, Role::part).add(kernel_, Role::part).add(name_, Role::part);
  }

  Unit& name(c10::ScalarType dtype) { return add(name_, Role::name, dtype); }  // appended to the name, for messages
  Unit& file(Literal name) { return add(name, Role::file); }                   // before the kernel's file, once
  template <std::integral Number>
  Unit& define(Literal word, Number number) {
    return add(word, Role::number, static_cast<uint64_t>(number));
  }
  template <typename... Parts>
  Unit& define(Literal word, Part first, Parts... rest) {
    add(word, Role::word).add(first);
    (add(Part(rest)), ...);
    return *this;
  }
  Unit& define_if(bool is_defined, Literal word) { return is_defined ? define(word, 1) : *this; }
  Unit& op(Literal name) { return add(name, Role::op); }  // OP_<name>
  // T<suffix>, LOAD<suffix>(p, i) and STORE<suffix>(p, i, x) of a dtype.
  Unit& element(Literal suffix, c10::ScalarType dtype) { return add(suffix, Role::element, dtype); }
  // Defines C, the compute type of a dtype, and includes math.bpc and compute.bpc, or complex.bpc. is_summed: integers in 64 bits.
  Unit& compute_in(c10::ScalarType dtype, bool is_summed = false) { return add(name_, is_summed ? Role::summed : Role::compute, dtype); }
  // Defines `word`: the element at `place`, "p, i", as C. converted_to: rounded as by storing it in that dtype.
  Unit& load(Literal word, c10::ScalarType dtype, Literal place) { return load(word, dtype, place, dtype); }
  Unit& load(Literal word, c10::ScalarType dtype, Literal place, c10::ScalarType converted_to) {
    return add(word, Role::load, dtype, converted_to).add(place, Role::part);
  }
  // Defines `word`, which stores a number. to: "p, i, x".
  Unit& store(Literal word, c10::ScalarType dtype, Literal to) { return add(word, Role::store, dtype).add(to, Role::part); }
  // Defines IDX, the type of element numbers.
  Unit& index(bool is_wide) { return add(name_, is_wide ? Role::wide : Role::narrow); }

  // Adds a parameter to PARAMETERS and POINTERS.
  Unit& read(Literal name, c10::ScalarType dtype) { return parameter(name, dtype, false); }
  Unit& write(Literal name, c10::ScalarType dtype) { return parameter(name, dtype, true); }
  // Adds the parameter that REPORT writes to (runtime/reports.h), after the others.
  Unit& record() { return parameter("record", c10::kLong, true); }

  // Calls `make` when the text is written: it adds to the source's definitions, name and files what `numbers` decide.
  template <typename Numbers>
  Unit& made_by(void (*make)(KernelSource& source, const Numbers& numbers), const Numbers& numbers) {
    static_assert(std::has_unique_object_representations_v<Numbers> && std::is_trivially_copyable_v<Numbers>);
    const auto call = [](KernelSource& source, void (*given)(), const void* bytes) {
      Numbers copy;
      std::memcpy(&copy, bytes, sizeof copy);
      reinterpret_cast<void (*)(KernelSource&, const Numbers&)>(given)(source, copy);
    };
    return add_made(+call, reinterpret_cast<void (*)()>(make), &numbers, sizeof numbers);
  }

  // words: the size of the kernel's struct in units of 8 bytes. written: bit k: the kernel writes through pointer k. NULL: not available
  // (yet).
  const Function* find(uint32_t per_item, uint32_t pointers, uint32_t words, uint64_t written);
  // With the pointers of read() and write():
  const Function* find(uint32_t per_item, uint32_t words) { return find(per_item, pointers_, words, written_); }
  // The source that find() compiles.
  KernelSource source(uint32_t per_item, uint32_t pointers, uint32_t words, uint64_t written) const;
  KernelSource source(uint32_t per_item, uint32_t words) const { return source(per_item, pointers_, words, written_); }

 private:
  enum class Role : uint8_t {
    part,
    word,
    number,
    op,
    file,
    name,
    element,
    compute,
    summed,
    wide,
    narrow,
    load,
    store,
    read,
    write,
    bytes,
    made
  };
  using Call = void (*)(KernelSource& source, void (*make)(), const void* bytes);
  // A piece is an address and a role, with a number, dtypes or a count of bytes from bit 8 on; without an address it is a number.
  friend class UnitWriter;

  Unit& add(const void* text, uint64_t what) {
    key_.add(text, what);
    return *this;
  }
  Unit& add(const char* text, Role role, uint64_t more = 0) {
    return add(static_cast<const void*>(text), static_cast<uint64_t>(role) | more << 8);
  }
  Unit& add(const char* text, Role role, c10::ScalarType dtype, c10::ScalarType other = c10::ScalarType{}) {
    return add(text, role, static_cast<uint64_t>(dtype) | static_cast<uint64_t>(other) << 8);
  }
  Unit& add(const Part& part) {
    if (part.is_number()) return add(nullptr, static_cast<uint64_t>(part.number()));
    if (part.is_literal()) return part.text().empty() ? *this : add(part.text().data(), Role::part);
    return add_bytes(part.text().data(), part.text().size());
  }
  Unit& add_bytes(const void* bytes, size_t size);
  Unit& add_made(Call call, void (*make)(), const void* bytes, size_t size);
  Unit& parameter(Literal name, c10::ScalarType dtype, bool is_written) {
    if (is_written) written_ |= uint64_t{1} << pointers_;
    ++pointers_;
    return add(name, is_written ? Role::write : Role::read, dtype);
  }

  const c10::DeviceIndex device_;
  const char* const file_;
  const char* const kernel_;
  const char* const name_;
  uint32_t pointers_ = 0;
  uint64_t written_ = 0;
  KernelKey key_;
  size_t text_size_ = 0;  // of the key's pieces, once it is looked for
};

// The arguments of a kernel, from the tensors and numbers of a call.
class Arguments : public KernelArguments {
 public:
  Arguments& write(const at::Tensor& tensor);
  Arguments& read(const at::Tensor& tensor);  // NULL if it is undefined
  template <std::integral... Words>
  Arguments& words(Words... words) {
    (add(static_cast<uint64_t>(words)), ...);
    return *this;
  }
  template <typename Range>
  Arguments& all(const Range& range) {
    for (const auto word : range) words(word);
    return *this;
  }
};

}  // namespace backplane::portable
