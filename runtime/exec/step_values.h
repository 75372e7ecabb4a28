// The contents of a step buffer on the host: its head and its per-step scalars.
#pragma once

#include <cassert>

#include "plan/plan.h"

namespace bowline::detail::exec {

// Returns the bits of the caller's value in the type of the per-step scalar.
// Errors  bad_argument: the type cannot represent the value.
Result<uint64_t> bits_of(const StepWordInfo& word, const StepScalar& scalar);

// Only the constructor allocates memory. So values can be set where nothing may fail.
class StepValues {
 public:
  explicit StepValues(plan::StepLayout layout);

  // Sets each scalar to its default, or to 0 if it has none. No scalar counts as given.
  void reset();
  device::StepHead& head() { return *reinterpret_cast<device::StepHead*>(bytes_.data()); }

  // Sets a scalar. Does nothing if the layout does not have it.
  template <class T>
  void set(std::string_view name, T number) {
    if (const plan::StepLayout::Place* p = layout_.find(name)) {
      assert(p->word->type == step_type<T>());
      give(*p, step_bits<T>(number));
    }
  }
  // Errors  bad_argument: there is no such scalar, it was given before, or its type cannot
  //         represent the value.
  Status give(const StepScalar& scalar);
  bool has(const StepScalar& scalar) const { return layout_.find(scalar.name) != nullptr; }
  // Errors  bad_argument: a record reads a scalar without a default that was not given and that no
  //         record writes.
  Status check(const plan::Plan& plan) const;

  // Returns true if the scalar was given since the last reset().
  bool is_given(std::string_view name) const {
    const plan::StepLayout::Place* p = layout_.find(name);
    return p != nullptr && given_[static_cast<size_t>(p - layout_.places().data())] != 0;
  }

  // Returns a scalar, or 0 if the layout does not have it.
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
  std::vector<char> given_;  // by index in layout_.places()
};

}  // namespace bowline::detail::exec
