// Decoders of tokenizer.json: convert tokens back to text. They work on a stream: each step takes a
// token and passes on the text that is certain.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/description.h"
#include "text/pattern.h"

namespace bowline::text {

// A token, or a part of the text if an earlier step has fused the tokens. Empty: the end.
using PieceOrEnd = std::optional<std::string_view>;
using PassOn = std::function<Status(std::string_view)>;
// A step of the chain, with its state. At the end it passes on the rest.
using DecodeStep = std::function<Status(PieceOrEnd piece, const PassOn& next)>;

// Creates a step in its initial state. `whole`: the text is needed only after all tokens, so a step
// may wait for them.
using DecodeStepMaker = std::function<DecodeStep(bool whole)>;

// `fused`: an earlier step has joined the tokens to one text. Errors  bad_file: a pattern is
// damaged.
Result<DecodeStepMaker> make_decoder(const steps::Decoder& step, bool fused);
DecodeStepMaker decode_bytes();   // byte-level letters to bytes
DecodeStepMaker decode_spaced();  // for files without a decoder: a space between tokens

// Applies all steps to tokens.
class DecodeChain {
 public:
  DecodeChain(const std::vector<DecodeStepMaker>& makers, bool whole);
  Status push(std::string_view piece, std::string& out);
  Status finish(std::string& out);

 private:
  Status run(size_t step, PieceOrEnd piece, std::string& out);
  std::vector<DecodeStep> steps_;
};

}  // namespace bowline::text
