// The filters.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/parse.h"
#include "base/projected.h"
#include "text/chat_functions.h"

namespace bowline::text::chat {
namespace {

// Turns a method of texts into a filter: applies it to the printed value.
template <Function method>
Result<Value> of_printed(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const std::string_view text, printed(r.heap(), v));
  return method(r, Value::of(text), a);
}

Result<Value> trim(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto chars, a.text(0, "chars"));
  BOWLINE_TRY(r.heap().step(v.text.size()));
  return Value::of(strip(v.text, Side::both, chars));
}

Result<Value> element_count(Renderer& r, const Value& v, Arguments&) {
  switch (v.kind) {
    case Kind::undefined:
      return Value::of(int64_t{0});
    case Kind::text:
      BOWLINE_TRY(r.heap().step(v.text.size()));
      return Value::of(length(v.text));
    case Kind::list:
    case Kind::tuple:
      return Value::of(static_cast<int64_t>(v.list->size()));
    case Kind::dict:
      return Value::of(static_cast<int64_t>(v.dict->size()));
    default:
      return failure("The length is not defined for {}.", described(v.kind));
  }
}

Result<Value> default_of(Renderer&, const Value& v, Arguments& a) {
  const Value* otherwise = a.take(0, "default_value");
  const bool also_false = a.flag(1, "boolean");
  const bool is_missing = v.kind == Kind::undefined || (also_false && !is_true(v));
  return !is_missing ? v : otherwise == nullptr ? Value::of(std::string_view()) : *otherwise;
}

// Returns the separator between items (0) or after keys (1) of json.dumps().
Result<std::string> separator_of(const Value& v, size_t number) {
  const bool is_pair = v.is_sequence() && v.list->size() == 2;
  BOWLINE_REQUIRE_FILE(is_pair && (*v.list)[number].kind == Kind::text,
                       "The argument \"separators\" is not two texts.");
  return std::string((*v.list)[number].text);
}

// Returns the indentation of an argument, which is a text or a number of spaces. Empty: the
// argument is missing or none.
Result<std::optional<std::string>> indent_of(Arguments& a, size_t number, std::string_view name,
                                             int64_t most, std::string_view what) {
  const Value* indent = a.take(number, name);
  if (indent == nullptr || indent->kind == Kind::none) {
    return std::optional<std::string>();
  }
  if (indent->kind == Kind::text) {
    return std::optional(std::string(indent->text));
  }
  BOWLINE_TRY_ASSIGN(const int64_t spaces, a.integer(number, name, 0));
  BOWLINE_REQUIRE_FILE(spaces <= most, "{} of {} is out of range.", what, spaces);
  return std::optional(std::string(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' '));
}

// tojson of transformers: json.dumps() without HTML escapes.
Result<Value> json(Renderer& r, const Value& v, Arguments& a) {
  JsonForm form;
  form.ascii = a.flag(0, "ensure_ascii");
  BOWLINE_TRY_ASSIGN(form.indent, indent_of(a, 1, "indent", 100, "A JSON indentation"));
  form.between_items = form.indent ? "," : ", ";
  const Value* separators = a.take(2, "separators");
  if (separators != nullptr && separators->kind != Kind::none) {
    BOWLINE_TRY_ASSIGN(form.between_items, separator_of(*separators, 0));
    BOWLINE_TRY_ASSIGN(form.behind_keys, separator_of(*separators, 1));
  }
  form.sorted = a.flag(3, "sort_keys");
  BOWLINE_TRY_ASSIGN(std::string text, to_json(r.heap(), v, form));
  return r.heap().text(std::move(text));
}

Result<Value> join_filter(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto between, a.text(0, "d"));
  BOWLINE_TRY_ASSIGN(const auto attribute, a.text(1, "attribute"));
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  if (!attribute) {
    return join(r.heap(), between.value_or(""), *items);
  }
  std::vector<Value> parts;
  for (const Value& item : *items) {
    BOWLINE_TRY_ASSIGN(parts.emplace_back(), r.item(item, Value::of(*attribute)));
  }
  return join(r.heap(), between.value_or(""), parts);
}

Result<Value> list(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  return r.heap().list(*items);
}

template <bool last>
Result<Value> end_of(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_REQUIRE_FILE(!last || (v.kind != Kind::dict && !v.is_view()),
                       "The filter of a dict \"last\" is not supported.");
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  return items->empty() ? Value::undefined("an item") : last ? items->back() : items->front();
}

Result<Value> reverse(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  if (v.kind == Kind::text) {
    std::string out;
    for (auto at = items->rbegin(); at != items->rend(); ++at) {
      out += at->text;
    }
    return r.heap().text(std::move(out));
  }
  return r.heap().iterator({items->rbegin(), items->rend()});
}

