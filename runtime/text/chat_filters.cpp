// Filters, tests, methods and functions of a chat template: those that chat templates use.
#include <ctime>

#include "text/chat_render.h"
#include "text/chat_strings.h"

namespace bowline::text::chat {
namespace {

Status unknown(std::string_view what, std::string_view name) {
  return failure("The " + std::string(what) + " \"" + escaped(name.substr(0, 80)) +
                 "\" is not known here.");
}

Status require_text(std::string_view of, const Value& v) {
  return v.kind == Kind::text
             ? Status()
             : failure("\"" + std::string(of) + "\" stands behind " +
                       std::string(described(v.kind)) + ", which is not known here.");
}

// ---- methods of texts

using TextMethod = Result<Value> (*)(Heap& heap, std::string_view text, Arguments& a);

template <Side side>
Result<Value> strip_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_ASSIGN(const auto chars, a.text(0, ""));
  BOWLINE_TRY(heap.step(text.size() * (chars ? chars->size() : 1)));
  return Value::of(strip(text, side, chars));
}

template <bool at_end>
Result<Value> affix_method(Heap& heap, std::string_view text, Arguments& a) {
  const Value* affix = a.take(0, "");
  if (affix == nullptr || (affix->kind != Kind::text && affix->kind != Kind::tuple)) {
    return failure("The begin or the end that it asks for is no text.");
  }
  std::vector<Value> one = {*affix};
  for (const Value& v : affix->kind == Kind::text ? one : *affix->list) {
    BOWLINE_TRY(heap.step());
    if (v.kind != Kind::text) {
      return failure("The begin or the end that it asks for is no text.");
    }
    if (at_end ? text.ends_with(v.text) : text.starts_with(v.text)) {
      return Value::of(true);
    }
  }
  return Value::of(false);
}

template <bool at_end>
Result<Value> remove_method(Heap&, std::string_view text, Arguments& a) {
  BOWLINE_ASSIGN(const auto affix, a.text(0, ""));
  if (affix && (at_end ? text.ends_with(*affix) : text.starts_with(*affix))) {
    return Value::of(at_end ? text.substr(0, text.size() - affix->size())
                            : text.substr(affix->size()));
  }
  return Value::of(text);
}

template <bool from_right>
Result<Value> split_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_ASSIGN(const auto separator, a.text(0, "sep"));
  BOWLINE_ASSIGN(const int64_t most, a.integer(1, "maxsplit", -1));
  BOWLINE_ASSIGN(std::vector<Value> parts, split(heap, text, separator, most, from_right));
  return heap.list(std::move(parts));
}

template <Case to>
Result<Value> case_method(Heap& heap, std::string_view text, Arguments&) {
  BOWLINE_ASSIGN(std::string out, with_case(text, to));
  return heap.text(std::move(out));
}

Result<Value> replace_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_ASSIGN(const auto from, a.text(0, "old"));
  BOWLINE_ASSIGN(const auto to, a.text(1, "new"));
  BOWLINE_ASSIGN(const int64_t most, a.integer(2, "count", -1));
  if (!from || !to) {
    return failure("\"replace\" lacks a text.");
  }
  BOWLINE_ASSIGN(std::string out, replace(heap, text, *from, *to, most));
  return heap.text(std::move(out));
}

Result<Value> find_method(Heap& heap, std::string_view text, Arguments& a) {
  BOWLINE_ASSIGN(const auto what, a.text(0, ""));
  BOWLINE_TRY(heap.step(text.size()));
  const size_t at = what ? text.find(*what) : std::string_view::npos;
  return Value::of(at == std::string_view::npos ? int64_t{-1} : length(text.substr(0, at)));
}

Result<Value> split_lines_method(Heap& heap, std::string_view text, Arguments&) {
  BOWLINE_ASSIGN(std::vector<Value> lines, split_lines(heap, text));
  return heap.list(std::move(lines));
}

