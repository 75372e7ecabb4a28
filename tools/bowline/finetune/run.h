// One run of `bowline finetune`: text in, tuned model out.
#pragma once

#include <cstdint>
#include <string>

#include "bowline.h"

namespace bowline::command {

struct FinetuneOptions {
  std::string model;
  std::string data;
  std::string valid;  // empty: the last 10 percent of the data
  std::string out;
  std::string log;
  std::string checkpoint;
  std::string resume = "none";
  std::string device = "best";
  std::string schedule = "cosine";
  std::string optimizer = "adamw";
  std::string output = "text";
  uint64_t steps = 200;
  uint64_t warmup = 0;
  uint64_t seed = 1;
  uint64_t eval_every = 0;
  uint64_t eval_batches = 0;
  uint64_t save_every = 0;
  uint64_t save_every_batches = 0;
  int64_t batch = 8;
  int64_t seq = 256;
  int64_t eval_stride = 0;
  uint32_t accumulate = 1;
  float learning_rate = 1e-3f;
  float final_fraction = 0.1f;
  float weight_decay = 0.1f;
  float beta2 = 0.95f;
  float momentum = 0;
  float clip = 1;
  int threads = 0;
  bool dry_run = false;
};

// The exit code.
int finetune(const FinetuneOptions& options);

}  // namespace bowline::command