Result<Value> text_of(Renderer& r, const Value& v, Arguments&) {
  if (v.is_markup()) {
    return v;
  }
  BOWLINE_TRY_ASSIGN(const std::string_view text, printed(r.heap(), v));
  return Value::of(text);
}

// float() of a decimal text.
std::optional<double> real_from(std::string_view text) {
  text = strip(text, Side::both);
  text.remove_prefix(text.starts_with('+') ? 1 : 0);
  const bool is_decimal = text.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
  return is_decimal ? number_in<double>(text) : std::nullopt;
}

Result<Value> whole_of(double r) {
  BOWLINE_REQUIRE_FILE(std::abs(r) < 0x1p63, "An integer cannot be made of {}.", real_text(r));
  return Value::of(static_cast<int64_t>(r));
}

Result<Value> real_of_filter(Renderer&, const Value& v, Arguments& a) {
  const Value* otherwise = a.take(0, "default");
  if (v.is_numeric()) {
    return Value::of(v.as_real());
  }
  const std::optional<double> read = v.kind == Kind::text ? real_from(v.text) : std::nullopt;
  BOWLINE_REQUIRE_FILE(read || v.kind != Kind::text ||
                           v.text.find_first_of("0123456789iInN") == std::string_view::npos,
                       "The conversion of {} to a number is not supported.", quoted(v.text));
  return read ? Value::of(*read) : otherwise != nullptr ? *otherwise : Value::of(0.0);
}

Result<Value> absolute(Renderer&, const Value& v, Arguments&) {
  if (v.kind == Kind::real) {
    return Value::of(std::abs(v.real));
  }
  BOWLINE_REQUIRE_FILE(v.is_number() && v.number() != INT64_MIN,
                       "The absolute value is not defined for {}.", described(v.kind));
  return Value::of(std::abs(v.number()));
}

Result<Value> rounded(Renderer&, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const int64_t precision, a.integer(0, "precision", 0));
  BOWLINE_TRY_ASSIGN(const auto method, a.text(1, "method"));
  const std::string_view how = method.value_or("common");
  BOWLINE_REQUIRE_FILE(v.is_numeric() && precision >= 0 && precision <= 15 &&
                           (how == "common" || how == "ceil" || how == "floor"),
                       "Rounding of {} in this way is not supported.", described(v.kind));
  if (how != "common") {
    const double power = std::pow(10.0, static_cast<double>(precision));
    const double scaled = v.as_real() * power;
    return Value::of((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / power);
  }
  if (v.is_number()) {
    return Value::of(v.number());
  }
  // As in Python: the nearest decimal, ties to even.
  char buffer[512];
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), v.real,
                                     std::chars_format::fixed, static_cast<int>(precision));
  double out = v.real;
  if (written.ec == std::errc() && std::isfinite(v.real)) {
    std::from_chars(buffer, written.ptr, out);
  }
  return Value::of(out);
}

Result<Value> number_of(Renderer&, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const int64_t otherwise, a.integer(0, "default", 0));
  if (v.is_number()) {
    return Value::of(v.number());
  }
  if (v.kind == Kind::real) {
    return whole_of(v.real);
  }
  if (v.kind == Kind::text && v.text.find_first_of(".eE") != std::string_view::npos) {
    if (const std::optional<double> read = real_from(v.text)) {
      return whole_of(*read);
    }
  }
  BOWLINE_TRY(require_text("int", v));
  const std::string_view text = strip(v.text, Side::both);
  const std::string_view digits =
      text.substr(text.starts_with('-') || text.starts_with('+') ? 1 : 0);
  const auto n = number_in<int64_t>(text.starts_with('-') ? text : digits);
  if (n && is_digit(digits[0])) {
    return Value::of(*n);
  }
  const bool is_ascii = digits.empty() || static_cast<uint8_t>(digits[0]) < 0x80;
  BOWLINE_REQUIRE_FILE(is_ascii && !std::ranges::any_of(digits, is_digit),
                       "The conversion of {} to a number is not supported.", quoted(v.text));
  return Value::of(otherwise);
}

Result<Value> items(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_REQUIRE_FILE(v.kind == Kind::dict || v.kind == Kind::undefined,
                       "\"items\" is not defined for {}.", described(v.kind));
  std::vector<Value> out;
  if (v.kind == Kind::dict) {
    BOWLINE_TRY_ASSIGN(out, items_of(r.heap(), v));
  }
  return r.heap().iterator(std::move(out));
}

