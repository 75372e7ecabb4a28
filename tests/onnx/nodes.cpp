// Runs the ONNX backend tests on a device. Each test is a model with inputs and expected outputs.
//
//   onnx_nodes --device NAME [--waivers FILE]... [--patches FILE] [--batch] [--filter TEXT]
//       [--list] FOLDER...
//
// A folder holds test folders: model.onnx, test_data_set_<n>/input_<i>.pb and output_<i>.pb.
// Tolerance: 1e-5 + 1e-3 of the expected value, 2^-6 of it for bf16, as in ONNX's own runner.
// Integers are equal, and NaN equals NaN.
//
// waivers.txt has lines "pattern: reason" and "pattern on BACKEND: reason" ("*": any characters,
// "?": one character). A test that fails without a waiver is a failure. So is a waiver whose test
// passes or does not exist. patches.txt has lines "test node N attribute = number: reason", which
// correct errors of the test data. With --batch a model is read with a dynamic batch, without its
// data.
//
// exit codes: 0 success, 1 failure, 2 wrong usage, 77 a folder is missing (1 with BOWLINE_STRICT=1)
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/status.h"
#include "bowline.h"
#include "onnx.pb.h"
#include "onnx/import.h"

namespace bowline::onnx {
namespace {

namespace fs = std::filesystem;

constexpr char kBatchName[] = "batch";

struct Waiver {
  std::string pattern;
  std::string backend;  // empty: any
  std::string reason;
  int matched = 0;
};

struct Patch {
  std::string test;
  int node = 0;
  std::string attribute;
  float value = 0;
};

struct Arguments {
  std::string device = "cpu";
  std::vector<std::string> waivers;
  std::string patches;
  std::string filter;
  bool list = false;
  bool batch = false;
  std::vector<std::string> folders;
};

bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) {
    return text.empty();
  }
  if (pattern[0] != '*') {
    return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
           matches(pattern.substr(1), text.substr(1));
  }
  for (size_t skip = 0; skip <= text.size(); ++skip) {
    if (matches(pattern.substr(1), text.substr(skip))) {
      return true;
    }
  }
  return false;
}

// Reads lines except empty lines and comments, split at ": ".
Result<std::vector<std::pair<std::string, std::string>>> rows_of(const std::string& path) {
  std::vector<std::pair<std::string, std::string>> out;
  std::ifstream in(path);
  BOWLINE_REQUIRE_CODE(in.good(), Code::bad_file, "\"{}\" cannot be read.", path);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') {
      continue;
    }
    const size_t colon = line.find(": ");
    BOWLINE_REQUIRE_CODE(colon != std::string::npos, Code::bad_file, "Line \"{}\" has no reason.",
                         line);
    out.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  return out;
}

Result<std::vector<Waiver>> waivers_of(const std::vector<std::string>& paths) {
  std::vector<Waiver> out;
  for (const std::string& path : paths) {
    BOWLINE_TRY_ASSIGN(const auto rows, rows_of(path));
    for (const auto& [name, reason] : rows) {
      const size_t on = name.find(" on ");
      const bool any = on == std::string::npos;
      out.push_back({name.substr(0, on), any ? "" : name.substr(on + 4), reason});
    }
  }
  return out;
}

Result<std::vector<Patch>> patches_of(const std::string& path) {
  std::vector<Patch> out;
  if (path.empty()) {
    return out;
  }
  BOWLINE_TRY_ASSIGN(const auto rows, rows_of(path));
  for (const auto& [text, reason] : rows) {
    std::istringstream in(text);
    Patch p;
    std::string node, equals;
    in >> p.test >> node >> p.node >> p.attribute >> equals >> p.value;
    BOWLINE_REQUIRE_CODE(!in.fail() && node == "node" && equals == "=", Code::bad_file,
                         "Patch \"{}\" is not of the form TEST node N ATTRIBUTE = NUMBER.", text);
    out.push_back(p);
  }
  return out;
}

