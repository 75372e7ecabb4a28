// The plans of a trainer: accumulate (forward, backward, gradients), update (clip, optimizer) and
// evaluate.
#include "graph/fuse.h"
#include "graph/precision.h"
#include "graph/updates.h"
#include "model/checksum.h"
#include "params/home.h"
#include "plan/listing.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/trainer.h"

namespace bowline::detail::train {
namespace {

using graph::BoundGraph;
using graph::ValueId;

Result<ValueId> output_named(const BoundGraph& g, std::string_view name) {
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (g.output_names[i] == name) {
      return g.outputs[i];
    }
  }
  return Status(Code::bad_argument, format("Graph \"{}\" has no output \"{}\".", g.name, name));
}

void keep_output(BoundGraph& g, ValueId value, const std::string& name) {
  g.outputs = {value};
  g.output_names = {name};
}

// The one input of the update is where the accumulate segment leaves the loss.
void read_loss_at(plan::Plan& update, uint64_t offset) {
  for (device::Record& r : update.program.records) {
    for (device::Operand& o : r.inputs) {
      if (o.slot == device::kIoSlot) {
        o.offset = offset;
      }
    }
  }
}

bool has_f16(const BoundGraph& g) {
  return std::ranges::any_of(g.values,
                             [](const graph::BoundValue& v) { return v.dtype == DType::f16; }) ||
         std::ranges::any_of(g.nodes, [](const graph::BoundNode& n) {
           return n.repeat && has_f16(*n.repeat->body);
         });
}

// Marks the owners of the gradient rows that the graph writes.
void mark_written(const BoundGraph& g, const params::Table& table, std::vector<char>& written) {
  for (const graph::BoundNode& node : g.nodes) {
    if (op_def(node.op).gradient_rows == GradientRows::added) {
      for (const graph::StorageUse& u : g[node.inputs[0]].uses) {
        if (u.elements != 0) {
          written[static_cast<size_t>(table.storages[u.tie].owner)] = 1;
        }
      }
    }
    if (node.repeat) {
      mark_written(*node.repeat->body, table, written);
    }
  }
}

}  // namespace

Status TrainerState::check_gradients(const BoundGraph& graph, const params::Table& table) const {
  std::vector<char> written(table.storages.size());
  mark_written(graph, table, written);
  for (const uint32_t tie : trained(table)) {
    if (written[tie] != 0) {
      continue;
    }
    std::string names;
    for (const uint32_t p : sorted(table.users(tie))) {
      names += (names.empty() ? "" : ", ") + table.parameters[p].name;
    }
    return Status(Code::bad_argument,
                  format("The loss \"{}\" gives no gradient to the trainable storage {} ({}).",
                         options_.loss, tie, names));
  }
  return {};
}

Result<TrainerState::BoundLoss> TrainerState::bound_loss(std::span<const BoundDim> dims,
                                                         std::optional<DType> compute) const {
  const graph::GenericGraph* generic = model_->entry_points.find(options_.entry_point);
  BOWLINE_REQUIRE(generic != nullptr, "The model has no entry point \"{}\".", options_.entry_point);
  BOWLINE_TRY_ASSIGN(const auto states, graph::written_storages(*generic, model_->table));
  BOWLINE_TRY(check_states(*generic, states));
  BoundLoss out;
  BOWLINE_TRY_ASSIGN(
      out.graph, graph::bind(*generic, *model_, dims, options_.precision.compute_dtype, compute));
  BOWLINE_TRY_ASSIGN(out.loss, output_named(out.graph, options_.loss));
  keep_output(out.graph, out.loss, options_.loss);
  prune(out.graph);
  BOWLINE_TRY_ASSIGN(out.graph.outputs[0], graph::in_f32(out.graph, out.graph.outputs[0]));
  out.loss = out.graph.outputs[0];
  return out;
}

Result<std::vector<TrainerState::BoundLoss>> TrainerState::bound_losses(
    std::optional<DType> compute) const {
  std::vector<BoundLoss> out;
  for (const std::vector<BoundDim>& dims : sets_of_dims(options_)) {
    BOWLINE_TRY_ASSIGN(out.emplace_back(), bound_loss(dims, compute));
  }
  return out;
}

Result<uint64_t> TrainerState::graph_hash() const {
  BOWLINE_TRY_ASSIGN(const std::vector<BoundLoss> bound, bound_losses({}));
  std::string text;
  for (const BoundLoss& b : bound) {
    text += plan::list_nodes(b.graph, 0, b.graph.nodes.size()) +
            plan::list_repeat_lists(plan::describe_repeat_lists(b.graph));
  }
  return model::checksum(std::as_bytes(std::span(text)));
}

