// Arbitrary bytes as a model file: rejected with a status, or verified, loaded, listed and read.
// Never a crash.
//
// Random bytes do not pass the header. So the input is the tables and the data, and a matching
// header and trailer are added, unless the first byte asks for the raw input.
#include "fuzz/frame.h"
#include "graph/load.h"

namespace {

using namespace bowline;

bool reached_the_end = false;

void use(const std::shared_ptr<const model::VerifiedFile>& file) {
  (void)file->verify_all().ok();
  const auto state = graph::load_model(file);
  if (!state.ok()) {
    return;
  }
  const params::Table& table = state.value()->table;
  const std::string listings = table.list_parameters() + table.list_storages() + table.list_ties();
  for (const params::Storage& s : table.storages) {
    if (s.home.valid()) {
      (void)params::read_bytes(s).ok();
    }
  }
  reached_the_end = true;
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) {
    return 0;
  }
  test::Bytes bytes;
  if (data[0] == 'B') {
    const auto all = std::as_bytes(std::span(data, size));
    bytes.assign(all.begin(), all.end());
  } else {
    bytes = test::Frame::read({data, size}).file();
  }
  const auto file = test::verify(std::move(bytes));
  if (file.ok()) {
    use(file.value());
  } else if (file.status().code() != Code::bad_file && file.status().code() != Code::io_error) {
    __builtin_trap();
  }
  return 0;
}
