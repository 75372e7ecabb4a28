// The filters, tests, methods and functions that chat templates use.
#include <charconv>
#include <cmath>

#include "base/escape.h"
#include "text/chat_render.h"
#include "text/chat_strings.h"

namespace bowline::text::chat {
namespace {

Status unknown(std::string_view what, std::string_view name) {
  return failure("The " + std::string(what) + " \"" + escaped(name.substr(0, 80)) +
                 "\" is not supported.");
}

Status require_text(std::string_view of, const Value& v) {
  return v.kind == Kind::text
             ? Status()
             : failure("\"" + std::string(of) + "\" is applied to " +
                       std::string(described(v.kind)) + ", which is not supported.");
}

// ---- string methods

using TextMethod = Result<Value> (*)(Heap& heap, std::string_view text, Arguments& a);

template <Side side>
Result<Value> strip_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto chars, a.text(0, ""));
  BOWLINE_TRY(heap.step(text.size() * (chars ? chars->size() : 1)));
  return Value::of(strip(text, side, chars));
}

template <bool at_end>
Result<Value> affix_method(Heap& heap, std::string_view text, Arguments& a) {
  const Value* affix = a.take(0, "");
  if (affix == nullptr || (affix->kind != Kind::text && affix->kind != Kind::tuple)) {
    return failure("An argument of startswith or endswith is not a text.");
  }
  std::vector<Value> one = {*affix};
  for (const Value& v : affix->kind == Kind::text ? one : *affix->list) {
    BOWLINE_TRY(heap.step());
    if (v.kind != Kind::text) {
      return failure("An argument of startswith or endswith is not a text.");
    }
    if (at_end ? text.ends_with(v.text) : text.starts_with(v.text)) {
      return Value::of(true);
    }
  }
  return Value::of(false);
}

template <bool at_end>
Result<Value> remove_method(Heap&, std::string_view text, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto affix, a.text(0, ""));
  if (affix && (at_end ? text.ends_with(*affix) : text.starts_with(*affix))) {
    return Value::of(at_end ? text.substr(0, text.size() - affix->size())
                            : text.substr(affix->size()));
  }
  return Value::of(text);
}

template <bool from_right>
Result<Value> split_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto separator, a.text(0, "sep"));
  BOWLINE_TRY_ASSIGN(const int64_t most, a.integer(1, "maxsplit", -1));
  BOWLINE_TRY_ASSIGN(std::vector<Value> parts, split(heap, text, separator, most, from_right));
  return heap.list(std::move(parts));
}

template <Case to>
Result<Value> case_method(Heap& heap, std::string_view text, Arguments&) {
  BOWLINE_TRY_ASSIGN(std::string out, with_case(text, to));
  return heap.text(std::move(out));
}

Result<Value> replace_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto from, a.text(0, "old"));
  BOWLINE_TRY_ASSIGN(const auto to, a.text(1, "new"));
  BOWLINE_TRY_ASSIGN(const int64_t most, a.integer(2, "count", -1));
  if (!from || !to) {
    return failure("\"replace\" lacks an argument.");
  }
  BOWLINE_TRY_ASSIGN(std::string out, replace(heap, text, *from, *to, most));
  return heap.text(std::move(out));
}

template <bool from_right, bool must>
Result<Value> find_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto what, a.text(0, ""));
  if (!what) {
    return failure("The argument of \"find\" is not a text.");
  }
  BOWLINE_TRY(heap.step(text.size()));
  const size_t at = from_right ? text.rfind(*what) : text.find(*what);
  if (must && at == std::string_view::npos) {
    return failure("The argument of \"index\" does not occur in the text.");
  }
  return Value::of(at == std::string_view::npos ? int64_t{-1} : length(text.substr(0, at)));
}

Result<Value> count_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto what, a.text(0, ""));
  if (!what) {
    return failure("The argument of \"count\" is not a text.");
  }
  BOWLINE_TRY(heap.step(text.size()));
  if (what->empty()) {
    return Value::of(length(text) + 1);
  }
  int64_t n = 0;
  for (size_t at = 0; (at = text.find(*what, at)) != std::string_view::npos; at += what->size()) {
    ++n;
  }
  return Value::of(n);
}

