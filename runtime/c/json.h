// Values of the public headers as JSON. The build generates the conversions of structs and enums.
#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bowline.h"
#include "bowline/external.h"
#ifdef BOWLINE_C_TEXT
#include "bowline_text.h"
#endif
#ifdef BOWLINE_C_IMPORT
#include "bowline_import.h"
#endif

namespace bowline::c {

using Json = nlohmann::ordered_json;

template <class T>
struct ToJson;

template <class T>
Json json_of(const T& value) {
  return ToJson<T>::of(value);
}

template <class T>
  requires(std::is_arithmetic_v<T> || std::convertible_to<T, std::string_view>)
struct ToJson<T> {
  static Json of(const T& v) { return v; }
};

template <class T>
struct ToJson<std::optional<T>> {
  static Json of(const std::optional<T>& v) { return v.has_value() ? json_of(*v) : Json(); }
};

template <class... T>
struct ToJson<std::variant<T...>> {
  static Json of(const std::variant<T...>& v) {
    return std::visit([](const auto& value) { return json_of(value); }, v);
  }
};

template <class A, class B>
struct ToJson<std::pair<A, B>> {
  static Json of(const std::pair<A, B>& v) {
    return Json::array({json_of(v.first), json_of(v.second)});
  }
};

template <class List>
Json list_of(const List& list) {
  Json out = Json::array();
  for (const auto& item : list) {
    out.push_back(json_of(item));
  }
  return out;
}
template <class T>
struct ToJson<std::vector<T>> {
  static Json of(const std::vector<T>& v) { return list_of(v); }
};
template <class T>
struct ToJson<std::span<const T>> {
  static Json of(std::span<const T> v) { return list_of(v); }
};
template <>
struct ToJson<TensorShape> {
  static Json of(const TensorShape& v) { return list_of(v); }
};
template <>
struct ToJson<Settings> {
  static Json of(const Settings& v) {
    Json out = Json::object();
    for (const auto& [name, value] : v) {
      out[name] = value;
    }
    return out;
  }
};

// A size, or the name of a dimension.
template <std::same_as<GraphDim> T>
struct ToJson<T> {
  static Json of(const T& v) { return v.name.empty() ? Json(v.value) : Json(v.name); }
};
template <std::same_as<DType> T>
struct ToJson<T> {
  static Json of(T v) { return name_of(v); }
};

#include "generated/json.inc"

// Bytes that are not UTF-8 become U+FFFD.
inline std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace bowline::c
