// Filters and methods: functions of a value and arguments, found by name.
#pragma once

#include "text/chat_render.h"

namespace bowline::text::chat {

struct NamedFunction {
  std::string_view name;
  Function function;
};

// Null: the table does not have the name.
template <size_t n>
Function function_of(const NamedFunction (&table)[n], std::string_view name) {
  const auto* const found = std::ranges::find(table, name, &NamedFunction::name);
  return found == std::end(table) ? nullptr : found->function;
}
// Null: there is no global function of this name.
Function global_of(std::string_view name);
// Null: the value has no such method.
Function method_of(const Value& value, std::string_view name);

// Methods that are filters, too. Their value is a text.
template <Case to>
Result<Value> in_case(Renderer& r, const Value& v, Arguments&) {
  return with_case(r.heap(), v.text, to);
}
Result<Value> replaced(Renderer& r, const Value& v, Arguments& a);
// str.format() of Python. Errors  bad_file: the layout is not valid or not supported.
Result<Value> formatted(Renderer& r, const Value& v, Arguments& a);

// Joins the printed values.
Result<Value> join(Heap& heap, std::string_view between, const std::vector<Value>& parts);
// Errors  bad_file: the value is not a text.
Status require_text(std::string_view of, const Value& v);
// The pairs of a dict, as tuples.
Result<std::vector<Value>> items_of(Heap& heap, const Value& dict);

}  // namespace bowline::text::chat
