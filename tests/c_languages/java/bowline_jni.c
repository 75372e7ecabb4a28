// The native methods of Bowline.java, over the C interface.
#include <bowline_c.h>
#include <stdlib.h>
#include <string.h>

#include "Bowline.h"

enum { MOST_TENSORS = 8 };

static const bowline_api* api = NULL;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* vm, void* reserved) {
  (void)vm;
  (void)reserved;
  api = bowline_get_api(BOWLINE_API_VERSION);
  return api == NULL ? JNI_ERR : JNI_VERSION_1_8;
}

/* ------------------------------------------------------------------------------------- errors */

static jbyteArray bytes_of(JNIEnv* env, const void* data, size_t size) {
  const jbyteArray out = (*env)->NewByteArray(env, (jsize)size);
  if (out != NULL) {
    (*env)->SetByteArrayRegion(env, out, 0, (jsize)size, data);
  }
  return out;
}

/* Throws the error of a failed call. An exception of a hook stays, since it says more. */
static int failed(JNIEnv* env, bowline_code code, bowline_error* error) {
  if (code == BOWLINE_OK) {
    return 0;
  }
  if (!(*env)->ExceptionCheck(env)) {
    const char* const message = api->error_message(error);
    const jclass type = (*env)->FindClass(env, "Bowline$Failure");
    const jmethodID create = (*env)->GetMethodID(env, type, "<init>", "(I[B)V");
    const jobject failure =
        (*env)->NewObject(env, type, create, code, bytes_of(env, message, strlen(message)));
    (*env)->Throw(env, failure);
  }
  api->error_free(error);
  return 1;
}

/* ---------------------------------------------------------------------------------- arguments */

static const char* text_in(JNIEnv* env, jbyteArray text) {
  return (const char*)(*env)->GetByteArrayElements(env, text, NULL);
}

static void text_out(JNIEnv* env, jbyteArray text, const char* bytes) {
  (*env)->ReleaseByteArrayElements(env, text, (jbyte*)bytes, JNI_ABORT);
}

static jbyteArray buffer_out(JNIEnv* env, bowline_buffer* buffer) {
  const jbyteArray out = bytes_of(env, api->buffer_data(buffer), api->buffer_size(buffer));
  api->buffer_free(buffer);
  return out;
}

static jlong from_handle(void* handle) { return (jlong)(intptr_t)handle; }
static void* to_handle(jlong handle) { return (void*)(intptr_t)handle; }

static jlong from_value(bowline_value value) {
  return (jlong)((uint64_t)value.graph << 32 | value.index);
}
static bowline_value to_value(jlong packed) {
  bowline_value out;
  out.index = (uint32_t)packed;
  out.graph = (uint32_t)((uint64_t)packed >> 32);
  return out;
}

static bowline_bound_dim bound(const char* name, jlong value) {
  bowline_bound_dim out;
  out.size = sizeof(out);
  out.name = name;
  out.value = value;
  return out;
}

/* An array of Bowline.Tensor during a call. */
typedef struct tensor_list {
  size_t count;
  jbyteArray names[MOST_TENSORS];
  jlongArray shapes[MOST_TENSORS];
  bowline_tensor tensors[MOST_TENSORS];
} tensor_list;

static void tensor_in(JNIEnv* env, jobject from, tensor_list* list) {
  const size_t i = list->count++;
  const jclass type = (*env)->GetObjectClass(env, from);
  const jobject data = (*env)->GetObjectField(
      env, from, (*env)->GetFieldID(env, type, "data", "Ljava/nio/ByteBuffer;"));
  bowline_tensor* const out = &list->tensors[i];
  list->names[i] = (*env)->GetObjectField(env, from, (*env)->GetFieldID(env, type, "name", "[B"));
  list->shapes[i] = (*env)->GetObjectField(env, from, (*env)->GetFieldID(env, type, "shape", "[J"));
  memset(out, 0, sizeof(*out));
  out->size = sizeof(*out);
  out->name = text_in(env, list->names[i]);
  out->dtype = BOWLINE_F32;
  out->rank = (*env)->GetArrayLength(env, list->shapes[i]);
  out->shape = (const int64_t*)(*env)->GetLongArrayElements(env, list->shapes[i], NULL);
  out->data = (*env)->GetDirectBufferAddress(env, data);
  out->bytes = (uint64_t)(*env)->GetDirectBufferCapacity(env, data);
}

