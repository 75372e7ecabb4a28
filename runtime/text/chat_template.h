// A parsed chat template: statements and expressions of a Jinja2 subset, with the settings of
// Hugging Face transformers (trim_blocks, lstrip_blocks, loop controls, the tag `generation`).
#pragma once

#include <algorithm>
#include <deque>
#include <ranges>
#include <span>

#include "text/chat_value.h"

namespace bowline::text::chat {

// Special tokens that a template can read by name. The metadata of a model has the same names.
inline constexpr std::string_view kTokenNames[] = {
    "bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"};

struct Expression {
  enum class Op : uint8_t {
    constant,
    name,
    list,
    tuple,
    dict,       // key, value, key, value, ...
    attribute,  // parts[0].text
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1] : parts[2] : parts[3]]; the last three may be null
    call,       // parts[0](others, named)
    filter,     // parts[0] | text(others, named); parts[0] is null in a tag
    test,       // parts[0] is text(others)
    negative,
    positive,
    binary,    // text: "+", "-", "*", "/", "//", "%", "**"
    concat,    // parts[0] ~ parts[1] ~ ...
    compare,   // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    all,       // and
    any,       // or
    negation,  // not
    choice,    // parts[1] if parts[0] else parts[2], which may be null
  };
  Op op = Op::constant;
  uint32_t line = 0;
  uint32_t depth = 1;  // depth of the subtree
  std::string_view text = {};
  Value value = {};
  std::vector<const Expression*> parts = {};
  std::vector<std::pair<std::string_view, const Expression*>> named = {};
  const Expression* list = nullptr;  // (optional) the argument after *
  const Expression* dict = nullptr;  // (optional) the argument after **
  std::vector<std::string_view> operators = {};
};

// Target of an assignment: a name, or an attribute of a namespace.
struct Target {
  std::string_view name;
  std::string_view attribute;
};

using Body = std::vector<const Statement*>;

struct Statement {
  enum class Kind : uint8_t {
    text,
    print,      // expression
    branch,     // if, elif, else (null)
    loop,       // for targets in expression if condition: body, otherwise
    set,        // targets = expression
    set_block,  // targets = body through the filter `expression`, or null
    filter,     // body through the filter `expression`
    macro,      // text(parameters): body
    call,       // call with a macro `caller`(parameters): body
    answer,     // body with its own scope: the tag `generation`, which marks an answer
    stop,       // break
    next,       // continue
  };
  struct Branch {
    const Expression* condition = nullptr;
    Body body;
  };
  struct Argument {
    std::string_view name;
    const Expression* otherwise = nullptr;
  };
  Kind kind = Kind::text;
  uint32_t line = 0;
  std::string_view text;
  const Expression* expression = nullptr;
  const Expression* condition = nullptr;
  std::vector<Target> targets;
  bool unpacks = false;  // unpacks a tuple, even for a single target
  // Of a macro: implicit names that the body reads.
  bool reads_caller = false;
  bool reads_varargs = false;
  bool reads_kwargs = false;
  std::vector<Branch> branches;
  std::vector<Argument> parameters;
  Body body;
  Body otherwise;
};

// Owns the tree and the texts that the tree points into. Not movable.
struct Tree {
  std::string source;
  std::deque<std::string> texts;
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  Body body;
  bool marks_answers = false;  // has a tag `generation`
};

struct Token {
  enum class Kind : uint8_t {
    data,
    print_begin,
    print_end,
    block_begin,
    block_end,
    name,
    text,
    integer,
    real,
    symbol,
    end,
  };
  Kind kind = Kind::end;
  uint32_t line = 0;
  std::string_view text;  // of a text: with escapes resolved
  int64_t integer = 0;
  double real = 0;
};

constexpr size_t kMostTemplateBytes = size_t{1} << 20;

// Adds the line to an error of the template that has none: "... (line 3)."
Status with_line(Status status, uint32_t line);

// Increases a level by `n` during its lifetime.
class Nested {
 public:
  explicit Nested(uint32_t& level, uint32_t n = 1) : level_(level), n_(n) { level_ += n_; }
  ~Nested() { level_ -= n_; }
  Nested(const Nested&) = delete;

 private:
  uint32_t& level_;
  uint32_t n_;
};

// Errors  bad_file: the message has the line.
Result<std::vector<Token>> lex(Tree& tree);
Status parse(Tree& tree);

// The built-in templates.
struct NamedFormat {
  std::string_view name;
  std::string_view text;
};
std::span<const NamedFormat> named_formats();

// Renders a template with the variables of `globals`.
// Errors  bad_argument: raise_exception. bad_file: all others; the message has the line.
Result<RenderedChat> render(const Tree& tree, Heap& heap,
                            std::vector<std::pair<std::string_view, Value>> globals,
                            std::optional<int64_t> now);

}  // namespace bowline::text::chat
