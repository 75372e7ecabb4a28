// Renders a tree to text.
#include "text/chat_render.h"

#include <algorithm>
#include <cmath>

#include "base/escape.h"
#include "text/chat_loop.h"
#include "text/chat_strings.h"

namespace bowline::text::chat {
namespace {

using Op = Expression::Op;

constexpr uint32_t kMostLevels = 400;
constexpr size_t kMostText = size_t{16} << 20;

std::string quoted(std::string_view text) { return "\"" + escaped(text.substr(0, 200)) + "\""; }

// Names that Jinja2 or transformers define and Bowline does not.
bool is_unknown_global(std::string_view name) {
  for (const std::string_view known : {"self", "super", "cycler", "joiner", "lipsum"}) {
    if (name == known) {
      return true;
    }
  }
  const bool is_token_of_each =
      std::ranges::find(kTokenNames, name) != std::ranges::end(kTokenNames);
  return (name.ends_with("_token") && !is_token_of_each) || name.ends_with("_tokens");
}

// String methods of Python that is_text_method() does not have.
bool is_unknown_text_method(std::string_view name) {
  for (const std::string_view known : {"casefold", "center", "encode", "expandtabs", "format_map",
                                       "maketrans", "swapcase", "translate"}) {
    if (name == known) {
      return true;
    }
  }
  return name.starts_with("is") || name.starts_with('_');
}

bool is_global_function(std::string_view name, bool with_clock) {
  return name == "namespace" || name == "range" || name == "dict" || name == "raise_exception" ||
         (name == "strftime_now" && with_clock);
}

// a to the power of b >= 0.
Result<Value> power_of(int64_t a, int64_t b) {
  int64_t out = 1;
  while (b > 0) {
    if ((b & 1) != 0 && __builtin_mul_overflow(out, a, &out)) {
      return failure("A number is too large.");
    }
    b >>= 1;
    if (b > 0 && __builtin_mul_overflow(a, a, &a)) {
      return failure("A number is too large.");
    }
  }
  return Value::of(out);
}

// Floor of the quotient, or the remainder, as in Python's float_floor_div() and float_rem().
Value floor_of(double a, double b, bool wants_rest) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (wants_rest) {
    return Value::of(rest);
  }
  if (quotient == 0) {
    return Value::of(std::copysign(0.0, a / b));
  }
  const double floor = std::floor(quotient);
  return Value::of(quotient - floor > 0.5 ? floor + 1 : floor);
}

// An operation with a float operand or a float result.
Result<Value> real_of(std::string_view op, const Value& left, const Value& right) {
  constexpr int64_t kExact = int64_t{1} << 53;
  for (const Value* v : {&left, &right}) {
    if (v->is_number() && (v->number() > kExact || v->number() < -kExact)) {
      return failure("The integer " + std::to_string(v->number()) +
                     " cannot be converted to a float exactly.");
    }
  }
  const double a = left.as_real(), b = right.as_real();
  if (op == "+" || op == "-" || op == "*") {
    return Value::of(op == "+" ? a + b : op == "-" ? a - b : a * b);
  }
  if (b == 0 && op != "**") {
    return failure("Division by 0.");
  }
  if (op == "/") {
    return Value::of(a / b);
  }
  if (op == "//" || op == "%") {
    return floor_of(a, b, op == "%");
  }
  if ((a == 0 && b < 0) || (a < 0 && std::isfinite(b) && b != std::floor(b))) {
    return failure("The result of a power is not a number.");
  }
  const double power = std::pow(a, b);
  return std::isinf(power) && std::isfinite(a) && std::isfinite(b)
             ? Result<Value>(failure("A number is too large."))
             : Result<Value>(Value::of(power));
}

Result<Value> number_of(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  const bool too_large = op == "+"   ? __builtin_add_overflow(a, b, &out)
                         : op == "-" ? __builtin_sub_overflow(a, b, &out)
                         : op == "*" ? __builtin_mul_overflow(a, b, &out)
                                     : (op != "**" && b == -1 && a == INT64_MIN);
  if (too_large) {
    return failure("A number is too large.");
  }
  if (op == "+" || op == "-" || op == "*") {
    return Value::of(out);
  }
  if (op == "**") {
    return power_of(a, b);
  }
  if (b == 0) {
    return failure("Division by 0.");
  }
  // Rounds down, as in Python.
  const int64_t rest = a % b, floor = a / b;
  const bool is_between = rest != 0 && (rest < 0) != (b < 0);
  return Value::of(op == "%" ? (is_between ? rest + b : rest) : (is_between ? floor - 1 : floor));
}

Status with_line(Status status, uint32_t line) {
  if (status.code() != Code::bad_file || status.message().ends_with(").")) {
    return status;
  }
  std::string message = status.message();
  if (message.ends_with('.')) {
    message.pop_back();
  }
  return Status(status.code(), message + " (line " + std::to_string(line) + ").");
}

}  // namespace