static void tensors_in(JNIEnv* env, jobjectArray from, tensor_list* list) {
  const jsize count = (*env)->GetArrayLength(env, from);
  jsize i = 0;
  list->count = 0;
  for (i = 0; i < count && i < MOST_TENSORS; ++i) {
    tensor_in(env, (*env)->GetObjectArrayElement(env, from, i), list);
  }
}

static void tensors_out(JNIEnv* env, tensor_list* list) {
  size_t i = 0;
  for (i = 0; i < list->count; ++i) {
    text_out(env, list->names[i], list->tensors[i].name);
    (*env)->ReleaseLongArrayElements(env, list->shapes[i], (jlong*)list->tensors[i].shape,
                                     JNI_ABORT);
  }
}

/* ---------------------------------------------------------------------------------- functions */

JNIEXPORT jstring JNICALL Java_Bowline_version(JNIEnv* env, jclass type) {
  (void)type;
  return (*env)->NewStringUTF(env, api->version());
}

JNIEXPORT jbyteArray JNICALL Java_Bowline_devices(JNIEnv* env, jclass type) {
  bowline_buffer* out = NULL;
  bowline_error* error = NULL;
  const bowline_code code = api->device_list(&out, &error);
  (void)type;
  return failed(env, code, error) ? NULL : buffer_out(env, out);
}

JNIEXPORT jlong JNICALL Java_Bowline_deviceOpen(JNIEnv* env, jclass type, jbyteArray name) {
  bowline_device* out = NULL;
  bowline_error* error = NULL;
  const char* const n = text_in(env, name);
  const bowline_code code = api->device_open(n, NULL, &out, &error);
  (void)type;
  text_out(env, name, n);
  failed(env, code, error);
  return from_handle(out);
}

/* Functions that only have a handle. */
#define CLOSE(method, function)                                                     \
  JNIEXPORT void JNICALL Java_Bowline_##method(JNIEnv* env, jclass type, jlong h) { \
    bowline_error* error = NULL;                                                    \
    const bowline_code code = api->function(to_handle(h), &error);                  \
    (void)type;                                                                     \
    failed(env, code, error);                                                       \
  }
CLOSE(deviceClose, device_close)
CLOSE(modelClose, model_close)
CLOSE(builderClose, builder_close)
CLOSE(builderFinish, builder_finish)
CLOSE(sessionClose, session_close)
CLOSE(trainerClose, trainer_close)

JNIEXPORT jlong JNICALL Java_Bowline_modelCreate(JNIEnv* env, jclass type) {
  bowline_model* out = NULL;
  bowline_error* error = NULL;
  const bowline_code code = api->model_create(&out, &error);
  (void)type;
  failed(env, code, error);
  return from_handle(out);
}

JNIEXPORT jlong JNICALL Java_Bowline_modelOpen(JNIEnv* env, jclass type, jbyteArray path) {
  bowline_model* out = NULL;
  bowline_error* error = NULL;
  const char* const p = text_in(env, path);
  const bowline_code code = api->model_open(p, NULL, &out, &error);
  (void)type;
  text_out(env, path, p);
  failed(env, code, error);
  return from_handle(out);
}

JNIEXPORT void JNICALL Java_Bowline_modelSave(JNIEnv* env, jclass type, jlong model,
                                              jbyteArray path) {
  bowline_error* error = NULL;
  const char* const p = text_in(env, path);
  const bowline_code code = api->model_save(to_handle(model), p, &error);
  (void)type;
  text_out(env, path, p);
  failed(env, code, error);
}

