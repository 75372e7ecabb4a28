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

// The whole number within the limits that a value is.
Result<int64_t> whole_of(std::string_view name, double value, int64_t least, int64_t most) {
  constexpr double kWhole = 9007199254740992.0;  // 2^53: up to it a double holds every whole number
  if (!(std::abs(value) <= kWhole) || std::trunc(value) != value) {
    return wrong_kind(name);
  }
  const auto whole = static_cast<int64_t>(value);
  return whole >= least && whole <= most ? Result<int64_t>(whole) : wrong_kind(name);
}
Result<int64_t> whole_of(std::string_view name, int64_t value, int64_t least, int64_t most) {
  return value >= least && value <= most ? Result<int64_t>(value) : wrong_kind(name);
}

// Sets the field that the attribute names.
// Sets the field that has the name of an attribute. What depends on the type of the field is as
// small as possible, because there is a copy of it for each operator.
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
    return set(value);
  }
  bool found() const { return found_; }

 private:
  template <class T>
  const T* given() const {
    return std::get_if<T>(&from_.value);
  }

  Result<int64_t> whole(int64_t least, int64_t most) const {
    if (const auto* const value = given<int64_t>()) {
      return whole_of(from_.name, *value, least, most);
    }
    const auto* const value = given<double>();
    return value == nullptr ? wrong_kind(from_.name) : whole_of(from_.name, *value, least, most);
  }
  Result<double> real() const {
    const auto* const whole = given<int64_t>();
    const auto* const real = given<double>();
    if (whole == nullptr && real == nullptr) {
      return wrong_kind(from_.name);
    }
    const double value = whole != nullptr ? static_cast<double>(*whole) : *real;
    BOWLINE_TRY(check_number(value, from_.name));
    return value;
  }
  // The position of the value in the names of an enum.
  Result<size_t> position(std::span<const std::string_view> names) const {
    if (const auto* const name = given<std::string>()) {
      const auto at = std::ranges::find(names, *name);
      BOWLINE_REQUIRE(at != names.end(), "Attribute {} has the unknown value \"{}\".", from_.name,
                      *name);
      return static_cast<size_t>(at - names.begin());
    }
    const Result<int64_t> number = whole(0, std::ssize(names) - 1);
    const auto* const integer = given<int64_t>();
    const auto* const real = given<double>();
    BOWLINE_REQUIRE(number.ok() || integer == nullptr, "Attribute {} has the unknown value {}.",
                    from_.name, *integer);
    BOWLINE_REQUIRE(number.ok() || real == nullptr, "Attribute {} has the unknown value {}.",
                    from_.name, *real);
    BOWLINE_TRY(Status(number.status()));
    return static_cast<size_t>(number.value());
  }
  // The list, if it has no more entries than the field.
  template <class T>
  Result<const std::vector<T>*> list() const {
    const auto* const value = given<std::vector<T>>();
    if (value == nullptr) {
      return wrong_kind(from_.name);
    }
    BOWLINE_TRY(check_list(value->size(), from_.name, most_));
    return value;
  }

  template <class V>
  Status set(V&) {
    return wrong_kind(from_.name);
  }
  Status set(bool& field) {
    BOWLINE_TRY_ASSIGN(const int64_t value, whole(0, 1));
    field = value == 1;
    return {};
  }
  template <Number V>
  Status set(V& field) {
    if constexpr (std::floating_point<V>) {
      BOWLINE_TRY_ASSIGN(const double value, real());
      field = static_cast<V>(value);
    } else {
      using Limits = std::numeric_limits<V>;
      static_assert(sizeof(V) < sizeof(int64_t), "The limits are whole numbers of 64 bits.");
      BOWLINE_TRY_ASSIGN(const int64_t value, whole(Limits::min(), Limits::max()));
      field = static_cast<V>(value);
    }
    return {};
  }
  Status set(int64_t& field) {
    if (const auto* const dim = given<std::string>()) {
      field = 0;
      dims_.push_back({std::string(from_.name), 0, *dim});
      return {};
    }
    BOWLINE_TRY_ASSIGN(field, whole(INT64_MIN, INT64_MAX));
    return check_size(field, from_.name);
  }
  template <Enum E>
  Status set(E& field) {
    BOWLINE_TRY_ASSIGN(const size_t at, position(EnumNames<E>::values));
    field = static_cast<E>(at);
    return {};
  }
  Status set(std::string& field) { return set(field, given<std::string>()); }
  Status set(std::string& field, const std::string* text) const {
    if (text == nullptr) {
      return wrong_kind(from_.name);
    }
    BOWLINE_TRY(check_text(*text, format("Attribute {}", from_.name)));
    field = *text;
    return {};
  }
  Status set(std::vector<int64_t>& field) {
    BOWLINE_TRY_ASSIGN(const auto* const values, list<GraphDim>());
    field.clear();
    for (const GraphDim& d : *values) {
      field.push_back(d.name.empty() ? d.value : 0);
      if (d.name.empty()) {
        BOWLINE_TRY(check_size(d.value, from_.name));
      } else {
        dims_.push_back({std::string(from_.name), static_cast<uint32_t>(field.size() - 1), d.name});
      }
    }
    return {};
  }
  Status set(std::vector<int32_t>& field) {
    BOWLINE_TRY_ASSIGN(const auto* const values, list<GraphDim>());
    field.clear();
    for (const GraphDim& d : *values) {
      if (!d.name.empty()) {
        return wrong_kind(from_.name);
      }
      BOWLINE_TRY_ASSIGN(const int64_t value, whole_of(from_.name, d.value, INT32_MIN, INT32_MAX));
      field.push_back(static_cast<int32_t>(value));
    }
    return {};
  }
  Status set(std::vector<float>& field) {
    field.clear();
    if (given<std::vector<GraphDim>>() != nullptr) {  // whole numbers
      BOWLINE_TRY_ASSIGN(const auto* const values, list<GraphDim>());
      for (const GraphDim& d : *values) {
        if (!d.name.empty()) {
          return wrong_kind(from_.name);
        }
        field.push_back(static_cast<float>(d.value));
      }
      return {};
    }
    BOWLINE_TRY_ASSIGN(const auto* const values, list<double>());
    for (const double value : *values) {
      BOWLINE_TRY(check_number(value, from_.name));
      field.push_back(static_cast<float>(value));
    }
    return {};
  }
  Status set(std::vector<std::string>& field) {
    BOWLINE_TRY_ASSIGN(const auto* const values, list<std::string>());
    field.clear();
    for (const std::string& text : *values) {
      BOWLINE_TRY(set(field.emplace_back(), &text));
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
