// Rejects flags that would have no effect on the given input.
//
// For example, --seq is rejected for conversations. A flag that only permits something, such as
// --force, is always accepted.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// A kind of input with its name in messages: "an ONNX file".
struct InputKind {
  unsigned bit;
  std::string_view name;
};

class FlagUses {
 public:
  FlagUses() = default;
  explicit FlagUses(const CLI::App* verb) : verb_(verb) {}

  // Declares that flags have an effect only on inputs of `kinds`, a set of bits.
  void add(const CLI::Option* flag, unsigned kinds) { uses_.push_back({flag, kinds}); }
  void add(std::initializer_list<const char*> flags, unsigned kinds);

  // True if a flag was given.
  bool given(const char* flag) const;
  // Returns the value of a flag, or an empty text if the flag was not given.
  std::string if_given(const char* flag, const std::string& value) const {
    return given(flag) ? value : std::string();
  }

  // Errors  bad_argument: a flag was given that has no effect on an input of `kind`.
  Status check(unsigned kind, std::span<const InputKind> names) const;
  // Errors  bad_argument: `flag` was given although `has_effect` is false. `why` is the reason in
  // the
  //         message.
  Status check(const char* flag, bool has_effect, std::string_view why) const;

 private:
  struct Use {
    const CLI::Option* option;
    unsigned kinds;
  };

  const CLI::App* verb_ = nullptr;
  std::vector<Use> uses_;
};

}  // namespace bowline::command
