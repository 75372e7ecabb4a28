// Converts a ModelProto to an entry point of a Model: first the inputs in file order, then node by
// node.
#include "onnx/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "base/escape.h"
#include "base/projected.h"
#include "onnx.pb.h"
#include "onnx/nodes.h"

namespace bowline::onnx {
namespace {

class Reader {
 public:
  Reader(const file::ModelProto& model, const std::string& folder, const ImportOptions& options,
         const std::optional<Batch>& batch)
      : graph_(model.graph()),
        options_(options),
        batch_(batch),
        maker_(out_.model, options.entry_point, options.trains, batch, options.tie_equal),
        nodes_(maker_, model, folder, options.progress) {}

  Imported read(const file::ModelProto& model) {
    opsets_ = opsets_of(model.opset_import());
    scope_.opsets = &opsets_;
    std::vector<std::string> wanted;
    for (const auto& o : graph_.output()) {
      wanted.push_back(o.name());
      ++scope_.outputs[o.name()];
    }
    nodes_.survey(graph_.node(), wanted, scope_);
    nodes_.initializers(graph_, scope_);
    inputs();
    nodes_.lower_all(graph_.node(), scope_, &out_.notes);
    outputs();
    require(maker_.finish());
    out_.inputs = maker_.inputs();
    note_missing_inputs();
    out_.not_finite = maker_.not_finite();
    out_.notes.insert(out_.notes.end(), maker_.notes().begin(), maker_.notes().end());
    return std::move(out_);
  }

  const std::vector<Made>& made() const { return maker_.made(); }
  // True if the file declares the dynamic batch, false if only the options do.
  bool is_batch_of_the_file() const { return batched_inputs_ > 0 && !batch_was_one_; }

 private:
  // Returns the dims of an input, from the file or from the options. kBatch stands for the dynamic
  // batch.
  Dims declared_dims(const std::string& name, const file::TypeProto::Tensor& type,
                     bool may_be_batch) {
    const auto given = options_.shapes.find(name);
    if (given != options_.shapes.end()) {
      check_shape(type, given->second);
      return Dims(given->second);
    }
    support(type.has_shape(), "The input has no shape. Give it a shape with --shape {}=N,N,...",
            listed_name(name));
    Dims dims;
    for (const auto& dim : type.shape().dim()) {
      if (has_number(dim)) {
        dims.push_back(dim.dim_value());
        continue;
      }
      const auto bound = std::ranges::find(options_.dims, dim.dim_param(), &BoundDim::name);
      const bool has_name = !dim.dim_param().empty();
      if (has_name && bound != options_.dims.end()) {
        dims.push_back(bound->value);
      } else if (may_be_batch &&
                 (dims.empty() || (has_name && dim.dim_param() == options_.batch_dim))) {
        dims.push_back(kBatch);
      } else {
        refuse_open_dim(name, type, dims.size());
      }
    }
    return dims;
  }

  struct InputDims {
    Dims dims;
    std::optional<int64_t> batch_axis;
  };

  // Returns the dims of an input. `may_be_batch`: the input may have the dynamic batch.
  InputDims dims_of(const std::string& name, const file::TypeProto::Tensor& type,
                    bool may_be_batch) {
    InputDims out;
    out.dims = declared_dims(name, type, may_be_batch);
    const auto marked = std::ranges::count(out.dims, kBatch);
    support(marked <= (may_be_batch ? 1 : 0),
            "{} of its dims are the dynamic batch, but at most one may be: its shape is {}.",
            marked, declared_text(type));
    if (may_be_batch && marked == 0 && !out.dims.empty() && out.dims[0] == 1) {
      out.dims[0] = kBatch;
    }
    const auto found = std::ranges::find(out.dims, kBatch);
    if (found != out.dims.end()) {
      *found = batch_->size;
      out.batch_axis = found - out.dims.begin();
      ++batched_inputs_;
      batch_was_one_ = batch_was_one_ && is_one(name, type, *out.batch_axis);
    }
    return out;
  }

  // True if the file or the caller gives this axis the size 1.
  bool is_one(const std::string& name, const file::TypeProto::Tensor& type, int64_t axis) const {
    const auto given = options_.shapes.find(name);
    const bool given_one =
        given != options_.shapes.end() && given->second[static_cast<size_t>(axis)] == 1;
    const auto& dims = type.shape().dim();
    return given_one || (axis < dims.size() && has_number(dims[static_cast<int>(axis)]));
  }

  static bool has_number(const file::TensorShapeProto::Dimension& dim) {
    return dim.has_dim_value() && dim.dim_value() >= 0;
  }

