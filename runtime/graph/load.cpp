#include "graph/load.h"

#include "core/budget.h"
#include "graph/bind.h"
#include "graph/updates.h"
#include "params/file.h"

namespace bowline::graph {
namespace {

// What a row or a node takes in memory, with its blocks of the allocator.
constexpr uint64_t kStorageBytes = sizeof(params::Storage) + sizeof(model::FileRange) + 64;
constexpr uint64_t kParameterBytes = 2 * sizeof(params::ParameterRow) + 128;
constexpr uint64_t kNodeBytes = 2 * sizeof(Node) + 256;

std::string string_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

template <class V>
uint32_t count_of(const V* vector) {
  return vector == nullptr ? 0 : vector->size();
}

template <class T, class Objects>
void unpack_all(const flatbuffers::Vector<flatbuffers::Offset<T>>* from, Objects& to) {
  for (uint32_t i = 0; i < count_of(from); ++i) {
    to.push_back(std::unique_ptr<typename T::NativeTableType>(from->Get(i)->UnPack()));
  }
}

using Lists = flatbuffers::Vector<flatbuffers::Offset<file::ParameterList>>;

// Builds one graph of a file that was verified: every number in it is in range.
class GraphReader {
 public:
  GraphReader(const file::Model& model, const params::Table& table, Dims probes, Meter& meter,
              const file::Graph& from)
      : model_(model), table_(table), probes_(probes), meter_(meter), from_(from) {}

  Result<Graph> read_entry_point() {
    for (uint32_t i = 0; i < count_of(from_.inputs()); ++i) {
      BOWLINE_TRY(add_input(*from_.inputs()->Get(i)));
    }
    for (uint32_t i = 0; i < count_of(from_.parameters()); ++i) {
      const uint32_t parameter = from_.parameters()->Get(i);
      BOWLINE_TRY(add_parameter({&parameter, 1}));
    }
    for (uint32_t i = 0; i < count_of(from_.nodes()); ++i) {
      BOWLINE_TRY(add_node(*from_.nodes()->Get(i)));
      BOWLINE_TRY(infer_node(graph_, i, probes_));
    }
    add_outputs();
    BOWLINE_TRY(check_updates());
    return std::move(graph_);
  }

  // Shapes follow when the Repeat is inferred.
  Result<Graph> read_body(const Lists* lists) {
    for (uint32_t i = 0; i < count_of(from_.inputs()); ++i) {
      ValueInfo info;
      info.kind = ValueKind::input;
      info.name = string_of(from_.inputs()->Get(i)->name());
      graph_.inputs.push_back(graph_.add_value(std::move(info)));
    }
    for (uint32_t i = 0; i < count_of(lists); ++i) {
      const auto* list = lists->Get(i)->parameters();
      BOWLINE_TRY(add_parameter({list->data(), list->size()}));
    }
    for (uint32_t i = 0; i < count_of(from_.nodes()); ++i) {
      const file::Node& node = *from_.nodes()->Get(i);
      BOWLINE_REQUIRE_CODE(
          !op_def(static_cast<Op>(node.op_type())).is_repeat, Code::unsupported,
          "Node {} of body \"{}\" is a Repeat; one in the body of another does not run.", i,
          string_of(from_.name()));
      BOWLINE_TRY(add_node(node));
    }
    add_outputs();
    return std::move(graph_);
  }

 private:
  Status add_input(const file::Value& from) {
    ValueInfo info;
    info.kind = ValueKind::input;
    info.name = string_of(from.name());
    info.dtype = static_cast<DType>(from.dtype());
    for (uint32_t a = 0; a < count_of(from.shape()); ++a) {
      GraphDim dim(from.shape()->Get(a)->value());
      dim.name = string_of(from.shape()->Get(a)->name());
      info.dims.push_back(std::move(dim));
    }
    Result<Shape> shape = bind_shape(info.dims, probes_);
    BOWLINE_TRY(std::move(shape).status().at(format("While checking input \"{}\".", info.name)));
    info.shape = shape.value();
    BOWLINE_TRY(spend(info));
    graph_.inputs.push_back(graph_.add_value(std::move(info)));
    return {};
  }

  Status add_parameter(std::span<const uint32_t> list) {
    ValueInfo info;
    info.kind = ValueKind::parameter;
    info.parameters.assign(list.begin(), list.end());
    BOWLINE_TRY(set_parameters(info, table_));
    BOWLINE_TRY(spend(info));
    graph_.add_value(std::move(info));
    return {};
  }

  // Lists and names that a value copies. The vectors grow by doubling.
  Status spend(const ValueInfo& info) {
    return meter_.spend(2 * (sizeof(ValueInfo) + info.name.size() +
                             info.dims.size() * sizeof(GraphDim) +
                             info.parameters.size() * sizeof(uint32_t)));
  }