// The tensors of a data set, by their names in the graph.
struct Given {
  std::vector<std::string> names;
  std::vector<ConstantTensor> numbers;
};

Result<Given> tensors_of(const fs::path& set, const char* kind,
                         const google::protobuf::RepeatedPtrField<file::ValueInfoProto>& infos) {
  Given out;
  for (int i = 0; i < infos.size(); ++i) {
    const fs::path path = set / fmt::format("{}_{}.pb", kind, i);
    BOWLINE_REQUIRE_CODE(infos[i].type().has_tensor_type(), Code::unsupported,
                         "\"{}\" is not a tensor.", infos[i].name());
    BOWLINE_TRY(dtype_of(infos[i].type().tensor_type().elem_type()).status());
    if (!fs::exists(path)) {
      continue;  // an initializer provides the value
    }
    BOWLINE_TRY_ASSIGN(auto tensor, read_tensor(path.string()));
    out.names.push_back(infos[i].name());
    out.numbers.push_back(std::move(tensor.second));
  }
  return out;
}

// Returns an empty string if the tensors match.
std::string difference(const ConstantTensor& got, const ConstantTensor& expected) {
  if (got.dtype != expected.dtype || got.shape != expected.shape) {
    return fmt::format("the result is {}{}, expected is {}{}", bowline::name_of(got.dtype),
                       shape_text(got.shape), bowline::name_of(expected.dtype),
                       shape_text(expected.shape));
  }
  const double relative = !is_float(expected.dtype)       ? 0
                          : expected.dtype == DType::bf16 ? std::ldexp(1.0, -6)
                                                          : 1e-3;
  const std::vector<double> a = got.reals();
  const std::vector<double> b = expected.reals();
  for (size_t i = 0; i < b.size(); ++i) {
    const bool equal = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!equal && !(std::abs(a[i] - b[i]) <= 1e-5 + relative * std::abs(b[i]))) {
      return fmt::format("element {} is {}, expected is {}", i, a[i], b[i]);
    }
  }
  return "";
}

// Returns the batch size of these inputs.
Result<std::vector<BoundDim>> batch_of(const Imported& imported, const Given& inputs) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, imported.model.describe());
  std::vector<BoundDim> out;
  for (const InputInfo& input : info.entry_points[0].inputs) {
    const auto named = std::ranges::find(input.dims, kBatchName, &GraphDim::name);
    const auto given = std::ranges::find(inputs.names, input.name);
    if (named != input.dims.end() && given != inputs.names.end()) {
      const ConstantTensor& n = inputs.numbers[static_cast<size_t>(given - inputs.names.begin())];
      out.assign(1, {kBatchName, n.shape[static_cast<size_t>(named - input.dims.begin())]});
    }
  }
  return out;
}

// Removes the rows of -1 that NonMaxSuppression appends.
void cut_padding(ConstantTensor& n) {
  const size_t row = n.shape.size() == 2 ? static_cast<size_t>(n.shape[1]) : 0;
  const std::vector<int64_t> values = n.integers();
  while (row > 0 && n.shape[0] > 0 && values[(static_cast<size_t>(n.shape[0]) - 1) * row] == -1) {
    --n.shape[0];
  }
  n.bytes.resize(static_cast<size_t>(n.shape[0]) * row * size_of(n.dtype));
}

