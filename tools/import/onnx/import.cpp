// ModelProto -> an entry point of a Model: values in the order of the file, node by node.
#include "onnx/import.h"

#include <algorithm>
#include <filesystem>

#include "onnx.pb.h"
#include "onnx/nodes.h"

namespace bowline::onnx {
namespace {

class Reader {
 public:
  Reader(const file::ModelProto& model, const std::string& folder, const ImportOptions& options)
      : graph_(model.graph()),
        options_(options),
        maker_(out_.model, options.entry_point, options.trains),
        nodes_(maker_, model, folder) {}

  Result<Imported> read(const file::ModelProto& model) {
    BOWLINE_ASSIGN(opsets_, opsets_of(model.opset_import()));
    scope_.opsets = &opsets_;
    std::vector<std::string> wanted;
    for (const auto& o : graph_.output()) {
      wanted.push_back(o.name());
    }
    BOWLINE_TRY(nodes_.survey(graph_.node(), wanted, scope_));
    BOWLINE_TRY(nodes_.initializers(graph_, scope_));
    BOWLINE_TRY(inputs());
    BOWLINE_TRY(nodes_.lower_all(graph_.node(), scope_, &out_.notes));
    BOWLINE_TRY(outputs());
    BOWLINE_TRY(maker_.finish());
    out_.inputs = maker_.inputs();
    return std::move(out_);
  }

 private:
  // The dims of an input: numbers, or names that the caller gave numbers.
  Result<Dims> dims_of(const file::TypeProto::Tensor& type) {
    BOWLINE_REQUIRE_CODE(type.has_shape(), Code::unsupported, "It has no shape.");
    Dims dims;
    for (const auto& dim : type.shape().dim()) {
      if (dim.has_dim_value()) {
        dims.push_back(dim.dim_value());
        continue;
      }
      const auto bound = std::ranges::find(options_.dims, dim.dim_param(), &BoundDim::name);
      BOWLINE_REQUIRE_CODE(dim.has_dim_param() && bound != options_.dims.end(), Code::unsupported,
                           "Its dim {} (\"{}\") has no number.", dims.size(),
                           escaped(dim.dim_param()));
      dims.push_back(bound->value);
    }
    return dims;
  }

  Result<Term> input(const file::ValueInfoProto& info) {
    BOWLINE_REQUIRE_CODE(info.type().has_tensor_type(), Code::unsupported, "It is no tensor.");
    const auto& type = info.type().tensor_type();
    const auto given = options_.given.find(info.name());
    if (given != options_.given.end()) {
      const Numbers& n = given->second;
      return maker_.input(info.name(), n.dtype, n.shape, n);
    }
    BOWLINE_ASSIGN(const DType dtype, dtype_of(type.elem_type()));
    BOWLINE_ASSIGN(const Dims dims, dims_of(type));
    return maker_.input(info.name(), dtype, dims, {});
  }

  Status inputs() {
    for (const auto& info : graph_.input()) {
      if (!scope_.readers.contains(info.name()) || scope_.lowered.values.contains(info.name())) {
        continue;  // an initializer is the default of an input, and becomes a parameter
      }
      Result<Term> term = input(info);
      const std::string where = fmt::format("While reading input \"{}\".", escaped(info.name()));
      BOWLINE_TRY(Status(term.status()).at(where));
      BOWLINE_TRY(NodeReader::define(info.name(), std::move(term).value(), scope_));
    }
    return {};
  }

  Status outputs() {
    for (const auto& info : graph_.output()) {
      Result<Term> term = nodes_.value(info.name(), graph_.node(), scope_);
      BOWLINE_TRY(Status(term.status())
                      .at(fmt::format("While reading output \"{}\".", escaped(info.name()))));
      maker_.name(info.name());
      maker_.output(info.name(), term.value());
      out_.outputs.push_back(info.name());
    }
    return {};
  }

  const file::GraphProto& graph_;
  const ImportOptions& options_;
  Imported out_;
  Maker maker_;
  NodeReader nodes_;
  Opsets opsets_;
  Scope scope_;
};

}  // namespace

Result<Imported> import_graph(const file::ModelProto& model, const std::string& folder,
                              const ImportOptions& options) {
  Result<Imported> read = [&]() -> Result<Imported> {
    try {
      return Reader(model, folder, options).read(model);
    } catch (const Refused& refused) {
      return refused.status;
    }
  }();
  if (read.status().code() == Code::bad_argument) {  // what the file asks for, not the caller
    return std::move(read).status().as(Code::bad_file);
  }
  return read;
}

Result<Imported> import_file(const std::string& path, const ImportOptions& options) {
  BOWLINE_ASSIGN(const auto model, read_model(path));
  auto imported = import_graph(*model, std::filesystem::path(path).parent_path().string(), options);
  if (!imported.ok()) {
    return std::move(imported).status().at(fmt::format("While reading \"{}\".", escaped(path)));
  }
  return imported;
}

}  // namespace bowline::onnx
