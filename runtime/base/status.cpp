#include "base/status.h"

namespace bowline::detail {

Status failure_of(Code code, std::string_view text, std::span<const FormatArg> args) {
  return Status(code, format_args(text, args));
}

}  // namespace bowline::detail
