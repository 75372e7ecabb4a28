#include "graph/load.h"

#include "core/budget.h"
#include "graph/bind.h"
#include "graph/tie_metadata.h"
#include "graph/updates.h"
#include "params/file.h"

namespace bowline::detail::graph {
namespace {

// The memory of a row or a node, with the overhead of its allocations.
constexpr uint64_t kStorageBytes = sizeof(params::Storage) + sizeof(model::FileRange) + 64;
constexpr uint64_t kParameterBytes = 2 * sizeof(params::ParameterRow) + 128;
constexpr uint64_t kNodeBytes = 2 * sizeof(GenericNode) + 256;

// Builds one graph of a file that was verified: every number in it is in range.
class GraphReader {
 public:
  GraphReader(const model::Tables& model, const params::Table& table, Dims probes, Meter& meter,
              const model::GraphTable& from)
      : model_(model), table_(table), probes_(probes), meter_(meter), from_(from) {}

  Result<GenericGraph> read_entry_point() {
    for (uint32_t i = 0; i < from_.inputs(); ++i) {
      BOWLINE_TRY(add_input(from_.input(i)));
    }
    for (const uint32_t& parameter : from_.parameters()) {
      BOWLINE_TRY(add_parameter({&parameter, 1}));
    }
    for (uint32_t i = 0; i < from_.nodes(); ++i) {
      BOWLINE_TRY(add_node(from_.node(i)));
      BOWLINE_TRY(infer_node(graph_, i, probes_));
    }
    add_outputs();
    BOWLINE_TRY(check_updates());
    return std::move(graph_);
  }

  // Shapes follow when the Repeat is inferred.
  Result<GenericGraph> read_body(std::span<const std::span<const uint32_t>> lists) {
    for (uint32_t i = 0; i < from_.inputs(); ++i) {
      GenericValue info;
      info.kind = ValueKind::input;
      info.name = from_.input(i).name;
      graph_.inputs.push_back(graph_.add_value(std::move(info)));
    }
    for (const std::span<const uint32_t> list : lists) {
      BOWLINE_TRY(add_parameter(list));
    }
    for (uint32_t i = 0; i < from_.nodes(); ++i) {
      const model::NodeEntry node = from_.node(i);
      BOWLINE_REQUIRE_CODE(!node.repeat.has_value(), Code::unsupported,
                           "Node {} of body \"{}\" is a Repeat. A Repeat inside the body of "
                           "another Repeat is not supported.",
                           i, from_.name());
      BOWLINE_TRY(add_node(node));
    }
    add_outputs();
    return std::move(graph_);
  }

 private:
  Status add_input(const model::InputEntry& from) {
    GenericValue info;
    info.kind = ValueKind::input;
    info.name = from.name;
    info.dtype = from.dtype;
    info.dims = from.dims;
    BOWLINE_TRY_ASSIGN(info.shape, in_context(bind_shape(info.dims, probes_),
                                              format("While checking input \"{}\".", info.name)));
    BOWLINE_TRY(spend(info));
    graph_.inputs.push_back(graph_.add_value(std::move(info)));
    return {};
  }

  Status add_parameter(std::span<const uint32_t> list) {
    GenericValue info;
    info.kind = ValueKind::parameter;
    info.parameters.assign(list.begin(), list.end());
    BOWLINE_TRY(set_parameters(info, table_));
    BOWLINE_TRY(spend(info));
    graph_.add_value(std::move(info));
    return {};
  }

  // Counts the lists and names that a value copies. Vectors grow by doubling, so the factor is 2.
  Status spend(const GenericValue& info) {
    return meter_.spend(2 * (sizeof(GenericValue) + info.name.size() +
                             info.dims.size() * sizeof(GraphDim) +
                             info.parameters.size() * sizeof(uint32_t)));
  }

  Status add_node(const model::NodeEntry& from) {
    BOWLINE_TRY(meter_.spend(kNodeBytes + 2 * from.outputs * sizeof(GenericValue) +
                                 2 * from.inputs.size() * sizeof(ValueId),
                             1));
    GenericNode node;
    node.op = from.op;
    node.name = from.name;
    node.inputs = from.inputs;
    const auto index = static_cast<uint32_t>(graph_.nodes.size());
    if (from.repeat) {
      BOWLINE_TRY(add_body(*from.repeat, node));
    } else {
      node.attributes = from.attributes;
      BOWLINE_TRY(check_inputs(op_def(node.op), node.inputs.size())
                      .at(format("While loading node {} ({}).", index, node.op)));
      const int outputs = outputs_of(op_def(node.op), node.attributes, node.inputs.size());
      BOWLINE_REQUIRE(std::cmp_equal(from.outputs, outputs), "Node {} ({}) has {} outputs, not {}.",
                      index, node.op, from.outputs, outputs);
    }
    node.outputs = graph_.add_results(from.outputs);
    graph_.nodes.push_back(std::move(node));
    return {};
  }

