#include "word_elements.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "spirv.h"

namespace bowline::detail::vulkan {
namespace {

using namespace spirv;

constexpr uint32_t kWordBytes = sizeof(uint32_t);
// For atomic operations: the scope Device, and relaxed semantics.
constexpr uint32_t kDevice = 1;
constexpr uint32_t kRelaxed = 0;
// All constants that are inserted into modules.
constexpr uint32_t kNumbers[] = {0, 1, 2, 3, 4, 0xff, 0xffff, ~3u};

// The meaning of an id of the module.
enum class Kind : uint8_t {
  other,
  number,   // an 8-bit or 16-bit type that the device cannot access; replaced by the type of words
  array,    // a type: array of a number type
  pointer,  // a type: pointer to a number type
  element,  // a pointer to a number in memory; replaced by a pointer to its word
  value,    // a value of a number type
};

struct Id {
  Kind kind = Kind::other;
  uint32_t bytes = 0;  // size of the number
  uint32_t shift = 0;  // of an element: the id of its bit offset in the word
  uint32_t type = 0;   // of the loaded value
};

class InWords {
 public:
  explicit InWords(LackingAccess lacking) : lacking_(lacking) {}

  std::vector<uint32_t> run(std::span<const uint32_t> module) {
    next_id_ = module[kBound];
    ids_.resize(next_id_);
    for_each_instruction(module, [this](Instruction i) { look_at(i); });
    if (!any_) {
      return {module.begin(), module.end()};
    }
    put(module.first(kHeaderWords));
    for_each_instruction(module, [this](Instruction i) {
      if (!rewrite(i)) {
        put(i);
      }
    });
    out_[kBound] = next_id_;
    return std::move(out_);
  }

 private:
  void look_at(Instruction i) {
    switch (operation(i)) {
      case kTypeInt:
        if ((i[2] == 16 && lacking_.of_16_bits) || (i[2] == 8 && lacking_.of_8_bits)) {
          ids_[i[1]] = {Kind::number, i[2] / 8};
          any_ = true;
        } else if (i[2] == 32 && i[3] == 0) {
          uint_ = i[1];
        }
        break;
      case kTypeVector:
        pair_ = i[2] == uint_ && i[3] == 2 ? i[1] : pair_;
        break;
      case kTypeRuntimeArray:
        if (is(i[2], Kind::number)) {
          ids_[i[1]].kind = Kind::array;
        }
        break;
      case kTypePointer:
        if (is(i[3], Kind::number)) {
          ids_[i[1]] = {Kind::pointer, ids_[i[3]].bytes};
        }
        break;
      default:
        break;
    }
  }

  // Returns false if the instruction stays unchanged.
  bool rewrite(Instruction i) {
    switch (operation(i)) {
      case kCapability:
        return (i[1] == kStorageBuffer16BitAccess && lacking_.of_16_bits) ||
               (i[1] == kStorageBuffer8BitAccess && lacking_.of_8_bits);
      case kDecorate:
        return is(i[1], Kind::array) && i[2] == kArrayStride &&
               add(kDecorate, {i[1], i[2], kWordBytes});
      case kTypeInt:
        return is(i[1], Kind::number) || (i[1] == uint_ && declare(i));
      case kTypeVector:
        return i[1] == pair_;  // declared with the type of words
      case kTypeRuntimeArray:
        return is(i[1], Kind::array) && add(kTypeRuntimeArray, {i[1], uint_});
      case kTypePointer:
        return is(i[1], Kind::pointer) && add(kTypePointer, {i[1], i[2], uint_});
      case kAccessChain:
        return is(i[1], Kind::pointer) && access(i);
      case kLoad:
        ids_[i[2]].type = i[1];
        return is(i[1], Kind::number) && load(i);
      case kStore:
        return is(i[1], Kind::element) && store(i);
      case kUConvert:
        return is(i[1], Kind::number) ? narrow(i) : is(i[3], Kind::value) && widen(i);
      default:
        return false;
    }
  }

  // Declares the type of words, followed by the types and constants that the code below needs.
  bool declare(Instruction i) {
    add(kTypeInt, {i[1], i[2], i[3]});
    pair_ = pair_ == 0 ? next_id_++ : pair_;
    add(kTypeVector, {pair_, uint_, 2});
    first_number_ = next_id_;
    for (const uint32_t n : kNumbers) {
      make(kConstant, uint_, {n});
    }
    return true;
  }

