// Values of a chat template while it is rendered. All of them live in one Heap, which goes as a whole: values may form circles, and
// nothing is freed by a chain of destructors.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bowline_text.h"

namespace bowline::text::chat {

struct Statement;
struct Value;
struct Loop;

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  text,
  list,
  tuple,
  dict,
  name_space,
  iterator,  // what a filter gives of a list: it can be gone through once
  loop,      // the variable `loop`
  macro,     // of the template
  function,  // a global: range, namespace, ...
  method,    // of a value: strip, items, ...
};
// "a list"
std::string_view described(Kind kind);

using Pair = std::pair<Value, Value>;
struct Scope;

struct Macro {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // where it stands
};
struct Method;
struct Iterator;

struct Value {
  Kind kind = Kind::undefined;
  bool boolean = false;
  int64_t integer = 0;
  std::string_view text;  // also the name of a function, and of what is undefined
  union {
    const std::vector<Value>* list = nullptr;  // and tuple
    std::vector<Pair>* dict;                   // and namespace, the one value that changes
    Iterator* iterator;
    Loop* loop;
    const Macro* macro;
    const Method* method;
  };

  static Value none() { return of(Kind::none); }
  static Value of(bool b) {
    Value v = of(Kind::boolean);
    v.boolean = b;
    return v;
  }
  static Value of(int64_t n) {
    Value v = of(Kind::integer);
    v.integer = n;
    return v;
  }
  static Value of(std::string_view t) {
    Value v = of(Kind::text);
    v.text = t;
    return v;
  }
  static Value undefined(std::string_view name) {
    Value v;
    v.text = name;
    return v;
  }
  static Value function(std::string_view name) {
    Value v = of(Kind::function);
    v.text = name;
    return v;
  }
  static Value of(Kind kind) {
    Value v;
    v.kind = kind;
    return v;
  }

  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }
  bool is_number() const { return kind == Kind::integer || kind == Kind::boolean; }
  // Of a number.
  int64_t number() const { return kind == Kind::boolean ? int64_t{boolean} : integer; }
};

struct Method {
  Value of;
  std::string_view name;
};

struct Iterator {
  std::vector<Value> items;
  bool is_used = false;
};

// Names of one level: a template, an iteration of a loop, a macro, a block.
struct Scope {
  Scope* outer = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;
};

// Owns what a rendering makes, and counts what it costs.
class Heap {
 public:
  static constexpr uint64_t kMostSteps = 10'000'000;
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;

  Heap();
  ~Heap();

  // One step, and one more for each 64 bytes that are looked at. Errors  bad_file: too many.
  Status step(uint64_t bytes = 0);
  // Errors of all that follow  bad_file: too much memory.
  Result<Value> text(std::string t);
  Result<Value> list(std::vector<Value> items, Kind kind = Kind::list);
  Result<Value> dict(std::vector<Pair> pairs, Kind kind = Kind::dict);
  Result<Value> iterator(std::vector<Value> items);
  Result<Value> method(const Value& of, std::string_view name);
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
  std::deque<Method> methods_;
  std::deque<Macro> macros_;
  std::deque<Scope> scopes_;
  std::deque<std::unique_ptr<Loop>> loops_;
};

// As Python: what an `if` asks.
bool is_true(const Value& v);
// a == b, and a < b as -1, 0, 1. Errors  bad_file: two such values have no order.
Result<bool> equal(Heap& heap, const Value& a, const Value& b, int depth = 0);
Result<int> order(Heap& heap, const Value& a, const Value& b, int depth = 0);
// The value of a key, or null.
Result<const Value*> find(Heap& heap, const Value& dict, const Value& key);
// `what in in`.
Result<bool> contains(Heap& heap, const Value& in, const Value& what);
// The text that `{{ v }}` prints. Errors  bad_file: of lists, dicts and what is no data it is not known here.
Result<std::string_view> printed(Heap& heap, const Value& v);
// Elements of a sequence, keys of a dict, code points of a text. Errors  bad_file: it has none, or is an iterator that was gone through.
Result<const std::vector<Value>*> elements(Heap& heap, const Value& v);
// As json.dumps(ensure_ascii=False). indent < 0: on one line.
Result<std::string> to_json(Heap& heap, const Value& v, int64_t indent);

Status failure(std::string message);

}  // namespace bowline::text::chat