  Status add_node(const file::Node& from) {
    BOWLINE_TRY(meter_.spend(kNodeBytes + 2 * from.outputs() * sizeof(ValueInfo) +
                                 2 * count_of(from.inputs()) * sizeof(ValueId),
                             1));
    Node node;
    node.op = static_cast<Op>(from.op_type());
    node.name = string_of(from.name());
    for (uint32_t i = 0; i < count_of(from.inputs()); ++i) {
      node.inputs.push_back(from.inputs()->Get(i));
    }
    const auto index = static_cast<uint32_t>(graph_.nodes.size());
    if (op_def(node.op).is_repeat) {
      BOWLINE_TRY(add_body(*from.op_as_Repeat(), node));
    } else {
      node.attributes = attributes_copy(node.op, from.op(), named_sizes(from));
      BOWLINE_TRY(check_inputs(op_def(node.op), node.inputs.size())
                      .at(format("While loading node {} ({}).", index, node.op)));
      const int outputs = outputs_of(op_def(node.op), node.attributes, node.inputs.size());
      BOWLINE_REQUIRE(std::cmp_equal(from.outputs(), outputs),
                      "Node {} ({}) has {} outputs, not {}.", index, node.op, from.outputs(),
                      outputs);
    }
    for (uint32_t i = 0; i < from.outputs(); ++i) {
      ValueInfo info;
      info.node = index;
      info.output = i;
      node.outputs.push_back(graph_.add_value(std::move(info)));
    }
    graph_.nodes.push_back(std::move(node));
    return {};
  }

  static std::vector<AttributeDim> named_sizes(const file::Node& from) {
    std::vector<AttributeDim> out;
    for (uint32_t i = 0; i < count_of(from.attribute_dims()); ++i) {
      const file::AttributeDim& d = *from.attribute_dims()->Get(i);
      out.push_back({string_of(d.attribute()), d.index(), string_of(d.dim())});
    }
    return out;
  }

  Status add_body(const file::RepeatAttributes& from, Node& node) {
    RepeatAttributesT attributes;
    attributes.count = from.count();
    attributes.carried = from.carried();
    node.attributes = Attributes::of(attributes);
    node.repeat = std::make_shared<RepeatInfo>();
    node.repeat->count = from.count();
    node.repeat->carried = from.carried();
    GraphReader reader(model_, table_, probes_, meter_, *model_.graphs()->Get(from.body()));
    BOWLINE_ASSIGN(Graph body, reader.read_body(from.parameters()));
    node.repeat->body = std::make_shared<Graph>(std::move(body));
    return {};
  }

  // The file says which states the graph writes, and its nodes do.
  Status check_updates() const {
    BOWLINE_ASSIGN(const std::vector<uint32_t> written, written_storages(graph_, table_));
    const auto* updates = from_.updates();
    for (uint32_t i = 0; i < std::max<size_t>(count_of(updates), written.size()); ++i) {
      const auto said = i < count_of(updates) ? format("{}", updates->Get(i)) : "none";
      const auto is = i < written.size() ? format("{}", written[i]) : "none";
      BOWLINE_REQUIRE(said == is,
                      "Entry {} of the states that the graph updates is {}, but its "
                      "nodes write {}.",
                      i, said, is);
    }
    return {};
  }

  void add_outputs() {
    graph_.name = string_of(from_.name());
    for (uint32_t i = 0; i < count_of(from_.outputs()); ++i) {
      const file::Output& output = *from_.outputs()->Get(i);
      graph_.outputs.push_back(output.value());
      if (!from_.body()) {
        graph_.output_names.push_back(string_of(output.name()));
      }
    }
  }

  const file::Model& model_;
  const params::Table& table_;
  Dims probes_;
  Meter& meter_;
  const file::Graph& from_;
  Graph graph_;
};

Status read_graphs(ModelState& state, const file::Model& model, Meter& meter) {
  for (uint32_t i = 0; i < count_of(model.dims()); ++i) {
    const file::NamedDim& dim = *model.dims()->Get(i);
    state.dims.push_back(
        {string_of(dim.name()), dim.min(), dim.max(), dim.kind() == file::DimKind::counted});
  }
  const std::vector<BoundDim> probes = probe_dims(state.dims);
  for (uint32_t i = 0; i < count_of(model.graphs()); ++i) {
    const file::Graph& from = *model.graphs()->Get(i);
    if (from.body()) {
      continue;
    }
    Result<Graph> graph = GraphReader(model, state.table, probes, meter, from).read_entry_point();
    BOWLINE_TRY(std::move(graph).status().at(
        format("While loading graph {} \"{}\".", i, string_of(from.name()))));
    state.graphs.push_back(std::move(graph).value());
  }
  return {};
}

// A rule of an operator that is broken is a fault of the file here.
Status as_file_error(Status status) {
  return status.code() == Code::bad_argument ? std::move(status).as(Code::bad_file) : status;
}

}  // namespace

Result<std::shared_ptr<ModelState>> load_model(std::shared_ptr<const model::VerifiedFile> file) {
  auto state = std::make_shared<ModelState>();
  const file::Model& model = file->tables();
  const auto read = [&]() -> Status {
    Meter meter(file->budget());
    BOWLINE_TRY(meter.spend(2 * (count_of(model.storages()) * kStorageBytes +
                                 count_of(model.parameters()) * kParameterBytes)));
    state->table = params::read_table(*file);
    return read_graphs(*state, model, meter);
  };
  BOWLINE_TRY(as_file_error(read()).at(format("While loading \"{}\".", file->path())));
  unpack_all(model.assets(), state->assets);
  unpack_all(model.metadata(), state->metadata);
  unpack_all(model.self_tests(), state->self_tests);
  state->base.reset(model.base() == nullptr ? nullptr : model.base()->UnPack());
  state->training.reset(model.training() == nullptr ? nullptr : model.training()->UnPack());
  if (!state->assets.empty() || !state->self_tests.empty()) {
    state->source = std::move(file);
  }
  return state;
}

Result<std::shared_ptr<ModelState>> load_model(const std::string& path, const OpenOptions& options,
                                               model::FileSystem& files) {
  BOWLINE_ASSIGN(auto file, model::VerifiedFile::open(path, files, options));
  return load_model(std::move(file));
}

}  // namespace bowline::graph
