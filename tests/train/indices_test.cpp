// Invalid indices in every operator that reads indices. The call fails with the index and the node,
// the step keeps nothing, and later steps are not affected.
#include <limits>

#include "ties/seed_models.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

constexpr int64_t kRows = 4, kColumns = 3;

// Reads values from the weight [4, 3] by index.
struct Reader {
  const char* name;
  Dims indices;     // shape of the input
  int32_t outside;  // the first invalid index
  bool from_end;    // -outside is a valid index
  Value (*read)(GraphBuilder& g, Value w, Value indices);
};

const Reader kReaders[] = {
    {"Gather",
     {2},
     kRows,
     true,
     [](GraphBuilder& g, Value w, Value i) {
       return g.named("read").op("Gather", {w, i}, {{"axis", 0}});
     }},
    {"Gather",
     {2, 2},
     kColumns,
     true,
     [](GraphBuilder& g, Value w, Value i) {
       return g.named("read").op("Gather", {w, i}, {{"axis", 1}});
     }},
    {"GatherElements",
     {2, kColumns},
     kRows,
     true,
     [](GraphBuilder& g, Value w, Value i) {
       return g.named("read").op("GatherElements", {w, i}, {{"axis", 0}});
     }},
    {"ScatterElements",
     {2, kColumns},
     kRows,
     true,
     [](GraphBuilder& g, Value w, Value i) {
       const Value updates = g.op("Slice", {w}, {{"axis", 0}, {"start", 1}, {"length", 2}});
       const Value data = g.op("Neg", {w});
       return g.named("read").op("ScatterElements", {data, i, updates}, {{"axis", 0}});
     }},
    {"ScatterElements",
     {kRows, 1},
     kColumns,
     true,
     [](GraphBuilder& g, Value w, Value i) {
       const Value updates = g.op("Slice", {w}, {{"axis", 1}, {"start", 0}, {"length", 1}});
       return g.named("read").op("ScatterElements", {w, i, updates},
                                 {{"axis", 1}, {"reduction", "add"}});
     }},
    {"Embedding",
     {5},
     kRows,
     false,
     [](GraphBuilder& g, Value w, Value i) {
       return g.named("read").op("Embedding", {w, i});
     }},
    // Twice as many ids as rows, so that the plan multiplies the table first.
    {"Embedding",
     {2 * kRows},
     kRows,
     false,
     [](GraphBuilder& g, Value w, Value i) {
       const Value x = g.named("read").op("Embedding", {w, i});
       return g.named("multiplied").op("Linear", {x, w});
     }},
    {"CrossEntropy",
     {kRows},
     kColumns,
     false,
     [](GraphBuilder& g, Value w, Value i) {
       return g.named("read").op("CrossEntropy", {w, i});
     }},
    {"CrossEntropy",
     {kRows},
     kColumns,
     false,
     [](GraphBuilder& g, Value w, Value i) {
       return g.named("read").op("CrossEntropy", {w, i},
                                 {{"reduction", "none"}, {"label_smoothing", 0.25}});
     }},
    {"NegativeLogLikelihood",
     {kRows},
     kColumns,
     false,
     [](GraphBuilder& g, Value w, Value i) {
       const Value y = g.op("LogSoftmax", {w});
       return g.named("read").op("NegativeLogLikelihood", {y, i});
     }},
    {"NegativeLogLikelihood",
     {kRows},
     kColumns,
     false,
     [](GraphBuilder& g, Value w, Value i) {
       const Value y = g.op("LogSoftmax", {w});
       return g.named("read").op("NegativeLogLikelihood", {y, i}, {{"reduction", "none"}});
     }},
    {"Attention",
     {1},
     kRows + 1,
     false,
     [](GraphBuilder& g, Value w, Value i) {
       const Value x = g.op("Reshape", {w}, {{"dims", {1, kRows, 1, kColumns}}});
       return g.named("read").op("Attention", {x, x, x, i}, {{"mask", "lengths"}});
     }},
};

