#include "train/prepared.h"

#include "base/escape.h"
#include "plan/describe.h"
#include "plan/listing.h"
#include "train/optimizer.h"
#include "train/options.h"

namespace bowline::detail::train {
namespace {

// The order in which the activations of nodes are recomputed instead of kept, and the counts that
// are worth a plan. Costly nodes are spread over the graph: first every second costly node in graph
// order is recomputed, then every second of the rest, and so on. This avoids recomputing a long
// stretch of the forward pass at once, whose results would need memory at the same time.
// Source  Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, section 4.1.
struct AgainOrder {
  std::vector<graph::ForwardNode> nodes;
  std::vector<size_t> tries;

  explicit AgainOrder(const std::map<graph::ForwardNode, graph::Kept>& kept) {
    std::vector<graph::ForwardNode> costly;
    for (const auto& [node, what] : kept) {
      (what.costly ? costly : nodes).push_back(node);
    }
    std::ranges::stable_sort(nodes, std::greater<>(),
                             [&](const graph::ForwardNode& node) { return kept.at(node).bytes; });
    if (!nodes.empty()) {
      tries.push_back(nodes.size());
    }
    for (size_t step = 1; !costly.empty() && step <= costly.size(); step *= 2) {
      for (size_t i = step - 1; i < costly.size(); i += 2 * step) {
        nodes.push_back(costly[i]);
      }
      tries.push_back(nodes.size());
    }
  }
};

std::string computing_again(size_t nodes) {
  return format("While planning to recompute the activations of {} nodes instead of keeping them.",
                nodes);
}

Status require_room(const Plans& p, const params::Table& staged, device::OpenDevice& device) {
  device::Demand demand;
  p.sizes.add_to(device, demand);
  exec::add_missing_copies(p.all(), staged, device, demand);
  add_waiting(staged, demand);
  return device.require_room(demand).at(
      format("While reserving memory for the training: {} bytes for activations, {} for inputs and "
             "outputs, "
             "the rest for gradients and moments.",
             p.sizes.arena, p.sizes.io));
}

// The smallest number of first nodes of `order` to recompute so that the plans fit. A binary search
// between two entries of `tries` finds it.
template <class Make>
Result<size_t> how_many_again(std::span<const graph::ForwardNode> order,
                              std::span<const size_t> tries, const params::Table& staged,
                              device::OpenDevice& device, const Make& make, Status whole) {
  const auto fits = [&](size_t count) -> Status {
    const std::span<const graph::ForwardNode> some = order.first(count);
    BOWLINE_TRY_ASSIGN(const Plans plans, make({some.begin(), some.end()}));
    return require_room(plans, staged, device);
  };
  size_t too_few = 0;
  for (const size_t count : tries) {
    whole = fits(count);
    if (!whole.ok()) {
      too_few = count;
      continue;
    }
    size_t enough = count;
    while (enough - too_few > 1) {
      const size_t middle = too_few + (enough - too_few) / 2;
      (fits(middle).ok() ? enough : too_few) = middle;
    }
    return enough;
  }
  return order.empty() ? std::move(whole) : std::move(whole).at(computing_again(order.size()));
}

}  // namespace

Result<Prepared> prepare(const Planner& planner, std::span<const BoundLoss> bound,
                         params::Table& staged, const std::shared_ptr<device::OpenDevice>& device) {
  std::vector<graph::GradientRow> rows(staged.storages.size());
  std::vector<uint64_t> elements(staged.storages.size());
  for (uint32_t tie = 0; tie < staged.storages.size(); ++tie) {
    elements[tie] = static_cast<uint64_t>(staged.storages[tie].shape.elements());
  }
  for (const uint32_t tie : trained(staged)) {
    rows[tie] = staged.owned(tie, params::Role::gradient, 0);
  }
  const auto make = [&](const std::set<graph::ForwardNode>& again) {
    return planner.make(bound, staged, *device, {rows, elements, &again});
  };
  BOWLINE_TRY_ASSIGN(Plans plans, make({}));
  BOWLINE_TRY(planner.check_distinct(plans));
  const auto largest = std::ranges::max_element(
      plans.sets, {}, [](const PlannedSet& s) { return s.accumulate.arena_bytes; });
  const AgainOrder again_order(largest->training.kept);
  const std::vector<graph::ForwardNode>& order = again_order.nodes;
  const Status whole = require_room(plans, staged, *device);
  size_t again = 0;
  if (!whole.ok()) {
    // Recomputation can satisfy a budget. A device without enough memory reports what the plan
    // needs.
    BOWLINE_TRY(whole.code() == Code::over_budget ? Status() : Status(whole));
    BOWLINE_TRY_ASSIGN(again,
                       how_many_again(order, again_order.tries, staged, *device, make, whole));
    BOWLINE_TRY_ASSIGN(plans,
                       make({order.begin(), order.begin() + static_cast<std::ptrdiff_t>(again)}));
  }
  BOWLINE_TRY(place_waiting(staged));
  Result<Prepared> recorded = Prepared::record(std::move(plans), staged, device);
  // The memory of a recording is known only after it is made.
  while (recorded.status().code() == Code::over_budget && again < order.size()) {
    again = std::min(order.size(), again + std::max<size_t>(order.size() / 8, 1));
    BOWLINE_TRY_ASSIGN(Plans smaller,
                       make({order.begin(), order.begin() + static_cast<std::ptrdiff_t>(again)}));
    recorded = Prepared::record(std::move(smaller), staged, device);
  }
  if (!recorded.ok() && again > 0) {
    return Status(recorded.status()).at(computing_again(again));
  }
  return recorded;
}

Result<Prepared> Prepared::record(Plans plans, params::Table& staged,
                                  const std::shared_ptr<device::OpenDevice>& device) {
  Prepared out;
  BOWLINE_TRY_ASSIGN(out.workspace, exec::Workspace::allocate(device, plans.sizes));
  const auto recorded = [&](plan::Plan& plan) {
    return exec::Segment::record(std::move(plan), staged, device, out.workspace);
  };
  for (PlannedSet& set : plans.sets) {
    BOWLINE_TRY_ASSIGN(auto a, recorded(set.accumulate));
    BOWLINE_TRY_ASSIGN(auto u, recorded(set.update));
    BOWLINE_TRY_ASSIGN(auto e, recorded(set.evaluate));
    std::optional<exec::Segment> weigh;
    if (set.weigh) {
      BOWLINE_TRY_ASSIGN(exec::Segment segment, recorded(*set.weigh));
      weigh.emplace(std::move(segment));
    }
    out.sets.push_back({std::move(set.training), std::move(a), std::move(u), std::move(e),
                        std::move(weigh), std::move(set.means)});
  }
  out.steps = std::move(plans.steps);
  out.update_graph = std::move(plans.update_graph);
  out.weight_unit = plans.weight_unit;
  out.dynamic_scale = plans.dynamic_scale;
  out.device = device;
  out.generations = exec::Generations::of(staged, true);
  return out;
}

void Prepared::drop() {
  sets.clear();
  steps.reset();
  workspace = {};
}

Result<size_t> Prepared::set_for(std::span<const Tensor> batch, const TrainOptions& options) const {
  if (sets.size() == 1) {
    return size_t{0};
  }
  for (size_t i = 0; i < sets.size(); ++i) {
    if (exec::takes_all(sets[i].evaluate.plan(), batch)) {
      return i;
    }
  }
  std::string known;
  for (const std::vector<BoundDim>& dims : sets_of_dims(options)) {
    known += (known.empty() ? "" : "; ") + text_of(dims);
  }
  return Status(Code::bad_argument,
                format("The shapes of the batch fit none of the dims: {}.", known));
}

uint64_t Prepared::launches_of(size_t set, const TrainOptions& options) const {
  return uint64_t{sets[set].accumulate.recording()->launches()} * options.accumulation +
         sets[set].update.recording()->launches();
}

Result<float> Prepared::read_output(const plan::Plan& plan, size_t number) const {
  float value = 0;
  BOWLINE_TRY(device->copy_out(std::as_writable_bytes(std::span(&value, 1)), workspace.io->buffer(),
                               plan.outputs[number].offset));
  return value;
}

Result<double> Prepared::read_weight(const Set& set) const {
  if (!set.training.has_loss_weight) {
    return set.training.loss_terms;
  }
  BOWLINE_TRY_ASSIGN(const float weight, read_output(set.accumulate.plan(), 1));
  return static_cast<double>(weight);
}

void Prepared::add_to(MemoryReport& report) const {
  report.arena_bytes = workspace.arena_bytes();
  report.io_bytes = workspace.io_bytes();
  for (const Set& set : sets) {
    set.for_each_segment([&report](const exec::Segment& s) {
      report.backend_bytes += s.backend_bytes();
      report.lower_bound_bytes = std::max(report.lower_bound_bytes, s.plan().arena_lower_bound);
    });
  }
}

namespace {

std::string io_text(std::string_view what, const IoInfo& io) {
  return format("copy {} {} {}{} per submission\n", what, listed_name(io.name), io.dtype,
                Shape(io.shape));
}

// The heading of the listing of a set of dims, if there are several sets.
std::string heading(std::span<const std::vector<BoundDim>> dims, size_t number) {
  return dims.size() > 1 ? text_of(dims[number]) + '\n' : "";
}

// Lists what a step submits and copies, then the parameters of the Repeats.
Result<std::string> plan_text(const Prepared& prepared, bool columns, const TrainOptions& options) {
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, prepared.describe(options));
  const std::vector<std::vector<BoundDim>> dims = sets_of_dims(options);
  const auto launches = [&](const SegmentInfo& s) {
    return columns ? format(", {} launches", s.launches) : "";
  };
  std::string out;
  for (size_t i = 0; i < prepared.sets.size(); ++i) {
    const SegmentInfo& accumulate = plan.segments[3 * i];
    const SegmentInfo& update = plan.segments[3 * i + 1];
    out += heading(dims, i) + plan::list_copies(accumulate);
    out += format("segment {}: {} submissions per step{}\n", accumulate.name, plan.accumulation,
                  launches(accumulate));
    out += format("segment {}: with the last of them{}\n", update.name, launches(update));
    for (const IoInfo& io : accumulate.inputs) {
      out += io_text("in", io);
    }
    out += "copy in per-step scalars per submission\n";
    for (const IoInfo& io : accumulate.outputs) {
      out += io_text("out", io);
    }
    out += "copy out per-step scalars per submission\n";
    if (columns) {
      out += plan::list_records(accumulate) + plan::list_records(update);
    }
  }
  return out + plan::list_repeat_lists(plan.repeat_lists);
}

}  // namespace

