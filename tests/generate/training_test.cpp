// A model that generates and trains at the same time, with one copy of the weights.
#include "bowline_text.h"
#include "generate/decoder_model.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using text::Generator;
using Ids = std::vector<int32_t>;

class Served : public OnDevice {
 protected:
  static TrainOptions options() {
    TrainOptions o;
    o.dims = {{"batch", 1}, {"seq", 8}};
    o.schedule.learning_rate = 0.05f;
    return o;
  }
  Status train(Trainer& trainer) {
    Ids tokens = {1, 2, 3, 4, 5, 6, 7, 8}, labels = {2, 3, 4, 5, 6, 7, 8, 9};
    const Tensor batch[] = {tensor("tokens", {1, 8}, tokens), tensor("labels", {1, 8}, labels)};
    return trainer.micro_step(batch).status();
  }
  Floats logits(const Model& model, Ids text) {
    const auto n = static_cast<int64_t>(text.size());
    Session s = must(Session::create(model, device_, "forward",
                                     std::vector<BoundDim>{{"batch", 1}, {"seq", n}}));
    Floats out(static_cast<size_t>(n) * 300);
    const Tensor in = tensor("tokens", {1, n}, text), to = tensor("logits", {1, n, 300}, out);
    must(s.run({&in, 1}, {&to, 1}));
    return Floats(out.end() - 300, out.end());
  }
};

TEST_P(Served, TheNextTokenComesFromTheNewWeights) {
  Model model = decoder_model();
  ASSERT_OK(model.to(device_));
  Generator g = must(Generator::create(model, device_, {.context = 64}));
  Trainer trainer = must(Trainer::create(model, device_, options()));
  const Ids prompt = {1, 2, 3, 4};
  const auto next = [&] {
    EXPECT_OK(g.rewind(0));
    EXPECT_OK(g.feed(prompt));
    return must(g.next());
  };
  const int32_t before = next();
  const Counters begin = g.counters();
  for (int i = 0; i < 12; ++i) {
    ASSERT_OK(train(trainer));
    const Floats now = logits(model, prompt);
    EXPECT_EQ(next(), std::ranges::max_element(now) - now.begin()) << i;
  }
  EXPECT_NE(before, 5);
  EXPECT_EQ(next(), 5);  // the model was trained to count
  EXPECT_EQ(g.counters().plan_builds, begin.plan_builds);
  EXPECT_EQ(g.counters().recordings, begin.recordings);
}

// A device has one copy of the weights, for any number of readers.
TEST_P(Served, TheBaseIsThereOnce) {
  DecoderShape shape;
  shape.width = 128;
  shape.ffn = 512;
  shape.vocabulary = 300;
  Model model = decoder_model(shape);
  ASSERT_OK(model.to(device_));
  const uint64_t base = device_.counters().live_bytes;
  Generator g = must(Generator::create(model, device_, {.context = 32, .prefill_chunks = {8}}));
  const uint64_t serving = device_.counters().live_bytes - base;
  Trainer trainer = must(Trainer::create(model, device_, options()));
  const uint64_t both = device_.counters().live_bytes;
  ASSERT_OK(train(trainer));
  ASSERT_OK(g.feed(Ids{1, 2, 3}));
  ASSERT_OK(g.next());
  EXPECT_EQ(device_.counters().live_bytes, both);
  const MemoryReport generating = g.memory();
  const uint64_t cache = 2 * 3 * 32 * 2 * 32 * sizeof(float);
  const uint64_t slack = 64 * 1024;  // alignment, and tables of the backend
  EXPECT_LE(serving, cache + generating.arena_bytes + generating.io_bytes +
                         generating.backend_bytes + slack);
  // Weights, gradients and two moments.
  const MemoryReport training = trainer.memory();
  EXPECT_LE(both, base + cache + 3 * base + training.arena_bytes + training.io_bytes +
                      training.backend_bytes + generating.arena_bytes + generating.io_bytes +
                      generating.backend_bytes + slack);
  EXPECT_GT(base, 4 * slack);
}

BOWLINE_ON_ALL_DEVICES(Served);

}  // namespace
}  // namespace bowline::test
