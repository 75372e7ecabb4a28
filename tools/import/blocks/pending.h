// Until Model::set_source() and Model::set_asset() are there.
#pragma once

#include "bowline.h"

namespace bowline::import {

inline Status set_source(Model& model, const ParameterInfo& p, const ValueSource& source) {
  uint64_t n = size_of(p.dtype);
  for (const int64_t d : p.shape) {
    n *= static_cast<uint64_t>(d);
  }
  std::vector<std::byte> bytes(n);
  BOWLINE_TRY(source(0, bytes));
  return model.set_value(p.name, {p.name, p.dtype, p.shape, bytes.data()});
}

inline Status set_asset(Model&, std::string_view, std::string_view, std::span<const std::byte>) {
  return {};
}

}  // namespace bowline::import
