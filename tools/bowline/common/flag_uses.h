// Refuses flags that would have no effect on the given input, in one way for all verbs.
//
// A flag is refused if what it asks for would be ignored, as --seq is for conversations. A flag
// that asks for what happens anyway is fine, and so is one that only permits something, as --force
// does.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// A kind of input, and how messages call it: "an ONNX file".
struct InputKind {
  unsigned bit;
  std::string_view name;
};

class FlagUses {
 public:
  FlagUses() = default;
  explicit FlagUses(const CLI::App* verb) : verb_(verb) {}

  // Declares that a flag, or flags of the verb, have an effect only on inputs of `kinds`, as bits.
  void add(const CLI::Option* flag, unsigned kinds) { uses_.push_back({flag, kinds}); }
  void add(std::initializer_list<const char*> flags, unsigned kinds);

  // Errors  bad_argument: a flag was given that has no effect on an input of `kind`.
  Status check(unsigned kind, std::span<const InputKind> names) const;
  // Errors  bad_argument: `flag` was given, and has no effect because of `why`.
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
