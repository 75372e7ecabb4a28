// Trainers.
#include <exception>
#include <map>

#include "support.h"

namespace bowline::python {
namespace {

using namespace nb::literals;

// A trainer, and the exception of its gradient hook.
struct PyTrainer {
  Trainer trainer;
  std::exception_ptr thrown;
  uint32_t accumulation;
};

// Raises the exception of a hook instead of the error that it caused.
void check_hook(PyTrainer& t, const Status& status) {
  if (t.thrown) {
    std::rethrow_exception(std::exchange(t.thrown, nullptr));
  }
  check(status);
}

template <class E>
E named(const std::string& name, const std::vector<std::pair<std::string, E>>& values,
        const std::string& what) {
  std::string names;
  for (const auto& [value_name, value] : values) {
    if (value_name == name) {
      return value;
    }
    names += (names.empty() ? "" : ", ") + value_name;
  }
  throw Failure{Status(Code::bad_argument,
                       "\"" + name + "\" is not a " + what + ". Use one of: " + names + ".")};
}

Schedule schedule_of(const std::string& kind, float learning_rate, uint64_t warmup_steps,
                     uint64_t total_steps, float final_fraction) {
  Schedule out;
  out.kind = named<Schedule::Kind>(kind,
                                   {{"constant", Schedule::Kind::constant},
                                    {"linear", Schedule::Kind::linear},
                                    {"cosine", Schedule::Kind::cosine}},
                                   "schedule");
  out.learning_rate = learning_rate;
  out.warmup_steps = warmup_steps;
  out.total_steps = total_steps;
  out.final_fraction = final_fraction;
  return out;
}

ParameterGroup group_of(const nb::dict& from) {
  ParameterGroup out;
  for (const auto [key, value] : from) {
    const std::string name = nb::cast<std::string>(key);
    if (name == "pattern") {
      out.pattern = nb::cast<std::string>(value);
    } else if (name == "learning_rate_factor") {
      out.learning_rate_factor = nb::cast<float>(value);
    } else if (name == "weight_decay") {
      out.weight_decay = nb::cast<float>(value);
    } else {
      throw Failure{Status(Code::bad_argument,
                           "A group has no member \"" + name +
                               "\". It has pattern, learning_rate_factor and weight_decay.")};
    }
  }
  return out;
}

void create(PyTrainer* self, PyModel& model, const Device& device, const std::string& entry_point,
            const std::string& loss, const std::map<std::string, int64_t>& dims,
            const std::vector<std::map<std::string, int64_t>>& more_dims,
            const std::string& optimizer, const std::map<std::string, float>& settings,
            const std::string& schedule, float learning_rate, uint64_t warmup_steps,
            uint64_t total_steps, float final_fraction, float clip_norm, uint32_t accumulation,
            uint64_t seed, const std::vector<nb::dict>& groups,
            const std::optional<std::string>& compute_dtype, float loss_scale,
            const std::string& on_nonfinite, bool from_checkpoint) {
  TrainOptions options;
  options.entry_point = entry_point;
  options.loss = loss;
  options.dims = bound_dims(dims);
  for (const auto& set : more_dims) {
    options.more_dims.push_back(bound_dims(set));
  }
  options.optimizer = {optimizer, {settings.begin(), settings.end()}};
  options.schedule =
      schedule_of(schedule, learning_rate, warmup_steps, total_steps, final_fraction);
  options.clip_norm = clip_norm;
  options.accumulation = accumulation;
  options.seed = seed;
  for (const nb::dict& group : groups) {
    options.groups.push_back(group_of(group));
  }
  options.precision.compute_dtype = optional_dtype(compute_dtype);
  options.precision.loss_scale = loss_scale;
  options.on_nonfinite = named<OnNonFinite>(on_nonfinite,
                                            {{"skip", OnNonFinite::skip},
                                             {"stop", OnNonFinite::stop},
                                             {"rollback", OnNonFinite::rollback}},
                                            "reaction to non-finite steps");
  options.start = from_checkpoint ? TrainStart::from_checkpoint : TrainStart::fresh;
  new (self)
      PyTrainer{take(unlocked([&] { return Trainer::create(model.model, device, options); })),
                nullptr, accumulation};
}

// The micro-batches one by one, so that Ctrl-C ends the call between two of them.
nb::object step_by_micro_steps(PyTrainer& t, std::span<const std::span<const Tensor>> batches) {
  std::optional<StepReport> report;
  while (!report) {
    check_signals();
    const size_t next = t.trainer.accumulated();
    Result<std::optional<StepReport>> done =
        unlocked([&] { return t.trainer.micro_step(batches[next]); });
    check_hook(t, done.status());
    report = std::move(done).value();
  }
  return report_of(*report);
}

nb::object step(PyTrainer& t, const nb::list& batches) {
  std::vector<std::unique_ptr<Arrays>> arrays;
  std::vector<std::span<const Tensor>> spans;
  for (const nb::handle batch : batches) {
    arrays.push_back(std::make_unique<Arrays>(nb::cast<nb::dict>(batch)));
    spans.emplace_back(arrays.back()->tensors());
  }
  if (spans.size() > 1 && spans.size() == t.accumulation && !t.trainer.needs_loss_weights()) {
    return step_by_micro_steps(t, spans);
  }
  const Result<StepReport> report = unlocked([&] { return t.trainer.step(spans); });
  check_hook(t, report.status());
  return report_of(report.value());
}

nb::object micro_step(PyTrainer& t, const nb::dict& batch) {
  const Arrays arrays(batch);
  const auto report = unlocked([&] { return t.trainer.micro_step(arrays.tensors()); });
  check_hook(t, report.status());
  return report_of(report.value());
}

// The hook gets the description and the gradient, which it may change.
void set_gradient_hook(PyTrainer& t, nb::object hook) {
  if (hook.is_none()) {
    t.trainer.set_gradient_hook({});
    return;
  }
  // The last copy of the hook may die without the lock of the interpreter.
  const std::shared_ptr<nb::object> held(new nb::object(std::move(hook)), [](nb::object* o) {
    const nb::gil_scoped_acquire locked;
    delete o;
  });
  t.trainer.set_gradient_hook([held, &t](const GradientInfo& of, std::span<float> gradient) {
    const nb::gil_scoped_acquire locked;
    try {
      std::vector<size_t> shape(of.shape.begin(), of.shape.end());
      const nb::ndarray<nb::numpy, float> array(gradient.data(), shape.size(), shape.data(),
                                                nb::none());
      (*held)(report_of(of), array);
      return Status();
    } catch (...) {
      t.thrown = std::current_exception();
      return Status(Code::cancelled, "The gradient hook raised an exception.");
    }
  });
}

Progress progress_of(uint64_t epoch, uint64_t data_cursor, uint64_t data_seed,
                     const std::map<std::string, std::string>& config) {
  Progress progress;
  progress.epoch = epoch;
  progress.data_cursor = data_cursor;
  progress.data_seed = data_seed;
  progress.config.assign(config.begin(), config.end());
  return progress;
}

void save(PyTrainer& t, const std::string& path, uint64_t epoch, uint64_t data_cursor,
          uint64_t data_seed, const std::map<std::string, std::string>& config) {
  const Progress progress = progress_of(epoch, data_cursor, data_seed, config);
  check(unlocked([&] { return t.trainer.save(path, progress); }));
}

void pause(PyTrainer& t, const std::string& path, uint64_t epoch, uint64_t data_cursor,
           uint64_t data_seed, const std::map<std::string, std::string>& config) {
  const Progress progress = progress_of(epoch, data_cursor, data_seed, config);
  check(unlocked([&] { return t.trainer.pause(path, progress); }));
}

void add_state(nb::class_<PyTrainer>& trainer) {
  trainer
      .def("save", &save, "path"_a, nb::kw_only(), "epoch"_a = 0, "data_cursor"_a = 0,
           "data_seed"_a = 0, "config"_a = std::map<std::string, std::string>{},
           "Writes a checkpoint: the model, its training state, and your position in the data.")
      .def("pause", &pause, "path"_a, nb::kw_only(), "epoch"_a = 0, "data_cursor"_a = 0,
           "data_seed"_a = 0, "config"_a = std::map<std::string, std::string>{},
           "Writes a checkpoint, and frees the memory of the device. To continue, call Model.to() "
           "and resume().")
      .def(
          "resume",
          [](PyTrainer& t, const std::string& path, bool extend) {
            ResumeOptions options;
            options.extend = extend;
            return report_of(take(unlocked([&] { return t.trainer.resume(path, options); })));
          },
          "path"_a, nb::kw_only(), "extend"_a = false,
          "Continues from a checkpoint of the same model and options. Returns its position.")
      .def(
          "snapshot", [](PyTrainer& t) { check(t.trainer.snapshot()); },
          "Copies weights, training state and ties to host memory.")
      .def(
          "rollback", [](PyTrainer& t) { check(t.trainer.rollback()); },
          "Restores the last snapshot.")
      .def(
          "restart_step", [](PyTrainer& t) { check(t.trainer.restart_step()); },
          "Discards the micro-batches of the unfinished step.")
      .def(
          "cancel", [](PyTrainer& t) { t.trainer.cancel(); },
          "Cancels the running call, or the next one. Any thread may call it.")
      .def_prop_ro(
          "state", [](PyTrainer& t) { return report_of(t.trainer.state()); },
          "What the caller can do after a failure: ready, unread, gradients_lost, damaged. Or "
          "paused, after pause().")
      .def_prop_ro(
          "steps", [](PyTrainer& t) { return t.trainer.steps(); }, "Number of finished steps.")
      .def_prop_ro(
          "accumulated", [](PyTrainer& t) { return t.trainer.accumulated(); },
          "Number of micro-batches of the unfinished step.")
      .def(
          "memory", [](PyTrainer& t) { return report_of(t.trainer.memory()); },
          "Returns the memory of the trainer in bytes.")
      .def(
          "counters", [](PyTrainer& t) { return report_of(t.trainer.counters()); },
          "Returns what the trainer did.")
      .def(
          "describe", [](PyTrainer& t) { return report_of(take(t.trainer.describe())); },
          "Returns the plans.");
}

}  // namespace

void add_trainers(nb::module_& module) {
  module.def(
      "optimizers", [] { return report_of(optimizers()); },
      "Returns all optimizers with their settings.");
  nb::class_<PyTrainer> trainer(module, "Trainer", "Trains the trainable storages of a model.");
  trainer
      .def("__init__", &create, "model"_a, "device"_a, nb::kw_only(), "entry_point"_a = "loss",
           "loss"_a = "loss", "dims"_a = std::map<std::string, int64_t>{},
           "more_dims"_a = std::vector<std::map<std::string, int64_t>>{}, "optimizer"_a = "adamw",
           "settings"_a = std::map<std::string, float>{}, "schedule"_a = "constant",
           "learning_rate"_a = Schedule{}.learning_rate, "warmup_steps"_a = 0, "total_steps"_a = 0,
           "final_fraction"_a = Schedule{}.final_fraction, "clip_norm"_a = 0.0f,
           "accumulation"_a = 1, "seed"_a = 0, "groups"_a = std::vector<nb::dict>{},
           "compute_dtype"_a = nb::none(), "loss_scale"_a = 0.0f, "on_nonfinite"_a = "skip",
           "from_checkpoint"_a = false, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
           "Makes a trainer. optimizers() lists the optimizers and their settings.")
      .def("step", &step, "batches"_a,
           "Trains with one step, and returns its report.\n\nbatches: a list of `accumulation` "
           "dicts with arrays by name. After Ctrl-C, the finished micro-batches stay: call step() "
           "again with the same batches, or restart_step() first to use others.")
      .def("micro_step", &micro_step, "batch"_a,
           "Trains with one micro-batch. Returns a report if it finished a step, else None.")
      .def(
          "evaluate",
          [](PyTrainer& t, const nb::dict& batch) {
            const Arrays arrays(batch);
            return take(unlocked([&] { return t.trainer.evaluate(arrays.tensors()); }));
          },
          "batch"_a, "Returns the loss of a batch without training.")
      .def(
          "add_loss_weights",
          [](PyTrainer& t, const nb::dict& batch) {
            const Arrays arrays(batch);
            check(unlocked([&] { return t.trainer.add_loss_weights(arrays.tensors()); }));
          },
          "batch"_a, "Adds the loss weights of a micro-batch, if needs_loss_weights is True.")
      .def_prop_ro(
          "needs_loss_weights", [](PyTrainer& t) { return t.trainer.needs_loss_weights(); },
          "Whether micro_step() needs add_loss_weights() for the whole step before.")
      .def(
          "set_learning_rate",
          [](PyTrainer& t, std::optional<float> rate) { check(t.trainer.set_learning_rate(rate)); },
          "rate"_a.none(), "Sets the learning rate of the next steps. None: the schedule applies.")
      .def("set_gradient_hook", &set_gradient_hook, "hook"_a.none(),
           "Calls hook(info, gradient) before each update. It may change the array; None removes "
           "it.");
  add_state(trainer);
}

}  // namespace bowline::python
