#include "module.h"

#include <algorithm>
#include <cstring>
#include <spirv/unified1/spirv.hpp11>

#include "base/status.h"
#include "matrices.h"
#include "values.h"

namespace bowline::detail::vulkan::machine {
namespace {

using Words = std::span<const uint32_t>;

struct Type {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    vector,
    array,
    structure,
    pointer,
    matrix
  };
  Kind kind = Kind::none;
  uint32_t bits = 0;     // of a component
  uint32_t element = 0;  // type of vector, array, pointer
  uint32_t count = 0;    // of vector and array; 0: at run time
  uint32_t storage = 0;  // of pointer
  std::vector<uint32_t> members;
  uint32_t registers = 0;
  uint32_t bytes = 0;  // in memory
  Matrix matrix;
  Element element_kind = Element::f32;  // of a scalar
};

class Decoder {
 public:
  Decoder(Words words, const std::map<uint32_t, uint32_t>& constants)
      : words_(words), constants_(constants) {}

  Module run() {
    module_.registers.assign(1, kPoison);
    for (size_t at = 5; at < words_.size() && module_.refusal.empty(); at += words_[at] >> 16) {
      decode(words_.subspan(at, words_[at] >> 16));
    }
    if (module_.refusal.empty()) {
      resolve();
    }
    return std::move(module_);
  }

 private:
  struct PendingEdge {
    uint32_t from, to;  // labels
  };
  struct Phi {
    uint32_t block, to;
    std::vector<std::pair<uint32_t, uint32_t>> sources;  // value, block
  };
  struct Function {
    uint32_t entry = 0;
    std::vector<uint32_t> parameters;
  };

  void refuse(std::string what) {
    if (module_.refusal.empty()) {
      module_.refusal = std::move(what);
    }
  }

  // ---- types and registers

  const Type& type(uint32_t id) { return types_[id]; }
  const Type& type_of(uint32_t value) { return types_[type_ids_[value]]; }
  uint32_t bits_of(uint32_t value) { return type_of(value).bits; }
  uint32_t at(uint32_t value) {
    if (!slots_.contains(value)) {
      refuse(format("The value %{} is used before it is defined (block %{}, operation {}).", value,
                    block_, module_.operations.size()));
    }
    return slots_[value];
  }

  uint32_t define(uint32_t type_id, uint32_t value) {
    const auto slot = static_cast<uint32_t>(module_.registers.size());
    module_.registers.resize(slot + type(type_id).registers, kPoison);
    slots_[value] = slot;
    type_ids_[value] = type_id;
    return slot;
  }

  uint32_t decoration(uint32_t target, spv::Decoration which, uint32_t otherwise) {
    const auto found = decorations_.find({target, static_cast<uint32_t>(which)});
    return found == decorations_.end() ? otherwise : found->second;
  }
  uint32_t member_offset(uint32_t structure, uint32_t member, uint32_t otherwise) {
    const auto found = offsets_.find({structure, member});
    return found == offsets_.end() ? otherwise : found->second;
  }
  uint32_t stride_of(uint32_t array) {
    return decoration(array, spv::Decoration::ArrayStride, type(type(array).element).bytes);
  }

