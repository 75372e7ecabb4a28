// Sessions and submitted runs.
#include "call.h"

using namespace bowline_jni;

namespace {

class Scalars {
 public:
  Scalars(JNIEnv* env, jobjectArray names, jdoubleArray values, jbooleanArray is_float)
      : names_(texts_of(env, names)) {
    const std::vector<jdouble> numbers = doubles_of(env, values);
    const std::vector<jboolean> floats = booleans_of(env, is_float);
    for (size_t i = 0; i < names_.size(); ++i) {
      auto scalar = sized<bowline_scalar>();
      scalar.name = names_[i];
      scalar.is_float = floats[i] == JNI_TRUE;
      scalar.integer = floats[i] == JNI_TRUE ? 0 : static_cast<int64_t>(numbers[i]);
      scalar.real = numbers[i];
      scalars_.push_back(scalar);
    }
  }
  const bowline_scalar* data() const { return scalars_.data(); }
  size_t size() const { return scalars_.size(); }

 private:
  std::vector<Text> names_;
  std::vector<bowline_scalar> scalars_;
};

// Runs in the thread of the session, or in the thread that closes the session.
void done_to_java(void* user, bowline_code code, const char* message) {
  notify(library.done, user, code, message);
}

}  // namespace

BOWLINE_NATIVE(jlong, sessionCreate, jlong model, jlong device, jbyteArray entry_point,
               jobjectArray dims, jlongArray sizes, jint compute_dtype) {
  const Text name(env, entry_point);
  const Dims bound(env, dims, sizes);
  auto entry = sized<bowline_entry_point>();
  entry.name = name;
  entry.dims = bound.data();
  entry.dim_count = bound.size();
  entry.compute_dtype = compute_dtype;
  bowline_session* out = nullptr;
  call(env, library.api->session_create, Handle{model}, Handle{device}, &entry, 1, nullptr, &out);
  return number_of(out);
}

BOWLINE_NATIVE(void, sessionClose, jlong session) {
  call(env, library.api->session_close, Handle{session});
}

BOWLINE_NATIVE(void, sessionRun, jlong session, jobjectArray names, jintArray dtypes,
               jobjectArray shapes, jobjectArray data, jint inputs, jobjectArray scalars,
               jdoubleArray values, jbooleanArray is_float) {
  Tensors tensors;
  if (!tensors.read(env, names, dtypes, shapes, data)) {
    return;
  }
  const Scalars steps(env, scalars, values, is_float);
  const auto count = static_cast<size_t>(inputs);
  call(env, library.api->session_run, Handle{session}, nullptr, tensors.at(0), count,
       tensors.at(count), tensors.size() - count, steps.data(), steps.size(), nullptr, 0);
}

BOWLINE_NATIVE(jlong, sessionSubmit, jlong session, jobjectArray names, jintArray dtypes,
               jobjectArray shapes, jobjectArray data, jint inputs, jobjectArray scalars,
               jdoubleArray values, jbooleanArray is_float, jlong done) {
  Tensors tensors;
  if (!tensors.read(env, names, dtypes, shapes, data)) {
    return 0;
  }
  const Scalars steps(env, scalars, values, is_float);
  const auto count = static_cast<size_t>(inputs);
  bowline_pending_run* out = nullptr;
  call(env, library.api->session_submit, Handle{session}, nullptr, tensors.at(0), count,
       tensors.at(count), tensors.size() - count, steps.data(), steps.size(), nullptr, 0,
       done_to_java, user_of(done), &out);
  return number_of(out);
}

BOWLINE_NATIVE(void, sessionCancel, jlong session) {
  call(env, library.api->session_cancel, Handle{session});
}

BOWLINE_NATIVE(jboolean, pendingRunDone, jlong run) {
  int32_t out = 0;
  call(env, library.api->pending_run_done, Handle{run}, &out);
  return out != 0 ? JNI_TRUE : JNI_FALSE;
}

BOWLINE_NATIVE(void, pendingRunWait, jlong run) {
  call(env, library.api->pending_run_wait, Handle{run});
}

BOWLINE_NATIVE(void, pendingRunCancel, jlong run) {
  call(env, library.api->pending_run_cancel, Handle{run});
}

BOWLINE_NATIVE(void, pendingRunClose, jlong run) {
  call(env, library.api->pending_run_close, Handle{run});
}