template <bool from_right>
Result<Value> partition_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto separator, a.text(0, ""));
  if (!separator || separator->empty()) {
    return failure("The separator of \"partition\" is empty.");
  }
  BOWLINE_TRY(heap.step(text.size()));
  const size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
  const std::string_view none;
  if (at == std::string_view::npos) {
    return heap.list(
        {Value::of(from_right ? none : text), Value::of(none), Value::of(from_right ? text : none)},
        Kind::tuple);
  }
  return heap.list({Value::of(text.substr(0, at)), Value::of(*separator),
                    Value::of(text.substr(at + separator->size()))},
                   Kind::tuple);
}

enum class Letters : uint8_t { digits, letters, both, spaces, lower, upper };

// True if a text has only letters of this kind, and at least one. For "lower" and "upper": at least
// one cased letter, and none of the other case.
template <Letters what>
Result<Value> is_method(Heap& heap, std::string_view text, Arguments&) {
  BOWLINE_TRY(heap.step(text.size()));
  bool all = !text.empty(), some = false;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) {
      return failure("The kind of the letters of \"" + escaped(text.substr(0, 80)) +
                     "\" is supported only for ASCII.");
    }
    const bool is_digit = c >= '0' && c <= '9', is_lower = c >= 'a' && c <= 'z',
               is_upper = c >= 'A' && c <= 'Z';
    const bool is_space = c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
    all = all && (what == Letters::digits    ? is_digit
                  : what == Letters::letters ? is_lower || is_upper
                  : what == Letters::both    ? is_lower || is_upper || is_digit
                  : what == Letters::spaces  ? is_space
                  : what == Letters::lower   ? !is_upper
                                             : !is_lower);
    some = some || (what == Letters::lower ? is_lower : what == Letters::upper ? is_upper : true);
  }
  return Value::of(all && some);
}

template <char align>
Result<Value> adjust_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const int64_t width, a.integer(0, "", 0));
  BOWLINE_TRY_ASSIGN(const auto fill,
                     align == '0' ? Result<std::optional<std::string_view>>("0") : a.text(1, ""));
  const std::string_view letter = fill.value_or(" ");
  constexpr int64_t kMost = 10'000;
  if (width > kMost || length(letter) != 1) {
    return failure("A width of " + std::to_string(width) + " is out of range.");
  }
  BOWLINE_TRY(heap.step(text.size()));
  std::string filler;
  for (int64_t n = length(text); n < width; ++n) {
    filler += letter;
  }
  const size_t sign = align == '0' && (text.starts_with('-') || text.starts_with('+')) ? 1 : 0;
  return heap.text(align == '<' ? std::string(text) + filler
                                : std::string(text.substr(0, sign)) + filler +
                                      std::string(text.substr(sign)));
}

Result<Value> split_lines_method(Heap& heap, std::string_view text, Arguments&) {
  BOWLINE_TRY_ASSIGN(std::vector<Value> lines, split_lines(heap, text));
  return heap.list(std::move(lines));
}

Result<Value> join(Heap& heap, std::string_view between, const std::vector<Value>& parts,
                   bool any_value) {
  std::string out;
  for (const Value& part : parts) {
    if (!any_value) {
      BOWLINE_TRY(require_text("join", part));
    }
    BOWLINE_TRY_ASSIGN(const std::string_view text, printed(heap, part));
    BOWLINE_TRY(heap.step(between.size() + text.size()));
    if (out.size() > Heap::kMostBytes) {
      return failure("The result of \"join\" is too long.");
    }
    out += &part == parts.data() ? "" : between;
    out += text;
  }
  return heap.text(std::move(out));
}

Result<Value> join_method(Heap& heap, std::string_view text, Arguments& a) {
  const Value* parts = a.take(0, "");
  if (parts == nullptr) {
    return failure("\"join\" lacks a list.");
  }
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(heap, *parts));
  return join(heap, text, *items, false);
}

