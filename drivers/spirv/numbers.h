// drivers/spirv/numbers.h: the numbers of SPIR-V that are used here, by their names in the specification.
#pragma once

#include <cstdint>

namespace backplane::driver::spirv {

enum Op : uint32_t {
  OpName = 5,
  OpExtension = 10,
  OpExtInstImport = 11,
  OpExtInst = 12,
  OpMemoryModel = 14,
  OpEntryPoint = 15,
  OpExecutionMode = 16,
  OpCapability = 17,
  OpTypeVoid = 19,
  OpTypeBool = 20,
  OpTypeInt = 21,
  OpTypeFloat = 22,
  OpTypeVector = 23,
  OpTypeArray = 28,
  OpTypeStruct = 30,
  OpTypePointer = 32,
  OpTypeFunction = 33,
  OpConstantTrue = 41,
  OpConstantFalse = 42,
  OpConstant = 43,
  OpConstantComposite = 44,
  OpConstantNull = 46,
  OpFunction = 54,
  OpFunctionParameter = 55,
  OpFunctionEnd = 56,
  OpFunctionCall = 57,
  OpVariable = 59,
  OpLoad = 61,
  OpStore = 62,
  OpAccessChain = 65,
  OpInBoundsPtrAccessChain = 70,
  OpDecorate = 71,
  OpMemberDecorate = 72,
  OpCompositeConstruct = 80,
  OpCompositeExtract = 81,
  OpConvertFToU = 109,
  OpConvertFToS = 110,
  OpConvertSToF = 111,
  OpConvertUToF = 112,
  OpUConvert = 113,
  OpSConvert = 114,
  OpFConvert = 115,
  OpConvertPtrToU = 117,
  OpConvertUToPtr = 120,
  OpBitcast = 124,
  OpSNegate = 126,
  OpFNegate = 127,
  OpIAdd = 128,
  OpFAdd = 129,
  OpISub = 130,
  OpFSub = 131,
  OpIMul = 132,
  OpFMul = 133,
  OpUDiv = 134,
  OpSDiv = 135,
  OpFDiv = 136,
  OpUMod = 137,
  OpSRem = 138,
  OpLogicalOr = 166,
  OpLogicalAnd = 167,
  OpLogicalNot = 168,
  OpSelect = 169,
  OpIEqual = 170,
  OpINotEqual = 171,
  OpUGreaterThan = 172,
  OpSGreaterThan = 173,
  OpUGreaterThanEqual = 174,
  OpSGreaterThanEqual = 175,
  OpULessThan = 176,
  OpSLessThan = 177,
  OpULessThanEqual = 178,
  OpSLessThanEqual = 179,
  OpFOrdEqual = 180,
  OpFUnordNotEqual = 183,
  OpFOrdLessThan = 184,
  OpFOrdGreaterThan = 186,
  OpFOrdLessThanEqual = 188,
  OpFOrdGreaterThanEqual = 190,
  OpShiftRightLogical = 194,
  OpShiftRightArithmetic = 195,
  OpShiftLeftLogical = 196,
  OpBitwiseOr = 197,
  OpBitwiseXor = 198,
  OpBitwiseAnd = 199,
  OpNot = 200,
  OpControlBarrier = 224,
  OpAtomicCompareExchange = 230,
  OpAtomicIAdd = 234,
  OpAtomicAnd = 240,
  OpAtomicOr = 241,
  OpPhi = 245,
  OpLoopMerge = 246,
  OpSelectionMerge = 247,
  OpLabel = 248,
  OpBranch = 249,
  OpBranchConditional = 250,
  OpSwitch = 251,
  OpReturn = 253,
  OpReturnValue = 254,
  OpUnreachable = 255,
  OpGroupNonUniformShuffleXor = 346,
  OpAtomicFAddEXT = 6035,
};

enum Capability : uint32_t {
  CapabilityShader = 1,
  CapabilityAddresses = 4,
  CapabilityKernel = 6,
  CapabilityFloat16 = 9,
  CapabilityFloat64 = 10,
  CapabilityInt64 = 11,
  CapabilityInt64Atomics = 12,
  CapabilityInt16 = 22,
  CapabilityInt8 = 39,
  CapabilityGroupNonUniform = 61,
  CapabilityGroupNonUniformShuffle = 65,
  CapabilityStorageBuffer16BitAccess = 4433,
  CapabilityStorageBuffer8BitAccess = 4448,
  CapabilityDenormPreserve = 4464,
  CapabilitySignedZeroInfNanPreserve = 4466,
  CapabilityRoundingModeRTE = 4467,
  CapabilityPhysicalStorageBufferAddresses = 5347,
  CapabilityAtomicFloat32AddEXT = 6033,
};

enum StorageClass : uint32_t {
  StorageUniformConstant = 0,
  StorageInput = 1,
  StorageWorkgroup = 4,
  StorageCrossWorkgroup = 5,
  StoragePrivate = 6,
  StorageFunction = 7,
  StoragePushConstant = 9,
  StoragePhysicalStorageBuffer = 5349,
};

enum Decoration : uint32_t {
  DecorationBlock = 2,
  DecorationArrayStride = 6,
  DecorationBuiltIn = 11,
  DecorationOffset = 35,
  DecorationFuncParamAttr = 38,
  DecorationFPRoundingMode = 39,
  DecorationNoContraction = 42,
};
enum FunctionParameterAttribute : uint32_t { AttributeByVal = 2, AttributeNoAlias = 4 };

enum BuiltIn : uint32_t {
  BuiltInNumWorkgroups = 24,
  BuiltInWorkgroupId = 26,
  BuiltInLocalInvocationId = 27,
  BuiltInLocalInvocationIndex = 29
};

enum ExecutionMode : uint32_t {
  ModeLocalSize = 17,
  ModeContractionOff = 31,
  ModeDenormPreserve = 4459,
  ModeSignedZeroInfNanPreserve = 4461,
  ModeRoundingModeRTE = 4462,
};

enum Scope : uint32_t { ScopeDevice = 1, ScopeWorkgroup = 2, ScopeSubgroup = 3 };
enum Semantics : uint32_t {
  SemanticsRelaxed = 0,
  SemanticsAcquireRelease = 0x8,
  SemanticsUniformMemory = 0x40,
  SemanticsWorkgroupMemory = 0x100,
  SemanticsCrossWorkgroupMemory = 0x200,
};

/// Of the instruction sets GLSL.std.450 and OpenCL.std.
struct ExtendedNumbers {
  uint32_t round, truncate, floor, ceiling, square_root, fused;
};
constexpr ExtendedNumbers kGlsl = {2, 3, 8, 9, 31, 50};
constexpr ExtendedNumbers kOpenCl = {53, 66, 25, 12, 61, 26};
constexpr uint32_t kGlslFindUMsb = 75;
constexpr uint32_t kOpenClClz = 151;

}  // namespace backplane::driver::spirv
