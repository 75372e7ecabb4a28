#include "base/detail.h"
#include "bowline.h"
#include "model/layout.h"

namespace bowline {

std::string_view name_of(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::bad_argument:
      return "bad_argument";
    case Code::bad_file:
      return "bad_file";
    case Code::index_out_of_range:
      return "index_out_of_range";
    case Code::unsupported:
      return "unsupported";
    case Code::non_finite:
      return "non_finite";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::io_error:
      return "io_error";
    case Code::device_lost:
      return "device_lost";
    case Code::device_poisoned:
      return "device_poisoned";
    case Code::over_budget:
      return "over_budget";
    case Code::cancelled:
      return "cancelled";
    case Code::internal:
      return "internal";
  }
  return "internal";
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
