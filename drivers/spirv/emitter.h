// drivers/spirv/emitter.h: makes SPIR-V of a typed tree.
//
// In registers an integer of 8 or 16 bits has 32, extended by its sign; in memory it has its own width where the layout says so (a cell).
// Flavour vulkan: a pointer to device memory is a 64-bit integer, and each access converts it. A pointer to local memory is an index, in
// elements of what it points to, into an array that is known when its function is emitted: functions are emitted once for each such array.
// Flavour kernel: pointers are pointers.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "assembler.h"
#include "builtins.h"
#include "tree.h"

namespace backplane::driver::spirv {

/// How memory holds a type. plain: variables of an item, and all that is held in registers. block: push constants, with offsets.
enum class Layout : uint8_t { plain, local, block };

struct Value {
  uint32_t id = 0;
  const Variable* base = nullptr;  // vulkan: of a pointer to local memory, the array
};

/// Where something is stored.
struct Place {
  enum class Where : uint8_t {
    chain,    // at indices into the object of a pointer
    address,  // vulkan: device memory, a 64-bit integer and a distance
    words,    // vulkan: bytes of a local array that is read in several types
  } where = Where::chain;
  const Type* type = nullptr;
  Layout layout = Layout::plain;
  StorageClass storage = StorageFunction;
  uint32_t root = 0;                // pointer; address; array of words
  Words indices;                    // of a chain
  uint32_t bytes = 0;               // of words: an i32
  uint64_t distance = 0;            // bytes behind the address
  const Variable* local = nullptr;  // vulkan: a place in a local array, at `flat` of its innermost elements
  uint32_t flat = 0;
};

class Emitter {
 public:
  Emitter(const Unit& unit, const Facts& facts, const Options& options);
  Module run();

 private:
  struct Slot {  // what a variable is
    enum class Kind : uint8_t { value, place } kind = Kind::value;
    Value value;
    Place place;
  };
  struct Exit {  // what break and continue leave
    uint32_t merge, next;
    bool has_break;
  };
  struct Frame {  // of the function that is emitted
    const Function* function = nullptr;
    Words variables, body;
    uint32_t label = 0;      // of the block
    bool is_closed = false;  // the block has ended
    uint32_t choices = 0;
    std::unordered_map<const Variable*, Slot> slots;
    std::vector<Exit> exits;
  };
  struct Called {
    uint32_t id = 0;
    bool is_open = false;  // its body is being emitted
  };

  [[noreturn]] void fail(uint32_t line, const std::string& message) const { throw Error(unit_.name, line ? line : line_, message); }
  bool is_vulkan() const { return facts_.flavour == Flavour::vulkan; }

  // types.cpp: types, constants, the cells of memory
  uint32_t int_type(uint32_t width);
  uint32_t float_type(uint32_t width);
  uint32_t void_type() { return assembler_.type(OpTypeVoid, {}); }
  uint32_t bool_type() { return assembler_.type(OpTypeBool, {}); }
  uint32_t register_type(const Type& type);
  uint32_t cell_type(const Type& type, Layout layout);
  uint32_t scalar_cell(const Type& type, bool is_narrow_8, bool is_narrow_16);
  uint32_t pointer_type(uint32_t to, StorageClass storage) { return assembler_.type(OpTypePointer, {storage, to}); }
  uint64_t cell_bytes(const Type& type, Layout layout) const;
  uint32_t int_constant(uint32_t width, uint64_t bits);
  uint32_t u32(uint64_t bits) { return int_constant(32, bits); }
  uint32_t real_constant(const Type& type, double value);
  uint32_t constant(const Type& type, uint64_t bits, double value);
  uint32_t constant_cell(const Expression& e, const Type& type);
  uint32_t null(uint32_t type) { return assembler_.constant(OpConstantNull, {type}); }
  bool has_register_cells(const Type& type, Layout layout) { return cell_type(type, layout) == cell_type(type, Layout::plain); }
  static uint32_t width_of(const Type& type) { return type.size() == 8 ? 64 : 32; }

