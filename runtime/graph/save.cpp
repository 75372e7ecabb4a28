#include "graph/save.h"

#include <algorithm>

#include "graph/load.h"
#include "graph/updates.h"
#include "model/write.h"
#include "params/file.h"

namespace bowline::graph {
namespace {

constexpr uint32_t kNoNumber = UINT32_MAX;

// Numbers the values of one graph as the file does, and writes its nodes; bodies follow their
// graph.
class GraphWriter {
 public:
  GraphWriter(file::ModelT& model, const Graph& from) : model_(model), from_(from) {}

  Status write(bool body) {
    number_.assign(from_.values.size(), kNoNumber);
    const size_t index = model_.graphs.size();
    model_.graphs.push_back(std::make_unique<file::GraphT>());
    file::GraphT& to = *model_.graphs[index];
    to.name = from_.name;
    to.body = body;
    add_inputs(to, body);
    add_parameters(to, body);
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      BOWLINE_TRY(add_node(to, from_.nodes[i]).at(format("While writing {}.", describe(from_, i))));
    }
    for (size_t i = 0; i < from_.outputs.size(); ++i) {
      to.outputs.push_back(std::make_unique<file::OutputT>());
      to.outputs.back()->value = number_[from_.outputs[i]];
      to.outputs.back()->name = body ? std::string() : from_.output_names[i];
    }
    return {};
  }

  // The parameter lists of a body, in the order of their values.
  static std::vector<std::unique_ptr<file::ParameterListT>> lists_of(const Graph& body) {
    std::vector<std::unique_ptr<file::ParameterListT>> out;
    for (const ValueInfo& v : body.values) {
      if (v.kind == ValueKind::parameter) {
        out.push_back(std::make_unique<file::ParameterListT>());
        out.back()->parameters = v.parameters;
      }
    }
    return out;
  }

 private:
  void add_inputs(file::GraphT& to, bool body) {
    for (const ValueId v : from_.inputs) {
      number_[v] = next_++;
      auto value = std::make_unique<file::ValueT>();
      value->name = from_[v].name;
      if (!body) {
        value->dtype = static_cast<file::DType>(from_[v].dtype);
        for (const GraphDim& d : from_[v].dims) {
          value->shape.push_back(std::make_unique<file::DimT>());
          value->shape.back()->value = d.value;
          value->shape.back()->name = d.name;
        }
      }
      to.inputs.push_back(std::move(value));
    }
  }

  void add_parameters(file::GraphT& to, bool body) {
    for (ValueId v = 0; v < from_.values.size(); ++v) {
      if (from_[v].kind == ValueKind::parameter) {
        number_[v] = next_++;
        if (body) {
          ++to.body_parameters;
        } else {
          to.parameters.push_back(from_[v].parameters[0]);
        }
      }
    }
  }

  Status add_node(file::GraphT& to, const Node& node) {
    BOWLINE_REQUIRE_CODE(!is_internal(node.op), Code::internal,
                         "The operator is not one of files.");
    auto out = std::make_unique<file::NodeT>();
    out->name = node.name;
    for (const ValueId v : node.inputs) {
      out->inputs.push_back(number_[v]);
    }
    out->outputs = static_cast<uint32_t>(node.outputs.size());
    for (const ValueId v : node.outputs) {
      number_[v] = next_++;
    }
    if (node.repeat) {
      out->op.type = static_cast<file::Op>(node.op);
      out->op.value = new file::RepeatAttributesT(repeat_attributes(*node.repeat));
      to.nodes.push_back(std::move(out));
      return GraphWriter(model_, *node.repeat->body).write(true);
    }
    const auto type = static_cast<file::Op>(node.op);
    out->op.type = type;
    out->op.value = file::OpUnion::UnPack(node.attributes.root(), type, nullptr);
    for (const AttributeDim& d : node.attributes.dims()) {
      out->attribute_dims.push_back(std::make_unique<file::AttributeDimT>());
      *out->attribute_dims.back() = {{}, d.attribute, d.index, d.dim};
    }
    to.nodes.push_back(std::move(out));
    return {};
  }

