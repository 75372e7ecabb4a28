#include "bindings.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <map>
#include <utility>

#include "spirv.h"

namespace bowline::detail::vulkan {
namespace {

using namespace spirv;

// An address becomes a pair of words, in registers and in memory. Its type is declared before all
// others, because structures in memory may have addresses.
class WithBindings {
 public:
  explicit WithBindings(uint32_t buffers) : buffers_(buffers) {}

  std::vector<uint32_t> run(std::span<const uint32_t> module) {
    next_id_ = module[kBound];
    for_each_instruction(module, [this](Instruction i) { look_at(i); });
    for (uint32_t* const type : {&uint_, &pair_, &quad_}) {
      *type = *type == 0 ? next_id_++ : *type;
    }
    append(types_, kTypeInt, {uint_, 32, 0});
    append(types_, kTypeVector, {pair_, uint_, 2});
    append(types_, kTypeVector, {quad_, uint_, 4});
    std::vector<Instruction> head;
    for_each_instruction(module, [&](Instruction i) {
      const uint32_t op = operation(i);
      is_code_ = is_code_ || op == kFunction;
      if (is_code_) {
        rewrite_code(i);
      } else if (op < kTypeVoid || op == kDecorate || op == kMemberDecorate) {
        head.push_back(i);
      } else {
        rewrite_type(i);
      }
    });
    std::vector<uint32_t> out(module.begin(), module.begin() + kHeaderWords);
    for (const Instruction i : head) {
      put_head(i, out);
    }
    for (const auto* const section : {&decorations_, &types_, &code_, &functions_}) {
      out.insert(out.end(), section->begin(), section->end());
    }
    out[kBound] = next_id_;
    return out;
  }

 private:
  using Key = std::vector<uint32_t>;

  void look_at(Instruction i) {
    switch (operation(i)) {
      case kDecorate:
        if (i[2] == kArrayStride) {
          strides_[i[1]] = i[3];
        }
        break;
      case kMemberDecorate:
        if (i[3] == kOffset) {
          offsets_[{i[1], i[2]}] = i[4];
        }
        is_coherent_ = is_coherent_ || i[3] == kCoherent;
        break;
      case kConstant:
        constants_[i[2]] = i[3];
        break;
      case kTypeVoid:
        void_ = i[1];
        break;
      case kTypeInt:
        if (i[3] == 0 && i[2] <= 32) {
          (i[2] == 32 ? uint_ : i[2] == 16 ? ushort_ : uchar_) = i[1];
        }
        break;
      case kTypeVector:
        if (i[2] == uint_ && (i[3] == 2 || i[3] == 4)) {
          (i[3] == 2 ? pair_ : quad_) = i[1];
        }
        break;
      default:
        break;
    }
    if (operation(i) >= kTypeVoid && operation(i) <= kTypeFunction) {
      known_types_.emplace(i[1], i);
    }
  }

  void put_head(Instruction i, std::vector<uint32_t>& out) const {
    switch (operation(i)) {
      case kCapability:
        if (i[1] == kPhysicalStorageBufferAddresses) {
          return;
        }
        break;
      case kMemoryModel:
        append(out, kMemoryModel, {0, i[2]});  // logical addresses
        return;
      case kDecorate:
        if (i[2] == kAliasedPointer) {
          return;
        }
        break;
      default:
        break;
    }
    const size_t at = out.size();
    out.insert(out.end(), i.begin(), i.end());
    if (operation(i) == kEntryPoint) {
      for (const auto& [bytes, elements] : elements_) {
        out.push_back(elements.variable);
      }
      out[at] = static_cast<uint32_t>(out.size() - at) << 16 | kEntryPoint;
    }
  }