constexpr std::pair<std::string_view, TextMethod> kTextMethods[] = {
    {"strip", strip_method<Side::both>},
    {"lstrip", strip_method<Side::left>},
    {"rstrip", strip_method<Side::right>},
    {"startswith", affix_method<false>},
    {"endswith", affix_method<true>},
    {"removeprefix", remove_method<false>},
    {"removesuffix", remove_method<true>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", split_lines_method},
    {"lower", case_method<Case::lower>},
    {"upper", case_method<Case::upper>},
    {"title", case_method<Case::title>},
    {"capitalize", case_method<Case::capitalize>},
    {"replace", replace_method},
    {"find", find_method<false, false>},
    {"rfind", find_method<true, false>},
    {"index", find_method<false, true>},
    {"rindex", find_method<true, true>},
    {"count", count_method},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"isdigit", is_method<Letters::digits>},
    {"isdecimal", is_method<Letters::digits>},
    {"isnumeric", is_method<Letters::digits>},
    {"isalpha", is_method<Letters::letters>},
    {"isalnum", is_method<Letters::both>},
    {"isspace", is_method<Letters::spaces>},
    {"islower", is_method<Letters::lower>},
    {"isupper", is_method<Letters::upper>},
    {"ljust", adjust_method<'<'>},
    {"rjust", adjust_method<'>'>},
    {"zfill", adjust_method<'0'>},
    {"join", join_method},
};

// ---- filters

using Filter = Result<Value> (*)(Renderer& r, const Value& v, Arguments& a);

Result<Value> trim(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const std::string_view text, printed(r.heap(), v));
  BOWLINE_TRY_ASSIGN(const auto chars, a.text(0, "chars"));
  BOWLINE_TRY(r.heap().step(text.size()));
  return Value::of(strip(text, Side::both, chars));
}

Result<Value> length_of(Renderer& r, const Value& v, Arguments&) {
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
      return failure("The length is not defined for " + std::string(described(v.kind)) + ".");
  }
}

Result<Value> default_of(Renderer&, const Value& v, Arguments& a) {
  const Value* otherwise = a.take(0, "default_value");
  const Value* also_false = a.take(1, "boolean");
  const bool is_missing =
      v.kind == Kind::undefined || (also_false != nullptr && is_true(*also_false) && !is_true(v));
  return !is_missing ? v : otherwise == nullptr ? Value::of(std::string_view()) : *otherwise;
}

// Returns the separator between items (0) or after keys (1) of json.dumps().
Result<std::string> separator_of(const Value& v, size_t number) {
  const bool is_pair = v.is_sequence() && v.list->size() == 2;
  if (!is_pair || (*v.list)[number].kind != Kind::text) {
    return failure("The argument \"separators\" is not two texts.");
  }
  return std::string((*v.list)[number].text);
}

// tojson of transformers: json.dumps() without HTML escapes.
Result<Value> json(Renderer& r, const Value& v, Arguments& a) {
  JsonForm form;
  const Value* ascii = a.take(0, "ensure_ascii");
  form.ascii = ascii != nullptr && is_true(*ascii);
  const Value* indent = a.take(1, "indent");
  if (indent != nullptr && indent->kind == Kind::text) {
    form.indent = indent->text;
  } else if (indent != nullptr && indent->kind != Kind::none) {
    BOWLINE_TRY_ASSIGN(const int64_t spaces, a.integer(1, "indent", 0));
    if (spaces > 100) {
      return failure("A JSON indentation of " + std::to_string(spaces) + " is out of range.");
    }
    form.indent = std::string(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
  }
  form.between_items = form.indent ? "," : ", ";
  const Value* separators = a.take(2, "separators");
  if (separators != nullptr && separators->kind != Kind::none) {
    BOWLINE_TRY_ASSIGN(form.between_items, separator_of(*separators, 0));
    BOWLINE_TRY_ASSIGN(form.behind_keys, separator_of(*separators, 1));
  }
  const Value* sorted = a.take(3, "sort_keys");
  form.sorted = sorted != nullptr && is_true(*sorted);
  BOWLINE_TRY_ASSIGN(std::string text, to_json(r.heap(), v, form));
  return r.heap().text(std::move(text));
}

Result<Value> join_filter(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto between, a.text(0, "d"));
  BOWLINE_TRY_ASSIGN(const auto attribute, a.text(1, "attribute"));
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  if (!attribute) {
    return join(r.heap(), between.value_or(""), *items, true);
  }
  std::vector<Value> parts;
  for (const Value& item : *items) {
    BOWLINE_TRY_ASSIGN(parts.emplace_back(), r.item(item, Value::of(*attribute)));
  }
  return join(r.heap(), between.value_or(""), parts, true);
}