const Value* Arguments::take(size_t number, std::string_view name) {
  if (number < positional.size()) {
    taken_ = std::max(taken_, number + 1);
    return &positional[number];
  }
  for (const auto& [known, value] : named) {
    if (known == name) {
      names_.push_back(name);
      return &value;
    }
  }
  return nullptr;
}

Result<int64_t> Arguments::integer(size_t number, std::string_view name, int64_t otherwise) {
  const Value* value = take(number, name);
  if (value == nullptr || value->kind == Kind::none) {
    return otherwise;
  }
  if (!value->is_number()) {
    return failure("An argument is " + std::string(described(value->kind)) + ", not a number.");
  }
  return value->number();
}

Result<std::optional<std::string_view>> Arguments::text(size_t number, std::string_view name) {
  const Value* value = take(number, name);
  if (value == nullptr || value->kind == Kind::none) {
    return std::optional<std::string_view>();
  }
  if (value->kind != Kind::text) {
    return failure("An argument is " + std::string(described(value->kind)) + ", not a text.");
  }
  return std::optional(value->text);
}

Arguments Arguments::rest(size_t number) {
  Arguments out;
  for (size_t i = number; i < positional.size(); ++i) {
    out.positional.push_back(positional[i]);
  }
  out.named = named;
  taken_ = positional.size();
  for (const auto& [name, value] : named) {
    names_.push_back(name);
  }
  return out;
}

Status Arguments::require_taken() const {
  if (taken_ < positional.size()) {
    return failure("A call has " + std::to_string(positional.size()) + " arguments, but at most " +
                   std::to_string(taken_) + " are supported.");
  }
  for (const auto& [name, value] : named) {
    if (std::ranges::find(names_, name) == names_.end()) {
      return failure("The argument " + quoted(name) + " is not supported.");
    }
  }
  return {};
}

// ---- statements

Result<RenderedChat> Renderer::render(const Tree& tree, Scope* globals) {
  std::string out;
  written_ = &out;
  BOWLINE_TRY(run(tree.body, globals, out).status());
  return RenderedChat{std::move(out), std::move(answers_)};
}

Status Renderer::append(std::string& out, std::string_view text) {
  BOWLINE_TRY(heap_.step(text.size()));
  if (out.size() + text.size() > kMostText) {
    return failure("The text has more than " + std::to_string(kMostText) + " bytes.");
  }
  out += text;
  return {};
}

Result<Renderer::Flow> Renderer::run(const Body& body, Scope* scope, std::string& out) {
  for (const Statement* s : body) {
    Result<Flow> flow = run(*s, scope, out);
    if (!flow.ok()) {
      return with_line(std::move(flow).status(), s->line);
    }
    if (flow.value() != Flow::on) {
      return flow;
    }
  }
  return Flow::on;
}

