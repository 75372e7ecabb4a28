// What is wrong with the flags of a run, before anything is read.
#pragma once

#include "finetune/options.h"

namespace bowline::command {

// Errors  bad_argument: flags that do not go together, or two of them that name one file.
Status check_options(const FinetuneOptions& options);

}  // namespace bowline::command