void TrainerState::drop_plans() {
  sets_.clear();
  steps_.reset();
  workspace_ = {};
}

Status TrainerState::prepare() {
  if (sets_.empty() || !generations_.match(model_->table)) {
    BOWLINE_TRY(plan(model_->table));
  }
  return fill_masters();
}

// A master holds what its storage does, until an update or a checkpoint says more precisely what
// that is.
Status TrainerState::fill_masters() {
  const params::Table& table = model_->table;
  masters_.resize(table.storages.size());
  std::vector<std::byte> scratch;
  for (uint32_t tie = 0; tie < table.storages.size(); ++tie) {
    const auto row = table.owned(tie, params::Role::master, 0);
    const params::Storage& storage = table.storages[tie];
    if (!row || masters_[tie] == storage.version || !table.storages[*row].home.block) {
      continue;
    }
    const params::Storage& master = table.storages[*row];
    BOWLINE_TRY_ASSIGN(const params::Bytes values, params::read_all(storage, scratch));
    BOWLINE_TRY(params::require_host_memory(master.bytes()));
    std::vector<std::byte> wide(master.bytes());
    params::convert_floats(values, storage.dtype, wide, master.dtype);
    BOWLINE_TRY(master.home.block->write(0, wide));
    model_->table.wrote(*row);
    masters_[tie] = storage.version;
  }
  return {};
}

void TrainerState::note_masters(const params::Table& holder, const params::Table& live) {
  masters_.assign(live.storages.size(), std::nullopt);
  for (uint32_t tie = 0; tie < std::min(holder.storages.size(), live.storages.size()); ++tie) {
    if (holder.owned(tie, params::Role::master, 0)) {
      masters_[tie] = live.storages[tie].version;
    }
  }
}

const std::shared_ptr<device::OpenDevice>& TrainerState::home() const {
  const std::vector<uint32_t> ties = trained(model_->table);
  return ties.empty() ? model_->table.device()
                      : model_->table.storages[ties[0]].home.block->device_handle();
}

namespace {

// Nodes in the order in which they are no longer kept, and after how many of them a plan is worth a
// try. What takes long is spread over the graph: of its nodes in the order of the graph every
// second one is kept first, then every fourth, and so on. Then the backward part never makes a long
// stretch of the forward part again at once, whose results would lie beside each other.
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

}  // namespace