  Status add_body(const model::RepeatEntry& from, GenericNode& node) {
    RepeatAttributesT attributes;
    attributes.count = from.count;
    attributes.carried = from.carried;
    node.attributes = Attributes::of(attributes);
    node.repeat = std::make_shared<GenericRepeat>();
    node.repeat->count = from.count;
    node.repeat->carried = from.carried;
    GraphReader reader(model_, table_, probes_, meter_, model_.graph(from.body));
    BOWLINE_TRY_ASSIGN(GenericGraph body, reader.read_body(from.parameters));
    node.repeat->body = std::make_shared<GenericGraph>(std::move(body));
    return {};
  }

  // The list of updated storages in the file must match the nodes of the graph.
  Status check_updates() const {
    BOWLINE_TRY_ASSIGN(const std::vector<uint32_t> written, written_storages(graph_, table_));
    const std::span<const uint32_t> updates = from_.updates();
    for (size_t i = 0; i < std::max(updates.size(), written.size()); ++i) {
      const auto said = i < updates.size() ? format("{}", updates[i]) : "none";
      const auto is = i < written.size() ? format("{}", written[i]) : "none";
      BOWLINE_REQUIRE(
          said == is,
          "Entry {} of the list of updated storages is {}, but the nodes of the graph write {}.", i,
          said, is);
    }
    return {};
  }

  void add_outputs() {
    graph_.name = from_.name();
    for (uint32_t i = 0; i < from_.outputs(); ++i) {
      const model::OutputEntry output = from_.output(i);
      graph_.outputs.push_back(output.value);
      if (!from_.is_body()) {
        graph_.output_names.emplace_back(output.name);
      }
    }
  }

  const model::Tables& model_;
  const params::Table& table_;
  Dims probes_;
  Meter& meter_;
  model::GraphTable from_;
  GenericGraph graph_;
};

Status read_graphs(ModelState& state, const model::Tables& model, Meter& meter) {
  state.entry_points.dims = model.dims();
  const std::vector<BoundDim> probes = state.entry_points.probes();
  for (uint32_t i = 0; i < model.graphs(); ++i) {
    const model::GraphTable from = model.graph(i);
    if (from.is_body()) {
      continue;
    }
    GraphReader reader(model, state.table, probes, meter, from);
    BOWLINE_TRY_ASSIGN(state.entry_points.graphs.emplace_back(),
                       in_context(reader.read_entry_point(),
                                  format("While loading graph {} \"{}\".", i, from.name())));
  }
  return {};
}

// If a file breaks a rule of an operator, the file is bad.
Status as_file_error(Status status) {
  return status.code() == Code::bad_argument ? std::move(status).as(Code::bad_file) : status;
}

}  // namespace

Result<std::shared_ptr<ModelState>> load_model(std::shared_ptr<const model::VerifiedFile> file) {
  auto state = std::make_shared<ModelState>();
  const model::Tables model(*file);
  const auto read = [&]() -> Status {
    Meter meter(file->budget());
    BOWLINE_TRY(
        meter.spend(2 * (model.storages() * kStorageBytes + model.parameters() * kParameterBytes)));
    state->table = params::read_table(model);
    return read_graphs(*state, model, meter);
  };
  BOWLINE_TRY(as_file_error(read()).at(format("While loading {}.", file->name())));
  state->extras.assets = model.assets();
  state->extras.metadata = model.metadata();
  state->extras.self_tests = model.self_tests();
  state->extras.base = model.base();
  state->extras.training = model.training();
  return state;
}

Result<std::shared_ptr<ModelState>> load_model(const std::string& path, const OpenOptions& options,
                                               FileSystem& files) {
  BOWLINE_TRY_ASSIGN(auto file,
                     model::MappedFile::open(path, files, model::MappedFile::access_of(options)));
  return load_model(std::move(file), options, files);
}

Result<std::shared_ptr<ModelState>> load_model(std::shared_ptr<model::MappedFile> file,
                                               const OpenOptions& options, FileSystem& files) {
  BOWLINE_TRY_ASSIGN(auto verified, model::VerifiedFile::verify(std::move(file), files, options));
  const std::string place = format("While loading {}.", verified->name());
  BOWLINE_TRY_ASSIGN(auto state, load_model(std::move(verified)));
  if (!options.ignore_tie_metadata) {
    BOWLINE_TRY(check_tie_metadata(*state).at(place));
  }
  return state;
}

}  // namespace bowline::detail::graph
