// Checks the flags of a run before any file is read.
#pragma once

#include "finetune/options.h"

namespace bowline::command {

// Errors  bad_argument: flags contradict each other, or two flags name the same file.
Status check_options(const FinetuneOptions& options);

}  // namespace bowline::command
