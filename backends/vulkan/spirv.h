// The parts of SPIR-V 1.5 that this backend reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace bowline::detail::vulkan::spirv {

constexpr size_t kHeaderWords = 5;
constexpr size_t kBound = 3;  // word of the header that exceeds all ids

enum : uint32_t {
  kMemoryModel = 14,
  kEntryPoint = 15,
  kExecutionMode = 16,
  kCapability = 17,
  kTypeVoid = 19,
  kTypeInt = 21,
  kTypeFloat = 22,
  kTypeVector = 23,
  kTypeArray = 28,
  kTypeRuntimeArray = 29,
  kTypeStruct = 30,
  kTypePointer = 32,
  kTypeFunction = 33,
  kTypeForwardPointer = 39,
  kConstant = 43,
  kSpecConstant = 50,
  kFunction = 54,
  kFunctionParameter = 55,
  kFunctionEnd = 56,
  kFunctionCall = 57,
  kVariable = 59,
  kLoad = 61,
  kStore = 62,
  kAccessChain = 65,
  kDecorate = 71,
  kMemberDecorate = 72,
  kCompositeConstruct = 80,
  kCompositeExtract = 81,
  kCompositeInsert = 82,
  kCopyObject = 83,
  kUConvert = 113,
  kBitcast = 124,
  kIAdd = 128,
  kIMul = 132,
  kShiftRightLogical = 194,
  kShiftLeftLogical = 196,
  kBitwiseAnd = 199,
  kNot = 200,
  kAtomicLoad = 227,
  kAtomicIAdd = 234,
  kAtomicAnd = 240,
  kAtomicOr = 241,
  kSelectionMerge = 247,
  kLabel = 248,
  kSwitch = 251,
  kReturn = 253,
  kReturnValue = 254,
  kUnreachable = 255,
};

// Decorations.
enum : uint32_t {
  kSpecId = 1,
  kBlock = 2,
  kArrayStride = 6,
  kAliased = 20,
  kCoherent = 23,
  kBinding = 33,
  kDescriptorSet = 34,
  kOffset = 35,
  kAliasedPointer = 5356,
};

// Storage classes.
enum : uint32_t { kStorageBuffer = 12, kPhysicalStorageBuffer = 5349 };

// Capabilities. Those of subgroups are neighbours.
enum : uint32_t {
  kGroupNonUniform = 61,
  kGroupNonUniformQuad = 68,
  kStorageBuffer16BitAccess = 4433,
  kStorageBuffer8BitAccess = 4448,
  kSignedZeroInfNanPreserve = 4466,
  kPhysicalStorageBufferAddresses = 5347,
  kCooperativeMatrix = 6022,
};

// Execution modes.
enum : uint32_t { kModeSignedZeroInfNanPreserve = 4461 };

using Instruction = std::span<const uint32_t>;

inline uint32_t operation(Instruction i) { return i[0] & 0xffff; }

inline void append(std::vector<uint32_t>& module, uint32_t operation,
                   std::initializer_list<uint32_t> operands) {
  module.push_back(static_cast<uint32_t>(operands.size() + 1) << 16 | operation);
  module.insert(module.end(), operands);
}

// Calls `each` for every instruction of a module.
template <class Each>
void for_each_instruction(std::span<const uint32_t> module, const Each& each) {
  for (size_t at = kHeaderWords; at < module.size(); at += module[at] >> 16) {
    each(module.subspan(at, module[at] >> 16));
  }
}

}  // namespace bowline::detail::vulkan::spirv
