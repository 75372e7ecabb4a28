#include <algorithm>

#include "core/rules.h"
#include "generated/attribute_fields.h"
#include "model/verify_parts.h"

namespace bowline::detail::model {

Status Check::spend(uint64_t bytes) {
  BOWLINE_REQUIRE(bytes <= content_left,
                  "The tables hold more text and lists than they have bytes: they share content.");
  content_left -= bytes;
  return {};
}

Status check_name(Check& check, const flatbuffers::String* name, std::string_view what) {
  BOWLINE_TRY(check.spend(count_of(name)));
  return bowline::check_name(text_of(name), what);
}

Status check_optional_name(Check& check, const flatbuffers::String* name, std::string_view what) {
  return count_of(name) == 0 ? Status() : check_name(check, name, what);
}

Status check_text(Check& check, const flatbuffers::String* text, std::string_view what) {
  BOWLINE_TRY(check.spend(count_of(text)));
  return bowline::check_text(text_of(text), what);
}

Status check_new_name(Check& check, std::unordered_set<std::string_view>& names,
                      const flatbuffers::String* name, std::string_view what) {
  BOWLINE_TRY(check_name(check, name, what));
  BOWLINE_REQUIRE(names.insert(text_of(name)).second, "{} has the name \"{}\", which is taken.",
                  what, text_of(name));
  return {};
}

Result<Shape> check_shape(Check& check, const flatbuffers::Vector<int64_t>* dims) {
  BOWLINE_TRY(spend(check, dims));
  const auto all = dims == nullptr ? std::span<const int64_t>()
                                   : std::span<const int64_t>(dims->data(), dims->size());
  BOWLINE_TRY_ASSIGN(const Shape shape, Shape::checked(all));
  int64_t product = 1;
  for (const int64_t d : shape.dims()) {
    BOWLINE_REQUIRE(
        checked_mul(product, std::max<int64_t>(d, 1), product) && product <= kMaxElements,
        "The dims of {} multiply to more than {}.", shape, kMaxElements);
  }
  return shape;
}

Status check_features(Check& check) {
  for (uint32_t i = 0; i < count_of(check.model.features()); ++i) {
    const auto* name = check.model.features()->Get(i);
    BOWLINE_TRY(check_name(check, name, format("Feature {}", i)));
    BOWLINE_REQUIRE_CODE(
        std::ranges::find(kAttributeFeatures, text_of(name)) != kAttributeFeatures.end(),
        Code::bad_file, "The file needs the feature \"{}\", which this library does not have.",
        text_of(name));
  }
  return {};
}

Status check_dims(Check& check) {
  for (uint32_t i = 0; i < count_of(check.model.dims()); ++i) {
    const file::NamedDim& dim = *check.model.dims()->Get(i);
    BOWLINE_TRY(check_new_name(check, check.dims, dim.name(), format("Dim {}", i)));
    BOWLINE_REQUIRE(dim.kind() <= file::DimKind::MAX, "Dim \"{}\" has the unknown kind {}.",
                    text_of(dim.name()), static_cast<int>(dim.kind()));
    BOWLINE_TRY(check_limits(text_of(dim.name()), dim.min(), dim.max()));
  }
  return {};
}

}  // namespace bowline::detail::model