  file::RepeatAttributesT repeat_attributes(const RepeatInfo& repeat) const {
    file::RepeatAttributesT attributes;
    attributes.body = static_cast<uint32_t>(model_.graphs.size());  // written next
    attributes.count = repeat.count;
    attributes.carried = repeat.carried;
    attributes.parameters = lists_of(*repeat.body);
    return attributes;
  }

  file::ModelT& model_;
  const Graph& from_;
  std::vector<uint32_t> number_;
  uint32_t next_ = 0;
};

// Which rows a file gets: those of a running training only with its state.
std::vector<bool> kept_rows(const params::Table& table, const file::TrainingStateT* training) {
  std::vector<bool> keep;
  for (const params::Storage& s : table.storages) {
    const bool gradient = s.role == params::Role::gradient;
    const bool optimizer = s.role == params::Role::moment || s.role == params::Role::master;
    keep.push_back(gradient    ? training != nullptr && training->micro_step > 0
                   : optimizer ? training != nullptr
                               : true);
  }
  return keep;
}

// Values as they were loaded: reading a file gives every row with bytes version 1.
bool is_unchanged(const params::Table& table) {
  return std::ranges::all_of(table.storages,
                             [](const params::Storage& s) { return s.empty || s.version <= 1; });
}

class ModelWriter {
 public:
  explicit ModelWriter(const ModelState& state) : state_(state) {}

  Status describe(const file::TrainingStateT* training) {
    for (const NamedDim& d : state_.dims) {
      model_.dims.push_back(std::make_unique<file::NamedDimT>());
      model_.dims.back()->name = d.name;
      model_.dims.back()->min = d.min;
      model_.dims.back()->max = d.max;
      model_.dims.back()->kind = d.counted ? file::DimKind::counted : file::DimKind::bound;
    }
    params::describe_table(state_.table, kept_rows(state_.table, training), model_, payloads_);
    for (const Graph& g : state_.graphs) {
      BOWLINE_TRY(write_graph(g).at(format("While writing graph \"{}\".", g.name)));
    }
    for (const auto& m : state_.metadata) {
      model_.metadata.push_back(copy_of(*m));
    }
    for (const auto& a : state_.assets) {
      model_.assets.push_back(copy_of(*a));
      add_range(*model_.assets.back()->range);
    }
    if (is_unchanged(state_.table)) {
      add_self_tests();
    }
    if (state_.base) {
      model_.base = copy_of(*state_.base);
    }
    if (training != nullptr) {
      model_.training = copy_of(*training);
    }
    return {};
  }

  Status write(const std::string& path, model::FileSystem& files) {
    const auto accepted = [](std::shared_ptr<const model::VerifiedFile> file) {
      return load_model(std::move(file)).status();
    };
    return model::write_file(path, model_, payloads_, accepted, files);
  }

 private:
  Status write_graph(const Graph& g) {
    const size_t index = model_.graphs.size();
    BOWLINE_TRY(GraphWriter(model_, g).write(false));
    BOWLINE_ASSIGN(model_.graphs[index]->updates, written_storages(g, state_.table));
    return {};
  }

  // The bytes stay where they were loaded from.
  void add_range(file::RangeT& range) {
    std::shared_ptr<const model::FileRange> bytes = state_.source->range(range);
    payloads_.push_back(
        {&range, bytes->length, [bytes](std::vector<std::byte>&) { return bytes->bytes(); }});
  }

  void add_self_tests() {
    for (const auto& test : state_.self_tests) {
      model_.self_tests.push_back(copy_of(*test));
      for (auto* tensors :
           {&model_.self_tests.back()->inputs, &model_.self_tests.back()->outputs}) {
        for (const auto& tensor : *tensors) {
          add_range(*tensor->range);
        }
      }
    }
  }

  const ModelState& state_;
  file::ModelT model_;
  std::vector<model::Payload> payloads_;
};

}  // namespace

Status save_model(const ModelState& state, const std::string& path,
                  const file::TrainingStateT* training, model::FileSystem& files) {
  ModelWriter writer(state);
  BOWLINE_TRY(writer.describe(training));
  Status status = writer.write(path, files);
  if (!status.ok()) {  // after a success nothing may fail, not even a sentence
    return std::move(status).at(format("While saving \"{}\".", path));
  }
  return status;
}

}  // namespace bowline::graph
