#include "golden/golden.h"

#include <cmath>
#include <cstring>

#include "model/tied_model.h"

namespace bowline::test {
namespace {

struct HostTensors {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Tensor> tensors;
};

// `of` outlives them.
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
  BOWLINE_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_REQUIRE(!info.self_tests.empty(), "The model has no self test.");
  for (size_t number = 0; number < info.self_tests.size(); ++number) {
    const SelfTestInfo& test = info.self_tests[number];
    BOWLINE_ASSIGN(SelfTestValues values, model.self_test(number));
    const HostTensors in = host_tensors(test.inputs, std::move(values.inputs));
    const HostTensors expected = host_tensors(test.outputs, values.outputs);
    const HostTensors out = host_tensors(test.outputs, std::move(values.outputs));
    for (size_t i = 0; i < out.tensors.size(); ++i) {
      std::memset(out.tensors[i].data, 0xFF, out.bytes[i].size());
    }
    const auto entry =
        std::ranges::find(info.entry_points, test.entry_point, &EntryPointInfo::name);
    const std::vector<BoundDim> dims = dims_of(*entry, in.tensors);
    BOWLINE_ASSIGN(Session session, Session::create(model, device, test.entry_point, dims));
    BOWLINE_TRY(session.run(in.tensors, out.tensors));
    for (size_t i = 0; i < out.tensors.size(); ++i) {
      BOWLINE_TRY(compare(out.tensors[i], expected.tensors[i],
                          static_cast<double>(test.relative_tolerance)));
    }
  }
  return {};
}

Model make_golden_model() {
  Model model = make_tied_model();
  EXPECT_TRUE(model.materialize(20260101).ok());
  return model;
}

}  // namespace bowline::test
