// Plain text: windows of its bytes, or of its tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "bowline_text.h"
#include "common/hash.h"
#include "common/interrupt.h"
#include "common/text.h"
#include "common/tokenizers.h"
#include "tasks/task.h"
#include "tasks/tokenize.h"

namespace bowline::command {
namespace {

// A text, and the units that windows are cut from.
struct Part {
  std::string text;
  bool bytes = true;
  std::vector<int32_t> tokens;  // unused if windows are cut from the bytes

  Units units() const { return bytes ? Units(std::string_view(text)) : Units(tokens); }
};

class TextTask final : public Task {
 public:
  TextTask(const DataOptions& o, Part train, Part held_out)
      : o_(o),
        stride_(o.eval_stride == 0 ? o.seq : o.eval_stride),
        train_(std::move(train)),
        held_out_(std::move(held_out)),
        windows_(train_.units().size(), o.seq, o.seed),
        batch_(o.batch, o.seq) {
    const bool bytes = held_out_.bytes;
    const char* const units = bytes ? "bytes" : "tokens";
    const auto size = [&](const Part& part) {
      return bytes ? fmt::format("{} bytes", part.text.size())
                   : fmt::format("{} bytes, {} tokens", part.text.size(), part.tokens.size());
    };
    const auto hashed = [](const Part& part) {
      return fmt::format("{} bytes, XXH3 {}", part.text.size(), hash_text(part.text));
    };
    info_.dims = {{{"batch", o_.batch}, {"seq", o_.seq}}};
    info_.window = o_.seq;
    info_.samples_per_epoch = windows_.per_epoch();
    info_.unit = bytes ? "bits per byte" : "nats per token";
    info_.nats_per_unit = bytes ? std::log(2.0) : 1;
    info_.step = fmt::format("x {} {}", o_.seq, units);
    info_.data = {{"training text", fmt::format("{}, {} windows of {} {}", size(train_),
                                                windows_.per_epoch(), o_.seq, units)},
                  {"held out", size(held_out_)}};
    info_.sizes = {{"bytes", held_out_.text.size()}};
    if (!bytes) {
      info_.sizes.emplace_back("tokens", held_out_.tokens.size());
    }
    info_.held_out = hashed(held_out_);
    info_.training_data = hashed(train_);
    info_.evaluation_key = hash_text(fmt::format("{} {} {} {} {}", hash_text(held_out_.text),
                                                 o_.batch, o_.seq, stride_, o_.eval_batches));
  }

  std::span<const Tensor> batch(uint64_t first) override {
    for (int64_t row = 0; row < o_.batch; ++row) {
      batch_.set_row(row, train_.units(), windows_.begin(first + static_cast<uint64_t>(row)));
    }
    return batch_.inputs();
  }
  uint64_t tokens() const override { return static_cast<uint64_t>(o_.batch * o_.seq); }

  Result<Measure> evaluate(const Forward& forward) override {
    BOWLINE_TRY_ASSIGN(const double nats, mean_nats(forward));
    Measure m{shown(nats), std::exp(nats)};
    if (held_out_.bytes) {
      m.perplexity = std::exp2(m.loss);
    } else {
      const double per_byte =
          static_cast<double>(held_out_.tokens.size()) / static_cast<double>(held_out_.text.size());
      m.more = {{"bits_per_byte", nats / std::log(2.0) * per_byte}};
    }
    return m;
  }

