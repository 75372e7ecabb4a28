// Converts JSON to values of a chat template and keeps the order of the keys.
#pragma once

#include <nlohmann/json.hpp>

#include "text/chat_template.h"

namespace bowline::text::chat {

// `from` must outlive the heap: texts are not copied.
inline Result<Value> value_of_json(Heap& heap, const nlohmann::ordered_json& from) {
  switch (from.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::of(from.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
    case nlohmann::ordered_json::value_t::number_unsigned:
      return Value::of(from.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return Value::of(from.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return Value::of(std::string_view(from.get_ref<const std::string&>()));
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : from) {
        BOWLINE_TRY_ASSIGN(items.emplace_back(), value_of_json(heap, item));
      }
      return heap.list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      std::vector<Pair> pairs;
      for (const auto& [key, value] : from.items()) {
        BOWLINE_TRY_ASSIGN(Value v, value_of_json(heap, value));
        pairs.emplace_back(Value::of(std::string_view(key)), v);
      }
      return heap.dict(std::move(pairs));
    }
    default:
      return Value::none();
  }
}

// Renders with the keys of an object as variables.
inline Result<RenderedChat> render_json(const std::string& text,
                                        const nlohmann::ordered_json& globals,
                                        std::optional<int64_t> now) {
  Tree tree;
  tree.source = text;
  BOWLINE_TRY(parse(tree));
  Heap heap;
  std::vector<std::pair<std::string_view, Value>> names;
  for (const auto& [key, value] : globals.items()) {
    BOWLINE_TRY_ASSIGN(Value v, value_of_json(heap, value));
    names.emplace_back(key, v);
  }
  return render(tree, heap, std::move(names), now);
}

}  // namespace bowline::text::chat
