#include "core/attributes.h"

#include <cmath>
#include <concepts>
#include <limits>
#include <utility>

#include "base/nearest.h"
#include "core/rules.h"
#include "generated/attribute_fields.h"

namespace bowline {
namespace {

template <class T>
concept Number = std::is_arithmetic_v<T> && !
std::same_as<T, bool>;
template <class T>
concept Enum = std::is_enum_v<T>;

// ----------------------------------------------------------------------------------------- to text

class Text {
 public:
  Text(Settings& out, std::span<const AttributeDim> dims) : out_(out), dims_(dims) {}

  template <class V>
  Status operator()(const AttributeField& field, const V& value) {
    name_ = field.name;
    text_.clear();
    append(value, 0);
    out_.emplace_back(name_, text_);
    return {};
  }
  // The listing of the graph prints them.
  Status operator()(const AttributeField&,
                    const flatbuffers::Vector<flatbuffers::Offset<file::ParameterList>>*) {
    return {};
  }

 private:
  template <class V>
    requires Number<V> || std::same_as<V, bool>
  void append(V value, uint32_t index) {
    const auto named = std::ranges::find_if(
        dims_, [&](const AttributeDim& d) { return d.attribute == name_ && d.index == index; });
    if (named != dims_.end()) {
      text_ += named->dim;
    } else {
      append_text(text_, value);
    }
  }
  template <Enum E>
  void append(E value, uint32_t) {
    text_ += EnumNames<E>::values[static_cast<size_t>(value)];
  }
  void append(const flatbuffers::String* text, uint32_t) { text_ += text->string_view(); }
  template <class T>
  void append(const flatbuffers::Vector<T>* list, uint32_t) {
    text_ += '[';
    for (uint32_t i = 0; i < list->size(); ++i) {
      text_ += i > 0 ? "," : "";
      append(list->Get(i), i);
    }
    text_ += ']';
  }

  Settings& out_;
  std::span<const AttributeDim> dims_;
  std::string_view name_;
  std::string text_;
};

// ------------------------------------------------------------------------------------- from values

Status wrong_kind(std::string_view name) {
  return Status(Code::bad_argument, format("Attribute {} has a value of the wrong kind.", name));
}

template <Number T>
Result<T> number_of(std::string_view name, const auto& value) {
  if constexpr (std::floating_point<T>) {
    BOWLINE_TRY(check_number(static_cast<double>(value), name));
    return static_cast<T>(value);
  } else {
    int64_t whole = 0;
    if constexpr (std::floating_point<std::remove_cvref_t<decltype(value)>>) {
      constexpr double kWhole =
          9007199254740992.0;  // 2^53: up to it a double holds every whole number
      if (!(std::abs(value) <= kWhole) || std::trunc(value) != value) {
        return wrong_kind(name);
      }
      whole = static_cast<int64_t>(value);
    } else {
      whole = value;
    }
    if (!std::in_range<T>(whole)) {
      return wrong_kind(name);
    }
    if constexpr (std::same_as<T, int64_t>) {
      BOWLINE_TRY(check_size(whole, name));
    }
    return static_cast<T>(whole);
  }
}

// Sets the field that the attribute names.
class Setter {
 public:
  Setter(const Attribute& from, std::vector<AttributeDim>& dims) : from_(from), dims_(dims) {
    // The last value of an attribute counts.
    std::erase_if(dims, [&](const AttributeDim& d) { return d.attribute == from.name; });
  }

  template <class V>
  Status operator()(const AttributeField& field, V& value) {
    if (field.name != from_.name) {
      return {};
    }
    found_ = true;
    most_ = field.most;
    return std::visit([&](const auto& given) { return set(value, given); }, from_.value);
  }
  bool found() const { return found_; }

 private:
  template <class V, class From>
  Status set(V&, const From&) {
    return wrong_kind(from_.name);
  }
  template <class From>
    requires std::is_arithmetic_v<From>
  Status set(bool& field, const From& value) {
    field = value != 0;
    return value == 0 || value == 1 ? Status() : wrong_kind(from_.name);
  }
  template <Number V, class From>
    requires std::is_arithmetic_v<From>
  Status set(V& field, const From& value) {
    BOWLINE_TRY_ASSIGN(field, number_of<V>(from_.name, value));
    return {};
  }
  Status set(int64_t& field, const std::string& dim) {
    field = 0;
    dims_.push_back({std::string(from_.name), 0, dim});
    return {};
  }
  template <Enum E, class From>
    requires std::is_arithmetic_v<From>
  Status set(E& field, const From& value) {
    const Result<uint8_t> number = number_of<uint8_t>(from_.name, value);
    BOWLINE_REQUIRE(number.ok() && number.value() < EnumNames<E>::values.size(),
                    "Attribute {} has the unknown value {}.", from_.name, value);
    field = static_cast<E>(number.value());
    return {};
  }
  template <Enum E>
  Status set(E& field, const std::string& name) {
    const auto at = std::ranges::find(EnumNames<E>::values, name);
    BOWLINE_REQUIRE(at != EnumNames<E>::values.end(), "Attribute {} has the unknown value \"{}\".",
                    from_.name, name);
    field = static_cast<E>(at - EnumNames<E>::values.begin());
    return {};
  }
  Status set(std::string& field, const std::string& text) {
    BOWLINE_TRY(check_text(text, format("Attribute {}", from_.name)));
    field = text;
    return {};
  }
  template <Number V>
  Status set(std::vector<V>& field, const std::vector<GraphDim>& list) {
    BOWLINE_TRY(check_list(list.size(), from_.name, most_));
    field.clear();
    for (const GraphDim& d : list) {
      field.push_back(0);
      if (d.name.empty()) {
        BOWLINE_TRY_ASSIGN(field.back(), number_of<V>(from_.name, d.value));
      } else if (std::same_as<V, int64_t>) {
        dims_.push_back({std::string(from_.name), static_cast<uint32_t>(field.size() - 1), d.name});
      } else {
        return wrong_kind(from_.name);
      }
    }
    return {};
  }
  template <std::floating_point V>
  Status set(std::vector<V>& field, const std::vector<double>& list) {
    BOWLINE_TRY(check_list(list.size(), from_.name, most_));
    field.clear();
    for (const double value : list) {
      BOWLINE_TRY_ASSIGN(field.emplace_back(), number_of<V>(from_.name, value));
    }
    return {};
  }
  Status set(std::vector<std::string>& field, const std::vector<std::string>& list) {
    BOWLINE_TRY(check_list(list.size(), from_.name, most_));
    field.clear();
    for (const std::string& text : list) {
      BOWLINE_TRY(set(field.emplace_back(), text));
    }
    return {};
  }