Result<Renderer::Flow> Renderer::run(const Statement& s, Scope* scope, std::string& out) {
  BOWLINE_TRY(heap_.step());
  switch (s.kind) {
    case Statement::Kind::text:
      BOWLINE_TRY(append(out, s.text));
      return Flow::on;
    case Statement::Kind::print: {
      BOWLINE_TRY_ASSIGN(const Value v, evaluate(s.expression, scope));
      BOWLINE_TRY_ASSIGN(const std::string_view text, printed(heap_, v));
      BOWLINE_TRY(append(out, text));
      return Flow::on;
    }
    case Statement::Kind::branch:
      for (const Statement::Branch& b : s.branches) {
        if (b.condition != nullptr) {
          BOWLINE_TRY_ASSIGN(const Value v, evaluate(b.condition, scope));
          if (!is_true(v)) {
            continue;
          }
        }
        return run(b.body, scope, out);
      }
      return Flow::on;
    case Statement::Kind::loop:
      return loop(s, scope, out);
    case Statement::Kind::set: {
      BOWLINE_TRY_ASSIGN(const Value v, evaluate(s.expression, scope));
      BOWLINE_TRY(assign(s, v, scope));
      return Flow::on;
    }
    case Statement::Kind::set_block:
    case Statement::Kind::filter: {
      BOWLINE_TRY_ASSIGN(Value v, captured(s.body, scope));
      if (s.expression != nullptr) {
        BOWLINE_TRY_ASSIGN(v, filtered(*s.expression, &v, scope));
      }
      if (s.kind == Statement::Kind::set_block) {
        BOWLINE_TRY(assign(s, v, scope));
      } else {
        BOWLINE_TRY_ASSIGN(const std::string_view text, printed(heap_, v));
        BOWLINE_TRY(append(out, text));
      }
      return Flow::on;
    }
    case Statement::Kind::call: {
      BOWLINE_TRY_ASSIGN(const Value caller, heap_.macro(&s, scope));
      BOWLINE_TRY_ASSIGN(const Value v, called(*s.expression, scope, &caller));
      BOWLINE_TRY_ASSIGN(const std::string_view text, printed(heap_, v));
      BOWLINE_TRY(append(out, text));
      return Flow::on;
    }
    case Statement::Kind::macro: {
      BOWLINE_TRY_ASSIGN(const Value v, heap_.macro(&s, scope));
      BOWLINE_TRY(assign(Target{s.text, {}}, v, scope));
      return Flow::on;
    }
    case Statement::Kind::answer: {
      // Inside a macro the position is that of the call, as in transformers.
      const size_t begin = written_->size();
      BOWLINE_TRY_ASSIGN(const Value v, captured(s.body, scope));
      answers_.push_back(
          {static_cast<uint32_t>(begin), static_cast<uint32_t>(begin + v.text.size())});
      BOWLINE_TRY(append(out, v.text));
      return Flow::on;
    }
    case Statement::Kind::stop:
      return Flow::stop;
    case Statement::Kind::next:
      return Flow::next;
  }
  return Flow::on;
}

Result<Value> Renderer::captured(const Body& body, Scope* outer) {
  BOWLINE_TRY_ASSIGN(Scope * scope, heap_.scope(outer));
  std::string text;
  BOWLINE_TRY(run(body, scope, text).status());
  return heap_.text(std::move(text));
}

// True if there is another element. It is then in loop.ahead.
Result<bool> Renderer::ahead(Loop& loop) {
  while (!loop.ahead && loop.next < loop.items->size()) {
    BOWLINE_TRY(heap_.step());
    const Value item = (*loop.items)[loop.next++];
    if (loop.statement->condition != nullptr && !loop.settled) {
      BOWLINE_TRY_ASSIGN(Scope * scope, heap_.scope(loop.scope));
      BOWLINE_TRY(assign(*loop.statement, item, scope));
      BOWLINE_TRY_ASSIGN(const Value v, evaluate(loop.statement->condition, scope));
      if (!is_true(v)) {
        continue;
      }
    }
    loop.ahead = item;
  }
  return loop.ahead.has_value();
}

Result<Renderer::Flow> Renderer::loop(const Statement& s, Scope* scope, std::string& out) {
  BOWLINE_TRY_ASSIGN(Loop * loop, heap_.loop());
  BOWLINE_TRY_ASSIGN(const Value of, evaluate(s.expression, scope));
  loop->statement = &s;
  loop->scope = scope;
  BOWLINE_TRY_ASSIGN(loop->items, elements(heap_, of));
  Value variable = Value::of(Kind::loop);
  variable.loop = loop;
  bool finished = false;  // an iteration ended; otherwise Jinja2 renders the `else` part
  while (true) {
    BOWLINE_TRY_ASSIGN(const bool more, ahead(*loop));
    if (!more) {
      break;
    }
    loop->before = loop->index0 < 0 ? Value::undefined("previtem") : loop->current;
    loop->current = *loop->ahead;
    loop->ahead.reset();
    ++loop->index0;
    BOWLINE_TRY_ASSIGN(Scope * inner, heap_.scope(scope));
    BOWLINE_TRY(assign(s, loop->current, inner));
    BOWLINE_TRY(assign(Target{"loop", {}}, variable, inner));
    BOWLINE_TRY_ASSIGN(const Flow flow, run(s.body, inner, out));
    if (flow == Flow::stop) {
      break;
    }
    finished = finished || flow == Flow::on;
  }
  if (!finished) {
    BOWLINE_TRY_ASSIGN(Scope * inner, heap_.scope(scope));
    return run(s.otherwise, inner, out);
  }
  return Flow::on;
}

Status Renderer::assign(const Statement& s, const Value& value, Scope* scope) {
  if (!s.unpacks) {
    return assign(s.targets[0], value, scope);
  }
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(heap_, value));
  if (items->size() != s.targets.size()) {
    return failure("An assignment has " + std::to_string(items->size()) + " values for " +
                   std::to_string(s.targets.size()) + " names.");
  }
  for (size_t i = 0; i < items->size(); ++i) {
    BOWLINE_TRY(assign(s.targets[i], (*items)[i], scope));
  }
  return {};
}

