#include "source/keys.h"

#include <algorithm>
#include <string>

#include "base/escape.h"
#include "base/status.h"
#include "base/words.h"

namespace bowline::import {

bool asks(const nlohmann::json& value) {
  const bool is_nothing = value.is_null() || value == false || (value.is_number() && value == 0) ||
                          ((value.is_structured() || value.is_string()) && value.empty());
  return !is_nothing;
}

Status check_key(std::string_view what, std::string_view key, const nlohmann::json& value,
                 std::initializer_list<std::span<const KeyRule>> tables) {
  constexpr size_t kMostShown = 80;
  const auto shown = [&] { return escaped(value.dump().substr(0, kMostShown)); };
  for (const std::span<const KeyRule> table : tables) {
    for (const KeyRule& rule : table) {
      if (!is_one_of(rule.keys, key)) {
        continue;
      }
      const nlohmann::json neutral = nlohmann::json::parse(rule.neutral);
      const bool accepted = rule.use != KeyUse::fixed ||
                            std::find(neutral.begin(), neutral.end(), value) != neutral.end();
      BOWLINE_REQUIRE_CODE(accepted, Code::unsupported,
                           "{} has \"{}\": {}, which changes the result of the model and is not "
                           "supported. Supported values: {}.",
                           what, key, shown(), rule.neutral);
      return {};
    }
  }
  BOWLINE_REQUIRE_CODE(key.starts_with('_') || !asks(value), Code::unsupported,
                       "{} has \"{}\": {}, which is not supported. Remove the key if it does not "
                       "change the result of the model.",
                       what, escaped(std::string(key)), shown());
  return {};
}

Status check_keys(std::string_view what, const nlohmann::json& object,
                  std::initializer_list<std::span<const KeyRule>> tables) {
  for (const auto& [key, value] : object.items()) {
    BOWLINE_TRY(check_key(what, key, value, tables));
  }
  return {};
}

}  // namespace bowline::import
