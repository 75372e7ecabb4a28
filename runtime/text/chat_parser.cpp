// Converts tokens to a tree, by the grammar of Jinja2.
#include "base/escape.h"
#include "base/utf8.h"
#include "text/chat_template.h"

namespace bowline::text::chat {
namespace {

using Op = Expression::Op;
using Part = const Expression*;

constexpr uint32_t kMostNesting = 100;  // nested brackets and tags
constexpr uint32_t kMostDepth = 200;    // depth of an expression

class Parser {
 public:
  Parser(Tree& tree, std::vector<Token> tokens) : tree_(tree), tokens_(std::move(tokens)) {}

  Status parse() {
    BOWLINE_TRY_ASSIGN(tree_.body, body({}));
    return {};
  }

 private:
  // ---- tokens

  const Token& at(size_t ahead = 0) const {
    return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
  }
  const Token& take() {
    const Token& token = at();
    next_ += next_ + 1 < tokens_.size() ? 1 : 0;
    return token;
  }
  bool is_symbol(std::string_view s, size_t ahead = 0) const {
    return at(ahead).kind == Token::Kind::symbol && at(ahead).text == s;
  }
  bool is_name(std::string_view s, size_t ahead = 0) const {
    return at(ahead).kind == Token::Kind::name && at(ahead).text == s;
  }
  bool skip_symbol(std::string_view s) { return is_symbol(s) ? (take(), true) : false; }
  bool skip_name(std::string_view s) { return is_name(s) ? (take(), true) : false; }

  Status fail(std::string_view message) const { return failure_at(at().line, message); }

  std::string shown() const {
    switch (at().kind) {
      case Token::Kind::end:
        return "the end of the template";
      case Token::Kind::block_end:
      case Token::Kind::print_end:
        return "the end of the tag";
      default:
        return "\"" + escaped(at().text.substr(0, 80)) + "\"";
    }
  }
  Status unexpected(std::string_view expected) const {
    return fail(std::string(expected) + " is expected before " + shown());
  }
  Status expect_symbol(std::string_view s) {
    return skip_symbol(s) ? Status() : unexpected("\"" + std::string(s) + "\"");
  }
  Status expect_name(std::string_view s) {
    return skip_name(s) ? Status() : unexpected("\"" + std::string(s) + "\"");
  }
  Result<std::string_view> any_name() {
    return at().kind == Token::Kind::name ? Result<std::string_view>(take().text)
                                          : Result<std::string_view>(unexpected("A name"));
  }
  Status expect(Token::Kind kind, std::string_view what) {
    return at().kind == kind ? (take(), Status()) : unexpected(what);
  }

  // Increases the nesting level during its lifetime.
  class Nested {
   public:
    explicit Nested(uint32_t& level) : level_(level) { ++level_; }
    ~Nested() { --level_; }
    Nested(const Nested&) = delete;

   private:
    uint32_t& level_;
  };
  Status require_level() const {
    return level_ <= kMostNesting
               ? Status()
               : fail("More than " + std::to_string(kMostNesting) + " levels are nested");
  }

  // ---- expressions

  Result<Part> make(Op op, uint32_t line, std::vector<Part> parts, std::string_view text = {}) {
    Expression e;
    e.op = op;
    e.line = line;
    e.text = text;
    e.parts = std::move(parts);
    return keep(std::move(e));
  }

  Result<Part> keep(Expression e) {
    for (const Part part : e.parts) {
      e.depth = std::max(e.depth, part == nullptr ? 1 : part->depth + 1);
    }
    for (const auto& [name, part] : e.named) {
      e.depth = std::max(e.depth, part->depth + 1);
    }
    for (const Part part : {e.list, e.dict}) {
      e.depth = std::max(e.depth, part == nullptr ? 1 : part->depth + 1);
    }
    if (e.depth > kMostDepth) {
      return failure_at(e.line,
                        "An expression has more than " + std::to_string(kMostDepth) + " levels");
    }
    return &tree_.expressions.emplace_back(std::move(e));
  }