  // Types may become equal. Only structures and arrays may be declared twice.
  void rewrite_type(Instruction i) {
    const uint32_t op = operation(i);
    const bool is_type = op <= kTypeFunction;
    if (op == kTypeForwardPointer ||
        (is_type && (is_address_type(i[1]) || i[1] == uint_ || i[1] == pair_ || i[1] == quad_))) {
      return;
    }
    const bool has_types = op == kTypeArray || op == kTypeRuntimeArray || op == kTypeStruct ||
                           op == kTypeFunction || op == kTypePointer;
    const size_t first = op == kTypePointer ? 3 : has_types ? 2 : 1;
    Key words(i.begin(), i.end());
    for (size_t k = first; k < (has_types ? words.size() : 2); ++k) {
      words[k] = replaced(words[k]);
    }
    if (op == kTypePointer || op == kTypeFunction) {
      Key meaning = words;
      meaning[1] = 0;
      const auto [known, is_new] = declared_.emplace(std::move(meaning), i[1]);
      if (!is_new) {
        replaced_[i[1]] = known->second;
        return;
      }
    }
    if (!is_type) {
      type_of_[i[2]] = i[1];
    }
    types_.insert(types_.end(), words.begin(), words.end());
  }

  void rewrite_code(Instruction i) {
    const bool has_result = i.size() > 2 && known_types_.contains(i[1]);
    if (has_result) {
      type_of_[i[2]] = i[1];
    }
    if (access(i)) {
      return;
    }
    const size_t at = code_.size();
    code_.insert(code_.end(), i.begin(), i.end());
    if (has_result) {
      code_[at + 1] = replaced(i[1]);
    }
    if (operation(i) == kFunction) {
      code_[at + 4] = replaced(i[4]);
    }
  }

  // Returns false if the instruction uses no address, or only copies it.
  bool access(Instruction i) {
    switch (operation(i)) {
      case kAccessChain:
        return is_address(i[3]) && add_offset(i);
      case kLoad:
        if (!is_address(i[3])) {
          return false;
        }
        append(code_, kCopyObject,
               {replaced(i[1]), i[2], loaded(i[1], i[3], 0, alignment_of(i, 4))});
        return true;
      case kStore:
        return is_address(i[1]) && store(pointee(i[1]), i[1], 0, alignment_of(i, 3), i[2]);
      case kAtomicLoad:
      case kAtomicIAdd:
      case kAtomicAnd:
      case kAtomicOr:
        return is_address(i[3]) && update(i);
      case kBitcast:
        if (!is_address(i[3]) && !is_address_type(i[1])) {
          return false;
        }
        append(code_, kCopyObject, {replaced(i[1]), i[2], i[3]});
        return true;
      default:
        return false;
    }
  }

  // ---- addresses

  bool add_offset(Instruction i) {
    uint32_t low = make(code_, kCompositeExtract, uint_, {i[3], 0});
    uint32_t fixed = 0;
    uint32_t type = pointee(i[3]);
    for (const uint32_t index : i.subspan(4)) {
      const Instruction parts = known_types_.at(type);
      if (operation(parts) == kTypeStruct) {
        const uint32_t member = constants_.at(index);
        fixed += offsets_.at({type, member});
        type = parts[2 + member];
      } else {
        const uint32_t stride =
            operation(parts) == kTypeVector ? bytes_of(parts[2]) : strides_.at(type);
        const uint32_t skipped = make(code_, kIMul, uint_, {index, number(stride)});
        low = make(code_, kIAdd, uint_, {low, skipped});
        type = parts[2];
      }
    }
    low = make(code_, kIAdd, uint_, {low, number(fixed)});
    append(code_, kCompositeInsert, {pair_, i[2], low, i[3], 0});
    return true;
  }

  uint32_t plus(uint32_t address, uint32_t bytes) {
    if (bytes == 0) {
      return address;
    }
    const uint32_t low = make(code_, kCompositeExtract, uint_, {address, 0});
    const uint32_t moved = make(code_, kIAdd, uint_, {low, number(bytes)});
    return make(code_, kCompositeInsert, pair_, {moved, address, 0});
  }

  // ---- accesses

  struct Part {
    uint32_t type = 0;
    uint32_t offset = 0;
  };

  // The parts of a value that one access cannot take.
  std::vector<Part> parts_of(uint32_t type) const {
    const Instruction words = known_types_.at(type);
    std::vector<Part> parts;
    if (operation(words) == kTypeStruct) {
      for (uint32_t m = 0; m + 2 < words.size(); ++m) {
        parts.push_back({words[2 + m], offsets_.at({type, m})});
      }
      return parts;
    }
    const bool is_vector = operation(words) == kTypeVector;
    const uint32_t stride = is_vector ? bytes_of(words[2]) : strides_.at(type);
    for (uint32_t e = 0; e < (is_vector ? words[3] : constants_.at(words[3])); ++e) {
      parts.push_back({words[2], e * stride});
    }
    return parts;
  }

