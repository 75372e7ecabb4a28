// A model file with well-formed tables of arbitrary content: opened, planned, run and trained for
// two steps, on cpu and on null. Each step works or returns a status. It never crashes and never
// exceeds the memory budget.
#include <map>

#include "api/internals.h"
#include "device/device.h"
#include "faults/wrapped_device.h"
#include "fuzz/mutator.h"
#include "graph/bind.h"
#include "graph/load.h"

namespace {

using namespace bowline;
using test::succeeded;

constexpr uint64_t kDeviceBytes = uint64_t{16} << 20;
constexpr int64_t kElements = int64_t{1} << 18;  // for the inputs and outputs of a run
constexpr uint64_t kIterations = 256;            // of the Repeats of an entry point
// Limit for a run: its elements times its longest dim, because the time of Attention grows with the
// square of its rows. The cost of a graph depends on its shapes (SECURITY.md): a decoder with 8,192
// rows took 15 seconds, and one changed value makes 65,535 rows.
constexpr int64_t kWork = int64_t{1} << 23;

bool reached_the_end = false;

// Has kDeviceBytes of memory.
class SmallDevice : public test::WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  Result<device::Buffer> allocate(uint64_t bytes, device::MemoryKind kind) override {
    BOWLINE_REQUIRE_CODE(bytes <= kDeviceBytes - live_, Code::out_of_memory,
                         "There are no {} bytes left.", bytes);
    Result<device::Buffer> buffer = WrappedDevice::allocate(bytes, kind);
    if (buffer.ok()) {
      sizes_[buffer.value().id] = bytes;
      live_ += bytes;
    }
    return buffer;
  }
  void free(device::Buffer buffer) override {
    live_ -= sizes_[buffer.id];
    WrappedDevice::free(buffer);
  }

 private:
  std::map<uint64_t, uint64_t> sizes_;
  uint64_t live_ = 0;
};

Device open_small(std::string_view name) {
  DeviceOptions options;
  options.threads = 1;
  for (const device::Backend* backend : device::backends()) {
    if (backend->name() == name) {
      DeviceInfo info;
      info.name = std::string(name);
      auto inner = std::make_unique<SmallDevice>(backend->open(0, options).value());
      return Internals::device(
          std::make_shared<device::OpenDevice>(std::move(info), std::move(inner)));
    }
  }
  __builtin_trap();
}

// Host values for some values of a graph.
struct Tensors {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<Tensor> views;

  // Small values, so that indices are inside some tables and outside of others.
  Tensors(const graph::BoundGraph& g, std::span<const graph::ValueId> values,
          std::span<const std::string> names) {
    bytes.reserve(values.size());
    shapes.reserve(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const graph::BoundValue& v = g[values[i]];
      std::vector<std::byte>& b =
          bytes.emplace_back(static_cast<size_t>(v.shape.elements()) * size_of(v.dtype));
      for (size_t k = 0; k < b.size(); k += 4) {
        b[k] = static_cast<std::byte>(k / 4 % 5);
      }
      shapes.emplace_back(v.shape.dims().begin(), v.shape.dims().end());
      views.push_back(
          {names.empty() ? std::string_view(v.name) : names[i], v.dtype, shapes.back(), b.data()});
    }
  }
};

// True if the graph is small enough to run with these dims.
bool is_small(const graph::BoundGraph& g, std::span<const BoundDim> dims) {
  int64_t sum = 0, longest = 1;
  for (const auto* values : {&g.inputs, &g.outputs}) {
    for (const graph::ValueId v : *values) {
      sum += std::min(g[v].shape.elements(), kElements + 1);
      for (const int64_t d : g[v].shape.dims()) {
        longest = std::max(longest, d);
      }
    }
  }
  for (const BoundDim& d : dims) {
    longest = std::max(longest, d.value);
  }
  return sum <= kElements && longest <= kWork / std::max<int64_t>(sum, 1);
}

uint64_t iterations(const graph::GenericGraph& g) {
  uint64_t sum = 0;
  for (const graph::GenericNode& node : g.nodes) {
    sum += node.repeat ? node.repeat->count : 0;
  }
  return sum;
}

void train(Model& model, const Device& device, const TrainOptions& options,
           std::span<const Tensor> inputs) {
  auto trainer = Trainer::create(model, device, options);
  if (!succeeded(trainer.status())) {
    return;
  }
  bool trained = true;
  for (int step = 0; step < 2; ++step) {
    trained = succeeded(trainer.value().micro_step(inputs).status()) && trained;
  }
  reached_the_end = reached_the_end || trained;
  (void)succeeded(trainer.value().evaluate(inputs).status());
  (void)trainer.value().listing("update", true).ok();
}

