// The tests behind `is`, and comparisons.
#include "text/chat_functions.h"

namespace bowline::text::chat {
namespace {

// Tests with an argument, and their operators.
struct NamedTest {
  std::string_view name, op;
};
constexpr NamedTest kComparisons[] = {
    {"in", "in"}, {"==", "=="},        {"eq", "=="}, {"equalto", "=="},    {"!=", "!="},
    {"ne", "!="}, {">", ">"},          {"gt", ">"},  {"greaterthan", ">"}, {"<", "<"},
    {"lt", "<"},  {"lessthan", "<"},   {">=", ">="}, {"ge", ">="},         {"<=", "<="},
    {"le", "<="}, {"divisibleby", "%"}};

}  // namespace

Result<bool> compared(Heap& heap, std::string_view op, const Value& a, const Value& b) {
  if (op == "%") {
    BOWLINE_REQUIRE_FILE(a.is_number() && b.is_number() && b.number() != 0 && b.number() != -1,
                         "\"divisibleby\" is not defined for {}.", described(a.kind));
    return a.number() % b.number() == 0;
  }
  if (op == "in" || op == "not in") {
    BOWLINE_TRY_ASSIGN(const bool is, contains(heap, b, a));
    return is == (op == "in");
  }
  if (op == "==" || op == "!=") {
    BOWLINE_TRY_ASSIGN(const bool same, equal(heap, a, b));
    return same == (op == "==");
  }
  BOWLINE_TRY_ASSIGN(const std::partial_ordering sign, order(heap, a, b));
  return op == "<" ? sign < 0 : op == "<=" ? sign <= 0 : op == ">" ? sign > 0 : sign >= 0;
}

Result<bool> Renderer::test(std::string_view name, const Value& v, Arguments arguments) {
  BOWLINE_TRY(heap_.step());
  const auto* const comparison = std::ranges::find(kComparisons, name, &NamedTest::name);
  if (comparison != std::end(kComparisons)) {
    const Value* other = arguments.take(0, "");
    BOWLINE_REQUIRE_FILE(other != nullptr, "The test \"{}\" lacks a value.", name);
    BOWLINE_TRY(arguments.require_taken());
    return compared(heap_, comparison->op, v, *other);
  }
  BOWLINE_TRY(arguments.require_taken());
  const Kind k = v.kind;
  if (name == "odd" || name == "even") {
    BOWLINE_REQUIRE_FILE(v.is_number(), "\"odd\" and \"even\" are not defined for {}.",
                         described(k));
    return (v.number() % 2 != 0) == (name == "odd");
  }
  if (name == "sequence" || name == "iterable") {
    const bool has_elements = k == Kind::undefined || k == Kind::text || k == Kind::dict ||
                              (v.is_sequence() && !(v.is_view() && name == "sequence"));
    return has_elements || k == Kind::none || v.is_numeric() || v.is_view()
               ? Result<bool>(has_elements)
               : Result<bool>(failure("The test of a function {} is not supported.", quoted(name)));
  }
  const std::pair<std::string_view, bool> simple[] = {
      {"defined", k != Kind::undefined},
      {"undefined", k == Kind::undefined},
      {"none", k == Kind::none},
      {"string", k == Kind::text},
      {"mapping", k == Kind::dict},
      {"number", v.is_numeric()},
      {"integer", k == Kind::integer},
      {"float", k == Kind::real},
      {"callable", k == Kind::macro || k == Kind::function},
      {"boolean", k == Kind::boolean},
      {"true", k == Kind::boolean && v.boolean},
      {"false", k == Kind::boolean && !v.boolean},
  };
  for (const auto& [known, is] : simple) {
    if (known == name) {
      return is;
    }
  }
  return failure("The test {} is not supported.", quoted(name));
}

}  // namespace bowline::text::chat