Result<Value> list(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  return r.heap().list(*items);
}

template <bool last>
Result<Value> end_of(Renderer& r, const Value& v, Arguments&) {
  if (last && (v.kind == Kind::dict || v.is_view())) {
    return unknown("filter of a dict", "last");
  }
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
  double out = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  const bool is_decimal = text.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
  return is_decimal && read.ec == std::errc() && read.ptr == text.data() + text.size()
             ? std::optional(out)
             : std::nullopt;
}

Result<Value> whole_of(double r) {
  if (!(std::abs(r) < 0x1p63)) {
    return failure("An integer cannot be made of " + real_text(r) + ".");
  }
  return Value::of(static_cast<int64_t>(r));
}

Result<Value> real_of_filter(Renderer&, const Value& v, Arguments& a) {
  const Value* otherwise = a.take(0, "default");
  if (v.is_numeric()) {
    return Value::of(v.as_real());
  }
  const std::optional<double> read = v.kind == Kind::text ? real_from(v.text) : std::nullopt;
  if (!read && v.kind == Kind::text &&
      v.text.find_first_of("0123456789iInN") != std::string_view::npos) {
    return failure("The conversion of \"" + escaped(v.text.substr(0, 80)) +
                   "\" to a number is not supported.");
  }
  return read ? Value::of(*read) : otherwise != nullptr ? *otherwise : Value::of(0.0);
}

Result<Value> absolute(Renderer&, const Value& v, Arguments&) {
  if (v.kind == Kind::real) {
    return Value::of(std::abs(v.real));
  }
  if (!v.is_number() || v.number() == INT64_MIN) {
    return failure("The absolute value is not defined for " + std::string(described(v.kind)) + ".");
  }
  return Value::of(std::abs(v.number()));
}

Result<Value> rounded(Renderer&, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const int64_t precision, a.integer(0, "precision", 0));
  BOWLINE_TRY_ASSIGN(const auto method, a.text(1, "method"));
  const std::string_view how = method.value_or("common");
  if (!v.is_numeric() || precision < 0 || precision > 15 ||
      (how != "common" && how != "ceil" && how != "floor")) {
    return failure("Rounding of " + std::string(described(v.kind)) +
                   " in this way is not supported.");
  }
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
  std::string_view digits = strip(v.text, Side::both);
  const bool negative = digits.starts_with('-');
  digits.remove_prefix(negative || digits.starts_with('+') ? 1 : 0);
  int64_t n = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9' || __builtin_mul_overflow(n, 10, &n) ||
        __builtin_add_overflow(n, c - '0', &n)) {
      const bool has_number =
          std::ranges::any_of(digits, [](char d) { return d >= '0' && d <= '9'; });
      return has_number || static_cast<unsigned char>(c) >= 0x80
                 ? Result<Value>(failure("The conversion of \"" + escaped(v.text.substr(0, 80)) +
                                         "\" to a number is not supported."))
                 : Value::of(otherwise);
    }
  }
  return Value::of(digits.empty() ? otherwise : negative ? -n : n);
}

Result<Value> items(Renderer& r, const Value& v, Arguments&) {
  std::vector<Value> out;
  if (v.kind == Kind::dict) {
    for (const auto& [key, value] : *v.dict) {
      BOWLINE_TRY_ASSIGN(out.emplace_back(), r.heap().list({key, value}, Kind::tuple));
    }
  } else if (v.kind != Kind::undefined) {
    return failure("\"items\" is not defined for " + std::string(described(v.kind)) + ".");
  }
  return r.heap().iterator(std::move(out));
}

template <Case to>
Result<Value> case_filter(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_TRY_ASSIGN(const std::string_view text, printed(r.heap(), v));
  BOWLINE_TRY_ASSIGN(std::string out, with_case(text, to));
  return r.heap().text(std::move(out));
}

Result<Value> replace_filter(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const std::string_view text, printed(r.heap(), v));
  return replace_method(r.heap(), text, a);
}

