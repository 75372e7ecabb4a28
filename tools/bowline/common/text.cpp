#include "common/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/status.h"
#include "base/utf8.h"
#include "common/files.h"

namespace bowline::command {
namespace {

// Checks a text that arrives in pieces.
class TextCheck {
 public:
  TextCheck(const std::string& path, const std::string& text) : path_(path), text_(text) {}

  // The last bytes may be an incomplete character. They wait for the next piece unless `last` is
  // true.
  Status advance(bool last) {
    while (at_ < text_.size() && (last || text_.size() - at_ >= kLongest)) {
      BOWLINE_TRY(check_character());
    }
    return {};
  }

 private:
  static constexpr size_t kLongest = 4;

  Status check_character() {
    const std::string_view rest = std::string_view(text_).substr(at_, kLongest);
    const auto byte = static_cast<unsigned char>(rest[0]);
    BOWLINE_REQUIRE_CODE(byte != 0, Code::bad_file,
                         "{}:{}:{}: There is a NUL byte: this is a binary file, not text.", path_,
                         line_, column_);
    const size_t length = utf8_length(rest);
    BOWLINE_REQUIRE_CODE(length != 0, Code::bad_file, "{}:{}:{}: Byte 0x{} is not valid UTF-8.",
                         path_, line_, column_, fmt::format("{:02x}", byte));
    line_ += byte == '\n' ? 1 : 0;
    column_ = byte == '\n' ? 1 : column_ + 1;
    at_ += length;
    return {};
  }

  const std::string& path_;
  const std::string& text_;
  size_t at_ = 0;
  size_t line_ = 1;
  size_t column_ = 1;
};

// Returns the number of columns if the line is a table header: at least two names without spaces.
// Otherwise returns 0.
size_t columns_of_header(std::string_view line, char separator) {
  size_t columns = 1;
  bool empty = true;
  for (const char c : line) {
    const bool is_name = c == '_' || c == '-' || c == '.' || c == '"' ||
                         std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (c == separator && !empty) {
      ++columns;
      empty = true;
    } else if (is_name) {
      empty = false;
    } else {
      return 0;
    }
  }
  return empty || columns < 2 ? 0 : columns;
}

size_t columns_of(std::string_view line, char separator) {
  size_t columns = 1;
  bool quoted = false;
  for (const char c : line) {
    quoted = quoted != (c == '"');
    columns += c == separator && !quoted ? 1 : 0;
  }
  return columns;
}

// True if the text begins with a header and at least two rows, all with the same number of fields.
// Checks only the first rows.
bool looks_like_table(std::string_view text, char separator) {
  constexpr size_t kLeastRows = 2, kMostRows = 20;
  size_t columns = 0;
  size_t rows = 0;
  while (!text.empty() && rows < kMostRows) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    if (columns == 0) {
      columns = columns_of_header(line, separator);
    } else {
      ++rows;
    }
    if (columns == 0 || columns_of(line, separator) != columns) {
      return false;
    }
  }
  return rows >= kLeastRows;
}

// Returns the structure of a text that is not prose, for example "JSON lines" or "a table", else
// null.
const char* structure_of(const std::string& path, std::string_view text) {
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson") || looks_like_json_lines(text)) {
    return "JSON lines";
  }
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool opens = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  if (path.ends_with(".json") || (opens && nlohmann::json::accept(text))) {
    return "JSON";
  }
  const bool is_table = path.ends_with(".csv") || path.ends_with(".tsv") ||
                        looks_like_table(text, ',') || looks_like_table(text, '\t') ||
                        looks_like_table(text, ';');
  return is_table ? "a table" : nullptr;
}

Status check_plain(const std::string& path, const std::string& text) {
  const char* const structure = structure_of(path, text);
  BOWLINE_REQUIRE_CODE(structure == nullptr, Code::bad_file,
                       "Text \"{}\" holds {}. Only plain text can be trained on: write the texts "
                       "themselves into a file, or give --as-text to train on these bytes as they "
                       "are, with all separators, quotes and braces. Conversations in JSON lines "
                       "are for models with a chat format, tables for models of the task classify.",
                       path, structure);
  return {};
}

}  // namespace

