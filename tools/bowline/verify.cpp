// bowline verify: structure, every checksum, and the self tests of a model file.
#include "model/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/flags.h"
#include "core/dtype.h"
#include "core/status.h"
#include "graph/model_state.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct Values {
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  Tensor tensor;
};

Result<std::vector<Values>> read_tensors(
    const model::VerifiedFile& file,
    const flatbuffers::Vector<flatbuffers::Offset<file::Tensor>>& tensors) {
  std::vector<Values> out(tensors.size());
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const file::Tensor& t = *tensors[i];
    if (t.shape() != nullptr) {
      out[i].shape.assign(t.shape()->begin(), t.shape()->end());
    }
    const auto range = file.range(*t.range());
    BOWLINE_ASSIGN(const std::span<const std::byte> bytes, range->bytes());
    out[i].bytes.assign(bytes.begin(), bytes.end());
    out[i].tensor = {t.name()->string_view(), static_cast<DType>(t.dtype()), out[i].shape,
                     out[i].bytes.data()};
  }
  return out;
}

// The numbers of named dims, from the shapes of the inputs.
std::vector<BoundDim> bound_dims(const graph::Graph& g, std::span<const Values> inputs) {
  std::vector<BoundDim> dims;
  for (const graph::ValueId v : g.inputs) {
    for (const Values& input : inputs) {
      for (size_t i = 0;
           input.tensor.name == g[v].name && i < g[v].dims.size() && i < input.shape.size(); ++i) {
        if (!g[v].dims[i].name.empty()) {
          dims.push_back({g[v].dims[i].name, input.shape[i]});
        }
      }
    }
  }
  return dims;
}

Status compare(const Values& actual, const Values& expected, float tolerance,
               std::string_view graph) {
  if (expected.tensor.dtype != DType::f32) {
    BOWLINE_REQUIRE_CODE(actual.bytes == expected.bytes, Code::bad_file,
                         "Output \"{}\" of entry point \"{}\" differs.", expected.tensor.name,
                         graph);
    return {};
  }
  const size_t n = expected.bytes.size() / sizeof(float);
  std::vector<float> a(n);
  std::vector<float> e(n);
  std::memcpy(a.data(), actual.bytes.data(), n * sizeof(float));
  std::memcpy(e.data(), expected.bytes.data(), n * sizeof(float));
  double scale = 0;
  for (const float x : e) {
    scale = std::max(scale, std::abs(static_cast<double>(x)));
  }
  for (size_t i = 0; i < n; ++i) {
    BOWLINE_REQUIRE_CODE(std::abs(static_cast<double>(a[i]) - static_cast<double>(e[i])) <=
                             static_cast<double>(tolerance) * scale,
                         Code::bad_file,
                         "Element {} of output \"{}\" of entry point \"{}\" is {}, expected {}.", i,
                         expected.tensor.name, graph, a[i], e[i]);
  }
  return {};
}

// A self test costs no more memory than reading a file of this size may.
Status check_cost(const std::string& path, const MemoryReport& memory) {
  std::error_code error;
  const uint64_t limit = Budget::of_file(std::filesystem::file_size(path, error)).bytes;
  const uint64_t cost = memory.arena_bytes + memory.io_bytes;
  BOWLINE_REQUIRE_CODE(
      cost <= limit, Code::over_budget,
      "A run takes {} bytes of memory, above the budget of {} for a file of this size.", cost,
      limit);
  return {};
}

Status run_self_test(const model::VerifiedFile& file, const Model& model, const Device& device,
                     const file::SelfTest& test) {
  const std::string_view name = test.graph()->string_view();
  const graph::Graph* g = model.state()->find_graph(name);
  BOWLINE_REQUIRE_CODE(g != nullptr, Code::bad_file,
                       "A self test is of entry point \"{}\", which the model has not.", name);
  std::vector<Values> inputs;
  if (test.inputs() != nullptr) {
    BOWLINE_ASSIGN(inputs, read_tensors(file, *test.inputs()));
  }
  std::vector<Values> expected;
  if (test.outputs() != nullptr) {
    BOWLINE_ASSIGN(expected, read_tensors(file, *test.outputs()));
  }
  std::vector<Values> actual = expected;
  std::vector<Tensor> in;
  std::vector<Tensor> out;
  for (const Values& v : inputs) {
    in.push_back(v.tensor);
  }
  for (Values& v : actual) {
    std::ranges::fill(v.bytes, std::byte{0xFF});
    v.tensor.data = v.bytes.data();
    v.tensor.shape = v.shape;
    out.push_back(v.tensor);
  }
  BOWLINE_ASSIGN(Session session, Session::create(model, device, name, bound_dims(*g, inputs)));
  BOWLINE_TRY(check_cost(file.path(), session.memory()));
  BOWLINE_TRY(session.run(in, out));
  for (size_t i = 0; i < expected.size(); ++i) {
    BOWLINE_TRY(compare(actual[i], expected[i], test.relative_tolerance(), name));
  }
  return {};
}

struct Options {
  std::string model;
  std::string device = "cpu";
  std::string format = "text";
};

Result<int> run(const Options& o) {
  Result<std::shared_ptr<const model::VerifiedFile>> opened = model::VerifiedFile::open(o.model);
  if (!opened.ok()) {
    return std::move(opened).status().as(Code::bad_file);
  }
  const model::VerifiedFile& file = *opened.value();
  BOWLINE_TRY(file.verify_all());
  BOWLINE_ASSIGN(Model model, open_model(o.model));
  const auto* tests = file.tables().self_tests();
  const uint32_t count = tests == nullptr ? 0 : tests->size();
  if (count > 0) {
    BOWLINE_ASSIGN(const Device device, open_device(o.device));
    BOWLINE_TRY(model.to(device));
    for (uint32_t i = 0; i < count; ++i) {
      BOWLINE_TRY(run_self_test(file, model, device, *(*tests)[i])
                      .at(fmt::format("In self test {} on {}.", i, o.device)));
    }
  }
  size_t storages = 0;
  for (const params::Storage& s : model.state()->table.storages) {
    storages += s.empty ? 0 : 1;
  }
  const size_t graphs = model.state()->graphs.size();
  if (o.format == "json") {
    print_json(
        {{"file", o.model}, {"storages", storages}, {"graphs", graphs}, {"self_tests", count}});
  } else {
    print("{}: structure, checksums of {} storages, {} graphs and {} self tests are right\n",
          o.model, storages, graphs, count);
  }
  return static_cast<int>(kOk);
}

}  // namespace

void add_verify(CLI::App& app, Context& context) {
  CLI::App* verb = add_verb(
      app, "verify", "Checks the structure, every checksum and the self tests of a model file",
      "bowline verify base.bowline");
  auto o = std::make_shared<Options>();
  verb->add_option("model", o->model, "Model file")->required();
  verb->add_option("--device", o->device, "Device that runs the self tests")->capture_default_str();
  add_format(verb, o->format);
  on_run(verb, context, [o] { return run(*o); });
}

}  // namespace bowline::command
