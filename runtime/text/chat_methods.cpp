// The methods of texts, lists and dicts.
#include <algorithm>

#include "base/projected.h"
#include "text/chat_functions.h"
#include "text/chat_strings.h"

namespace bowline::text::chat {
namespace {

// ---- texts

template <Side side>
Result<Value> stripped(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto chars, a.text(0, ""));
  BOWLINE_TRY(r.heap().step(v.text.size() * (chars ? chars->size() : 1)));
  return Value::of(strip(v.text, side, chars));
}

template <bool at_end>
bool has_affix(std::string_view text, std::string_view affix) {
  return at_end ? text.ends_with(affix) : text.starts_with(affix);
}

template <bool at_end>
Result<Value> tells_affix(Renderer& r, const Value& v, Arguments& a) {
  const Value* given = a.take(0, "");
  const std::vector<Value> one = {given != nullptr ? *given : Value()};
  for (const Value& affix : one[0].kind == Kind::tuple ? *one[0].list : one) {
    BOWLINE_TRY(r.heap().step());
    BOWLINE_REQUIRE_FILE(affix.kind == Kind::text,
                         "An argument of startswith or endswith is not a text.");
    if (has_affix<at_end>(v.text, affix.text)) {
      return Value::of(true);
    }
  }
  return Value::of(false);
}

template <bool at_end>
Result<Value> without_affix(Renderer&, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto affix, a.text(0, ""));
  if (!affix || !has_affix<at_end>(v.text, *affix)) {
    return Value::of(v.text);
  }
  return Value::of(v.text.substr(at_end ? 0 : affix->size(), v.text.size() - affix->size()));
}

template <bool from_right>
Result<Value> split_text(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto separator, a.text(0, "sep"));
  BOWLINE_TRY_ASSIGN(const int64_t most, a.integer(1, "maxsplit", -1));
  BOWLINE_TRY_ASSIGN(auto found, split(r.heap(), v.text, separator, most, from_right));
  return r.heap().list(std::move(found));
}

Result<Value> lines(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_TRY_ASSIGN(std::vector<Value> found, split_lines(r.heap(), v.text));
  return r.heap().list(std::move(found));
}

template <bool from_right>
size_t place_of(std::string_view what, std::string_view text) {
  return from_right ? text.rfind(what) : text.find(what);
}

template <bool from_right, bool must>
Result<Value> place(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto what, a.text(0, ""));
  BOWLINE_REQUIRE_FILE(what, "The argument of \"find\" is not a text.");
  BOWLINE_TRY(r.heap().step(v.text.size()));
  const size_t at = place_of<from_right>(*what, v.text);
  BOWLINE_REQUIRE_FILE(!must || at != std::string_view::npos,
                       "The argument of \"index\" does not occur in the text.");
  return Value::of(at == std::string_view::npos ? int64_t{-1} : length(v.text.substr(0, at)));
}

Result<Value> occurrences(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto what, a.text(0, ""));
  BOWLINE_REQUIRE_FILE(what, "The argument of \"count\" is not a text.");
  BOWLINE_TRY(r.heap().step(v.text.size()));
  if (what->empty()) {
    return Value::of(length(v.text) + 1);
  }
  int64_t n = 0;
  for (size_t at = 0; (at = v.text.find(*what, at)) != std::string_view::npos; at += what->size()) {
    ++n;
  }
  return Value::of(n);
}

template <bool from_right>
Result<Value> partition(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto separator, a.text(0, ""));
  BOWLINE_REQUIRE_FILE(separator && !separator->empty(),
                       "The separator of \"partition\" is empty.");
  BOWLINE_TRY(r.heap().step(v.text.size()));
  const size_t at = place_of<from_right>(*separator, v.text);
  std::string_view parts[] = {from_right ? "" : v.text, "", from_right ? v.text : ""};
  if (at != std::string_view::npos) {
    parts[0] = v.text.substr(0, at);
    parts[1] = *separator;
    parts[2] = v.text.substr(at + separator->size());
  }
  return r.heap().list({Value::of(parts[0]), Value::of(parts[1]), Value::of(parts[2])},
                       Kind::tuple);
}