  // The bytes of the access that takes a whole value, or 0.
  uint32_t access_bytes(uint32_t type, uint32_t alignment) const {
    const Instruction words = known_types_.at(type);
    const uint32_t bytes = bytes_of(type);
    if (operation(words) != kTypeVector) {
      return bytes;
    }
    return bytes_of(words[2]) == 4 && std::has_single_bit(words[3]) && alignment >= bytes ? bytes
                                                                                          : 0;
  }

  uint32_t loaded(uint32_t type, uint32_t address, uint32_t offset, uint32_t alignment) {
    if (const uint32_t bytes = access_bytes(type, alignment); bytes != 0) {
      const uint32_t taken = passed_type(bytes);
      const uint32_t value =
          make(code_, kFunctionCall, taken, {function_for({kLoad, bytes}), plus(address, offset)});
      return converted(code_, value, taken, replaced(type), bytes);
    }
    Key values;
    for (const Part& part : parts_of(type)) {
      values.push_back(loaded(part.type, address, offset + part.offset,
                              alignment_at(offset + part.offset, alignment)));
    }
    const uint32_t result = next_id_++;
    append(code_, kCompositeConstruct, {type, result});
    code_[code_.size() - 3] += static_cast<uint32_t>(values.size()) << 16;
    code_.insert(code_.end(), values.begin(), values.end());
    return result;
  }

  // Returns true.
  bool store(uint32_t type, uint32_t address, uint32_t offset, uint32_t alignment, uint32_t value) {
    if (const uint32_t bytes = access_bytes(type, alignment); bytes != 0) {
      const uint32_t bits = converted(code_, value, replaced(type), passed_type(bytes), bytes);
      make(code_, kFunctionCall, void_,
           {function_for({kStore, bytes}), plus(address, offset), bits});
      return true;
    }
    uint32_t number_of_part = 0;
    for (const Part& part : parts_of(type)) {
      const uint32_t of_part =
          make(code_, kCompositeExtract, replaced(part.type), {value, number_of_part++});
      store(part.type, address, offset + part.offset, alignment_at(offset + part.offset, alignment),
            of_part);
    }
    return true;
  }

  // Atomic operations of words. Returns true.
  bool update(Instruction i) {
    const uint32_t function = function_for({operation(i), i[4], i[5]});
    if (operation(i) == kAtomicLoad) {
      append(code_, kFunctionCall, {i[1], i[2], function, i[3]});
    } else {
      append(code_, kFunctionCall, {i[1], i[2], function, i[3], i[6]});
    }
    return true;
  }

  // ---- functions: an access with a switch inside, which must not split the blocks of the shader

  // `key` is the operation with the size of the element, or with its scope and semantics.
  uint32_t function_for(const Key& key) {
    const auto [found, is_new] = function_of_.emplace(key, next_id_);
    if (is_new) {
      ++next_id_;
      define(key, found->second);
    }
    return found->second;
  }

  void define(const Key& key, uint32_t function) {
    const bool is_atomic = key.size() > 2;
    const uint32_t bytes = is_atomic ? 4 : key[1];
    const uint32_t passed = passed_type(bytes);
    const uint32_t result = key[0] == kStore ? void_ : passed;
    const bool takes_value = key[0] != kLoad && key[0] != kAtomicLoad;
    const uint32_t type =
        function_type(takes_value ? Key{result, pair_, passed} : Key{result, pair_});
    std::vector<uint32_t>& out = functions_;
    append(out, kFunction, {result, function, 0, type});
    const uint32_t address = make(out, kFunctionParameter, pair_, {});
    const uint32_t value = takes_value ? make(out, kFunctionParameter, passed, {}) : 0;
    append(out, kLabel, {next_id_++});
    const uint32_t low = make(out, kCompositeExtract, uint_, {address, 0});
    const auto power = static_cast<uint32_t>(std::countr_zero(bytes));
    const uint32_t index = make(out, kShiftRightLogical, uint_, {low, number(power)});
    if (buffers_ == 1) {
      access_buffer(key, value, index, 0);
    } else {
      const uint32_t merge = select_buffer(address);
      for (uint32_t b = 0; b < buffers_; ++b) {
        append(out, kLabel, {merge + 1 + b});
        access_buffer(key, value, index, b);
      }
      append(out, kLabel, {merge});
      append(out, kUnreachable, {});
    }
    append(out, kFunctionEnd, {});
  }

