// bowline verify: checks the structure, every checksum, and the self tests of a model file.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "common/find.h"
#include "common/flag_uses.h"
#include "common/flags.h"
#include "verb.h"

namespace bowline::command {
namespace {

// Returns the sizes of the named dims, from the shapes of the inputs.
std::vector<BoundDim> bound_dims(const EntryPointInfo& entry, std::span<const TensorInfo> given) {
  std::vector<BoundDim> dims;
  for (const InputInfo& input : entry.inputs) {
    const TensorInfo* const info = find_named(given, input.name);
    const size_t rank = info == nullptr ? 0 : std::min(input.dims.size(), info->shape.size());
    for (size_t i = 0; i < rank; ++i) {
      if (!input.dims[i].name.empty()) {
        dims.push_back({input.dims[i].name, info->shape[i]});
      }
    }
  }
  return dims;
}

Status compare(const TensorInfo& output, std::span<const std::byte> actual,
               std::span<const std::byte> expected, float tolerance, std::string_view graph) {
  if (output.dtype != DType::f32) {
    BOWLINE_REQUIRE_CODE(std::ranges::equal(actual, expected), Code::bad_file,
                         "Output \"{}\" of entry point \"{}\" differs.", output.name, graph);
    return {};
  }
  double scale = 0;
  for (size_t at = 0; at < expected.size(); at += sizeof(float)) {
    scale = std::max(scale, std::abs(static_cast<double>(load<float>(&expected[at]))));
  }
  for (size_t at = 0; at < expected.size(); at += sizeof(float)) {
    const float a = load<float>(&actual[at]);
    const float e = load<float>(&expected[at]);
    BOWLINE_REQUIRE_CODE(std::abs(static_cast<double>(a) - static_cast<double>(e)) <=
                             static_cast<double>(tolerance) * scale,
                         Code::bad_file,
                         "Element {} of output \"{}\" of entry point \"{}\" is {}, expected {}.",
                         at / sizeof(float), output.name, graph, a, e);
  }
  return {};
}

// A self test may use no more memory than the budget for reading a file of this size.
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

std::vector<Tensor> tensors_of(const std::vector<TensorInfo>& infos,
                               std::vector<std::vector<std::byte>>& bytes) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < infos.size(); ++i) {
    out.push_back({infos[i].name, infos[i].dtype, infos[i].shape, bytes[i].data()});
  }
  return out;
}

Status run_self_test(const std::string& path, const Model& model, const ModelInfo& info,
                     const Device& device, size_t number) {
  const SelfTestInfo& test = info.self_tests[number];
  const std::string& name = test.entry_point;
  const EntryPointInfo* entry = find_named(info.entry_points, name);
  BOWLINE_REQUIRE_CODE(entry != nullptr, Code::bad_file,
                       "A self test needs entry point \"{}\", which the model does not have.",
                       name);
  BOWLINE_TRY_ASSIGN(SelfTestValues values, model.self_test(number));
  std::vector<std::vector<std::byte>> actual = values.outputs;
  for (std::vector<std::byte>& bytes : actual) {
    std::ranges::fill(bytes, std::byte{0xFF});
  }
  BOWLINE_TRY_ASSIGN(Session session,
                     Session::create(model, device, name, bound_dims(*entry, test.inputs)));
  BOWLINE_TRY(check_cost(path, session.memory()));
  BOWLINE_TRY(
      session.run(tensors_of(test.inputs, values.inputs), tensors_of(test.outputs, actual)));
  for (size_t i = 0; i < actual.size(); ++i) {
    BOWLINE_TRY(
        compare(test.outputs[i], actual[i], values.outputs[i], test.relative_tolerance, name));
  }
  return {};
}

struct VerifyOptions {
  std::string model;
  std::string device = "cpu";
  std::string format = "text";
  FlagUses uses;
};

Result<int> run(const VerifyOptions& o) {
  if (Status s = Model::verify(o.model); !s.ok()) {
    s = with_import(std::move(s), o.model, " --out MODEL.bowline");
    return s.code() == Code::io_error ? std::move(s).as(Code::bad_file) : s;
  }
  BOWLINE_TRY_ASSIGN(Model model, open_model(o.model));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  const size_t count = info.self_tests.size();
  BOWLINE_TRY_FLAGS(o.uses.check("--device", count > 0, "the model has no self tests to run"));
  if (count > 0) {
    BOWLINE_TRY_ASSIGN(const Device device, open_device(o.device));
    BOWLINE_TRY(model.to(device));
    for (size_t i = 0; i < count; ++i) {
      BOWLINE_TRY(run_self_test(o.model, model, info, device, i)
                      .at(fmt::format("In self test {} on {}.", i, o.device)));
    }
  }
  const auto storages =
      std::ranges::count_if(info.storages, [](const StorageInfo& s) { return !s.empty; });
  const size_t graphs = info.entry_points.size();
  if (o.format == "json") {
    print_json(
        {{"file", o.model}, {"storages", storages}, {"graphs", graphs}, {"self_tests", count}});
  } else {
    print("{}: valid (structure, checksums of {} storages, {} graphs, {} self tests)\n", o.model,
          storages, graphs, count);
  }
  return kOk;
}

}  // namespace

void add_verify(CLI::App& app, Context& context) {
  const auto [verb, o] =
      add_verb<VerifyOptions>(app, context, run, "verify",
                              "Checks a model file: structure, checksums and stored self tests",
                              "bowline verify base.bowline");
  verb->add_option("model", o->model, "Model file")->required();
  add_text(verb, "--device", o->device, "Device that runs the self tests", "NAME")
      ->capture_default_str();
  add_format(verb, o->format);
  o->uses = FlagUses(verb);
}

}  // namespace bowline::command