Status run_set(const file::ModelProto& proto, const fs::path& test, const fs::path& set,
               const Device& device, bool batch) {
  BOWLINE_TRY_ASSIGN(Given inputs, tensors_of(set, "input", proto.graph().input()));
  BOWLINE_TRY_ASSIGN(Given expected, tensors_of(set, "output", proto.graph().output()));
  ImportOptions options;
  options.batch_dim = batch ? kBatchName : "";
  for (size_t i = 0; !batch && i < inputs.names.size(); ++i) {
    options.given.emplace(inputs.names[i], inputs.numbers[i]);
  }
  BOWLINE_TRY_ASSIGN(Imported imported, import_graph(proto, test.string(), options));
  BOWLINE_TRY(imported.model.to(device));
  BOWLINE_TRY_ASSIGN(const std::vector<BoundDim> dims, batch_of(imported, inputs));
  BOWLINE_TRY_ASSIGN(Session session,
                     Session::create(imported.model, device, options.entry_point, dims));
  std::vector<Tensor> in;
  for (size_t i = 0; i < inputs.names.size(); ++i) {
    if (std::ranges::find(imported.inputs, inputs.names[i]) != imported.inputs.end()) {
      ConstantTensor& n = inputs.numbers[i];
      in.push_back({inputs.names[i], n.dtype, n.shape, n.bytes.data()});
    }
  }
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, session.describe());
  std::vector<ConstantTensor> got(expected.names.size());
  std::vector<Tensor> out;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto& places = plan.segments[0].outputs;
    const auto place = std::ranges::find(places, expected.names[i], &IoInfo::name);
    BOWLINE_REQUIRE_CODE(place != places.end(), Code::internal, "The graph has no output \"{}\".",
                         expected.names[i]);
    ConstantTensor& n = got[i];
    n.dtype = place->dtype;
    n.shape.assign(place->shape.begin(), place->shape.end());
    // An element that is not written shows this pattern.
    n.bytes.assign(static_cast<size_t>(elements_of(n.shape).value()) * size_of(n.dtype),
                   std::byte{0x5a});
    out.push_back({expected.names[i], n.dtype, n.shape, n.bytes.data()});
  }
  BOWLINE_TRY(session.run(in, out));
  const auto& nodes = proto.graph().node();
  if (!nodes.empty() && nodes[nodes.size() - 1].op_type() == "NonMaxSuppression") {
    cut_padding(got[0]);
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string wrong = difference(got[i], expected.numbers[i]);
    BOWLINE_REQUIRE_CODE(wrong.empty(), Code::internal, "Output \"{}\" is wrong: {}.",
                         expected.names[i], wrong);
  }
  return {};
}

Status apply(const Patch& p, file::ModelProto& model) {
  const bool there = p.node >= 0 && p.node < model.graph().node_size();
  BOWLINE_REQUIRE_CODE(there, Code::bad_file, "The graph has no node {} to patch.", p.node);
  file::NodeProto& node = *model.mutable_graph()->mutable_node(p.node);
  for (const auto& a : node.attribute()) {
    BOWLINE_REQUIRE_CODE(a.name() != p.attribute, Code::bad_file,
                         "The node already has an attribute \"{}\".", p.attribute);
  }
  file::AttributeProto& a = *node.add_attribute();
  a.set_name(p.attribute);
  a.set_type(1);
  a.set_f(p.value);
  return {};
}

Status run_test(const fs::path& test, const std::vector<Patch>& patches, const Device& device,
                bool batch) {
  BOWLINE_TRY_ASSIGN(const auto model, read_model((test / "model.onnx").string()));
  for (const Patch& p : patches) {
    if (p.test == test.filename()) {
      BOWLINE_TRY(apply(p, *model));
    }
  }
  int sets = 0;
  for (; fs::exists(test / fmt::format("test_data_set_{}", sets)); ++sets) {
    BOWLINE_TRY(run_set(*model, test, test / fmt::format("test_data_set_{}", sets), device, batch));
  }
  BOWLINE_REQUIRE_CODE(sets > 0, Code::bad_file, "The test has no data set.");
  return {};
}

std::vector<fs::path> tests_of(const Arguments& a) {
  std::vector<fs::path> out;
  for (const std::string& folder : a.folders) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const bool wanted = entry.path().filename().string().find(a.filter) != std::string::npos;
      if (wanted && fs::exists(entry.path() / "model.onnx")) {
        out.push_back(entry.path());
      }
    }
  }
  std::ranges::sort(out);
  return out;
}