Result<Value> join(Heap& heap, std::string_view between, const std::vector<Value>& parts,
                   bool any_value) {
  std::string out;
  for (const Value& part : parts) {
    if (!any_value) {
      BOWLINE_TRY(require_text("join", part));
    }
    BOWLINE_ASSIGN(const std::string_view text, printed(heap, part));
    BOWLINE_TRY(heap.step(between.size() + text.size()));
    if (out.size() > Heap::kMostBytes) {
      return failure("It joins too much text.");
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
  BOWLINE_ASSIGN(const std::vector<Value>* items, elements(heap, *parts));
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
    {"find", find_method},
    {"join", join_method},
};

// ---- filters

using Filter = Result<Value> (*)(Renderer& r, const Value& v, Arguments& a);

Result<Value> trim(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_ASSIGN(const std::string_view text, printed(r.heap(), v));
  BOWLINE_ASSIGN(const auto chars, a.text(0, "chars"));
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
      return failure("It asks for the length of " + std::string(described(v.kind)) + ".");
  }
}

Result<Value> default_of(Renderer&, const Value& v, Arguments& a) {
  const Value* otherwise = a.take(0, "default_value");
  const Value* also_false = a.take(1, "boolean");
  const bool is_missing =
      v.kind == Kind::undefined || (also_false != nullptr && is_true(*also_false) && !is_true(v));
  return !is_missing ? v : otherwise == nullptr ? Value::of(std::string_view()) : *otherwise;
}

Result<Value> json(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_ASSIGN(const int64_t indent, a.integer(1, "indent", -1));
  const Value* ascii = a.take(0, "ensure_ascii");
  if (ascii != nullptr && is_true(*ascii)) {
    return failure("JSON in ASCII alone is not known here.");
  }
  BOWLINE_ASSIGN(std::string text, to_json(r.heap(), v, indent));
  return r.heap().text(std::move(text));
}

Result<Value> join_filter(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_ASSIGN(const auto between, a.text(0, "d"));
  BOWLINE_ASSIGN(const auto attribute, a.text(1, "attribute"));
  BOWLINE_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  if (!attribute) {
    return join(r.heap(), between.value_or(""), *items, true);
  }
  std::vector<Value> parts;
  for (const Value& item : *items) {
    BOWLINE_ASSIGN(parts.emplace_back(), r.item(item, Value::of(*attribute)));
  }
  return join(r.heap(), between.value_or(""), parts, true);
}

Result<Value> list(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  return r.heap().list(*items);
}

template <bool last>
Result<Value> end_of(Renderer& r, const Value& v, Arguments&) {
  if (last && v.kind == Kind::dict) {
    return unknown("filter of a dict", "last");
  }
  BOWLINE_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  return items->empty() ? Value::undefined("an item") : last ? items->back() : items->front();
}

Result<Value> reverse(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
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
  BOWLINE_ASSIGN(const std::string_view text, printed(r.heap(), v));
  return Value::of(text);
}

Result<Value> number_of(Renderer&, const Value& v, Arguments& a) {
  BOWLINE_ASSIGN(const int64_t otherwise, a.integer(0, "default", 0));
  if (v.is_number()) {
    return Value::of(v.number());
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
                 ? Result<Value>(failure("It makes a number of \"" + escaped(v.text.substr(0, 80)) +
                                         "\", which is not known here."))
                 : Value::of(otherwise);
    }
  }
  return Value::of(digits.empty() ? otherwise : negative ? -n : n);
}

Result<Value> items(Renderer& r, const Value& v, Arguments&) {
  std::vector<Value> out;
  if (v.kind == Kind::dict) {
    for (const auto& [key, value] : *v.dict) {
      BOWLINE_ASSIGN(out.emplace_back(), r.heap().list({key, value}, Kind::tuple));
    }
  } else if (v.kind != Kind::undefined) {
    return failure("It asks for the items of " + std::string(described(v.kind)) + ".");
  }
  return r.heap().iterator(std::move(out));
}

template <Case to>
Result<Value> case_filter(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_ASSIGN(const std::string_view text, printed(r.heap(), v));
  BOWLINE_ASSIGN(std::string out, with_case(text, to));
  return r.heap().text(std::move(out));
}

Result<Value> replace_filter(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_ASSIGN(const std::string_view text, printed(r.heap(), v));
  return replace_method(r.heap(), text, a);
}

