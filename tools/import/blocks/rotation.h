// Rotary settings of a config: how the angles of Rope depend on positions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "source/json.h"

namespace bowline::import {

// The attributes of Rope, and the factor of its result.
struct Rotation {
  double base = 10000;
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_length = 8192;
  int64_t dims = 0;  // rotated channels of a head; 0: all
  bool interleaved = false;
  // (optional) Radians per position of each pair of channels, instead of the fields from `base` to
  // `original_length`.
  std::vector<double> frequencies;
  // Factor of the rotated channels of queries and keys. So it enters a score twice.
  double attention_factor = 1;
  // Length in tokens up to which the config defines this rotation. 0: any length.
  int64_t limit = 0;
  std::string_view kind = "default";  // as in a config
  bool operator==(const Rotation&) const = default;
  // True if attention_factor changes all channels, and so is a factor of the scores.
  bool scales_all() const { return attention_factor != 1 && dims == 0; }
};

// What an architecture says about its rotation, beside the config.
struct RotaryForm {
  double theta = 10000;  // default of "rope_theta"
  // (optional) Older names of "rope_theta" and "partial_rotary_factor".
  std::string_view older_theta_key = {}, older_partial_key = {};
  // Default of "partial_rotary_factor". 0: the architecture rotates whole heads and does not have
  // the key.
  double partial = 0;
  int64_t dims = 0;  // rotated channels of a head, if the architecture states their number; or 0
  bool interleaved = false;
  // (optional) The key of the base of layers with a sliding window in configs of transformers 4.
  // Scalings do not change these layers.
  std::string_view local_theta_key = {};
  double local_theta = 10000;  // its default
  // (optional) Other names of "longrope", separated by spaces.
  std::string_view longrope_names = {};
  // Default of "original_max_position_embeddings". 0: the context length.
  int64_t original = 0;
  // transformers scales late queries by "llama_4_scaling_beta", which is required. The import does
  // not scale: unless it is 0, the context ends at "original_max_position_embeddings".
  bool scales_late_queries = false;
  // "dynamic" can have a factor "alpha", which changes the base for texts of any length.
  bool has_alpha = false;
};

struct RotarySizes {
  int64_t head_dim = 0;
  int64_t context = 0;
};

// Reads the rotation of the layers with a type ("full_attention"), from the keys of transformers 4
// (rope_theta, rope_scaling) or 5 (rope_parameters, flat or with an entry per layer type).
// Errors  bad_file: a value is missing or out of range.
//         unsupported: the kind of rotation is not supported, a key is unknown, or two keys
//         contradict each other.
Result<Rotation> rotation_of(Fields& config, const RotaryForm& form, const RotarySizes& sizes,
                             std::string_view layer_type);

}  // namespace bowline::import