JNIEXPORT jlongArray JNICALL Java_Bowline_modelParameter(JNIEnv* env, jclass type, jlong model,
                                                         jbyteArray name, jlongArray shape) {
  bowline_parameter out = {0, 0};
  bowline_error* error = NULL;
  const char* const n = text_in(env, name);
  jlong* const sizes = (*env)->GetLongArrayElements(env, shape, NULL);
  const bowline_code code = api->model_parameter(to_handle(model), n, (const int64_t*)sizes,
                                                 (*env)->GetArrayLength(env, shape), NULL,
                                                 BOWLINE_ROLE_WEIGHT, BOWLINE_F32, &out, &error);
  jlongArray result = NULL;
  jlong members[2] = {0, 0};
  (void)type;
  text_out(env, name, n);
  (*env)->ReleaseLongArrayElements(env, shape, sizes, JNI_ABORT);
  if (failed(env, code, error)) {
    return NULL;
  }
  members[0] = (jlong)out.model;
  members[1] = (jlong)out.index;
  result = (*env)->NewLongArray(env, 2);
  (*env)->SetLongArrayRegion(env, result, 0, 2, members);
  return result;
}

JNIEXPORT void JNICALL Java_Bowline_modelMaterialize(JNIEnv* env, jclass type, jlong model,
                                                     jlong seed) {
  bowline_error* error = NULL;
  const bowline_code code = api->model_materialize(to_handle(model), (uint64_t)seed, &error);
  (void)type;
  failed(env, code, error);
}

JNIEXPORT void JNICALL Java_Bowline_modelTo(JNIEnv* env, jclass type, jlong model, jlong device) {
  bowline_error* error = NULL;
  const bowline_code code = api->model_to(to_handle(model), to_handle(device), NULL, &error);
  (void)type;
  failed(env, code, error);
}

JNIEXPORT void JNICALL Java_Bowline_modelSetMetadata(JNIEnv* env, jclass type, jlong model,
                                                     jbyteArray key, jbyteArray value) {
  bowline_error* error = NULL;
  const char* const k = text_in(env, key);
  const char* const v = text_in(env, value);
  const bowline_code code = api->model_set_metadata(to_handle(model), k, v, &error);
  (void)type;
  text_out(env, key, k);
  text_out(env, value, v);
  failed(env, code, error);
}

JNIEXPORT jbyteArray JNICALL Java_Bowline_modelMetadata(JNIEnv* env, jclass type, jlong model,
                                                        jbyteArray key) {
  bowline_buffer* out = NULL;
  bowline_error* error = NULL;
  const char* const k = text_in(env, key);
  const bowline_code code = api->model_metadata(to_handle(model), k, &out, &error);
  (void)type;
  text_out(env, key, k);
  return failed(env, code, error) ? NULL : buffer_out(env, out);
}

/* ----------------------------------------------------------------------------------- builders */

JNIEXPORT jlong JNICALL Java_Bowline_builderCreate(JNIEnv* env, jclass type, jlong model,
                                                   jbyteArray name) {
  bowline_builder* out = NULL;
  bowline_error* error = NULL;
  const char* const n = text_in(env, name);
  const bowline_code code = api->builder_create(to_handle(model), n, &out, &error);
  (void)type;
  text_out(env, name, n);
  failed(env, code, error);
  return from_handle(out);
}

JNIEXPORT jlong JNICALL Java_Bowline_builderInput(JNIEnv* env, jclass type, jlong builder,
                                                  jbyteArray name, jbyteArray rows, jlong columns) {
  bowline_value out = {0, 0};
  bowline_error* error = NULL;
  bowline_graph_dim dims[2] = {{sizeof(dims[0]), 0, NULL}, {sizeof(dims[0]), 0, NULL}};
  const char* const n = text_in(env, name);
  const char* const r = text_in(env, rows);
  bowline_code code = BOWLINE_OK;
  (void)type;
  dims[0].name = r;
  dims[1].value = columns;
  code = api->builder_input(to_handle(builder), n, BOWLINE_F32, dims, 2, &out, &error);
  text_out(env, name, n);
  text_out(env, rows, r);
  failed(env, code, error);
  return from_value(out);
}