// Returns the value of a path such as "a.b.0".
Result<Value> attribute_of(Renderer& r, const Value& v, std::string_view path) {
  Value out = v;
  while (true) {
    const size_t dot = path.find('.');
    const std::string_view name = path.substr(0, dot);
    BOWLINE_REQUIRE_FILE(name.empty() || !is_digit(name[0]), "The attribute {} is not supported.",
                         quoted(path));
    BOWLINE_REQUIRE_FILE(out.kind != Kind::undefined,
                         "An attribute of an undefined value is read.");
    if (out.kind == Kind::dict || out.kind == Kind::name_space) {
      BOWLINE_TRY_ASSIGN(out, r.item(out, Value::of(name)));
    } else {
      BOWLINE_TRY_ASSIGN(out, r.attribute(out, name));
    }
    if (dot == std::string_view::npos) {
      return out;
    }
    path.remove_prefix(dot + 1);
  }
}

template <bool of_attribute, bool wanted>
Result<Value> select(Renderer& r, const Value& v, Arguments& a) {
  std::optional<std::string_view> attribute;
  if (of_attribute) {
    BOWLINE_TRY_ASSIGN(attribute, a.text(0, ""));
    BOWLINE_REQUIRE_FILE(attribute, "A selection by attribute lacks the attribute.");
  }
  const size_t first = of_attribute ? 1 : 0;
  BOWLINE_TRY_ASSIGN(const auto test, a.text(first, ""));
  const Arguments others = a.rest(first + 1);
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  std::vector<Value> out;
  for (const Value& item : *items) {
    Value asked = item;
    if (attribute) {
      BOWLINE_TRY_ASSIGN(asked, attribute_of(r, item, *attribute));
    }
    bool is = is_true(asked);
    if (test) {
      BOWLINE_TRY_ASSIGN(is, r.test(*test, asked, others));
    }
    if (is == wanted) {
      out.push_back(item);
    }
  }
  return r.heap().iterator(std::move(out));
}

Result<Value> map(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  std::vector<Value> out;
  if (a.positional.empty()) {
    BOWLINE_TRY_ASSIGN(const auto attribute, a.text(0, "attribute"));
    const Value* otherwise = a.take(1, "default");
    BOWLINE_REQUIRE_FILE(attribute, "\"map\" names neither a filter nor an attribute.");
    for (const Value& item : *items) {
      BOWLINE_TRY_ASSIGN(Value found, attribute_of(r, item, *attribute));
      out.push_back(found.kind == Kind::undefined && otherwise != nullptr ? *otherwise : found);
    }
    return r.heap().iterator(std::move(out));
  }
  BOWLINE_TRY_ASSIGN(const auto filter, a.text(0, ""));
  const Arguments others = a.rest(1);
  for (const Value& item : *items) {
    BOWLINE_TRY_ASSIGN(out.emplace_back(), r.filter(filter.value_or(""), item, others));
  }
  return r.heap().iterator(std::move(out));
}

// A key to sort by: a text is in lower case unless `case_sensitive`.
Result<Value> sort_key(Renderer& r, const Value& v, bool case_sensitive) {
  return v.kind != Kind::text || case_sensitive ? v : with_case(r.heap(), v.text, Case::lower);
}

// Returns the elements of `v` with their sort keys. Takes the arguments `case_sensitive` (number
// `first`) and `attribute`, whose value is the key.
Result<std::vector<Pair>> keyed(Renderer& r, const Value& v, Arguments& a, size_t first) {
  const bool case_sensitive = a.flag(first, "case_sensitive");
  BOWLINE_TRY_ASSIGN(const auto attribute, a.text(first + 1, "attribute"));
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  std::vector<Pair> out;
  for (const Value& item : *items) {
    Value key = item;
    if (attribute) {
      BOWLINE_TRY_ASSIGN(key, attribute_of(r, item, *attribute));
    }
    BOWLINE_TRY_ASSIGN(key, sort_key(r, key, case_sensitive));
    out.emplace_back(key, item);
  }
  return out;
}

Result<Value> in_order(Renderer& r, std::vector<Pair> pairs, bool reversed) {
  for (const Pair& p : pairs) {
    BOWLINE_TRY(r.heap().step(16 * (64 + p.first.text.size())));
  }
  BOWLINE_REQUIRE_FILE(sort_by_key(pairs, reversed),
                       "The keys to sort are neither all texts nor all integers.");
  return r.heap().list(projected(pairs, &Pair::second));
}

Result<Value> sorted(Renderer& r, const Value& v, Arguments& a) {
  const bool reversed = a.flag(0, "reverse");
  BOWLINE_TRY_ASSIGN(std::vector<Pair> pairs, keyed(r, v, a, 1));
  return in_order(r, std::move(pairs), reversed);
}