  void add_type(Words i) {
    Type& t = types_[i[1]];
    using Kind = Type::Kind;
    switch (static_cast<spv::Op>(i[0] & 0xffff)) {
      case spv::Op::OpTypeBool:
        t.kind = Kind::boolean;
        t.bits = t.registers = 1;
        t.bytes = 4;
        break;
      case spv::Op::OpTypeInt:
      case spv::Op::OpTypeFloat:
        t.kind = (i[0] & 0xffff) == static_cast<uint32_t>(spv::Op::OpTypeInt) ? Kind::integer
                                                                              : Kind::real;
        t.bits = i[2];
        t.registers = i[2] == 64 ? 2 : 1;
        t.bytes = i[2] / 8;
        // A third operand names an encoding; kernels use only that of bfloat16.
        t.element_kind = i[2] == 32 ? Element::f32 : i.size() > 3 ? Element::bf16 : Element::f16;
        break;
      case spv::Op::OpTypePointer:
      case spv::Op::OpTypeForwardPointer:
        t.kind = Kind::pointer;
        t.bits = 64;
        t.storage = i[2];
        t.element = i.size() > 3 ? i[3] : 0;
        t.registers = 2;
        t.bytes = 8;
        break;
      case spv::Op::OpTypeVector:
      case spv::Op::OpTypeArray:
      case spv::Op::OpTypeRuntimeArray: {
        const Type& element = type(i[2]);
        const bool vector = (i[0] & 0xffff) == static_cast<uint32_t>(spv::Op::OpTypeVector);
        t.kind = vector ? Kind::vector : Kind::array;
        t.bits = element.bits;
        t.element = i[2];
        t.count = i.size() < 4 ? 0 : vector ? i[3] : module_.registers[at(i[3])];
        t.registers = t.count * element.registers;
        t.bytes = t.count == 0 ? 0 : (t.count - 1) * stride_of(i[1]) + element.bytes;
        break;
      }
      case spv::Op::OpTypeStruct:
        t.kind = Kind::structure;
        for (uint32_t m = 2; m < i.size(); ++m) {
          t.members.push_back(i[m]);
          t.registers += type(i[m]).registers;
          t.bytes = std::max(t.bytes, member_offset(i[1], m - 2, t.bytes) + type(i[m]).bytes);
        }
        break;
      default:  // void and functions
        break;
    }
  }

  // Calls each(member type, offset in bytes) for the parts of a composite type.
  template <class Each>
  void for_each_part(uint32_t id, const Each& each) {
    const Type& t = type(id);
    uint32_t offset = 0;
    for (uint32_t m = 0; m < t.members.size(); ++m) {
      offset = member_offset(id, m, offset);
      each(t.members[m], offset);
      offset += type(t.members[m]).bytes;
    }
    for (uint32_t k = 0; t.members.empty() && k < t.count; ++k) {
      each(t.element, k * (t.kind == Type::Kind::vector ? type(t.element).bytes : stride_of(id)));
    }
  }

  void add_matrix_type(Words i) {
    Type& t = types_[i[1]];
    const Type& element = type(i[2]);
    t.kind = Type::Kind::matrix;
    t.bits = element.bits;
    const auto scope = static_cast<spv::Scope>(module_.registers[at(i[3])]);
    t.matrix = {module_.registers[at(i[4])], module_.registers[at(i[5])], element.element_kind,
                scope == spv::Scope::Workgroup};
    t.registers = t.matrix.is_of_workgroup ? 1 : t.matrix.rows * t.matrix.columns;
    t.bytes = t.registers * sizeof(uint32_t);  // in variables of a lane
    if (scope != spv::Scope::Subgroup && scope != spv::Scope::Workgroup) {
      refuse("The machine knows only matrices of subgroups and workgroups.");
    }
    if (element.kind != Type::Kind::real) {
      refuse("The machine knows only matrices of floats.");
    }
  }

  void add_leaves(uint32_t id, uint32_t offset, uint32_t* slot, std::vector<Leaf>* leaves) {
    const Type& t = type(id);
    if (!t.members.empty() || t.count != 0) {
      for_each_part(
          id, [&](uint32_t part, uint32_t by) { add_leaves(part, offset + by, slot, leaves); });
      return;
    }
    leaves->push_back({offset, t.bytes, *slot});
    *slot += t.registers;
  }

  uint32_t access_of(uint32_t id, uint32_t storage, uint32_t alignment) {
    const std::array<uint32_t, 3> key = {id, storage, alignment};
    const auto [found, added] =
        accesses_.emplace(key, static_cast<uint32_t>(module_.accesses.size()));
    if (added) {
      Access access{storage, alignment, type(id).bytes, false, {}};
      uint32_t slot = 0;
      add_leaves(id, 0, &slot, &access.leaves);
      access.is_word = access.leaves.size() == 1 && access.bytes == sizeof(uint32_t);
      module_.accesses.push_back(std::move(access));
    }
    return found->second;
  }

