#include "source/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/escape.h"
#include "base/status.h"
#include "base/utf8.h"

namespace bowline::import {
namespace {

using nlohmann::json;

std::string place_of(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = std::ranges::count(before, '\n') + 1;
  const size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}", line, before.size() - begin + 1);
}

// Checks the depth before parsing, because the parser and the destructor are recursive.
Status check_depth(std::string_view what, std::string_view text) {
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      i += c == '\\' ? 1 : 0;
      in_text = c != '"';
      continue;
    }
    in_text = c == '"';
    depth += c == '[' || c == '{' ? 1 : 0;
    depth -= c == ']' || c == '}' ? 1 : 0;
    BOWLINE_REQUIRE_CODE(depth <= kMostJsonDepth, Code::bad_file,
                         "{} is nested deeper than {} at {}.", what, kMostJsonDepth,
                         place_of(text, i));
  }
  return {};
}

// Builds the value in one pass and stops at the first duplicate key of an object. The library's
// parser with a callback would visit an object again after each entry.
class Builder : public json::json_sax_t {
 public:
  json root;
  std::optional<std::string> twice;
  bool is_out_of_range = false;  // a number is out of range for a double
  size_t failed_at = 0;          // offset of the error

  bool null() override { return put(nullptr); }
  bool boolean(bool x) override { return put(x); }
  bool number_integer(json::number_integer_t x) override { return put(x); }
  bool number_unsigned(json::number_unsigned_t x) override { return put(x); }
  bool number_float(json::number_float_t x, const std::string&) override { return put(x); }
  bool string(std::string& x) override { return put(std::move(x)); }
  bool binary(json::binary_t& x) override { return put(std::move(x)); }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    const auto [entry, is_new] =
        open_.back()->get_ref<json::object_t&>().try_emplace(std::move(name));
    entry_ = &entry->second;
    if (!is_new) {
      twice = entry->first;
    }
    return is_new;
  }
  bool parse_error(size_t position, const std::string&, const json::exception& e) override {
    constexpr int kOutOfRange = 406;
    is_out_of_range = e.id == kOutOfRange;
    failed_at = position;
    return false;
  }

 private:
  // Adds the value as the root, as the next array entry, or at the current key.
  template <class Value>
  json* place(Value&& value) {
    if (open_.empty()) {
      root = std::forward<Value>(value);
      return &root;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::forward<Value>(value));
      return &open_.back()->back();
    }
    *entry_ = std::forward<Value>(value);
    return entry_;
  }
  template <class Value>
  bool put(Value&& value) {
    place(json(std::forward<Value>(value)));
    return true;
  }
  bool open(json&& container) {
    open_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<json*> open_;  // open objects and arrays; only the last can grow
  json* entry_ = nullptr;    // entry of the current key
};

}  // namespace

Result<json> parse_json(std::string_view what, std::string_view text) {
  BOWLINE_TRY(check_depth(what, text));
  Builder builder;
  const bool read = json::sax_parse(text.begin(), text.end(), &builder);
  BOWLINE_REQUIRE_CODE(!builder.twice, Code::bad_file, "{} has the key {} twice in one object.",
                       what, builder.twice->empty() ? "\"\"" : listed_name(*builder.twice));
  BOWLINE_REQUIRE_CODE(!builder.is_out_of_range, Code::bad_file,
                       "{} has a number that is out of range.", what);
  BOWLINE_REQUIRE_CODE(read, Code::bad_file, "{} is not valid JSON: parsing ends at {}.", what,
                       place_of(text, builder.failed_at == 0 ? 0 : builder.failed_at - 1));
  return std::move(builder.root);
}

std::string shown(const json& value) {
  constexpr size_t kMost = 60;
  std::string text = escaped(value.dump(-1, ' ', false, json::error_handler_t::replace));
  if (text.size() > kMost) {
    size_t end = 0;
    while (end < kMost) {
      end += std::max<size_t>(utf8_length(std::string_view(text).substr(end)), 1);
    }
    text = text.substr(0, end) + " ...";
  }
  return text;
}

