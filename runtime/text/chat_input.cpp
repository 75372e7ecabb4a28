#include "text/chat_input.h"

#include <simdjson.h>

#include <unordered_map>

namespace bowline::text::chat {
namespace {

using Element = simdjson::dom::element;
using Type = simdjson::dom::element_type;

// `from` has this type.
template <class T>
T content(const Element& from) {
  T out = {};
  return from.get(out) == simdjson::SUCCESS ? out : T();
}

Result<Value> value_of(Heap& heap, const Element& from, std::string_view what) {
  BOWLINE_TRY(heap.step());
  switch (from.type()) {
    case Type::NULL_VALUE:
      return Value::none();
    case Type::BOOL:
      return Value::of(content<bool>(from));
    case Type::INT64:
      return Value::of(content<int64_t>(from));
    case Type::UINT64:
      return Status(Code::bad_argument, format("The {} have the integer {}, which is too large.",
                                               what, content<uint64_t>(from)));
    case Type::DOUBLE:
      return Value::of(content<double>(from));
    case Type::STRING:
      return heap.text(std::string(content<std::string_view>(from)));
    case Type::ARRAY: {
      std::vector<Value> items;
      for (const Element item : content<simdjson::dom::array>(from)) {
        BOWLINE_TRY_ASSIGN(items.emplace_back(), value_of(heap, item, what));
      }
      return heap.list(std::move(items));
    }
    case Type::OBJECT: {
      std::vector<Pair> pairs;
      std::unordered_map<std::string_view, size_t> places;
      for (const auto& [key, item] : content<simdjson::dom::object>(from)) {
        BOWLINE_TRY_ASSIGN(const Value value, value_of(heap, item, what));
        if (const auto [same, is_new] = places.emplace(key, pairs.size()); !is_new) {
          pairs[same->second].second = value;
        } else {
          BOWLINE_TRY_ASSIGN(const Value name, heap.text(std::string(key)));
          pairs.emplace_back(name, value);
        }
      }
      return heap.dict(std::move(pairs));
    }
  }
  return Value::none();
}

}  // namespace

Result<Value> value_of_json(Heap& heap, std::string_view text, std::string_view what) {
  simdjson::dom::parser parser;
  Element document;
  const simdjson::error_code error = parser.parse(text.data(), text.size()).get(document);
  BOWLINE_REQUIRE(error == simdjson::SUCCESS, "The {} are not valid JSON: {}.", what,
                  simdjson::error_message(error));
  return value_of(heap, document, what);
}

}  // namespace bowline::text::chat
