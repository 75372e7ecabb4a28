#include "model/verify_attributes.h"

#include "generated/attribute_fields.h"

namespace bowline::detail::model {
namespace {

template <class T>
  requires std::is_arithmetic_v<T>
Status check_value(T value, std::string_view name) {
  if constexpr (std::is_same_v<T, int64_t>) {
    return check_size(value, name);
  } else if constexpr (std::is_floating_point_v<T>) {
    return check_number(value, name);
  }
  return {};
}

// Checks a field of each kind that core/attributes.h lists.
class FieldCheck {
 public:
  explicit FieldCheck(Check& check) : check_(check) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  Status operator()(const AttributeField& field, T value) {
    BOWLINE_TRY(check_value(value, field.name));
    return check_feature(field, static_cast<double>(value) != field.absent);
  }
  template <class E>
    requires std::is_enum_v<E>
  Status operator()(const AttributeField& field, E value) {
    BOWLINE_REQUIRE(static_cast<size_t>(value) < EnumNames<E>::values.size(),
                    "The attribute {} has the unknown value {}.", field.name,
                    static_cast<int>(value));
    return {};
  }
  Status operator()(const AttributeField& field, const flatbuffers::String* text) {
    return check_text(check_, text, format("The attribute {}", field.name));
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  Status operator()(const AttributeField& field, const flatbuffers::Vector<T>* list) {
    BOWLINE_TRY(check_list(count_of(list), field.name, field.most));
    BOWLINE_TRY(spend(check_, list));
    for (uint32_t i = 0; i < count_of(list); ++i) {
      BOWLINE_TRY(check_value(list->Get(i), field.name));
    }
    return check_feature(field, count_of(list) > 0);
  }
  Status operator()(const AttributeField& field,
                    const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* list) {
    BOWLINE_TRY(check_list(count_of(list), field.name, field.most));
    for (uint32_t i = 0; i < count_of(list); ++i) {
      BOWLINE_TRY((*this)(field, list->Get(i)));
    }
    return {};
  }
  // Parameter lists belong to Repeat, which is checked with its body.
  Status operator()(const AttributeField&,
                    const flatbuffers::Vector<flatbuffers::Offset<file::ParameterList>>*) {
    return {};
  }

 private:
  Status check_feature(const AttributeField& field, bool is_used) const {
    BOWLINE_REQUIRE(!field.is_demanded || !is_used || has_feature(field.feature),
                    "The attribute {} needs the feature \"{}\", which the file does not name.",
                    field.name, field.feature);
    return {};
  }
  bool has_feature(std::string_view feature) const {
    for (uint32_t i = 0; i < count_of(check_.model.features()); ++i) {
      if (text_of(check_.model.features()->Get(i)) == feature) {
        return true;
      }
    }
    return false;
  }

  Check& check_;
};

// Finds the size that a named dim replaces.
class SizeAt {
 public:
  SizeAt(std::string_view attribute, uint32_t index) : attribute_(attribute), index_(index) {}

  Status operator()(const AttributeField& field, int64_t value) {
    take(field.name == attribute_ && index_ == 0, value);
    return {};
  }
  Status operator()(const AttributeField& field, const flatbuffers::Vector<int64_t>* list) {
    if (field.name == attribute_ && index_ < count_of(list)) {
      take(true, list->Get(index_));
    }
    return {};
  }
  template <class V>
  Status operator()(const AttributeField&, const V&) {
    return {};
  }
  bool found() const { return found_; }
  int64_t value() const { return value_; }

 private:
  void take(bool here, int64_t value) {
    if (here) {
      found_ = true;
      value_ = value;
    }
  }
  std::string_view attribute_;
  uint32_t index_;
  bool found_ = false;
  int64_t value_ = 0;
};

template <class Table>
Status check_named_sizes(Check& check, const file::Node& node, const Table& table) {
  std::unordered_set<std::string> named;
  for (uint32_t i = 0; i < count_of(node.attribute_dims()); ++i) {
    const file::AttributeDim& dim = *node.attribute_dims()->Get(i);
    const std::string_view attribute = text_of(dim.attribute());
    BOWLINE_TRY(check_name(check, dim.attribute(), "An attribute"));
    BOWLINE_TRY(check_dim(check, 0, dim.dim(), 0));
    SizeAt size(attribute, dim.index());
    BOWLINE_TRY(visit_fields(table, size));
    BOWLINE_REQUIRE(
        size.found() && count_of(dim.dim()) > 0,
        "Dim {} \"{}\" of the attributes names no size: attribute {} has no size at index {}.", i,
        text_of(dim.dim()), attribute, dim.index());
    BOWLINE_REQUIRE(size.value() == 0,
                    "The attribute {} has the size {} where it names the dim \"{}\".", attribute,
                    size.value(), text_of(dim.dim()));
    BOWLINE_REQUIRE(named.insert(format("{} {}", attribute, dim.index())).second,
                    "The attribute {} names two dims at index {}.", attribute, dim.index());
  }
  return {};
}

}  // namespace

Status check_dim(Check& check, int64_t value, const flatbuffers::String* name, int64_t lowest) {
  if (count_of(name) == 0) {
    return bowline::check_dim(value, lowest);
  }
  BOWLINE_TRY(check_name(check, name, "A dim"));
  BOWLINE_REQUIRE(check.dims.contains(text_of(name)), "The dim \"{}\" is not one of the model.",
                  text_of(name));
  return {};
}

Status check_attributes(Check& check, const file::Node& node) {
  const auto op = static_cast<Op>(node.op_type());
  return with_attribute_table(op, [&]<class Table>(AttributeTable<Table>) {
    const Table& table = *static_cast<const Table*>(node.op());
    BOWLINE_TRY(visit_fields(table, FieldCheck(check)));
    return check_named_sizes(check, node, table);
  });
}

}  // namespace bowline::detail::model
