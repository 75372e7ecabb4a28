// Graphs: topological order, one producer per value, one Repeat node per body.
#include "model/verify_attributes.h"
#include "model/verify_parts.h"

namespace bowline::detail::model {
namespace {

// The use of a Repeat body: the node that runs it.
struct BodyUse {
  bool used = false;
  uint32_t inputs = 0;
  uint32_t lists = 0;
  uint32_t carried = 0;
};

class GraphCheck {
 public:
  GraphCheck(Check& check, std::vector<BodyUse>& uses, uint32_t number)
      : check_(check), uses_(uses), number_(number), graph_(*check.model.graphs()->Get(number)) {}

  Status run() {
    BOWLINE_TRY(graph_.body() ? check_body() : check_entry_point());
    values_ = uint64_t{count_of(graph_.inputs())} +
              (graph_.body() ? graph_.body_parameters() : count_of(graph_.parameters()));
    for (uint32_t i = 0; i < count_of(graph_.nodes()); ++i) {
      BOWLINE_TRY(check_node(*graph_.nodes()->Get(i)).at(describe(i)));
    }
    BOWLINE_TRY(check_updates());
    return check_outputs();
  }

 private:
  std::string describe(uint32_t i) const {
    const file::Node& node = *graph_.nodes()->Get(i);
    const bool known = node.op_type() > file::Op::NONE && node.op_type() <= file::Op::MAX;
    return format("While checking node {} ({}).", i,
                  known ? file::EnumNameOp(node.op_type()) : "?");
  }

  Status check_entry_point() {
    BOWLINE_REQUIRE(graph_.body_parameters() == 0,
                    "The graph is not a body, but has body parameters.");
    std::unordered_set<std::string_view> names;
    for (uint32_t i = 0; i < count_of(graph_.inputs()); ++i) {
      const file::Value& input = *graph_.inputs()->Get(i);
      const std::string what = format("Input {}", i);
      BOWLINE_TRY(check_new_name(check_, names, input.name(), what));
      BOWLINE_REQUIRE(input.dtype() <= file::DType::MAX, "{} has the unknown dtype {}.", what,
                      static_cast<int>(input.dtype()));
      BOWLINE_TRY(check_input_shape(input).at(
          format("While checking input \"{}\".", text_of(input.name()))));
    }
    BOWLINE_TRY(spend(check_, graph_.parameters()));
    return check_parameter_numbers(graph_.parameters());
  }

  Status check_input_shape(const file::Value& input) {
    BOWLINE_REQUIRE(count_of(input.shape()) <= kMaxRank, "The shape has rank {}, above {}.",
                    count_of(input.shape()), kMaxRank);
    int64_t elements = 1;
    for (uint32_t a = 0; a < count_of(input.shape()); ++a) {
      const file::Dim& dim = *input.shape()->Get(a);
      BOWLINE_TRY(check_dim(check_, dim.value(), dim.name(), 0));
      const int64_t factor = count_of(dim.name()) > 0 ? 1 : std::max<int64_t>(dim.value(), 1);
      BOWLINE_REQUIRE(checked_mul(elements, factor, elements) && elements <= kMaxElements,
                      "The shape has more than {} elements.", kMaxElements);
    }
    return {};
  }

  Status check_body() {
    const BodyUse& use = uses_[number_];
    BOWLINE_REQUIRE(use.used, "No Repeat node of an earlier graph uses the body.");
    BOWLINE_REQUIRE(count_of(graph_.parameters()) == 0, "The body names parameters of the model.");
    BOWLINE_REQUIRE(count_of(graph_.inputs()) == use.inputs,
                    "The body has {} inputs, but its Repeat has {}.", count_of(graph_.inputs()),
                    use.inputs);
    BOWLINE_REQUIRE(graph_.body_parameters() == use.lists,
                    "The body has {} parameters, but its Repeat has {} lists.",
                    graph_.body_parameters(), use.lists);
    BOWLINE_REQUIRE(count_of(graph_.outputs()) == use.carried,
                    "The body has {} outputs, but its Repeat carries {} values.",
                    count_of(graph_.outputs()), use.carried);
    for (uint32_t i = 0; i < use.inputs; ++i) {
      const file::Value& input = *graph_.inputs()->Get(i);
      BOWLINE_TRY(check_optional_name(check_, input.name(), format("Input {}", i)));
      BOWLINE_REQUIRE(input.dtype() == file::DType::f32 && input.shape() == nullptr,
                      "Input {} of the body has a dtype or a shape.", i);
    }
    return {};
  }

  Status check_parameter_numbers(const flatbuffers::Vector<uint32_t>* numbers) {
    for (uint32_t i = 0; i < count_of(numbers); ++i) {
      BOWLINE_REQUIRE(numbers->Get(i) < count_of(check_.model.parameters()),
                      "Parameter {} is not one of the {} of the model.", numbers->Get(i),
                      count_of(check_.model.parameters()));
    }
    return {};
  }