Result<Value> sorted_dict(Renderer& r, const Value& v, Arguments& a) {
  const bool case_sensitive = a.flag(0, "case_sensitive");
  BOWLINE_TRY_ASSIGN(const auto by, a.text(1, "by"));
  const bool reversed = a.flag(2, "reverse");
  BOWLINE_REQUIRE_FILE(v.kind == Kind::dict && (!by || *by == "key" || *by == "value"),
                       "\"dictsort\" is not defined for {}.", described(v.kind));
  BOWLINE_TRY_ASSIGN(const std::vector<Value> items, items_of(r.heap(), v));
  std::vector<Pair> pairs;
  for (const Value& item : items) {
    const Value& key = (*item.list)[by == "value" ? 1 : 0];
    BOWLINE_TRY_ASSIGN(const Value sorted_by, sort_key(r, key, case_sensitive));
    pairs.emplace_back(sorted_by, item);
  }
  return in_order(r, std::move(pairs), reversed);
}

Result<Value> unique(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const std::vector<Pair> pairs, keyed(r, v, a, 0));
  BOWLINE_TRY_ASSIGN(const Value seen, r.heap().dict({}));
  std::vector<Value> out;
  for (const auto& [key, item] : pairs) {
    BOWLINE_TRY_ASSIGN(const Value* known, find(r.heap(), seen, key));
    if (known == nullptr) {
      seen.dict->emplace_back(key, Value::none());
      out.push_back(item);
    }
  }
  return r.heap().iterator(std::move(out));
}

template <bool largest>
Result<Value> extreme(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const std::vector<Pair> pairs, keyed(r, v, a, 0));
  const Pair* best = nullptr;
  for (const Pair& pair : pairs) {
    if (best != nullptr) {
      BOWLINE_TRY_ASSIGN(const auto sign, order(r.heap(), pair.first, best->first));
      if (largest ? sign <= 0 : sign >= 0) {
        continue;
      }
    }
    best = &pair;
  }
  return best != nullptr ? best->second : Value::undefined("an item");
}

// Adds spaces before each line after the first, if the line is not empty.
Result<Value> indented(Renderer& r, const Value& v, Arguments& a) {
  const std::string_view text = v.text;
  BOWLINE_TRY_ASSIGN(const auto width, indent_of(a, 0, "width", 1000, "An indentation"));
  const std::string indent = width.value_or("    ");
  const bool first = a.flag(1, "first");
  const bool blank = a.flag(2, "blank");
  BOWLINE_TRY_ASSIGN(const std::vector<Value> lines, split_lines(r.heap(), text));
  const bool ends_with_newline = text.empty() || text.ends_with('\n');
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    BOWLINE_TRY(r.heap().step(indent.size() + lines[i].text.size()));
    out += i > 0 ? "\n" : "";
    out += i > 0 ? (blank || !lines[i].text.empty() ? indent : "") : first ? indent : "";
    out += lines[i].text;
    BOWLINE_REQUIRE_FILE(out.size() <= Heap::kMostBytes, "The result of \"indent\" is too long.");
  }
  if (text.empty() && first) {
    out += indent;
  }
  if (ends_with_newline && !text.empty()) {
    out += "\n";
    out += blank ? indent : "";
  }
  return r.heap().text(std::move(out));
}

Result<Value> safe(Renderer&, const Value& v, Arguments&) {
  Value out = v;
  out.boolean = true;
  return out;
}

constexpr NamedFunction kFilters[] = {
    {"safe", of_printed<safe>},
    {"round", rounded},
    {"float", real_of_filter},
    {"abs", absolute},
    {"sort", sorted},
    {"dictsort", sorted_dict},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"indent", of_printed<indented>},
    {"title", of_printed<in_case<Case::words>>},
    {"trim", of_printed<trim>},
    {"length", element_count},
    {"count", element_count},
    {"default", default_of},
    {"d", default_of},
    {"tojson", json},
    {"join", join_filter},
    {"list", list},
    {"first", end_of<false>},
    {"last", end_of<true>},
    {"reverse", reverse},
    {"string", text_of},
    {"int", number_of},
    {"items", items},
    {"lower", of_printed<in_case<Case::lower>>},
    {"upper", of_printed<in_case<Case::upper>>},
    {"capitalize", of_printed<in_case<Case::capitalize>>},
    {"replace", of_printed<replaced>},
    {"select", select<false, true>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<true, false>},
    {"map", map},
};

}  // namespace

Result<Value> Renderer::filter(std::string_view name, const Value& value, Arguments arguments) {
  const bool takes_markup = name == "safe" || name == "string" || name == "tojson";
  BOWLINE_TRY(takes_markup ? Status() : require_no_markup(value));
  const Function function = function_of(kFilters, name);
  BOWLINE_REQUIRE_FILE(function != nullptr, "The filter {} is not supported.", quoted(name));
  return call(function, value, arguments);
}

}  // namespace bowline::text::chat
