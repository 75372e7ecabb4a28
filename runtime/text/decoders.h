// Decoders of tokenizer.json: how pieces become text again. They work on a stream: each step takes
// a piece and passes on what is certain.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern.h"

namespace bowline::text {

// One step of the chain, with what it remembers.
class DecodeStep {
 public:
  using Next = std::function<Status(std::string_view)>;
  virtual ~DecodeStep() = default;
  // A piece, or a part of one text if an earlier step fused them.
  virtual Status push(std::string_view piece, const Next& next) = 0;
  // What is left at the end.
  virtual Status finish(const Next& next) {
    (void)next;
    return {};
  }
};

// Makes a step in its first state. `whole`: all pieces come before the text is wanted, so that a
// step may wait for them.
using DecodeStepMaker = std::function<std::unique_ptr<DecodeStep>(bool whole)>;

DecodeStepMaker decode_bytes();          // byte-level letters to bytes
DecodeStepMaker decode_byte_fallback();  // <0x00> to <0xFF>
DecodeStepMaker decode_metaspace(std::string replacement, bool prepended);
DecodeStepMaker decode_word_piece(std::string prefix, bool cleanup);
DecodeStepMaker decode_suffix(std::string suffix);  // BPEDecoder
DecodeStepMaker decode_replace(Pattern pattern, std::string content);
// `fused`: an earlier step made one text of the pieces.
DecodeStepMaker decode_strip(std::string content, size_t start, size_t stop, bool fused);
DecodeStepMaker decode_ctc(std::string pad, std::string delimiter, bool cleanup);
DecodeStepMaker decode_fuse();
DecodeStepMaker decode_spaced();  // pieces of a file without a decoder: a space between them

// All steps, from pieces to text.
class DecodeChain {
 public:
  DecodeChain(const std::vector<DecodeStepMaker>& makers, bool whole);
  Status push(std::string_view piece, std::string& out);
  Status finish(std::string& out);

 private:
  Status push_from(size_t step, std::string_view piece, std::string& out);
  std::vector<std::unique_ptr<DecodeStep>> steps_;
};

}  // namespace bowline::text
