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

Result<HostTensors> read_tensors(const model::VerifiedFile& file,
                                 const std::vector<std::unique_ptr<file::TensorT>>& from) {
  HostTensors out;
  for (const auto& t : from) {
    BOWLINE_ASSIGN(const auto bytes, file.range(*t->range)->bytes());
    out.bytes.emplace_back(bytes.begin(), bytes.end());
    out.tensors.push_back(
        {t->name, static_cast<DType>(t->dtype), t->shape, out.bytes.back().data()});
  }
  return out;
}

// The named dims of the entry point, from the shapes of the inputs.
std::vector<BoundDim> dims_of(const graph::Graph& graph, std::span<const Tensor> inputs) {
  std::vector<BoundDim> out;
  for (const graph::ValueId v : graph.inputs) {
    for (const Tensor& t : inputs) {
      for (size_t a = 0; t.name == graph[v].name && a < t.shape.size(); ++a) {
        if (!graph[v].dims[a].name.empty()) {
          out.push_back({graph[v].dims[a].name, t.shape[a]});
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
  const graph::ModelState& state = *model.state();
  BOWLINE_REQUIRE(!state.self_tests.empty(), "The model has no self test.");
  for (const auto& test : state.self_tests) {
    BOWLINE_ASSIGN(const HostTensors in, read_tensors(*state.source, test->inputs));
    BOWLINE_ASSIGN(const HostTensors expected, read_tensors(*state.source, test->outputs));
    HostTensors out = expected;
    for (size_t i = 0; i < out.tensors.size(); ++i) {
      std::memset(out.bytes[i].data(), 0xFF, out.bytes[i].size());
      out.tensors[i].data = out.bytes[i].data();
    }
    const std::vector<BoundDim> dims = dims_of(*state.find_graph(test->graph), in.tensors);
    BOWLINE_ASSIGN(Session session, Session::create(model, device, test->graph, dims));
    BOWLINE_TRY(session.run(in.tensors, out.tensors));
    for (size_t i = 0; i < out.tensors.size(); ++i) {
      BOWLINE_TRY(compare(out.tensors[i], expected.tensors[i],
                          static_cast<double>(test->relative_tolerance)));
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
