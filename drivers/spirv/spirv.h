// drivers/spirv/spirv.h: compiles the kernel dialect (docs/dialect.md) to SPIR-V: text in, words out, in one process and without a device.
//
// It is a part that drivers share, as drivers/engine is: a driver's driver.cmake lists "drivers/spirv/*.cpp" beside its own sources, and
// its bp.compiler calls compile(). It includes the C++ library alone, so a vendor's driver may take the folder as it is. Nothing here keeps
// state: any thread may call it at any time, and a fork needs no care.
//
// The steps are public as well: parse() gives the typed tree (tree.h), from which emit() makes SPIR-V. A vendor whose assembler or compiler
// takes something else writes a printer over the tree in place of emit(); print_c.h is one that gives C again.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace backplane::driver::spirv {

/// vulkan: capability Shader; device memory by 64-bit addresses (PhysicalStorageBuffer64). kernel: capability Kernel, Physical64: what
/// OpenCL (clCreateProgramWithIL) and Level Zero take; device memory by pointers CrossWorkgroup.
enum class Flavour : uint8_t { vulkan, kernel };

/// What a device supports. What is false or 0 is composed of what every device has (a slower kernel, the same result), or refused by an
/// Error that names the fact. 64-bit integers are required of every device; so are the 32-bit atomics.
struct Facts {
  Flavour flavour = Flavour::vulkan;
  uint32_t version = 0x00010300;  ///< of SPIR-V, as in its header: 1.3 or newer; flavour kernel 1.0 or newer, shuffles from 1.3 on

  // Limits; what exceeds them is refused.
  uint32_t max_group = 1024;     ///< items of a group
  uint32_t local_bytes = 16384;  ///< of all local arrays of a kernel; 0: any
  uint32_t push_bytes = 128;     ///< vulkan: maxPushConstantsSize; larger parameters go through an address
  uint32_t subgroup_size = 0;    ///< items that shuffle, as the core was told; 0: BP_SHUFFLE_XOR is not defined

  // Types. Memory: loads and stores of that width in device memory, else of words; arithmetic is of 32 bits at least.
  bool memory_8 = false;   ///< vulkan: storageBuffer8BitAccess
  bool memory_16 = false;  ///< vulkan: storageBuffer16BitAccess
  bool int8 = false;       ///< vulkan: shaderInt8; 8-bit private and local arrays take a byte an element. Without: four
  bool int16 = false;      ///< vulkan: shaderInt16; likewise
  bool float64 = false;    ///< with / and sqrt to nearest; false: a text with BP_HAS_F64 1 is refused

  // Words.
  bool atomic_i64 = false;      ///< BP_ATOMIC_ADD_I64 and BP_ATOMIC_CAS_64 are defined
  bool atomic_add_f32 = false;  ///< SPV_EXT_shader_atomic_float_add of device memory; without it, by compare and swap
  bool float16 = false;         ///< conversions of f16 round to nearest even and keep NaN: BP_NATIVE_F16 is defined

  // Exactness. Vulkan promises 2.5 ulp of a quotient, less of a root, and no single rounding of Fma: false composes them of integers.
  bool exact_division = false;       ///< OpFDiv of f32 rounds to nearest (kernel: CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)
  bool exact_sqrt = false;           ///< so does Sqrt
  bool exact_fma = false;            ///< Fma of f32 rounds once, at any speed
  bool exact_fma64 = false;          ///< so does that of f64
  bool fast_fma = false;             ///< with exact_fma: it is one instruction; BP_FAST_FMA is defined
  bool denorm_preserve = false;      ///< shaderDenormPreserveFloat32: the execution mode is set
  bool signed_zero_inf_nan = false;  ///< shaderSignedZeroInfNanPreserveFloat32: likewise
  bool round_to_nearest = false;     ///< shaderRoundingModeRTEFloat32: likewise
  bool float64_controls = false;     ///< the modes that are set are set of f64, too
  /// The device's compiler is Mesa's lavapipe, which takes x * 0 for 0, whatever x is: a zero of the push constants keeps it from knowing.
  bool hide_zero = false;
  /// The device's compiler is one of Mesa's, whose 22.3 compares an i32 that OpSConvert made an i64 with a constant wrongly: the sign is
  /// extended by other instructions.
  bool hide_sign = false;
};

/// A message with the line of the source: "pointwise/exp[f32]:17: error: ...". #line directives are followed.
class Error : public std::runtime_error {
 public:
  Error(std::string unit, uint32_t line_number, const std::string& message)
      : std::runtime_error((unit.empty() ? "line " : unit + ":") + std::to_string(line_number) + ": error: " + message),
        line(line_number) {}
  const uint32_t line;
};

/// A parameter of a kernel. offset and size are those of bp_module's block of arguments: pointers of 8 bytes, then the value.
struct Parameter {
  enum class Kind : uint8_t { pointer, value };
  Kind kind;
  bool written;     ///< of a pointer: not to const
  uint32_t offset;  ///< bytes
  uint32_t size;    ///< bytes: 8 of a pointer
  std::string name;
};

/// Where a kernel finds its parameters. push: in the push constants, at their offsets. address: the push constants begin with the 64-bit
/// address of a block of them, aligned to 16 bytes. arguments: each is an argument of the kernel (flavour kernel), in their order.
enum class Placement : uint8_t { push, address, arguments };

/// One entry point.
struct Entry {
  std::string name;  ///< of OpEntryPoint: the kernel's
  std::vector<Parameter> parameters;
  Placement placement;
  uint32_t pointers;     ///< the first so many parameters; the last one is the value
  uint32_t value_bytes;  ///< of the value
  uint32_t push_bytes;   ///< vulkan: of the push constants in all, a multiple of 4
  int32_t zero_offset;   ///< with hide_zero: the 32-bit word of the push constants that must be 0; else -1
  uint32_t group;        ///< items: BP_GROUP of the text
  uint32_t local_bytes;  ///< of its local arrays, as the module declares them
};

struct Module {
  std::vector<uint32_t> words;
  std::vector<Entry> entries;  ///< all in one module
};

/// Of one compilation.
struct Options {
  std::string name;        ///< of the unit, for messages
  bool fast_math = false;  ///< BP_COMPILE_FAST_MATH: may contract, and use the device's own quotient and root
};

/// A part of bp.compiler's id(), with the text of prelude(): changes whenever the words of the same source do.
constexpr uint32_t kVersion = 1;

/// The dialect's words, for bp.compiler's prelude(): the same text for every device, since compile() defines what the facts say.
std::string prelude();

/// The part of prelude() that has the C library's functions of f64 in plain arithmetic. It may stand behind the prelude of any other
/// language with f64 and no such library.
std::string float64_words();

/// Compiles a complete text: definitions, the prelude, the core's part, the kernels. Throws Error.
Module compile(const std::string& source, const Facts& facts, const Options& options = {});

}  // namespace backplane::driver::spirv
