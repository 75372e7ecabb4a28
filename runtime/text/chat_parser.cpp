// Converts tokens to a tree, by the grammar of Jinja2.
#include "text/chat_cursor.h"

namespace bowline::text::chat {
namespace {

using Op = Expression::Op;
using Part = const Expression*;

constexpr uint32_t kMostNesting = 100;  // nested brackets and tags
constexpr uint32_t kMostDepth = 200;    // depth of an expression

class Parser : private Cursor {
 public:
  Parser(Tree& tree, std::vector<Token> tokens) : Cursor(std::move(tokens)), tree_(tree) {}

  Status parse() {
    Result<Body> all = body({});
    BOWLINE_TRY(with_line(all.status(), at().line));
    tree_.body = std::move(all).value();
    return {};
  }

 private:
  Status require_level() const {
    BOWLINE_REQUIRE_FILE(level_ <= kMostNesting, "More than {} levels are nested.", kMostNesting);
    return {};
  }

  // ---- expressions

  Result<Part> make(Op op, uint32_t line, std::vector<Part> parts, std::string_view text = {}) {
    return keep({.op = op, .line = line, .text = text, .parts = std::move(parts)});
  }
  Result<Part> constant(uint32_t line, const Value& value) {
    return keep({.line = line, .value = value});
  }

  Result<Part> keep(Expression e) {
    const auto hold = [&](Part part) {
      e.depth = std::max(e.depth, part == nullptr ? 1 : part->depth + 1);
    };
    std::ranges::for_each(e.parts, hold);
    for (const auto& [name, part] : e.named) {
      hold(part);
    }
    hold(e.list);
    hold(e.dict);
    if (e.depth > kMostDepth) {
      return with_line(failure("An expression has more than {} levels.", kMostDepth), e.line);
    }
    return &tree_.expressions.emplace_back(std::move(e));
  }

  Result<Part> expression(bool with_choice = true) {
    const Nested nested(level_);
    BOWLINE_TRY(require_level());
    BOWLINE_TRY_ASSIGN(Part left, either());
    while (with_choice && is("if")) {
      const uint32_t line = take().line;
      BOWLINE_TRY_ASSIGN(const Part condition, either());
      Part otherwise = nullptr;
      if (skip("else")) {
        BOWLINE_TRY_ASSIGN(otherwise, expression());
      }
      BOWLINE_TRY_ASSIGN(left, make(Op::choice, line, {condition, left, otherwise}));
    }
    return left;
  }

  // Parses operands with operators between them, from left to right.
  Result<Part> chain(Result<Part> (Parser::*next)(), Op op,
                     std::initializer_list<std::string_view> operators) {
    BOWLINE_TRY_ASSIGN(Part left, (this->*next)());
    while (!first_of(operators).empty()) {
      const Token token = take();
      BOWLINE_TRY_ASSIGN(const Part right, (this->*next)());
      BOWLINE_TRY_ASSIGN(left, make(op, token.line, {left, right}, token.text));
    }
    return left;
  }

  Result<Part> either() { return chain(&Parser::both, Op::any, {"or"}); }
  Result<Part> both() { return chain(&Parser::negation, Op::all, {"and"}); }

  Result<Part> negation() {
    if (!is("not")) {
      return comparison();
    }
    const Nested nested(level_);
    BOWLINE_TRY(require_level());
    const uint32_t line = take().line;
    BOWLINE_TRY_ASSIGN(const Part of, negation());
    return make(Op::negation, line, {of});
  }

  // Takes an operator. Empty: the next token is none.
  std::string_view comparison_operator() {
    if (is("not") && is("in", 1)) {
      take();
      take();
      return "not in";
    }
    const std::string_view found = first_of({"==", "!=", "<", "<=", ">", ">=", "in"});
    skip(found);
    return found;
  }

  Result<Part> comparison() {
    Expression e{.op = Op::compare, .line = at().line, .parts = {nullptr}};
    BOWLINE_TRY_ASSIGN(e.parts[0], sum());
    for (std::string_view op; !(op = comparison_operator()).empty();) {
      e.operators.push_back(op);
      BOWLINE_TRY_ASSIGN(e.parts.emplace_back(), sum());
    }
    return e.operators.empty() ? Result<Part>(e.parts[0]) : keep(std::move(e));
  }

