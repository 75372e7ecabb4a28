// The floor of a measurement: the shortest time that the measured rates of the machine allow.
//
//   F   operations per second of the fastest matrix product in the compute dtype
//   BW  bytes per second that an elementwise operator reads and writes
//
// Both are measured in the same run.
#pragma once

#include <optional>
#include <string>

#include "bowline.h"

namespace bowline::command {

struct Machine {
  double flops = 0;      // F, 1/s
  double bandwidth = 0;  // BW, B/s
  std::string source;    // how the rates were measured, for the report
};

// A model with one matrix product y = a b on a device. a and b are weights of `dtype`.
// `layout`: "nt": b is stored transposed; "tn": a is; any other value: neither.
// `encoding`: encoding of b for quantize(). Empty: b is not quantized.
class Product {
 public:
  static Result<Product> create(const Device& device, int64_t m, int64_t n, int64_t k,
                                const std::string& layout, DType dtype = DType::f32,
                                const std::string& encoding = {});
  // Median time of one product, in seconds: wall time on the CPU, kernel time on a GPU.
  Result<double> seconds(int runs, int warmup);
  // Bytes of b in its encoding.
  uint64_t b_bytes() const { return b_bytes_; }

 private:
  Product() = default;
  uint64_t b_bytes_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Session> session_;
  std::optional<Device> device_;
};

// Measures F with products in `dtype`, and BW with an operator over `stream_bytes` bytes.
Result<Machine> measure_machine(const Device& device, uint64_t stream_bytes,
                                DType dtype = DType::f32);

// Minimum work of a training step with AdamW, computed from the records of the forward pass.
struct Work {
  // Matrix products of the forward pass and of both gradients. Causal attention counts half.
  double flops = 0;
  double activation_bytes = 0;  // read and written with ideal fusion
  double optimizer_bytes = 0;   // weights, gradients and moments
};
Work training_work(const ModelInfo& model, const PlanInfo& plan);

}  // namespace bowline::command