// What comes behind the dots of "a.b.0".
Result<Value> attribute_of(Renderer& r, const Value& v, std::string_view path) {
  Value out = v;
  while (true) {
    const size_t dot = path.find('.');
    const std::string_view name = path.substr(0, dot);
    if (!name.empty() && name[0] >= '0' && name[0] <= '9') {
      return unknown("attribute", path);
    }
    if (out.kind == Kind::undefined) {
      return failure("It asks for an attribute of what is not defined.");
    }
    if (out.kind == Kind::dict || out.kind == Kind::name_space) {
      BOWLINE_ASSIGN(out, r.item(out, Value::of(name)));
    } else {
      BOWLINE_ASSIGN(out, r.attribute(out, name));
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
    BOWLINE_ASSIGN(attribute, a.text(0, ""));
    if (!attribute) {
      return failure("A selection by an attribute names none.");
    }
  }
  const size_t first = of_attribute ? 1 : 0;
  BOWLINE_ASSIGN(const auto test, a.text(first, ""));
  const Arguments others = a.rest(first + 1);
  BOWLINE_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  std::vector<Value> out;
  for (const Value& item : *items) {
    Value asked = item;
    if (attribute) {
      BOWLINE_ASSIGN(asked, attribute_of(r, item, *attribute));
    }
    bool is = is_true(asked);
    if (test) {
      BOWLINE_ASSIGN(is, r.test(*test, asked, others));
    }
    if (is == wanted) {
      out.push_back(item);
    }
  }
  return r.heap().iterator(std::move(out));
}

Result<Value> map(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_ASSIGN(const std::vector<Value>* items, elements(r.heap(), v));
  std::vector<Value> out;
  if (a.positional.empty()) {
    BOWLINE_ASSIGN(const auto attribute, a.text(0, "attribute"));
    const Value* otherwise = a.take(1, "default");
    if (!attribute) {
      return failure("\"map\" names neither a filter nor an attribute.");
    }
    for (const Value& item : *items) {
      BOWLINE_ASSIGN(Value found, attribute_of(r, item, *attribute));
      out.push_back(found.kind == Kind::undefined && otherwise != nullptr ? *otherwise : found);
    }
    return r.heap().iterator(std::move(out));
  }
  BOWLINE_ASSIGN(const auto filter, a.text(0, ""));
  const Arguments others = a.rest(1);
  for (const Value& item : *items) {
    BOWLINE_ASSIGN(out.emplace_back(), r.filter(filter.value_or(""), item, others));
  }
  return r.heap().iterator(std::move(out));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
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
    BOWLINE_ASSIGN(const bool same, equal(heap, v, other));
    return !same;
  }
  if (name == "divisibleby") {
    if (!v.is_number() || !other.is_number() || other.number() == 0 || other.number() == -1) {
      return failure("It asks what divides " + std::string(described(v.kind)) + ".");
    }
    return v.number() % other.number() == 0;
  }
  BOWLINE_ASSIGN(const int sign, order(heap, v, other));
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
  return std::ranges::any_of(kTextMethods, [&](const auto& m) { return m.first == name; });
}

Result<Value> Renderer::filter(std::string_view name, const Value& value, Arguments arguments) {
  BOWLINE_TRY(heap_.step());
  for (const auto& [known, filter] : kFilters) {
    if (known == name) {
      BOWLINE_ASSIGN(const Value v, filter(*this, value, arguments));
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
      return failure("It asks whether " + std::string(described(k)) + " is odd.");
    }
    return (v.number() % 2 != 0) == (name == "odd");
  }
  if (name == "sequence" || name == "iterable") {
    const bool has_elements =
        k == Kind::undefined || k == Kind::text || k == Kind::dict || v.is_sequence();
    return has_elements || k == Kind::none || v.is_number()
               ? Result<bool>(has_elements)
               : Result<bool>(unknown("test of a function", name));
  }
  const std::pair<std::string_view, bool> simple[] = {
      {"defined", k != Kind::undefined},
      {"undefined", k == Kind::undefined},
      {"none", k == Kind::none},
      {"string", k == Kind::text},
      {"mapping", k == Kind::dict},
      {"number", v.is_number()},
      {"integer", k == Kind::integer},
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
  } else if (m.name == "get") {
    const Value* key = arguments.take(0, "");
    const Value* otherwise = arguments.take(1, "");
    if (key == nullptr) {
      return failure("\"get\" lacks a key.");
    }
    BOWLINE_ASSIGN(const Value* found, find(heap_, m.of, *key));
    out = found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value::none();
  } else if (m.name == "items") {
    out = items(*this, m.of, arguments);
  } else if (m.name == "keys" || m.name == "values") {
    std::vector<Value> list;
    for (const auto& [key, value] : *m.of.dict) {
      list.push_back(m.name == "keys" ? key : value);
    }
    out = heap_.list(std::move(list));
  }
  if (out.ok()) {
    BOWLINE_TRY(arguments.require_taken());
  }
  return out;
}

