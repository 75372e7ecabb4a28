// Runs `bowline finetune`.
#pragma once

#include "finetune/options.h"

namespace bowline::command {

// Returns the exit code.
Result<int> finetune(const FinetuneOptions& options);

}  // namespace bowline::command
