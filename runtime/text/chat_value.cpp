#include "text/chat_value.h"

#include "text/chat_loop.h"
#include "text/chat_strings.h"

namespace bowline::text::chat {
namespace {

constexpr int kMostValueLevels = 100;

// The sign of a - b, exactly. Empty if a value is NaN. A long double holds all bits of an integer.
std::optional<int> compared(const Value& a, const Value& b) {
  const auto exact = [](const Value& v) -> long double {
    return v.kind == Kind::real ? static_cast<long double>(v.real)
                                : static_cast<long double>(v.number());
  };
  const long double x = exact(a), y = exact(b);
  return x < y    ? std::optional(-1)
         : x > y  ? std::optional(1)
         : x == y ? std::optional(0)
                  : std::nullopt;
}

}  // namespace

Status failure(std::string message) { return Status(Code::bad_file, std::move(message)); }

std::string_view described(Kind kind) {
  switch (kind) {
    case Kind::undefined:
      return "an undefined value";
    case Kind::none:
      return "none";
    case Kind::boolean:
      return "a boolean";
    case Kind::integer:
    case Kind::real:
      return "a number";
    case Kind::text:
      return "a text";
    case Kind::list:
      return "a list";
    case Kind::tuple:
      return "a tuple";
    case Kind::dict:
      return "a dict";
    case Kind::name_space:
      return "a namespace";
    case Kind::iterator:
      return "an iterator";
    case Kind::loop:
      return "a loop";
    case Kind::macro:
      return "a macro";
    case Kind::function:
    case Kind::method:
      return "a function";
  }
  return "nothing";
}

Heap::Heap() = default;
Heap::~Heap() = default;

Status Heap::step(uint64_t bytes) {
  steps_ += 1 + bytes / 64;
  if (steps_ > kMostSteps) {
    return failure("Rendering takes more than " + std::to_string(kMostSteps) + " steps.");
  }
  return {};
}

Status Heap::take(uint64_t bytes) {
  BOWLINE_TRY(step(bytes));
  bytes_ += bytes;
  if (bytes_ > kMostBytes) {
    return failure("The values have more than " + std::to_string(kMostBytes) + " bytes.");
  }
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

Result<Value> Heap::method(const Value& of, std::string_view name) {
  BOWLINE_TRY(take(sizeof(Method)));
  Value v = Value::of(Kind::method);
  v.method = &methods_.emplace_back(Method{of, name});
  return v;
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
  return loops_.emplace_back(std::make_unique<Loop>()).get();
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
  if (depth > kMostValueLevels) {
    return failure("Compared values have more than " + std::to_string(kMostValueLevels) +
                   " levels.");
  }
  if (a.is_number() && b.is_number()) {
    return a.number() == b.number();
  }
  if (a.is_numeric() && b.is_numeric()) {
    return compared(a, b) == 0;
  }
  if (a.kind != b.kind) {
    return false;
  }
  if (a.kind == Kind::list && a.text != b.text) {
    return false;
  }
  if (a.is_view()) {
    return failure("The comparison of dict views is not supported.");
  }
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
      return failure("The comparison of " + std::string(described(a.kind)) + " is not supported.");
  }
}

Result<int> order(Heap& heap, const Value& a, const Value& b, int depth) {
  BOWLINE_TRY(heap.step());
  if (a.is_number() && b.is_number()) {
    return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  }
  if (a.is_numeric() && b.is_numeric()) {
    const std::optional<int> sign = compared(a, b);
    return sign ? Result<int>(*sign) : Result<int>(failure("NaN has no order."));
  }
  if (a.kind == Kind::text && b.kind == Kind::text) {
    BOWLINE_TRY(heap.step(a.text.size()));
    const int c = a.text.compare(b.text);  // byte order of UTF-8 equals code point order
    return c < 0 ? -1 : c > 0 ? 1 : 0;
  }
  if (a.is_sequence() && a.kind == b.kind && a.text.empty() && b.text.empty() &&
      depth < kMostValueLevels) {
    for (size_t i = 0; i < a.list->size() && i < b.list->size(); ++i) {
      BOWLINE_TRY_ASSIGN(const bool same, equal(heap, (*a.list)[i], (*b.list)[i], depth + 1));
      if (!same) {
        return order(heap, (*a.list)[i], (*b.list)[i], depth + 1);
      }
    }
    return order(heap, Value::of(static_cast<int64_t>(a.list->size())),
                 Value::of(static_cast<int64_t>(b.list->size())), depth + 1);
  }
  return failure("There is no order between " + std::string(described(a.kind)) + " and " +
                 std::string(described(b.kind)) + ".");
}

Result<const Value*> find(Heap& heap, const Value& dict, const Value& key) {
  if (key.kind == Kind::list || key.kind == Kind::dict) {
    return failure("A key of a dict cannot be " + std::string(described(key.kind)) + ".");
  }
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
      if (what.kind != Kind::text) {
        return failure("A text cannot contain " + std::string(described(what.kind)) + ".");
      }
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
      return failure("\"in\" is not defined for " + std::string(described(in.kind)) + ".");
  }
}

Result<std::string_view> printed(Heap& heap, const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
      return std::string_view();
    case Kind::none:
      return std::string_view("None");
    case Kind::boolean:
      return std::string_view(v.boolean ? "True" : "False");
    case Kind::integer: {
      BOWLINE_TRY_ASSIGN(const Value text, heap.text(std::to_string(v.integer)));
      return text.text;
    }
    case Kind::text:
      return v.text;
    default: {
      BOWLINE_TRY_ASSIGN(std::string text, repr(heap, v));
      BOWLINE_TRY_ASSIGN(const Value kept, heap.text(std::move(text)));
      return kept.text;
    }
  }
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
      if (std::exchange(v.iterator->is_used, true)) {
        return failure("The result of a filter can be iterated only once.");
      }
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
      return failure("A loop is not possible over " + std::string(described(v.kind)) + ".");
  }
  BOWLINE_TRY_ASSIGN(const Value list, heap.list(std::move(out)));
  return list.list;
}

}  // namespace bowline::text::chat