  Result<Part> sum() { return chain(&Parser::concatenation, Op::binary, {"+", "-"}); }

  Result<Part> concatenation() {
    const uint32_t line = at().line;
    BOWLINE_TRY_ASSIGN(const Part first, product());
    std::vector<Part> parts = {first};
    while (skip("~")) {
      BOWLINE_TRY_ASSIGN(parts.emplace_back(), product());
    }
    return parts.size() == 1 ? Result<Part>(first) : make(Op::concat, line, std::move(parts));
  }

  Result<Part> product() { return chain(&Parser::power, Op::binary, {"*", "/", "//", "%"}); }
  Result<Part> power() { return chain(&Parser::operand, Op::binary, {"**"}); }

  Result<Part> operand() {
    BOWLINE_TRY_ASSIGN(const Part of, unary());
    return filters_and_tests(of);
  }

  Result<Part> unary() {
    const Nested nested(level_);
    BOWLINE_TRY(require_level());
    Part of = nullptr;
    if (is("-") || is("+")) {
      const Token sign = take();
      BOWLINE_TRY_ASSIGN(of, unary());
      BOWLINE_TRY_ASSIGN(of, make(sign.text == "-" ? Op::negative : Op::positive, sign.line, {of}));
    } else {
      BOWLINE_TRY_ASSIGN(of, primary());
    }
    return postfix(of);
  }

  Result<Part> primary() {
    if (is(Token::Kind::text)) {
      return adjacent_texts();
    }
    const Token token = at();
    if (is(Token::Kind::integer) || is(Token::Kind::real)) {
      take();
      return constant(token.line, token.kind == Token::Kind::real ? Value::of(token.real)
                                                                  : Value::of(token.integer));
    }
    if (is(Token::Kind::name)) {
      return name();
    }
    if (skip("(")) {
      BOWLINE_TRY_ASSIGN(const Part inner, tuple(true, true));
      BOWLINE_TRY(expect(")"));
      return inner;
    }
    std::vector<Part> parts;
    if (skip("[")) {
      BOWLINE_TRY(items("]", [&] { return add_expression(parts); }));
      return make(Op::list, token.line, std::move(parts));
    }
    if (skip("{")) {
      const auto pair = [&]() -> Status {
        BOWLINE_TRY(add_expression(parts));
        BOWLINE_TRY(expect(":"));
        return add_expression(parts);
      };
      BOWLINE_TRY(items("}", pair));
      return make(Op::dict, token.line, std::move(parts));
    }
    return unexpected("An expression");
  }

  // A constant or a variable.
  Result<Part> name() {
    const std::pair<std::string_view, Value> constants[] = {
        {"true", Value::of(true)},   {"True", Value::of(true)}, {"false", Value::of(false)},
        {"False", Value::of(false)}, {"none", Value::none()},   {"None", Value::none()}};
    const Token token = take();
    for (const auto& [known, value] : constants) {
      if (known == token.text) {
        return constant(token.line, value);
      }
    }
    note_name(token.text);
    return make(Op::name, token.line, {}, token.text);
  }

  // Marks the enclosing macros that read an implicit name.
  void note_name(std::string_view name) {
    for (Statement* macro : macros_) {
      macro->reads_caller = macro->reads_caller || name == "caller";
      macro->reads_varargs = macro->reads_varargs || name == "varargs";
      macro->reads_kwargs = macro->reads_kwargs || name == "kwargs";
    }
  }

  Result<Part> adjacent_texts() {
    const uint32_t line = at().line;
    std::string& joined = tree_.texts.emplace_back();
    while (is(Token::Kind::text)) {
      joined += take().text;
    }
    return constant(line, Value::of(std::string_view(joined)));
  }

  // Calls item() for each item up to the closing bracket. The last item may have a comma behind it.
  template <class F>
  Status items(std::string_view end, F&& item) {
    for (bool first = true; !is(end); first = false) {
      if (!first) {
        BOWLINE_TRY(expect(","));
        if (is(end)) {
          break;
        }
      }
      BOWLINE_TRY(item());
    }
    take();
    return {};
  }

