// The flags of `bowline finetune` for the settings of optimizers(). Optimizers with the same
// setting share its flag.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "finetune/options.h"

namespace bowline::command {

// Returns the flag of a setting: "beta2-decay" for beta2_decay.
std::string optimizer_flag(std::string_view setting);

// Adds --optimizer and the flags of the settings that not all optimizers have. The flags write to
// `o`, which must outlive the verb.
void add_optimizer_flags(CLI::App* verb, FinetuneOptions& o);

// Errors  bad_argument: a flag was given that the optimizer does not have.
Status check_optimizer_flags(const FinetuneOptions& o);

}  // namespace bowline::command
