// Parses untrusted JSON with limits, and reads typed values from it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::import {

// Limit of the nesting depth. Model files are less deep, and a recursive parser or destructor
// handles this depth safely.
inline constexpr int kMostJsonDepth = 64;

// Parses a JSON text. `what` names the text in messages ("config.json").
// Errors  bad_file: the text is not valid JSON (with line and column), is nested deeper than
//         kMostJsonDepth, or has a duplicate key in an object.
Result<nlohmann::json> parse_json(std::string_view what, std::string_view text);

// Reads typed values from an object. status() returns the first failure. A null value counts as
// absent.
class Fields {
 public:
  // `object` must outlive this. `what` names the object in messages.
  Fields(std::string what, const nlohmann::json& object);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // True if the key is present with the value null.
  bool is_null(std::string_view key) const;
  // Errors  bad_file: the value is absent, is not an integer, or is out of range.
  int64_t integer(std::string_view key, int64_t least, int64_t most);
  int64_t integer_or(std::string_view key, int64_t least, int64_t most, int64_t otherwise);
  double number(std::string_view key, double least, double most);
  double number_or(std::string_view key, double least, double most, double otherwise);
  bool boolean_or(std::string_view key, bool otherwise);
  std::string text(std::string_view key);
  std::string text_or(std::string_view key, std::string otherwise);
  // (optional) A list of strings; empty if absent.
  std::vector<std::string> texts(std::string_view key);
  // (optional) A list of numbers; empty if absent.
  std::vector<double> numbers(std::string_view key, double least, double most);
  // (optional) An object or a list; null if absent.
  const nlohmann::json* object(std::string_view key);
  const nlohmann::json* list(std::string_view key);

  const std::string& what() const { return what_; }
  const Status& status() const { return status_; }
  // Keeps only the first failure.
  void fail(std::string sentence);

 private:
  const nlohmann::json* find(std::string_view key) const;
  const nlohmann::json* need(std::string_view key);
  // Returns a value, or null after a failure: it is not what is `wanted`.
  const nlohmann::json* checked(std::string_view key, const nlohmann::json* value, bool is_right,
                                std::string_view wanted);

  std::string what_;
  const nlohmann::json& object_;
  Status status_;
};

// Shortens a value for a message.
std::string shown(const nlohmann::json& value);

}  // namespace bowline::import