// A number of first nodes of `order` with which the plans have room: the least one between two that
// are tried.
template <class Make>
Result<size_t> TrainerState::how_many_again(std::span<const graph::ForwardNode> order,
                                            std::span<const size_t> tries,
                                            const params::Table& staged, device::OpenDevice& device,
                                            const Make& make, Status whole) {
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

Status TrainerState::plan(params::Table staged, std::optional<const device::OpenDevice*> wanted) {
  BOWLINE_REQUIRE(!trained(staged).empty(), "The model has no trainable storage.");
  BOWLINE_TRY_ASSIGN(std::vector<BoundLoss> bound, bound_losses({}));
  BOWLINE_TRY_ASSIGN(const std::shared_ptr<device::OpenDevice> device,
                     exec::device_of(staged, graph::storages_of(bound[0].graph)));
  if (wanted) {
    BOWLINE_TRY(exec::require_on_device(device.get(), *wanted));
  }
  BOWLINE_REQUIRE(device != nullptr, "The model lies on no device; move it with Model::to().");
  if (const std::optional<DType> compute = device->capabilities().compute) {
    BOWLINE_TRY_ASSIGN(bound, bound_losses(compute));
  }
  // Only shapes decide this, so the memory budget does not change the training results.
  for (BoundLoss& b : bound) {
    graph::multiply_tables(b.graph);
  }
  add_rows(staged, options_.optimizer);
  std::vector<graph::GradientRow> rows(staged.storages.size());
  std::vector<uint64_t> elements(staged.storages.size());
  for (uint32_t tie = 0; tie < staged.storages.size(); ++tie) {
    elements[tie] = static_cast<uint64_t>(staged.storages[tie].shape.elements());
  }
  for (const uint32_t tie : trained(staged)) {
    rows[tie] = staged.owned(tie, params::Role::gradient, 0);
  }
  // The old plans are of a table that is no more. They go first, so that two arenas never live
  // together.
  drop_plans();
  const auto make = [&](const std::set<graph::ForwardNode>& again) {
    return make_plans(bound, staged, *device, {rows, elements, &again});
  };
  BOWLINE_TRY_ASSIGN(Plans plans, make({}));
  BOWLINE_TRY(check_distinct(plans));
  const auto largest = std::ranges::max_element(
      plans.sets, {}, [](const PlannedSet& s) { return s.accumulate.arena_bytes; });
  const AgainOrder again_order(largest->training.kept);
  const std::vector<graph::ForwardNode>& order = again_order.nodes;
  const Status whole = require_room(plans, staged, *device);
  size_t again = 0;
  if (!whole.ok()) {
    // A budget is a wish that computing again can fulfil; a device without memory says how much the
    // plan needs.
    BOWLINE_TRY(whole.code() == Code::over_budget ? Status() : Status(whole));
    BOWLINE_TRY_ASSIGN(again,
                       how_many_again(order, again_order.tries, staged, *device, make, whole));
    BOWLINE_TRY_ASSIGN(plans,
                       make({order.begin(), order.begin() + static_cast<std::ptrdiff_t>(again)}));
  }
  BOWLINE_TRY(place_waiting(staged));
  Status recorded = record(std::move(plans), staged, device);
  // What a recording takes is known when it is made.
  while (recorded.code() == Code::over_budget && again < order.size()) {
    again = std::min(order.size(), again + std::max<size_t>(order.size() / 8, 1));
    BOWLINE_TRY_ASSIGN(Plans smaller,
                       make({order.begin(), order.begin() + static_cast<std::ptrdiff_t>(again)}));
    recorded = record(std::move(smaller), staged, device);
  }
  return again == 0 ? std::move(recorded) : std::move(recorded).at(computing_again(again));
}

std::vector<const plan::Plan*> TrainerState::Plans::all() const {
  std::vector<const plan::Plan*> out;
  for (const PlannedSet& set : sets) {
    out.insert(out.end(), {&set.accumulate, &set.update, &set.evaluate});
    if (set.weigh) {
      out.push_back(&*set.weigh);
    }
  }
  return out;
}

// One per set of dims. Empty if one weight suits all terms of a micro-batch.
Result<std::vector<graph::FactoredLoss>> TrainerState::factored_losses(
    std::span<const BoundLoss> bound, const graph::GradientOptions& options) const {
  std::vector<graph::FactoredLoss> out;
  bool one_weight = true;
  for (size_t i = 0; options_.accumulation > 1 && i < bound.size(); ++i) {
    BOWLINE_TRY_ASSIGN(out.emplace_back(), graph::factored_loss(bound[i].graph, bound[i].loss,
                                                                options, bound.size() == 1));
    one_weight = one_weight && out[i].has_one_weight;
    BOWLINE_REQUIRE_CODE(
        out[i].means.size() == out[0].means.size(), Code::internal,
        "The loss has {} means with some dims and {} with others. This is a bug in Bowline: "
        "please report it. Train with an accumulation of 1 meanwhile.",
        out[0].means.size(), out[i].means.size());
  }
  return one_weight ? std::vector<graph::FactoredLoss>() : std::move(out);
}

Result<TrainerState::Plans> TrainerState::make_plans(std::span<const BoundLoss> bound,
                                                     const params::Table& staged,
                                                     const device::OpenDevice& device,
                                                     const graph::GradientOptions& options) const {
  Plans p;
  plan::StepLayout layout;  // one for all: the update reads what the accumulate segment wrote
  const auto lower = [&](const BoundGraph& g, const char* name) {
    return plan::lower(g, name, device, layout, options_.budget);
  };
  BOWLINE_TRY_ASSIGN(std::vector<graph::FactoredLoss> factored, factored_losses(bound, options));
  for (const BoundLoss& b : bound) {
    PlannedSet& set = p.sets.emplace_back();
    BoundGraph evaluated = graph::deep_copy(b.graph);
    graph::GradientOptions weighted = options;
    weighted.weighs_loss = options_.accumulation > 1 && factored.empty();
    weighted.weight_unit = p.sets.size() == 1 ? 0 : p.weight_unit;
    BoundLoss trained{graph::deep_copy(b.graph), b.loss};
    if (!factored.empty()) {
      graph::FactoredLoss& f = factored[p.sets.size() - 1];
      trained = {std::move(f.graph), f.loss};
      set.means = std::move(f.means);
      graph::drop_what_trains(f.weights);
      plan::derive_copies(f.weights, staged);
      BOWLINE_TRY_ASSIGN(set.weigh.emplace(), lower(f.weights, "weights of the loss"));
    }
    BOWLINE_TRY_ASSIGN(set.training,
                       graph::differentiate(std::move(trained.graph), trained.loss, weighted));
    p.weight_unit = set.training.weight_unit;
    BOWLINE_TRY(check_gradients(set.training.graph, staged));
    p.dynamic_scale =
        p.dynamic_scale || (options_.precision.loss_scale == 0 && has_f16(set.training.graph));
    graph::drop_what_trains(evaluated);
    plan::derive_copies(evaluated, staged);
    set.training.backward_begin =
        plan::derive_copies(set.training.graph, staged, set.training.backward_begin);
    if (p.update_graph.nodes.empty()) {
      BOWLINE_TRY_ASSIGN(p.update_graph, update_graph(staged, options_));
    }
    BOWLINE_TRY_ASSIGN(set.accumulate, lower(set.training.graph, "accumulate"));
    BOWLINE_TRY_ASSIGN(set.update, lower(p.update_graph, "update"));
    BOWLINE_TRY_ASSIGN(set.evaluate, lower(evaluated, "forward"));
    read_loss_at(set.update, set.accumulate.outputs[0].offset);
  }
  p.steps.emplace(layout);
  for (const PlannedSet& set : p.sets) {
    BOWLINE_TRY(p.steps->check(set.evaluate));
    BOWLINE_TRY(set.weigh ? p.steps->check(*set.weigh) : Status());
  }
  fill(*p.steps);
  for (const PlannedSet& set : p.sets) {
    BOWLINE_TRY(p.steps->check(set.accumulate));
    BOWLINE_TRY(p.steps->check(set.update));
  }
  for (const plan::Plan* plan : p.all()) {
    p.sizes.cover(*plan, layout);
  }
  return p;
}

// By the shapes of its inputs a batch says which set it is of.
Status TrainerState::check_distinct(const Plans& p) const {
  const std::vector<std::vector<BoundDim>> dims = sets_of_dims(options_);
  for (size_t i = 0; i < p.sets.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool same = std::ranges::equal(p.sets[i].accumulate.inputs, p.sets[j].accumulate.inputs,
                                           {}, &plan::IoRange::shape, &plan::IoRange::shape);
      BOWLINE_REQUIRE(!same, "With the dims {} and {} batches have the same shapes.",
                      text_of(dims[j]), text_of(dims[i]));
    }
  }
  return {};
}