  static void check_shape(const file::TypeProto::Tensor& type, const std::vector<int64_t>& given) {
    const auto& dims = type.shape().dim();
    bool fits = !type.has_shape() || dims.size() == static_cast<int>(given.size());
    for (int a = 0; fits && a < dims.size(); ++a) {
      const int64_t wanted = given[static_cast<size_t>(a)];
      fits = !has_number(dims[a]) || dims[a].dim_value() == (wanted == kBatch ? 1 : wanted);
    }
    require(fits, "Shape {} does not match the shape {} of the file.", given, declared_text(type));
  }

  // "[batch,3,?,?]"
  static std::string declared_text(const file::TypeProto::Tensor& type) {
    const auto text = [](const auto& dim) {
      return has_number(dim)           ? std::to_string(dim.dim_value())
             : dim.dim_param().empty() ? "?"
                                       : listed_name(dim.dim_param());
    };
    return fmt::format("[{}]", fmt::join(projected(type.shape().dim(), text), ","));
  }

  static void refuse_open_dim(const std::string& name, const file::TypeProto::Tensor& type,
                              size_t axis) {
    const std::string& dim = type.shape().dim(static_cast<int>(axis)).dim_param();
    const auto size = [](const auto& d) {
      return has_number(d) ? std::to_string(d.dim_value()) : std::string("N");
    };
    const std::string example =
        fmt::format("{}", fmt::join(projected(type.shape().dim(), size), ","));
    support(false,
            "Dim {} (\"{}\") has no size: the shape is {}. Give it a size with {}--shape {}={}.",
            axis, escaped(dim), declared_text(type),
            dim.empty() ? "" : fmt::format("--dim {}=N, or with ", escaped(dim)), escaped(name),
            example);
  }

  // Returns an input that always has these values.
  Term fixed(const std::vector<double>& values, DType dtype, const Dims& dims) {
    const int64_t elements = required(elements_of(dims));
    require(values.size() == 1 || static_cast<int64_t>(values.size()) == elements,
            "{} values were given, but the shape {} needs another count.", values.size(), dims);
    if (values.size() == 1 && elements != 1) {
      return maker_.filled(dtype, dims, values[0]);
    }
    return maker_.constant(ConstantTensor::of(dtype, dims, values));
  }

  Term input(const file::ValueInfoProto& info) {
    support(info.type().has_tensor_type(), "The input is not a tensor.");
    const auto& type = info.type().tensor_type();
    const auto given = options_.given.find(info.name());
    if (given != options_.given.end()) {
      const ConstantTensor& n = given->second;
      return maker_.input(info.name(), n.dtype, n.shape, n);
    }
    const DType dtype = required(dtype_of(type.elem_type()));
    const auto values = options_.fixed.find(info.name());
    const bool is_fixed = values != options_.fixed.end();
    const InputDims shape = dims_of(info.name(), type, batch_ && !is_fixed);
    if (is_fixed) {
      return fixed(values->second, dtype, shape.dims);
    }
    return maker_.input(info.name(), dtype, shape.dims, {}, shape.batch_axis);
  }

  void inputs() {
    for (const auto& info : graph_.input()) {
      if (!scope_.readers.contains(info.name()) || scope_.lowered.values.contains(info.name())) {
        continue;  // an initializer is the default value of an input and becomes a parameter
      }
      Term term = located(fmt::format("While reading input \"{}\".", escaped(info.name())),
                          [&] { return input(info); });
      NodeReader::define(info.name(), std::move(term), scope_);
    }
    if (!batch_) {
      return;
    }
    support(batched_inputs_ > 0,
            "No input has an axis for the batch \"{}\": a first dim that is 1 or has no size. Say "
            "which axis it is with --shape NAME=N,{},N.",
            escaped(batch_->name), escaped(batch_->name));
    if (batch_was_one_) {
      maker_.set_batch_of_one();
    }
  }

  // An input may be missing although an operator reads its shape.
  void note_missing_inputs() {
    std::set<std::string_view> there(out_.inputs.begin(), out_.inputs.end());
    for (const auto& initializer : graph_.initializer()) {
      there.insert(initializer.name());
    }
    for (const auto& info : graph_.input()) {
      if (!there.contains(info.name()) && !options_.given.contains(info.name())) {
        out_.notes.push_back(
            fmt::format("Input \"{}\" is left out, because no output depends on its values.",
                        escaped(info.name())));
      }
    }
  }

  void outputs() {
    for (const auto& info : graph_.output()) {
      const Term term = located(fmt::format("While reading output \"{}\".", escaped(info.name())),
                                [&] { return nodes_.value(info.name(), graph_.node(), scope_); });
      maker_.name(info.name());
      maker_.output(info.name(), term);
      out_.outputs.push_back(info.name());
    }
  }

