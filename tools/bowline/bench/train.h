// `bowline bench train`: time and memory of a training step.
#pragma once

#include <cstdint>
#include <string>

#include "bowline.h"

namespace bowline::command {

struct BenchTrainOptions {
  std::string model;
  std::string device = "best";
  std::string format = "text";
  std::string tokens;
  std::string dump_losses;
  std::string save_model;
  std::string compute = "f32";
  std::string encoding;  // of the weights under an adapter; empty: as the file has it
  std::string lora_target = AdapterOptions{}.target;
  int64_t lora_rank = 0;  // 0: the weights are trained
  int64_t batch = 8;
  int64_t seq = 256;
  uint64_t steps = 0;
  uint64_t memory_budget = 0;
  int threads = 0;
  bool no_floor = false;
};

// The exit code.
Result<int> bench_train(const BenchTrainOptions& options);

}  // namespace bowline::command
