// The head of a classifier, which peft keeps whole beside the factors ("modules_to_save") and an
// adapter of Bowline changes wholly.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"
#include "peft/changes.h"
#include "source/source.h"

namespace bowline::peft {

// What modules of transformers end in that peft keeps.
inline constexpr std::string_view kHeadModule = "classifier";

// Whether a parameter, by the name of Bowline or of transformers, belongs to such a module.
bool in_head(const Model& model, std::string_view parameter);

// Its parameters by the names of transformers, in f32, with what `from` adds to them. Empty: the
// model has none.
Result<std::vector<Factor>> head_of(const Model& model, const LowRank& from);

// What makes the model's values those of a file. None: they are. `tensor.name` is
// "classifier.weight". Errors  bad_file: the model has no
// such parameter, or one of another shape. unsupported: it is of integers, or the changes are
// multiplied by 0.
Result<std::optional<Change>> head_change(const Model& model, const import::SourceTensor& tensor,
                                          const LowRank& from);

}  // namespace bowline::peft
