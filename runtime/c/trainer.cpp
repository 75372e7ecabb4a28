// Trainers.
#include "c/convert.h"
#include "generated/c_api.h"

namespace bowline::c {
namespace {

// A report that cannot be written must be refused before the step. NULL is not an error.
template <class T>
Status check_report(const T* report, std::string_view type) {
  return report == nullptr ? Status() : check_output(report, type);
}

// The position that a checkpoint gets. `config` has `count` pairs of a key and a value.
Result<Progress> progress_of(const bowline_progress* progress, const char* const* config,
                             size_t config_count) {
  BOWLINE_TRY_ASSIGN(const bowline_progress p,
                     read(progress, c::c_struct(Progress{}), "bowline_progress"));
  Progress data;
  data.epoch = p.epoch;
  data.data_cursor = p.data_cursor;
  data.data_seed = p.data_seed;
  for (size_t i = 0; i < config_count; ++i) {
    BOWLINE_TRY(given(config, "config"));
    BOWLINE_TRY_ASSIGN(const std::string_view key, required(config[2 * i], "key of the config"));
    BOWLINE_TRY_ASSIGN(const std::string_view value, required(config[2 * i + 1], key));
    data.config.emplace_back(key, value);
  }
  return data;
}

}  // namespace

namespace api {

bowline_code trainer_create(bowline_model* model, bowline_device* device,
                            const bowline_train_options* options, bowline_trainer** out,
                            bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const auto m, object_of(model));
    BOWLINE_TRY_ASSIGN(const auto d, object_of(device));
    BOWLINE_TRY_ASSIGN(const Use use, Use::of(handle_of(model)->family));
    BOWLINE_TRY_ASSIGN(const TrainOptions o, train_options_of(options));
    BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(m->model, *d, o));
    *out = make_handle<bowline_trainer>(
        std::make_shared<TrainerObject>(TrainerObject{m, d, std::move(trainer)}),
        handle_of(model)->family);
    return {};
  });
}

bowline_code trainer_close(bowline_trainer* trainer, bowline_error** error) {
  return close(trainer, error);
}

bowline_code trainer_step(bowline_trainer* trainer, const bowline_batch* batches, size_t count,
                          bowline_step_report* report, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY(check_report(report, "bowline_step_report"));
    BOWLINE_TRY_ASSIGN(const std::vector<std::vector<Tensor>> lists,
                       read_list(batches, count, "bowline_batch", [](const bowline_batch& b) {
                         return tensors(b.tensors, b.count, "tensors of a batch");
                       }));
    const std::vector<std::span<const Tensor>> spans(lists.begin(), lists.end());
    BOWLINE_TRY_ASSIGN(const StepReport done, t.trainer.step(spans));
    return report == nullptr ? Status() : write(c_struct(done), report, "bowline_step_report");
  });
}

bowline_code trainer_micro_step(bowline_trainer* trainer, const bowline_tensor* batch, size_t count,
                                const bowline_tensor* overrides, size_t override_count,
                                bowline_step_report* report, int32_t* finished,
                                bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY(check_report(report, "bowline_step_report"));
    BOWLINE_TRY_ASSIGN(const std::vector<Tensor> list, tensors(batch, count, "tensors of a batch"));
    BOWLINE_TRY_ASSIGN(const std::vector<Tensor> replaced,
                       tensors(overrides, override_count, "overrides"));
    BOWLINE_TRY_ASSIGN(const std::optional<StepReport> done, t.trainer.micro_step(list, replaced));
    if (finished != nullptr) {
      *finished = done.has_value() ? 1 : 0;
    }
    return done.has_value() && report != nullptr
               ? write(c_struct(*done), report, "bowline_step_report")
               : Status();
  });
}

bowline_code trainer_needs_loss_weights(bowline_trainer* trainer, int32_t* out,
                                        bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<bool>(t.trainer.needs_loss_weights()), out);
  });
}

bowline_code trainer_add_loss_weights(bowline_trainer* trainer, const bowline_tensor* batch,
                                      size_t count, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY_ASSIGN(const std::vector<Tensor> list, tensors(batch, count, "tensors of a batch"));
    return t.trainer.add_loss_weights(list);
  });
}

bowline_code trainer_cancel(bowline_trainer* trainer, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY_ASSIGN(const auto t, object_of(trainer));
    t->trainer.cancel();
    return {};
  });
}

bowline_code trainer_set_learning_rate(bowline_trainer* trainer, const float* rate,
                                       bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) {
    return t.trainer.set_learning_rate(rate == nullptr ? std::optional<float>() : *rate);
  });
}