Result<size_t> TrainerState::set_for(std::span<const Tensor> batch) const {
  if (sets_.size() == 1) {
    return size_t{0};
  }
  for (size_t i = 0; i < sets_.size(); ++i) {
    if (exec::takes_all(sets_[i].evaluate.plan(), batch)) {
      return i;
    }
  }
  std::string known;
  for (const std::vector<BoundDim>& dims : sets_of_dims(options_)) {
    known += (known.empty() ? "" : "; ") + text_of(dims);
  }
  return Status(Code::bad_argument,
                format("The batch has the shapes of none of these: {}.", known));
}

uint64_t TrainerState::launches_of(const Set& set) const {
  return uint64_t{set.accumulate.recording()->launches()} * options_.accumulation +
         set.update.recording()->launches();
}

Status TrainerState::require_room(const Plans& p, const params::Table& staged,
                                  device::OpenDevice& device) {
  device::Demand demand;
  p.sizes.add_to(demand);
  exec::add_missing_copies(p.all(), staged, device, demand);
  add_waiting(staged, demand);
  return device.require_room(demand).at(
      format("While making room for the plans of a training: {} bytes of activations, {} of inputs "
             "and outputs, the rest gradients and moments.",
             p.sizes.arena, p.sizes.io));
}

Status TrainerState::record(Plans p, params::Table& staged,
                            const std::shared_ptr<device::OpenDevice>& device) {
  BOWLINE_TRY_ASSIGN(exec::Workspace w, exec::Workspace::allocate(device, p.sizes));
  std::vector<Set> sets;
  for (PlannedSet& set : p.sets) {
    BOWLINE_TRY_ASSIGN(auto a, exec::Segment::record(std::move(set.accumulate), staged, device, w));
    BOWLINE_TRY_ASSIGN(auto u, exec::Segment::record(std::move(set.update), staged, device, w));
    BOWLINE_TRY_ASSIGN(auto e, exec::Segment::record(std::move(set.evaluate), staged, device, w));
    std::optional<exec::Segment> weigh;
    if (set.weigh) {
      BOWLINE_TRY_ASSIGN(exec::Segment segment,
                         exec::Segment::record(std::move(*set.weigh), staged, device, w));
      weigh.emplace(std::move(segment));
    }
    sets.push_back({std::move(set.training), std::move(a), std::move(u), std::move(e),
                    std::move(weigh), std::move(set.means)});
  }
  exec::Generations generations = exec::Generations::of(staged, true);
  std::vector<State> states = states_of(sets[0].accumulate.plan(), staged);
  // From here on nothing fails.
  dynamic_scale_ = p.dynamic_scale;
  weight_unit_ = p.weight_unit;
  if (!state_.loss_scale) {
    state_.loss_scale = p.dynamic_scale                      ? options_.precision.initial_scale
                        : options_.precision.loss_scale != 0 ? options_.precision.loss_scale
                                                             : 1;
  }
  workspace_ = std::move(w);
  steps_ = std::move(p.steps);
  sets_ = std::move(sets);
  set_ = 0;
  model_->table = std::move(staged);
  device_ = device;
  generations_ = std::move(generations);
  states_ = std::move(states);
  states_kept_ = false;
  update_graph_ = std::move(p.update_graph);
  counters_.plan_builds += sets_.size();
  counters_.recordings += 3 * sets_.size();
  counters_.launches = launches_of(sets_[0]);
  return {};
}

