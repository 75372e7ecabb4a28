// Training text: read whole, checked, cut into windows in an order that needs no state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// A UTF-8 text file of at most kMostTextBytes. Errors  bad_file: it is missing, no regular file,
// empty, too large, binary
// or not UTF-8 (as "file:line:column: ..."), or, unless `as_text`, JSON lines.
inline constexpr uint64_t kMostTextBytes = uint64_t{4} << 30;
Result<std::string> read_text(const std::string& path, bool as_text);

// UTF-8 without NUL. Errors  bad_file: "what:line:column: ...".
Status check_text(const std::string& what, const std::string& text);

// Each of the first lines is a JSON object.
bool looks_like_json_lines(std::string_view text);

// Where the held-out part begins when it has no file of its own: the first line after 90 percent.
size_t held_out_begin(std::string_view text);

// What windows are cut from, not owned: the bytes of a text, or its tokens.
class Units {
 public:
  Units() = default;
  explicit Units(std::string_view bytes) : bytes_(bytes.data()), size_(bytes.size()) {}
  explicit Units(std::span<const int32_t> tokens) : tokens_(tokens.data()), size_(tokens.size()) {}

  size_t size() const { return size_; }
  int32_t operator[](size_t i) const {
    return tokens_ != nullptr ? tokens_[i] : static_cast<unsigned char>(bytes_[i]);
  }

 private:
  const char* bytes_ = nullptr;
  const int32_t* tokens_ = nullptr;
  size_t size_ = 0;
};

// Windows of seq + 1 units of a text. An epoch shows every window once; its order and the offset of
// its first window follow from (seed, epoch) alone, so a cursor is all that a checkpoint needs.
class Windows {
 public:
  Windows(size_t units, int64_t seq, uint64_t seed) : units_(units), seq_(seq), seed_(seed) {}

  static bool fits(size_t units, int64_t seq) { return units > static_cast<size_t>(seq); }
  uint64_t per_epoch() const;
  // First unit of the `sample`-th window since the run began.
  size_t begin(uint64_t sample) const;

 private:
  size_t units_;
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
  int64_t set_row(int64_t row, const Units& text, size_t begin, int64_t skipped = 0);
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

// What the labels of an entry point "loss" have where no token is to be predicted: CrossEntropy's
// default ignore_index.
inline constexpr int32_t kIgnored = -100;

// Losses of bytes are in nats as the entry point "loss" returns them, in bits per byte wherever
// they are shown.
double bits_of_nats(double nats);

// How a text is evaluated.
struct Evaluation {
  int64_t batch = 8;
  int64_t seq = 256;
  int64_t stride = 256;      // units between windows
  uint64_t max_batches = 0;  // of a longer text the windows are spread evenly; 0: no limit
};

// The loss of one batch in nats.
using BatchLoss = std::function<Result<float>(std::span<const Tensor> batch)>;

// Mean loss over a text in nats, each unit counted once. Errors  cancelled: a signal came.
Result<double> mean_nats(const BatchLoss& loss, const Units& text, const Evaluation& how);

}  // namespace bowline::command
