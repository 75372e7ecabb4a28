// What a reader does with each key of a file of settings: a table beside the reader, so that
// nothing that changes values is passed over.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "bowline.h"

namespace bowline::import {

enum class KeyUse : uint8_t {
  read,
  harmless,  // changes no value that the model computes
  fixed,     // changes values, and is not read: one of `neutral` alone is accepted
};

struct KeyRule {
  std::string_view key;
  KeyUse use = KeyUse::read;
  std::string_view neutral = "[null]";  // a list of JSON
};

// Whether a value asks for anything: null, false, 0, and what is empty do not.
bool asks(const nlohmann::json& value);

// `what` names the file in messages. A key that begins with "_" is a note of its writer. The first
// table that has a key counts.
// Errors  unsupported: a fixed key has another value; a key that no table has asks for something.
Status check_key(std::string_view what, std::string_view key, const nlohmann::json& value,
                 std::initializer_list<std::span<const KeyRule>> tables);
// Of each key of an object.
Status check_keys(std::string_view what, const nlohmann::json& object,
                  std::initializer_list<std::span<const KeyRule>> tables);

}  // namespace bowline::import
