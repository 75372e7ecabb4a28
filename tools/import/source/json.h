// JSON from outside: read with limits, and asked for values of one kind.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::import {

// Deeper than any file of a model, and far from where a parser or a destructor that calls itself
// would end.
inline constexpr int kMostJsonDepth = 64;

// The value of a JSON text. `what` names it in messages ("config.json"). Errors  bad_file: it is no
// JSON (with line and column), is
// nested deeper than kMostJsonDepth, or an object has a key twice.
Result<nlohmann::json> parse_json(std::string_view what, std::string_view text);

// Asks an object for values of one kind: the first failure sticks, and status() has it. A key that
// is null is absent.
class Fields {
 public:
  // `object` outlives this. `what` names it in messages.
  Fields(std::string what, const nlohmann::json& object);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // What stands there is null.
  bool is_null(std::string_view key) const;
  // Errors  absent, no integer, or outside the limits.
  int64_t integer(std::string_view key, int64_t least, int64_t most);
  int64_t integer_or(std::string_view key, int64_t least, int64_t most, int64_t otherwise);
  double number(std::string_view key, double least, double most);
  double number_or(std::string_view key, double least, double most, double otherwise);
  bool boolean_or(std::string_view key, bool otherwise);
  std::string text(std::string_view key);
  std::string text_or(std::string_view key, std::string otherwise);
  // (optional) A list of texts; absent: empty.
  std::vector<std::string> texts(std::string_view key);
  // (optional) An object, or null.
  const nlohmann::json* object(std::string_view key);

  const std::string& what() const { return what_; }
  const Status& status() const { return status_; }
  // Keeps the first failure.
  void fail(std::string sentence);

 private:
  const nlohmann::json* find(std::string_view key) const;
  const nlohmann::json* need(std::string_view key);

  std::string what_;
  const nlohmann::json& object_;
  Status status_;
};

// A value as a short text for a message.
std::string shown(const nlohmann::json& value);

}  // namespace bowline::import
