// kernels/portable/unit/unit.h: a kernel of the library as a call wants it: what is defined in front of its file.
//
//   Unit unit(device, "pool.bpc", "pool", op.name);
//   unit.element("", dtype).define("BACKWARD", op.backward);
//   const Function* function = unit.find(per_item, 3, 38, 1);
//
// What defines a unit is kept piece by piece, and written out where there is no function yet. The pieces are the key by which one is found
// again, so equal keys make equal texts.
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
  // file: the last one of the text; kernel: in it; name: for messages, with the dtypes of element() behind it, or that of compute_in().
  Unit(c10::DeviceIndex device, Literal file, Literal kernel, Literal name) : device_(device), file_(file), kernel_(kernel), name_(name) {
    add(file_, Role::part).add(kernel_, Role::part).add(name_, Role::part);
  }

  Unit& name(c10::ScalarType dtype) { return add(name_, Role::name, dtype); }  // behind the name, for messages
  Unit& file(Literal name) { return add(name, Role::file); }                   // in front of the kernel's, once
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
  // C, the type that values of a dtype are computed in, with math.bpc and compute.bpc or complex.bpc. is_summed: integers in 64 bits.
  Unit& compute_in(c10::ScalarType dtype, bool is_summed = false) { return add(name_, is_summed ? Role::summed : Role::compute, dtype); }
  // word: an element at `place`, "p, i", as C; `converted_to`: as storing it as that dtype, and reading it again, would change it.
  Unit& load(Literal word, c10::ScalarType dtype, Literal place) { return load(word, dtype, place, dtype); }
  Unit& load(Literal word, c10::ScalarType dtype, Literal place, c10::ScalarType converted_to) {
    return add(word, Role::load, dtype, converted_to).add(place, Role::part);
  }
  // word: stores a number; to: "p, i, x".
  Unit& store(Literal word, c10::ScalarType dtype, Literal to) { return add(word, Role::store, dtype).add(to, Role::part); }
  // IDX, the type of places.
  Unit& index(bool is_wide) { return add(name_, is_wide ? Role::wide : Role::narrow); }

  // A parameter of the kernel, in PARAMETERS and counted in POINTERS.
  Unit& read(Literal name, c10::ScalarType dtype) { return parameter(name, dtype, false); }
  Unit& write(Literal name, c10::ScalarType dtype) { return parameter(name, dtype, true); }
  // Where REPORT writes (runtime/reports.h), behind the others.
  Unit& record() { return parameter("record", c10::kLong, true); }

  // What a function makes of a few numbers: it adds to the source's definitions, its name and its files.
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

  // words: of the kernel's struct, 8 bytes each. written: bit k: the kernel writes through pointer k. NULL: there is none (now).
  const Function* find(uint32_t per_item, uint32_t pointers, uint32_t words, uint64_t written);
  // With the pointers of read() and write():
  const Function* find(uint32_t per_item, uint32_t words) { return find(per_item, pointers_, words, written_); }
  // What find() compiles.
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
  // A piece has an address and a role, with a number or dtypes from the 8th bit on, or how many bytes follow. Without an address: a number.
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

// What a kernel takes, from the tensors and numbers of a call.
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
