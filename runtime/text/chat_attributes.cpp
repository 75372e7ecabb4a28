// Attributes and items of values.
#include "text/chat_functions.h"

namespace bowline::text::chat {
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
  return failure("The attribute {} of a loop is not supported.", quoted(name));
}

Result<Value> Renderer::attribute(const Value& value, std::string_view name) {
  BOWLINE_TRY(require_no_markup(value));
  if (const Function method = method_of(value, name)) {
    return heap_.method(method, value);
  }
  switch (value.kind) {
    case Kind::undefined:
      return failure("The attribute {} of {}, which is not defined.", quoted(name),
                     quoted(value.text));
    case Kind::none:
    case Kind::boolean:
      return Value::undefined(name);
    case Kind::list:
    case Kind::tuple:
      // Further methods of Python's lists, and names that the sandbox hides.
      BOWLINE_REQUIRE_FILE(!is_among(name, {"append", "clear", "copy", "extend", "index", "count",
                                            "insert", "pop", "remove", "reverse", "sort", "start",
                                            "stop", "step", "mapping", "isdisjoint"}),
                           "The method {} of a list is not supported.", quoted(name));
      BOWLINE_REQUIRE_FILE(!name.starts_with('_'), "The attribute {} of a list is not supported.",
                           quoted(name));
      return Value::undefined(name);
    case Kind::dict:
      BOWLINE_REQUIRE_FILE(
          !is_among(name, {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"}),
          "The method {} of a dict is not supported.", quoted(name));
      return item(value, Value::of(name));
    case Kind::name_space:
      return item(value, Value::of(name));
    case Kind::loop:
      return of_loop(*value.loop, name);
    case Kind::text:
      // Further methods of Python's texts.
      BOWLINE_REQUIRE_FILE(
          !name.starts_with("is") && !name.starts_with('_') &&
              !is_among(name, {"casefold", "center", "encode", "expandtabs", "format_map",
                               "maketrans", "swapcase", "translate"}),
          "The method {} of a text is not supported.", quoted(name));
      return Value::undefined(name);
    default:
      return failure("The attribute {} of {} is not supported.", quoted(name),
                     described(value.kind));
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
  return failure("An item cannot be read of {} by {}.", described(value.kind), described(key.kind));
}

}  // namespace bowline::text::chat
