// Sessions.
#include "sessions.h"

#include <algorithm>
#include <map>

namespace bowline::python {
namespace {

using namespace nb::literals;

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
  // The model does not change while a run is pending, and counters() would wait for it.
  if (s.plans.empty() || s.settle()) {
    // After a change of the model, this makes new plans. No entry point has the name, so none runs.
    const std::string_view nothing;
    const Status planned = unlocked([&] { return s.session->run(nothing, {}, {}); });
    const uint64_t builds = unlocked([&] { return s.session->counters().plan_builds; });
    if (s.plans.empty() || builds != s.builds) {
      Result<PlanInfo> plan = unlocked([&] { return s.session->describe(); });
      if (!plan.ok()) {
        check(planned);
      }
      s.plans = take(std::move(plan)).segments;
      s.builds = builds;
    }
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

nb::dict run(PySession& s, const nb::dict& inputs, const WantedOutputs& outputs,
             const nb::dict& scalars, const nb::dict& overrides, const std::string& entry_point) {
  RunArguments arguments(s, inputs, outputs, scalars, overrides, entry_point);
  const RunRequest r = arguments.request();
  check(unlocked([&] {
    return entry_point.empty()
               ? s.session->run(r.inputs, r.outputs, r.scalars, r.overrides)
               : s.session->run(entry_point, r.inputs, r.outputs, r.scalars, r.overrides);
  }));
  return arguments.finish();
}

}  // namespace

RunArguments::RunArguments(PySession& session, const nb::dict& inputs, const WantedOutputs& outputs,
                           const nb::dict& scalars, const nb::dict& overrides,
                           std::string entry_point)
    : entry_point_(std::move(entry_point)),
      inputs_(inputs),
      overrides_(overrides),
      scalars_(scalars_of(scalars, &names_)) {
  const auto described = outputs_of(session, entry_point_, inputs_.tensors(), scalars_);
  const auto* const names = outputs ? std::get_if<std::vector<std::string>>(&*outputs) : nullptr;
  const auto* const given = outputs ? std::get_if<nb::dict>(&*outputs) : nullptr;
  const auto is_wanted = [&](const std::string& name) {
    return given != nullptr   ? given->contains(name.c_str())
           : names != nullptr ? std::ranges::find(*names, name) != names->end()
                              : true;
  };
  for (const auto& [name, type] : described) {
    if (is_wanted(name)) {
      const nb::object to = given != nullptr ? nb::borrow((*given)[name.c_str()]) : nb::none();
      add_output(name, type.first, type.second, to);
    }
  }
  std::vector<std::string> wanted = names != nullptr ? *names : std::vector<std::string>();
  for (const auto [name, to] : given != nullptr ? *given : nb::dict()) {
    wanted.push_back(nb::cast<std::string>(name));
  }
  for (const std::string& name : wanted) {
    if (!described.empty() && !out_.contains(name.c_str())) {
      throw Failure{Status(Code::bad_argument, "The entry point has no output \"" + name + "\".")};
    }
  }
}

void RunArguments::add_output(const std::string& name, DType dtype, const TensorShape& shape,
                              nb::handle given) {
  if (given.is_none()) {
    NewArray& array = made_.emplace_back(dtype, shape);
    out_[name.c_str()] = array.array();
    outputs_.push_back({made_names_.emplace_back(name), dtype, shape, array.data()});
    return;
  }
  given_.add(name, given, true);
  out_[name.c_str()] = given;
  outputs_.push_back(given_.tensors().back());
}

RunRequest RunArguments::request() const {
  RunRequest out;
  out.entry_point = entry_point_;
  out.inputs = inputs_.tensors();
  out.outputs = outputs_;
  out.scalars = scalars_;
  out.overrides = overrides_.tensors();
  return out;
}

nb::dict RunArguments::finish() {
  std::ranges::for_each(made_, &NewArray::finish);
  return out_;
}

void RunArguments::release_inputs() {
  inputs_ = Arrays();
  overrides_ = Arrays();
}

PySession::~PySession() {
  unlocked([this] { session.reset(); });
}

bool PySession::settle() {
  std::list<std::shared_ptr<Submitted>> ended;
  for (auto at = pending.begin(); at != pending.end();) {
    const auto run = at++;
    if ((*run)->run->done()) {
      (*run)->arguments.release_inputs();
      ended.splice(ended.end(), pending, run);
    }
  }
  return pending.empty();
}

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
            new (self) PySession(
                take(unlocked([&] { return Session::create(model.model, device, points); })));
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
           "Runs an entry point, and returns its outputs by name.\n\ninputs: arrays or buffers "
           "(DeviceBuffer) by name. outputs: None for all, names, or a dict of names and where the "
           "values go: a buffer, a writable array, or None. The values of all other outputs go to "
           "new NumPy arrays. scalars: per-step scalars by name. overrides: values that replace "
           "parameters in this run.")
      .def(
          "submit", &submit, "inputs"_a, "outputs"_a = nb::none(), nb::kw_only(),
          "scalars"_a = nb::dict(), "overrides"_a = nb::dict(), "entry_point"_a = "",
          "Starts a run, and returns a PendingRun at once. Takes the same arguments as run().\n\n"
          "Submitted runs take place one after the other. At most 64 runs can be pending. The "
          "session keeps the arrays until the run has ended, also if the PendingRun is dropped. Do "
          "not write to them before. Errors of the run come from PendingRun.wait(). Other "
          "functions of the session wait for the pending runs first. The end of the session "
          "cancels them.")
      .def(
          "cancel", [](PySession& s) { s.session->cancel(); },
          "Cancels the running run() or profile(), or the next one. Any thread may call it.")
      .def(
          "memory",
          [](PySession& s) { return report_of(unlocked([&] { return s.session->memory(); })); },
          "Returns the memory of the session in bytes.")
      .def(
          "counters",
          [](PySession& s) { return report_of(unlocked([&] { return s.session->counters(); })); },
          "Returns what the session did.")
      .def(
          "describe",
          [](PySession& s) {
            return report_of(take(unlocked([&] { return s.session->describe(); })));
          },
          "Returns the plans.")
      .def(
          "profile",
          [](PySession& s, const nb::dict& inputs, const nb::dict& scalars) {
            const Arrays in(inputs);
            std::vector<std::string> names;
            const std::vector<StepScalar> steps = scalars_of(scalars, &names);
            return report_of(
                take(unlocked([&] { return s.session->profile(in.tensors(), steps); })));
          },
          "inputs"_a, "scalars"_a = nb::dict(), "Measures the time of each node, in nanoseconds.");
}

}  // namespace bowline::python
