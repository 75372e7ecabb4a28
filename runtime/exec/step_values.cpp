#include "exec/step_values.h"

#include <cmath>
#include <limits>

namespace bowline::detail::exec {
namespace {

std::string known_words(const plan::StepLayout& layout) {
  std::string out;
  for (const plan::StepLayout::Place& p : layout.places()) {
    out += format("{}{} ({})", out.empty() ? "" : ", ", p.word->name, p.word->type);
  }
  return out.empty() ? "none" : out;
}

// The value as a 64-bit integer, if it is one.
std::optional<uint64_t> whole(const StepScalar& scalar) {
  if (const auto* number = std::get_if<uint64_t>(&scalar.value)) {
    return *number;
  }
  const double d = std::get<double>(scalar.value);
  if (!(d >= 0 && d < 0x1p64) || d != std::floor(d)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(d);
}

}  // namespace

Result<uint64_t> bits_of(const StepWordInfo& word, const StepScalar& scalar) {
  const auto refused = [&] {
    const std::string number = std::visit([](auto n) { return format("{}", n); }, scalar.value);
    return Status(Code::bad_argument,
                  format("Per-step scalar \"{}\" is {}, which cannot hold {}.", word.name,
                         word.type == StepType::f32   ? "an f32"
                         : word.type == StepType::u32 ? "a u32"
                                                      : "a u64",
                         number));
  };
  if (word.type == StepType::f32) {
    const double number = std::visit([](auto n) { return static_cast<double>(n); }, scalar.value);
    if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max()))) {
      return refused();
    }
    return step_bits<float>(static_cast<float>(number));
  }
  const std::optional<uint64_t> number = whole(scalar);
  if (!number || (word.type == StepType::u32 && *number > UINT32_MAX)) {
    return refused();
  }
  return *number;
}

StepValues::StepValues(plan::StepLayout layout)
    : layout_(std::move(layout)), bytes_(layout_.bytes()), given_(layout_.places().size()) {
  reset();
}

void StepValues::reset() {
  head() = {};
  for (size_t i = 0; i < given_.size(); ++i) {
    const plan::StepLayout::Place& p = layout_.places()[i];
    give(p, p.word->default_bits.value_or(0));
    given_[i] = 0;
  }
}

void StepValues::give(const plan::StepLayout::Place& place, uint64_t bits) {
  store_step(place.word->type, bits, &bytes_[place.offset]);
  given_[static_cast<size_t>(&place - layout_.places().data())] = 1;
}

Status StepValues::give(const StepScalar& scalar) {
  const plan::StepLayout::Place* const p = layout_.find(scalar.name);
  BOWLINE_REQUIRE(p != nullptr, "There is no per-step scalar \"{}\"; the graph has: {}.",
                  scalar.name, known_words(layout_));
  BOWLINE_REQUIRE(given_[static_cast<size_t>(p - layout_.places().data())] == 0,
                  "Per-step scalar \"{}\" is given twice.", scalar.name);
  BOWLINE_TRY_ASSIGN(const uint64_t bits, bits_of(*p->word, scalar));
  give(*p, bits);
  return {};
}

Status StepValues::check(const plan::Plan& plan) const {
  for (const plan::StepUse& use : plan.steps) {
    const plan::StepLayout::Place* const p = layout_.find(use.word->name);
    const bool needed = use.reader != plan::StepUse::kNobody && !use.word->default_bits &&
                        !p->written &&
                        given_[static_cast<size_t>(p - layout_.places().data())] == 0;
    BOWLINE_REQUIRE(!needed,
                    "Per-step scalar \"{}\" ({}) of {} has no default, and no value is given.",
                    use.word->name, use.word->type, plan.nodes[use.reader]);
  }
  return {};
}

}  // namespace bowline::detail::exec