  // ---- constants, variables

  void set_constant(uint32_t value, uint32_t word) { module_.registers[slots_[value]] = word; }

  void add_constant(Words i) {
    const auto code = static_cast<spv::Op>(i[0] & 0xffff);
    const uint32_t slot = define(i[1], i[2]);
    const auto special = constants_.find(decoration(i[2], spv::Decoration::SpecId, ~0u));
    switch (code) {
      case spv::Op::OpConstantTrue:
        set_constant(i[2], 1);
        break;
      case spv::Op::OpConstantFalse:
        set_constant(i[2], 0);
        break;
      case spv::Op::OpSpecConstantTrue:
      case spv::Op::OpSpecConstantFalse:
        set_constant(i[2], special != constants_.end()           ? (special->second != 0 ? 1 : 0)
                           : code == spv::Op::OpSpecConstantTrue ? 1
                                                                 : 0);
        break;
      case spv::Op::OpConstant:
      case spv::Op::OpSpecConstant:
        std::copy(i.begin() + 3, i.end(), module_.registers.begin() + slot);
        if (special != constants_.end()) {
          set_constant(i[2], special->second);
        }
        break;
      case spv::Op::OpConstantNull:
        std::fill_n(module_.registers.begin() + slot, type(i[1]).registers, 0);
        break;
      default:  // composites
        if (type(i[1]).matrix.is_of_workgroup) {
          const Matrix& matrix = type(i[1]).matrix;
          set_constant(i[2], static_cast<uint32_t>(module_.matrices.size()));
          module_.matrices.emplace_back(size_t{matrix.rows} * matrix.columns,
                                        module_.registers[at(i[3])]);
          break;
        }
        copy_all_parts(i[1], i.subspan(3), slot, [this](Copy c) {
          std::copy_n(module_.registers.begin() + c.from, c.count,
                      module_.registers.begin() + c.to);
        });
        if (decoration(i[2], spv::Decoration::BuiltIn, ~0u) ==
            static_cast<uint32_t>(spv::BuiltIn::WorkgroupSize)) {
          std::copy_n(module_.registers.begin() + slot, 3, module_.local.begin());
        }
    }
  }

  // One part of a matrix is the value of all its elements.
  template <class Each>
  void copy_all_parts(uint32_t type_id, Words parts, uint32_t to, const Each& each) {
    const bool fills = type(type_id).kind == Type::Kind::matrix;
    refuse_elements(type(type_id));
    for (uint32_t k = 0; k < (fills ? type(type_id).registers : 1); ++k) {
      copy_parts(parts, to + k, each);
    }
  }

  template <class Each>
  void copy_parts(Words parts, uint32_t to, const Each& each) {
    for (const uint32_t part : parts) {
      const uint32_t count = type_of(part).registers;
      each(Copy{to, at(part), count});
      to += count;
    }
  }

  // An operation on constants is decoded as any other, then executed here.
  void add_constant_operation(Words i) {
    std::vector<uint32_t> plain = {(static_cast<uint32_t>(i.size()) - 1) << 16 | i[3], i[1], i[2]};
    plain.insert(plain.end(), i.begin() + 4, i.end());
    const size_t before = module_.operations.size();
    decode(plain);
    for (size_t k = before; k < module_.operations.size(); ++k) {
      const Operation& o = module_.operations[k];
      if (o.execute == nullptr) {
        return refuse(format("The machine cannot compute constants with operation {}.", i[3]));
      }
      o.execute(module_.registers.data(), o);
    }
    module_.operations.resize(before);
  }