Status Renderer::assign(const Target& target, const Value& value, Scope* scope) {
  if (target.attribute.empty()) {
    for (auto& [name, known] : scope->names) {
      if (name == target.name) {
        known = value;
        return {};
      }
    }
    scope->names.emplace_back(target.name, value);
    return heap_.step(sizeof(Value));
  }
  BOWLINE_TRY_ASSIGN(const Value of, name(target.name, scope));
  if (of.kind != Kind::name_space) {
    return failure("An attribute is set of " + quoted(target.name) + ", which is " +
                   std::string(described(of.kind)) + ".");
  }
  if (target.attribute.starts_with('_')) {
    return failure("The attribute " + quoted(target.attribute) + " of a namespace cannot be set.");
  }
  for (Pair& pair : *of.dict) {
    BOWLINE_TRY(heap_.step());
    if (pair.first.text == target.attribute) {
      pair.second = value;
      return {};
    }
  }
  of.dict->emplace_back(Value::of(target.attribute), value);
  return heap_.step(sizeof(Pair));
}

// ---- expressions

Result<Value> Renderer::evaluate(const Expression* e, Scope* scope) {
  BOWLINE_TRY(heap_.step());
  if (++level_ > kMostLevels) {
    return failure_at(e->line, "The expressions are nested deeper than " +
                                   std::to_string(kMostLevels) + " levels");
  }
  Result<Value> v = evaluate_here(*e, scope);
  --level_;
  if (!v.ok()) {
    return with_line(std::move(v).status(), e->line);
  }
  return v;
}

Result<Value> Renderer::evaluate_here(const Expression& e, Scope* scope) {
  switch (e.op) {
    case Op::constant:
      return e.value;
    case Op::name:
      return name(e.text, scope);
    case Op::list:
    case Op::tuple:
    case Op::dict:
      return collection(e, scope);
    case Op::attribute: {
      BOWLINE_TRY_ASSIGN(const Value of, evaluate(e.parts[0], scope));
      return attribute(of, e.text);
    }
    case Op::item: {
      BOWLINE_TRY_ASSIGN(const Value of, evaluate(e.parts[0], scope));
      BOWLINE_TRY_ASSIGN(const Value key, evaluate(e.parts[1], scope));
      return item(of, key);
    }
    case Op::slice:
      return slice(e, scope);
    case Op::call:
      return called(e, scope, nullptr);
    case Op::filter:
      return filtered(e, nullptr, scope);
    case Op::test: {
      BOWLINE_TRY_ASSIGN(const Value of, evaluate(e.parts[0], scope));
      BOWLINE_TRY_ASSIGN(Arguments a, arguments(e, scope));
      BOWLINE_TRY_ASSIGN(const bool is, test(e.text, of, std::move(a)));
      return Value::of(is);
    }
    case Op::negative:
    case Op::positive: {
      BOWLINE_TRY_ASSIGN(const Value of, evaluate(e.parts[0], scope));
      if (of.kind == Kind::real) {
        return Value::of(e.op == Op::negative ? -of.real : of.real);
      }
      if (!of.is_number()) {
        return failure("A sign is not defined for " + std::string(described(of.kind)) + ".");
      }
      return number_of(e.op == Op::negative ? "-" : "+", 0, of.number());
    }
    case Op::binary:
      return binary(e, scope);
    case Op::concat:
      return concat(e, scope);
    case Op::compare:
      return compare(e, scope);
    case Op::all:
    case Op::any: {
      BOWLINE_TRY_ASSIGN(const Value left, evaluate(e.parts[0], scope));
      if (is_true(left) == (e.op == Op::any)) {
        return left;
      }
      return evaluate(e.parts[1], scope);
    }
    case Op::negation: {
      BOWLINE_TRY_ASSIGN(const Value of, evaluate(e.parts[0], scope));
      return Value::of(!is_true(of));
    }
    case Op::choice: {
      BOWLINE_TRY_ASSIGN(const Value condition, evaluate(e.parts[0], scope));
      if (is_true(condition)) {
        return evaluate(e.parts[1], scope);
      }
      return e.parts[2] == nullptr ? Result<Value>(Value::undefined("else"))
                                   : evaluate(e.parts[2], scope);
    }
  }
  return failure("An expression is not supported.");
}

Result<Value> Renderer::name(std::string_view asked, Scope* scope) const {
  for (const Scope* s = scope; s != nullptr; s = s->outer) {
    for (const auto& [name, value] : s->names) {
      BOWLINE_TRY(heap_.step());
      if (name == asked) {
        return value;
      }
    }
  }
  if (is_global_function(asked, now_.has_value())) {
    return Value::function(asked);
  }
  if (is_unknown_global(asked)) {
    return failure("The name " + quoted(asked) + " is not supported.");
  }
  return Value::undefined(asked);
}