  const file::GraphProto& graph_;
  const ImportOptions& options_;
  const std::optional<Batch> batch_;
  int batched_inputs_ = 0;
  bool batch_was_one_ = true;
  Imported out_;
  Maker maker_;
  NodeReader nodes_;
  Opsets opsets_;
  Scope scope_;
};

// Checks that every option names an input or a dim of the graph.
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
    const auto text = [](const std::string& name) { return listed_name(name); };
    return names.empty() ? std::string("none")
                         : fmt::format("{}", fmt::join(projected(names, text), ", "));
  };
  const auto require_input = [&](const std::string& name) -> Status {
    BOWLINE_REQUIRE(inputs.contains(name), "The graph has no input \"{}\". Its inputs are: {}.",
                    escaped(name), known(inputs));
    return {};
  };
  for (const auto& [name, shape] : options.shapes) {
    BOWLINE_TRY(require_input(name));
  }
  for (const auto& [name, values] : options.fixed) {
    BOWLINE_TRY(require_input(name));
  }
  for (const BoundDim& dim : options.dims) {
    BOWLINE_REQUIRE(dims.contains(dim.name),
                    "No input has a dim \"{}\" without a size. The named dims are: {}.",
                    escaped(dim.name), known(dims));
    BOWLINE_REQUIRE(dim.name != options.batch_dim,
                    "Dim \"{}\" cannot be both the dynamic batch and have the fixed size {}.",
                    escaped(dim.name), dim.value);
  }
  if (!options.batch_dim.empty()) {
    Model named;
    BOWLINE_TRY(named.set_dim_limits(options.batch_dim, {}));
  }
  return {};
}

Imported read_graph(const file::ModelProto& model, const std::string& folder,
                    const ImportOptions& options, const std::optional<Batch>& batch,
                    std::vector<Made>& made) {
  Reader reader(model, folder, options, batch);
  try {
    Imported read = reader.read(model);
    made = reader.made();
    return read;
  } catch (Refused& refused) {
    if (!reader.is_batch_of_the_file()) {
      throw;
    }
    throw Refused{std::move(refused.status)
                      .at("The file declares a dynamic batch. If its graph was exported for one "
                          "row, say so with --shape NAME=1,...")};
  }
}

// Reads the graph with two different batch sizes. Nodes or parameters that differ depend on the
// batch size, and the graph is rejected.
Imported read_with_batch(const file::ModelProto& model, const std::string& folder,
                         const ImportOptions& options) {
  constexpr int64_t kSizes[] = {1009, 1013};
  std::vector<Made> made[2];
  Imported last;
  for (size_t i = 0; i < 2; ++i) {
    last = {};  // frees its values before the second reading
    last = located(
        fmt::format("While the batch \"{}\" is dynamic (this message shows {} for its size). "
                    "Without --batch-dim the model has a fixed batch.",
                    escaped(options.batch_dim), kSizes[i]),
        [&] {
          return read_graph(model, folder, options, Batch{options.batch_dim, kSizes[i]}, made[i]);
        });
  }
  const auto same = [](const Made& a, const Made& b) { return a.hash == b.hash; };
  const auto [a, b] = std::ranges::mismatch(made[0], made[1], same);
  if (a != made[0].end() || b != made[1].end()) {
    support(false,
            "The values that \"{}\" computes depend on the size of the batch \"{}\". Without "
            "--batch-dim the model has a fixed batch.",
            escaped((a == made[0].end() ? b : a)->name), escaped(options.batch_dim));
  }
  return last;
}

}  // namespace

Result<Imported> import_graph(const file::ModelProto& model, const std::string& folder,
                              const ImportOptions& options) {
  BOWLINE_TRY(check_options(model.graph(), options));
  std::vector<Made> made;
  try {
    return options.batch_dim.empty() ? read_graph(model, folder, options, std::nullopt, made)
                                     : read_with_batch(model, folder, options);
  } catch (Refused& refused) {
    // The file is wrong, not the caller.
    return refused.status.code() == Code::bad_argument
               ? std::move(refused.status).as(Code::bad_file)
               : refused.status;
  }
}

Result<Imported> import_file(const std::string& path, const ImportOptions& options) {
  BOWLINE_TRY_ASSIGN(const auto model, read_model(path, options.progress));
  auto imported = import_graph(*model, std::filesystem::path(path).parent_path().string(), options);
  BOWLINE_TRY(Status(imported.status()).at(fmt::format("While reading \"{}\".", escaped(path))));
  return imported;
}

}  // namespace bowline::onnx
