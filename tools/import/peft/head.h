// Classification heads: peft stores the whole head beside the factors ("modules_to_save"), a
// Bowline adapter stores a full-rank change.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"
#include "peft/changes.h"
#include "source/source.h"

namespace bowline::peft {

// Name of the transformers module that peft saves whole: "score" in most decoders, "classifier" in
// encoders, and in some decoders that tag words.
std::string_view head_module(const Model& model);

// True if the model classifies texts or tokens.
bool has_class_head(const Model& model);

// True if a parameter, by its Bowline or transformers name, belongs to the head.
bool in_head(const Model& model, std::string_view parameter);

// Returns the parameters of the head in f32, with the change of `from`, by their transformers
// names. Empty if the model has no head.
Result<std::vector<Factor>> head_of(const Model& model, const LowRank& from);

// Returns the change that turns the model's head into the head of a file. Empty if both are equal.
// `tensor.name` is "classifier.weight", "score.weight" or similar.
// Errors  bad_file: the model has no such parameter, or its shape differs.
//         unsupported: the tensor has integers, or the scale of the adapter is 0.
Result<std::optional<Change>> head_change(const Model& model, const import::SourceTensor& tensor,
                                          const LowRank& from);

}  // namespace bowline::peft
