// How many values of a model a training changes.
#pragma once

#include <cstdint>

#include "bowline.h"

namespace bowline::command {

// How many values the storage has.
uint64_t elements_of(const StorageInfo& storage);

// A Trainer updates the storage.
bool is_trained(const StorageInfo& storage);

struct TrainedValues {
  uint64_t values = 0;  // that a training changes
  uint64_t all = 0;     // of weights, statistics and adapters; a shared weight counts once
};
TrainedValues trained_values(const ModelInfo& info);

// Errors  bad_argument: weights are quantized, and what is left to train is no weight matrix but
//         norms, biases and embeddings.
Status require_weights_to_train(const ModelInfo& info);

}  // namespace bowline::command
