// Values of a chat template during rendering. A Heap owns all of them and frees them together:
// values may form cycles, and no destructor recurses.
#pragma once

#include <compare>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bowline_text.h"
#include "text/require.h"

namespace bowline::text::chat {

// An error of the template.
template <class... Ts>
Status failure(std::string_view message, const Ts&... values) {
  return Status(Code::bad_file, format(message, values...));
}
// The start of a text, escaped and in quotes.
std::string quoted(std::string_view text);

struct Statement;
struct Value;
struct Loop;
class Renderer;
class Arguments;

// A global function, or a filter or method of the value `of`.
using Function = Result<Value> (*)(Renderer& r, const Value& of, Arguments& a);

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  dict,
  name_space,
  iterator,  // result of a filter on a list; can be iterated once
  loop,      // the variable `loop`
  macro,     // of the template
  function,  // a global: range, namespace, ...; or a method of a value: strip, items, ...
};
// "a list"
std::string_view described(Kind kind);

using Pair = std::pair<Value, Value>;
struct Scope;

struct Macro {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // of its definition
};
struct Iterator;

struct Value {
  Kind kind = Kind::undefined;
  bool boolean = false;  // of a text: markup, the result of the filter `safe`
  union {
    int64_t integer = 0;
    double real;
    Function function;
  };
  // Also the name of a function or of an undefined value. Of a list: the Python type that it
  // represents ("range", "dict_keys", "dict_values", "dict_items"); empty: a list.
  std::string_view text;
  union {
    const std::vector<Value>* list = nullptr;  // and tuple
    std::vector<Pair>* dict;                   // and namespace, the only mutable value
    Iterator* iterator;
    Loop* loop;
    const Macro* macro;
    const Value* self;  // of a method; null: a global function
  };

  Value() = default;
  explicit Value(Kind k, std::string_view t = {}) : kind(k), text(t) {}
  explicit Value(bool b) : kind(Kind::boolean), boolean(b) {}
  explicit Value(int64_t n) : kind(Kind::integer), integer(n) {}
  explicit Value(double r) : kind(Kind::real), real(r) {}
  explicit Value(std::string_view t) : Value(Kind::text, t) {}
  explicit Value(const char* t) : Value(std::string_view(t)) {}
  Value(Function f, std::string_view t, const Value* of)
      : kind(Kind::function), function(f), text(t), self(of) {}

  template <class T>
  static Value of(const T& content) {
    return Value(content);
  }
  static Value none() { return Value(Kind::none); }
  static Value undefined(std::string_view name) { return Value(Kind::undefined, name); }

  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }
  // A Python view, represented by a list.
  bool is_view() const { return kind == Kind::list && text.starts_with("dict_"); }
  bool is_plain_list() const { return kind == Kind::list && text.empty(); }
  // Markup of Python changes the texts that are added to it. Here it can only be printed and
  // compared.
  bool is_markup() const { return kind == Kind::text && boolean; }
  bool is_number() const { return kind == Kind::integer || kind == Kind::boolean; }
  bool is_numeric() const { return is_number() || kind == Kind::real; }
  // Requires is_number().
  int64_t number() const { return kind == Kind::boolean ? int64_t{boolean} : integer; }
  // Requires is_numeric().
  double as_real() const { return kind == Kind::real ? real : static_cast<double>(number()); }
};

struct Iterator {
  std::vector<Value> items;
  bool is_used = false;
};

// Variables of a scope: a template, a loop iteration, a macro or a block.
struct Scope {
  Scope* outer = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;
};

// The elements of a `for` loop, one at a time. As in Jinja2, the condition of the loop is evaluated
// when an element is needed, because it may read a namespace that the body changes.
struct Loop {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // enclosing scope
  const std::vector<Value>* items = nullptr;
  size_t next = 0;             // index into `items` of the next element to examine
  int64_t index0 = -1;         // of the current iteration
  std::optional<Value> ahead;  // already found element for the next iteration
  std::optional<int64_t> length;
  bool settled = false;  // all remaining `items` satisfy the condition
  Value before;
  Value current;
};

// Owns all values of a rendering and limits its cost.
class Heap {
 public:
  static constexpr uint64_t kMostSteps = 10'000'000;
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;

  // Counts a step, plus one per 64 bytes that are read. Errors  bad_file: too many steps.
  Status step(uint64_t bytes = 0);
  // Errors of the following functions  bad_file: too much memory.
  Result<Value> text(std::string t);
  // `python`: as Value::text of a list.
  Result<Value> list(std::vector<Value> items, Kind kind = Kind::list,
                     std::string_view python = {});
  Result<Value> dict(std::vector<Pair> pairs, Kind kind = Kind::dict);
  Result<Value> iterator(std::vector<Value> items);
  Result<Value> method(Function function, const Value& of);
  Result<Value> macro(const Statement* statement, Scope* scope);
  Result<Scope*> scope(Scope* outer);
  Result<Loop*> loop();

 private:
  Status take(uint64_t bytes);

  uint64_t steps_ = 0;
  uint64_t bytes_ = 0;
  std::deque<std::string> texts_;
  std::deque<std::vector<Value>> lists_;
  std::deque<std::vector<Pair>> dicts_;
  std::deque<Iterator> iterators_;
  std::deque<Value> values_;
  std::deque<Macro> macros_;
  std::deque<Scope> scopes_;
  std::deque<Loop> loops_;
};

// Truth value as in Python.
bool is_true(const Value& v);
// a == b, and a <=> b, which is never unordered. Errors  bad_file: the values cannot be compared.
Result<bool> equal(Heap& heap, const Value& a, const Value& b, int depth = 0);
Result<std::partial_ordering> order(Heap& heap, const Value& a, const Value& b, int depth = 0);
// Sorts pairs by key, stable. False: the keys are neither all texts nor all integers.
bool sort_by_key(std::vector<Pair>& pairs, bool reversed = false);
// Returns the value of a key, or null.
Result<const Value*> find(Heap& heap, const Value& dict, const Value& key);
// Returns `what in in`.
Result<bool> contains(Heap& heap, const Value& in, const Value& what);
// Returns the text of `{{ v }}`. Errors  bad_file: the value is not data, such as a macro.
Result<std::string_view> printed(Heap& heap, const Value& v);
// repr(v). Errors  as printed().
Result<std::string> repr(Heap& heap, const Value& v);
// repr() of a float: the shortest digits that convert back to the same value.
std::string real_text(double r);
// Returns the elements of a sequence, the keys of a dict, or the code points of a text.
// Errors  bad_file: the value cannot be iterated, or is an iterator that was used.
Result<const std::vector<Value>*> elements(Heap& heap, const Value& v);
// Options of json.dumps().
struct JsonForm {
  std::optional<std::string> indent;  // per level; empty: everything on one line
  std::string between_items = ", ";
  std::string behind_keys = ": ";
  bool ascii = false;
  bool sorted = false;
};
Result<std::string> to_json(Heap& heap, const Value& v, const JsonForm& form);

}  // namespace bowline::text::chat