  // memory.cpp
  Place place(const Expression& e);
  Place element_of(const Place& array, uint32_t index, const Type& index_type);
  Place member_of(const Place& structure, uint32_t member);
  Place pointee(const Value& pointer, const Type& type, uint32_t index, const Type& index_type);
  uint32_t load(const Place& from);
  void store(const Place& to, uint32_t value);
  uint32_t load_scalar(const Place& from);
  void store_scalar(const Place& to, uint32_t value);
  bool is_part_of_word(const Place& at) const;
  uint32_t bit_of(uint32_t bytes);
  void store_part(uint32_t pointer, uint32_t scope, uint32_t bytes, uint64_t size, uint32_t value);
  std::pair<uint32_t, uint32_t> word_of(const Place& at);
  uint32_t load_words(const Place& from);
  void store_words(const Place& to, uint32_t value);
  uint32_t pointer_to(const Place& at);  // of a scalar or a chain
  uint32_t from_cell(uint32_t cell, const Type& type, uint32_t cell_type);
  uint32_t to_cell(uint32_t value, const Type& type, uint32_t cell_type);
  uint32_t index_of_width(uint32_t width, uint32_t index, const Type& type);
  uint32_t scaled(uint32_t index, uint64_t by, uint32_t width);
  uint32_t sum(uint32_t a, uint32_t b, uint32_t width);
  static uint64_t flat_count(const Type& type);
  static const Type& innermost(const Type& type);
  bool is_retyped(const Variable* local) const { return all_retyped_ || retyped_.contains(local); }
  Place local_place(const Variable* local, uint32_t flat, const Type& type);
  Value move(const Value& pointer, const Type& type, uint32_t index, const Type& index_type);
  Value address_of(const Place& at, uint32_t line);
  uint32_t local_variable(const Variable* local);
  void find_words();

  // values.cpp
  Value value(const Expression& e);
  uint32_t instruction(Op op, uint32_t type, const Words& operands);
  uint32_t inexact(Op op, uint32_t type, const Words& operands);  // of floating point
  uint32_t binary(Operator op, uint32_t a, uint32_t b, const Type& type, uint32_t line);
  uint32_t compare(const Expression& e);
  uint32_t quotient(uint32_t a, uint32_t b, const Type& type, uint32_t line);
  Value convert(const Expression& e);
  uint32_t convert_number(uint32_t id, const Type& from, const Type& to);
  Value convert_pointer(const Value& pointer, const Type& from, const Type& to, uint32_t line);
  uint32_t fitted(uint32_t id, Kind kind);
  uint32_t sign_extended(uint32_t id);
  Value choose(const Expression& e);
  uint32_t logical(const Expression& e);
  bool is_simple(const Expression& e, int& budget) const;
  Value update(const Expression& e);
  uint32_t composite(const Expression& list);

  // words.cpp
  Value word(const Expression& e);
  uint32_t extended(uint32_t number, uint32_t type, const Words& operands);
  uint32_t input(BuiltIn which, uint32_t component);
  uint32_t atomic(const Expression& e);
  uint32_t composed(const char* function, const Words& arguments, uint32_t line);

  // functions.cpp
  Value call(const Function& function, const Words& arguments, const std::vector<const Variable*>& bases, uint32_t line);
  uint32_t function_of(const Function& function, const std::vector<const Variable*>& bases, uint32_t line);
  void kernel(const Function& function);
  Placement place_parameters(const Function& function, Entry& entry);
  void kernel_parameters(const Function& function, Words& types, Words& declared);
  void finish_function(uint32_t id, uint32_t result, uint32_t type, const Words& declared);
  uint32_t hidden_zero();
  void float_modes(uint32_t id);

  // control.cpp
  void statement(const Statement& s);
  void declare(const Statement& s);
  void initialize(const Place& at, const Expression& e);
  void branch(const Statement& s);
  void loop(const Statement& s);
  void choice(const Statement& s);
  void label(uint32_t id);
  void jump(uint32_t to);
  void branch_to(uint32_t condition, uint32_t yes, uint32_t no);
  uint32_t private_variable(uint32_t type);

  const Unit& unit_;
  const Facts& facts_;
  const Options& options_;
  Assembler assembler_;
  Frame frame_;
  Module module_;
  uint32_t line_ = 1;  // of the statement that is emitted
  const Type* types_[static_cast<size_t>(Kind::f64) + 1];
  std::map<std::pair<const Record*, Layout>, uint32_t> records_;
  std::map<std::pair<const Type*, uint32_t>, uint32_t> blocks_;  // arrays with a stride
  std::unordered_map<std::string_view, const Function*> named_;
  std::unordered_map<const Variable*, uint32_t> tables_;
  std::unordered_map<uint32_t, int64_t> known_;  // the values of integer constants, by id
  std::unordered_set<const Variable*> retyped_;  // local arrays that are read in several types
  bool all_retyped_ = false;

  std::map<uint32_t, uint32_t> inputs_;  // by BuiltIn

  // Of the kernel that is emitted.
  std::map<std::pair<const Function*, std::vector<const Variable*>>, Called> called_;
  std::unordered_map<const Variable*, uint32_t> locals_;
  Words interface_;
  uint64_t local_bytes_ = 0;
  uint32_t push_ = 0;  // the variable of the push constants
  uint32_t zero_member_ = 0;
  uint32_t parameter_address_ = 0;
};

}  // namespace backplane::driver::spirv