  Status add_expression(std::vector<Part>& parts) {
    BOWLINE_TRY_ASSIGN(parts.emplace_back(), expression());
    return {};
  }

  bool is_tuple_end() const {
    return is(Token::Kind::print_end) || is(Token::Kind::block_end) || is(")");
  }

  // Parses an expression, or several with commas between them.
  Result<Part> tuple(bool with_choice, bool in_brackets) {
    const uint32_t line = at().line;
    std::vector<Part> parts;
    bool is_tuple = false;
    while (!is_tuple_end()) {
      BOWLINE_TRY_ASSIGN(parts.emplace_back(), expression(with_choice));
      if (!skip(",")) {
        break;
      }
      is_tuple = true;
    }
    if (!is_tuple && !parts.empty()) {
      return parts[0];
    }
    if (!is_tuple && !in_brackets) {
      return unexpected("An expression");
    }
    return make(Op::tuple, line, std::move(parts));
  }

  Result<Part> postfix(Part of) {
    while (true) {
      if (is(".") || is("[")) {
        BOWLINE_TRY_ASSIGN(of, subscript(of));
      } else if (is("(")) {
        BOWLINE_TRY_ASSIGN(of, call(of));
      } else {
        return of;
      }
    }
  }

  Result<Part> filters_and_tests(Part of) {
    while (true) {
      if (skip("|")) {
        BOWLINE_TRY_ASSIGN(of, filter(of));
      } else if (is("is")) {
        BOWLINE_TRY_ASSIGN(of, test(of));
      } else if (is("(")) {
        BOWLINE_TRY_ASSIGN(of, call(of));
      } else {
        return of;
      }
    }
  }

  Result<Part> subscript(Part of) {
    const Token token = take();
    if (token.text == ".") {
      const Token name = take();
      if (name.kind == Token::Kind::name) {
        return make(Op::attribute, token.line, {of}, name.text);
      }
      if (name.kind != Token::Kind::integer) {
        return with_line(failure("A name or a number is expected after a dot."), name.line);
      }
      BOWLINE_TRY_ASSIGN(const Part index, constant(name.line, Value::of(name.integer)));
      return make(Op::item, token.line, {of, index});
    }
    Part parts[3] = {};
    if (!is(":")) {
      BOWLINE_TRY_ASSIGN(parts[0], expression());
      if (!is(":")) {
        BOWLINE_TRY(expect("]"));
        return make(Op::item, token.line, {of, parts[0]});
      }
    }
    for (int i = 1; i < 3 && skip(":"); ++i) {
      if (!is(":") && !is("]")) {
        BOWLINE_TRY_ASSIGN(parts[i], expression());
      }
    }
    BOWLINE_TRY(expect("]"));
    return make(Op::slice, token.line, {of, parts[0], parts[1], parts[2]});
  }

  Status arguments(Expression& e) {
    BOWLINE_TRY(expect("("));
    return items(")", [&]() -> Status {
      if (e.dict == nullptr && skip("**")) {
        BOWLINE_TRY_ASSIGN(e.dict, expression());
      } else if (e.dict == nullptr && e.list == nullptr && skip("*")) {
        BOWLINE_TRY_ASSIGN(e.list, expression());
      } else if (e.dict == nullptr && is(Token::Kind::name) && is("=", 1)) {
        const std::string_view name = take().text;
        take();
        BOWLINE_TRY_ASSIGN(const Part value, expression());
        e.named.emplace_back(name, value);
      } else if (e.dict != nullptr || e.list != nullptr || !e.named.empty()) {
        return failure("An argument is not valid.");
      } else {
        BOWLINE_TRY(add_expression(e.parts));
      }
      return {};
    });
  }

  Result<Part> call(Part of) {
    Expression e{.op = Op::call, .line = at().line, .parts = {of}};
    BOWLINE_TRY(arguments(e));
    return keep(std::move(e));
  }

  // A filter behind its "|".
  Result<Part> filter(Part of) {
    Expression e{.op = Op::filter, .line = at().line, .parts = {of}};
    BOWLINE_TRY_ASSIGN(e.text, any_name());
    if (is("(")) {
      BOWLINE_TRY(arguments(e));
    }
    return keep(std::move(e));
  }

