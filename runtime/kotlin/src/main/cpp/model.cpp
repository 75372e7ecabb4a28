// Models and adapters.
#include "call.h"

using namespace bowline_jni;

namespace {

bowline_open_options open_options(JNIEnv* env, jboolean memory_map) {
  auto options = sized<bowline_open_options>();
  call(env, library.api->open_options_init, &options);
  options.memory_map = memory_map == JNI_TRUE;
  return options;
}

// A tensor without a name, in a direct buffer.
bowline_tensor tensor_of(JNIEnv* env, jint dtype, const std::vector<jlong>& shape, jobject data) {
  auto tensor = sized<bowline_tensor>();
  tensor.dtype = dtype;
  tensor.rank = static_cast<int32_t>(shape.size());
  tensor.shape = reinterpret_cast<const int64_t*>(shape.data());
  tensor.data = env->GetDirectBufferAddress(data);
  tensor.bytes = static_cast<uint64_t>(env->GetDirectBufferCapacity(data));
  return tensor;
}
static_assert(sizeof(jlong) == sizeof(int64_t));

}  // namespace

BOWLINE_NATIVE(jlong, modelOpen, jbyteArray path, jboolean memory_map) {
  const bowline_open_options options = open_options(env, memory_map);
  bowline_model* out = nullptr;
  call(env, library.api->model_open, Text(env, path), &options, &out);
  return number_of(out);
}

BOWLINE_NATIVE(jlong, modelOpenDescriptor, jint descriptor, jlong offset, jlong count,
               jboolean memory_map) {
  const bowline_open_options options = open_options(env, memory_map);
  bowline_model* out = nullptr;
  call(env, library.api->model_open_descriptor, descriptor, static_cast<uint64_t>(offset),
       static_cast<uint64_t>(count), &options, &out);
  return number_of(out);
}

BOWLINE_NATIVE(void, modelClose, jlong model) {
  call(env, library.api->model_close, Handle{model});
}

BOWLINE_NATIVE(void, modelSave, jlong model, jbyteArray path) {
  call(env, library.api->model_save, Handle{model}, Text(env, path));
}

BOWLINE_NATIVE(void, modelTo, jlong model, jlong device) {
  call(env, library.api->model_to, Handle{model}, Handle{device}, nullptr);
}

BOWLINE_NATIVE(jlong, modelClone, jlong model) {
  bowline_model* out = nullptr;
  call(env, library.api->model_clone, Handle{model}, &out);
  return number_of(out);
}

BOWLINE_NATIVE(void, modelCopyValuesFrom, jlong model, jlong other) {
  call(env, library.api->model_copy_values_from, Handle{model}, Handle{other});
}

BOWLINE_NATIVE(jbyteArray, modelDescribe, jlong model) {
  return buffer_from(env, library.api->model_describe, Handle{model});
}

BOWLINE_NATIVE(jbyteArray, modelMetadata, jlong model, jbyteArray key) {
  return buffer_from(env, library.api->model_metadata, Handle{model}, Text(env, key));
}

BOWLINE_NATIVE(void, modelSetMetadata, jlong model, jbyteArray key, jbyteArray value) {
  call(env, library.api->model_set_metadata, Handle{model}, Text(env, key), Text(env, value));
}

BOWLINE_NATIVE(void, modelGetValue, jlong model, jbyteArray name, jint dtype, jlongArray shape,
               jobject out) {
  const std::vector<jlong> sizes = longs_of(env, shape);
  const bowline_tensor tensor = tensor_of(env, dtype, sizes, out);
  call(env, library.api->model_get_value, Handle{model}, Text(env, name), &tensor);
}

BOWLINE_NATIVE(void, modelSetValue, jlong model, jbyteArray name, jint dtype, jlongArray shape,
               jobject value) {
  const std::vector<jlong> sizes = longs_of(env, shape);
  const bowline_tensor tensor = tensor_of(env, dtype, sizes, value);
  call(env, library.api->model_set_value, Handle{model}, Text(env, name), &tensor);
}

BOWLINE_NATIVE(void, modelFreeze, jlong model, jbyteArray name, jboolean frozen) {
  call(env, library.api->model_freeze, Handle{model}, Text(env, name), frozen == JNI_TRUE ? 1 : 0);
}

// --------------------------------------------------------------------------------------- adapters

BOWLINE_NATIVE(jbyteArray, modelAddAdapter, jlong model, jbyteArray name, jlong rank, jfloat alpha,
               jfloat dropout, jbyteArray target, jboolean freeze_others, jlong seed) {
  auto options = sized<bowline_adapter_options>();
  const Text pattern(env, target);
  if (!call(env, library.api->adapter_options_init, &options)) {
    return nullptr;
  }
  options.rank = rank;
  options.alpha = alpha;
  options.dropout = dropout;
  options.target = pattern;
  options.freeze_others = freeze_others == JNI_TRUE;
  options.seed = static_cast<uint64_t>(seed);
  return buffer_from(env, library.api->model_add_adapter, Handle{model}, Text(env, name), &options);
}

BOWLINE_NATIVE(jbyteArray, modelAdapters, jlong model) {
  return buffer_from(env, library.api->model_adapters, Handle{model});
}

BOWLINE_NATIVE(void, modelSetAdapterWeight, jlong model, jbyteArray name, jfloat weight) {
  call(env, library.api->model_set_adapter_weight, Handle{model}, Text(env, name), weight);
}

BOWLINE_NATIVE(jfloat, modelAdapterWeight, jlong model, jbyteArray name) {
  float out = 0;
  call(env, library.api->model_adapter_weight, Handle{model}, Text(env, name), &out);
  return out;
}

BOWLINE_NATIVE(void, modelRemoveAdapter, jlong model, jbyteArray name) {
  call(env, library.api->model_remove_adapter, Handle{model}, Text(env, name));
}

BOWLINE_NATIVE(void, modelMergeAdapter, jlong model, jbyteArray name) {
  call(env, library.api->model_merge_adapter, Handle{model}, Text(env, name));
}

BOWLINE_NATIVE(void, modelSaveAdapter, jlong model, jbyteArray name, jbyteArray path) {
  call(env, library.api->model_save_adapter, Handle{model}, Text(env, name), Text(env, path));
}

BOWLINE_NATIVE(jbyteArray, modelLoadAdapter, jlong model, jbyteArray path, jbyteArray name) {
  return buffer_from(env, library.api->model_load_adapter, Handle{model}, Text(env, path),
                     Text(env, name));
}
