#include "golden/golden.h"

#include <cmath>
#include <cstring>

#include "model/tied_model.h"
#include "plan/counted_models.h"

namespace bowline::test {
namespace {

struct HostTensors {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Tensor> tensors;
};

// `of` must outlive the result.
HostTensors host_tensors(const std::vector<TensorInfo>& of,
                         std::vector<std::vector<std::byte>> bytes) {
  HostTensors out{std::move(bytes), {}};
  for (size_t i = 0; i < of.size(); ++i) {
    out.tensors.push_back({of[i].name, of[i].dtype, of[i].shape, out.bytes[i].data()});
  }
  return out;
}

// The named dims of the entry point, from the shapes of the inputs.
std::vector<BoundDim> dims_of(const EntryPointInfo& entry, std::span<const Tensor> inputs) {
  std::vector<BoundDim> out;
  for (const InputInfo& input : entry.inputs) {
    for (const Tensor& t : inputs) {
      for (size_t a = 0; t.name == input.name && a < t.shape.size(); ++a) {
        if (!input.dims[a].name.empty()) {
          out.push_back({input.dims[a].name, t.shape[a]});
        }
      }
    }
  }
  return out;
}

Status compare(const Tensor& actual, const Tensor& expected, double tolerance) {
  BOWLINE_REQUIRE(expected.dtype == DType::f32, "Output \"{}\" is not f32.", expected.name);
  const auto* a = static_cast<const float*>(actual.data);
  const auto* e = static_cast<const float*>(expected.data);
  double largest = 0;
  const int64_t n = Shape(expected.shape).elements();
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(e[i])));
  }
  for (int64_t i = 0; i < n; ++i) {
    BOWLINE_REQUIRE(
        std::abs(static_cast<double>(a[i]) - static_cast<double>(e[i])) <= tolerance * largest,
        "Element {} of \"{}\" is {}, not {}.", i, expected.name, a[i], e[i]);
  }
  return {};
}

}  // namespace

Status run_self_tests(const Model& model, const Device& device) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_REQUIRE(!info.self_tests.empty(), "The model has no self test.");
  for (size_t number = 0; number < info.self_tests.size(); ++number) {
    const SelfTestInfo& test = info.self_tests[number];
    BOWLINE_TRY_ASSIGN(SelfTestValues values, model.self_test(number));
    const HostTensors in = host_tensors(test.inputs, std::move(values.inputs));
    const HostTensors expected = host_tensors(test.outputs, values.outputs);
    const HostTensors out = host_tensors(test.outputs, std::move(values.outputs));
    for (size_t i = 0; i < out.tensors.size(); ++i) {
      std::memset(out.tensors[i].data, 0xFF, out.bytes[i].size());
    }
    const auto entry =
        std::ranges::find(info.entry_points, test.entry_point, &EntryPointInfo::name);
    const std::vector<BoundDim> dims = dims_of(*entry, in.tensors);
    BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, test.entry_point, dims));
    BOWLINE_TRY(session.run(in.tensors, out.tensors));
    for (size_t i = 0; i < out.tensors.size(); ++i) {
      BOWLINE_TRY(compare(out.tensors[i], expected.tensors[i],
                          static_cast<double>(test.relative_tolerance)));
    }
  }
  return {};
}

namespace {

// A tensor that owns its data, initially zero.
template <class T>
Tensor make_tensor(GoldenModel& golden, std::string_view name, DType dtype, const Dims& shape,
                   const std::vector<T>& values) {
  auto& data = golden.data.emplace_back(std::make_shared<std::vector<std::byte>>(
      static_cast<size_t>(Shape(shape).elements()) * size_of(dtype)));
  std::memcpy(data->data(), values.data(), values.size() * sizeof(T));
  return {name, dtype, shape, data->data()};
}

Tensor make_output(GoldenModel& golden, std::string_view name, const Dims& shape) {
  return make_tensor<float>(golden, name, DType::f32, shape, {});
}

}  // namespace

GoldenModel golden_tied_lm() {
  GoldenModel golden{make_tied_model(), {}};
  EXPECT_OK(golden.model.materialize(20260101));
  const Ids tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
  golden.cases.push_back({"forward",
                          {{"batch", 3}, {"seq", 4}},
                          {make_tensor(golden, "tokens", DType::i32, {3, 4}, tokens)},
                          {make_output(golden, "logits", {3, 4, 11})}});
  return golden;
}

GoldenModel golden_decoder() {
  GoldenModel golden{with_seq(true, 2), {}, true};
  Model& model = golden.model;
  Decoder layers(model);
  add_prefill(model, layers);
  add_decode(model, layers);
  View transposed;
  transposed.transpose = true;
  const Parameter head = must(model.tied_parameter("head", must(model.find("emb")), transposed));
  GraphBuilder g(model, "halves");
  const Value x = g.op("Cast", {g.input("x", DType::f32, {2, kWidth})}, {{"to", "bf16"}});
  const Value w = g.op("Cast", {g.parameter(head)}, {{"to", "bf16"}});
  const Value product = g.op("Cast", {g.op("MatMul", {x, w})}, {{"to", "f32"}});
  (void)g.op("Split", {product}, {{"axis", 1}, {"sizes", std::vector<GraphDim>{4, 7}}});
  const std::vector<Value> parts = g.last_outputs();
  EXPECT_EQ(parts.size(), 2u);
  const Value turned = g.op("Concat", {parts[1], parts[0]}, {{"axis", 1}});
  g.output("y", g.op("Softplus", {turned}));
  EXPECT_OK(g.finish());
  EXPECT_OK(model.set_metadata("note", "states, counted dims and 16 bits"));
  EXPECT_OK(model.materialize(20261122));
  golden.cases.push_back(
      {"prefill",
       {{"batch", 1}, {"seq", kCapacity}},
       {make_tensor(golden, "ids", DType::i32, {1, 7}, Ids{3, 1, 4, 1, 5, 9, 2})},
       {make_output(golden, "logits", {1, 7, kClasses})}});
  golden.cases.push_back(
      {"halves",
       {},
       {make_tensor(golden, "x", DType::f32, {2, kWidth}, Draw(1).floats(2 * kWidth))},
       {make_output(golden, "y", {2, kClasses})}});
  return golden;
}

}  // namespace bowline::test