  Result<Part> constant(uint32_t line, const Value& value) {
    Expression e;
    e.line = line;
    e.value = value;
    return keep(std::move(e));
  }

  Result<Part> expression(bool with_choice = true) {
    const Nested nested(level_);
    BOWLINE_TRY(require_level());
    BOWLINE_TRY_ASSIGN(Part left, either());
    while (with_choice && is_name("if")) {
      const uint32_t line = take().line;
      BOWLINE_TRY_ASSIGN(const Part condition, either());
      Part otherwise = nullptr;
      if (skip_name("else")) {
        BOWLINE_TRY_ASSIGN(otherwise, expression());
      }
      BOWLINE_TRY_ASSIGN(left, make(Op::choice, line, {condition, left, otherwise}));
    }
    return left;
  }

  Result<Part> either() {
    BOWLINE_TRY_ASSIGN(Part left, both());
    while (is_name("or")) {
      const uint32_t line = take().line;
      BOWLINE_TRY_ASSIGN(const Part right, both());
      BOWLINE_TRY_ASSIGN(left, make(Op::any, line, {left, right}));
    }
    return left;
  }

  Result<Part> both() {
    BOWLINE_TRY_ASSIGN(Part left, negation());
    while (is_name("and")) {
      const uint32_t line = take().line;
      BOWLINE_TRY_ASSIGN(const Part right, negation());
      BOWLINE_TRY_ASSIGN(left, make(Op::all, line, {left, right}));
    }
    return left;
  }

  Result<Part> negation() {
    if (!is_name("not")) {
      return comparison();
    }
    const Nested nested(level_);
    BOWLINE_TRY(require_level());
    const uint32_t line = take().line;
    BOWLINE_TRY_ASSIGN(const Part of, negation());
    return make(Op::negation, line, {of});
  }

  std::string_view comparison_operator() {
    for (const std::string_view s : {"==", "!=", "<", "<=", ">", ">="}) {
      if (skip_symbol(s)) {
        return s;
      }
    }
    if (skip_name("in")) {
      return "in";
    }
    if (is_name("not") && is_name("in", 1)) {
      take();
      take();
      return "not in";
    }
    return {};
  }

  Result<Part> comparison() {
    Expression e;
    e.op = Op::compare;
    e.line = at().line;
    BOWLINE_TRY_ASSIGN(const Part first, sum());
    e.parts = {first};
    for (std::string_view op; !(op = comparison_operator()).empty();) {
      e.operators.push_back(op);
      BOWLINE_TRY_ASSIGN(e.parts.emplace_back(), sum());
    }
    return e.operators.empty() ? Result<Part>(first) : keep(std::move(e));
  }

  Result<Part> sum() {
    BOWLINE_TRY_ASSIGN(Part left, concatenation());
    while (is_symbol("+") || is_symbol("-")) {
      const Token op = take();
      BOWLINE_TRY_ASSIGN(const Part right, concatenation());
      BOWLINE_TRY_ASSIGN(left, make(Op::binary, op.line, {left, right}, op.text));
    }
    return left;
  }

  Result<Part> concatenation() {
    const uint32_t line = at().line;
    BOWLINE_TRY_ASSIGN(const Part first, product());
    std::vector<Part> parts = {first};
    while (skip_symbol("~")) {
      BOWLINE_TRY_ASSIGN(parts.emplace_back(), product());
    }
    return parts.size() == 1 ? Result<Part>(first) : make(Op::concat, line, std::move(parts));
  }

  Result<Part> product() {
    BOWLINE_TRY_ASSIGN(Part left, power());
    while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
      const Token op = take();
      BOWLINE_TRY_ASSIGN(const Part right, power());
      BOWLINE_TRY_ASSIGN(left, make(Op::binary, op.line, {left, right}, op.text));
    }
    return left;
  }