bool is_letter(char c) { return is_lower(c) || is_upper(c); }
bool is_letter_or_digit(char c) { return is_letter(c) || is_digit(c); }
bool is_space(char c) { return begins_with_space({&c, 1}); }
bool is_not_upper(char c) { return !is_upper(c); }
bool is_not_lower(char c) { return !is_lower(c); }

// True if all characters satisfy `all`, and at least one satisfies `some`.
template <bool (*all)(char), bool (*some)(char) = all>
Result<Value> consists_of(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_TRY(r.heap().step(v.text.size()));
  BOWLINE_REQUIRE_FILE(length(v.text) == static_cast<int64_t>(v.text.size()),
                       "The kind of the letters of {} is supported only for ASCII.",
                       quoted(v.text));
  return Value::of(std::ranges::all_of(v.text, all) && std::ranges::any_of(v.text, some));
}

template <char align>
Result<Value> adjusted(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const int64_t width, a.integer(0, "", 0));
  std::optional<std::string_view> fill = "0";
  if (align != '0') {
    BOWLINE_TRY_ASSIGN(fill, a.text(1, ""));
  }
  const std::string_view letter = fill.value_or(" ");
  constexpr int64_t kMost = 10'000;
  BOWLINE_REQUIRE_FILE(width <= kMost && length(letter) == 1, "A width of {} is out of range.",
                       width);
  BOWLINE_TRY(r.heap().step(v.text.size()));
  std::string filler;
  for (int64_t n = length(v.text); n < width; ++n) {
    filler += letter;
  }
  const size_t sign = align == '0' && (v.text.starts_with('-') || v.text.starts_with('+')) ? 1 : 0;
  return r.heap().text(std::string(v.text).insert(align == '<' ? v.text.size() : sign, filler));
}

Result<Value> joined(Renderer& r, const Value& v, Arguments& a) {
  const Value* list = a.take(0, "");
  BOWLINE_REQUIRE_FILE(list != nullptr, "\"join\" lacks a list.");
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(r.heap(), *list));
  for (const Value& item : *items) {
    BOWLINE_TRY(require_text("join", item));
  }
  return join(r.heap(), v.text, *items);
}

constexpr NamedFunction kTextMethods[] = {
    {"strip", stripped<Side::both>},
    {"lstrip", stripped<Side::left>},
    {"rstrip", stripped<Side::right>},
    {"startswith", tells_affix<false>},
    {"endswith", tells_affix<true>},
    {"removeprefix", without_affix<false>},
    {"removesuffix", without_affix<true>},
    {"split", split_text<false>},
    {"rsplit", split_text<true>},
    {"splitlines", lines},
    {"lower", in_case<Case::lower>},
    {"upper", in_case<Case::upper>},
    {"title", in_case<Case::title>},
    {"capitalize", in_case<Case::capitalize>},
    {"replace", replaced},
    {"find", place<false, false>},
    {"rfind", place<true, false>},
    {"index", place<false, true>},
    {"rindex", place<true, true>},
    {"count", occurrences},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"isdigit", consists_of<is_digit>},
    {"isdecimal", consists_of<is_digit>},
    {"isnumeric", consists_of<is_digit>},
    {"isalpha", consists_of<is_letter>},
    {"isalnum", consists_of<is_letter_or_digit>},
    {"isspace", consists_of<is_space>},
    {"islower", consists_of<is_not_upper, is_lower>},
    {"isupper", consists_of<is_not_lower, is_upper>},
    {"ljust", adjusted<'<'>},
    {"rjust", adjusted<'>'>},
    {"zfill", adjusted<'0'>},
    {"join", joined},
    {"format", formatted},
};

// ---- lists and dicts

