// Normalizers of tokenizer.json: rewrite text before it is split.
#pragma once

#include <functional>

#include "text/aligned.h"
#include "text/description.h"
#include "text/pattern.h"

namespace bowline::text {

using Normalizer = std::function<Status(AlignedText&)>;

// Errors  bad_file: a pattern or a map of characters is damaged.
Result<Normalizer> make_normalizer(const steps::Normalizer& step);

// Normalizers that pre-tokenizers use.
Normalizer prepend(std::string text);
Normalizer replace(Pattern pattern, std::string content);
Normalizer map_bytes();  // each byte becomes its letter (byte_level.h)

}  // namespace bowline::text