JNIEXPORT jlong JNICALL Java_Bowline_builderParameter(JNIEnv* env, jclass type, jlong builder,
                                                      jlongArray parameter) {
  jlong members[2] = {0, 0};
  bowline_parameter of = {0, 0};
  bowline_value out = {0, 0};
  bowline_error* error = NULL;
  bowline_code code = BOWLINE_OK;
  (void)type;
  (*env)->GetLongArrayRegion(env, parameter, 0, 2, members);
  of.model = (uint64_t)members[0];
  of.index = (uint32_t)members[1];
  code = api->builder_parameter(to_handle(builder), of, &out, &error);
  failed(env, code, error);
  return from_value(out);
}

JNIEXPORT jlong JNICALL Java_Bowline_builderOp(JNIEnv* env, jclass type, jlong builder,
                                               jbyteArray name, jlongArray inputs) {
  bowline_value values[MOST_TENSORS];
  bowline_value out = {0, 0};
  bowline_error* error = NULL;
  const char* const n = text_in(env, name);
  const jsize count = (*env)->GetArrayLength(env, inputs);
  jlong* const packed = (*env)->GetLongArrayElements(env, inputs, NULL);
  bowline_code code = BOWLINE_OK;
  jsize i = 0;
  (void)type;
  for (i = 0; i < count && i < MOST_TENSORS; ++i) {
    values[i] = to_value(packed[i]);
  }
  code = api->builder_op(to_handle(builder), n, values, (size_t)i, NULL, 0, &out, &error);
  text_out(env, name, n);
  (*env)->ReleaseLongArrayElements(env, inputs, packed, JNI_ABORT);
  failed(env, code, error);
  return from_value(out);
}

JNIEXPORT void JNICALL Java_Bowline_builderOutput(JNIEnv* env, jclass type, jlong builder,
                                                  jbyteArray name, jlong value) {
  bowline_error* error = NULL;
  const char* const n = text_in(env, name);
  const bowline_code code = api->builder_output(to_handle(builder), n, to_value(value), &error);
  (void)type;
  text_out(env, name, n);
  failed(env, code, error);
}

/* ---------------------------------------------------------------------- sessions and trainers */

JNIEXPORT jlong JNICALL Java_Bowline_sessionCreate(JNIEnv* env, jclass type, jlong model,
                                                   jlong device, jbyteArray entry_point,
                                                   jbyteArray dim, jlong size) {
  bowline_session* out = NULL;
  bowline_error* error = NULL;
  const char* const n = text_in(env, entry_point);
  const char* const d = text_in(env, dim);
  const bowline_bound_dim dims = bound(d, size);
  bowline_entry_point entry = {sizeof(entry), NULL, NULL, 1, BOWLINE_NO_DTYPE};
  bowline_code code = BOWLINE_OK;
  (void)type;
  entry.name = n;
  entry.dims = &dims;
  code = api->session_create(to_handle(model), to_handle(device), &entry, 1, NULL, &out, &error);
  text_out(env, entry_point, n);
  text_out(env, dim, d);
  failed(env, code, error);
  return from_handle(out);
}

JNIEXPORT void JNICALL Java_Bowline_sessionRun(JNIEnv* env, jclass type, jlong session,
                                               jobjectArray inputs, jobjectArray outputs) {
  bowline_error* error = NULL;
  bowline_code code = BOWLINE_OK;
  tensor_list from;
  tensor_list to;
  (void)type;
  tensors_in(env, inputs, &from);
  tensors_in(env, outputs, &to);
  code = api->session_run(to_handle(session), NULL, from.tensors, from.count, to.tensors, to.count,
                          NULL, 0, NULL, 0, &error);
  tensors_out(env, &from);
  tensors_out(env, &to);
  failed(env, code, error);
}

