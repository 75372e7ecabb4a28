// Renders the statements of a tree to text.
#include "text/chat_render.h"

namespace bowline::text::chat {
Result<RenderedChat> Renderer::render(const Tree& tree, Scope* globals) {
  std::string out;
  written_ = &out;
  BOWLINE_TRY(run(tree.body, globals, out).status());
  return RenderedChat{std::move(out), std::move(answers_)};
}

Status Renderer::append(std::string& out, std::string_view text) {
  BOWLINE_TRY(heap_.step(text.size()));
  BOWLINE_REQUIRE_FILE(out.size() + text.size() <= kMostText, "The text has more than {} bytes.",
                       kMostText);
  out += text;
  return {};
}

Status Renderer::print(std::string& out, const Value& v) {
  BOWLINE_TRY_ASSIGN(const std::string_view text, printed(heap_, v));
  return append(out, text);
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
      BOWLINE_TRY(print(out, v));
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
      BOWLINE_TRY(s.kind == Statement::Kind::filter ? print(out, v) : assign(s, v, scope));
      return Flow::on;
    }
    case Statement::Kind::call: {
      BOWLINE_TRY_ASSIGN(const Value caller, heap_.macro(&s, scope));
      BOWLINE_TRY_ASSIGN(const Value v, called(*s.expression, scope, &caller));
      BOWLINE_TRY(print(out, v));
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
  BOWLINE_REQUIRE_FILE(items->size() == s.targets.size(),
                       "An assignment has {} values for {} names.", items->size(),
                       s.targets.size());
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
  BOWLINE_REQUIRE_FILE(of.kind == Kind::name_space, "An attribute is set of {}, which is {}.",
                       quoted(target.name), described(of.kind));
  BOWLINE_REQUIRE_FILE(!target.attribute.starts_with('_'),
                       "The attribute {} of a namespace cannot be set.", quoted(target.attribute));
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

Result<RenderedChat> render(const Tree& tree, Heap& heap,
                            std::vector<std::pair<std::string_view, Value>> globals,
                            std::optional<int64_t> now) {
  BOWLINE_TRY_ASSIGN(Scope * scope, heap.scope(nullptr));
  scope->names = std::move(globals);
  return Renderer(heap, now).render(tree, scope);
}

}  // namespace bowline::text::chat
