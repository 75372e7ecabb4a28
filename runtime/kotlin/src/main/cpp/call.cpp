#include "call.h"

namespace bowline_jni {

Library library;

void fail(JNIEnv* env, bowline_code code, const char* message) {
  const jbyteArray text = bytes_of(env, message, std::strlen(message));
  if (text == nullptr) {
    return;  // OutOfMemoryError is thrown
  }
  const jobject failure =
      env->NewObject(library.failure, library.make_failure, static_cast<jint>(code), text);
  if (failure != nullptr) {
    env->Throw(static_cast<jthrowable>(failure));
  }
}

bool succeeded(JNIEnv* env, bowline_code code, bowline_error* error) {
  if (code == BOWLINE_OK) {
    return true;
  }
  fail(env, code, library.api->error_message(error));
  library.api->error_free(error);
  return false;
}

jbyteArray bytes_of(JNIEnv* env, const void* data, size_t size) {
  const jbyteArray out = env->NewByteArray(static_cast<jsize>(size));
  if (out != nullptr) {
    env->SetByteArrayRegion(out, 0, static_cast<jsize>(size), static_cast<const jbyte*>(data));
  }
  return out;
}

jbyteArray take(JNIEnv* env, bowline_buffer* buffer) {
  const jbyteArray out =
      bytes_of(env, library.api->buffer_data(buffer), library.api->buffer_size(buffer));
  library.api->buffer_free(buffer);
  return out;
}

Text::Text(JNIEnv* env, jbyteArray array) : is_null_(array == nullptr) {
  if (array != nullptr) {
    bytes_.resize(static_cast<size_t>(env->GetArrayLength(array)));
    env->GetByteArrayRegion(array, 0, static_cast<jsize>(bytes_.size()),
                            reinterpret_cast<jbyte*>(bytes_.data()));
  }
}

namespace {

template <class Element, class Array, class Get>
std::vector<Element> elements_of(JNIEnv* env, Array array, Get get) {
  std::vector<Element> out(array == nullptr ? 0 : static_cast<size_t>(env->GetArrayLength(array)));
  if (!out.empty()) {
    (env->*get)(array, 0, static_cast<jsize>(out.size()), out.data());
  }
  return out;
}

size_t length_of(JNIEnv* env, jobjectArray array) {
  return array == nullptr ? 0 : static_cast<size_t>(env->GetArrayLength(array));
}

// Calls `use` with each element, as long as it returns true. A local reference lives only until the
// next element, so an array of any length needs one.
template <class Use>
bool all_of(JNIEnv* env, jobjectArray array, Use use) {
  const size_t length = length_of(env, array);
  bool good = true;
  for (size_t i = 0; good && i < length; ++i) {
    const jobject element = env->GetObjectArrayElement(array, static_cast<jsize>(i));
    good = use(i, element);
    env->DeleteLocalRef(element);
  }
  return good;
}

}  // namespace

std::vector<jlong> longs_of(JNIEnv* env, jlongArray array) {
  return elements_of<jlong>(env, array, &JNIEnv::GetLongArrayRegion);
}
std::vector<jint> ints_of(JNIEnv* env, jintArray array) {
  return elements_of<jint>(env, array, &JNIEnv::GetIntArrayRegion);
}
std::vector<jfloat> floats_of(JNIEnv* env, jfloatArray array) {
  return elements_of<jfloat>(env, array, &JNIEnv::GetFloatArrayRegion);
}
std::vector<jdouble> doubles_of(JNIEnv* env, jdoubleArray array) {
  return elements_of<jdouble>(env, array, &JNIEnv::GetDoubleArrayRegion);
}
std::vector<jboolean> booleans_of(JNIEnv* env, jbooleanArray array) {
  return elements_of<jboolean>(env, array, &JNIEnv::GetBooleanArrayRegion);
}

std::vector<Text> texts_of(JNIEnv* env, jobjectArray array) {
  std::vector<Text> out;
  out.reserve(length_of(env, array));
  all_of(env, array, [&](size_t, jobject element) {
    out.emplace_back(env, static_cast<jbyteArray>(element));
    return true;
  });
  return out;
}

jintArray array_of(JNIEnv* env, const std::vector<int32_t>& from) {
  const jintArray out = env->NewIntArray(static_cast<jsize>(from.size()));
  if (out != nullptr) {
    env->SetIntArrayRegion(out, 0, static_cast<jsize>(from.size()), from.data());
  }
  return out;
}

Dims::Dims(JNIEnv* env, jobjectArray names, jlongArray sizes) : names_(texts_of(env, names)) {
  const std::vector<jlong> values = longs_of(env, sizes);
  for (size_t i = 0; i < names_.size(); ++i) {
    auto dim = sized<bowline_bound_dim>();
    dim.name = names_[i];
    dim.value = values[i];
    dims_.push_back(dim);
  }
}

bool Tensors::read(JNIEnv* env, jobjectArray names, jintArray dtypes, jobjectArray shapes,
                   jobjectArray data) {
  names_ = texts_of(env, names);
  const std::vector<jint> types = ints_of(env, dtypes);
  all_of(env, shapes, [&](size_t, jobject shape) {
    const std::vector<jlong> sizes = longs_of(env, static_cast<jlongArray>(shape));
    shapes_.emplace_back(sizes.begin(), sizes.end());
    return true;
  });
  return all_of(env, data, [&](size_t i, jobject buffer) {
    auto tensor = sized<bowline_tensor>();
    tensor.name = names_[i];
    tensor.dtype = types[i];
    tensor.rank = static_cast<int32_t>(shapes_[i].size());
    tensor.shape = shapes_[i].data();
    tensor.data = env->GetDirectBufferAddress(buffer);
    tensor.bytes = static_cast<uint64_t>(env->GetDirectBufferCapacity(buffer));
    const size_t element = library.api->dtype_size(tensor.dtype);
    const bool misaligned = element > 1 && reinterpret_cast<uintptr_t>(tensor.data) % element != 0;
    if (tensor.data == nullptr || misaligned) {
      const std::string what = tensor.data == nullptr ? "is not direct" : "is not aligned";
      fail(env, BOWLINE_BAD_ARGUMENT,
           ("The buffer of tensor \"" + std::string(names_[i]) + "\" " + what +
            ". Tensor.allocate() makes a buffer that fits.")
               .c_str());
      return false;
    }
    tensors_.push_back(tensor);
    return true;
  });
}

Attached::Attached() {
  void* env = nullptr;
  const jint state = library.vm->GetEnv(&env, JNI_VERSION_1_6);
  if (state == JNI_OK) {
    env_ = static_cast<JNIEnv*>(env);
  } else if (state == JNI_EDETACHED) {
#ifdef __ANDROID__
    JNIEnv* attached = nullptr;
    attached_ = library.vm->AttachCurrentThreadAsDaemon(&attached, nullptr) == JNI_OK;
    env_ = attached;
#else
    attached_ = library.vm->AttachCurrentThreadAsDaemon(&env, nullptr) == JNI_OK;
    env_ = attached_ ? static_cast<JNIEnv*>(env) : nullptr;
#endif
  }
}

Attached::~Attached() {
  if (attached_) {
    library.vm->DetachCurrentThread();
  }
}

void notify(jmethodID method, const void* user, jint number, const char* message) {
  const Attached thread;
  JNIEnv* const env = thread.env();
  if (env == nullptr) {
    return;
  }
  if (env->PushLocalFrame(4) == 0) {
    const jbyteArray text = bytes_of(env, message, std::strlen(message));
    if (text != nullptr) {
      env->CallStaticVoidMethod(library.callbacks, method, number_of(user), number, text);
    }
    env->PopLocalFrame(nullptr);
  }
  env->ExceptionClear();  // OutOfMemoryError: nobody could get it
}

}  // namespace bowline_jni

