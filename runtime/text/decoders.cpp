#include "text/decoders.h"

#include <algorithm>

#include "base/parse.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/require.h"
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

Status pass_on(const std::string& text, const DecodeStep::Next& next) {
  return text.empty() ? Status() : next(text);
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
    return whole_ ? Status() : pass_on(take_text(bytes_, false), next);
  }
  Status finish(const Next& next) override { return pass_on(take_text(bytes_, true), next); }

 private:
  bool whole_;
  std::string bytes_;
};

// The byte of "<0x1F>".
std::optional<uint8_t> byte_of(std::string_view piece) {
  const bool fits = piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
  return fits ? number_in<uint8_t>(piece.substr(3, 2), 16) : std::nullopt;
}

class ByteFallbackStep : public DecodeStep {
 public:
  explicit ByteFallbackStep(bool whole) : whole_(whole) {}
  Status push(std::string_view piece, const Next& next) override {
    if (const auto byte = byte_of(piece)) {
      bytes_ += static_cast<char>(*byte);
      return whole_ ? Status() : pass_on(take_text(bytes_, false), next);
    }
    BOWLINE_TRY(finish(next));
    return next(piece);
  }
  // In a run that is not UTF-8 every byte is replaced.
  Status finish(const Next& next) override {
    const bool valid = valid_utf8(bytes_);
    std::string text = valid ? bytes_ : std::string();
    for (size_t i = 0; !valid && i < bytes_.size(); ++i) {
      append(text, kReplacement);
    }
    bytes_.clear();
    return pass_on(text, next);
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

// Joins all tokens to one text, if it is needed as a whole.
class FuseStep : public DecodeStep {
 public:
  explicit FuseStep(bool whole) : whole_(whole) {}
  Status push(std::string_view piece, const Next& next) override {
    if (!whole_) {
      return next(piece);
    }
    text_ += piece;
    return {};
  }
  Status finish(const Next& next) override { return whole_ ? next(text_) : Status(); }

 private:
  bool whole_;
  std::string text_;
};

// Strips fused text: the start at once, the end when the text is complete.
class StripStream : public DecodeStep {
 public:
  explicit StripStream(const steps::StripDecoder& step)
      : content_(step.content.text), start_(step.start), stop_(step.stop) {}
  Status push(std::string_view piece, const Next& next) override {
    held_ += piece;
    while (start_ > 0 && held_.starts_with(content_)) {
      held_.erase(0, content_.size());
      --start_;
    }
    if (!held_.empty()) {
      start_ = 0;
    }
    // All of the content at the end may be stripped; the text before it is certain.
    size_t end = held_.size();
    while (stop_ > 0 && std::string_view(held_).substr(0, end).ends_with(content_)) {
      end -= content_.size();
    }
    const std::string text = held_.substr(0, end);
    held_.erase(0, end);
    return pass_on(text, next);
  }
  Status finish(const Next& next) override {
    const size_t cut = std::min(stop_, held_.size() / content_.size());
    const std::string text = held_.substr(0, held_.size() - cut * content_.size());
    held_.clear();
    return pass_on(text, next);
  }

 private:
  std::string content_;
  size_t start_;
  size_t stop_;
  std::string held_;
};

// Handles the end-of-word suffix. The last token is known only at the end.
class SuffixStep : public DecodeStep {
 public:
  explicit SuffixStep(const steps::BPEDecoder& step) : suffix_(step.suffix) {}
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
  explicit CtcStep(const steps::CTC& step) : step_(step) {}
  Status push(std::string_view piece, const Next& next) override {
    if (any_ && piece == last_) {
      return {};
    }
    any_ = true;
    last_ = piece;
    std::string text(piece);
    replace_all(text, step_.pad_token, "");
    if (step_.cleanup) {
      clean_up(text);
      replace_all(text, step_.word_delimiter_token, " ");
    }
    return pass_on(text, next);
  }

 private:
  steps::CTC step_;
  std::string last_;
  bool any_ = false;
};

// ---- one for each step

// Return a maker of steps. The constructor of `Made` takes `step`, or `whole`.
template <class Made, class Step>
DecodeStepMaker maker(const Step& step) {
  return [step](bool) { return std::make_unique<Made>(step); };
}
template <class Made>
DecodeStepMaker maker() {
  return [](bool whole) { return std::make_unique<Made>(whole); };
}

struct MakeDecoder {
  using Made = Result<DecodeStepMaker>;
  bool fused;

  Made operator()(const steps::ByteLevel&) const { return decode_bytes(); }
  Made operator()(const steps::ByteFallback&) const { return maker<ByteFallbackStep>(); }
  Made operator()(const steps::Fuse&) const { return maker<FuseStep>(); }
  Made operator()(const steps::BPEDecoder& step) const { return maker<SuffixStep>(step); }
  Made operator()(const steps::CTC& step) const { return maker<CtcStep>(step); }
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
        BOWLINE_REQUIRE_FILE(out.size() <= std::max(piece.size(), kMostGrown),
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
      return maker<StripStream>(step);
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

DecodeStepMaker decode_bytes() { return maker<BytesStep>(); }

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