// Returns the first device of a backend for names such as "vulkan".
std::string device_named(const std::string& name) {
  for (const DeviceInfo& d : Device::list()) {
    if (d.name == name || d.name.starts_with(name + ":")) {
      return d.name;
    }
  }
  return name;
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

Result<int> run(const Arguments& a) {
  BOWLINE_TRY_ASSIGN(std::vector<Waiver> waivers, waivers_of(a.waivers));
  BOWLINE_TRY_ASSIGN(const std::vector<Patch> patches, patches_of(a.patches));
  BOWLINE_TRY_ASSIGN(const Device device, Device::open(device_named(a.device)));
  const std::string backend = a.device.substr(0, a.device.find(':'));
  const std::vector<fs::path> tests = tests_of(a);
  if (tests.empty()) {
    const char* const strict = std::getenv("BOWLINE_STRICT");
    fmt::print("The ONNX tests are not installed (tools/setup installs libonnx-testdata).\n");
    return strict != nullptr && std::strcmp(strict, "1") == 0 ? 1 : 77;
  }
  int passed = 0, waived = 0, wrong = 0;
  for (const fs::path& test : tests) {
    const std::string name = test.filename().string();
    const Status status = run_test(test, patches, device, a.batch);
    Waiver* waiver = nullptr;
    for (Waiver& w : waivers) {
      if ((w.backend.empty() || w.backend == backend) && matches(w.pattern, name)) {
        waiver = waiver == nullptr ? &w : waiver;
        ++w.matched;
      }
    }
    if (status.ok() != (waiver == nullptr)) {
      ++wrong;
      fmt::print("FAILED {}: {}\n", name,
                 status.ok() ? fmt::format("it passes, but is waived by \"{}\"", waiver->pattern)
                             : one_line(status.message()));
      continue;
    }
    status.ok() ? ++passed : ++waived;
    if (a.list) {
      fmt::print(
          "{} {}{}\n", status.ok() ? "passed" : "waived", name,
          status.ok() ? "" : fmt::format(": {} ({})", waiver->reason, one_line(status.message())));
    }
  }
  for (const Waiver& w : waivers) {
    if (a.filter.empty() && w.matched == 0 && (w.backend.empty() || w.backend == backend)) {
      ++wrong;
      fmt::print("FAILED: no test matches the waiver \"{}\"\n", w.pattern);
    }
  }
  fmt::print("{}: {} of {} tests pass, {} are waived, {} are wrong\n", a.device, passed,
             passed + waived + wrong, waived, wrong);
  return wrong == 0 && passed > 0 ? 0 : 1;
}

int usage() {
  fmt::print(stderr,
             "usage: onnx_nodes --device NAME [--waivers FILE]... [--patches FILE] [--batch] "
             "[--filter TEXT] [--list] FOLDER...\n");
  return 2;
}

int main_of(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::string* const value = word == "--device"    ? &a.device
                               : word == "--patches" ? &a.patches
                               : word == "--filter"  ? &a.filter
                                                     : nullptr;
    if (value != nullptr && i + 1 < argc) {
      *value = argv[++i];
    } else if (word == "--waivers" && i + 1 < argc) {
      a.waivers.emplace_back(argv[++i]);
    } else if (word == "--list") {
      a.list = true;
    } else if (word == "--batch") {
      a.batch = true;
    } else if (value == nullptr && !word.starts_with("--")) {
      a.folders.push_back(word);
    } else {
      return usage();
    }
  }
  if (a.folders.empty()) {
    return usage();
  }
  const Result<int> code = run(a);
  if (!code.ok()) {
    fmt::print(stderr, "onnx_nodes: {}\n", code.status().message());
    return 1;
  }
  return code.value();
}

}  // namespace
}  // namespace bowline::onnx

int main(int argc, char** argv) { return bowline::onnx::main_of(argc, argv); }
