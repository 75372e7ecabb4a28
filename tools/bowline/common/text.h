// Training text: reads and checks files, and cuts them into windows in an order without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// Reads a UTF-8 text file of at most kMostTextBytes.
// Errors  bad_file: the file is missing, not a regular file, empty, too large, binary or not UTF-8
//         ("file:line:column: ..."). Unless `as_text`, also if it holds JSON, JSON lines or a
//         table.
inline constexpr uint64_t kMostTextBytes = uint64_t{4} << 30;
Result<std::string> read_text(const std::string& path, bool as_text);

// Errors  bad_file: the text has a NUL byte or is not valid UTF-8 ("what:line:column: ...").
Status check_text(const std::string& what, const std::string& text);

// True if each of the first lines is a JSON object.
bool looks_like_json_lines(std::string_view text);

// Returns the start of the held-out part of a text: the first line after 90 percent of the bytes.
size_t held_out_begin(std::string_view text);

// A view of the units that windows consist of: the bytes of a text, or its tokens.
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

// Windows of seq + 1 units of a text. An epoch has every window once. The order and the offset of
// the first window depend only on (seed, epoch), so a checkpoint only stores the sample number.
class Windows {
 public:
  Windows(size_t units, int64_t seq, uint64_t seed) : units_(units), seq_(seq), seed_(seed) {}

  static bool fits(size_t units, int64_t seq) { return units > static_cast<size_t>(seq); }
  uint64_t per_epoch() const;
  // Returns the first unit of window `sample`, counted from the start of the run.
  size_t begin(uint64_t sample) const;

 private:
  size_t units_;
  int64_t seq_;
  uint64_t seed_;
};

// Returns element `index` of a permutation of [0, count) with the key (seed, epoch): a Feistel
// network with cycle walking.
uint64_t permuted(uint64_t index, uint64_t count, uint64_t seed, uint64_t epoch);

// Inputs "tokens" and "labels", i32 [batch, seq], of the entry point "loss".
class Batch {
 public:
  Batch(int64_t batch, int64_t seq);

  // Sets row `row` to the window at `begin`. The first `skipped` labels and labels after the end of
  // the text are ignored. Returns the number of other labels.
  int64_t set_row(int64_t row, const Units& text, size_t begin, int64_t skipped = 0);
  // Sets a row in which all labels are ignored.
  void clear_row(int64_t row);
  // Sets a row from seq + 1 token ids.
  void set_row(int64_t row, const int32_t* tokens);
  std::span<const Tensor> inputs() const { return tensors_; }

 private:
  int64_t seq_;
  int64_t shape_[2];
  std::vector<int32_t> tokens_;
  std::vector<int32_t> labels_;
  std::vector<Tensor> tensors_;
};

// Label of positions without a prediction: the default ignore_index of CrossEntropy.
inline constexpr int32_t kIgnored = -100;

}  // namespace bowline::command