 private:
  // Returns the mean loss over the held-out text. Each unit counts once. Window w predicts the
  // units from w * stride + overlap + 1 on. The first window also predicts the units before that.
  Result<double> mean_nats(const Forward& forward) const {
    const Units text = held_out_.units();
    const int64_t overlap = o_.seq - stride_;
    const int64_t predicted = static_cast<int64_t>(text.size()) - 1;
    const int64_t windows = std::max<int64_t>(1, (predicted - overlap + stride_ - 1) / stride_);
    int64_t batches = (windows + o_.batch - 1) / o_.batch;
    int64_t step = 1;
    if (o_.eval_batches != 0 && static_cast<uint64_t>(batches) > o_.eval_batches) {
      batches = static_cast<int64_t>(o_.eval_batches);
      step = windows / (batches * o_.batch);
    }
    Batch rows(o_.batch, o_.seq);
    double nats = 0;
    int64_t total = 0;
    for (int64_t b = 0; b < batches; ++b) {
      BOWLINE_REQUIRE_CODE(!interrupted(), Code::cancelled, "Interrupted during an evaluation.");
      int64_t counted = 0;
      for (int64_t row = 0; row < o_.batch; ++row) {
        const int64_t window = (b * o_.batch + row) * step;
        if (window >= windows) {
          rows.clear_row(row);
          continue;
        }
        counted += rows.set_row(row, text, static_cast<size_t>(window * stride_),
                                window == 0 ? 0 : overlap);
      }
      float mean = 0;
      const Tensor output{"loss", DType::f32, {}, &mean};
      BOWLINE_TRY(forward(rows.inputs(), {&output, 1}));
      nats += static_cast<double>(mean) * static_cast<double>(counted);
      total += counted;
    }
    return nats / static_cast<double>(total);
  }

  DataOptions o_;
  int64_t stride_;  // units between the windows of an evaluation
  Part train_;
  Part held_out_;
  Windows windows_;
  Batch batch_;
};

Status tokenize(const text::Tokenizer& tokenizer, Part& part) {
  BOWLINE_TRY_ASSIGN(text::Encoding all, tokenizer.encode(part.text, {.special_tokens = false}));
  part.tokens = std::move(all.ids);
  part.bytes = false;
  return {};
}

}  // namespace

Result<std::unique_ptr<Task>> make_text_task(const Model& model, const DataOptions& o,
                                             Purpose purpose) {
  BOWLINE_TRY_ASSIGN(std::string text, read_text(o.data, o.as_text));
  const bool bytes = reads_bytes(model);
  Part train;
  Part held_out;
  if (purpose == Purpose::evaluation) {
    held_out.text = std::move(text);
  } else if (o.valid.empty()) {
    const size_t cut = held_out_begin(text);
    held_out.text = text.substr(cut);
    text.resize(cut);
    train.text = std::move(text);
  } else {
    BOWLINE_TRY_ASSIGN(held_out.text, read_text(o.valid, o.as_text));
    train.text = std::move(text);
  }
  if (!bytes) {
    BOWLINE_TRY_ASSIGN(const text::Tokenizer tokenizer, tokenizer_of(model));
    BOWLINE_TRY(tokenize(tokenizer, train));
    BOWLINE_TRY(tokenize(tokenizer, held_out));
  }
  const LengthLimit limit = length_limit(model, o.seq, o.seq);
  BOWLINE_REQUIRE(bytes || o.seq <= limit.tokens, "--seq {} is above {}, {}.", o.seq, limit.reason,
                  limit.tokens);
  const std::string units = bytes ? "bytes" : "tokens";
  const size_t train_size = train.units().size();
  const size_t held_out_size = held_out.units().size();
  if (purpose == Purpose::evaluation) {
    BOWLINE_REQUIRE_CODE(held_out_size >= 2, Code::bad_file,
                         "Text \"{}\" has {} {}, and an evaluation needs 2 or more.", o.data,
                         held_out_size, units);
  } else {
    BOWLINE_REQUIRE_CODE(Windows::fits(train_size, o.seq), Code::bad_file,
                         "The training part of text \"{}\" has {} {}, but a window needs {}. Use "
                         "more text or a smaller --seq.",
                         o.data, train_size, units, o.seq + 1);
    BOWLINE_REQUIRE_CODE(
        held_out_size >= 2, Code::bad_file,
        "The held-out part of text \"{}\" has {} {}, and an evaluation needs 2 or more.",
        o.valid.empty() ? o.data : o.valid, held_out_size, units);
  }
  return std::unique_ptr<Task>(
      std::make_unique<TextTask>(o, std::move(train), std::move(held_out)));
}

}  // namespace bowline::command