Result<Value> Renderer::collection(const Expression& e, Scope* scope) {
  std::vector<Value> items;
  for (const Expression* part : e.parts) {
    BOWLINE_TRY_ASSIGN(items.emplace_back(), evaluate(part, scope));
  }
  if (e.op != Op::dict) {
    return heap_.list(std::move(items), e.op == Op::list ? Kind::list : Kind::tuple);
  }
  BOWLINE_TRY_ASSIGN(const Value dict, heap_.dict({}));
  for (size_t i = 0; i < items.size(); i += 2) {
    BOWLINE_TRY_ASSIGN(const Value* known, find(heap_, dict, items[i]));
    if (known != nullptr) {
      // As in Python: the first key, with the last value.
      std::ranges::find(*dict.dict, known, [](const Pair& pair) { return &pair.second; })->second =
          items[i + 1];
      continue;
    }
    dict.dict->emplace_back(items[i], items[i + 1]);
  }
  return dict;
}

Result<Value> Renderer::joined(std::string_view a, std::string_view b) {
  std::string out(a);
  BOWLINE_TRY(append(out, b));
  return heap_.text(std::move(out));
}

Result<Value> Renderer::binary(const Expression& e, Scope* scope) {
  BOWLINE_TRY_ASSIGN(const Value a, evaluate(e.parts[0], scope));
  BOWLINE_TRY_ASSIGN(const Value b, evaluate(e.parts[1], scope));
  BOWLINE_TRY(require_no_markup(a));
  BOWLINE_TRY(require_no_markup(b));
  if (a.is_numeric() && b.is_numeric()) {
    const bool is_real = a.kind == Kind::real || b.kind == Kind::real || e.text == "/" ||
                         (e.text == "**" && b.number() < 0);
    return is_real ? real_of(e.text, a, b) : number_of(e.text, a.number(), b.number());
  }
  if (e.text == "+" && a.kind == Kind::text && b.kind == Kind::text) {
    return joined(a.text, b.text);
  }
  if (e.text == "+" && a.is_sequence() && a.kind == b.kind && a.text.empty() && b.text.empty()) {
    BOWLINE_TRY(heap_.step(sizeof(Value) * (a.list->size() + b.list->size())));
    std::vector<Value> items = *a.list;
    items.insert(items.end(), b.list->begin(), b.list->end());
    return heap_.list(std::move(items), a.kind);
  }
  if (e.text == "*" && a.kind == Kind::text && b.is_number()) {
    const auto times = static_cast<uint64_t>(std::max<int64_t>(b.number(), 0));
    if (!a.text.empty() && times > kMostText / a.text.size()) {
      return failure("Repeating a text " + std::to_string(times) + " times makes it too long.");
    }
    std::string out;
    for (uint64_t i = 0; i < times && !a.text.empty(); ++i) {
      out += a.text;
    }
    return heap_.text(std::move(out));
  }
  return failure("The operator " + quoted(e.text) + " does not accept " +
                 std::string(described(a.kind)) + " and " + std::string(described(b.kind)) + ".");
}

Result<Value> Renderer::concat(const Expression& e, Scope* scope) {
  std::string out;
  for (const Expression* part : e.parts) {
    BOWLINE_TRY_ASSIGN(const Value v, evaluate(part, scope));
    BOWLINE_TRY_ASSIGN(const std::string_view text, printed(heap_, v));
    BOWLINE_TRY(append(out, text));
  }
  return heap_.text(std::move(out));
}

namespace {

Result<bool> compared(Heap& heap, std::string_view op, const Value& a, const Value& b) {
  if (op == "in" || op == "not in") {
    BOWLINE_TRY_ASSIGN(const bool is, contains(heap, b, a));
    return is == (op == "in");
  }
  if (op == "==" || op == "!=") {
    BOWLINE_TRY_ASSIGN(const bool same, equal(heap, a, b));
    return same == (op == "==");
  }
  BOWLINE_TRY_ASSIGN(const int sign, order(heap, a, b));
  return op == "<" ? sign < 0 : op == "<=" ? sign <= 0 : op == ">" ? sign > 0 : sign >= 0;
}

}  // namespace

