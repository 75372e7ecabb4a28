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
struct FinetuneOptions : DataOptions {
  std::string model;
  std::string out;
  std::string log;
  std::string tensorboard;
  std::string report;
  std::string checkpoint;
  std::string resume = "none";
  DeviceFlags device;
  std::string schedule = "cosine";  // the number of steps is known here
  std::string optimizer = Optimizer{}.name;
  std::string keep = "last";
  std::string on_nonfinite = kOnNonFinite[static_cast<size_t>(TrainOptions{}.on_nonfinite)];
  std::string output = "text";
  uint64_t steps = 200;
  uint64_t warmup = Schedule{}.warmup_steps;
  double epochs = 0;  // 0: `steps` determines the length of the run
  uint64_t eval_every = 0;
  uint64_t patience = 0;
  uint64_t save_every = 0;
  uint64_t save_every_batches = 0;
  uint32_t accumulate = TrainOptions{}.accumulation;
  float learning_rate = Schedule{}.learning_rate;
  float head_learning_rate = -1;  // negative: the same as learning_rate
  float final_fraction = Schedule{}.final_fraction;
  float weight_decay = 0.01f;
  // The other settings of the optimizer, if they were given.
  decltype(Optimizer::settings) settings;
  std::vector<std::string> freeze;  // patterns over parameters
  // 0: trains the weights, without an adapter.
  int64_t lora_rank = 0;
  float lora_alpha = AdapterOptions{}.alpha;
  float lora_scale = 0;  // 0: lora_alpha is used
  float lora_dropout = AdapterOptions{}.dropout;
  std::string lora_target = AdapterOptions{}.target;
  std::string encoding;  // of the frozen weights; empty: as in the file
  float clip = TrainOptions{}.clip_norm;
  std::string compute = "f32";
  float loss_scale = TrainPrecision{}.loss_scale;
  bool force = false;
  bool extend = false;
  bool with_training_state = false;
  bool dry_run = false;
  FlagUses optimizer_uses;  // which flags are for which optimizers
};

}  // namespace bowline::command
