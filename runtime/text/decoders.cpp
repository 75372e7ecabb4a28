#include "text/decoders.h"

#include <algorithm>

#include "base/boundary.h"
#include "text/byte_level.h"
#include "text/unicode.h"

namespace bowline::text {
namespace {

constexpr size_t kMostGrown = size_t{1} << 20;  // growth limit of a token in bytes

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty() || text.find(from) == std::string::npos) {
    return;
  }
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = out.append(text, done);
}

// Passes on the complete code points of `bytes`, invalid bytes as U+FFFD, and keeps an incomplete
// code point. `all`: keeps nothing.
std::string take_text(std::string& bytes, bool all) {
  std::string out;
  size_t at = 0;
  while (at < bytes.size()) {
    bool valid = false;
    const std::string_view rest = std::string_view(bytes).substr(at);
    const size_t n = step_over(rest, valid);
    const auto lead = static_cast<uint8_t>(rest[0]);
    const bool open = !valid && n == rest.size() && lead >= 0xC2 && lead <= 0xF4;
    if (open && !all) {
      break;
    }
    if (valid) {
      out += rest.substr(0, n);
    } else {
      append(out, kReplacement);
    }
    at += n;
  }
  bytes.erase(0, at);
  return out;
}

class BytesStep : public DecodeStep {
 public:
  explicit BytesStep(bool whole) : whole_(whole) {}
  Status push(std::string_view piece, const Next& next) override {
    if (const auto bytes = bytes_of(piece)) {
      bytes_ += *bytes;
    } else {
      bytes_ += piece;
    }
    return whole_ ? Status() : pass(false, next);
  }
  Status finish(const Next& next) override { return pass(true, next); }

 private:
  Status pass(bool all, const Next& next) {
    const std::string text = take_text(bytes_, all);
    return text.empty() ? Status() : next(text);
  }
  bool whole_;
  std::string bytes_;
};

// The byte of "<0x1F>", or -1.
int byte_of(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') {
    return -1;
  }
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int low = c | 0x20;
    const int digit = c >= '0' && c <= '9'       ? c - '0'
                      : low >= 'a' && low <= 'f' ? low - 'a' + 10
                                                 : -1;
    if (digit < 0) {
      return -1;
    }
    value = value * 16 + digit;
  }
  return value;
}

class ByteFallbackStep : public DecodeStep {
 public:
  explicit ByteFallbackStep(bool whole) : whole_(whole) {}
  Status push(std::string_view piece, const Next& next) override {
    if (const int byte = byte_of(piece); byte >= 0) {
      bytes_ += static_cast<char>(byte);
      const std::string text = whole_ ? std::string() : take_text(bytes_, false);
      return text.empty() ? Status() : next(text);
    }
    BOWLINE_TRY(finish(next));
    return next(piece);
  }
  // In a run that is not UTF-8 every byte is replaced.
  Status finish(const Next& next) override {
    bool valid = true;
    for (size_t at = 0; valid && at < bytes_.size();) {
      at += step_over(std::string_view(bytes_).substr(at), valid);
    }
    std::string text = valid ? bytes_ : std::string();
    for (size_t i = 0; !valid && i < bytes_.size(); ++i) {
      append(text, kReplacement);
    }
    bytes_.clear();
    return text.empty() ? Status() : next(text);
  }

 private:
  bool whole_;
  std::string bytes_;
};

// A step that maps each token, and the first token differently.
class MapStep : public DecodeStep {
 public:
  using Map = std::function<Status(std::string& piece, bool first)>;
  explicit MapStep(const Map& map) : map_(map) {}
  Status push(std::string_view piece, const Next& next) override {
    std::string text(piece);
    BOWLINE_TRY(map_(text, first_));
    first_ = false;
    return next(text);
  }

 private:
  const Map& map_;
  bool first_ = true;
};

DecodeStepMaker mapped(MapStep::Map map) {
  return [map = std::move(map)](bool) { return std::make_unique<MapStep>(map); };
}

void clean_up(std::string& text) {
  constexpr std::string_view pairs[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : pairs) {
    replace_all(text, from, to);
  }
}

// Joins all tokens to one text.
class FuseStep : public DecodeStep {
 public:
  Status push(std::string_view piece, const Next&) override {
    text_ += piece;
    return {};
  }
  Status finish(const Next& next) override { return next(text_); }

 private:
  std::string text_;
};

class PassStep : public DecodeStep {
 public:
  Status push(std::string_view piece, const Next& next) override { return next(piece); }
};

// Strips fused text: the start at once, the end when the text is complete.
class StripStream : public DecodeStep {
 public:
  StripStream(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  Status push(std::string_view piece, const Next& next) override {
    held_ += piece;
    while (start_ > 0 && held_.starts_with(content_)) {
      held_.erase(0, content_.size());
      --start_;
    }
    if (!held_.empty()) {
      start_ = 0;
    }
    const size_t end = stripped_end(held_);
    const std::string text = held_.substr(0, end);
    held_.erase(0, end);
    return text.empty() ? Status() : next(text);
  }
  Status finish(const Next& next) override {
    const size_t cut = std::min(stop_, held_.size() / content_.size());
    const std::string text = held_.substr(0, held_.size() - cut * content_.size());
    held_.clear();
    return text.empty() ? Status() : next(text);
  }

 private:
  // All of `content` at the end may be stripped; the text before it is certain.
  size_t stripped_end(std::string_view text) const {
    size_t end = text.size();
    while (stop_ > 0 && text.substr(0, end).ends_with(content_)) {
      end -= content_.size();
    }
    return end;
  }
  std::string content_;
  size_t start_;
  size_t stop_;
  std::string held_;
};

// Handles the end-of-word suffix. The last token is known only at the end.
class SuffixStep : public DecodeStep {
 public:
  explicit SuffixStep(std::string suffix) : suffix_(std::move(suffix)) {}
  Status push(std::string_view piece, const Next& next) override {
    const Status status = any_ ? pass(" ", next) : Status();
    held_ = piece;
    any_ = true;
    return status;
  }
  Status finish(const Next& next) override { return any_ ? pass("", next) : Status(); }

