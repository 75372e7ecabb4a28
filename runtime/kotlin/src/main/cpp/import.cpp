// Import of models and adapters of other formats.
#include "call.h"

using namespace bowline_jni;

namespace {

// Throws if the library was built without bowline::import.
bool has_import(JNIEnv* env) {
  if (library.importer == nullptr) {
    fail(env, BOWLINE_UNSUPPORTED,
         "This library cannot import models of other formats: it was built with "
         "BOWLINE_IMPORT=OFF. Convert the model with the command \"bowline import\", and open the "
         "model file.");
  }
  return library.importer != nullptr;
}

// Texts as an array of C. It outlives the call that reads it.
class List {
 public:
  List(JNIEnv* env, jobjectArray array) : texts_(texts_of(env, array)) {
    pointers_.assign(texts_.begin(), texts_.end());
  }
  const char* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  std::vector<Text> texts_;
  std::vector<const char*> pointers_;
};

// Inputs of a graph, each with a list of numbers: shapes or values. It outlives the call.
template <class Input, class Number>
class Inputs {
 public:
  // `read` converts an array of Java. `set` writes a list of numbers to an input.
  template <class Array, class Numbers, class Set>
  Inputs(JNIEnv* env, jobjectArray names, jobjectArray lists, Numbers (*read)(JNIEnv*, Array),
         Set set)
      : names_(env, names) {
    for (size_t i = 0; i < names_.size(); ++i) {
      const jobject list = env->GetObjectArrayElement(lists, static_cast<jsize>(i));
      const Numbers numbers = read(env, static_cast<Array>(list));
      env->DeleteLocalRef(list);
      const std::vector<Number>& kept = lists_.emplace_back(numbers.begin(), numbers.end());
      auto input = sized<Input>();
      input.name = names_.data()[i];
      set(&input, kept);
      inputs_.push_back(input);
    }
  }
  const Input* data() const { return inputs_.data(); }
  size_t size() const { return inputs_.size(); }

 private:
  List names_;
  std::vector<std::vector<Number>> lists_;
  std::vector<Input> inputs_;
};
using Shapes = Inputs<bowline_input_shape, int64_t>;
using Values = Inputs<bowline_input_values, double>;

void set_shape(bowline_input_shape* input, const std::vector<int64_t>& shape) {
  input->shape = shape.data();
  input->rank = static_cast<int32_t>(shape.size());
}
void set_values(bowline_input_values* input, const std::vector<double>& values) {
  input->values = values.data();
  input->count = values.size();
}

// Runs in the thread that calls importModel(). Callbacks keeps an exception until then.
int32_t progress_to_java(void* user, const bowline_import_progress* at) {
  const Attached thread;
  JNIEnv* const env = thread.env();
  if (env == nullptr) {
    return 1;
  }
  const jint stops = env->CallStaticIntMethod(
      library.callbacks, library.importing, number_of(user), static_cast<jint>(at->part),
      static_cast<jlong>(at->done), static_cast<jlong>(at->total));
  const bool failed = env->ExceptionCheck() == JNI_TRUE;
  env->ExceptionClear();
  return failed ? 1 : stops;
}

}  // namespace

BOWLINE_NATIVE(jint, importFormat, jbyteArray path) {
  int32_t out = 0;
  if (has_import(env)) {
    call(env, library.importer->import_format, Text(env, path), &out);
  }
  return out;
}

BOWLINE_NATIVE(jbyteArray, importModel, jbyteArray path, jint task, jobjectArray labels, jint dtype,
               jint kv_dtype, jbyteArray pooling, jboolean multi_label, jdouble label_smoothing,
               jlongArray matryoshka, jobjectArray ties, jboolean tie_equal, jboolean dropout,
               jlong seed, jboolean skeleton, jbyteArray entry, jobjectArray dims, jlongArray sizes,
               jobjectArray shaped, jobjectArray shapes, jbyteArray batch_dim, jobjectArray given,
               jobjectArray values, jobjectArray trainable, jobjectArray freeze,
               jboolean tie_layers, jlong progress, jlongArray model) {
  if (!has_import(env)) {
    return nullptr;
  }
  auto text = sized<bowline_text_import_options>();
  auto onnx = sized<bowline_onnx_import_options>();
  if (!call(env, library.importer->text_import_options_init, &text) ||
      !call(env, library.importer->onnx_import_options_init, &onnx)) {
    return nullptr;
  }
  const List label_list(env, labels);
  const List tie_list(env, ties);
  const Text pooling_name(env, pooling);
  const std::vector<int64_t> widths = longs_of(env, matryoshka);
  text.task = task;
  text.labels = label_list.data();
  text.label_count = label_list.size();
  text.dtype = dtype;
  text.kv_dtype = kv_dtype;
  text.pooling = pooling_name;
  text.multi_label = multi_label == JNI_TRUE;
  text.label_smoothing = label_smoothing;
  text.matryoshka = widths.data();
  text.matryoshka_count = widths.size();
  text.ties = tie_list.data();
  text.tie_count = tie_list.size() / 2;
  text.tie_equal = tie_equal == JNI_TRUE;
  text.dropout = dropout == JNI_TRUE;
  text.seed = static_cast<uint64_t>(seed);
  text.skeleton = skeleton == JNI_TRUE;

  const Text entry_name(env, entry);
  const Text batch_name(env, batch_dim);
  const Dims bound(env, dims, sizes);
  const List trainable_list(env, trainable);
  const List freeze_list(env, freeze);
  const Shapes input_shapes(env, shaped, shapes, longs_of, set_shape);
  const Values input_values(env, given, values, doubles_of, set_values);
  onnx.entry = entry_name;
  onnx.dims = bound.data();
  onnx.dim_count = bound.size();
  onnx.shapes = input_shapes.data();
  onnx.shape_count = input_shapes.size();
  onnx.batch_dim = batch_name;
  onnx.given = input_values.data();
  onnx.given_count = input_values.size();
  onnx.trainable = trainable_list.data();
  onnx.trainable_count = trainable_list.size();
  onnx.freeze = freeze_list.data();
  onnx.freeze_count = freeze_list.size();
  onnx.tie_equal = tie_layers == JNI_TRUE;

  auto options = sized<bowline_import_options>();
  options.text = &text;
  options.onnx = &onnx;
  options.progress = progress == 0 ? nullptr : progress_to_java;
  options.user = user_of(progress);
  bowline_model* made = nullptr;
  bowline_buffer* report = nullptr;
  if (!call(env, library.importer->import_model, Text(env, path), &options, &made, &report)) {
    return nullptr;
  }
  const jlong number = number_of(made);
  env->SetLongArrayRegion(model, 0, 1, &number);
  return take(env, report);
}

BOWLINE_NATIVE(jbyteArray, modelNotFinite, jlong model) {
  return has_import(env) ? buffer_from(env, library.importer->model_not_finite, Handle{model})
                         : nullptr;
}

BOWLINE_NATIVE(jbyteArray, modelImportAdapter, jlong model, jbyteArray path, jbyteArray name) {
  return has_import(env) ? buffer_from(env, library.importer->model_import_adapter, Handle{model},
                                       Text(env, path), Text(env, name))
                         : nullptr;
}