MemoryReport TrainerState::memory() const {
  MemoryReport m;
  m.arena_bytes = workspace_.arena_bytes();
  m.io_bytes = workspace_.io_bytes();
  for (const Set& set : sets_) {
    for (const exec::Segment* s : {&set.accumulate, &set.update, &set.evaluate}) {
      m.backend_bytes += s->backend_bytes();
      m.lower_bound_bytes = std::max(m.lower_bound_bytes, s->plan().arena_lower_bound);
    }
  }
  if (outputs_) {
    const MemoryReport more = outputs_->memory();
    m.arena_bytes += more.arena_bytes;
    m.io_bytes += more.io_bytes;
    m.backend_bytes += more.backend_bytes;
  }
  exec::complete(m, model_->table, device_ ? device_.get() : home().get());
  return m;
}

namespace {

std::string io_text(std::string_view what, const IoInfo& io) {
  return format("copy {} {} {}{} per submission\n", what, listed_name(io.name), io.dtype,
                Shape(io.shape));
}

// Above what is listed of a set of dims, where there are several.
std::string heading(std::span<const std::vector<BoundDim>> dims, size_t number) {
  return dims.size() > 1 ? text_of(dims[number]) + '\n' : "";
}

}  // namespace

Result<std::string> TrainerState::listing(std::string_view part, bool columns) const {
  BOWLINE_REQUIRE(!sets_.empty(), "There is no plan to list: the last planning failed.");
  if (part == "update") {
    return plan::list_nodes(update_graph_, 0, update_graph_.nodes.size(), {columns});
  }
  if (part == "build") {
    return plan_text(columns);
  }
  BOWLINE_REQUIRE(part == "forward" || part == "backward",
                  "There is no listing \"{}\"; there are build, forward, backward and update.",
                  part);
  const std::vector<std::vector<BoundDim>> dims = sets_of_dims(options_);
  std::string out;
  for (size_t i = 0; i < sets_.size(); ++i) {
    const BoundGraph& g = sets_[i].training.graph;
    const size_t begin = sets_[i].training.backward_begin;
    out += heading(dims, i) + (part == "forward"
                                   ? plan::list_nodes(g, 0, begin, {columns})
                                   : plan::list_nodes(g, begin, g.nodes.size(), {columns}));
  }
  return out;
}

Result<PlanInfo> TrainerState::describe() const {
  BOWLINE_REQUIRE(!sets_.empty(), "There is no plan to describe: the last planning failed.");
  const std::vector<std::vector<BoundDim>> dims = sets_of_dims(options_);
  PlanInfo out;
  out.device = device_->info().name;
  out.accumulation = options_.accumulation;
  for (size_t i = 0; i < sets_.size(); ++i) {
    const Set& set = sets_[i];
    out.recomputed_nodes = std::max<uint64_t>(out.recomputed_nodes, set.training.again);
    for (const exec::Segment* segment : {&set.accumulate, &set.update, &set.evaluate}) {
      out.segments.push_back(segment->describe());
      if (sets_.size() > 1) {
        out.segments.back().entry_point = {options_.entry_point, dims[i],
                                           options_.precision.compute_dtype};
      }
    }
    for (RepeatListInfo& list : plan::describe_repeat_lists(set.training.graph)) {
      out.repeat_lists.push_back(std::move(list));
    }
  }
  return out;
}

// What a step submits and copies, then the parameters of the Repeats.
Result<std::string> TrainerState::plan_text(bool columns) const {
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, describe());
  const std::vector<std::vector<BoundDim>> dims = sets_of_dims(options_);
  const auto launches = [&](const SegmentInfo& s) {
    return columns ? format(", {} launches", s.launches) : "";
  };
  std::string out;
  for (size_t i = 0; i < sets_.size(); ++i) {
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

}  // namespace bowline::detail::train
