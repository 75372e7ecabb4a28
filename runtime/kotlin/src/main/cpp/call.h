// What all native methods do: arguments from Java, the call of the C interface, and errors.
#pragma once

#include <bowline_c.h>
#include <jni.h>

#ifdef BOWLINE_JNI_DECLARATIONS
#include <bowline_runtime_Native.h>  // from javac: a wrong signature does not compile
#endif

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#define BOWLINE_NATIVE(type, name, ...)                                 \
  extern "C" JNIEXPORT type JNICALL Java_bowline_runtime_Native_##name( \
      [[maybe_unused]] JNIEnv* env, [[maybe_unused]] jclass __VA_OPT__(, ) __VA_ARGS__)

namespace bowline_jni {

// The tables of the library, and what JNI_OnLoad looked up. They are set once, before any other
// function runs. `text` and `importer` are null if the library was built without bowline::text and
// bowline::import.
struct Library {
  const bowline_api* api = nullptr;
  const bowline_text_api* text = nullptr;
  const bowline_import_api* importer = nullptr;
  JavaVM* vm = nullptr;
  jclass failure = nullptr;
  jmethodID make_failure = nullptr;
  jclass callbacks = nullptr;
  jmethodID log = nullptr;
  jmethodID gradient = nullptr;
  jmethodID importing = nullptr;
  jmethodID done = nullptr;
};
extern Library library;

// Throws BowlineException.
void fail(JNIEnv* env, bowline_code code, const char* message);

// Throws the error of a failed call, and frees it. Returns true without an error.
bool succeeded(JNIEnv* env, bowline_code code, bowline_error* error);

// A handle as a number. It converts to a pointer to any handle, since the library checks the kind.
struct Handle {
  jlong number;

  template <class T>
  operator T*() const {
    return reinterpret_cast<T*>(static_cast<intptr_t>(number));
  }
};

inline jlong number_of(const void* handle) {
  return static_cast<jlong>(reinterpret_cast<intptr_t>(handle));
}

// Calls a function of a table. Returns false and throws if it fails.
template <class... Parameters, class... Arguments>
bool call(JNIEnv* env, bowline_code (*function)(Parameters...), Arguments&&... arguments) {
  bowline_error* error = nullptr;
  const bowline_code code = function(std::forward<Arguments>(arguments)..., &error);
  return succeeded(env, code, error);
}

jbyteArray bytes_of(JNIEnv* env, const void* data, size_t size);

// The bytes of a buffer, which is freed.
jbyteArray take(JNIEnv* env, bowline_buffer* buffer);

// As call() for a function that returns a buffer. Returns null and throws if it fails.
template <class Function, class... Arguments>
jbyteArray buffer_from(JNIEnv* env, Function function, Arguments&&... arguments) {
  bowline_buffer* out = nullptr;
  const bool done = call(env, function, std::forward<Arguments>(arguments)..., &out);
  return done ? take(env, out) : nullptr;
}

// A text in UTF-8. A null array is a null pointer.
class Text {
 public:
  Text(JNIEnv* env, jbyteArray array);
  const char* c_str() const { return is_null_ ? nullptr : bytes_.c_str(); }
  operator const char*() const { return c_str(); }
  size_t size() const { return bytes_.size(); }

 private:
  std::string bytes_;
  bool is_null_;
};

// The elements of an array. A null array has none.
std::vector<jlong> longs_of(JNIEnv* env, jlongArray array);
std::vector<jint> ints_of(JNIEnv* env, jintArray array);
std::vector<jfloat> floats_of(JNIEnv* env, jfloatArray array);
std::vector<jdouble> doubles_of(JNIEnv* env, jdoubleArray array);
std::vector<jboolean> booleans_of(JNIEnv* env, jbooleanArray array);
std::vector<Text> texts_of(JNIEnv* env, jobjectArray array);
jintArray array_of(JNIEnv* env, const std::vector<int32_t>& from);

// A struct of the C interface that is filled with zeros and states its size.
template <class Struct>
Struct sized() {
  Struct out;
  static_assert(std::is_trivially_copyable_v<Struct>);
  std::memset(&out, 0, sizeof(out));
  out.size = sizeof(out);
  return out;
}

// Sizes of named dimensions. It outlives the call that reads them.
class Dims {
 public:
  Dims(JNIEnv* env, jobjectArray names, jlongArray sizes);
  const bowline_bound_dim* data() const { return dims_.data(); }
  size_t size() const { return dims_.size(); }

 private:
  std::vector<Text> names_;
  std::vector<bowline_bound_dim> dims_;
};

// Tensors over direct buffers, without a copy.
class Tensors {
 public:
  // Returns false and throws if a buffer is not direct, or not aligned for its dtype.
  bool read(JNIEnv* env, jobjectArray names, jintArray dtypes, jobjectArray shapes,
            jobjectArray data);
  const bowline_tensor* at(size_t first) const { return tensors_.data() + first; }
  size_t size() const { return tensors_.size(); }

 private:
  std::vector<Text> names_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<bowline_tensor> tensors_;
};

// The environment of this thread for a callback. A thread that Java does not know is attached until
// the end of the scope.
class Attached {
 public:
  Attached();
  ~Attached();
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;
  JNIEnv* env() const { return env_; }  // null: the VM refuses the thread

 private:
  JNIEnv* env_ = nullptr;
  bool attached_ = false;
};

// A callback as the library passes it: its number.
inline void* user_of(jlong id) { return reinterpret_cast<void*>(static_cast<intptr_t>(id)); }

// Calls log() or done() of Callbacks, from any thread.
void notify(jmethodID method, const void* user, jint number, const char* message);

}  // namespace bowline_jni
