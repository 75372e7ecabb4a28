// One run of `bowline finetune`: text in, tuned model out.
#pragma once

#include "finetune/options.h"

namespace bowline::command {

// The exit code.
int finetune(const FinetuneOptions& options);

}  // namespace bowline::command
