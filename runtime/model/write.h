// Writes a model file: tables, payloads, trailer. Internal to model/ and to tests that craft files.
#pragma once

#include <functional>
#include <vector>

#include "base/atomic_file.h"
#include "generated/model_generated.h"
#include "model/assemble.h"
#include "model/layout.h"

namespace bowline::detail::model {

// The bytes of one range. The writer reads them twice, for the checksum and for the file, each time
// from the first byte on in runs of at most kRunBytes. Both times must return the same bytes.
struct Payload {
  // The Range table of these bytes. The writer fills it in.
  file::RangeT* range = nullptr;
  uint64_t length = 0;
  // Returns a run of bytes, in memory of the provider or in `scratch`.
  std::function<Result<std::span<const std::byte>>(uint64_t first, uint64_t count,
                                                   std::vector<std::byte>& scratch)>
      bytes;
};

// Writes `tables` and the payloads, in this order, to `path`, atomically. The same content is
// always written as the same bytes. The new file is verified and passed to `acceptance` before it
// replaces the old one.
// Errors  io_error: the file cannot be written. The old file is unchanged.
//         bad_argument: the file would be refused. The message has the reason.
//         Errors of the payloads.
Status write_file(const std::string& path, file::ModelT& tables, std::span<const Payload> payloads,
                  const Acceptance& acceptance, FileSystem& files = real_file_system());

// Returns the same bytes in memory.
Result<std::vector<std::byte>> write_bytes(file::ModelT& tables, std::span<const Payload> payloads);

}  // namespace bowline::detail::model