Result<Value> Renderer::compare(const Expression& e, Scope* scope) {
  BOWLINE_TRY_ASSIGN(Value left, evaluate(e.parts[0], scope));
  for (size_t i = 0; i < e.operators.size(); ++i) {
    BOWLINE_TRY_ASSIGN(const Value right, evaluate(e.parts[i + 1], scope));
    BOWLINE_TRY_ASSIGN(const bool is, compared(heap_, e.operators[i], left, right));
    if (!is) {
      return Value::of(false);
    }
    left = right;
  }
  return Value::of(true);
}

Result<Value> Renderer::part_of(std::string_view text, const Slice& slice) {
  BOWLINE_TRY(heap_.step(2 * text.size()));
  const int64_t size = length(text);
  const auto clamped = [size](const std::optional<int64_t>& at, int64_t otherwise) {
    return at ? std::clamp<int64_t>(*at < 0 ? *at + size : *at, 0, size) : otherwise;
  };
  const int64_t start = clamped(slice.start, 0), stop = clamped(slice.stop, size);
  const std::string_view rest = text.substr(offset_of(text, start));
  return Value::of(rest.substr(0, offset_of(rest, stop - start)));
}

Result<Value> Renderer::slice(const Expression& e, Scope* scope) {
  BOWLINE_TRY_ASSIGN(const Value of, evaluate(e.parts[0], scope));
  BOWLINE_TRY(require_no_markup(of));
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (e.parts[i + 1] == nullptr) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(const Value v, evaluate(e.parts[i + 1], scope));
    if (v.is_number()) {
      bounds[i] = v.number();
    } else if (v.kind != Kind::none) {
      return failure("A bound of a slice is " + std::string(described(v.kind)) + ".");
    }
  }
  if (bounds[2] == 0) {
    return failure("The step of a slice is 0.");
  }
  const Slice slice{bounds[0], bounds[1], bounds[2].value_or(1)};
  if (of.kind != Kind::text && (!of.is_sequence() || of.is_view())) {
    return failure("A slice is not defined for " + std::string(described(of.kind)) + ".");
  }
  if (of.kind == Kind::text && slice.step == 1) {
    return part_of(of.text, slice);
  }
  BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(heap_, of));
  std::vector<Value> out;
  std::string text;
  for (const size_t i : sliced(slice, items->size())) {
    BOWLINE_TRY(heap_.step());
    if (of.kind == Kind::text) {
      text += (*items)[i].text;
    } else {
      out.push_back((*items)[i]);
    }
  }
  return of.kind == Kind::text ? heap_.text(std::move(text))
                               : heap_.list(std::move(out), of.kind, of.text);
}

Result<Arguments> Renderer::arguments(const Expression& e, Scope* scope) {
  Arguments out;
  for (size_t i = 1; i < e.parts.size(); ++i) {
    BOWLINE_TRY_ASSIGN(out.positional.emplace_back(), evaluate(e.parts[i], scope));
  }
  for (const auto& [name, part] : e.named) {
    BOWLINE_TRY_ASSIGN(const Value v, evaluate(part, scope));
    out.named.emplace_back(name, v);
  }
  if (e.list != nullptr) {
    BOWLINE_TRY_ASSIGN(const Value rest, evaluate(e.list, scope));
    BOWLINE_TRY_ASSIGN(const std::vector<Value>* items, elements(heap_, rest));
    BOWLINE_TRY(heap_.step(sizeof(Value) * items->size()));
    out.positional.insert(out.positional.end(), items->begin(), items->end());
  }
  if (e.dict != nullptr) {
    BOWLINE_TRY_ASSIGN(const Value rest, evaluate(e.dict, scope));
    if (rest.kind != Kind::dict) {
      return failure("The argument after \"**\" is " + std::string(described(rest.kind)) + ".");
    }
    for (const auto& [key, value] : *rest.dict) {
      BOWLINE_TRY(heap_.step(sizeof(Pair)));
      const bool is_known = std::ranges::any_of(
          out.named, [&key = key](const auto& named) { return named.first == key.text; });
      if (key.kind != Kind::text || is_known) {
        return failure("An argument after \"**\" has no name, or its name occurs twice.");
      }
      out.named.emplace_back(key.text, value);
    }
  }
  return out;
}

Status Renderer::require_no_markup(const Value& value) {
  return value.is_markup()
             ? failure(
                   "The result of the filter \"safe\" can only be printed; changing it is not "
                   "supported.")
             : Status();
}

// `of`: the value of a filter in a tag.
Result<Value> Renderer::filtered(const Expression& e, const Value* of, Scope* scope) {
  Value value;
  if (e.parts[0] != nullptr && (of == nullptr || e.parts[0]->op != Op::filter)) {
    BOWLINE_TRY_ASSIGN(value, evaluate(e.parts[0], scope));
  } else if (e.parts[0] != nullptr) {
    BOWLINE_TRY_ASSIGN(value, filtered(*e.parts[0], of, scope));
  } else {
    value = *of;
  }
  BOWLINE_TRY_ASSIGN(Arguments a, arguments(e, scope));
  return filter(e.text, value, std::move(a));
}

