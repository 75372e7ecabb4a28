// A compute shader in SPIR-V, decoded for the machine: one list of operations over registers.
//
// A value has one register per component of at most 32 bits, and two per component of 64 bits. Each
// result of the module has registers of its own: functions of a shader do not recurse. A pointer is
// an address of this process, so memory of any storage class is read in the same way.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace bowline::detail::vulkan::machine {

// The content of memory and registers before anything is written. As a float, it is a NaN.
constexpr uint32_t kPoison = 0x7fbadbad;

struct Operation;
using Execute = void (*)(uint32_t* registers, const Operation& operation);

struct Operation {
  uint16_t code = 0;   // spv::Op
  uint16_t count = 0;  // components, or registers that are copied
  uint32_t to = 0;     // register of the result
  // Registers of the operands, or indices of tables of the module (see module.cpp).
  uint32_t a = 0, b = 0, c = 0;
  Execute execute = nullptr;  // of operations that only change `to`
};

struct Copy {
  uint32_t to, from, count;
};

// A jump to a block, which first sets the block's phi values.
struct Edge {
  uint32_t target = 0;  // operation
  std::vector<Copy> copies;
};

struct Switch {
  std::vector<std::pair<uint32_t, uint32_t>> cases;  // value, edge
  uint32_t otherwise = 0;                            // edge
};

struct Call {
  uint32_t target = 0;  // operation
  std::vector<Copy> arguments;
};

// A scalar in memory and its register.
struct Leaf {
  uint32_t offset, bytes, at;
};

// How a value of a type lies in memory of a storage class.
struct Access {
  uint32_t storage = 0;    // spv::StorageClass
  uint32_t alignment = 1;  // that the instruction promises
  uint32_t bytes = 0;
  bool is_word = false;  // one scalar of 32 bits
  std::vector<Leaf> leaves;
};

struct Index {
  uint32_t at;      // register
  uint32_t stride;  // bytes
  uint32_t count;   // 0: unknown
};

struct Chain {
  // Register of the number of a bound buffer, where the chain begins; empty: at a pointer.
  std::optional<uint32_t> buffer = {};
  uint64_t offset = 0;
  std::vector<Index> indices;
};

struct Variable {
  uint32_t storage = 0;
  uint32_t pointer = 0;  // register
  uint32_t offset = 0;   // bytes, in the memory of its storage class
  uint32_t bytes = 0;
  uint32_t builtin = ~0u;  // spv::BuiltIn
  bool has_initial = false;
  uint32_t initial = 0;  // register
  uint32_t access = 0;   // to store the initial value
};

enum class Element : uint8_t { f16, bf16, f32 };

// A subgroup has its matrices in registers of its lanes. A matrix of a workgroup is in a table, and
// each lane has its number in a register.
struct Matrix {
  uint32_t rows = 0, columns = 0;
  Element element = Element::f32;
  bool is_of_workgroup = false;
};

// The elements of a matrix by rows, as registers have them.
using Elements = std::vector<uint32_t>;

struct MatrixAccess {
  Matrix matrix;
  uint32_t storage = 0;
  uint32_t layout = 0, stride = 0;  // registers
  uint32_t unit_bytes = 0;          // of the stride
  uint32_t alignment = 1;           // that the instruction promises
};

struct MatrixProduct {
  Matrix a, b;
};

struct Module {
  std::string refusal;  // what the machine does not know; empty: none
  std::vector<Operation> operations;
  std::vector<uint32_t> registers;  // with constants; others are poison
  std::vector<Edge> edges;
  std::vector<Switch> switches;
  std::vector<Call> calls;
  std::vector<Access> accesses;
  std::vector<Chain> chains;
  std::vector<Variable> variables;
  std::vector<MatrixAccess> matrix_accesses;
  std::vector<MatrixProduct> products;
  std::vector<Elements> matrices;  // constants of workgroups
  uint32_t entry = 0;              // operation
  uint32_t lane_bytes = 0;         // of Function, Private and Input variables
  uint32_t shared_bytes = 0;       // of Workgroup variables
  uint32_t push_bytes = 0;
  std::array<uint32_t, 3> local = {1, 1, 1};
};

// `constants` are specialization constants by number.
Module decode(std::span<const uint32_t> words, const std::map<uint32_t, uint32_t>& constants);

}  // namespace bowline::detail::vulkan::machine
