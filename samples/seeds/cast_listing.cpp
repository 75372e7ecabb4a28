// Compares a linear layer that is cast to bf16 with a layer that is built in bf16. Are they the
// same program? The listings of forward pass, backward pass and update are compared line by line.
//
// The story: weights were cast after their creation, but their metadata stayed f32. So every step
// cast the gradient to f32 and back, in two temporaries of 11,616 bytes (pytorch/xla#3718).
#include <sstream>

#include "seeds.h"

Model linear(DType dtype) {
  Model m;
  const Parameter w = must(m.parameter("w", {66, 44}, Init::ones(), StorageRole::weight, dtype));
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", dtype, {22, 44});
  const Value y = g.op("MatMul", {x, g.parameter(w)}, {{"transpose_b", true}});
  g.output("loss", g.op("ReduceSum", {y}));
  must(g.finish());
  must(m.materialize(1));
  return m;
}

// Number of lines that only one of the listings has.
int differences(const std::string& a, const std::string& b) {
  std::istringstream lines_a(a), lines_b(b);
  std::string x, y;
  int count = 0;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(lines_a, x));
    const bool more_b = static_cast<bool>(std::getline(lines_b, y));
    if (!more_a && !more_b) {
      return count;
    }
    if (!more_a || !more_b || x != y) {
      std::printf("< %s\n> %s\n", more_a ? x.c_str() : "", more_b ? y.c_str() : "");
      ++count;
    }
  }
}

int main(int argc, char** argv) {
  const Device device = must(Device::open(argc > 1 ? argv[1] : "best"));
  Model cast = linear(DType::f32), built = linear(DType::bf16);
  const CastReport report = must(cast.cast(DType::bf16));
  std::printf("cast: %u storage, %llu bytes, then %llu\n", report.storages,
              static_cast<unsigned long long>(report.bytes_before),
              static_cast<unsigned long long>(report.bytes_after));
  must(cast.to(device));
  must(built.to(device));
  TrainOptions options;
  options.optimizer = {"sgd"};
  Trainer a = must(Trainer::create(cast, device, options));
  Trainer b = must(Trainer::create(built, device, options));
  int different = 0;
  for (const char* part : {"forward", "backward", "update"}) {
    const std::string listing = must(a.listing(part));
    std::printf("\n%s\n%s", part, listing.c_str());
    different += differences(listing, must(b.listing(part)));
  }
  std::printf("\nlines that differ from the model that was built in bf16: %d\n", different);
  return different;
}