  // Jumps to the label of the buffer: merge + 1, merge + 2, ... for the buffers 0, 1, ... Returns
  // the label `merge`, which nothing reaches.
  uint32_t select_buffer(uint32_t address) {
    std::vector<uint32_t>& out = functions_;
    const uint32_t which = make(out, kCompositeExtract, uint_, {address, 1});
    const uint32_t merge = next_id_;
    next_id_ += 1 + buffers_;
    append(out, kSelectionMerge, {merge, 0});
    append(out, kSwitch, {which, merge + 1});
    out[out.size() - 3] += 2 * (buffers_ - 1) << 16;
    for (uint32_t b = 1; b < buffers_; ++b) {
      out.push_back(static_cast<uint32_t>(address_of_bound(b) >> 32));
      out.push_back(merge + 1 + b);
    }
    return merge;
  }

  void access_buffer(const Key& key, uint32_t value, uint32_t index, uint32_t buffer) {
    std::vector<uint32_t>& out = functions_;
    const bool is_atomic = key.size() > 2;
    const uint32_t bytes = is_atomic ? 4 : key[1];
    const Elements& elements = elements_of(bytes);
    const uint32_t at = make(out, kAccessChain, elements.pointer,
                             {elements.variable, number(buffer), number(0), index});
    const uint32_t passed = passed_type(bytes), element = element_type(bytes);
    if (key[0] == kStore) {
      append(out, kStore, {at, converted(out, value, passed, element, bytes)});
      append(out, kReturn, {});
      return;
    }
    const uint32_t result = !is_atomic   ? make(out, kLoad, element, {at})
                            : value == 0 ? make(out, key[0], element, {at, key[1], key[2]})
                                         : make(out, key[0], element, {at, key[1], key[2], value});
    append(out, kReturnValue, {converted(out, result, element, passed, bytes)});
  }

  uint32_t converted(std::vector<uint32_t>& out, uint32_t value, uint32_t from, uint32_t to,
                     uint32_t bytes) {
    return from == to ? value : make(out, bytes < 4 ? kUConvert : kBitcast, to, {value});
  }

  // ---- declarations

  // The array of buffers, as arrays of elements of one size.
  struct Elements {
    uint32_t variable = 0;
    uint32_t pointer = 0;  // the type of a pointer to an element
  };

  const Elements& elements_of(uint32_t bytes) {
    const auto [found, is_new] = elements_.emplace(bytes, Elements{});
    if (!is_new) {
      return found->second;
    }
    const uint32_t count = number(buffers_);
    const uint32_t array = next_id_++, block = next_id_++, blocks = next_id_++, all = next_id_++;
    const Elements made{next_id_++, next_id_++};
    append(types_, kTypeRuntimeArray, {array, element_type(bytes)});
    append(types_, kTypeStruct, {block, array});
    append(types_, kTypeArray, {blocks, block, count});
    append(types_, kTypePointer, {all, kStorageBuffer, blocks});
    append(types_, kVariable, {all, made.variable, kStorageBuffer});
    append(types_, kTypePointer, {made.pointer, kStorageBuffer, element_type(bytes)});
    append(decorations_, kDecorate, {array, kArrayStride, bytes});
    append(decorations_, kDecorate, {block, kBlock});
    append(decorations_, kMemberDecorate, {block, 0, kOffset, 0});
    if (is_coherent_) {
      append(decorations_, kMemberDecorate, {block, 0, kCoherent});
    }
    append(decorations_, kDecorate, {made.variable, kDescriptorSet, 0});
    append(decorations_, kDecorate, {made.variable, kBinding, 0});
    append(decorations_, kDecorate, {made.variable, kAliased});
    return found->second = made;
  }

