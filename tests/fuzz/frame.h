// The input of the targets: tables and data of a model file, without parts that random bytes cannot
// pass (header, padding, trailer). Two bytes split the input into tables and data.
#pragma once

#include "model/sample_file.h"

namespace bowline::test {

struct Frame {
  std::vector<uint8_t> tables;
  Bytes data;  // size is a multiple of kRangeAlignment

  static Frame read(std::span<const uint8_t> input) {
    Frame out;
    if (input.size() < 2) {
      return out;
    }
    const size_t tables = std::min<size_t>(input[0] | input[1] << 8, input.size() - 2);
    out.tables.assign(input.begin() + 2, input.begin() + 2 + static_cast<std::ptrdiff_t>(tables));
    const auto data = std::as_bytes(input.subspan(2 + tables));
    out.data.assign(data.begin(), data.end());
    out.data.resize(round_up(out.data.size(), model::kRangeAlignment));
    return out;
  }

  // Empty if the frame does not fit.
  std::vector<uint8_t> write() const {
    std::vector<uint8_t> out;
    if (tables.size() <= UINT16_MAX) {
      out = {static_cast<uint8_t>(tables.size()), static_cast<uint8_t>(tables.size() >> 8)};
      out.insert(out.end(), tables.begin(), tables.end());
      const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
      out.insert(out.end(), bytes, bytes + data.size());
    }
    return out;
  }

  // Returns the file with a valid header and trailer.
  Bytes file() const {
    Sample sample;
    sample.data = data;
    return sample.assemble(tables);
  }
};

}  // namespace bowline::test
