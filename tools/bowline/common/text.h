// Training text: read whole, checked, cut into windows in an order that needs no state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// A UTF-8 text file of at most kMostTextBytes. Errors  bad_file: it is missing, no regular file, empty, too large, binary
// or not UTF-8 (as "file:line:column: ..."), or, unless `as_text`, JSON lines.
inline constexpr uint64_t kMostTextBytes = uint64_t{4} << 30;
Result<std::string> read_text(const std::string& path, bool as_text);

// Each of the first lines is a JSON object.
bool looks_like_json_lines(std::string_view text);

// Where the held-out part begins when it has no file of its own: the first line after 90 percent.
size_t held_out_begin(std::string_view text);

// Windows of seq + 1 bytes of a text. An epoch shows every window once; its order and the offset of
// its first window follow from (seed, epoch) alone, so a cursor is all that a checkpoint needs.
class Windows {
 public:
  Windows(size_t text_bytes, int64_t seq, uint64_t seed)
      : bytes_(text_bytes), seq_(seq), seed_(seed) {}

  static bool fits(size_t text_bytes, int64_t seq) { return text_bytes > static_cast<size_t>(seq); }
  uint64_t per_epoch() const;
  // First byte of the `sample`-th window since the run began.
  size_t begin(uint64_t sample) const;

 private:
  size_t bytes_;
  int64_t seq_;
  uint64_t seed_;
};

// A permutation of [0, count) by its key: a Feistel network with cycle walking.
uint64_t permuted(uint64_t index, uint64_t count, uint64_t seed, uint64_t epoch);

// Inputs "tokens" and "labels", i32 [batch, seq], of the entry point "loss".
class Batch {
 public:
  Batch(int64_t batch, int64_t seq);

  // Row `row`: the window at `begin`. Of its labels the first `skipped` are not counted, nor what
  // lies past the end of the text. Returns how many are counted.
  int64_t set_row(int64_t row, std::string_view text, size_t begin, int64_t skipped = 0);
  // A row of which no label is counted.
  void clear_row(int64_t row);
  // From a row of seq + 1 token ids.
  void set_row(int64_t row, const int32_t* tokens);
  std::span<const Tensor> inputs() const { return tensors_; }

 private:
  int64_t seq_;
  int64_t shape_[2];
  std::vector<int32_t> tokens_;
  std::vector<int32_t> labels_;
  std::vector<Tensor> tensors_;
};

// Losses are means over bytes: in nats as the entry point "loss" returns them, in bits per byte wherever they are shown.
double bits_of_nats(double nats);

// How a text is evaluated.
struct Evaluation {
  int64_t batch = 8;
  int64_t seq = 256;
  int64_t stride = 256;      // bytes between windows
  uint64_t max_batches = 0;  // of a longer text the windows are spread evenly; 0: no limit
};

// The loss of one batch in nats.
using BatchLoss = std::function<Result<float>(std::span<const Tensor> batch)>;

// Mean loss over a text in bits per byte, each byte counted once. Errors  cancelled: a signal came.
Result<double> bits_per_byte(const BatchLoss& loss, std::string_view text, const Evaluation& how);

}  // namespace bowline::command
