// ModelProto -> an entry point of a Model: values in the order of the file, node by node.
#include "onnx/import.h"

#include <algorithm>
#include <filesystem>
#include <set>

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
  // The dims of an input: numbers, or what the caller says.
  Result<Dims> dims_of(const std::string& name, const file::TypeProto::Tensor& type) {
    const auto given = options_.shapes.find(name);
    if (given != options_.shapes.end()) {
      BOWLINE_TRY(check_shape(type, given->second));
      return Dims(given->second);
    }
    BOWLINE_REQUIRE_CODE(type.has_shape(), Code::unsupported,
                         "It has no shape. Give it one with --shape {}=N,N,...", listed_name(name));
    Dims dims;
    for (const auto& dim : type.shape().dim()) {
      if (has_number(dim)) {
        dims.push_back(dim.dim_value());
        continue;
      }
      const auto bound = std::ranges::find(options_.dims, dim.dim_param(), &BoundDim::name);
      if (dim.dim_param().empty() || bound == options_.dims.end()) {
        return without_number(name, type, dims.size());
      }
      dims.push_back(bound->value);
    }
    return dims;
  }

  static bool has_number(const file::TensorShapeProto::Dimension& dim) {
    return dim.has_dim_value() && dim.dim_value() >= 0;
  }

  static Status check_shape(const file::TypeProto::Tensor& type,
                            const std::vector<int64_t>& given) {
    const auto& dims = type.shape().dim();
    bool fits = !type.has_shape() || dims.size() == static_cast<int>(given.size());
    for (int a = 0; fits && a < dims.size(); ++a) {
      fits = !has_number(dims[a]) || dims[a].dim_value() == given[static_cast<size_t>(a)];
    }
    BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "Shape {} does not fit {} of the file.",
                         shape_text(given), declared_text(type));
    return {};
  }

  // "[batch,3,?,?]"
  static std::string declared_text(const file::TypeProto::Tensor& type) {
    std::string out;
    for (const auto& dim : type.shape().dim()) {
      out += (out.empty() ? "" : ",") + (has_number(dim)           ? std::to_string(dim.dim_value())
                                         : dim.dim_param().empty() ? "?"
                                                                   : listed_name(dim.dim_param()));
    }
    return fmt::format("[{}]", out);
  }

  static Status without_number(const std::string& name, const file::TypeProto::Tensor& type,
                               size_t axis) {
    const std::string& dim = type.shape().dim(static_cast<int>(axis)).dim_param();
    std::string example;
    for (const auto& d : type.shape().dim()) {
      example += (example.empty() ? "" : ",") +
                 (has_number(d) ? std::to_string(d.dim_value()) : std::string("N"));
    }
    return Status(
        Code::unsupported,
        fmt::format("Its dim {} (\"{}\") has no number: the shape is {}. Give it one with "
                    "{}--shape {}={}.",
                    axis, escaped(dim), declared_text(type),
                    dim.empty() ? "" : fmt::format("--dim {}=N, or with ", escaped(dim)),
                    escaped(name), example));
  }

  // An input that always has these values.
  Result<Term> fixed(const std::vector<double>& values, DType dtype, const Dims& dims) {
    BOWLINE_ASSIGN(const int64_t elements, elements_of(dims));
    BOWLINE_REQUIRE_CODE(values.size() == 1 || static_cast<int64_t>(values.size()) == elements,
                         Code::bad_file, "{} values do not fit the shape {}.", values.size(),
                         shape_text(dims));
    if (values.size() == 1 && elements != 1) {
      return maker_.filled(dtype, dims, values[0]);
    }
    return maker_.constant(Numbers::of(dtype, dims, values));
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
    BOWLINE_ASSIGN(const Dims dims, dims_of(info.name(), type));
    const auto values = options_.fixed.find(info.name());
    if (values != options_.fixed.end()) {
      return fixed(values->second, dtype, dims);
    }
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

// What the caller says is of use for the graph.
Status check_options(const file::GraphProto& graph, const ImportOptions& options) {
  std::set<std::string> inputs, dims;
  for (const auto& info : graph.input()) {
    inputs.insert(info.name());
    for (const auto& dim : info.type().tensor_type().shape().dim()) {
      if (dim.has_dim_param() && !options.shapes.contains(info.name())) {
        dims.insert(dim.dim_param());
      }
    }
  }
  const auto known = [](const std::set<std::string>& names) {
    std::string out;
    for (const std::string& name : names) {
      out += (out.empty() ? "" : ", ") + listed_name(name);
    }
    return out.empty() ? std::string("none") : out;
  };
  const auto require_input = [&](const std::string& name) -> Status {
    BOWLINE_REQUIRE_CODE(inputs.contains(name), Code::bad_argument,
                         "The graph has no input \"{}\"; its inputs: {}.", escaped(name),
                         known(inputs));
    return {};
  };
  for (const auto& [name, shape] : options.shapes) {
    BOWLINE_TRY(require_input(name));
  }
  for (const auto& [name, values] : options.fixed) {
    BOWLINE_TRY(require_input(name));
  }
  for (const BoundDim& dim : options.dims) {
    BOWLINE_REQUIRE_CODE(dims.contains(dim.name), Code::bad_argument,
                         "No input has an open dim \"{}\"; named ones: {}.", escaped(dim.name),
                         known(dims));
  }
  return {};
}

}  // namespace

Result<Imported> import_graph(const file::ModelProto& model, const std::string& folder,
                              const ImportOptions& options) {
  BOWLINE_TRY(check_options(model.graph(), options));
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
