#include "text/chat_value.h"

#include "base/escape.h"
#include "text/chat_strings.h"

namespace bowline::text::chat {
namespace {

constexpr int kMostValueLevels = 100;

// Compares numbers, exactly: a long double holds all bits of an integer.
std::partial_ordering compared_numbers(const Value& a, const Value& b) {
  const auto exact = [](const Value& v) {
    return v.kind == Kind::real ? static_cast<long double>(v.real)
                                : static_cast<long double>(v.number());
  };
  return exact(a) <=> exact(b);
}

}  // namespace

std::string quoted(std::string_view text) { return "\"" + escaped(text.substr(0, 80)) + "\""; }

std::string_view described(Kind kind) {
  constexpr std::string_view kDescribed[] = {"an undefined value",
                                             "none",
                                             "a boolean",
                                             "a number",
                                             "a number",
                                             "a text",
                                             "a list",
                                             "a tuple",
                                             "a dict",
                                             "a namespace",
                                             "an iterator",
                                             "a loop",
                                             "a macro",
                                             "a function"};
  return kDescribed[static_cast<size_t>(kind)];
}

Status Heap::step(uint64_t bytes) {
  steps_ += 1 + bytes / 64;
  BOWLINE_REQUIRE_FILE(steps_ <= kMostSteps, "Rendering takes more than {} steps.", kMostSteps);
  return {};
}

Status Heap::take(uint64_t bytes) {
  BOWLINE_TRY(step(bytes));
  bytes_ += bytes;
  BOWLINE_REQUIRE_FILE(bytes_ <= kMostBytes, "The values have more than {} bytes.", kMostBytes);
  return {};
}

Result<Value> Heap::text(std::string t) {
  BOWLINE_TRY(take(t.size() + sizeof(std::string)));
  return Value::of(std::string_view(texts_.emplace_back(std::move(t))));
}

Result<Value> Heap::list(std::vector<Value> items, Kind kind, std::string_view python) {
  BOWLINE_TRY(take(items.size() * sizeof(Value) + sizeof(items)));
  Value v = Value::of(kind);
  v.text = python;
  v.list = &lists_.emplace_back(std::move(items));
  return v;
}

Result<Value> Heap::dict(std::vector<Pair> pairs, Kind kind) {
  BOWLINE_TRY(take(pairs.size() * sizeof(Pair) + sizeof(pairs)));
  Value v = Value::of(kind);
  v.dict = &dicts_.emplace_back(std::move(pairs));
  return v;
}

Result<Value> Heap::iterator(std::vector<Value> items) {
  BOWLINE_TRY(take(items.size() * sizeof(Value) + sizeof(Iterator)));
  Value v = Value::of(Kind::iterator);
  v.iterator = &iterators_.emplace_back(Iterator{std::move(items)});
  return v;
}

Result<Value> Heap::method(Function function, const Value& of) {
  BOWLINE_TRY(take(sizeof(Value)));
  return Value(function, {}, &values_.emplace_back(of));
}

Result<Value> Heap::macro(const Statement* statement, Scope* scope) {
  BOWLINE_TRY(take(sizeof(Macro)));
  Value v = Value::of(Kind::macro);
  v.macro = &macros_.emplace_back(Macro{statement, scope});
  return v;
}

Result<Scope*> Heap::scope(Scope* outer) {
  BOWLINE_TRY(take(sizeof(Scope)));
  return &scopes_.emplace_back(Scope{outer, {}});
}

Result<Loop*> Heap::loop() {
  BOWLINE_TRY(take(sizeof(Loop)));
  return &loops_.emplace_back();
}

bool is_true(const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return v.number() != 0;
    case Kind::real:
      return v.real != 0;
    case Kind::text:
      return !v.text.empty();
    case Kind::list:
    case Kind::tuple:
      return !v.list->empty();
    case Kind::dict:
      return !v.dict->empty();
    default:
      return true;
  }
}

Result<bool> equal(Heap& heap, const Value& a, const Value& b, int depth) {
  BOWLINE_TRY(heap.step());
  BOWLINE_REQUIRE_FILE(depth <= kMostValueLevels, "Compared values have more than {} levels.",
                       kMostValueLevels);
  if (a.is_numeric() && b.is_numeric()) {
    return compared_numbers(a, b) == 0;
  }
  if (a.kind != b.kind || (a.kind == Kind::list && a.text != b.text)) {
    return false;
  }
  BOWLINE_REQUIRE_FILE(!a.is_view(), "The comparison of dict views is not supported.");
  switch (a.kind) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      BOWLINE_TRY(heap.step(a.text.size()));
      return a.text == b.text;
    case Kind::list:
    case Kind::tuple:
      if (a.list->size() != b.list->size()) {
        return false;
      }
      for (size_t i = 0; i < a.list->size(); ++i) {
        BOWLINE_TRY_ASSIGN(const bool same, equal(heap, (*a.list)[i], (*b.list)[i], depth + 1));
        if (!same) {
          return false;
        }
      }
      return true;
    case Kind::dict:
      if (a.dict->size() != b.dict->size()) {
        return false;
      }
      for (const auto& [key, value] : *a.dict) {
        BOWLINE_TRY_ASSIGN(const Value* other, find(heap, b, key));
        if (other == nullptr) {
          return false;
        }
        BOWLINE_TRY_ASSIGN(const bool same, equal(heap, value, *other, depth + 1));
        if (!same) {
          return false;
        }
      }
      return true;
    case Kind::name_space:
      return a.dict == b.dict;
    default:
      return failure("The comparison of {} is not supported.", described(a.kind));
  }
}