  Result<Part> power() {
    BOWLINE_TRY_ASSIGN(Part left, unary(true));
    while (is_symbol("**")) {
      const Token op = take();
      BOWLINE_TRY_ASSIGN(const Part right, unary(true));
      BOWLINE_TRY_ASSIGN(left, make(Op::binary, op.line, {left, right}, op.text));
    }
    return left;
  }

  Result<Part> unary(bool with_filters) {
    const Nested nested(level_);
    BOWLINE_TRY(require_level());
    Part of = nullptr;
    if (is_symbol("-") || is_symbol("+")) {
      const Token sign = take();
      BOWLINE_TRY_ASSIGN(of, unary(false));
      BOWLINE_TRY_ASSIGN(of, make(sign.text == "-" ? Op::negative : Op::positive, sign.line, {of}));
    } else {
      BOWLINE_TRY_ASSIGN(of, primary());
    }
    BOWLINE_TRY_ASSIGN(of, postfix(of));
    return with_filters ? filters_and_tests(of) : Result<Part>(of);
  }

  Result<Part> primary() {
    const Token token = at();
    switch (token.kind) {
      case Token::Kind::name:
        take();
        if (token.text == "true" || token.text == "True") {
          return constant(token.line, Value::of(true));
        }
        if (token.text == "false" || token.text == "False") {
          return constant(token.line, Value::of(false));
        }
        if (token.text == "none" || token.text == "None") {
          return constant(token.line, Value::none());
        }
        note_name(token.text);
        return make(Op::name, token.line, {}, token.text);
      case Token::Kind::text:
        return adjacent_texts();
      case Token::Kind::integer:
        take();
        return constant(token.line, Value::of(token.integer));
      case Token::Kind::real:
        take();
        return constant(token.line, Value::of(token.real));
      default:
        break;
    }
    if (skip_symbol("(")) {
      BOWLINE_TRY_ASSIGN(const Part inner, tuple(true, true));
      BOWLINE_TRY(expect_symbol(")"));
      return inner;
    }
    if (skip_symbol("[")) {
      return list(token.line);
    }
    if (skip_symbol("{")) {
      return dict(token.line);
    }
    return unexpected("An expression");
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
    const Token first = take();
    if (at().kind != Token::Kind::text) {
      return constant(first.line, Value::of(first.text));
    }
    std::string joined(first.text);
    while (at().kind == Token::Kind::text) {
      joined += take().text;
    }
    return constant(first.line,
                    Value::of(std::string_view(tree_.texts.emplace_back(std::move(joined)))));
  }

  Result<Part> list(uint32_t line) {
    std::vector<Part> parts;
    while (!is_symbol("]")) {
      if (!parts.empty()) {
        BOWLINE_TRY(expect_symbol(","));
        if (is_symbol("]")) {
          break;
        }
      }
      BOWLINE_TRY_ASSIGN(parts.emplace_back(), expression());
    }
    take();
    return make(Op::list, line, std::move(parts));
  }

  Result<Part> dict(uint32_t line) {
    std::vector<Part> parts;
    while (!is_symbol("}")) {
      if (!parts.empty()) {
        BOWLINE_TRY(expect_symbol(","));
        if (is_symbol("}")) {
          break;
        }
      }
      BOWLINE_TRY_ASSIGN(parts.emplace_back(), expression());
      BOWLINE_TRY(expect_symbol(":"));
      BOWLINE_TRY_ASSIGN(parts.emplace_back(), expression());
    }
    take();
    return make(Op::dict, line, std::move(parts));
  }

  bool is_tuple_end() const {
    return at().kind == Token::Kind::print_end || at().kind == Token::Kind::block_end ||
           is_symbol(")");
  }