// `caller`: the macro of a call block, else null.
Result<Value> Renderer::called(const Expression& e, Scope* scope, const Value* caller) {
  BOWLINE_TRY_ASSIGN(const Value callee, evaluate(e.parts[0], scope));
  BOWLINE_TRY_ASSIGN(Arguments a, arguments(e, scope));
  if (caller != nullptr) {
    a.named.emplace_back("caller", *caller);
  }
  switch (callee.kind) {
    case Kind::macro:
      return call_macro(*callee.macro, std::move(a));
    case Kind::function:
      return function(callee.text, std::move(a));
    case Kind::method:
      return method(*callee.method, std::move(a));
    case Kind::undefined:
      if (callee.text == "strftime_now") {
        return failure(
            "The template reads the time with \"strftime_now\", but no time is given: the text of "
            "training and evaluation must not depend on the day.");
      }
      return failure("The function " + quoted(callee.text) + " is not defined.");
    default:
      return failure("A call needs a function, not " + std::string(described(callee.kind)) + ".");
  }
}

Result<Value> Renderer::call_macro(const Macro& macro, Arguments arguments) {
  const Statement& s = *macro.statement;
  BOWLINE_TRY_ASSIGN(Scope * scope, heap_.scope(macro.scope));
  for (size_t i = 0; i < s.parameters.size(); ++i) {
    const Statement::Argument& p = s.parameters[i];
    Value value = Value::undefined(p.name);
    if (const Value* given = arguments.take(i, p.name)) {
      value = *given;
    } else if (p.otherwise != nullptr) {
      BOWLINE_TRY_ASSIGN(value, evaluate(p.otherwise, scope));
    }
    BOWLINE_TRY(assign(Target{p.name, {}}, value, scope));
  }
  if (s.reads_caller) {
    const Value* given = arguments.take(SIZE_MAX, "caller");
    BOWLINE_TRY(assign(Target{"caller", {}}, given != nullptr ? *given : Value::undefined("caller"),
                       scope));
  }
  if (s.reads_kwargs) {
    std::vector<Pair> rest;
    for (const auto& [name, value] : arguments.named) {
      const bool is_parameter =
          std::ranges::find(s.parameters, name, &Statement::Argument::name) != s.parameters.end();
      if (!is_parameter && !(s.reads_caller && name == "caller")) {
        rest.emplace_back(Value::of(name), *arguments.take(SIZE_MAX, name));
      }
    }
    BOWLINE_TRY_ASSIGN(const Value kwargs, heap_.dict(std::move(rest)));
    BOWLINE_TRY(assign(Target{"kwargs", {}}, kwargs, scope));
  }
  if (s.reads_varargs) {
    std::vector<Value> rest;
    for (size_t i = s.parameters.size(); i < arguments.positional.size(); ++i) {
      rest.push_back(*arguments.take(i, ""));
    }
    BOWLINE_TRY_ASSIGN(const Value varargs, heap_.list(std::move(rest), Kind::tuple));
    BOWLINE_TRY(assign(Target{"varargs", {}}, varargs, scope));
  }
  BOWLINE_TRY(arguments.require_taken());
  level_ += 10;
  std::string text;
  Result<Flow> flow = level_ > kMostLevels
                          ? Result<Flow>(failure("The calls of macros are nested too deeply."))
                          : run(s.body, scope, text);
  level_ -= 10;
  BOWLINE_TRY(std::move(flow).status());
  return heap_.text(std::move(text));
}

// ---- attributes and items

Result<Value> Renderer::of_loop(Loop& loop, std::string_view name) {
  if (name == "index0" || name == "index") {
    return Value::of(loop.index0 + (name == "index" ? 1 : 0));
  }
  if (name == "first") {
    return Value::of(loop.index0 == 0);
  }
  if (name == "previtem") {
    return loop.before;
  }
  if (name == "last" || name == "nextitem") {
    BOWLINE_TRY_ASSIGN(const bool more, ahead(loop));
    return name == "last" ? Value::of(!more) : more ? *loop.ahead : Value::undefined("nextitem");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    if (!loop.length) {
      // Evaluates the condition for all remaining elements.
      std::vector<Value> left;
      while (true) {
        BOWLINE_TRY_ASSIGN(const bool more, ahead(loop));
        if (!more) {
          break;
        }
        left.push_back(*std::exchange(loop.ahead, std::nullopt));
      }
      loop.length = static_cast<int64_t>(left.size()) + loop.index0 + 1;
      loop.settled = true;
      BOWLINE_TRY_ASSIGN(const Value rest, heap_.list(std::move(left)));
      loop.items = rest.list;
      loop.next = 0;
    }
    return Value::of(name == "length" ? *loop.length
                                      : *loop.length - loop.index0 - (name == "revindex" ? 0 : 1));
  }
  return failure("The attribute " + quoted(name) + " of a loop is not supported.");
}

