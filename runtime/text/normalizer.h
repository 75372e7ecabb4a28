// Normalizers of tokenizer.json: rewrite text before it is split.
#pragma once

#include <functional>
#include <memory>

#include "text/aligned.h"
#include "text/pattern.h"

namespace bowline::text {

using Normalizer = std::function<Status(AlignedText&)>;

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };

Normalizer normal_form(NormalForm form);
Normalizer lowercase();
Normalizer strip_accents();  // removes marks
Normalizer strip(bool left, bool right);
Normalizer nmt();
Normalizer prepend(std::string text);
Normalizer replace(Pattern pattern, std::string content);
Normalizer map_bytes();  // each byte becomes its letter (byte_level.h)

struct BertRules {
  bool clean_text = true;
  bool cjk = true;  // adds spaces around ideographs
  bool strip_accents = true;
  bool lowercase = true;
};
Normalizer bert(const BertRules& rules);

// The `precompiled_charsmap` of SentencePiece: a double array and the replacement texts. Errors
// bad_file.
Result<Normalizer> precompiled(std::string_view charsmap);

}  // namespace bowline::text
