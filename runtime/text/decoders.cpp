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

Status pass_on(const std::string& text, const PassOn& next) {
  return text.empty() ? Status() : next(text);
}

// Byte-level letters to bytes.
DecodeStep bytes_step(bool whole) {
  return [whole, bytes = std::string()](PieceOrEnd piece, const PassOn& next) mutable -> Status {
    if (const auto spelled = piece ? bytes_of(*piece) : std::nullopt) {
      bytes += *spelled;
    } else {
      bytes += piece.value_or("");
    }
    return whole && piece ? Status() : pass_on(take_text(bytes, !piece), next);
  };
}

// The byte of "<0x1F>".
std::optional<uint8_t> byte_of(std::string_view piece) {
  const bool fits = piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
  return fits ? number_in<uint8_t>(piece.substr(3, 2), 16) : std::nullopt;
}

DecodeStep byte_fallback_step(bool whole) {
  return [whole, bytes = std::string()](PieceOrEnd piece, const PassOn& next) mutable -> Status {
    if (const auto byte = piece ? byte_of(*piece) : std::nullopt) {
      bytes += static_cast<char>(*byte);
      return whole ? Status() : pass_on(take_text(bytes, false), next);
    }
    // In a run that is not UTF-8 every byte is replaced.
    const bool valid = valid_utf8(bytes);
    std::string text = valid ? bytes : std::string();
    for (size_t i = 0; !valid && i < bytes.size(); ++i) {
      append(text, kReplacement);
    }
    bytes.clear();
    BOWLINE_TRY(pass_on(text, next));
    return piece ? next(*piece) : Status();
  };
}

// A step that maps each token, and the first token differently.
DecodeStepMaker mapped(std::function<Status(std::string& piece, bool first)> map) {
  return [map = std::move(map)](bool) -> DecodeStep {
    return [map, first = true](PieceOrEnd piece, const PassOn& next) mutable -> Status {
      if (!piece) {
        return {};
      }
      std::string text(*piece);
      BOWLINE_TRY(map(text, std::exchange(first, false)));
      return next(text);
    };
  };
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
DecodeStep fuse_step(bool whole) {
  return [whole, all = std::string()](PieceOrEnd piece, const PassOn& next) mutable -> Status {
    if (!whole) {
      return piece ? next(*piece) : Status();
    }
    all += piece.value_or("");
    return piece ? Status() : next(all);
  };
}

// Removes `content` from the start and the end of `text`, at most `start` and `stop` times.
// Returns how often it was at the start.
size_t strip_ends(std::string& text, std::string_view content, size_t start, size_t stop) {
  size_t stripped = 0;
  for (; stripped < start && text.starts_with(content); ++stripped) {
    text.erase(0, content.size());
  }
  for (size_t n = 0; n < stop && text.ends_with(content); ++n) {
    text.erase(text.size() - content.size());
  }
  return stripped;
}

// Strips fused text: the start at once, the end when the text is complete.
DecodeStep strip_stream(steps::StripDecoder step) {
  return [step, held = std::string()](PieceOrEnd piece, const PassOn& next) mutable -> Status {
    held += piece.value_or("");
    if (!piece) {
      strip_ends(held, step.content.text, 0, step.stop);
      return pass_on(std::exchange(held, {}), next);
    }
    step.start -= strip_ends(held, step.content.text, step.start, 0);
    step.start = held.empty() ? step.start : 0;
    // All of the content at the end may be stripped; the text before it is certain.
    std::string text = held;
    strip_ends(text, step.content.text, 0, step.stop > 0 ? SIZE_MAX : 0);
    held.erase(0, text.size());
    return pass_on(text, next);
  };
}

// Handles the end-of-word suffix. The last token is known only at the end.
DecodeStep suffix_step(const steps::BPEDecoder& step) {
  return [suffix = step.suffix, held = std::optional<std::string>()](
             PieceOrEnd piece, const PassOn& next) mutable -> Status {
    const std::optional<std::string> after(piece);
    std::optional<std::string> text = std::exchange(held, after);
    if (!text) {
      return {};
    }
    replace_all(*text, suffix, piece ? " " : "");
    return next(*text);
  };
}

// Keeps one of equal neighbouring tokens.
DecodeStep ctc_step(const steps::CTC& step) {
  return [step, last = std::optional<std::string>()](PieceOrEnd piece,
                                                     const PassOn& next) mutable -> Status {
    if (!piece || piece == last) {
      return {};
    }
    last = *piece;
    std::string text(*piece);
    replace_all(text, step.pad_token, "");
    if (step.cleanup) {
      clean_up(text);
      replace_all(text, step.word_delimiter_token, " ");
    }
    return pass_on(text, next);
  };
}

// ---- one for each step

struct MakeDecoder {
  using Made = Result<DecodeStepMaker>;
  bool fused;

  Made operator()(const steps::ByteLevel&) const { return decode_bytes(); }
  Made operator()(const steps::ByteFallback&) const { return DecodeStepMaker(byte_fallback_step); }
  Made operator()(const steps::Fuse&) const { return DecodeStepMaker(fuse_step); }
  Made operator()(const steps::BPEDecoder& step) const {
    return DecodeStepMaker([step](bool) { return suffix_step(step); });
  }
  Made operator()(const steps::CTC& step) const {
    return DecodeStepMaker([step](bool) { return ctc_step(step); });
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
      return DecodeStepMaker([step](bool) { return strip_stream(step); });
    }
    return mapped([step](std::string& piece, bool) -> Status {
      strip_ends(piece, step.content.text, step.start, step.stop);
      return {};
    });
  }
};

}  // namespace

Result<DecodeStepMaker> make_decoder(const steps::Decoder& step, bool fused) {
  return std::visit(MakeDecoder{fused}, step);
}

DecodeStepMaker decode_bytes() { return bytes_step; }

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

Status DecodeChain::run(size_t step, PieceOrEnd piece, std::string& out) {
  if (step == steps_.size()) {
    out += piece.value_or("");
    return {};
  }
  const auto next = [&](std::string_view text) { return run(step + 1, text, out); };
  return steps_[step](piece, std::ref(next));  // a reference, which needs no allocation
}

Status DecodeChain::push(std::string_view piece, std::string& out) { return run(0, piece, out); }

Status DecodeChain::finish(std::string& out) {
  for (size_t step = 0; step < steps_.size(); ++step) {
    BOWLINE_TRY(run(step, std::nullopt, out));
  }
  return {};
}

}  // namespace bowline::text