Result<std::string> Prepared::listing(std::string_view part, bool columns,
                                      const TrainOptions& options) const {
  BOWLINE_REQUIRE(!sets.empty(), "There is no plan to list: the last planning failed.");
  if (part == "update") {
    return plan::list_nodes(update_graph, 0, update_graph.nodes.size(), {columns});
  }
  if (part == "build") {
    return plan_text(*this, columns, options);
  }
  BOWLINE_REQUIRE(part == "forward" || part == "backward",
                  "There is no listing \"{}\", only build, forward, backward and update.", part);
  const std::vector<std::vector<BoundDim>> dims = sets_of_dims(options);
  std::string out;
  for (size_t i = 0; i < sets.size(); ++i) {
    const graph::BoundGraph& g = sets[i].training.graph;
    const size_t begin = sets[i].training.backward_begin;
    out += heading(dims, i) + (part == "forward"
                                   ? plan::list_nodes(g, 0, begin, {columns})
                                   : plan::list_nodes(g, begin, g.nodes.size(), {columns}));
  }
  return out;
}

Result<PlanInfo> Prepared::describe(const TrainOptions& options) const {
  BOWLINE_REQUIRE(!sets.empty(), "There is no plan to describe: the last planning failed.");
  const std::vector<std::vector<BoundDim>> dims = sets_of_dims(options);
  PlanInfo out;
  out.device = device->info().name;
  out.accumulation = options.accumulation;
  for (size_t i = 0; i < sets.size(); ++i) {
    const Set& set = sets[i];
    out.recomputed_nodes = std::max<uint64_t>(out.recomputed_nodes, set.training.again);
    for (const exec::Segment* segment : {&set.accumulate, &set.update, &set.evaluate}) {
      out.segments.push_back(segment->describe());
      if (sets.size() > 1) {
        out.segments.back().entry_point = {options.entry_point, dims[i],
                                           options.precision.compute_dtype};
      }
    }
    for (RepeatListInfo& list : plan::describe_repeat_lists(set.training.graph)) {
      out.repeat_lists.push_back(std::move(list));
    }
  }
  return out;
}

}  // namespace bowline::detail::train