  void add_variable(Words i) {
    Variable v;
    v.storage = i[3];
    v.pointer = define(i[1], i[2]);
    const uint32_t pointee = type(i[1]).element;
    v.bytes = type(pointee).bytes;
    v.access = access_of(pointee, v.storage, 1);
    v.builtin = decoration(i[2], spv::Decoration::BuiltIn, ~0u);
    if (i.size() > 4) {
      v.has_initial = true;
      v.initial = at(i[4]);
    }
    const auto storage = static_cast<spv::StorageClass>(v.storage);
    if (storage == spv::StorageClass::PushConstant) {
      module_.push_bytes = v.bytes;
    } else {
      uint32_t& end =
          storage == spv::StorageClass::Workgroup ? module_.shared_bytes : module_.lane_bytes;
      v.offset = (end + 15) / 16 * 16;
      end = v.offset + v.bytes;
    }
    if (storage == spv::StorageClass::Function) {
      emit({.code = code_of(i), .a = static_cast<uint32_t>(module_.variables.size())});
    }
    module_.variables.push_back(v);
  }

  // ---- operations

  static uint16_t code_of(Words i) { return static_cast<uint16_t>(i[0] & 0xffff); }
  void emit(const Operation& o) { module_.operations.push_back(o); }

  void refuse_elements(const Type& t) {
    if (t.matrix.is_of_workgroup) {
      refuse(
          "The machine knows only loads, stores, products and constants of a workgroup's matrix.");
    }
  }

  uint32_t components(uint32_t value) {
    const Type& t = type_of(value);
    refuse_elements(t);
    return t.kind == Type::Kind::matrix ? t.registers : t.kind == Type::Kind::vector ? t.count : 1;
  }

  static void copy_registers(uint32_t* r, const Operation& o) {
    std::copy_n(r + o.a, o.count, r + o.to);
  }
  void emit_copy(Copy c) {
    emit({.code = static_cast<uint16_t>(spv::Op::OpCopyObject),
          .count = static_cast<uint16_t>(c.count),
          .to = c.to,
          .a = c.from,
          .execute = copy_registers});
  }

  void compute_select(Words i, Operation* o) {
    o->a = at(i[3]);
    o->b = at(i[4]);
    o->c = at(i[5]);
    const uint32_t conditions = components(i[3]), registers = type(i[1]).registers;
    if (conditions == 1) {
      o->count = static_cast<uint16_t>(registers);
      o->execute = select_whole;
    } else {
      o->count = static_cast<uint16_t>(registers / conditions << 8 | conditions);
      o->execute = computes(o->code, {1, 1}, nan_);
    }
  }

  void compute(Words i) {
    Operation o{.code = code_of(i), .to = define(i[1], i[2])};
    if (static_cast<spv::Op>(o.code) == spv::Op::OpSelect) {
      compute_select(i, &o);
    } else if (static_cast<spv::Op>(o.code) == spv::Op::OpExtInst) {
      o.execute = computes_extended(i[4], nan_);
      o.count = static_cast<uint16_t>(components(i[2]));
      o.a = at(i[5]);
      o.b = i.size() > 6 ? at(i[6]) : 0;
      o.c = i.size() > 7 ? at(i[7]) : 0;
    } else {
      o.execute = computes(o.code, {bits_of(i[3]), type(i[1]).bits}, nan_);
      o.count = static_cast<uint16_t>(components(i[3]));
      o.a = at(i[3]);
      o.b = i.size() > 4 ? at(i[4]) : 0;
    }
    if (o.execute == nullptr) {
      refuse(format("The machine does not know operation {} (extended: {}).", o.code,
                    i.size() > 4 ? i[4] : 0));
    }
    emit(o);
  }

  // Follows literal indices into a composite value. Returns the register of the part.
  uint32_t part_of(uint32_t value, Words indices, uint32_t* part_type) {
    uint32_t slot = at(value), id = type_ids_[value];
    for (const uint32_t index : indices) {
      const Type& t = type(id);
      if (t.members.empty()) {
        slot += index * type(t.element).registers;
        id = t.element;
      } else {
        for (uint32_t m = 0; m < index; ++m) {
          slot += type(t.members[m]).registers;
        }
        id = t.members[index];
      }
    }
    *part_type = id;
    return slot;
  }

