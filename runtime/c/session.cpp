// Sessions and tuning.
#include "c/convert.h"
#include "generated/c_api.h"

namespace bowline::c {
namespace {

// The arguments of a run. `outputs` and `overrides` may be left out.
struct RunArguments {
  std::vector<Tensor> inputs;
  std::vector<StepScalar> scalars;
  std::vector<Tensor> outputs;
  std::vector<Tensor> overrides;
};
Result<RunArguments> arguments_of(const bowline_tensor* inputs, size_t input_count,
                                  const bowline_scalar* scalars, size_t scalar_count,
                                  const bowline_tensor* outputs = nullptr, size_t output_count = 0,
                                  const bowline_tensor* overrides = nullptr,
                                  size_t override_count = 0) {
  RunArguments out;
  BOWLINE_TRY_ASSIGN(out.inputs, tensors(inputs, input_count, "inputs"));
  BOWLINE_TRY_ASSIGN(out.scalars, c::scalars(scalars, scalar_count));
  BOWLINE_TRY_ASSIGN(out.outputs, tensors(outputs, output_count, "outputs"));
  BOWLINE_TRY_ASSIGN(out.overrides, tensors(overrides, override_count, "overrides"));
  return out;
}

bowline_tune_options tune_defaults() {
  bowline_tune_options out = {};
  out.rounds = TuneOptions{}.rounds;
  out.least_gain = TuneOptions{}.least_gain;
  return out;
}

Result<TuneOptions> tune_options_of(const bowline_tune_options* from) {
  BOWLINE_TRY_ASSIGN(const bowline_tune_options o,
                     read(from, tune_defaults(), "bowline_tune_options"));
  TuneOptions out;
  out.rounds = o.rounds;
  out.least_gain = o.least_gain;
  if (o.progress != nullptr) {
    out.progress = [o](const TuneProgress& p) {
      int32_t stops = 1;
      const Status status = call_back([&](bowline_error**) {
        stops = o.progress(o.user, p.done, p.total);
        return BOWLINE_OK;
      });
      return status.ok() && stops == 0;
    };
  }
  return out;
}

}  // namespace

namespace api {

bowline_code session_create(bowline_model* model, bowline_device* device,
                            const bowline_entry_point* entry_points, size_t count,
                            const bowline_budget* budget, bowline_session** out,
                            bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const auto m, object_of(model));
    BOWLINE_TRY_ASSIGN(const auto d, object_of(device));
    BOWLINE_TRY_ASSIGN(const Use use, Use::of(handle_of(model)->family));
    BOWLINE_TRY_ASSIGN(const std::vector<BoundEntryPoint> list,
                       read_list(entry_points, count, "bowline_entry_point", entry_point_of));
    BOWLINE_TRY_ASSIGN(const Budget limits, budget_of(budget, Budget::of_plan()));
    BOWLINE_TRY_ASSIGN(Session session, Session::create(m->model, *d, list, limits));
    *out = make_handle<bowline_session>(
        std::make_shared<SessionObject>(SessionObject{m, d, std::move(session)}),
        handle_of(model)->family);
    return {};
  });
}

bowline_code session_close(bowline_session* session, bowline_error** error) {
  return close(session, error);
}

bowline_code session_run(bowline_session* session, const char* entry_point,
                         const bowline_tensor* inputs, size_t input_count,
                         const bowline_tensor* outputs, size_t output_count,
                         const bowline_scalar* scalars, size_t scalar_count,
                         const bowline_tensor* overrides, size_t override_count,
                         bowline_error** error) {
  return with(session, error, [&](SessionObject& s) -> Status {
    BOWLINE_TRY_ASSIGN(const RunArguments in,
                       arguments_of(inputs, input_count, scalars, scalar_count, outputs,
                                    output_count, overrides, override_count));
    return entry_point == nullptr
               ? s.session.run(in.inputs, in.outputs, in.scalars, in.overrides)
               : s.session.run(entry_point, in.inputs, in.outputs, in.scalars, in.overrides);
  });
}

