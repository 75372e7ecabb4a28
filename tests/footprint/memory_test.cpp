// Compares predicted memory with memory that is counted independently of the plan: by an allocator
// and the resident set on the CPU, by driver allocations on Vulkan. A prediction covers memory of
// the device. Host memory also has the batch, whose size is known, and graph and plan, about 0.2 MB
// here.
#include <malloc.h>

#include <fstream>

#include "footprint/counted.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

constexpr double kClose = 0.02;

TinyLm large_lm() {
  TinyLm lm = tiny_lm(2);
  lm.batch = 64;
  lm.seq = 128;
  return lm;
}

struct Taken {
  uint64_t predicted = 0;
  uint64_t batch = 0;  // in host memory
};

uint64_t batch_bytes(const TinyLm& lm) {
  return (lm.tokens.size() + lm.labels.size()) * sizeof(int32_t);
}

Taken train(const Device& device) {
  TinyLm lm = large_lm();
  EXPECT_OK(lm.model.to(device));
  Trainer t = must(Trainer::create(lm.model, device, adamw(lm)));
  must(train_step(t, lm, 0));
  must(train_step(t, lm, 1));
  return {t.memory().predicted_bytes, batch_bytes(lm)};
}

Taken run(const Device& device) {
  TinyLm lm = large_lm();
  lm.batch = 256;  // the host memory for graph and plan is small in comparison
  EXPECT_OK(lm.model.to(device));
  const std::vector<BoundDim> dims = lm.dims();
  Session session = must(Session::create(lm.model, device, "loss", dims));
  float loss = 0;
  const Dims scalar = {};
  Tensor output;
  output.name = "loss";
  output.shape = scalar;
  output.data = &loss;
  EXPECT_OK(session.run(lm.data(0), std::span(&output, 1)));
  EXPECT_GT(loss, 1);
  return {session.memory().predicted_bytes, batch_bytes(lm)};
}

void expect_predicted(Counted& counted, const Device& device, bool counts_batch) {
  for (const auto work : {&train, &run}) {
    const int64_t before = counted.live;
    counted.reset();
    const Taken taken = work(device);
    const auto predicted = static_cast<double>(taken.predicted);
    EXPECT_GT(predicted, 1e7);
    EXPECT_NEAR(static_cast<double>(counted.peak - before),
                predicted + static_cast<double>(counts_batch ? taken.batch : 0),
                kClose * predicted);
    EXPECT_LE(counted.live - before, 0.001 * predicted) << "given back";
  }
}

TEST(Memory, OfTheCpuIsThatOfTheAllocator) {
  expect_predicted(counted_host(), open_test_device("cpu"), true);
}

TEST(Memory, OfVulkanIsThatOfTheDriver) {
  BOWLINE_NEED(why_missing("vulkan:0"));
  expect_predicted(counted_vulkan(), open_test_device("vulkan:0"), false);
}

// As on a GPU whose memory is not host memory.
TEST(Memory, OfVulkanCountsWhatCopiesAreStagedIn) {
  BOWLINE_NEED(why_missing("vulkan:0"));
  Counted& counted = counted_vulkan();
  const auto predicted_and_counted = [&](bool staged) {
    if (staged) {
      setenv("BOWLINE_VULKAN_STAGE_COPIES", "1", 1);
    }
    const Device device = must(Device::open("vulkan:0"));
    unsetenv("BOWLINE_VULKAN_STAGE_COPIES");
    const int64_t before = counted.live;
    counted.reset();
    const auto predicted = static_cast<int64_t>(train(device).predicted);
    return std::pair(predicted, counted.peak - before);
  };
  const auto mapped = predicted_and_counted(false);
  const auto staged = predicted_and_counted(true);
  constexpr int64_t kStaging = 4 << 20;
  EXPECT_EQ(staged.first - mapped.first, kStaging);
  EXPECT_EQ(staged.second - mapped.second, kStaging);
}

