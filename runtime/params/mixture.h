// Which encoding quantize() gives each storage.
#pragma once

#include "params/table.h"

namespace bowline::detail::params {

// One encoding for all storages, or a mixture that depends on the names of their parameters.
class EncodingChoice {
 public:
  // The text of an encoding, or "q4_k_m".
  // Errors  bad_argument: the text is neither.
  static Result<EncodingChoice> parse(std::string_view text);

  Encoding of(const Table& table, uint32_t tie) const;

 private:
  Encoding encoding_;
  bool is_mixture_ = false;
};

}  // namespace bowline::detail::params