JNIEXPORT jlong JNICALL Java_Bowline_trainerCreate(JNIEnv* env, jclass type, jlong model,
                                                   jlong device, jbyteArray dim, jlong size,
                                                   jfloat learning_rate) {
  bowline_trainer* out = NULL;
  bowline_error* error = NULL;
  const char* const d = text_in(env, dim);
  const bowline_bound_dim dims = bound(d, size);
  bowline_train_options options;
  bowline_schedule schedule;
  bowline_code code = BOWLINE_OK;
  (void)type;
  options.size = sizeof(options);
  schedule.size = sizeof(schedule);
  api->train_options_init(&options, NULL);
  api->schedule_init(&schedule, NULL);
  schedule.learning_rate = learning_rate;
  options.schedule = &schedule;
  options.dims = &dims;
  options.dim_count = 1;
  code = api->trainer_create(to_handle(model), to_handle(device), &options, &out, &error);
  text_out(env, dim, d);
  failed(env, code, error);
  return from_handle(out);
}

JNIEXPORT jfloat JNICALL Java_Bowline_trainerStep(JNIEnv* env, jclass type, jlong trainer,
                                                  jobjectArray batch) {
  bowline_error* error = NULL;
  bowline_code code = BOWLINE_OK;
  bowline_step_report report;
  bowline_batch one = {sizeof(one), NULL, 0};
  tensor_list list;
  (void)type;
  report.size = sizeof(report);
  report.loss = 0;
  tensors_in(env, batch, &list);
  one.tensors = list.tensors;
  one.count = list.count;
  code = api->trainer_step(to_handle(trainer), &one, 1, &report, &error);
  tensors_out(env, &list);
  failed(env, code, error);
  return report.loss;
}

/* ------------------------------------------------------------------------------------ hooks */

typedef struct java_hook {
  JavaVM* vm;
  jobject object;
} java_hook;

/* Runs in the thread that called trainerStep(), so it has an environment. */
static bowline_code call_java(void* user, const char* of, float* gradient, uint64_t count,
                              bowline_error** error) {
  java_hook* const hook = user;
  void* place = NULL;
  JNIEnv* env = NULL;
  jmethodID method = NULL;
  if ((*hook->vm)->GetEnv(hook->vm, &place, JNI_VERSION_1_8) != JNI_OK) {
    *error = api->error_create(BOWLINE_INTERNAL, "Java does not know the thread of the hook.");
    return BOWLINE_INTERNAL;
  }
  env = place;
  method = (*env)->GetMethodID(env, (*env)->GetObjectClass(env, hook->object), "call",
                               "([BLjava/nio/ByteBuffer;)V");
  (*env)->CallVoidMethod(
      env, hook->object, method, bytes_of(env, of, strlen(of)),
      (*env)->NewDirectByteBuffer(env, gradient, (jlong)(count * sizeof(float))));
  return (*env)->ExceptionCheck(env) ? BOWLINE_CANCELLED : BOWLINE_OK;
}

JNIEXPORT jlong JNICALL Java_Bowline_trainerSetHook(JNIEnv* env, jclass type, jlong trainer,
                                                    jobject hook) {
  bowline_error* error = NULL;
  bowline_code code = BOWLINE_OK;
  java_hook* kept = NULL;
  (void)type;
  if (hook != NULL) {
    kept = malloc(sizeof(*kept));
    (*env)->GetJavaVM(env, &kept->vm);
    kept->object = (*env)->NewGlobalRef(env, hook);
  }
  code = api->trainer_set_gradient_hook(to_handle(trainer), hook == NULL ? NULL : call_java, kept,
                                        &error);
  failed(env, code, error);
  return from_handle(kept);
}

JNIEXPORT void JNICALL Java_Bowline_freeHook(JNIEnv* env, jclass type, jlong hook) {
  java_hook* const kept = to_handle(hook);
  (void)type;
  (*env)->DeleteGlobalRef(env, kept->object);
  free(kept);
}
