// Training.
#include <cmath>
#include <iterator>

#include "call.h"

using namespace bowline_jni;

namespace {

float or_default(jfloat value, float otherwise) { return std::isnan(value) ? otherwise : value; }

bowline_progress data_progress(JNIEnv* env, jlongArray from) {
  const std::vector<jlong> members = longs_of(env, from);
  auto out = sized<bowline_progress>();
  out.epoch = static_cast<uint64_t>(members[0]);
  out.data_cursor = static_cast<uint64_t>(members[1]);
  out.data_seed = static_cast<uint64_t>(members[2]);
  return out;
}

// Runs in the thread that calls trainerStep(). An exception is kept by Callbacks until then.
bowline_code gradient_to_java(void* user, const char* of, float* gradient, uint64_t count,
                              bowline_error** error) {
  const Attached thread;
  JNIEnv* const env = thread.env();
  if (env == nullptr || env->PushLocalFrame(4) != 0) {
    *error = library.api->error_create(BOWLINE_OUT_OF_MEMORY, "Java cannot run the gradient hook.");
    return BOWLINE_OUT_OF_MEMORY;
  }
  const jbyteArray text = bytes_of(env, of, std::strlen(of));
  const jobject values =
      env->NewDirectByteBuffer(gradient, static_cast<jlong>(count * sizeof(float)));
  jint code = BOWLINE_OUT_OF_MEMORY;
  if (text != nullptr && values != nullptr) {
    code = env->CallStaticIntMethod(library.callbacks, library.gradient, number_of(user), text,
                                    values);
  }
  env->ExceptionClear();  // OutOfMemoryError: the code says it
  env->PopLocalFrame(nullptr);
  return code;
}

}  // namespace

BOWLINE_NATIVE(jlong, trainerCreate, jlong model, jlong device, jbyteArray entry_point,
               jbyteArray loss, jobjectArray dims, jlongArray sizes, jbyteArray optimizer,
               jobjectArray settings, jfloatArray values, jint schedule_kind, jfloat learning_rate,
               jfloat final_fraction, jlong warmup_steps, jlong total_steps, jfloat clip_norm,
               jint accumulation, jlong seed, jint start, jint on_nonfinite, jint compute_dtype) {
  auto options = sized<bowline_train_options>();
  auto schedule = sized<bowline_schedule>();
  auto precision = sized<bowline_train_precision>();
  if (!call(env, library.api->train_options_init, &options) ||
      !call(env, library.api->schedule_init, &schedule) ||
      !call(env, library.api->train_precision_init, &precision)) {
    return 0;
  }
  schedule.kind = schedule_kind;
  schedule.learning_rate = or_default(learning_rate, schedule.learning_rate);
  schedule.final_fraction = or_default(final_fraction, schedule.final_fraction);
  schedule.warmup_steps = static_cast<uint64_t>(warmup_steps);
  schedule.total_steps = static_cast<uint64_t>(total_steps);
  precision.compute_dtype = compute_dtype;

  const Text entry_name(env, entry_point);
  const Text loss_name(env, loss);
  const Text optimizer_name(env, optimizer);
  const Dims bound(env, dims, sizes);
  const std::vector<Text> setting_names = texts_of(env, settings);
  const std::vector<jfloat> setting_values = floats_of(env, values);
  std::vector<bowline_setting> set;
  for (size_t i = 0; i < setting_names.size(); ++i) {
    auto setting = sized<bowline_setting>();
    setting.name = setting_names[i];
    setting.value = setting_values[i];
    set.push_back(setting);
  }
  auto chosen = sized<bowline_optimizer>();
  chosen.name = optimizer_name;
  chosen.settings = set.data();
  chosen.setting_count = set.size();

  options.entry_point = entry_name;
  options.loss = loss_name;
  options.dims = bound.data();
  options.dim_count = bound.size();
  options.optimizer = optimizer_name.c_str() == nullptr ? options.optimizer : &chosen;
  options.schedule = &schedule;
  options.precision = &precision;
  options.clip_norm = clip_norm;
  options.accumulation = static_cast<uint32_t>(accumulation);
  options.seed = static_cast<uint64_t>(seed);
  options.start = start;
  options.on_nonfinite = on_nonfinite;
  bowline_trainer* out = nullptr;
  call(env, library.api->trainer_create, Handle{model}, Handle{device}, &options, &out);
  return number_of(out);
}