// Runs with about half of every dynamic dimension, and a value for every per-step scalar that needs
// one.
void run_counted(const Model& model, Session& session, const graph::GenericGraph& generic,
                 std::vector<BoundDim> dims) {
  const graph::ModelState& state = *Internals::state(model);
  const auto plan = session.describe();
  if (!plan.ok()) {
    return;
  }
  std::vector<StepScalar> steps;
  for (const StepScalarInfo& word : plan.value().segments[0].scalars) {
    if (word.read && !word.default_value) {
      steps.emplace_back(word.name, 1);
    }
  }
  for (const DynamicDimInfo& dynamic : plan.value().segments[0].dynamic_dims) {
    const auto dim = std::ranges::find(dims, dynamic.name, &BoundDim::name);
    dim->value = std::max(dynamic.min, (dynamic.max + 1) / 2);
    steps.emplace_back(dynamic.name, dim->value);
  }
  const auto bound = graph::bind(generic, state, dims);
  if (succeeded(bound.status()) && is_small(bound.value(), dims)) {
    const graph::BoundGraph& g = bound.value();
    const Tensors inputs(g, g.inputs, {});
    const Tensors outputs(g, g.outputs, g.output_names);
    (void)succeeded(session.run(inputs.views, outputs.views, steps));
  }
}

void run(Model& model, const Device& device, const graph::GenericGraph& generic, int64_t dim) {
  std::vector<BoundDim> dims;
  for (const graph::NamedDim& d : Internals::state(model)->entry_points.dims) {
    dims.push_back({d.name, std::clamp(dim, d.min, d.max)});
  }
  const auto bound = graph::bind(generic, *Internals::state(model), dims);
  if (!succeeded(bound.status()) || !is_small(bound.value(), dims) ||
      iterations(generic) > kIterations) {
    return;
  }
  const graph::BoundGraph& g = bound.value();
  const Tensors inputs(g, g.inputs, {});
  const Tensors outputs(g, g.outputs, g.output_names);
  auto session = Session::create(model, device, generic.name, dims);
  if (succeeded(session.status())) {
    (void)succeeded(session.value().run(inputs.views, outputs.views));
    (void)session.value().listing("forward", true).ok();
    run_counted(model, session.value(), generic, dims);
  }
  for (size_t i = 0; i < std::min<size_t>(g.outputs.size(), 2); ++i) {
    TrainOptions options;
    options.entry_point = generic.name;
    options.loss = g.output_names[i];
    options.dims = dims;
    options.clip_norm = i == 0 ? 1.0f : 0.0f;
    options.optimizer.name = i == 0 ? "adamw" : "sgd";
    train(model, device, options, inputs.views);
  }
}

// Reads every parameter, decoded if its storage is quantized.
void read_values(const Model& model) {
  const params::Table& table = Internals::state(model)->table;
  for (const params::ParameterRow& p : table.parameters) {
    const params::Storage& s = table.storages[p.tie];
    const auto shape = view_shape(p.view, s.shape);
    if (shape.ok() && shape.value().elements() <= kElements) {
      std::vector<std::byte> bytes(static_cast<size_t>(shape.value().elements()) *
                                   size_of(s.dtype));
      (void)succeeded(model.get_value(p.name, {{}, s.dtype, shape.value().dims(), bytes.data()}));
    }
  }
}

void use(const std::shared_ptr<const model::VerifiedFile>& file, const char* device_name,
         int64_t dim) {
  auto state = graph::load_model(file);
  if (!succeeded(state.status())) {
    return;
  }
  Model model = Internals::model(std::move(state).value());
  const Device device = open_small(device_name);
  const auto& storages = Internals::state(model)->table.storages;
  const bool large = std::ranges::any_of(
      storages, [](const params::Storage& s) { return s.bytes() > kDeviceBytes; });
  if (large || !succeeded(model.to(device)) || !succeeded(model.materialize(1))) {
    return;
  }
  read_values(model);
  // The graphs are those of the model: training adds rows, not graphs.
  for (const graph::GenericGraph& g : Internals::state(model)->entry_points.graphs) {
    run(model, device, g, dim);
  }
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = test::verify(test::Frame::read({data, size}).file());
  if (succeeded(file.status())) {
    use(file.value(), "cpu", 2);
    use(file.value(), "null", 3);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return test::mutate(data, size, most, seed);
}
