// Tables of the supported keys of settings files. A key that changes the result of a model is never
// ignored silently.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "bowline.h"

namespace bowline::import {

enum class KeyUse : uint8_t {
  read,
  harmless,  // does not change the values that the model computes
  fixed,     // changes the values and is not supported: only the values in `neutral` are accepted
};

struct KeyRule {
  std::string_view keys;  // separated by spaces
  KeyUse use = KeyUse::read;
  std::string_view neutral = "[null]";  // a JSON list
};

// False for values that have no effect: null, false, 0 and empty values.
bool asks(const nlohmann::json& value);

// Checks a key against tables. `what` names the file in messages. The first table that has the key
// counts. A key that begins with "_" is a comment of its author.
// Errors  unsupported: a fixed key has another value, or the value of an unknown key has an effect.
Status check_key(std::string_view what, std::string_view key, const nlohmann::json& value,
                 std::initializer_list<std::span<const KeyRule>> tables);
// Checks all keys of an object.
Status check_keys(std::string_view what, const nlohmann::json& object,
                  std::initializer_list<std::span<const KeyRule>> tables);

}  // namespace bowline::import