BOWLINE_NATIVE(void, trainerClose, jlong trainer) {
  call(env, library.api->trainer_close, Handle{trainer});
}

BOWLINE_NATIVE(void, trainerStep, jlong trainer, jobjectArray names, jintArray dtypes,
               jobjectArray shapes, jobjectArray data, jintArray counts, jlongArray integers,
               jfloatArray reals) {
  Tensors tensors;
  if (!tensors.read(env, names, dtypes, shapes, data)) {
    return;
  }
  std::vector<bowline_batch> batches;
  size_t first = 0;
  for (const jint count : ints_of(env, counts)) {
    auto batch = sized<bowline_batch>();
    batch.tensors = tensors.at(first);
    batch.count = static_cast<size_t>(count);
    first += batch.count;
    batches.push_back(batch);
  }
  auto report = sized<bowline_step_report>();
  if (!call(env, library.api->trainer_step, Handle{trainer}, batches.data(), batches.size(),
            &report)) {
    return;
  }
  const jlong whole[] = {static_cast<jlong>(report.step), report.skipped, report.rolled_back,
                         report.weights_non_finite, static_cast<jlong>(report.nonfinite_steps)};
  const jfloat real[] = {report.loss, report.grad_norm, report.learning_rate, report.loss_scale};
  env->SetLongArrayRegion(integers, 0, static_cast<jsize>(std::size(whole)), whole);
  env->SetFloatArrayRegion(reals, 0, static_cast<jsize>(std::size(real)), real);
}

BOWLINE_NATIVE(jfloat, trainerEvaluate, jlong trainer, jobjectArray names, jintArray dtypes,
               jobjectArray shapes, jobjectArray data, jint inputs) {
  Tensors tensors;
  if (!tensors.read(env, names, dtypes, shapes, data)) {
    return 0;
  }
  const auto count = static_cast<size_t>(inputs);
  float loss = 0;
  call(env, library.api->trainer_evaluate, Handle{trainer}, tensors.at(0), count, tensors.at(count),
       tensors.size() - count, &loss);
  return loss;
}

BOWLINE_NATIVE(void, trainerCancel, jlong trainer) {
  call(env, library.api->trainer_cancel, Handle{trainer});
}

BOWLINE_NATIVE(void, trainerSetLearningRate, jlong trainer, jfloat rate) {
  call(env, library.api->trainer_set_learning_rate, Handle{trainer},
       std::isnan(rate) ? nullptr : &rate);
}

BOWLINE_NATIVE(void, trainerSetGradientHook, jlong trainer, jlong hook) {
  call(env, library.api->trainer_set_gradient_hook, Handle{trainer},
       hook == 0 ? nullptr : gradient_to_java, user_of(hook));
}

BOWLINE_NATIVE(void, trainerSave, jlong trainer, jbyteArray path, jlongArray progress) {
  const bowline_progress data = data_progress(env, progress);
  call(env, library.api->trainer_save, Handle{trainer}, Text(env, path), &data, nullptr, 0);
}

BOWLINE_NATIVE(void, trainerPause, jlong trainer, jbyteArray path, jlongArray progress) {
  const bowline_progress data = data_progress(env, progress);
  call(env, library.api->trainer_pause, Handle{trainer}, Text(env, path), &data, nullptr, 0);
}

BOWLINE_NATIVE(jbyteArray, trainerResume, jlong trainer, jbyteArray path, jboolean extend,
               jlongArray progress) {
  auto data = sized<bowline_progress>();
  bowline_buffer* report = nullptr;
  if (!call(env, library.api->trainer_resume, Handle{trainer}, Text(env, path),
            extend == JNI_TRUE ? 1 : 0, &data, &report)) {
    return nullptr;
  }
  const jlong members[] = {static_cast<jlong>(data.step), static_cast<jlong>(data.micro_step),
                           static_cast<jlong>(data.epoch), static_cast<jlong>(data.data_cursor),
                           static_cast<jlong>(data.data_seed)};
  env->SetLongArrayRegion(progress, 0, static_cast<jsize>(std::size(members)), members);
  return take(env, report);
}

BOWLINE_NATIVE(jint, trainerState, jlong trainer) {
  int32_t out = 0;
  call(env, library.api->trainer_state, Handle{trainer}, &out);
  return out;
}

BOWLINE_NATIVE(jlong, trainerSteps, jlong trainer) {
  uint64_t out = 0;
  call(env, library.api->trainer_steps, Handle{trainer}, &out);
  return static_cast<jlong>(out);
}