  // Parses an expression, or several with commas between them.
  Result<Part> tuple(bool with_choice, bool in_brackets) {
    const uint32_t line = at().line;
    std::vector<Part> parts;
    bool is_tuple = false;
    while (true) {
      if (!parts.empty()) {
        BOWLINE_TRY(expect_symbol(","));
      }
      if (is_tuple_end()) {
        break;
      }
      BOWLINE_TRY_ASSIGN(parts.emplace_back(), expression(with_choice));
      if (!is_symbol(",")) {
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
      if (is_symbol(".") || is_symbol("[")) {
        BOWLINE_TRY_ASSIGN(of, subscript(of));
      } else if (is_symbol("(")) {
        BOWLINE_TRY_ASSIGN(of, call(of));
      } else {
        return of;
      }
    }
  }

  Result<Part> filters_and_tests(Part of) {
    while (true) {
      if (is_symbol("|")) {
        BOWLINE_TRY_ASSIGN(of, filter(of));
      } else if (is_name("is")) {
        BOWLINE_TRY_ASSIGN(of, test(of));
      } else if (is_symbol("(")) {
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
        return failure_at(name.line, "A name or a number is expected after a dot");
      }
      BOWLINE_TRY_ASSIGN(const Part index, constant(name.line, Value::of(name.integer)));
      return make(Op::item, token.line, {of, index});
    }
    Part parts[3] = {};
    if (!is_symbol(":")) {
      BOWLINE_TRY_ASSIGN(parts[0], expression());
      if (!is_symbol(":")) {
        BOWLINE_TRY(expect_symbol("]"));
        return make(Op::item, token.line, {of, parts[0]});
      }
    }
    for (int i = 1; i < 3 && skip_symbol(":"); ++i) {
      if (!is_symbol(":") && !is_symbol("]")) {
        BOWLINE_TRY_ASSIGN(parts[i], expression());
      }
    }
    BOWLINE_TRY(expect_symbol("]"));
    return make(Op::slice, token.line, {of, parts[0], parts[1], parts[2]});
  }

  Status arguments(Expression& e) {
    BOWLINE_TRY(expect_symbol("("));
    bool first = true;
    while (!is_symbol(")")) {
      if (!first) {
        BOWLINE_TRY(expect_symbol(","));
        if (is_symbol(")")) {
          break;
        }
      }
      first = false;
      if (e.dict == nullptr && skip_symbol("**")) {
        BOWLINE_TRY_ASSIGN(e.dict, expression());
      } else if (e.dict == nullptr && e.list == nullptr && skip_symbol("*")) {
        BOWLINE_TRY_ASSIGN(e.list, expression());
      } else if (e.dict == nullptr && at().kind == Token::Kind::name && is_symbol("=", 1)) {
        const std::string_view name = take().text;
        take();
        BOWLINE_TRY_ASSIGN(const Part value, expression());
        e.named.emplace_back(name, value);
      } else if (e.dict != nullptr || e.list != nullptr || !e.named.empty()) {
        return fail("An argument is not valid");
      } else {
        BOWLINE_TRY_ASSIGN(e.parts.emplace_back(), expression());
      }
    }
    take();
    return {};
  }

  Result<Part> call(Part of) {
    Expression e;
    e.op = Op::call;
    e.line = at().line;
    e.parts = {of};
    BOWLINE_TRY(arguments(e));
    return keep(std::move(e));
  }

  Result<Part> filter(Part of) {
    take();
    return filter_name(of);
  }

  Result<Part> filter_name(Part of) {
    Expression e;
    e.op = Op::filter;
    e.line = at().line;
    e.parts = {of};
    BOWLINE_TRY_ASSIGN(e.text, any_name());
    if (is_symbol("(")) {
      BOWLINE_TRY(arguments(e));
    }
    return keep(std::move(e));
  }

  Result<Part> test(Part of) {
    Expression e;
    e.op = Op::test;
    e.line = take().line;
    e.parts = {of};
    const bool negated = skip_name("not");
    BOWLINE_TRY_ASSIGN(e.text, any_name());
    if (is_symbol("(")) {
      BOWLINE_TRY(arguments(e));
    } else if (is_name("is")) {
      return fail("Tests cannot be chained");
    } else if (begins_argument()) {
      BOWLINE_TRY_ASSIGN(const Part first, primary());
      BOWLINE_TRY_ASSIGN(e.parts.emplace_back(), postfix(first));
    }
    const uint32_t line = e.line;
    BOWLINE_TRY_ASSIGN(const Part out, keep(std::move(e)));
    return negated ? make(Op::negation, line, {out}) : Result<Part>(out);
  }

  bool begins_argument() const {
    switch (at().kind) {
      case Token::Kind::name:
        return !is_name("else") && !is_name("or") && !is_name("and");
      case Token::Kind::text:
      case Token::Kind::integer:
      case Token::Kind::real:
        return true;
      default:
        return is_symbol("(") || is_symbol("[") || is_symbol("{");
    }
  }

  // ---- statements

  using Ends = std::vector<std::string_view>;

  // Parses up to a tag with one of these names, which becomes the next token. Without names: up to
  // the end.
  Result<Body> body(const Ends& ends) {
    const Nested nested(level_);
    BOWLINE_TRY(require_level());
    Body out;
    while (at().kind != Token::Kind::end) {
      const Token token = take();
      if (token.kind == Token::Kind::data) {
        Statement& s = add(out, Statement::Kind::text, token.line);
        s.text = token.text;
      } else if (token.kind == Token::Kind::print_begin) {
        Statement& s = add(out, Statement::Kind::print, token.line);
        BOWLINE_TRY_ASSIGN(s.expression, tuple(true, false));
        BOWLINE_TRY(expect(Token::Kind::print_end, "The end of the tag"));
      } else {
        if (std::ranges::any_of(ends, [&](std::string_view end) { return is_name(end); })) {
          return out;
        }
        BOWLINE_TRY(statement(out));
        BOWLINE_TRY(block_end());
      }
    }
    return ends.empty() ? Result<Body>(std::move(out))
                        : unexpected("The tag \"" + std::string(ends.back()) + "\"");
  }

  Status block_end() { return expect(Token::Kind::block_end, "The end of the tag"); }

  // Parses the body after a tag, up to one of these tags.
  Result<Body> body_behind(const Ends& ends) {
    skip_symbol(":");
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
    const uint32_t line = at().line;
    if (skip_name("if")) {
      return branch(add(out, Statement::Kind::branch, line));
    }
    if (skip_name("for")) {
      return loop(add(out, Statement::Kind::loop, line));
    }
    if (skip_name("set")) {
      return set(add(out, Statement::Kind::set, line));
    }
    if (skip_name("macro")) {
      return macro(add(out, Statement::Kind::macro, line));
    }
    if (skip_name("call")) {
      return call_block(add(out, Statement::Kind::call, line));
    }
    if (skip_name("filter")) {
      Statement& s = add(out, Statement::Kind::filter, line);
      BOWLINE_TRY_ASSIGN(s.expression, filter_chain(nullptr, true));
      return block(s, "endfilter");
    }
    if (skip_name("generation")) {
      tree_.marks_answers = true;
      return body_of_macro(add(out, Statement::Kind::answer, line), "endgeneration");
    }
    if (is_name("break") || is_name("continue")) {
      if (loops_ == 0) {
        return fail("\"" + std::string(at().text) + "\" is outside of a loop");
      }
      add(out, take().text == "break" ? Statement::Kind::stop : Statement::Kind::next, line);
      return {};
    }
    return fail("The tag " + shown() + " is not supported");
  }

  Result<Part> filter_chain(Part of, bool first) {
    while (first || skip_symbol("|")) {
      BOWLINE_TRY_ASSIGN(of, filter_name(of));
      first = false;
    }
    return of;
  }

  Status block(Statement& s, std::string_view end) {
    BOWLINE_TRY_ASSIGN(s.body, body_behind({end}));
    take();
    return {};
  }

  Status branch(Statement& s) {
    while (true) {
      Statement::Branch& b = s.branches.emplace_back();
      BOWLINE_TRY_ASSIGN(b.condition, tuple(false, false));
      BOWLINE_TRY_ASSIGN(b.body, body_behind({"elif", "else", "endif"}));
      const std::string_view end = take().text;
      if (end == "endif") {
        return {};
      }
      if (end == "else") {
        Statement::Branch& otherwise = s.branches.emplace_back();
        BOWLINE_TRY_ASSIGN(otherwise.body, body_behind({"endif"}));
        take();
        return {};
      }
    }
  }

  Status loop(Statement& s) {
    BOWLINE_TRY(targets(s, false));
    BOWLINE_TRY(expect_name("in"));
    BOWLINE_TRY_ASSIGN(s.expression, tuple(false, false));
    if (skip_name("if")) {
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
      if (with_attributes && skip_symbol(".")) {
        BOWLINE_TRY_ASSIGN(t.attribute, any_name());
      }
      if (!skip_symbol(",")) {
        return {};
      }
      s.unpacks = true;
      if (is_name("in") || is_symbol("=")) {
        return {};
      }
    }
  }

  Status set(Statement& s) {
    BOWLINE_TRY(targets(s, true));
    if (skip_symbol("=")) {
      BOWLINE_TRY_ASSIGN(s.expression, tuple(true, false));
      return {};
    }
    s.kind = Statement::Kind::set_block;
    BOWLINE_TRY_ASSIGN(s.expression, filter_chain(nullptr, false));
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
    if (is_symbol("(")) {
      BOWLINE_TRY(parameters(s));
    }
    BOWLINE_TRY_ASSIGN(s.expression, expression());
    if (s.expression->op != Op::call) {
      return fail("A call is expected in the tag \"call\"");
    }
    return body_of_macro(s, "endcall");
  }

  Status body_of_macro(Statement& s, std::string_view end) {
    const uint32_t outside = std::exchange(loops_, 0);
    BOWLINE_TRY(block(s, end));
    loops_ = outside;
    return {};
  }

  Status parameters(Statement& s) {
    BOWLINE_TRY(expect_symbol("("));
    while (!is_symbol(")")) {
      if (!s.parameters.empty()) {
        BOWLINE_TRY(expect_symbol(","));
      }
      Statement::Argument& a = s.parameters.emplace_back();
      BOWLINE_TRY_ASSIGN(a.name, any_name());
      if (skip_symbol("=")) {
        BOWLINE_TRY_ASSIGN(a.otherwise, expression());
      }
    }
    take();
    return {};
  }

  Tree& tree_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  uint32_t level_ = 0;
  uint32_t loops_ = 0;
  std::vector<Statement*> macros_;  // enclosing macros of the next token
};

// Converts all line ends to \n and removes the last one.
std::string with_newlines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      i += i + 1 < text.size() && text[i + 1] == '\n' ? 1 : 0;
      out += '\n';
    } else {
      out += text[i];
    }
  }
  if (out.ends_with('\n')) {
    out.pop_back();
  }
  return out;
}

}  // namespace

Status parse(Tree& tree) {
  if (tree.source.size() > kMostTemplateBytes) {
    return failure("The template has " + std::to_string(tree.source.size()) + " bytes, more than " +
                   std::to_string(kMostTemplateBytes) + ".");
  }
  for (std::string_view rest = tree.source; !rest.empty();) {
    const size_t n = utf8_length(rest);
    if (n == 0) {
      return failure("The template is not valid UTF-8.");
    }
    rest.remove_prefix(n);
  }
  tree.source = with_newlines(tree.source);
  BOWLINE_TRY_ASSIGN(std::vector<Token> tokens, lex(tree));
  return Parser(tree, std::move(tokens)).parse();
}

}  // namespace bowline::text::chat
