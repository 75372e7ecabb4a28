// Arbitrary bytes as a tokenizer.json or as the metadata of a GGUF file, and arbitrary bytes as
// text. A tokenizer is rejected with a message, or it encodes and decodes: ids are in the
// vocabulary, offsets in the text, and decoded text is UTF-8.
//
// Input: a byte (odd: GGUF), two bytes with the length of the file, the file, the text.
#include <bowline_text.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/utf8.h"

namespace {

using namespace bowline;

bool reached_the_end = false;

void require(bool condition) {
  if (!condition) {
    __builtin_trap();
  }
}

bool is_utf8(std::string_view text) {
  while (!text.empty() && utf8_length(text) > 0) {
    text.remove_prefix(utf8_length(text));
  }
  return text.empty();
}

// An error has a reason, and is not a fault of the library.
bool succeeded(const Status& status) {
  require(status.ok() || (status.code() != Code::internal && !status.message().empty()));
  return status.ok();
}

void use(const text::Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {true, false}) {
    const auto made = tokenizer.encode(text, {.special_tokens = special, .parse_special = special});
    if (!succeeded(made.status())) {
      continue;
    }
    const text::Encoding& e = made.value();
    require(e.offsets.size() == e.ids.size() && e.special.size() == e.ids.size());
    for (const text::Offset at : e.offsets) {
      require(at.begin <= at.end && at.end <= text.size());
    }
    const auto decoded = tokenizer.decode(e.ids, false);
    text::Decoder stream = tokenizer.stream(false);
    for (const int32_t id : e.ids) {
      const auto part = stream.next(id);
      require(!succeeded(part.status()) || is_utf8(part.value()));
    }
    require(is_utf8(stream.flush()));
    if (succeeded(decoded.status())) {
      require(is_utf8(decoded.value()));
      reached_the_end = true;
    }
  }
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) {
    return 0;
  }
  const std::string_view rest(reinterpret_cast<const char*>(data) + 3, size - 3);
  const size_t length = std::min<size_t>(data[1] | data[2] << 8, rest.size());
  const auto tokenizer =
      text::Tokenizer::from_bytes((data[0] & 1) != 0 ? "application/vnd.gguf.tokenizer"
                                                     : "application/vnd.huggingface.tokenizer+json",
                                  std::as_bytes(std::span(rest.substr(0, length))));
  if (succeeded(tokenizer.status())) {
    use(tokenizer.value(), rest.substr(length));
  }
  return 0;
}
