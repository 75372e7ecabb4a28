// Writes a model file: tables, payloads, trailer. Internal to model/ and to tests that craft files.
#pragma once

#include <functional>
#include <vector>

#include "base/atomic_file.h"
#include "generated/model_generated.h"
#include "model/assemble.h"
#include "model/layout.h"

namespace bowline::detail::model {

// The bytes of one range. They are asked for twice, for the checksum and to be written, each time
// in runs of at most kRunBytes from the first byte on; both answers are equal.
struct Payload {
  // The range of the tree that names these bytes; the writer fills it in.
  file::RangeT* range = nullptr;
  uint64_t length = 0;
  // Such a run, in memory of the provider or in `scratch`.
  std::function<Result<std::span<const std::byte>>(uint64_t first, uint64_t count,
                                                   std::vector<std::byte>& scratch)>
      bytes;
};

// Writes `tables` and the payloads, in this order, to `path`: atomically, and with the same bytes
// for the same content. The file is verified and shown to `acceptance` before it takes its place.
// Errors  io_error: it cannot be written; what was there before is untouched. bad_argument: it
//         would be refused, with
// the reason. Those of the providers.
Status write_file(const std::string& path, file::ModelT& tables, std::span<const Payload> payloads,
                  const Acceptance& acceptance, FileSystem& files = real_file_system());

// The same bytes in memory.
Result<std::vector<std::byte>> write_bytes(file::ModelT& tables, std::span<const Payload> payloads);

}  // namespace bowline::detail::model