// Looks up what callbacks need. A thread that Java does not know cannot find classes of an app.
extern "C" JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* vm, void*) {
  using bowline_jni::library;
  void* place = nullptr;
  if (vm->GetEnv(&place, JNI_VERSION_1_6) != JNI_OK) {
    return JNI_ERR;
  }
  JNIEnv* const env = static_cast<JNIEnv*>(place);
  const auto find = [env](const char* name) -> jclass {
    const jclass local = env->FindClass(name);
    return local == nullptr ? nullptr : static_cast<jclass>(env->NewGlobalRef(local));
  };
  library.vm = vm;
  library.api = bowline_get_api(BOWLINE_API_VERSION);
  library.text = bowline_get_text_api(BOWLINE_API_VERSION);
  library.importer = bowline_get_import_api(BOWLINE_API_VERSION);
  library.failure = find("bowline/runtime/BowlineException");
  if (library.failure == nullptr) {
    return JNI_ERR;
  }
  library.make_failure = env->GetMethodID(library.failure, "<init>", "(I[B)V");
  library.callbacks = find("bowline/runtime/Callbacks");
  if (library.callbacks == nullptr || library.make_failure == nullptr) {
    return JNI_ERR;
  }
  library.log = env->GetStaticMethodID(library.callbacks, "log", "(JI[B)V");
  library.gradient =
      env->GetStaticMethodID(library.callbacks, "gradient", "(J[BLjava/nio/ByteBuffer;)I");
  library.importing = env->GetStaticMethodID(library.callbacks, "importing", "(JIJJ)I");
  library.done = env->GetStaticMethodID(library.callbacks, "done", "(JI[B)V");
  const bool complete = library.api != nullptr && library.api->size >= sizeof(bowline_api) &&
                        library.log != nullptr && library.gradient != nullptr &&
                        library.importing != nullptr && library.done != nullptr;
  return complete ? JNI_VERSION_1_6 : JNI_ERR;
}