namespace {

Result<Value> range(Heap& heap, Arguments& a) {
  BOWLINE_ASSIGN(const int64_t first, a.integer(0, "", 0));
  const bool from_zero = a.positional.size() < 2;
  BOWLINE_ASSIGN(const int64_t stop, a.integer(1, "", first));
  BOWLINE_ASSIGN(const int64_t step, a.integer(2, "", 1));
  const int64_t start = from_zero ? 0 : first;
  constexpr int64_t kMost = 100'000;  // as Jinja2's sandbox
  if (a.positional.empty() || step == 0) {
    return failure("A range has no end, or a step of 0.");
  }
  std::vector<Value> out;
  for (int64_t n = start; step > 0 ? n < stop : n > stop;) {
    if (static_cast<int64_t>(out.size()) == kMost) {
      return failure("A range has more than " + std::to_string(kMost) + " numbers.");
    }
    out.push_back(Value::of(n));
    if (__builtin_add_overflow(n, step, &n)) {
      break;
    }
  }
  BOWLINE_TRY(a.require_taken());
  return heap.list(std::move(out));
}

// namespace() and dict(): of named values, and of those of a dict.
Result<Value> dict(Heap& heap, Arguments& a, Kind kind) {
  std::vector<Pair> pairs;
  if (const Value* from = a.take(0, "")) {
    if (from->kind != Kind::dict) {
      return failure("It makes a dict of " + std::string(described(from->kind)) +
                     ", which is not known here.");
    }
    pairs = *from->dict;
  }
  BOWLINE_ASSIGN(const Value out, heap.dict(std::move(pairs), kind));
  for (const auto& [name, value] : a.named) {
    a.take(SIZE_MAX, name);
    BOWLINE_ASSIGN(const Value* known, find(heap, out, Value::of(name)));
    if (known != nullptr || (kind == Kind::name_space && name.starts_with('_'))) {
      return failure("The name \"" + escaped(name.substr(0, 80)) + "\" of a dict is taken.");
    }
    out.dict->emplace_back(Value::of(name), value);
  }
  BOWLINE_TRY(a.require_taken());
  return out;
}

Result<Value> time_text(Heap& heap, Arguments& a, int64_t now) {
  BOWLINE_ASSIGN(const auto layout, a.text(0, "format"));
  BOWLINE_TRY(a.require_taken());
  std::tm parts = {};
  const std::time_t seconds = now;
  if (!layout || gmtime_r(&seconds, &parts) == nullptr) {
    return failure("It shows a time that cannot be shown.");
  }
  constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December"};
  constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday"};
  const auto number = [](int n, size_t digits) {
    const std::string text = std::to_string(n);
    return std::string(digits - std::min(digits, text.size()), '0') + text;
  };
  std::string out;
  for (size_t i = 0; i < layout->size(); ++i) {
    if ((*layout)[i] != '%') {
      out += (*layout)[i];
      continue;
    }
    switch (++i < layout->size() ? (*layout)[i] : '\0') {
      case 'd':
        out += number(parts.tm_mday, 2);
        break;
      case 'm':
        out += number(parts.tm_mon + 1, 2);
        break;
      case 'y':
        out += number(parts.tm_year % 100, 2);
        break;
      case 'Y':
        out += number(parts.tm_year + 1900, 1);
        break;
      case 'H':
        out += number(parts.tm_hour, 2);
        break;
      case 'M':
        out += number(parts.tm_min, 2);
        break;
      case 'S':
        out += number(parts.tm_sec, 2);
        break;
      case 'b':
        out += kMonths[parts.tm_mon].substr(0, 3);
        break;
      case 'B':
        out += kMonths[parts.tm_mon];
        break;
      case 'a':
        out += kDays[parts.tm_wday].substr(0, 3);
        break;
      case 'A':
        out += kDays[parts.tm_wday];
        break;
      case '%':
        out += '%';
        break;
      default:
        return failure("The layout \"" + escaped(layout->substr(0, 80)) +
                       "\" of a time is not known here.");
    }
  }
  return heap.text(std::move(out));
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
    return time_text(heap_, a, now_.value_or(0));
  }
  const Value* message = a.take(0, "message");
  std::string_view text;
  if (message != nullptr) {
    BOWLINE_ASSIGN(text, printed(heap_, *message));
  }
  return Status(Code::bad_argument, "The chat template refuses the conversation: " + escaped(text));
}

}  // namespace bowline::text::chat