  uint32_t element_type(uint32_t bytes) const {
    return bytes == 1 ? uchar_ : bytes == 2 ? ushort_ : passed_type(bytes);
  }
  // As functions take and return elements. They must not do that with less than 32 bits.
  uint32_t passed_type(uint32_t bytes) const {
    return bytes <= 4 ? uint_ : bytes == 8 ? pair_ : quad_;
  }

  // Of a result and parameters.
  uint32_t function_type(const Key& types) {
    Key words{static_cast<uint32_t>(types.size() + 2) << 16 | kTypeFunction, 0};
    words.insert(words.end(), types.begin(), types.end());
    const auto [known, is_new] = declared_.emplace(words, next_id_);
    if (is_new) {
      words[1] = next_id_++;
      types_.insert(types_.end(), words.begin(), words.end());
    }
    return known->second;
  }

  // The id of a constant.
  uint32_t number(uint32_t n) {
    const auto [found, is_new] = number_of_.emplace(n, next_id_);
    if (is_new) {
      append(types_, kConstant, {uint_, next_id_++, n});
    }
    return found->second;
  }

  // ---- what the module says

  bool is_address_type(uint32_t id) const {
    const auto found = known_types_.find(id);
    return found != known_types_.end() && operation(found->second) == kTypePointer &&
           found->second[2] == kPhysicalStorageBuffer;
  }
  bool is_address(uint32_t id) const {
    const auto found = type_of_.find(id);
    return found != type_of_.end() && is_address_type(found->second);
  }
  uint32_t pointee(uint32_t address) const { return known_types_.at(type_of_.at(address))[3]; }
  uint32_t replaced(uint32_t type) const {
    const auto found = replaced_.find(type);
    return is_address_type(type) ? pair_ : found == replaced_.end() ? type : found->second;
  }
  // Of scalars, vectors and addresses; others: 0.
  uint32_t bytes_of(uint32_t type) const {
    const Instruction words = known_types_.at(type);
    switch (operation(words)) {
      case kTypeInt:
      case kTypeFloat:
        return words[2] / 8;
      case kTypeVector:
        return words[3] * bytes_of(words[2]);
      case kTypePointer:
        return 8;
      default:
        return 0;
    }
  }
  // The alignment that a load or store promises in its optional operands from `at` on.
  static uint32_t alignment_of(Instruction i, size_t at) {
    constexpr uint32_t kAlignedAccess = 2;
    return i.size() > at + 1 && (i[at] & kAlignedAccess) != 0 ? i[at + 1] : 1;
  }
  static uint32_t alignment_at(uint32_t offset, uint32_t alignment) {
    return offset == 0 ? alignment : std::min(alignment, offset & (~offset + 1));
  }

  // Returns the id of the result.
  uint32_t make(std::vector<uint32_t>& out, uint32_t operation, uint32_t type,
                std::initializer_list<uint32_t> operands) {
    out.push_back(static_cast<uint32_t>(operands.size() + 3) << 16 | operation);
    out.push_back(type);
    out.push_back(next_id_);
    out.insert(out.end(), operands.begin(), operands.end());
    return next_id_++;
  }

  uint32_t buffers_;
  uint32_t next_id_ = 0;
  bool is_code_ = false;
  bool is_coherent_ = false;
  uint32_t void_ = 0, uchar_ = 0, ushort_ = 0, uint_ = 0;
  uint32_t pair_ = 0, quad_ = 0;  // vectors of 2 and 4 words
  std::map<uint32_t, Instruction> known_types_;
  std::map<uint32_t, uint32_t> constants_, strides_, type_of_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> offsets_;  // of the members of structures
  std::map<uint32_t, uint32_t> replaced_;                      // types by equal types
  std::map<Key, uint32_t> declared_;                           // types without their ids
  std::map<uint32_t, uint32_t> number_of_;
  std::map<Key, uint32_t> function_of_;
  std::map<uint32_t, Elements> elements_;  // by their size
  // The sections of the result after its head.
  std::vector<uint32_t> decorations_, types_, code_, functions_;
};

}  // namespace

std::vector<uint32_t> with_bindings(std::span<const uint32_t> module, uint32_t buffers) {
  return WithBindings(buffers).run(module);
}

}  // namespace bowline::detail::vulkan