  Result<Part> test(Part of) {
    Expression e{.op = Op::test, .line = at().line, .parts = {of}};
    take();
    const bool negated = skip("not");
    BOWLINE_TRY_ASSIGN(e.text, any_name());
    if (is("(")) {
      BOWLINE_TRY(arguments(e));
    } else if (is("is")) {
      return failure("Tests cannot be chained.");
    } else if (begins_argument()) {
      BOWLINE_TRY_ASSIGN(const Part first, primary());
      BOWLINE_TRY_ASSIGN(e.parts.emplace_back(), postfix(first));
    }
    const uint32_t line = e.line;
    BOWLINE_TRY_ASSIGN(const Part out, keep(std::move(e)));
    return negated ? make(Op::negation, line, {out}) : Result<Part>(out);
  }

  bool begins_argument() const {
    return is(Token::Kind::name) ? first_of({"else", "or", "and"}).empty()
                                 : is(Token::Kind::text) || is(Token::Kind::integer) ||
                                       is(Token::Kind::real) || !first_of({"(", "[", "{"}).empty();
  }

  // ---- statements

  using Ends = std::vector<std::string_view>;

  // Parses up to a tag with one of these names, which becomes the next token. Without names: up to
  // the end.
  Result<Body> body(const Ends& ends) {
    const Nested nested(level_);
    BOWLINE_TRY(require_level());
    Body out;
    while (!is(Token::Kind::end)) {
      const Token token = take();
      if (token.kind == Token::Kind::data) {
        Statement& s = add(out, Statement::Kind::text, token.line);
        s.text = token.text;
      } else if (token.kind == Token::Kind::print_begin) {
        Statement& s = add(out, Statement::Kind::print, token.line);
        BOWLINE_TRY_ASSIGN(s.expression, tuple(true, false));
        BOWLINE_TRY(expect(Token::Kind::print_end, "The end of the tag"));
      } else {
        if (std::ranges::any_of(ends, [&](auto end) { return is(end); })) {
          return out;
        }
        BOWLINE_TRY(statement(out));
        BOWLINE_TRY(block_end());
      }
    }
    return ends.empty() ? Result<Body>(std::move(out))
                        : unexpected(format("The tag \"{}\"", ends.back()));
  }

  Status block_end() { return expect(Token::Kind::block_end, "The end of the tag"); }

  // Parses the body after a tag, up to one of these tags.
  Result<Body> body_behind(const Ends& ends) {
    skip(":");
    BOWLINE_TRY(block_end());
    return body(ends);
  }

  Statement& add(Body& to, Statement::Kind kind, uint32_t line) {
    Statement& s = tree_.statements.emplace_back();
    s.kind = kind;
    s.line = line;
    to.push_back(&s);
    return s;
  }

  Status statement(Body& out) {
    struct Tag {
      std::string_view name;
      Statement::Kind kind;
      Status (Parser::*rest)(Statement&);  // parses what follows the name
    };
    constexpr Tag kTags[] = {{"if", Statement::Kind::branch, &Parser::branch},
                             {"for", Statement::Kind::loop, &Parser::loop},
                             {"set", Statement::Kind::set, &Parser::set},
                             {"macro", Statement::Kind::macro, &Parser::macro},
                             {"call", Statement::Kind::call, &Parser::call_block},
                             {"filter", Statement::Kind::filter, &Parser::filter_block},
                             {"generation", Statement::Kind::answer, &Parser::answer}};
    const uint32_t line = at().line;
    for (const auto& [name, kind, rest] : kTags) {
      if (skip(name)) {
        return (this->*rest)(add(out, kind, line));
      }
    }
    if (is("break") || is("continue")) {
      BOWLINE_REQUIRE_FILE(loops_ != 0, "\"{}\" is outside of a loop.", at().text);
      add(out, take().text == "break" ? Statement::Kind::stop : Statement::Kind::next, line);
      return {};
    }
    return failure("The tag {} is not supported.", shown());
  }

  Result<Part> filters(Part of) {
    while (skip("|")) {
      BOWLINE_TRY_ASSIGN(of, filter(of));
    }
    return of;
  }

  Status filter_block(Statement& s) {
    BOWLINE_TRY_ASSIGN(const Part first, filter(nullptr));
    BOWLINE_TRY_ASSIGN(s.expression, filters(first));
    return block(s, "endfilter");
  }

