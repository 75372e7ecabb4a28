// The flags of `bowline finetune`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "bowline.h"
#include "tasks/task.h"
#include "verb.h"

namespace bowline::command {

constexpr std::array kOnNonFinite = {"skip", "stop", "rollback"};  // by OnNonFinite

// Defaults are the same as in the library where the library has one.
struct FinetuneOptions : DataOptions, ModelOptions {
  FinetuneOptions() { train.optimizer.settings["weight_decay"] = 0.01f; }

  std::string out;
  std::string log;
  std::string tensorboard;
  std::string report;
  std::string checkpoint;
  std::string resume = "none";
  // The options of the library that have a flag. train_options() adds the others.
  TrainOptions train;
  std::string schedule = "cosine";  // the number of steps is known here
  std::string keep = "last";
  std::string on_nonfinite = kOnNonFinite[static_cast<size_t>(TrainOptions{}.on_nonfinite)];
  uint64_t steps = 200;
  double epochs = 0;  // 0: `steps` determines the length of the run
  uint64_t eval_every = 0;
  uint64_t patience = 0;
  uint64_t save_every = 0;
  uint64_t save_every_batches = 0;
  float head_learning_rate = -1;      // negative: the same as the learning rate
  std::vector<std::string> freeze;    // patterns over parameters
  AdapterOptions lora = {.rank = 0};  // rank 0: trains the weights, without an adapter
  float lora_scale = 0;               // 0: lora.alpha is used
  std::string encoding;               // of the frozen weights; empty: as in the file
  std::string compute = "f32";
  bool force = false;
  bool extend = false;
  bool with_training_state = false;
  bool dry_run = false;
  bool fast_reduce = false;
  double process_timeout = 600;  // seconds
  bool is_first = true;          // of the processes of mpirun; the others write no files
  FlagUses optimizer_uses;       // which flags are for which optimizers
};

}  // namespace bowline::command