  void add_chain(Words i) {
    Chain chain;
    uint32_t id = type_of(i[3]).element;
    size_t first = 4;
    if (type_of(i[3]).storage == static_cast<uint32_t>(spv::StorageClass::StorageBuffer)) {
      chain.buffer = at(i[first++]);  // the variable is an array of descriptors
      id = type(id).element;
    }
    for (const uint32_t index : i.subspan(first)) {
      const Type& t = type(id);
      if (!t.members.empty()) {
        const uint32_t member = module_.registers[at(index)];
        uint32_t offset = 0;
        for (uint32_t m = 0; m <= member; ++m) {
          offset = member_offset(id, m, offset) + (m < member ? type(t.members[m]).bytes : 0);
        }
        chain.offset += offset;
        id = t.members[member];
        continue;
      }
      const uint32_t stride = t.kind == Type::Kind::vector ? type(t.element).bytes : stride_of(id);
      chain.indices.push_back({at(index), stride, t.count});
      id = t.element;
    }
    emit({.code = code_of(i),
          .to = define(i[1], i[2]),
          .a = at(i[3]),
          .b = static_cast<uint32_t>(module_.chains.size())});
    module_.chains.push_back(std::move(chain));
  }

  // The operand after Aligned, if the memory operands have it.
  static uint32_t alignment_of(Words i, size_t operands) {
    const auto kAligned = static_cast<uint32_t>(spv::MemoryAccessMask::Aligned);
    return i.size() > operands + 1 && (i[operands] & kAligned) != 0 ? i[operands + 1] : 1;
  }

  uint32_t edge(uint32_t to) {
    pending_.push_back({block_, to});
    return static_cast<uint32_t>(pending_.size() - 1);
  }

  void decode_group_operation(Words i) {
    Operation o{.code = code_of(i), .to = define(i[1], i[2])};
    o.count = static_cast<uint16_t>(type(i[1]).registers);
    const auto code = static_cast<spv::Op>(o.code);
    const bool reduces =
        code >= spv::Op::OpGroupNonUniformIAdd && code <= spv::Op::OpGroupNonUniformLogicalXor;
    if (code == spv::Op::OpGroupNonUniformElect) {
      emit(o);
      return;
    }
    if (reduces) {
      o.c = i[4];  // spv::GroupOperation
      if (i.size() > 6) {
        refuse("The machine does not know clustered reductions.");
      }
    }
    o.a = at(i[reduces ? 5 : 4]);
    if (!reduces && i.size() > 5) {
      o.b = at(i[5]);
    }
    emit(o);
  }

  void decode_composite(Words i) {
    const auto code = static_cast<spv::Op>(code_of(i));
    const uint32_t to = define(i[1], i[2]);
    uint32_t part = 0;
    switch (code) {
      case spv::Op::OpCompositeConstruct:
        copy_all_parts(i[1], i.subspan(3), to, [this](Copy c) { emit_copy(c); });
        break;
      case spv::Op::OpCompositeExtract: {
        const uint32_t from = part_of(i[3], i.subspan(4), &part);
        emit_copy({to, from, type(part).registers});
        break;
      }
      case spv::Op::OpCompositeInsert: {
        emit_copy({to, at(i[4]), type(i[1]).registers});
        const uint32_t place = part_of(i[2], i.subspan(5), &part);
        emit_copy({place, at(i[3]), type(part).registers});
        break;
      }
      case spv::Op::OpVectorShuffle: {
        const uint32_t first = components(i[3]), size = type(type(i[1]).element).registers;
        for (uint32_t k = 5; k < i.size(); ++k) {
          const bool second = i[k] >= first;
          emit_copy({to + (k - 5) * size,
                     at(second ? i[4] : i[3]) + (second ? i[k] - first : i[k]) * size, size});
        }
        break;
      }
      default:  // the same bits in another type
        emit_copy({to, at(i[3]), type(i[1]).registers});
    }
  }

