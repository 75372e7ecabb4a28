// What a run is: its training options, and what of them a checkpoint remembers.
#pragma once

#include "common/checkpoints.h"
#include "finetune/options.h"

namespace bowline::command {

// The adapter that is trained instead of the weights.
constexpr std::string_view kAdapter = "lora";
AdapterOptions adapter_options(const FinetuneOptions& o);

TrainOptions train_options(const FinetuneOptions& options, const Task& task);
// How many steps show the data as often as --epochs says.
uint64_t steps_of(double epochs, const FinetuneOptions& options, const Task& task);

// The first entry of a checkpoint behind those of run_config().
constexpr std::string_view kDevice = "device";
// What must be the same for a run to go on bit for bit.
Config run_config(const FinetuneOptions& options, const Task& task);
// Tells runs apart that begin with another model or have another config; the number of steps may
// change.
Result<std::string> run_id(const Config& config, const Model& model);

// The checkpoint "path" with the config `saved` belongs to the run `config`, but for its number of
// steps.
// Errors  bad_file: what differs, as a sentence.
Status check_same_run(const std::string& path, const Config& saved, const Config& config);
// It is not beyond the last of `steps` steps.
Status check_steps(const std::string& path, uint64_t step, uint64_t steps);
// The library has refused it: whether that is for its number of steps, in the words of the flags.
Status explain_steps(const std::string& path, const SavedRun& saved,
                     const FinetuneOptions& options);

}  // namespace bowline::command
