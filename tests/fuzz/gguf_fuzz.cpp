// Arbitrary bytes as a GGUF file: rejected with a status, or a source with readable tensors. Never
// a crash, and no allocation beyond a small multiple of the file size.
#include <algorithm>
#include <string_view>

#include "gguf/read.h"

namespace {

using namespace bowline;

bool reached_the_end = false;

bool succeeded(const Status& status) {
  if (status.code() == Code::internal) {
    __builtin_trap();
  }
  return status.ok();
}

// Reads byte ranges that start and end inside of values and blocks.
bool reads(const import::SourceTensor& tensor) {
  std::vector<std::byte> run(std::min<uint64_t>(tensor.bytes, 1021));
  for (uint64_t at = 0; at < tensor.bytes; at += run.size()) {
    const uint64_t n = std::min<uint64_t>(run.size(), tensor.bytes - at);
    if (!succeeded(tensor.read(at, std::span(run).first(n)))) {
      return false;
    }
  }
  return true;
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto source = gguf::read(std::as_bytes(std::span(data, size)), "input");
  if (!succeeded(source.status())) {
    return 0;
  }
  for (const import::SourceTensor& tensor : source.value().tensors) {
    if (!reads(tensor)) {  // an accepted tensor must be readable
      __builtin_trap();
    }
    reached_the_end = true;
  }
  return 0;
}