  void decode_control(Words i) {
    Operation o{.code = code_of(i)};
    switch (static_cast<spv::Op>(o.code)) {
      case spv::Op::OpBranch:
        o.a = edge(i[1]);
        break;
      case spv::Op::OpBranchConditional:
        o.a = at(i[1]);
        o.b = edge(i[2]);
        o.c = edge(i[3]);
        break;
      case spv::Op::OpSwitch: {
        Switch s;
        s.otherwise = edge(i[2]);
        for (uint32_t k = 3; k + 1 < i.size(); k += 2) {
          s.cases.emplace_back(i[k], edge(i[k + 1]));
        }
        o.a = at(i[1]);
        o.b = static_cast<uint32_t>(module_.switches.size());
        module_.switches.push_back(std::move(s));
        break;
      }
      case spv::Op::OpReturnValue:
        o.a = at(i[1]);
        o.count = static_cast<uint16_t>(type_of(i[1]).registers);
        break;
      case spv::Op::OpControlBarrier:
        o.a = module_.registers[at(i[1])];  // spv::Scope
        break;
      case spv::Op::OpFunctionCall: {
        o.to = define(i[1], i[2]);
        o.a = static_cast<uint32_t>(module_.calls.size());
        Call call;
        for (const uint32_t argument : i.subspan(4)) {
          call.arguments.push_back({0, at(argument), type_of(argument).registers});
        }
        module_.calls.push_back(std::move(call));
        callees_.push_back(i[3]);
        break;
      }
      default:  // return, unreachable
        break;
    }
    emit(o);
  }

  void decode_memory(Words i) {
    Operation o{.code = code_of(i)};
    if (static_cast<spv::Op>(o.code) == spv::Op::OpLoad) {
      o.to = define(i[1], i[2]);
      o.a = at(i[3]);
      o.b = access_of(i[1], type_of(i[3]).storage, alignment_of(i, 4));
    } else {
      o.to = at(i[2]);
      o.a = at(i[1]);
      o.b = access_of(type_ids_[i[2]], type_of(i[1]).storage, alignment_of(i, 3));
    }
    // Most accesses: one word of a variable of the lane, which needs no check.
    const Access& access = module_.accesses[o.b];
    const auto storage = static_cast<spv::StorageClass>(access.storage);
    if (access.is_word &&
        (storage == spv::StorageClass::Function || storage == spv::StorageClass::Private)) {
      o.execute = static_cast<spv::Op>(o.code) == spv::Op::OpLoad ? load_word : store_word;
    }
    emit(o);
  }

  // Returns false if the instruction has nothing to do with matrices.
  bool decode_matrix(Words i) {
    switch (code_of(i)) {
      case kTypeMatrix:
        add_matrix_type(i);
        return true;
      case kLoadMatrix:
      case kStoreMatrix: {
        const bool loads = code_of(i) == kLoadMatrix;
        const uint32_t pointer = loads ? i[3] : i[1];
        Operation o{.code = code_of(i)};
        o.to = loads ? define(i[1], i[2]) : at(i[2]);
        o.a = at(pointer);
        o.b = static_cast<uint32_t>(module_.matrix_accesses.size());
        const size_t layout = loads ? 4 : 3;
        module_.matrix_accesses.push_back(
            {type(loads ? i[1] : type_ids_[i[2]]).matrix, type_of(pointer).storage, at(i[layout]),
             at(i[layout + 1]), type(type_of(pointer).element).bytes, alignment_of(i, layout + 2)});
        emit(o);
        return true;
      }
      case kMultiplyMatrices: {
        Operation o{.code = code_of(i), .to = define(i[1], i[2])};
        o.a = at(i[3]);
        o.b = at(i[4]);
        o.c = at(i[5]);
        o.count = static_cast<uint16_t>(module_.products.size());
        module_.products.push_back({type_of(i[3]).matrix, type_of(i[4]).matrix});
        if (type_of(i[5]).matrix.element != Element::f32) {
          refuse("The machine knows only sums in f32.");
        }
        emit(o);
        return true;
      }
      default:
        return false;
    }
  }

