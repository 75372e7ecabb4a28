#include <algorithm>

#include "base/detail.h"
#include "bowline.h"
#include "model/layout.h"

namespace bowline {

std::string_view name_of(Code code) {
  constexpr std::string_view names[] = {
      "ok",          "bad_argument", "bad_file",        "index_out_of_range",
      "unsupported", "non_finite",   "out_of_memory",   "over_budget",
      "io_error",    "device_lost",  "device_poisoned", "cancelled",
      "internal"};
  static_assert(std::size(names) == static_cast<size_t>(Code::internal) + 1);
  return names[std::min(static_cast<size_t>(code), static_cast<size_t>(Code::internal))];
}

std::string_view name_of(StorageRole role) {
  constexpr std::string_view names[] = {"weight",   "constant", "adapter_a",         "adapter_b",
                                        "kv_cache", "gradient", "running_statistic", "moment",
                                        "master"};
  return names[static_cast<size_t>(role)];
}

std::string_view version() {
  static_assert(model::kFormatMajor == 1);
  return BOWLINE_VERSION " (format 1)";
}

}  // namespace bowline
