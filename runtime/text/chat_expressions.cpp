// Evaluates expressions.
#include <algorithm>

#include "text/chat_functions.h"

namespace bowline::text::chat {
namespace {

using Op = Expression::Op;

// Names that Jinja2 or transformers define and Bowline does not.
bool is_unknown_global(std::string_view name) {
  const bool is_token_of_each =
      std::ranges::find(kTokenNames, name) != std::ranges::end(kTokenNames);
  return is_among(name, {"self", "super", "cycler", "joiner", "lipsum"}) ||
         (name.ends_with("_token") && !is_token_of_each) || name.ends_with("_tokens");
}

}  // namespace

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

bool Arguments::flag(size_t number, std::string_view name) {
  const Value* value = take(number, name);
  return value != nullptr && is_true(*value);
}

Result<int64_t> Arguments::integer(size_t number, std::string_view name, int64_t otherwise) {
  const Value* value = take(number, name);
  if (value == nullptr || value->kind == Kind::none) {
    return otherwise;
  }
  BOWLINE_REQUIRE_FILE(value->is_number(), "An argument is {}, not a number.",
                       described(value->kind));
  return value->number();
}

Result<std::optional<std::string_view>> Arguments::text(size_t number, std::string_view name) {
  const Value* value = take(number, name);
  if (value == nullptr || value->kind == Kind::none) {
    return std::optional<std::string_view>();
  }
  BOWLINE_REQUIRE_FILE(value->kind == Kind::text, "An argument is {}, not a text.",
                       described(value->kind));
  return std::optional(value->text);
}

Arguments Arguments::rest(size_t number) {
  const auto from = static_cast<std::ptrdiff_t>(std::min(number, positional.size()));
  Arguments out;
  out.positional.assign(positional.begin() + from, positional.end());
  out.named = named;
  taken_ = positional.size();
  for (const auto& [name, value] : named) {
    names_.push_back(name);
  }
  return out;
}

Status Arguments::require_taken() const {
  BOWLINE_REQUIRE_FILE(taken_ >= positional.size(),
                       "A call has {} arguments, but at most {} are supported.", positional.size(),
                       taken_);
  for (const auto& [name, value] : named) {
    BOWLINE_REQUIRE_FILE(std::ranges::find(names_, name) != names_.end(),
                         "The argument {} is not supported.", quoted(name));
  }
  return {};
}

Result<Value> Renderer::evaluate(const Expression* e, Scope* scope) {
  BOWLINE_TRY(heap_.step());
  const Nested nested(level_);
  if (level_ > kMostLevels) {
    return with_line(failure("The expressions are nested deeper than {} levels.", kMostLevels),
                     e->line);
  }
  Result<Value> v = evaluate_here(*e, scope);
  return v.ok() ? v : with_line(std::move(v).status(), e->line);
}

Result<Value> Renderer::evaluate_here(const Expression& e, Scope* scope) {
  const bool has_operand = e.op == Op::attribute || e.op == Op::item || e.op == Op::test ||
                           e.op == Op::negative || e.op == Op::positive || e.op == Op::all ||
                           e.op == Op::any || e.op == Op::negation || e.op == Op::choice;
  Value of;
  if (has_operand) {
    BOWLINE_TRY_ASSIGN(of, evaluate(e.parts[0], scope));
  }
  switch (e.op) {
    case Op::constant:
      return e.value;
    case Op::name:
      return name(e.text, scope);
    case Op::list:
    case Op::tuple:
    case Op::dict:
      return collection(e, scope);
    case Op::attribute:
      return attribute(of, e.text);
    case Op::item: {
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
      BOWLINE_TRY_ASSIGN(Arguments a, arguments(e, scope));
      BOWLINE_TRY_ASSIGN(const bool is, test(e.text, of, std::move(a)));
      return Value::of(is);
    }
    case Op::negative:
    case Op::positive:
      if (of.kind == Kind::real) {
        return Value::of(e.op == Op::negative ? -of.real : of.real);
      }
      BOWLINE_REQUIRE_FILE(of.is_number(), "A sign is not defined for {}.", described(of.kind));
      return arithmetic(e.op == Op::negative ? "-" : "+", Value::of(int64_t{0}), of);
    case Op::binary:
      return binary(e, scope);
    case Op::concat:
      return concat(e, scope);
    case Op::compare:
      return compare(e, scope);
    case Op::all:
    case Op::any:
      return is_true(of) == (e.op == Op::any) ? Result<Value>(of) : evaluate(e.parts[1], scope);
    case Op::negation:
      return Value::of(!is_true(of));
    case Op::choice: {
      const Expression* chosen = e.parts[is_true(of) ? 1 : 2];
      return chosen == nullptr ? Result<Value>(Value::undefined("else")) : evaluate(chosen, scope);
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
  const Function function = global_of(asked);
  if (function != nullptr && (asked != "strftime_now" || now_)) {
    return Value(function, asked, nullptr);
  }
  BOWLINE_REQUIRE_FILE(!is_unknown_global(asked), "The name {} is not supported.", quoted(asked));
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

Result<Value> Renderer::binary(const Expression& e, Scope* scope) {
  BOWLINE_TRY_ASSIGN(const Value a, evaluate(e.parts[0], scope));
  BOWLINE_TRY_ASSIGN(const Value b, evaluate(e.parts[1], scope));
  BOWLINE_TRY(require_no_markup(a));
  BOWLINE_TRY(require_no_markup(b));
  if (a.is_numeric() && b.is_numeric()) {
    return arithmetic(e.text, a, b);
  }
  if (e.text == "+" && a.kind == Kind::text && b.kind == Kind::text) {
    std::string out(a.text);
    BOWLINE_TRY(append(out, b.text));
    return heap_.text(std::move(out));
  }
  if (e.text == "+" && a.is_sequence() && a.kind == b.kind && a.text.empty() && b.text.empty()) {
    BOWLINE_TRY(heap_.step(sizeof(Value) * (a.list->size() + b.list->size())));
    std::vector<Value> items = *a.list;
    items.insert(items.end(), b.list->begin(), b.list->end());
    return heap_.list(std::move(items), a.kind);
  }
  if (e.text == "*" && a.kind == Kind::text && b.is_number()) {
    const auto times = static_cast<uint64_t>(std::max<int64_t>(b.number(), 0));
    BOWLINE_REQUIRE_FILE(a.text.empty() || times <= kMostText / a.text.size(),
                         "Repeating a text {} times makes it too long.", times);
    std::string out;
    for (uint64_t i = 0; i < times && !a.text.empty(); ++i) {
      out += a.text;
    }
    return heap_.text(std::move(out));
  }
  return failure("The operator {} does not accept {} and {}.", quoted(e.text), described(a.kind),
                 described(b.kind));
}

Result<Value> Renderer::concat(const Expression& e, Scope* scope) {
  std::string out;
  for (const Expression* part : e.parts) {
    BOWLINE_TRY_ASSIGN(const Value v, evaluate(part, scope));
    BOWLINE_TRY(print(out, v));
  }
  return heap_.text(std::move(out));
}

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
      return failure("A bound of a slice is {}.", described(v.kind));
    }
  }
  BOWLINE_REQUIRE_FILE(bounds[2] != 0, "The step of a slice is 0.");
  const Slice slice{bounds[0], bounds[1], bounds[2].value_or(1)};
  BOWLINE_REQUIRE_FILE(of.kind == Kind::text || (of.is_sequence() && !of.is_view()),
                       "A slice is not defined for {}.", described(of.kind));
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
    BOWLINE_REQUIRE_FILE(rest.kind == Kind::dict, "The argument after \"**\" is {}.",
                         described(rest.kind));
    for (const auto& [key, value] : *rest.dict) {
      BOWLINE_TRY(heap_.step(sizeof(Pair)));
      const bool is_known = std::ranges::any_of(
          out.named, [&key = key](const auto& named) { return named.first == key.text; });
      BOWLINE_REQUIRE_FILE(key.kind == Kind::text && !is_known,
                           "An argument after \"**\" has no name, or its name occurs twice.");
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

// `of`: the input of the first filter in a tag, else null.
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
      return call(callee.function, callee.self == nullptr ? Value() : *callee.self, a);
    case Kind::undefined:
      BOWLINE_REQUIRE_FILE(
          callee.text != "strftime_now",
          "The template reads the time with \"strftime_now\", but no time is given: the text of "
          "training and evaluation must not depend on the day.");
      return failure("The function {} is not defined.", quoted(callee.text));
    default:
      return failure("A call needs a function, not {}.", described(callee.kind));
  }
}

Result<Value> Renderer::call_macro(const Macro& macro, Arguments arguments) {
  const Statement& s = *macro.statement;
  BOWLINE_TRY_ASSIGN(Scope * scope, heap_.scope(macro.scope));
  const auto define = [&](std::string_view name, const Value& value) {
    return assign(Target{name, {}}, value, scope);
  };
  for (size_t i = 0; i < s.parameters.size(); ++i) {
    const Statement::Argument& p = s.parameters[i];
    Value value = Value::undefined(p.name);
    if (const Value* given = arguments.take(i, p.name)) {
      value = *given;
    } else if (p.otherwise != nullptr) {
      BOWLINE_TRY_ASSIGN(value, evaluate(p.otherwise, scope));
    }
    BOWLINE_TRY(define(p.name, value));
  }
  if (s.reads_caller) {
    const Value* given = arguments.take(SIZE_MAX, "caller");
    BOWLINE_TRY(define("caller", given != nullptr ? *given : Value::undefined("caller")));
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
    BOWLINE_TRY(define("kwargs", kwargs));
  }
  if (s.reads_varargs) {
    std::vector<Value> rest;
    for (size_t i = s.parameters.size(); i < arguments.positional.size(); ++i) {
      rest.push_back(*arguments.take(i, ""));
    }
    BOWLINE_TRY_ASSIGN(const Value varargs, heap_.list(std::move(rest), Kind::tuple));
    BOWLINE_TRY(define("varargs", varargs));
  }
  BOWLINE_TRY(arguments.require_taken());
  const Nested nested(level_, 10);
  BOWLINE_REQUIRE_FILE(level_ <= kMostLevels, "The calls of macros are nested too deeply.");
  std::string text;
  BOWLINE_TRY(run(s.body, scope, text).status());
  return heap_.text(std::move(text));
}

}  // namespace bowline::text::chat