bowline_code trainer_set_gradient_hook(bowline_trainer* trainer, bowline_gradient_hook hook,
                                       void* user, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) {
    if (hook == nullptr) {
      t.trainer.set_gradient_hook({});
      return Status();
    }
    t.trainer.set_gradient_hook([hook, user](const GradientInfo& of, std::span<float> gradient) {
      const std::string description = text_of(json_of(of));
      return call_back([&](bowline_error** failed) {
        return hook(user, description.c_str(), gradient.data(), gradient.size(), failed);
      });
    });
    return Status();
  });
}

bowline_code trainer_evaluate(bowline_trainer* trainer, const bowline_tensor* batch, size_t count,
                              const bowline_tensor* outputs, size_t output_count, float* loss,
                              bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY_ASSIGN(const std::vector<Tensor> list, tensors(batch, count, "tensors of a batch"));
    BOWLINE_TRY_ASSIGN(const std::vector<Tensor> to, tensors(outputs, output_count, "outputs"));
    return put(t.trainer.evaluate(list, to), loss);
  });
}

bowline_code trainer_gradient(bowline_trainer* trainer, const char* name, const bowline_tensor* out,
                              bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const Tensor tensor, value_of(out));
    return t.trainer.gradient(n, tensor);
  });
}

bowline_code trainer_profile(bowline_trainer* trainer, const bowline_tensor* batch, size_t count,
                             bowline_buffer** out, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::vector<Tensor> list, tensors(batch, count, "tensors of a batch"));
    return put_json(t.trainer.profile(list), out);
  });
}

bowline_code trainer_snapshot(bowline_trainer* trainer, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) { return t.trainer.snapshot(); });
}

bowline_code trainer_rollback(bowline_trainer* trainer, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) { return t.trainer.rollback(); });
}

bowline_code trainer_save(bowline_trainer* trainer, const char* path,
                          const bowline_progress* progress, const char* const* config,
                          size_t config_count, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view to, required(path, "path"));
    BOWLINE_TRY_ASSIGN(const Progress data, progress_of(progress, config, config_count));
    return t.trainer.save(std::string(to), data);
  });
}

bowline_code trainer_pause(bowline_trainer* trainer, const char* path,
                           const bowline_progress* progress, const char* const* config,
                           size_t config_count, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view to, required(path, "path"));
    BOWLINE_TRY_ASSIGN(const Progress data, progress_of(progress, config, config_count));
    return t.trainer.pause(std::string(to), data);
  });
}

bowline_code trainer_resume(bowline_trainer* trainer, const char* path, int32_t extend,
                            bowline_progress* progress, bowline_buffer** report,
                            bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY(check_report(progress, "bowline_progress"));
    BOWLINE_TRY_ASSIGN(const std::string_view from, required(path, "path"));
    ResumeOptions options;
    options.extend = extend != 0;
    BOWLINE_TRY_ASSIGN(const Progress data, t.trainer.resume(std::string(from), options));
    if (progress != nullptr) {
      BOWLINE_TRY(write(c_struct(data), progress, "bowline_progress"));
    }
    return put_json(Result(data), report);
  });
}

bowline_code trainer_state(bowline_trainer* trainer, int32_t* out, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<TrainState>(t.trainer.state()), out);
  });
}

bowline_code trainer_restart_step(bowline_trainer* trainer, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) { return t.trainer.restart_step(); });
}

bowline_code trainer_steps(bowline_trainer* trainer, uint64_t* out, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<uint64_t>(t.trainer.steps()), out);
  });
}

bowline_code trainer_accumulated(bowline_trainer* trainer, uint32_t* out, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<uint32_t>(t.trainer.accumulated()), out);
  });
}

bowline_code trainer_memory(bowline_trainer* trainer, bowline_memory_report* out,
                            bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) {
    return write(c_struct(t.trainer.memory()), out, "bowline_memory_report");
  });
}

bowline_code trainer_counters(bowline_trainer* trainer, bowline_counters* out,
                              bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) {
    return write(c_struct(t.trainer.counters()), out, "bowline_counters");
  });
}

bowline_code trainer_describe(bowline_trainer* trainer, bowline_buffer** out,
                              bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(t.trainer.describe(), out);
  });
}

bowline_code trainer_listing(bowline_trainer* trainer, const char* part, int32_t columns,
                             bowline_buffer** out, bowline_error** error) {
  return with(trainer, error, [&](TrainerObject& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view p, required(part, "part"));
    return put_text(t.trainer.listing(p, columns != 0), out);
  });
}

}  // namespace api
}  // namespace bowline::c
