// Converts between Encoding and its FlatBuffers table.
#pragma once

#include <memory>
#include <optional>

#include "core/encoding.h"
#include "generated/model_generated.h"

namespace bowline::detail::model {

// Returns the encoding of a table: plain if `from` is null, nullopt if its name is unknown. Does
// not check that the encoding fits a storage.
inline std::optional<Encoding> encoding_of(const file::Encoding* from) {
  if (from == nullptr) {
    return Encoding();
  }
  const EncodingForm* form =
      from->name() == nullptr ? nullptr : find_encoding_form(from->name()->string_view());
  if (form == nullptr) {
    return std::nullopt;
  }
  return Encoding{form, from->block(), from->axis(), static_cast<DType>(from->scale_dtype()),
                  from->symmetric()};
}

// Returns null for the plain encoding.
inline std::unique_ptr<file::EncodingT> table_of(const Encoding& encoding) {
  if (encoding.is_plain()) {
    return nullptr;
  }
  auto out = std::make_unique<file::EncodingT>();
  out->name = encoding.name();
  out->block = encoding.block;
  out->axis = encoding.axis;
  out->scale_dtype = static_cast<file::DType>(encoding.scale_type);
  out->symmetric = encoding.symmetric;
  return out;
}

}  // namespace bowline::detail::model
