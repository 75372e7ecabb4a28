// The flags of `bowline finetune` for the settings of optimizers(): one flag for each setting,
// whichever optimizers have it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "finetune/options.h"

namespace bowline::command {

// "beta2-decay" of beta2_decay.
std::string optimizer_flag(std::string_view setting);

// Adds --optimizer and the flags of the settings that not all optimizers have. Values go into `o`,
// which lives as long as the verb.
void add_optimizer_flags(CLI::App* verb, FinetuneOptions& o);

// Errors  bad_argument: a flag was given that the optimizer does not have.
Status check_optimizer_flags(const FinetuneOptions& o);

}  // namespace bowline::command