Fields::Fields(std::string what, const json& object) : what_(std::move(what)), object_(object) {
  if (!object_.is_object()) {
    fail(fmt::format("{} is {}, not an object.", what_, shown(object_)));
  }
}

void Fields::fail(std::string sentence) {
  if (status_.ok()) {
    status_ = Status(Code::bad_file, std::move(sentence));
  }
}

const json* Fields::find(std::string_view key) const {
  if (!object_.is_object()) {
    return nullptr;
  }
  const auto at = object_.find(key);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

bool Fields::is_null(std::string_view key) const {
  const auto at = object_.is_object() ? object_.find(key) : object_.end();
  return at != object_.end() && at->is_null();
}

const json* Fields::need(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr) {
    fail(fmt::format("{} has no \"{}\".", what_, key));
  }
  return value;
}

const json* Fields::checked(std::string_view key, const json* value, bool is_right,
                            std::string_view wanted) {
  if (value != nullptr && !is_right) {
    fail(fmt::format("{}: \"{}\" is {}, {}.", what_, key, shown(*value), wanted));
    return nullptr;
  }
  return value;
}

int64_t Fields::integer(std::string_view key, int64_t least, int64_t most) {
  const json* value = need(key);
  const bool fits = value != nullptr && value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX);
  const int64_t n = fits ? value->get<int64_t>() : 0;
  value = checked(key, value, fits && n >= least && n <= most,
                  fmt::format("not an integer from {} to {}", least, most));
  return value == nullptr ? least : n;
}

int64_t Fields::integer_or(std::string_view key, int64_t least, int64_t most, int64_t otherwise) {
  return has(key) ? integer(key, least, most) : otherwise;
}

double Fields::number(std::string_view key, double least, double most) {
  const json* value = need(key);
  const bool fits = value != nullptr && value->is_number();
  const double n = fits ? value->get<double>() : 0;
  value = checked(key, value, fits && n >= least && n <= most,
                  fmt::format("not a number from {} to {}", least, most));
  return value == nullptr ? least : n;
}

double Fields::number_or(std::string_view key, double least, double most, double otherwise) {
  return has(key) ? number(key, least, most) : otherwise;
}

bool Fields::boolean_or(std::string_view key, bool otherwise) {
  const json* value = find(key);
  value = checked(key, value, value != nullptr && value->is_boolean(), "neither true nor false");
  return value == nullptr ? otherwise : value->get<bool>();
}

std::string Fields::text(std::string_view key) {
  const json* value = need(key);
  value = checked(key, value, value != nullptr && value->is_string(), "not a string");
  return value == nullptr ? std::string() : value->get<std::string>();
}

std::string Fields::text_or(std::string_view key, std::string otherwise) {
  return has(key) ? text(key) : otherwise;
}

std::vector<std::string> Fields::texts(std::string_view key) {
  const json* value = find(key);
  const bool fits = value != nullptr && value->is_array() &&
                    std::ranges::all_of(*value, [](const json& item) { return item.is_string(); });
  value = checked(key, value, fits, "not a list of strings");
  return value == nullptr ? std::vector<std::string>() : value->get<std::vector<std::string>>();
}

std::vector<double> Fields::numbers(std::string_view key, double least, double most) {
  const json* value = find(key);
  const bool fits =
      value != nullptr && value->is_array() && std::ranges::all_of(*value, [&](const json& item) {
        return item.is_number() && item >= least && item <= most;
      });
  value =
      checked(key, value, fits, fmt::format("not a list of numbers from {} to {}", least, most));
  return value == nullptr ? std::vector<double>() : value->get<std::vector<double>>();
}

const json* Fields::object(std::string_view key) {
  const json* value = find(key);
  return checked(key, value, value != nullptr && value->is_object(), "not an object");
}

const json* Fields::list(std::string_view key) {
  const json* value = find(key);
  return checked(key, value, value != nullptr && value->is_array(), "not a list");
}

}  // namespace bowline::import