uint64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == key + ":") {
      uint64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

TEST(Memory, OfTheCpuIsTheResidentSet) {
  const Device device = open_test_device("cpu");
  (void)train(device);  // keeps code, threads and a heap
#ifdef __GLIBC__
  malloc_trim(0);  // but not freed memory, which the second run would use
#endif
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const uint64_t before = status_bytes("VmRSS");
  const Taken taken = train(device);
  const auto predicted = static_cast<double>(taken.predicted);
  const auto resident = static_cast<double>(status_bytes("VmHWM") - before);
  EXPECT_NEAR(resident, predicted + static_cast<double>(taken.batch), kClose * predicted);
}

// An embedding and a head of 65536 x 256 that share a weight, read for 8 tokens. "forward" returns
// the logits. `transposed`: MatMul reads the head as a view.
Model large_tie(bool transposed) {
  Model m;
  const Parameter embedding = must(m.parameter("embed", Dims{65536, 256}, Init::normal(1)));
  View view;
  view.transpose = transposed;
  const Parameter head = must(m.tied_parameter("head", embedding, view));
  GraphBuilder g(m, "forward");
  const Value x = g.op("Embedding", {g.parameter(embedding), g.input("tokens", DType::i32, {8})});
  g.output("logits", g.op(transposed ? "MatMul" : "Linear", {x, g.parameter(head)}));
  must(g.finish());
  must(m.materialize(1));
  return m;
}

struct Forward {
  std::vector<int32_t> ids = {0, 1, 2, 3, 4, 5, 65534, 65535};
  Floats logits = Floats(size_t{8} * 65536);
  uint64_t logits_bytes() const { return logits.size() * sizeof(float); }
  void run(Session& session) {
    const Dims eight = {8}, shape = {8, 65536};
    const Tensor in[] = {tensor("tokens", eight, ids)};
    const Tensor out[] = {tensor("logits", shape, logits)};
    EXPECT_OK(session.run(in, out));
  }
};

// No second copy and no converted copy: 64 MiB in f32, 16 MiB in int8, plus the needs of a plan of
// this size.
TEST(Memory, OfALargeTieIsThatOfOneWeight) {
  const Device device = open_test_device("cpu", 2);
  for (const bool transposed : {false, true}) {
    for (const bool codes : {false, true}) {
      Model m = large_tie(transposed);
      if (codes) {
        ASSERT_EQ(must(quantize(m, "int8")).storages, 1u);
      }
      ASSERT_OK(m.to(device));
      Forward forward;
#ifdef __GLIBC__
      malloc_trim(0);
#endif
      std::ofstream("/proc/self/clear_refs") << "5";
      const uint64_t before = status_bytes("VmRSS");
      Session session = must(Session::create(m, device, "forward", {}));
      forward.run(session);
      const uint64_t grown = status_bytes("VmHWM") - before;
      EXPECT_LE(weight_bytes(m) + grown - forward.logits_bytes(), uint64_t{codes ? 18u : 70u} << 20)
          << (transposed ? "transposed, " : "") << weight_bytes(m) << " + " << grown;
    }
  }
}

TEST(Memory, OfALargeTieOnVulkanIsThatOfOneWeight) {
  BOWLINE_NEED(why_missing("vulkan:0"));
  const Device device = open_test_device("vulkan:0");
  for (const bool transposed : {false, true}) {
    Model m = large_tie(transposed);
    ASSERT_OK(m.to(device));
    Counted& counted = counted_vulkan();
    const int64_t begin = counted.live;
    counted.reset();
    Forward forward;
    Session session = must(Session::create(m, device, "forward", {}));
    forward.run(session);
    const auto taken = static_cast<uint64_t>(counted.peak - begin) + weight_bytes(m);
    EXPECT_LE(static_cast<double>(taken - forward.logits_bytes()),
              1.05 * static_cast<double>(weight_bytes(m)))
        << (transposed ? "transposed, " : "") << taken;
  }
}

}  // namespace
}  // namespace bowline::test
