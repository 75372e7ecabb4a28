// The training options of a run, and the options that its checkpoints store.
#pragma once

#include "common/checkpoints.h"
#include "finetune/options.h"

namespace bowline::command {

// Name of the trained adapter.
constexpr std::string_view kAdapter = "lora";
AdapterOptions adapter_options(const FinetuneOptions& o);

TrainOptions train_options(const FinetuneOptions& options, const Task& task);
// Converts --epochs to steps, rounded up.
uint64_t steps_of(double epochs, const FinetuneOptions& options, const Task& task);

// Key of the first entry in a checkpoint's config that is not from run_config().
constexpr std::string_view kDevice = "device";
// Returns the settings that must be equal for a resumed run to continue bit for bit.
Config run_config(const FinetuneOptions& options, const Task& task);
// Returns a hash of the config (without the number of steps) and the model at the start of the run.
Result<std::string> run_id(const Config& config, const Model& model);

// Checks that a checkpoint with the config `saved` belongs to the run `config`. The number of steps
// may differ.
// Errors  bad_file: a setting or the data differs; the message names it.
Status check_same_run(const std::string& path, const Config& saved, const Config& config);
// Errors  bad_argument: the checkpoint's `step` is after the last of `steps` steps.
Status check_steps(const std::string& path, uint64_t step, uint64_t steps);
// Explains why the library rejected a checkpoint, if the number of steps is the reason.
// Errors  bad_argument: the message names --steps or --extend.
Status explain_steps(const std::string& path, const SavedRun& saved,
                     const FinetuneOptions& options);

}  // namespace bowline::command
