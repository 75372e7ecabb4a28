// The tokenizer of a model, and where it cuts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// The ids of a text; with `special_tokens` also what the tokenizer adds. At most `most`, 0: any
// number.
using Encode = std::function<Result<std::vector<int32_t>>(std::string_view text,
                                                          bool special_tokens, size_t most)>;

// One id per byte, and nothing else is known of the text.
bool reads_bytes(const Model& model);
// Errors  those of tokenizer_of().
Result<Encode> encoder_of(const Model& model);

// What pads rows: the metadata `pad_token_id`, else 0.
int32_t padding_of(const Model& model);
// The first of the metadata `eos_token_ids`.
std::optional<int32_t> end_of_text(const Model& model);

// Where rows are cut, and why.
struct LengthLimit {
  int64_t tokens = 0;
  std::string reason;  // "--max-seq-length", "the model's max_tokens"
};
// The least of `flag` (0: not given), `otherwise` where that is not given either, and what the
// model can take.
LengthLimit length_limit(const Model& model, int64_t flag, int64_t otherwise);

// A number of the metadata; none if there is no such entry, or it is none.
std::optional<int64_t> metadata_number(const Model& model, std::string_view key);

}  // namespace bowline::command
