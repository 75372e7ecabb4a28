#include "finetune/optimizer_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "common/find.h"
#include "common/flags.h"
#include "common/help.h"

namespace bowline::command {
namespace {

constexpr float kMost = 1e6f;  // the bound of settings without one

// A setting of one optimizer.
struct Having {
  std::string_view optimizer;
  unsigned bit;
  const OptimizerSetting* setting;
};

std::vector<InputKind> kinds_of_optimizers() {
  std::vector<InputKind> out;
  for (const OptimizerInfo& info : optimizers()) {
    out.push_back({1u << out.size(), info.name});
  }
  return out;
}

std::map<std::string_view, std::vector<Having>> all_settings() {
  std::map<std::string_view, std::vector<Having>> out;
  for (size_t i = 0; i < optimizers().size(); ++i) {
    for (const OptimizerSetting& s : optimizers()[i].settings) {
      if (s.name != "weight_decay" && s.name != "decay_all") {
        out[s.name].push_back({optimizers()[i].name, 1u << i, &s});
      }
    }
  }
  return out;
}

// "For rmsprop, sgd: momentum factor [0]". If the optimizers describe the setting differently, its
// name replaces the description. A default is left out if the defaults differ, a description if the
// line has no room for it. operators.md lists both.
std::string help_of(const std::vector<Having>& having) {
  constexpr size_t kWidth = 50;
  std::vector<std::string_view> names;
  std::set<float> defaults;
  std::set<std::string_view> descriptions;
  for (const Having& h : having) {
    names.push_back(h.optimizer);
    defaults.insert(h.setting->default_value);
    descriptions.insert(h.setting->description);
  }
  const OptimizerSetting& first = *having[0].setting;
  const std::string owners = fmt::format("For {}", fmt::join(names, ", "));
  const std::string ending =
      first.is_flag || defaults.size() > 1 ? "" : fmt::format(" [{:g}]", first.default_value);
  const std::string whole = fmt::format(
      "{}: {}{}", owners, descriptions.size() > 1 ? first.name : first.description, ending);
  return whole.size() <= kWidth ? whole : owners + ending;
}

// Returns a range that includes the ranges of all optimizers.
CLI::Validator range_of(const std::vector<Having>& having) {
  const auto low = [](const Having& h) { return h.setting->min; };
  const auto high = [](const Having& h) { return h.setting->max; };
  const Having& highest = *std::ranges::max_element(having, {}, high);
  const double least = std::max(std::ranges::min_element(having, {}, low)->setting->min, -kMost);
  const double most = std::min(highest.setting->max, kMost);
  return highest.setting->max_inclusive || most == kMost ? real_number(least, most)
                                                         : real_number_below(least, most);
}

}  // namespace

std::string optimizer_flag(std::string_view setting) {
  std::string out(setting);
  std::ranges::replace(out, '_', '-');
  return out;
}

void add_optimizer_flags(CLI::App* verb, FinetuneOptions& o) {
  std::vector<std::string> names;
  for (const OptimizerInfo& info : optimizers()) {
    names.emplace_back(info.name);
  }
  add_choice(verb, "--optimizer", o.train.optimizer.name, "", names)->type_name("NAME");
  o.optimizer_uses = FlagUses(verb);
  for (const auto& [name, having] : all_settings()) {
    const auto give = [&o, key = std::string(name)](float value) {
      o.train.optimizer.settings[key] = value;
    };
    const std::string flag = "--" + optimizer_flag(name);
    CLI::Option* const option = having[0].setting->is_flag
                                    ? verb->add_flag_callback(
                                          flag, [give] { give(1); }, help_of(having))
                                    : verb->add_option_function<float>(flag, give, help_of(having))
                                          ->check(range_of(having));
    option->group(kAdvanced);
    unsigned kinds = 0;
    for (const Having& h : having) {
      kinds |= h.bit;
    }
    o.optimizer_uses.add(option, kinds);
  }
}

Status check_optimizer_flags(const FinetuneOptions& o) {
  const std::vector<InputKind> kinds = kinds_of_optimizers();
  return o.optimizer_uses.check(find_named(kinds, o.train.optimizer.name)->bit, kinds);
}

}  // namespace bowline::command
