// A consumer of bowline::import outside of the tree. It imports, saves, opens and runs a model.
//
// usage: import SOURCE SAVED [NAME=SIZE...]           a model; the sizes are of ONNX dimensions
//        import --adapter SOURCE BASE SAVED           an adapter for the model file BASE
#include <bowline_import.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace bowline;

namespace {

int64_t size_of(const GraphDim& dim, const std::vector<BoundDim>& dims) {
  for (const BoundDim& bound : dims) {
    if (bound.name == dim.name) {
      return bound.value;
    }
  }
  return dim.value;
}

// Opens a model file and runs "forward" on zeros.
Status run(const std::string& path, const std::vector<BoundDim>& dims) {
  BOWLINE_TRY_ASSIGN(const Device device, Device::open("cpu"));
  BOWLINE_TRY_ASSIGN(Model model, Model::open(path));
  BOWLINE_TRY(model.to(device));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  std::vector<std::vector<double>> zeros;
  std::vector<Tensor> inputs;
  const auto forward =
      std::find_if(info.entry_points.begin(), info.entry_points.end(),
                   [](const EntryPointInfo& entry) { return entry.name == "forward"; });
  for (const InputInfo& input : forward->inputs) {
    std::vector<int64_t> shape;
    int64_t elements = 1;
    for (const GraphDim& dim : input.dims) {
      shape.push_back(size_of(dim, dims));
      elements *= shape.back();
    }
    zeros.emplace_back(static_cast<size_t>(elements));  // a double has room for every dtype
    inputs.push_back({input.name, input.dtype, TensorShape(shape), zeros.back().data()});
  }
  BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, "forward", dims));
  return session.run(inputs, {});
}

Status import(const std::string& source, const std::string& saved, std::vector<BoundDim> dims) {
  ImportOptions options;
  BOWLINE_TRY_ASSIGN(const ImportFormat kind, import_format(source));
  if (kind == ImportFormat::onnx) {
    options.onnx.dims = std::move(dims);
    dims.clear();
  }
  BOWLINE_TRY_ASSIGN(const ImportedModel imported, import_model(source, options));
  std::printf("%s, %zu tensors\n", std::string(name_of(imported.report.format)).c_str(),
              imported.report.tensors.size());
  BOWLINE_TRY(imported.model.save_compacted(saved).status());
  return run(saved, dims);
}

Status import_lora(const std::string& source, const std::string& base, const std::string& saved) {
  BOWLINE_TRY_ASSIGN(Model model, Model::open(base));
  BOWLINE_TRY_ASSIGN(const AdapterReport report, import_adapter(model, source));
  std::printf("adapter, %zu targets\n", report.targets.size());
  return save_adapter(model, "lora", saved);
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  Status status(Code::bad_argument, "usage: import SOURCE SAVED [NAME=SIZE...]");
  if (words.size() == 4 && words[0] == "--adapter") {
    status = import_lora(words[1], words[2], words[3]);
  } else if (words.size() >= 2) {
    std::vector<BoundDim> dims;
    for (size_t i = 2; i < words.size(); ++i) {
      const size_t equals = words[i].find('=');
      dims.push_back({words[i].substr(0, equals), std::atoi(words[i].c_str() + equals + 1)});
    }
    status = import(words[0], words[1], std::move(dims));
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", std::string(name_of(status.code())).c_str(),
                 status.message().c_str());
  }
  return status.ok() ? 0 : 1;
}
