// The floor of a measurement: the time that the machine's own rates allow.
//
//   F   operations per second of the fastest matrix product in the dtype computed in, measured in
//       the same run
//   BW  bytes per second that an elementwise operator reads and writes, measured in the same run
#pragma once

#include <string>

#include "bowline.h"

namespace bowline::command {

struct Machine {
  double flops = 0;      // F, 1/s
  double bandwidth = 0;  // BW, B/s
  std::string source;    // what they were measured with
};

// The median of `runs` timed calls after `warmup` ones, in seconds.
Result<double> median_seconds(int runs, int warmup, const std::function<Status()>& call);

// A model of one matrix product y = a b with weights a and b on a device, all in `dtype`. Layout
// nt: b is
// transposed, tn: a is. `encoding`: how b is stored, as quantize() takes it; empty: plain.
class Product {
 public:
  static Result<Product> create(const Device& device, int64_t m, int64_t n, int64_t k,
                                const std::string& layout, DType dtype = DType::f32,
                                const std::string& encoding = {});
  Status run() { return session_->run({}, {}); }
  // Of b as it is stored.
  uint64_t b_bytes() const { return b_bytes_; }

 private:
  Product() = default;
  uint64_t b_bytes_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Session> session_;
};

// An operator reads and writes `stream_bytes`; the products are in `dtype`.
Result<Machine> measure_machine(const Device& device, uint64_t stream_bytes,
                                DType dtype = DType::f32);

// Work of one training step with AdamW, from the records of its forward part.
struct Work {
  double flops =
      0;  // matrix products forward, by inputs and by weights; causal attention counted by half
  double activation_bytes = 0;  // read and written once with ideal fusion
  double optimizer_bytes = 0;   // weights, gradients, moments
};
Work training_work(const ModelInfo& model, const PlanInfo& plan);

}  // namespace bowline::command
