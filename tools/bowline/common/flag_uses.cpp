#include "common/flag_uses.h"

#include <string>

#include "base/status.h"
#include "common/strings.h"

namespace bowline::command {
namespace {

std::string names_of(unsigned kinds, std::span<const InputKind> names) {
  std::vector<InputKind> chosen;
  std::ranges::copy_if(names, std::back_inserter(chosen),
                       [&](const InputKind& kind) { return (kinds & kind.bit) != 0; });
  return joined(chosen, &InputKind::name);
}

}  // namespace

void FlagUses::add(std::initializer_list<const char*> flags, unsigned kinds) {
  for (const char* flag : flags) {
    add(verb_->get_option(flag), kinds);
  }
}

Status FlagUses::check(unsigned kind, std::span<const InputKind> names) const {
  for (const Use& use : uses_) {
    BOWLINE_REQUIRE(use.option->count() == 0 || (use.kinds & kind) != 0,
                    "{} has no effect on {}; it is for {}.", use.option->get_name(),
                    names_of(kind, names), names_of(use.kinds, names));
  }
  return {};
}

bool FlagUses::given(const char* flag) const {
  const CLI::Option* option = verb_ == nullptr ? nullptr : verb_->get_option_no_throw(flag);
  return option != nullptr && option->count() != 0;
}

Status FlagUses::check(const char* flag, bool has_effect, std::string_view why) const {
  BOWLINE_REQUIRE(has_effect || !given(flag), "{} has no effect: {}.", flag, why);
  return {};
}

}  // namespace bowline::command