 private:
  Status pass(std::string_view end, const Next& next) {
    replace_all(held_, suffix_, end);
    return next(held_);
  }
  std::string suffix_;
  std::string held_;
  bool any_ = false;
};

// Keeps one of equal neighbouring tokens.
class CtcStep : public DecodeStep {
 public:
  CtcStep(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  Status push(std::string_view piece, const Next& next) override {
    if (any_ && piece == last_) {
      return {};
    }
    any_ = true;
    last_ = piece;
    std::string text(piece);
    replace_all(text, pad_, "");
    if (cleanup_) {
      clean_up(text);
      replace_all(text, delimiter_, " ");
    }
    return text.empty() ? Status() : next(text);
  }

 private:
  std::string pad_;
  std::string delimiter_;
  bool cleanup_;
  std::string last_;
  bool any_ = false;
};

// ---- one for each step

struct MakeDecoder {
  using Made = Result<DecodeStepMaker>;
  bool fused;

  Made operator()(const steps::ByteLevel&) const { return decode_bytes(); }
  Made operator()(const steps::ByteFallback&) const {
    return DecodeStepMaker([](bool whole) { return std::make_unique<ByteFallbackStep>(whole); });
  }
  Made operator()(const steps::Fuse&) const {
    return DecodeStepMaker([](bool whole) -> std::unique_ptr<DecodeStep> {
      if (whole) {
        return std::make_unique<FuseStep>();
      }
      return std::make_unique<PassStep>();
    });
  }
  Made operator()(const steps::BPEDecoder& step) const {
    return DecodeStepMaker(
        [suffix = step.suffix](bool) { return std::make_unique<SuffixStep>(suffix); });
  }
  Made operator()(const steps::CTC& step) const {
    return DecodeStepMaker([step](bool) {
      return std::make_unique<CtcStep>(step.pad_token, step.word_delimiter_token, step.cleanup);
    });
  }
  Made operator()(const steps::Metaspace& step) const {
    return mapped([step](std::string& piece, bool first) -> Status {
      const bool prepended = step.prepend_scheme != Prepend::never;
      replace_all(piece, step.replacement.text, first && prepended ? "" : " ");
      return {};
    });
  }
  Made operator()(const steps::WordPieceDecoder& step) const {
    return mapped([step](std::string& piece, bool first) -> Status {
      if (!first && piece.starts_with(step.prefix)) {
        piece.erase(0, step.prefix.size());
      } else if (!first) {
        piece.insert(piece.begin(), ' ');
      }
      if (step.cleanup) {
        clean_up(piece);
      }
      return {};
    });
  }
  Made operator()(const steps::Replace& step) const {
    BOWLINE_TRY_ASSIGN(Pattern of, Pattern::of(step.pattern));
    return mapped([pattern = std::move(of), content = step.content](std::string& piece,
                                                                    bool) -> Status {
      std::vector<Range> ranges;
      BOWLINE_TRY(pattern.find(piece, ranges));
      std::string out;
      for (const Range& r : ranges) {
        BOWLINE_REQUIRE_CODE(out.size() <= std::max(piece.size(), kMostGrown), Code::bad_file,
                             "A decoder makes more than {} bytes of {}.", out.size(), piece.size());
        if (r.match) {
          out += content;
        } else {
          out.append(piece, r.begin, r.end - r.begin);
        }
      }
      piece = std::move(out);
      return {};
    });
  }
  Made operator()(const steps::StripDecoder& step) const {
    if (fused) {
      return DecodeStepMaker([step](bool) {
        return std::make_unique<StripStream>(step.content.text, step.start, step.stop);
      });
    }
    return mapped([step](std::string& piece, bool) -> Status {
      const std::string& content = step.content.text;
      for (size_t n = 0; n < step.start && piece.starts_with(content); ++n) {
        piece.erase(0, content.size());
      }
      for (size_t n = 0; n < step.stop && piece.ends_with(content); ++n) {
        piece.erase(piece.size() - content.size());
      }
      return {};
    });
  }
};

}  // namespace

Result<DecodeStepMaker> make_decoder(const steps::Decoder& step, bool fused) {
  return std::visit(MakeDecoder{fused}, step);
}

DecodeStepMaker decode_bytes() {
  return [](bool whole) { return std::make_unique<BytesStep>(whole); };
}

DecodeStepMaker decode_spaced() {
  return mapped([](std::string& piece, bool first) -> Status {
    if (!first) {
      piece.insert(piece.begin(), ' ');
    }
    return {};
  });
}

DecodeChain::DecodeChain(const std::vector<DecodeStepMaker>& makers, bool whole) {
  for (const DecodeStepMaker& make : makers) {
    steps_.push_back(make(whole));
  }
}

Status DecodeChain::push_from(size_t step, std::string_view piece, std::string& out) {
  if (step == steps_.size()) {
    out += piece;
    return {};
  }
  return steps_[step]->push(piece,
                            [&](std::string_view text) { return push_from(step + 1, text, out); });
}

Status DecodeChain::push(std::string_view piece, std::string& out) {
  return push_from(0, piece, out);
}

Status DecodeChain::finish(std::string& out) {
  for (size_t step = 0; step < steps_.size(); ++step) {
    BOWLINE_TRY(steps_[step]->finish(
        [&](std::string_view text) { return push_from(step + 1, text, out); }));
  }
  return {};
}

}  // namespace bowline::text