  Status answer(Statement& s) {
    tree_.marks_answers = true;
    return body_of_macro(s, "endgeneration");
  }

  Status block(Statement& s, std::string_view end) {
    BOWLINE_TRY_ASSIGN(s.body, body_behind({end}));
    take();
    return {};
  }

  Status branch(Statement& s) {
    for (std::string_view tag = "if"; tag != "endif";) {
      Statement::Branch& b = s.branches.emplace_back();
      const bool is_last = tag == "else";
      if (!is_last) {
        BOWLINE_TRY_ASSIGN(b.condition, tuple(false, false));
      }
      BOWLINE_TRY_ASSIGN(b.body,
                         body_behind(is_last ? Ends{"endif"} : Ends{"elif", "else", "endif"}));
      tag = take().text;
    }
    return {};
  }

  Status loop(Statement& s) {
    BOWLINE_TRY(targets(s, false));
    BOWLINE_TRY(expect("in"));
    BOWLINE_TRY_ASSIGN(s.expression, tuple(false, false));
    if (skip("if")) {
      BOWLINE_TRY_ASSIGN(s.condition, expression());
    }
    const Nested nested(loops_);
    BOWLINE_TRY_ASSIGN(s.body, body_behind({"else", "endfor"}));
    if (take().text == "else") {
      BOWLINE_TRY_ASSIGN(s.otherwise, body_behind({"endfor"}));
      take();
    }
    return {};
  }

  Status targets(Statement& s, bool with_attributes) {
    while (true) {
      Target& t = s.targets.emplace_back();
      BOWLINE_TRY_ASSIGN(t.name, any_name());
      if (with_attributes && skip(".")) {
        BOWLINE_TRY_ASSIGN(t.attribute, any_name());
      }
      if (!skip(",")) {
        return {};
      }
      s.unpacks = true;
      if (is("in") || is("=")) {
        return {};
      }
    }
  }

  Status set(Statement& s) {
    BOWLINE_TRY(targets(s, true));
    if (skip("=")) {
      BOWLINE_TRY_ASSIGN(s.expression, tuple(true, false));
      return {};
    }
    s.kind = Statement::Kind::set_block;
    BOWLINE_TRY_ASSIGN(s.expression, filters(nullptr));
    return block(s, "endset");
  }

  Status macro(Statement& s) {
    BOWLINE_TRY_ASSIGN(s.text, any_name());
    BOWLINE_TRY(parameters(s));
    macros_.push_back(&s);
    BOWLINE_TRY(body_of_macro(s, "endmacro"));
    macros_.pop_back();
    return {};
  }

  Status call_block(Statement& s) {
    s.text = "caller";
    if (is("(")) {
      BOWLINE_TRY(parameters(s));
    }
    BOWLINE_TRY_ASSIGN(s.expression, expression());
    BOWLINE_REQUIRE_FILE(s.expression->op == Op::call, "A call is expected in the tag \"call\".");
    return body_of_macro(s, "endcall");
  }

  Status body_of_macro(Statement& s, std::string_view end) {
    const uint32_t outside = std::exchange(loops_, 0);
    BOWLINE_TRY(block(s, end));
    loops_ = outside;
    return {};
  }

  Status parameters(Statement& s) {
    BOWLINE_TRY(expect("("));
    while (!is(")")) {
      if (!s.parameters.empty()) {
        BOWLINE_TRY(expect(","));
      }
      Statement::Argument& a = s.parameters.emplace_back();
      BOWLINE_TRY_ASSIGN(a.name, any_name());
      if (skip("=")) {
        BOWLINE_TRY_ASSIGN(a.otherwise, expression());
      }
    }
    take();
    return {};
  }

  Tree& tree_;
  uint32_t level_ = 0;
  uint32_t loops_ = 0;
  std::vector<Statement*> macros_;  // enclosing macros of the next token
};

}  // namespace

Status parse(Tree& tree) {
  BOWLINE_TRY_ASSIGN(std::vector<Token> tokens, lex(tree));
  return Parser(tree, std::move(tokens)).parse();
}

}  // namespace bowline::text::chat
