// Plain text: windows of its bytes, or of its tokens.
#include <fmt/format.h>

#include <cmath>

#include "base/status.h"
#include "common/hash.h"
#include "common/text.h"
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
        how_{o.batch, o.seq, o.eval_stride == 0 ? o.seq : o.eval_stride, o.eval_batches},
        train_(std::move(train)),
        held_out_(std::move(held_out)),
        bytes_(held_out_.bytes),
        windows_(train_.units().size(), o.seq, o.seed),
        batch_(o.batch, o.seq) {}

  std::vector<std::vector<BoundDim>> dims() const override {
    return {{{"batch", o_.batch}, {"seq", o_.seq}}};
  }
  std::optional<int64_t> window() const override { return o_.seq; }

  uint64_t samples_per_epoch() const override { return windows_.per_epoch(); }
  std::span<const Tensor> batch(uint64_t first) override {
    for (int64_t row = 0; row < o_.batch; ++row) {
      batch_.set_row(row, train_.units(), windows_.begin(first + static_cast<uint64_t>(row)));
    }
    return batch_.inputs();
  }
  uint64_t tokens() const override { return static_cast<uint64_t>(o_.batch * o_.seq); }

  Result<Measure> evaluate(const Forward& forward) override {
    const BatchLoss loss = [&](std::span<const Tensor> batch) -> Result<float> {
      float value = 0;
      const Tensor output{"loss", DType::f32, {}, &value};
      BOWLINE_TRY(forward(batch, {&output, 1}));
      return value;
    };
    BOWLINE_TRY_ASSIGN(const double nats, mean_nats(loss, held_out_.units(), how_));
    Measure m{shown(nats), std::exp(nats)};
    if (bytes_) {
      m.perplexity = std::exp2(m.loss);
    } else {
      const double per_byte =
          static_cast<double>(held_out_.tokens.size()) / static_cast<double>(held_out_.text.size());
      m.more = {{"bits_per_byte", bits_of_nats(nats) * per_byte}};
    }
    return m;
  }

  std::string unit() const override { return bytes_ ? "bits per byte" : "nats per token"; }
  double shown(double nats) const override { return bytes_ ? bits_of_nats(nats) : nats; }
  std::string step_text(int64_t rows) const override {
    return fmt::format("{} x {} {}", rows, o_.seq, units_text());
  }
  Settings describe() const override {
    const auto size = [&](const Part& part) {
      return bytes_ ? fmt::format("{} bytes", part.text.size())
                    : fmt::format("{} bytes, {} tokens", part.text.size(), part.tokens.size());
    };
    return {{"training text", fmt::format("{}, {} windows of {} {}", size(train_),
                                          windows_.per_epoch(), o_.seq, units_text())},
            {"held out", size(held_out_)}};
  }

  std::vector<std::pair<std::string, uint64_t>> sizes() const override {
    std::vector<std::pair<std::string, uint64_t>> out = {{"bytes", held_out_.text.size()}};
    if (!bytes_) {
      out.emplace_back("tokens", held_out_.tokens.size());
    }
    return out;
  }

  std::string held_out() const override {
    return fmt::format("{} bytes, XXH3 {}", held_out_.text.size(), hash_text(held_out_.text));
  }

  std::string training_data() const override {
    return fmt::format("{} bytes, XXH3 {}", train_.text.size(), hash_text(train_.text));
  }
  std::string evaluation_key() const override {
    return hash_text(fmt::format("{} {} {} {} {}", hash_text(held_out_.text), how_.batch, how_.seq,
                                 how_.stride, how_.max_batches));
  }

 private:
  const char* units_text() const { return bytes_ ? "bytes" : "tokens"; }

  DataOptions o_;
  Evaluation how_;
  Part train_;
  Part held_out_;
  bool bytes_;
  Windows windows_;
  Batch batch_;
};

Status tokenize(const Encode& encode, Part& part) {
  BOWLINE_TRY_ASSIGN(part.tokens, encode(part.text, false, 0));
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
    BOWLINE_TRY_ASSIGN(const Encode encode, encoder_of(model));
    BOWLINE_TRY(tokenize(encode, train));
    BOWLINE_TRY(tokenize(encode, held_out));
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