// loss = mean(read(w)^2)
struct Indexed {
  Indexed(const Reader& reader, DType dtype) : shape(reader.indices) {
    const Parameter w =
        must(model.parameter("w", {kRows, kColumns}, Init::normal(1), StorageRole::weight, dtype));
    GraphBuilder g(model, "loss");
    const Value indices = g.input("indices", DType::i32, {shape.begin(), shape.end()});
    const Value y = reader.read(g, g.parameter(w), indices);
    g.output("loss", g.op("ReduceMean", {g.op("Mul", {y, y})}));
    EXPECT_OK(g.finish());
    EXPECT_OK(model.materialize(3));
  }

  std::vector<Tensor> batch(int32_t first) {
    size_t n = 1;
    for (const int64_t d : shape) {
      n *= static_cast<size_t>(d);
    }
    numbers.assign(n, 1);
    numbers[n / 2] = 0;
    numbers[n - 1] = first;
    return {tensor("indices", shape, numbers)};
  }

  Model model;
  Dims shape;
  std::vector<int32_t> numbers;
};

class Indices : public OnDevice {};
BOWLINE_ON_ALL_DEVICES(Indices);

// Two steps of two micro-batches. If `bad` is given, it is the first index in the second batch of
// the second step.
void train(const Device& device, const Reader& reader, DType storage, std::optional<DType> compute,
           std::optional<int32_t> bad, std::vector<std::byte>& bytes) {
  Indexed m(reader, storage);
  ASSERT_OK(m.model.to(device));
  TrainOptions o;
  o.accumulation = 2;
  o.schedule.learning_rate = 0.05f;
  o.precision.compute_dtype = compute;
  Trainer t = must(Trainer::create(m.model, device, o));
  must(t.micro_step(m.batch(2)));
  must(t.micro_step(m.batch(1)));
  const auto before = all_bytes(m.model);
  must(t.micro_step(m.batch(0)));
  if (bad) {
    const Status refused = t.micro_step(m.batch(*bad)).status();
    EXPECT_EQ(refused.code(), Code::index_out_of_range) << refused.message();
    EXPECT_NE(refused.message().find(format("\"read\" ({})", reader.name)), std::string::npos)
        << refused.message();
    EXPECT_NE(refused.message().find(format("{} ", *bad)), std::string::npos) << refused.message();
    EXPECT_EQ(t.state(), TrainState::ready);
    EXPECT_EQ(t.accumulated(), 0u) << "the step begins anew";
    EXPECT_EQ(t.evaluate(m.batch(*bad)).status().code(), Code::index_out_of_range);
    must(t.micro_step(m.batch(0)));
  }
  must(t.micro_step(m.batch(reader.from_end ? -1 : 1)));
  bytes = all_bytes(m.model);
  EXPECT_NE(bytes, before);
}

TEST_P(Indices, OutsideLeaveNoTrace) {
  constexpr DType kF32 = DType::f32;
  const std::pair<DType, std::optional<DType>> precisions[] = {
      {kF32, {}}, {DType::bf16, {}}, {DType::f16, {}}, {kF32, DType::bf16}, {kF32, DType::f16}};
  for (const Reader& reader : kReaders) {
    for (const auto& [storage, compute] : precisions) {
      SCOPED_TRACE(format("{} of indices {}, {} in {}", reader.name, reader.outside, storage,
                          compute.value_or(storage)));
      std::vector<std::byte> right, after;
      train(device_, reader, storage, compute, {}, right);
      const int32_t below = reader.from_end ? -reader.outside - 1 : -1;
      for (const int32_t bad : {reader.outside, below, std::numeric_limits<int32_t>::max(),
                                std::numeric_limits<int32_t>::min()}) {
        train(device_, reader, storage, compute, bad, after);
        EXPECT_EQ(after, right) << bad;
        if (HasFailure()) {
          return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace bowline::test