bowline_code session_submit(bowline_session* session, const char* entry_point,
                            const bowline_tensor* inputs, size_t input_count,
                            const bowline_tensor* outputs, size_t output_count,
                            const bowline_scalar* scalars, size_t scalar_count,
                            const bowline_tensor* overrides, size_t override_count,
                            bowline_run_callback done, void* user, bowline_pending_run** run,
                            bowline_error** error) {
  return with(session, error, [&](SessionObject& s) -> Status {
    BOWLINE_TRY_ASSIGN(const RunArguments in,
                       arguments_of(inputs, input_count, scalars, scalar_count, outputs,
                                    output_count, overrides, override_count));
    RunRequest request{text_or(entry_point, ""), in.inputs, in.outputs, in.scalars, in.overrides};
    if (done != nullptr) {
      request.done = [done, user](const Status& status) {
        done(user, static_cast<bowline_code>(status.code()), std::string(status.message()).c_str());
      };
    }
    BOWLINE_TRY_ASSIGN(PendingRun pending, s.session.submit(request));
    if (run != nullptr) {
      *run = make_handle<bowline_pending_run>(
          std::make_shared<const PendingRun>(std::move(pending)), nullptr);
    }
    return {};
  });
}

bowline_code session_cancel(bowline_session* session, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY_ASSIGN(const auto s, object_of(session));
    s->session.cancel();
    return {};
  });
}

bowline_code session_profile(bowline_session* session, const char* entry_point,
                             const bowline_tensor* inputs, size_t input_count,
                             const bowline_scalar* scalars, size_t scalar_count,
                             bowline_buffer** out, bowline_error** error) {
  return with(session, error, [&](SessionObject& s) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const RunArguments in,
                       arguments_of(inputs, input_count, scalars, scalar_count));
    return put_json(entry_point == nullptr ? s.session.profile(in.inputs, in.scalars)
                                           : s.session.profile(entry_point, in.inputs, in.scalars),
                    out);
  });
}

bowline_code session_memory(bowline_session* session, bowline_memory_report* out,
                            bowline_error** error) {
  return with(session, error, [&](SessionObject& s) {
    return write(c_struct(s.session.memory()), out, "bowline_memory_report");
  });
}

bowline_code session_counters(bowline_session* session, bowline_counters* out,
                              bowline_error** error) {
  return with(session, error, [&](SessionObject& s) {
    return write(c_struct(s.session.counters()), out, "bowline_counters");
  });
}

bowline_code session_describe(bowline_session* session, bowline_buffer** out,
                              bowline_error** error) {
  return with(session, error, [&](SessionObject& s) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(s.session.describe(), out);
  });
}

bowline_code session_listing(bowline_session* session, const char* part, int32_t columns,
                             bowline_buffer** out, bowline_error** error) {
  return with(session, error, [&](SessionObject& s) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view p, required(part, "part"));
    return put_text(s.session.listing(p, columns != 0), out);
  });
}

bowline_code tune_options_init(bowline_tune_options* options, bowline_error** error) {
  return call(error, [&] { return write(tune_defaults(), options, "bowline_tune_options"); });
}

bowline_code tune_session(bowline_model* model, bowline_device* device,
                          const bowline_entry_point* entry_point, const bowline_tensor* inputs,
                          size_t input_count, const bowline_scalar* scalars, size_t scalar_count,
                          const bowline_tune_options* options, bowline_buffer** report,
                          bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const auto d, object_of(device));
    BOWLINE_TRY_ASSIGN(const bowline_entry_point point, read(entry_point, "bowline_entry_point"));
    BOWLINE_TRY_ASSIGN(const BoundEntryPoint bound, entry_point_of(point));
    BOWLINE_TRY_ASSIGN(const RunArguments in,
                       arguments_of(inputs, input_count, scalars, scalar_count));
    BOWLINE_TRY_ASSIGN(const TuneOptions o, tune_options_of(options));
    const auto make = [&]() -> Result<ProfiledRun> {
      BOWLINE_TRY_ASSIGN(Session made, Session::create(m.model, *d, {&bound, 1}));
      auto session = std::make_shared<Session>(std::move(made));
      return ProfiledRun([session, in] { return session->profile(in.inputs, in.scalars); });
    };
    return put_json(bowline::tune(*d, make, o), report);
  });
}

bowline_code stored_tuning(bowline_device* device, bowline_buffer** out, bowline_error** error) {
  return with(device, error, [&](const Device& d) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(bowline::stored_tuning(d), out);
  });
}

bowline_code reset_tuning(bowline_device* device, bowline_buffer** out, bowline_error** error) {
  return with(device, error,
              [&](const Device& d) { return put_text(bowline::reset_tuning(d), out); });
}

}  // namespace api
}  // namespace bowline::c