  // Computes the word of an array element, and its bit offset. The array may start inside a word.
  bool access(Instruction i) {
    const uint32_t bytes = ids_[i[1]].bytes;
    const uint32_t power = bytes / 2;  // of two
    const uint32_t begin = make(kBitcast, pair_, {i[3]});
    const uint32_t low = make(kCompositeExtract, uint_, {begin, 0});
    const uint32_t inside = make(kBitwiseAnd, uint_, {low, number(kWordBytes - 1)});
    const uint32_t skipped = make(kShiftRightLogical, uint_, {inside, number(power)});
    const uint32_t at = make(kIAdd, uint_, {skipped, i[5]});
    const uint32_t word = make(kShiftRightLogical, uint_, {at, number(2 - power)});
    const uint32_t part = make(kBitwiseAnd, uint_, {at, number(kWordBytes / bytes - 1)});
    const uint32_t shift = make(kShiftLeftLogical, uint_, {part, number(3 + power)});
    const uint32_t aligned = make(kBitwiseAnd, uint_, {low, number(~(kWordBytes - 1))});
    const uint32_t first = make(kCompositeInsert, pair_, {aligned, begin, 0});
    const uint32_t words = make(kBitcast, ids_[i[3]].type, {first});
    ids_[i[2]] = {Kind::element, bytes, shift};
    return add(kAccessChain, {i[1], i[2], words, i[4], word});
  }

  bool load(Instruction i) {
    const Id& element = ids_[i[3]];
    const uint32_t word = make(kAtomicLoad, uint_, {i[3], number(kDevice), number(kRelaxed)});
    const uint32_t lowest = make(kShiftRightLogical, uint_, {word, element.shift});
    ids_[i[2]].kind = Kind::value;
    return add(kBitwiseAnd, {uint_, i[2], lowest, mask(element)});
  }

  // Clears the part of the word, then sets it. No other invocation accesses this element meanwhile,
  // and other parts stay unchanged.
  bool store(Instruction i) {
    const Id& element = ids_[i[1]];
    const uint32_t part = make(kShiftLeftLogical, uint_, {mask(element), element.shift});
    const uint32_t others = make(kNot, uint_, {part});
    const uint32_t bits = make(kShiftLeftLogical, uint_, {i[2], element.shift});
    make(kAtomicAnd, uint_, {i[1], number(kDevice), number(kRelaxed), others});
    make(kAtomicOr, uint_, {i[1], number(kDevice), number(kRelaxed), bits});
    return true;
  }

  bool narrow(Instruction i) {
    ids_[i[2]].kind = Kind::value;
    return add(kBitwiseAnd, {uint_, i[2], i[3], mask(ids_[i[1]])});
  }
  bool widen(Instruction i) { return add(kCopyObject, {i[1], i[2], i[3]}); }

  bool is(uint32_t id, Kind kind) const { return ids_[id].kind == kind; }
  uint32_t mask(const Id& of) const { return number((1u << 8 * of.bytes) - 1); }
  // The id of one of kNumbers.
  uint32_t number(uint32_t n) const {
    return first_number_ + static_cast<uint32_t>(std::ranges::find(kNumbers, n) - kNumbers);
  }

  // Returns true.
  bool add(uint32_t operation, std::initializer_list<uint32_t> operands) {
    append(out_, operation, operands);
    return true;
  }
  // Returns the id of the result.
  uint32_t make(uint32_t operation, uint32_t type, std::initializer_list<uint32_t> operands) {
    put(std::array{static_cast<uint32_t>(operands.size() + 3) << 16 | operation, type, next_id_});
    put(operands);
    return next_id_++;
  }
  void put(std::span<const uint32_t> words) { out_.insert(out_.end(), words.begin(), words.end()); }

  LackingAccess lacking_;
  std::vector<Id> ids_;  // of the original module
  bool any_ = false;     // the module has number types
  std::vector<uint32_t> out_;
  uint32_t next_id_ = 0;
  uint32_t uint_ = 0;  // the types of words and of pairs of words
  uint32_t pair_ = 0;
  uint32_t first_number_ = 0;
};

}  // namespace

std::vector<uint32_t> elements_in_words(std::span<const uint32_t> module, LackingAccess lacking) {
  return InWords(lacking).run(module);
}

}  // namespace bowline::detail::vulkan
