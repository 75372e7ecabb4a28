// The step scalars (runtime/device/program.h): they change from step to step and are never baked in.
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Step {
  uint error;
  uint error_node;
  int error_value;
  uint non_finite;
  float grad_norm;
  uint accumulate;
  uint training;
  uint seed[2];
  uint counter;
  float learning_rate;
  float gradient_scale;
  float bias_correction1;
  float bias_correction2;
  uint first_update;
  float accumulate_factor;
  uint weights_non_finite;
};

const uint kIndexOutOfRange = 1;