  void decode_atomic(Words i) {
    const uint32_t access = access_of(i[1], type_of(i[3]).storage, sizeof(uint32_t));
    if (!module_.accesses[access].is_word) {
      return refuse("The machine knows only atomic operations on words.");
    }
    emit({.code = code_of(i),
          .to = define(i[1], i[2]),
          .a = at(i[3]),
          .b = access,
          .c = i.size() > 6 ? at(i[6]) : 0});
  }

  static void load_word(uint32_t* r, const Operation& o) {
    const char* from = nullptr;
    std::memcpy(&from, r + o.a, sizeof(from));
    std::memcpy(r + o.to, from, sizeof(*r));
  }
  static void store_word(uint32_t* r, const Operation& o) {
    char* to = nullptr;
    std::memcpy(&to, r + o.a, sizeof(to));
    std::memcpy(to, r + o.to, sizeof(*r));
  }

  void decode_function(Words i) {
    switch (static_cast<spv::Op>(code_of(i))) {
      case spv::Op::OpFunction:
        function_ = i[2];
        functions_[function_].entry = static_cast<uint32_t>(module_.operations.size());
        break;
      case spv::Op::OpFunctionParameter:
        functions_[function_].parameters.push_back(define(i[1], i[2]));
        break;
      case spv::Op::OpLabel:
        block_ = i[1];
        labels_[block_] = static_cast<uint32_t>(module_.operations.size());
        break;
      default: {  // phi
        Phi phi{block_, define(i[1], i[2]), {}};
        for (uint32_t k = 3; k + 1 < i.size(); k += 2) {
          phi.sources.emplace_back(i[k], i[k + 1]);
        }
        phis_.push_back(std::move(phi));
      }
    }
  }

  bool decode_declaration(Words i) {
    const auto code = static_cast<spv::Op>(code_of(i));
    switch (code) {
      case spv::Op::OpEntryPoint:
        entry_ = i[2];
        return true;
      case spv::Op::OpExecutionMode:
        if (i[2] == static_cast<uint32_t>(spv::ExecutionMode::LocalSize)) {
          std::copy_n(i.begin() + 3, 3, module_.local.begin());
        } else if (i[2] == static_cast<uint32_t>(spv::ExecutionMode::SignedZeroInfNanPreserve)) {
          nan_ = NaN::kept;
        }
        return true;
      case spv::Op::OpDecorate:
        decorations_[{i[1], i[2]}] = i.size() > 3 ? i[3] : 1;
        return true;
      case spv::Op::OpMemberDecorate:
        if (i[3] == static_cast<uint32_t>(spv::Decoration::Offset)) {
          offsets_[{i[1], i[2]}] = i[4];
        }
        return true;
      case spv::Op::OpTypeForwardPointer:
        add_type(i);
        return true;
      case spv::Op::OpVariable:
        add_variable(i);
        return true;
      case spv::Op::OpUndef:
        define(i[1], i[2]);
        return true;
      case spv::Op::OpSpecConstantOp:
        add_constant_operation(i);
        return true;
      default:
        break;
    }
    if (code >= spv::Op::OpTypeVoid && code <= spv::Op::OpTypeFunction) {
      add_type(i);
    } else if (code >= spv::Op::OpConstantTrue && code <= spv::Op::OpSpecConstantComposite) {
      add_constant(i);
    } else {
      return false;
    }
    return true;
  }