Result<std::partial_ordering> order(Heap& heap, const Value& a, const Value& b, int depth) {
  BOWLINE_TRY(heap.step());
  if (a.is_numeric() && b.is_numeric()) {
    const std::partial_ordering sign = compared_numbers(a, b);
    BOWLINE_REQUIRE_FILE(sign != std::partial_ordering::unordered, "NaN has no order.");
    return sign;
  }
  if (a.kind == Kind::text && b.kind == Kind::text) {
    BOWLINE_TRY(heap.step(a.text.size()));
    return std::partial_ordering(a.text <=> b.text);  // bytes of UTF-8, as code points
  }
  if (a.is_sequence() && a.kind == b.kind && a.text.empty() && b.text.empty() &&
      depth < kMostValueLevels) {
    for (size_t i = 0; i < a.list->size() && i < b.list->size(); ++i) {
      BOWLINE_TRY_ASSIGN(const bool same, equal(heap, (*a.list)[i], (*b.list)[i], depth + 1));
      if (!same) {
        return order(heap, (*a.list)[i], (*b.list)[i], depth + 1);
      }
    }
    return std::partial_ordering(a.list->size() <=> b.list->size());
  }
  return failure("There is no order between {} and {}.", described(a.kind), described(b.kind));
}

bool sort_by_key(std::vector<Pair>& pairs, bool reversed) {
  const auto is_text = [](const Value& v) { return v.kind == Kind::text; };
  const bool texts = std::ranges::all_of(pairs, is_text, &Pair::first);
  if (!texts && !std::ranges::all_of(pairs, &Value::is_number, &Pair::first)) {
    return false;
  }
  std::ranges::stable_sort(pairs, [=](const Pair& a, const Pair& b) {
    const Value& x = reversed ? b.first : a.first;
    const Value& y = reversed ? a.first : b.first;
    return texts ? x.text < y.text : x.number() < y.number();
  });
  return true;
}

Result<const Value*> find(Heap& heap, const Value& dict, const Value& key) {
  BOWLINE_REQUIRE_FILE(key.kind != Kind::list && key.kind != Kind::dict,
                       "A key of a dict cannot be {}.", described(key.kind));
  for (const Pair& pair : *dict.dict) {
    BOWLINE_TRY_ASSIGN(const bool same, equal(heap, pair.first, key));
    if (same) {
      return &pair.second;
    }
  }
  return static_cast<const Value*>(nullptr);
}

Result<bool> contains(Heap& heap, const Value& in, const Value& what) {
  switch (in.kind) {
    case Kind::text:
      BOWLINE_REQUIRE_FILE(what.kind == Kind::text, "A text cannot contain {}.",
                           described(what.kind));
      BOWLINE_TRY(heap.step(in.text.size()));
      return in.text.find(what.text) != std::string_view::npos;
    case Kind::dict: {
      BOWLINE_TRY_ASSIGN(const Value* found, find(heap, in, what));
      return found != nullptr;
    }
    case Kind::undefined:
      return false;
    case Kind::list:
    case Kind::tuple:
      for (const Value& item : *in.list) {
        BOWLINE_TRY_ASSIGN(const bool same, equal(heap, item, what));
        if (same) {
          return true;
        }
      }
      return false;
    default:
      return failure("\"in\" is not defined for {}.", described(in.kind));
  }
}

Result<std::string_view> printed(Heap& heap, const Value& v) {
  if (v.kind == Kind::undefined || v.kind == Kind::text) {
    return v.kind == Kind::text ? v.text : std::string_view();
  }
  BOWLINE_TRY_ASSIGN(std::string text, repr(heap, v));
  BOWLINE_TRY_ASSIGN(const Value kept, heap.text(std::move(text)));
  return kept.text;
}

Result<const std::vector<Value>*> elements(Heap& heap, const Value& v) {
  std::vector<Value> out;
  switch (v.kind) {
    case Kind::undefined:
      break;
    case Kind::list:
    case Kind::tuple:
      return v.list;
    case Kind::iterator:
      BOWLINE_REQUIRE_FILE(!std::exchange(v.iterator->is_used, true),
                           "The result of a filter can be iterated only once.");
      return &v.iterator->items;
    case Kind::dict:
      for (const Pair& pair : *v.dict) {
        out.push_back(pair.first);
      }
      break;
    case Kind::text: {
      BOWLINE_TRY_ASSIGN(const Value letters, code_points(heap, v.text));
      return letters.list;
    }
    default:
      return failure("A loop is not possible over {}.", described(v.kind));
  }
  BOWLINE_TRY_ASSIGN(const Value list, heap.list(std::move(out)));
  return list.list;
}

}  // namespace bowline::text::chat