// Returns the value of a path such as "a.b.0".
Result<Value> attribute_of(Renderer& r, const Value& v, std::string_view path) {
  Value out = v;
  while (true) {
    const size_t dot = path.find('.');
    const std::string_view name = path.substr(0, dot);
    if (!name.empty() && name[0] >= '0' && name[0] <= '9') {
      return unknown("attribute", path);
    }
    if (out.kind == Kind::undefined) {
      return failure("An attribute of an undefined value is read.");
    }
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
    if (!attribute) {
      return failure("A selection by attribute lacks the attribute.");
    }
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
    if (!attribute) {
      return failure("\"map\" names neither a filter nor an attribute.");
    }
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

// The sort key of a value: the value or an attribute, without case unless case_sensitive.
Result<Value> sort_key(Renderer& r, const Value& item, std::optional<std::string_view> attribute,
                       bool case_sensitive) {
  Value key = item;
  if (attribute) {
    BOWLINE_TRY_ASSIGN(key, attribute_of(r, item, *attribute));
  }
  if (key.kind != Kind::text || case_sensitive) {
    return key;
  }
  BOWLINE_TRY_ASSIGN(std::string lower, with_case(key.text, Case::lower));
  return r.heap().text(std::move(lower));
}

// Sorts pairs by key, stable.
Result<std::vector<Pair>> in_order(Renderer& r, std::vector<Pair> pairs, bool reversed) {
  const bool texts =
      std::ranges::all_of(pairs, [](const Pair& p) { return p.first.kind == Kind::text; });
  const bool numbers =
      std::ranges::all_of(pairs, [](const Pair& p) { return p.first.is_number(); });
  if (!texts && !numbers) {
    return failure("The keys to sort are neither all texts nor all integers.");
  }
  for (const Pair& p : pairs) {
    BOWLINE_TRY(r.heap().step(16 * (64 + p.first.text.size())));
  }
  std::ranges::stable_sort(pairs, [=](const Pair& a, const Pair& b) {
    const Value& x = reversed ? b.first : a.first;
    const Value& y = reversed ? a.first : b.first;
    return texts ? x.text < y.text : x.number() < y.number();
  });
  return pairs;
}

bool is_set(const Value* v) { return v != nullptr && is_true(*v); }

Result<Value> sorted(Renderer& r, const Value& v, Arguments& a) {
  const bool reversed = is_set(a.take(0, "reverse"));
  const bool case_sensitive = is_set(a.take(1, "case_sensitive"));
  BOWLINE_TRY_ASSIGN(const auto attribute, a.text(2, "attribute"));
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  std::vector<Pair> pairs;
  for (const Value& item : *items) {
    BOWLINE_TRY_ASSIGN(Value key, sort_key(r, item, attribute, case_sensitive));
    pairs.emplace_back(key, item);
  }
  BOWLINE_TRY_ASSIGN(pairs, in_order(r, std::move(pairs), reversed));
  std::vector<Value> out;
  for (const Pair& pair : pairs) {
    out.push_back(pair.second);
  }
  return r.heap().list(std::move(out));
}

Result<Value> sorted_dict(Renderer& r, const Value& v, Arguments& a) {
  const bool case_sensitive = is_set(a.take(0, "case_sensitive"));
  BOWLINE_TRY_ASSIGN(const auto by, a.text(1, "by"));
  const bool reversed = is_set(a.take(2, "reverse"));
  if (v.kind != Kind::dict || (by && *by != "key" && *by != "value")) {
    return failure("\"dictsort\" is not defined for " + std::string(described(v.kind)) + ".");
  }
  std::vector<Pair> pairs;
  for (const auto& [key, value] : *v.dict) {
    BOWLINE_TRY_ASSIGN(const Value item, r.heap().list({key, value}, Kind::tuple));
    BOWLINE_TRY_ASSIGN(Value by_this, sort_key(r, by == "value" ? value : key, {}, case_sensitive));
    pairs.emplace_back(by_this, item);
  }
  BOWLINE_TRY_ASSIGN(pairs, in_order(r, std::move(pairs), reversed));
  std::vector<Value> out;
  for (const Pair& pair : pairs) {
    out.push_back(pair.second);
  }
  return r.heap().list(std::move(out));
}

Result<Value> unique(Renderer& r, const Value& v, Arguments& a) {
  const bool case_sensitive = is_set(a.take(0, "case_sensitive"));
  BOWLINE_TRY_ASSIGN(const auto attribute, a.text(1, "attribute"));
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  BOWLINE_TRY_ASSIGN(const Value seen, r.heap().dict({}));
  std::vector<Value> out;
  for (const Value& item : *items) {
    BOWLINE_TRY_ASSIGN(const Value key, sort_key(r, item, attribute, case_sensitive));
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
  const bool case_sensitive = is_set(a.take(0, "case_sensitive"));
  BOWLINE_TRY_ASSIGN(const auto attribute, a.text(1, "attribute"));
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  Value out = Value::undefined("an item"), best;
  for (const Value& item : *items) {
    BOWLINE_TRY_ASSIGN(const Value key, sort_key(r, item, attribute, case_sensitive));
    int sign = 1;
    if (&item != items->data()) {
      BOWLINE_TRY_ASSIGN(sign, order(r.heap(), key, best));
    }
    if (&item == items->data() || (largest ? sign > 0 : sign < 0)) {
      out = item;
      best = key;
    }
  }
  return out;
}

// Adds spaces before each line after the first, if the line is not empty.
Result<Value> indented(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const std::string_view text, printed(r.heap(), v));
  const Value* width = a.take(0, "width");
  const bool first = is_set(a.take(1, "first"));
  const bool blank = is_set(a.take(2, "blank"));
  std::string indent(4, ' ');
  if (width != nullptr && width->kind == Kind::text) {
    indent = width->text;
  } else if (width != nullptr) {
    BOWLINE_TRY_ASSIGN(const int64_t spaces, a.integer(0, "width", 4));
    if (spaces > 1000) {
      return failure("An indentation of " + std::to_string(spaces) + " is out of range.");
    }
    indent = std::string(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
  }
  BOWLINE_TRY_ASSIGN(const std::vector<Value> lines, split_lines(r.heap(), text));
  const bool ends_with_newline = text.empty() || text.ends_with('\n');
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    BOWLINE_TRY(r.heap().step(indent.size() + lines[i].text.size()));
    out += i > 0 ? "\n" : "";
    out += i > 0 ? (blank || !lines[i].text.empty() ? indent : "") : first ? indent : "";
    out += lines[i].text;
    if (out.size() > Heap::kMostBytes) {
      return failure("The result of \"indent\" is too long.");
    }
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

Result<Value> safe(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_TRY_ASSIGN(const std::string_view text, printed(r.heap(), v));
  Value out = Value::of(text);
  out.boolean = true;
  return out;
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"safe", safe},
    {"round", rounded},
    {"float", real_of_filter},
    {"abs", absolute},
    {"sort", sorted},
    {"dictsort", sorted_dict},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"indent", indented},
    {"title", case_filter<Case::words>},
    {"trim", trim},
    {"length", length_of},
    {"count", length_of},
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
    {"lower", case_filter<Case::lower>},
    {"upper", case_filter<Case::upper>},
    {"capitalize", case_filter<Case::capitalize>},
    {"replace", replace_filter},
    {"select", select<false, true>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<true, false>},
    {"map", map},
};

// ---- tests

Result<bool> compared(Renderer& r, std::string_view name, const Value& v, const Value& other) {
  Heap& heap = r.heap();
  if (name == "in") {
    return contains(heap, other, v);
  }
  if (name == "==" || name == "eq" || name == "equalto") {
    return equal(heap, v, other);
  }
  if (name == "!=" || name == "ne") {
    BOWLINE_TRY_ASSIGN(const bool same, equal(heap, v, other));
    return !same;
  }
  if (name == "divisibleby") {
    if (!v.is_number() || !other.is_number() || other.number() == 0 || other.number() == -1) {
      return failure("\"divisibleby\" is not defined for " + std::string(described(v.kind)) + ".");
    }
    return v.number() % other.number() == 0;
  }
  BOWLINE_TRY_ASSIGN(const int sign, order(heap, v, other));
  if (name == ">" || name == "gt" || name == "greaterthan") {
    return sign > 0;
  }
  if (name == "<" || name == "lt" || name == "lessthan") {
    return sign < 0;
  }
  return name == ">=" || name == "ge" ? sign >= 0 : sign <= 0;
}

bool compares(std::string_view name) {
  for (const std::string_view known :
       {"in", "==", "eq", "equalto", "!=", "ne", "divisibleby", ">", "gt", "greaterthan", "<", "lt",
        "lessthan", ">=", "ge", "<=", "le"}) {
    if (name == known) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool is_text_method(std::string_view name) {
  return name == "format" ||
         std::ranges::any_of(kTextMethods, [&](const auto& m) { return m.first == name; });
}

Result<Value> Renderer::filter(std::string_view name, const Value& value, Arguments arguments) {
  BOWLINE_TRY(heap_.step());
  const bool takes_markup = name == "safe" || name == "string" || name == "tojson";
  BOWLINE_TRY(takes_markup ? Status() : require_no_markup(value));
  for (const auto& [known, filter] : kFilters) {
    if (known == name) {
      BOWLINE_TRY_ASSIGN(const Value v, filter(*this, value, arguments));
      BOWLINE_TRY(arguments.require_taken());
      return v;
    }
  }
  return unknown("filter", name);
}

Result<bool> Renderer::test(std::string_view name, const Value& v, Arguments arguments) {
  BOWLINE_TRY(heap_.step());
  if (compares(name)) {
    const Value* other = arguments.take(0, "");
    if (other == nullptr) {
      return failure("The test \"" + std::string(name) + "\" lacks a value.");
    }
    BOWLINE_TRY(arguments.require_taken());
    return compared(*this, name, v, *other);
  }
  BOWLINE_TRY(arguments.require_taken());
  const Kind k = v.kind;
  if (name == "odd" || name == "even") {
    if (!v.is_number()) {
      return failure("\"odd\" and \"even\" are not defined for " + std::string(described(k)) + ".");
    }
    return (v.number() % 2 != 0) == (name == "odd");
  }
  if (name == "sequence" || name == "iterable") {
    const bool has_elements = k == Kind::undefined || k == Kind::text || k == Kind::dict ||
                              (v.is_sequence() && !(v.is_view() && name == "sequence"));
    return has_elements || k == Kind::none || v.is_numeric() || v.is_view()
               ? Result<bool>(has_elements)
               : Result<bool>(unknown("test of a function", name));
  }
  const std::pair<std::string_view, bool> simple[] = {
      {"defined", k != Kind::undefined},
      {"undefined", k == Kind::undefined},
      {"none", k == Kind::none},
      {"string", k == Kind::text},
      {"mapping", k == Kind::dict},
      {"number", v.is_numeric()},
      {"integer", k == Kind::integer},
      {"float", k == Kind::real},
      {"callable", k == Kind::macro || k == Kind::function || k == Kind::method},
      {"boolean", k == Kind::boolean},
      {"true", k == Kind::boolean && v.boolean},
      {"false", k == Kind::boolean && !v.boolean},
  };
  for (const auto& [known, is] : simple) {
    if (known == name) {
      return is;
    }
  }
  return unknown("test", name);
}

Result<Value> Renderer::method(const Method& m, Arguments arguments) {
  Result<Value> out = unknown("method", m.name);
  if (m.of.kind == Kind::text) {
    for (const auto& [known, method] : kTextMethods) {
      if (known == m.name) {
        out = method(heap_, m.of.text, arguments);
      }
    }
    if (m.name == "format") {
      BOWLINE_TRY_ASSIGN(std::string text, format_text(*this, m.of.text, arguments));
      out = heap_.text(std::move(text));
    }
  } else if (m.of.is_sequence()) {
    const Value* what = arguments.take(0, "");
    if (what == nullptr) {
      return failure("\"" + std::string(m.name) + "\" lacks a value.");
    }
    int64_t count = 0, index = -1;
    for (const Value& item : *m.of.list) {
      BOWLINE_TRY_ASSIGN(const bool same, equal(heap_, item, *what));
      index = same && index < 0 ? &item - m.of.list->data() : index;
      count += same ? 1 : 0;
    }
    if (m.name == "index" && index < 0) {
      return failure("The argument of \"index\" is not in the list.");
    }
    out = Value::of(m.name == "index" ? index : count);
  } else if (m.name == "copy") {
    out = heap_.dict(*m.of.dict);
  } else if (m.name == "get") {
    const Value* key = arguments.take(0, "");
    const Value* otherwise = arguments.take(1, "");
    if (key == nullptr) {
      return failure("\"get\" lacks a key.");
    }
    BOWLINE_TRY_ASSIGN(const Value* found, find(heap_, m.of, *key));
    out = found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value::none();
  } else if (m.name == "items" || m.name == "keys" || m.name == "values") {
    std::vector<Value> list;
    for (const auto& [key, value] : *m.of.dict) {
      Value item = m.name == "keys" ? key : value;
      if (m.name == "items") {
        BOWLINE_TRY_ASSIGN(item, heap_.list({key, value}, Kind::tuple));
      }
      list.push_back(item);
    }
    out = heap_.list(std::move(list), Kind::list,
                     m.name == "items"  ? "dict_items"
                     : m.name == "keys" ? "dict_keys"
                                        : "dict_values");
  }
  if (out.ok()) {
    BOWLINE_TRY(arguments.require_taken());
  }
  return out;
}

namespace {

Result<Value> range(Heap& heap, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const int64_t first, a.integer(0, "", 0));
  const bool from_zero = a.positional.size() < 2;
  BOWLINE_TRY_ASSIGN(const int64_t stop, a.integer(1, "", first));
  BOWLINE_TRY_ASSIGN(const int64_t step, a.integer(2, "", 1));
  const int64_t start = from_zero ? 0 : first;
  constexpr int64_t kMost = 100'000;  // the limit of Jinja2's sandbox
  if (a.positional.empty() || step == 0) {
    return failure("A range has no end, or a step of 0.");
  }
  std::vector<Value> out;
  for (int64_t n = start; step > 0 ? n < stop : n > stop;) {
    if (static_cast<int64_t>(out.size()) == kMost) {
      return failure("A range has more than " + std::to_string(kMost) + " elements.");
    }
    out.push_back(Value::of(n));
    if (__builtin_add_overflow(n, step, &n)) {
      break;
    }
  }
  BOWLINE_TRY(a.require_taken());
  return heap.list(std::move(out), Kind::list, "range");
}

// namespace() and dict(), from named arguments or from a dict.
Result<Value> dict(Heap& heap, Arguments& a, Kind kind) {
  std::vector<Pair> pairs;
  if (const Value* from = a.take(0, "")) {
    if (from->kind != Kind::dict) {
      return failure("A dict made of " + std::string(described(from->kind)) + " is not supported.");
    }
    pairs = *from->dict;
  }
  BOWLINE_TRY_ASSIGN(const Value out, heap.dict(std::move(pairs), kind));
  for (const auto& [name, value] : a.named) {
    a.take(SIZE_MAX, name);
    BOWLINE_TRY_ASSIGN(const Value* known, find(heap, out, Value::of(name)));
    if (known != nullptr || (kind == Kind::name_space && name.starts_with('_'))) {
      return failure("The name \"" + escaped(name.substr(0, 80)) + "\" of a dict occurs twice.");
    }
    out.dict->emplace_back(Value::of(name), value);
  }
  BOWLINE_TRY(a.require_taken());
  return out;
}

}  // namespace

Result<Value> Renderer::function(std::string_view name, Arguments a) {
  BOWLINE_TRY(heap_.step());
  if (name == "range") {
    return range(heap_, a);
  }
  if (name == "namespace" || name == "dict") {
    return dict(heap_, a, name == "dict" ? Kind::dict : Kind::name_space);
  }
  if (name == "strftime_now") {
    BOWLINE_TRY_ASSIGN(const auto layout, a.text(0, "format"));
    BOWLINE_TRY(a.require_taken());
    if (!layout) {
      return failure("\"strftime_now\" lacks a layout.");
    }
    BOWLINE_TRY_ASSIGN(std::string text, time_text(heap_, *layout, now_.value_or(0)));
    return heap_.text(std::move(text));
  }
  const Value* message = a.take(0, "message");
  std::string_view text;
  if (message != nullptr) {
    BOWLINE_TRY_ASSIGN(text, printed(heap_, *message));
  }
  return Status(Code::bad_argument, "The chat template rejects the conversation: " + escaped(text));
}

}  // namespace bowline::text::chat