  void decode(Words i) {
    switch (static_cast<spv::Op>(code_of(i))) {
      case spv::Op::OpSource:
      case spv::Op::OpSourceExtension:
      case spv::Op::OpString:
      case spv::Op::OpName:
      case spv::Op::OpMemberName:
      case spv::Op::OpLine:
      case spv::Op::OpNoLine:
      case spv::Op::OpModuleProcessed:
      case spv::Op::OpExtension:
      case spv::Op::OpExtInstImport:
      case spv::Op::OpMemoryModel:
      case spv::Op::OpCapability:
      case spv::Op::OpSelectionMerge:
      case spv::Op::OpLoopMerge:
      case spv::Op::OpFunctionEnd:
      case spv::Op::OpMemoryBarrier:
        return;
      case spv::Op::OpFunction:
      case spv::Op::OpFunctionParameter:
      case spv::Op::OpLabel:
      case spv::Op::OpPhi:
        return decode_function(i);
      case spv::Op::OpLoad:
      case spv::Op::OpStore:
        return decode_memory(i);
      case spv::Op::OpAtomicLoad:
      case spv::Op::OpAtomicIAdd:
      case spv::Op::OpAtomicAnd:
      case spv::Op::OpAtomicOr:
        return decode_atomic(i);
      case spv::Op::OpAccessChain:
      case spv::Op::OpInBoundsAccessChain:
        return add_chain(i);
      case spv::Op::OpCompositeConstruct:
      case spv::Op::OpCompositeExtract:
      case spv::Op::OpCompositeInsert:
      case spv::Op::OpVectorShuffle:
      case spv::Op::OpCopyObject:
      case spv::Op::OpCopyLogical:
      case spv::Op::OpBitcast:
      case spv::Op::OpConvertPtrToU:
      case spv::Op::OpConvertUToPtr:
        return decode_composite(i);
      case spv::Op::OpBranch:
      case spv::Op::OpBranchConditional:
      case spv::Op::OpSwitch:
      case spv::Op::OpReturn:
      case spv::Op::OpReturnValue:
      case spv::Op::OpUnreachable:
      case spv::Op::OpFunctionCall:
      case spv::Op::OpControlBarrier:
        return decode_control(i);
      default:
        break;
    }
    const auto code = static_cast<spv::Op>(code_of(i));
    if (code >= spv::Op::OpGroupNonUniformElect && code <= spv::Op::OpGroupNonUniformLogicalXor) {
      decode_group_operation(i);
    } else if (!decode_declaration(i) && !decode_matrix(i)) {
      compute(i);
    }
  }

  // Labels, functions and phi values may be named before they are defined.
  void resolve() {
    for (const PendingEdge& pending : pending_) {
      Edge e{labels_[pending.to], {}};
      for (const Phi& phi : phis_) {
        for (const auto& [value, block] : phi.sources) {
          if (phi.block == pending.to && block == pending.from) {
            e.copies.push_back({phi.to, at(value), type_of(value).registers});
          }
        }
      }
      module_.edges.push_back(std::move(e));
    }
    for (size_t k = 0; k < callees_.size(); ++k) {
      const Function& callee = functions_[callees_[k]];
      module_.calls[k].target = callee.entry;
      for (size_t p = 0; p < module_.calls[k].arguments.size(); ++p) {
        module_.calls[k].arguments[p].to = callee.parameters[p];
      }
    }
    module_.entry = functions_[entry_].entry;
  }

  Words words_;
  const std::map<uint32_t, uint32_t>& constants_;
  Module module_;
  std::map<uint32_t, Type> types_;
  std::map<uint32_t, uint32_t> slots_, type_ids_;  // of values
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> decorations_, offsets_;
  std::map<std::array<uint32_t, 3>, uint32_t> accesses_;
  std::map<uint32_t, uint32_t> labels_;
  std::map<uint32_t, Function> functions_;
  std::vector<PendingEdge> pending_;
  std::vector<Phi> phis_;
  std::vector<uint32_t> callees_;
  uint32_t entry_ = 0, function_ = 0, block_ = 0;
  NaN nan_ = NaN::assumed;
};

}  // namespace

Module decode(std::span<const uint32_t> words, const std::map<uint32_t, uint32_t>& constants) {
  return Decoder(words, constants).run();
}

}  // namespace bowline::detail::vulkan::machine
