// The interface of the renderer for filters, tests and methods.
#pragma once

#include "text/chat_strings.h"
#include "text/chat_template.h"

namespace bowline::text::chat {

// Arguments of a call. Each is taken by position or name. require_taken() rejects the rest.
class Arguments {
 public:
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;

  const Value* take(size_t number, std::string_view name);
  // As take(). Errors  bad_file: the value has another type.
  Result<int64_t> integer(size_t number, std::string_view name, int64_t otherwise);
  Result<std::optional<std::string_view>> text(size_t number, std::string_view name);
  // True if the argument is given and true.
  bool flag(size_t number, std::string_view name);
  // Returns the positional arguments from `number` on, with the named ones, for another call.
  Arguments rest(size_t number);
  Status require_taken() const;

 private:
  size_t taken_ = 0;
  std::vector<std::string_view> names_;
};

// Returns `a op b` for numbers. Errors  bad_file: the operation is not defined, or the result is
// too large.
Result<Value> arithmetic(std::string_view op, const Value& a, const Value& b);
// Returns `a op b` for comparison operators. "%" stands for the test `divisibleby`.
Result<bool> compared(Heap& heap, std::string_view op, const Value& a, const Value& b);

// datetime.strftime() of Python for `now` (seconds since 1970), in UTC and English.
// Errors  bad_file: the layout is not valid or not supported.
Result<std::string> time_text(Heap& heap, std::string_view layout, int64_t now);

class Renderer {
 public:
  Renderer(Heap& heap, std::optional<int64_t> now) : heap_(heap), now_(now) {}

  Result<RenderedChat> render(const Tree& tree, Scope* globals);

  Heap& heap() { return heap_; }
  std::optional<int64_t> now() const { return now_; }
  Result<Value> filter(std::string_view name, const Value& value, Arguments arguments);
  Result<bool> test(std::string_view name, const Value& value, Arguments arguments);
  // Calls a function with all of its arguments. Errors  bad_file: it does not take an argument.
  Result<Value> call(Function function, const Value& of, Arguments& arguments);
  // Errors  bad_file: the value is markup, the result of the filter `safe`.
  static Status require_no_markup(const Value& value);
  // value.name, value[key].
  Result<Value> attribute(const Value& value, std::string_view name);
  Result<Value> item(const Value& value, const Value& key);

 private:
  static constexpr uint32_t kMostLevels = 400;
  static constexpr size_t kMostText = size_t{16} << 20;
  enum class Flow : uint8_t { on, stop, next };

  Result<Flow> run(const Body& body, Scope* scope, std::string& out);
  Result<Flow> run(const Statement& s, Scope* scope, std::string& out);
  Result<Flow> loop(const Statement& s, Scope* scope, std::string& out);
  Status append(std::string& out, std::string_view text);
  Status print(std::string& out, const Value& v);
  Status assign(const Statement& s, const Value& value, Scope* scope);
  Status assign(const Target& target, const Value& value, Scope* scope);
  // Renders a body to a text.
  Result<Value> captured(const Body& body, Scope* outer);
  Result<bool> ahead(Loop& loop);

  Result<Value> evaluate(const Expression* e, Scope* scope);
  Result<Value> evaluate_here(const Expression& e, Scope* scope);
  Result<Value> binary(const Expression& e, Scope* scope);
  Result<Value> compare(const Expression& e, Scope* scope);
  Result<Value> concat(const Expression& e, Scope* scope);
  Result<Value> collection(const Expression& e, Scope* scope);
  Result<Value> slice(const Expression& e, Scope* scope);
  Result<Value> part_of(std::string_view text, const Slice& slice);
  Result<Value> called(const Expression& e, Scope* scope, const Value* caller);
  Result<Value> filtered(const Expression& e, const Value* of, Scope* scope);
  Result<Value> call_macro(const Macro& macro, Arguments arguments);
  Result<Value> name(std::string_view asked, Scope* scope) const;
  Result<Arguments> arguments(const Expression& e, Scope* scope);
  Result<Value> of_loop(Loop& loop, std::string_view name);

  Heap& heap_;
  std::optional<int64_t> now_;
  // The output of the template, without the output of macros and blocks.
  const std::string* written_ = nullptr;
  std::vector<Offset> answers_;
  uint32_t level_ = 0;
};

}  // namespace bowline::text::chat