Result<Value> Renderer::attribute(const Value& value, std::string_view name) {
  BOWLINE_TRY(require_no_markup(value));
  switch (value.kind) {
    case Kind::undefined:
      return failure("The attribute " + quoted(name) + " of " + quoted(value.text) +
                     ", which is not defined.");
    case Kind::none:
    case Kind::boolean:
      return Value::undefined(name);
    case Kind::list:
    case Kind::tuple:
      for (const std::string_view method : {"index", "count"}) {
        if (name == method && value.text.empty()) {
          return heap_.method(value, name);
        }
      }
      // Further methods of Python's lists, and names that the sandbox hides.
      for (const std::string_view method :
           {"append", "clear", "copy", "extend", "index", "count", "insert", "pop", "remove",
            "reverse", "sort", "start", "stop", "step", "mapping", "isdisjoint"}) {
        if (name == method) {
          return failure("The method " + quoted(name) + " of a list is not supported.");
        }
      }
      return name.starts_with('_') ? Result<Value>(failure("The attribute " + quoted(name) +
                                                           " of a list is not supported."))
                                   : Result<Value>(Value::undefined(name));
    case Kind::dict:
      for (const std::string_view method : {"copy", "get", "items", "keys", "values"}) {
        if (name == method) {
          return heap_.method(value, name);
        }
      }
      for (const std::string_view method :
           {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"}) {
        if (name == method) {
          return failure("The method " + quoted(name) + " of a dict is not supported.");
        }
      }
      return item(value, Value::of(name));
    case Kind::name_space:
      return item(value, Value::of(name));
    case Kind::loop:
      return of_loop(*value.loop, name);
    case Kind::text:
      if (is_text_method(name)) {
        return heap_.method(value, name);
      }
      if (is_unknown_text_method(name)) {
        return failure("The method " + quoted(name) + " of a text is not supported.");
      }
      return Value::undefined(name);
    default:
      return failure("The attribute " + quoted(name) + " of " + std::string(described(value.kind)) +
                     " is not supported.");
  }
}

Result<Value> Renderer::item(const Value& value, const Value& key) {
  BOWLINE_TRY(require_no_markup(value));
  if (value.kind == Kind::dict || value.kind == Kind::name_space) {
    BOWLINE_TRY_ASSIGN(const Value* found, find(heap_, value, key));
    return found != nullptr ? *found
                            : Value::undefined(key.kind == Kind::text ? key.text : "an item");
  }
  if (value.is_view()) {
    return Value::undefined("an item");
  }
  if ((value.is_sequence() || value.kind == Kind::text) && key.is_number()) {
    const int64_t size =
        value.kind == Kind::text ? length(value.text) : static_cast<int64_t>(value.list->size());
    BOWLINE_TRY(heap_.step(value.text.size()));
    const int64_t at = key.number() < 0 ? key.number() + size : key.number();
    if (at < 0 || at >= size) {
      return Value::undefined("an item");
    }
    if (value.kind == Kind::text) {
      const size_t begin = offset_of(value.text, at);
      return Value::of(value.text.substr(begin, offset_of(value.text.substr(begin), 1)));
    }
    return (*value.list)[static_cast<size_t>(at)];
  }
  if (value.kind == Kind::none || value.kind == Kind::boolean) {
    return Value::undefined("an item");
  }
  // A value without such an item may have an attribute of this name.
  if ((value.is_sequence() || value.kind == Kind::text) && key.kind == Kind::text) {
    return attribute(value, key.text);
  }
  return failure("An item cannot be read of " + std::string(described(value.kind)) + " by " +
                 std::string(described(key.kind)) + ".");
}

Result<RenderedChat> render(const Tree& tree, Heap& heap,
                            std::vector<std::pair<std::string_view, Value>> globals,
                            std::optional<int64_t> now) {
  BOWLINE_TRY_ASSIGN(Scope * scope, heap.scope(nullptr));
  scope->names = std::move(globals);
  return Renderer(heap, now).render(tree, scope);
}

}  // namespace bowline::text::chat
