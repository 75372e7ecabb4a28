#include "common/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "common/interrupt.h"
#include "core/random.h"

namespace bowline::command {
namespace {

constexpr int32_t kIgnored = -100;  // CrossEntropy's default ignore_index

// Length of the UTF-8 character at `at`, or 0 where there is none.
size_t character_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(at);
  if (first < 0x80) {
    return 1;
  }
  const size_t length = first >= 0xC2 && first < 0xE0   ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (length == 0) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) {
      return 0;
    }
  }
  // Overlong forms, surrogates, and what lies above U+10FFFF.
  const unsigned second = byte(at + 1);
  const bool bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                   (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return bad ? 0 : length;
}

Status check_text(const std::string& path, std::string_view text) {
  size_t line = 1;
  size_t column = 1;
  for (size_t at = 0; at < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[at]);
    if (c == 0) {
      return Status(Code::bad_file,
                    fmt::format("{}:{}:{}: There is a NUL byte: this is a binary file, not text.",
                                path, line, column));
    }
    const size_t length = character_length(text, at);
    if (length == 0) {
      return Status(Code::bad_file, fmt::format("{}:{}:{}: Byte 0x{:02x} is not valid UTF-8.", path,
                                                line, column, c));
    }
    line += c == '\n' ? 1 : 0;
    column = c == '\n' ? 1 : column + 1;
    at += length;
  }
  return {};
}

}  // namespace

Result<std::string> read_text(const std::string& path) {
  const auto failed = [&](const char* why) {
    return Status(Code::bad_file, fmt::format("Text \"{}\" cannot be read: {}.", path, why));
  };
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) {
    return failed(std::strerror(errno));
  }
  std::string text;
  char part[1 << 16];
  while (const size_t n = std::fread(part, 1, sizeof part, file.get())) {
    text.append(part, n);
  }
  if (std::ferror(file.get()) != 0) {
    return failed(std::strerror(errno));
  }
  if (text.empty()) {
    return Status(Code::bad_file, fmt::format("Text \"{}\" is empty.", path));
  }
  if (Status s = check_text(path, text); !s.ok()) {
    return s;
  }
  return text;
}

size_t held_out_begin(std::string_view text) {
  const size_t cut = text.size() / 10 * 9;
  const size_t newline = text.find('\n', cut);
  return newline == std::string_view::npos || newline + 1 == text.size() ? cut : newline + 1;
}

uint64_t Windows::per_epoch() const {
  const uint64_t whole = (bytes_ - 1) / static_cast<uint64_t>(seq_);
  return std::max<uint64_t>(1, whole - 1);  // one less leaves room for the offset
}

size_t Windows::begin(uint64_t sample) const {
  const uint64_t count = per_epoch();
  const uint64_t epoch = sample / count;
  const uint64_t slack = bytes_ - 1 - count * static_cast<uint64_t>(seq_);
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

int64_t Batch::set_row(int64_t row, std::string_view text, size_t begin, int64_t skipped) {
  int64_t counted = 0;
  for (int64_t i = 0; i < seq_; ++i) {
    const size_t at = begin + static_cast<size_t>(i);
    const auto out = static_cast<size_t>(row * seq_ + i);
    tokens_[out] = at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
    const bool counts = at + 1 < text.size() && i >= skipped;
    labels_[out] = counts ? static_cast<unsigned char>(text[at + 1]) : kIgnored;
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

Result<double> bits_per_byte(Trainer& trainer, std::string_view text, int64_t batch, int64_t seq,
                             int64_t stride, uint64_t max_batches) {
  // Window w predicts the bytes from w * stride + overlap + 1 on; the first one also those before.
  const int64_t overlap = seq - stride;
  const int64_t predicted = static_cast<int64_t>(text.size()) - 1;
  const int64_t windows = std::max<int64_t>(1, (predicted - overlap + stride - 1) / stride);
  int64_t batches = (windows + batch - 1) / batch;
  int64_t step = 1;
  if (max_batches != 0 && batches > static_cast<int64_t>(max_batches)) {
    batches = static_cast<int64_t>(max_batches);
    step = windows / (batches * batch);
  }
  Batch rows(batch, seq);
  double nats = 0;
  int64_t total = 0;
  for (int64_t b = 0; b < batches; ++b) {
    if (interrupted()) {
      return Status(Code::cancelled, "Interrupted during an evaluation.");
    }
    int64_t counted = 0;
    for (int64_t row = 0; row < batch; ++row) {
      const int64_t window = (b * batch + row) * step;
      if (window >= windows) {
        rows.clear_row(row);
        continue;
      }
      counted +=
          rows.set_row(row, text, static_cast<size_t>(window * stride), window == 0 ? 0 : overlap);
    }
    Result<float> loss = trainer.evaluate(rows.inputs());
    if (!loss.ok()) {
      return std::move(loss).status();
    }
    nats += static_cast<double>(loss.value()) * static_cast<double>(counted);
    total += counted;
  }
  return nats / static_cast<double>(total) / std::log(2.0);
}

}  // namespace bowline::command