Status check_text(const std::string& what, const std::string& text) {
  return TextCheck(what, text).advance(true);
}

Result<std::string> read_text(const std::string& path, bool as_text) {
  std::string text;
  TextCheck check(path, text);
  BOWLINE_TRY(read_regular("Text", path, kMostTextBytes, [&](std::string_view piece) {
    text.append(piece);
    return check.advance(false);
  }));
  BOWLINE_REQUIRE_CODE(!text.empty(), Code::bad_file, "Text \"{}\" is empty.", path);
  BOWLINE_TRY(check.advance(true));
  if (!as_text) {
    BOWLINE_TRY(check_plain(path, text));
  }
  return text;
}

bool looks_like_json_lines(std::string_view text) {
  constexpr int kLines = 3;
  int objects = 0;
  while (!text.empty() && objects < kLines) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) {
      continue;
    }
    if (line[first] != '{' || !nlohmann::json::accept(line)) {
      return false;
    }
    ++objects;
  }
  return objects > 0;
}

size_t held_out_begin(std::string_view text) {
  const size_t cut = text.size() / 10 * 9;
  const size_t newline = text.find('\n', cut);
  return newline == std::string_view::npos || newline + 1 == text.size() ? cut : newline + 1;
}

uint64_t Windows::per_epoch() const {
  const uint64_t whole = (units_ - 1) / static_cast<uint64_t>(seq_);
  return std::max<uint64_t>(1, whole - 1);  // one less leaves room for the offset
}

size_t Windows::begin(uint64_t sample) const {
  const uint64_t count = per_epoch();
  const uint64_t epoch = sample / count;
  const uint64_t slack = units_ - 1 - count * static_cast<uint64_t>(seq_);
  const RandomBlock draw =
      philox({0, 0, static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)},
             {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  const uint64_t offset = ((uint64_t{draw[1]} << 32) | draw[0]) % (slack + 1);
  return offset + permuted(sample % count, count, seed_, epoch) * static_cast<uint64_t>(seq_);
}

uint64_t permuted(uint64_t index, uint64_t count, uint64_t seed, uint64_t epoch) {
  const int half = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = index >> half;
    uint64_t right = index & mask;
    for (uint32_t round = 1; round <= 6; ++round) {
      const RandomBlock draw =
          philox({static_cast<uint32_t>(right), round, static_cast<uint32_t>(epoch),
                  static_cast<uint32_t>(epoch >> 32)},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
      left = std::exchange(right, left ^ (draw[0] & mask));
    }
    index = left << half | right;
  } while (index >= count);
  return index;
}

Batch::Batch(int64_t batch, int64_t seq)
    : seq_(seq),
      shape_{batch, seq},
      tokens_(static_cast<size_t>(batch * seq)),
      labels_(tokens_.size()) {
  tensors_ = {{"tokens", DType::i32, shape_, tokens_.data()},
              {"labels", DType::i32, shape_, labels_.data()}};
}

int64_t Batch::set_row(int64_t row, const Units& text, size_t begin, int64_t skipped) {
  int64_t counted = 0;
  for (int64_t i = 0; i < seq_; ++i) {
    const size_t at = begin + static_cast<size_t>(i);
    const auto out = static_cast<size_t>(row * seq_ + i);
    tokens_[out] = at < text.size() ? text[at] : 0;
    const bool counts = at + 1 < text.size() && i >= skipped;
    labels_[out] = counts ? text[at + 1] : kIgnored;
    counted += counts ? 1 : 0;
  }
  return counted;
}

void Batch::clear_row(int64_t row) {
  std::fill_n(tokens_.begin() + row * seq_, seq_, 0);
  std::fill_n(labels_.begin() + row * seq_, seq_, kIgnored);
}

void Batch::set_row(int64_t row, const int32_t* tokens) {
  std::copy_n(tokens, seq_, tokens_.begin() + row * seq_);
  std::copy_n(tokens + 1, seq_, labels_.begin() + row * seq_);
}

}  // namespace bowline::command