  const Attribute& from_;
  std::vector<AttributeDim>& dims_;
  size_t most_ = 0;
  bool found_ = false;
};

// Collects the names of all fields.
class Names {
 public:
  template <class V>
  Status operator()(const AttributeField& field, V&) {
    all_.push_back(field.name);
    return {};
  }
  std::span<const std::string_view> all() const { return all_; }

 private:
  std::vector<std::string_view> all_;
};

Status unknown_attribute(std::string_view name, std::span<const std::string_view> all) {
  return Status(Code::bad_argument,
                format("There is no attribute \"{}\".{}", name, suggestion(name, all)));
}

// ----------------------------------------------------------------------------------------- binding

// Writes the value of a dim where the attributes name it.
class Binder {
 public:
  Binder(const AttributeDim& dim, int64_t value) : dim_(dim), value_(value) {}

  Status operator()(const AttributeField& field, int64_t& value) {
    if (field.name == dim_.attribute) {
      value = value_;
    }
    return {};
  }
  Status operator()(const AttributeField& field, std::vector<int64_t>& list) {
    if (field.name == dim_.attribute) {
      list[dim_.index] = value_;
    }
    return {};
  }
  template <class V>
  Status operator()(const AttributeField&, V&) {
    return {};
  }

 private:
  const AttributeDim& dim_;
  int64_t value_;
};

template <class Table>
auto unpacked(const void* table) {
  return std::unique_ptr<typename Table::NativeTableType>(
      static_cast<const Table*>(table)->UnPack());
}

}  // namespace

Settings attributes_list(Op op, const Attributes& attributes) {
  Settings out;
  (void)with_attribute_table(op, [&]<class Table>(AttributeTable<Table>) {
    return visit_fields(attributes.as<Table>(), Text(out, attributes.dims()));
  });
  return out;
}

std::string attributes_text(Op op, const Attributes& attributes) {
  std::string out;
  for (const auto& [name, value] : attributes_list(op, attributes)) {
    out += format("{}{}={}", out.empty() ? "" : " ", name, value);
  }
  return out;
}

Result<Attributes> attributes_from(Op op, std::span<const Attribute> values) {
  return with_attribute_table(op, [&]<class Table>(AttributeTable<Table>) -> Result<Attributes> {
    typename Table::NativeTableType table;
    std::vector<AttributeDim> dims;
    for (const Attribute& a : values) {
      Setter setter(a, dims);
      BOWLINE_TRY(visit_fields(table, setter));
      if (!setter.found()) {
        Names names;
        BOWLINE_TRY(visit_fields(table, names));
        return unknown_attribute(a.name, names.all());
      }
    }
    return Attributes::of(table, std::move(dims));
  });
}

Attributes attributes_copy(Op op, const void* table, std::vector<AttributeDim> dims) {
  return with_attribute_table(op, [&]<class Table>(AttributeTable<Table>) {
    return Attributes::of(*unpacked<Table>(table), std::move(dims));
  });
}

Result<Attributes> attributes_bound(Op op, const Attributes& attributes,
                                    std::span<const BoundDim> dims) {
  if (attributes.dims().empty()) {
    return attributes;
  }
  return with_attribute_table(op, [&]<class Table>(AttributeTable<Table>) -> Result<Attributes> {
    const auto table = unpacked<Table>(attributes.root());
    for (const AttributeDim& named : attributes.dims()) {
      const auto bound = std::ranges::find(dims, named.dim, &BoundDim::name);
      BOWLINE_REQUIRE(bound != dims.end(), "Dim \"{}\" is not bound.", named.dim);
      BOWLINE_TRY(visit_fields(*table, Binder(named, bound->value)));
    }
    return Attributes::of(*table);
  });
}

}  // namespace bowline
