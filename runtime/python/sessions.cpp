// Sessions.
#include <algorithm>
#include <deque>
#include <map>

#include "support.h"

namespace bowline::python {
namespace {

using namespace nb::literals;

// A session, and what its outputs look like.
struct PySession {
  Session session;
  std::vector<SegmentInfo> plans;  // of the last description
  uint64_t builds = 0;             // Counters::plan_builds at that time
};

std::vector<BoundEntryPoint> entry_points_of(
    const std::vector<std::pair<std::string, std::map<std::string, int64_t>>>& list,
    const std::optional<std::string>& compute_dtype) {
  std::vector<BoundEntryPoint> out;
  for (const auto& [name, dims] : list) {
    out.push_back({name, bound_dims(dims), optional_dtype(compute_dtype)});
  }
  return out;
}

// The sizes of the dynamic dimensions of a run in a plan, if the inputs fit the plan.
std::optional<std::map<std::string, int64_t>> sizes_in(const SegmentInfo& plan,
                                                       const std::vector<Tensor>& inputs,
                                                       const std::vector<StepScalar>& scalars) {
  std::map<std::string, int64_t> sizes;
  for (const DynamicDimInfo& dim : plan.dynamic_dims) {
    sizes[dim.name] = dim.max;
  }
  for (const StepScalar& scalar : scalars) {
    if (sizes.contains(std::string(scalar.name)) && scalar.value.index() == 0) {
      sizes[std::string(scalar.name)] = static_cast<int64_t>(std::get<uint64_t>(scalar.value));
    }
  }
  for (const IoInfo& io : plan.inputs) {
    const auto input = std::ranges::find(inputs, io.name, &Tensor::name);
    if (input == inputs.end() || input->shape.size() != io.shape.size()) {
      return std::nullopt;
    }
    for (size_t axis = 0; axis < io.shape.size(); ++axis) {
      const std::string dim = io.dynamic_dims.empty() ? "" : io.dynamic_dims[axis];
      const int64_t size = input->shape[axis];
      if (dim.empty() ? size != io.shape[axis] : size > io.shape[axis]) {
        return std::nullopt;
      }
      if (!dim.empty()) {
        sizes[dim] = size;
      }
    }
  }
  return sizes;
}

// The arrays for all outputs of a run. The smallest plan that takes the inputs has their shapes.
std::vector<std::pair<std::string, std::pair<DType, TensorShape>>> outputs_of(
    PySession& s, const std::string& entry_point, const std::vector<Tensor>& inputs,
    const std::vector<StepScalar>& scalars) {
  if (const uint64_t builds = s.session.counters().plan_builds;
      s.plans.empty() || builds != s.builds) {
    s.plans = take(s.session.describe()).segments;
    s.builds = builds;
  }
  const SegmentInfo* best = nullptr;
  std::map<std::string, int64_t> best_sizes;
  for (const SegmentInfo& plan : s.plans) {
    if (plan.name != "forward" || (!entry_point.empty() && plan.entry_point.name != entry_point) ||
        (best != nullptr && plan.io_bytes >= best->io_bytes)) {
      continue;
    }
    if (auto sizes = sizes_in(plan, inputs, scalars)) {
      best = &plan;
      best_sizes = std::move(*sizes);
    }
  }
  std::vector<std::pair<std::string, std::pair<DType, TensorShape>>> out;
  if (best == nullptr) {
    return out;  // the run says what is wrong
  }
  for (const IoInfo& io : best->outputs) {
    std::vector<int64_t> shape(io.shape.begin(), io.shape.end());
    for (size_t axis = 0; axis < io.dynamic_dims.size(); ++axis) {
      if (!io.dynamic_dims[axis].empty()) {
        shape[axis] = best_sizes[io.dynamic_dims[axis]];
      }
    }
    out.emplace_back(io.name, std::pair(io.dtype, TensorShape(shape)));
  }
  return out;
}

nb::dict run(PySession& s, const nb::dict& inputs,
             const std::optional<std::vector<std::string>>& outputs, const nb::dict& scalars,
             const nb::dict& overrides, const std::string& entry_point) {
  const Arrays in(inputs);
  const Arrays replaced(overrides);
  std::vector<std::string> names;
  const std::vector<StepScalar> steps = scalars_of(scalars, &names);
  const auto described = outputs_of(s, entry_point, in.tensors(), steps);
  nb::dict out;
  std::deque<NewArray> arrays;
  std::vector<Tensor> to;
  for (const auto& [name, type] : described) {
    if (outputs.has_value() && std::ranges::find(*outputs, name) == outputs->end()) {
      continue;
    }
    NewArray& array = arrays.emplace_back(type.first, type.second);
    out[name.c_str()] = array.array();
    to.push_back({name, type.first, type.second, array.data()});
  }
  for (const std::string& name : outputs.value_or(std::vector<std::string>())) {
    if (!described.empty() && !out.contains(name.c_str())) {
      throw Failure{Status(Code::bad_argument, "The entry point has no output \"" + name + "\".")};
    }
  }
  check(unlocked([&] {
    return entry_point.empty()
               ? s.session.run(in.tensors(), to, steps, replaced.tensors())
               : s.session.run(entry_point, in.tensors(), to, steps, replaced.tensors());
  }));
  std::ranges::for_each(arrays, &NewArray::finish);
  return out;
}

}  // namespace

void add_sessions(nb::module_& module) {
  nb::class_<PySession>(module, "Session", "Runs entry points of a model on one device.")
      .def(
          "__init__",
          [](PySession* self, PyModel& model, const Device& device, const std::string& entry_point,
             const std::map<std::string, int64_t>& dims,
             const std::vector<std::pair<std::string, std::map<std::string, int64_t>>>& more,
             const std::optional<std::string>& compute_dtype) {
            std::vector<std::pair<std::string, std::map<std::string, int64_t>>> all = {
                {entry_point, dims}};
            all.insert(all.end(), more.begin(), more.end());
            const std::vector<BoundEntryPoint> points = entry_points_of(all, compute_dtype);
            new (self) PySession{
                take(unlocked([&] { return Session::create(model.model, device, points); })),
                {},
                0};
          },
          "model"_a, "device"_a, "entry_point"_a = "forward",
          "dims"_a = std::map<std::string, int64_t>{}, nb::kw_only(),
          "more"_a = std::vector<std::pair<std::string, std::map<std::string, int64_t>>>{},
          "compute_dtype"_a = nb::none(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
          "Makes the plans of entry points.\n\ndims has a size for each named dimension; of a "
          "dynamic "
          "dimension, the maximum. more lists further pairs of an entry point and its dims. "
          "compute_dtype is \"f16\" or \"bf16\" for mixed precision.")
      .def("run", &run, "inputs"_a, "outputs"_a = nb::none(), nb::kw_only(),
           "scalars"_a = nb::dict(), "overrides"_a = nb::dict(), "entry_point"_a = "",
           "Runs an entry point, and returns its outputs as new NumPy arrays by name.\n\ninputs: "
           "arrays by name. outputs: names, or None for all. scalars: per-step scalars by name. "
           "overrides: values that replace parameters in this run.")
      .def(
          "cancel", [](PySession& s) { s.session.cancel(); },
          "Cancels the running run() or profile(), or the next one. Any thread may call it.")
      .def(
          "memory", [](PySession& s) { return report_of(s.session.memory()); },
          "Returns the memory of the session in bytes.")
      .def(
          "counters", [](PySession& s) { return report_of(s.session.counters()); },
          "Returns what the session did.")
      .def(
          "describe", [](PySession& s) { return report_of(take(s.session.describe())); },
          "Returns the plans.")
      .def(
          "profile",
          [](PySession& s, const nb::dict& inputs, const nb::dict& scalars) {
            const Arrays in(inputs);
            std::vector<std::string> names;
            const std::vector<StepScalar> steps = scalars_of(scalars, &names);
            return report_of(
                take(unlocked([&] { return s.session.profile(in.tensors(), steps); })));
          },
          "inputs"_a, "scalars"_a = nb::dict(), "Measures the time of each node, in nanoseconds.");
}

}  // namespace bowline::python
