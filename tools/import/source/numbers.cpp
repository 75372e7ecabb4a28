#include "source/numbers.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"

namespace bowline::import {

void convert(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to,
             DType to_dtype) {
  const size_t in = size_of(from_dtype), out = size_of(to_dtype);
  for (size_t i = 0; i < to.size() / out; ++i) {
    put_number(number_at(from.data() + i * in, from_dtype), to.data() + i * out, to_dtype);
  }
}

ValueSource converted(ValueSource source, DType from, DType to, uint64_t elements) {
  if (from == to) {
    return source;
  }
  return [source = std::move(source), from, to, elements](uint64_t first,
                                                          std::span<std::byte> out) -> Status {
    constexpr uint64_t kPiece = 16384;  // elements
    const uint64_t in_size = size_of(from), size = size_of(to);
    BOWLINE_REQUIRE(first <= elements * size && out.size() <= elements * size - first,
                    "Reading {} bytes from offset {} exceeds the tensor of {} bytes.", out.size(),
                    first, elements * size);
    std::vector<std::byte> raw(kPiece * in_size), made(kPiece * size);
    for (uint64_t done = 0; done < out.size();) {
      // The range may start and end inside of an element.
      const uint64_t element = (first + done) / size, skip = (first + done) % size;
      const uint64_t n = std::min(kPiece, elements - element);
      BOWLINE_TRY(source(element * in_size, std::span(raw).first(n * in_size)));
      convert(std::span(raw).first(n * in_size), from, std::span(made).first(n * size), to);
      const uint64_t bytes = std::min<uint64_t>(n * size - skip, out.size() - done);
      std::memcpy(out.data() + done, made.data() + skip, bytes);
      done += bytes;
    }
    return {};
  };
}

}  // namespace bowline::import
