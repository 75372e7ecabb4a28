// The content of a step buffer on the host: its head, and numbers for the words of a layout by
// their names.
#pragma once

#include <cassert>

#include "plan/plan.h"

namespace bowline::detail::exec {

// The bits of a caller's number as the type of the word.
// Errors  bad_argument: the type does not hold it.
Result<uint64_t> bits_of(const StepWordInfo& word, const StepScalar& scalar);

// Allocates where it is made, and never again: it can be filled where nothing may fail.
class StepValues {
 public:
  explicit StepValues(plan::StepLayout layout);

  // Every word has its default, or is 0 where it has none; nothing was given.
  void reset();
  device::StepHead& head() { return *reinterpret_cast<device::StepHead*>(bytes_.data()); }

  // Gives a word that the layout may lack.
  template <class T>
  void set(std::string_view name, T number) {
    if (const plan::StepLayout::Place* p = layout_.find(name)) {
      assert(p->word->type == step_type<T>());
      give(*p, step_bits<T>(number));
    }
  }
  // Errors  bad_argument: there is no such word, it was given before, or its type does not hold the
  //         number.
  Status give(const StepScalar& scalar);
  bool has(const StepScalar& scalar) const { return layout_.find(scalar.name) != nullptr; }
  // Errors  bad_argument: a record of the plan reads a word that nobody gives: it has no default,
  //         and none writes it.
  Status check(const plan::Plan& plan) const;

  // The word was given since the last reset().
  bool is_given(std::string_view name) const {
    const plan::StepLayout::Place* p = layout_.find(name);
    return p != nullptr && given_[static_cast<size_t>(p - layout_.places().data())] != 0;
  }

  // 0 of a word that the layout lacks.
  template <class T>
  T get(std::string_view name) const {
    const plan::StepLayout::Place* p = layout_.find(name);
    assert(p == nullptr || p->word->type == step_type<T>());
    return p == nullptr ? T{} : step_number<T>(load_step(p->word->type, &bytes_[p->offset]));
  }
  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void give(const plan::StepLayout::Place& place, uint64_t bits);

  plan::StepLayout layout_;
  std::vector<std::byte> bytes_;
  std::vector<char> given_;  // by place of the layout
};

}  // namespace bowline::detail::exec
