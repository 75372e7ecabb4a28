#include "core/operand_types.h"

#include <algorithm>
#include <array>

#include "base/status.h"
#include "bowline.h"

namespace bowline {
namespace {

constexpr std::array kAll = {DType::f32, DType::f16, DType::bf16, DType::i8,
                             DType::u8,  DType::i32, DType::i64,  DType::boolean};
static_assert(kAll.size() == kDTypes);

// Word i of one side, or the last word past the end.
std::string_view word_at(std::string_view side, size_t i) {
  for (; i > 0 && side.find(',') != side.npos; --i) {
    side.remove_prefix(side.find(',') + 1);
  }
  side = side.substr(0, side.find(','));
  const size_t begin = std::min(side.find_first_not_of(' '), side.size());
  side.remove_prefix(begin);
  return side.substr(0, side.find(' '));
}

struct Sides {
  explicit Sides(std::string_view types)
      : inputs(types.substr(0, types.find("->"))), outputs(types.substr(types.find("->") + 2)) {}
  std::string_view inputs;
  std::string_view outputs;
};

bool is_letter(std::string_view word) { return word.size() == 1; }

std::span<const DType> set_of(std::string_view word) {
  if (is_letter(word)) {
    const std::span all(kAll);
    return word == "F"   ? all.first(3)
           : word == "N" ? all.first(kAll.size() - 1)
           : word == "T" ? all.last(1)
                         : all;
  }
  // An empty word has no dtype: an operator without inputs.
  const auto* const at = std::ranges::find(kAll, word, [](DType t) { return name_of(t); });
  return at == kAll.end() ? std::span<const DType>() : std::span(at, 1);
}

std::string text_of(std::span<const DType> set) {
  std::string out;
  for (size_t i = 0; i < set.size(); ++i) {
    out += i == 0 ? "" : i + 1 == set.size() ? " or " : ", ";
    out += name_of(set[i]);
  }
  return out;
}

// The dtypes that the letters stand for.
class Letters {
 public:
  // The operand that gave a letter its dtype, for messages.
  struct Meaning {
    DType type;
    std::string_view kind;
    size_t operand;
  };
  std::optional<Meaning>& of(std::string_view word) {
    return meanings_[static_cast<size_t>(word.front() - 'A')];
  }

 private:
  std::array<std::optional<Meaning>, 26> meanings_;
};

Status check_side(std::string_view side, std::string_view kind, std::string_view op,
                  std::span<const DType> types, Letters& letters) {
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string_view word = word_at(side, i);
    const std::span<const DType> set = set_of(word);
    BOWLINE_REQUIRE(std::ranges::find(set, types[i]) != set.end(), "{} {} of {} is {}, not {}.",
                    kind, i, op, types[i], text_of(set));
    if (is_letter(word)) {
      std::optional<Letters::Meaning>& meaning = letters.of(word);
      meaning = meaning.value_or(Letters::Meaning{types[i], kind, i});
      BOWLINE_REQUIRE(types[i] == meaning->type, "{} {} of {} is {}, but {} {} is {}.", kind, i, op,
                      types[i], meaning->kind == "Input" ? "input" : "output", meaning->operand,
                      meaning->type);
    }
  }
  return {};
}

}  // namespace

Status check_operand_types(const char* types, std::string_view op, std::span<const DType> inputs,
                           std::span<const DType> outputs) {
  const Sides sides(types);
  Letters letters;
  BOWLINE_TRY(check_side(sides.inputs, "Input", op, inputs, letters));
  return check_side(sides.outputs, "Output", op, outputs, letters);
}

std::optional<DType> output_type(const char* types, int i, std::span<const DType> inputs) {
  const Sides sides(types);
  const std::string_view word = word_at(sides.outputs, static_cast<size_t>(i));
  if (!is_letter(word)) {
    return set_of(word).front();
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (word_at(sides.inputs, k) == word) {
      return inputs[k];
    }
  }
  return std::nullopt;
}

DType storage_type(const char* types, std::span<const DType> inputs,
                   std::span<const DType> outputs) {
  const Sides sides(types);
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (is_letter(word_at(sides.inputs, k))) {
      return inputs[k];
    }
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (is_letter(word_at(sides.outputs, k))) {
      return outputs[k];
    }
  }
  return DType::f32;
}

std::span<const DType> types_of_input(const char* types, size_t i) {
  return set_of(word_at(Sides(types).inputs, i));
}

}  // namespace bowline