template <bool counts>
Result<Value> search(Renderer& r, const Value& v, Arguments& a) {
  const Value* what = a.take(0, "");
  BOWLINE_REQUIRE_FILE(what != nullptr, "\"{}\" lacks a value.", counts ? "count" : "index");
  int64_t count = 0, index = -1;
  for (const Value& item : *v.list) {
    BOWLINE_TRY_ASSIGN(const bool same, equal(r.heap(), item, *what));
    index = same && index < 0 ? &item - v.list->data() : index;
    count += same ? 1 : 0;
  }
  BOWLINE_REQUIRE_FILE(counts || index >= 0, "The argument of \"index\" is not in the list.");
  return Value::of(counts ? count : index);
}

Result<Value> copied(Renderer& r, const Value& v, Arguments&) { return r.heap().dict(*v.dict); }

Result<Value> value_or(Renderer& r, const Value& v, Arguments& a) {
  const Value* key = a.take(0, "");
  const Value* otherwise = a.take(1, "");
  BOWLINE_REQUIRE_FILE(key != nullptr, "\"get\" lacks a key.");
  BOWLINE_TRY_ASSIGN(const Value* found, find(r.heap(), v, *key));
  return found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value::none();
}

// The keys (0) or the values (1).
template <size_t part>
Result<Value> halves(Renderer& r, const Value& v, Arguments&) {
  return r.heap().list(projected(*v.dict, [](const auto& item) { return std::get<part>(item); }),
                       Kind::list, part == 0 ? "dict_keys" : "dict_values");
}

Result<Value> pairs(Renderer& r, const Value& v, Arguments&) {
  BOWLINE_TRY_ASSIGN(std::vector<Value> all, items_of(r.heap(), v));
  return r.heap().list(std::move(all), Kind::list, "dict_items");
}

constexpr NamedFunction kListMethods[] = {{"index", search<false>}, {"count", search<true>}};
constexpr NamedFunction kDictMethods[] = {{"copy", copied},
                                          {"get", value_or},
                                          {"items", pairs},
                                          {"keys", halves<0>},
                                          {"values", halves<1>}};

}  // namespace

Result<Value> replaced(Renderer& r, const Value& v, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto from, a.text(0, "old"));
  BOWLINE_TRY_ASSIGN(const auto to, a.text(1, "new"));
  BOWLINE_TRY_ASSIGN(const int64_t most, a.integer(2, "count", -1));
  BOWLINE_REQUIRE_FILE(from && to, "\"replace\" lacks an argument.");
  BOWLINE_TRY_ASSIGN(std::string out, replace(r.heap(), v.text, *from, *to, most));
  return r.heap().text(std::move(out));
}

Status require_text(std::string_view of, const Value& v) {
  return v.kind == Kind::text
             ? Status()
             : failure("\"{}\" is applied to {}, which is not supported.", of, described(v.kind));
}

Result<Value> join(Heap& heap, std::string_view between, const std::vector<Value>& parts) {
  std::string out;
  for (const Value& part : parts) {
    BOWLINE_TRY_ASSIGN(const std::string_view text, printed(heap, part));
    BOWLINE_TRY(heap.step(between.size() + text.size()));
    BOWLINE_REQUIRE_FILE(out.size() <= Heap::kMostBytes, "The result of \"join\" is too long.");
    out += &part == parts.data() ? "" : between;
    out += text;
  }
  return heap.text(std::move(out));
}

Result<std::vector<Value>> items_of(Heap& heap, const Value& dict) {
  std::vector<Value> out;
  for (const auto& [key, value] : *dict.dict) {
    BOWLINE_TRY_ASSIGN(out.emplace_back(), heap.list({key, value}, Kind::tuple));
  }
  return out;
}

Function method_of(const Value& value, std::string_view name) {
  return value.kind == Kind::text                    ? function_of(kTextMethods, name)
         : value.kind == Kind::dict                  ? function_of(kDictMethods, name)
         : value.is_sequence() && value.text.empty() ? function_of(kListMethods, name)
                                                     : nullptr;
}

}  // namespace bowline::text::chat