  Status check_node(const file::Node& node) {
    BOWLINE_REQUIRE(node.op_type() > file::Op::NONE && node.op_type() <= file::Op::MAX,
                    "The operator {} is unknown.", static_cast<int>(node.op_type()));
    BOWLINE_REQUIRE(node.op() != nullptr, "The node has no attributes table.");
    BOWLINE_TRY(check_optional_name(check_, node.name(), "The node"));
    BOWLINE_TRY(spend(check_, node.inputs()));
    for (uint32_t i = 0; i < count_of(node.inputs()); ++i) {
      BOWLINE_REQUIRE(node.inputs()->Get(i) < values_,
                      "Input {} is value {}, but only {} values exist before the node.", i,
                      node.inputs()->Get(i), values_);
    }
    if (node.op_type() == file::Op::Repeat) {
      BOWLINE_TRY(check_repeat(node, *node.op_as_Repeat()));
    } else {
      BOWLINE_REQUIRE(node.outputs() >= 1 && node.outputs() <= kMaxNodeOutputs,
                      "The node has {} outputs.", node.outputs());
    }
    BOWLINE_TRY(check_attributes(check_, node));
    values_ += node.outputs();  // at most the number of inputs or kMaxNodeOutputs: no overflow
    BOWLINE_REQUIRE(values_ < UINT32_MAX, "The graph has more than {} values.", UINT32_MAX);
    return {};
  }

  Status check_repeat(const file::Node& node, const file::RepeatAttributes& repeat) {
    const uint32_t body = repeat.body();
    BOWLINE_TRY(bowline::check_repeat(repeat.count(), repeat.carried()));
    BOWLINE_REQUIRE(repeat.carried() <= count_of(node.inputs()),
                    "The Repeat carries {} values, but has {} inputs.", repeat.carried(),
                    count_of(node.inputs()));
    BOWLINE_REQUIRE(node.outputs() == repeat.carried(),
                    "The Repeat carries {} values, but has {} outputs.", repeat.carried(),
                    node.outputs());
    BOWLINE_REQUIRE(body < check_.model.graphs()->size(),
                    "The body {} is not one of the {} graphs.", body,
                    check_.model.graphs()->size());
    BOWLINE_REQUIRE(body > number_, "The body {} comes before the graph {} that runs it.", body,
                    number_);
    BOWLINE_REQUIRE(check_.model.graphs()->Get(body)->body(), "Graph {} is not a body.", body);
    BOWLINE_REQUIRE(!uses_[body].used, "The body {} belongs to another Repeat.", body);
    uses_[body] = {true, count_of(node.inputs()), count_of(repeat.parameters()), repeat.carried()};
    for (uint32_t i = 0; i < count_of(repeat.parameters()); ++i) {
      const auto* list = repeat.parameters()->Get(i)->parameters();
      BOWLINE_REQUIRE(count_of(list) == repeat.count(),
                      "Parameter list {} has {} entries for {} iterations.", i, count_of(list),
                      repeat.count());
      BOWLINE_TRY(spend(check_, list));
      BOWLINE_TRY(check_parameter_numbers(list));
    }
    return {};
  }

  // graph/load.cpp checks that the nodes write these storages.
  Status check_updates() {
    const auto* updates = graph_.updates();
    BOWLINE_REQUIRE(!graph_.body() || count_of(updates) == 0,
                    "A body cannot update storages, but this one lists {}.", count_of(updates));
    BOWLINE_TRY(spend(check_, updates));
    for (uint32_t i = 0; i < count_of(updates); ++i) {
      BOWLINE_REQUIRE(updates->Get(i) < count_of(check_.model.storages()),
                      "The updated storage {} is not one of the {} storages.", updates->Get(i),
                      count_of(check_.model.storages()));
      BOWLINE_REQUIRE(i == 0 || updates->Get(i - 1) < updates->Get(i),
                      "The updated storages are not in ascending order: {} follows {}.",
                      updates->Get(i), updates->Get(i - 1));
    }
    return {};
  }

  Status check_outputs() {
    BOWLINE_REQUIRE(count_of(graph_.outputs()) > 0, "The graph has no outputs.");
    std::unordered_set<std::string_view> names;
    for (uint32_t i = 0; i < count_of(graph_.outputs()); ++i) {
      const file::Output& output = *graph_.outputs()->Get(i);
      const std::string what = format("Output {}", i);
      BOWLINE_REQUIRE(output.value() < values_, "{} is value {} of {}.", what, output.value(),
                      values_);
      if (graph_.body()) {
        BOWLINE_TRY(check_optional_name(check_, output.name(), what));
      } else {
        BOWLINE_TRY(check_new_name(check_, names, output.name(), what));
      }
    }
    return {};
  }

  Check& check_;
  std::vector<BodyUse>& uses_;
  uint32_t number_;
  const file::Graph& graph_;
  uint64_t values_ = 0;
};

}  // namespace

Status check_graphs(Check& check) {
  std::vector<BodyUse> uses(count_of(check.model.graphs()));
  std::unordered_set<std::string_view> names;
  for (uint32_t i = 0; i < uses.size(); ++i) {
    const file::Graph& graph = *check.model.graphs()->Get(i);
    const std::string what = format("Graph {}", i);
    if (graph.body()) {
      BOWLINE_TRY(check_optional_name(check, graph.name(), what));
    } else {
      BOWLINE_TRY(check_new_name(check, names, graph.name(), what));
    }
    BOWLINE_TRY(GraphCheck(check, uses, i)
                    .run()
                    .at(format("While checking graph {} \"{}\".", i, text_of(graph.name()))));
  }
  return {};
}

}  // namespace bowline::detail::model
