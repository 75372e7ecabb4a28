// Counts the values of a model that training changes.
#pragma once

#include <cstdint>

#include "bowline.h"

namespace bowline::command {

// Number of values in a storage.
uint64_t elements_of(const StorageInfo& storage);

// True if a Trainer updates the storage.
bool is_trained(const StorageInfo& storage);

struct TrainedValues {
  uint64_t values = 0;  // values that training changes
  uint64_t all = 0;     // all values, without caches and training state; tied weights count once
};
TrainedValues trained_values(const ModelInfo& info);

// Errors  bad_argument: weights are quantized, and only norms, biases and embeddings are left to
//         train.
Status require_weights_to_train(const ModelInfo& info);

}  // namespace bowline::command
