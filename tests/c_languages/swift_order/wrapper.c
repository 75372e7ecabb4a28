#include "wrapper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const bowline_api* api = NULL;
static int closures = 0;

void expect(int holds, const char* condition, const char* file, int line) {
  if (!holds) {
    fprintf(stderr, "%s:%d: %s is false.\n", file, line, condition);
    exit(1);
  }
}

void* temporary(temporaries* of, const void* from, size_t bytes) {
  void* block = malloc(bytes);
  EXPECT(block != NULL && of->count < 64);
  memcpy(block, from, bytes);
  of->blocks[of->count] = block;
  of->sizes[of->count++] = bytes;
  return block;
}

const char* temporary_text(temporaries* of, const char* text) {
  return temporary(of, text, strlen(text) + 1);
}

void end_call(temporaries* of) {
  while (of->count > 0) {
    --of->count;
    memset(of->blocks[of->count], 0xA5, of->sizes[of->count]);
    free(of->blocks[of->count]);
  }
}

bowline_code take_error(bowline_code code, bowline_error* error, thrown* out) {
  out->code = code;
  out->message[0] = '\0';
  if (code != BOWLINE_OK && error != NULL) {
    EXPECT(api->error_code(error) == code);
    strncat(out->message, api->error_message(error), sizeof(out->message) - 1);
    api->error_free(error);
  }
  return code;
}

void must(bowline_code code, bowline_error** error) {
  thrown out;
  if (take_error(code, error == NULL ? NULL : *error, &out) != BOWLINE_OK) {
    fprintf(stderr, "%s: %s\n", api->code_name(code), out.message);
    exit(1);
  }
}

closure* make_closure(const char* throws) {
  closure* const out = calloc(1, sizeof(closure));
  EXPECT(out != NULL);
  out->references = 1;
  out->throws = throws;
  ++closures;
  return out;
}

closure* retain(closure* of) {
  ++of->references;
  return of;
}

void release(closure* of) {
  if (--of->references == 0) {
    memset(of, 0xA5, sizeof(*of));
    free(of);
    --closures;
  }
}

int live_closures(void) { return closures; }

/* As a Swift closure: retained while it runs, because it may remove itself. */
static bowline_code call_closure(closure* of, bowline_error** error) {
  bowline_code code = BOWLINE_OK;
  EXPECT(of->references > 0);
  retain(of);
  ++of->calls;
  if (of->throws != NULL) {
    code = BOWLINE_CANCELLED;
    *error = api->error_create(code, of->throws);
  }
  release(of);
  return code;
}

bowline_code call_hook(void* user, const char* of, float* gradient, uint64_t count,
                       bowline_error** error) {
  EXPECT(of[0] == '{' && gradient != NULL && count > 0);
  return call_closure(user, error);
}

/* The values of "weight": zeros. */
bowline_code call_source(void* user, uint64_t first, void* out, uint64_t bytes,
                         bowline_error** error) {
  EXPECT(first + bytes <= 2 * sizeof(float));
  memset(out, 0, bytes);
  return call_closure(user, error);
}

bowline_device* open_device(const char* name) {
  temporaries t = {{NULL}, {0}, 0};
  bowline_device_options options;
  bowline_device* out = NULL;
  bowline_error* error = NULL;
  options.size = sizeof(options);
  must(api->device_options_init(&options, &error), &error);
  options.threads = 1;
  must(api->device_open(temporary_text(&t, name), temporary(&t, &options, sizeof(options)), &out,
                        &error),
       &error);
  end_call(&t);
  return out;
}

static bowline_parameter declare(bowline_model* model, const char* name, const int64_t* shape,
                                 int32_t rank) {
  temporaries t = {{NULL}, {0}, 0};
  bowline_parameter out = {0, 0};
  bowline_error* error = NULL;
  bowline_init init;
  init.size = sizeof(init);
  init.kind = BOWLINE_INIT_ONES;
  init.scale = 0;
  must(api->model_parameter(model, temporary_text(&t, name),
                            temporary(&t, shape, (size_t)rank * sizeof(*shape)), rank,
                            temporary(&t, &init, sizeof(init)), BOWLINE_ROLE_WEIGHT, BOWLINE_F32,
                            &out, &error),
       &error);
  end_call(&t);
  return out;
}

static bowline_value input(bowline_builder* builder, const char* name, int64_t columns) {
  temporaries t = {{NULL}, {0}, 0};
  bowline_graph_dim dims[2] = {{sizeof(dims[0]), 0, NULL}, {sizeof(dims[0]), 0, NULL}};
  bowline_value out;
  bowline_error* error = NULL;
  dims[0].name = temporary_text(&t, "batch");
  dims[1].value = columns;
  must(api->builder_input(builder, temporary_text(&t, name), BOWLINE_F32,
                          temporary(&t, dims, sizeof(dims)), 2, &out, &error),
       &error);
  end_call(&t);
  return out;
}

static bowline_value parameter(bowline_builder* builder, bowline_parameter of) {
  bowline_value out;
  bowline_error* error = NULL;
  must(api->builder_parameter(builder, of, &out, &error), &error);
  return out;
}

static bowline_value op(bowline_builder* builder, const char* name, const bowline_value* inputs,
                        size_t count) {
  temporaries t = {{NULL}, {0}, 0};
  bowline_value out;
  bowline_error* error = NULL;
  must(
      api->builder_op(builder, temporary_text(&t, name),
                      temporary(&t, inputs, count * sizeof(*inputs)), count, NULL, 0, &out, &error),
      &error);
  end_call(&t);
  return out;
}

/* Builds y = Linear(x, weight, bias), or its loss. */
static void build(bowline_model* model, const char* name, const bowline_parameter* parameters,
                  int is_loss) {
  temporaries t = {{NULL}, {0}, 0};
  bowline_builder* builder = NULL;
  bowline_error* error = NULL;
  bowline_value x[3];
  bowline_value out[2];
  must(api->builder_create(model, temporary_text(&t, name), &builder, &error), &error);
  end_call(&t);
  x[0] = input(builder, "x", 2);
  x[1] = parameter(builder, parameters[0]);
  x[2] = parameter(builder, parameters[1]);
  out[0] = op(builder, "Linear", x, 3);
  if (is_loss) {
    out[1] = input(builder, "target", 1);
    out[0] = op(builder, "MeanSquaredError", out, 2);
  }
  must(api->builder_output(builder, temporary_text(&t, is_loss ? "loss" : "y"), out[0], &error),
       &error);
  end_call(&t);
  must(api->builder_finish(builder, &error), &error);
  must(api->builder_close(builder, &error), &error);
}

bowline_model* make_model(bowline_device* device) {
  const int64_t shape[2] = {1, 2};
  bowline_parameter parameters[2];
  bowline_model* out = NULL;
  bowline_error* error = NULL;
  must(api->model_create(&out, &error), &error);
  parameters[0] = declare(out, "weight", shape, 2);
  parameters[1] = declare(out, "bias", shape, 1);
  build(out, "loss", parameters, 1);
  build(out, "predict", parameters, 0);
  must(api->model_materialize(out, 1, &error), &error);
  must(api->model_to(out, device, NULL, &error), &error);
  return out;
}

static const bowline_bound_dim* batch_dim(temporaries* t) {
  bowline_bound_dim dim;
  dim.size = sizeof(dim);
  dim.name = temporary_text(t, "batch");
  dim.value = ROWS;
  return temporary(t, &dim, sizeof(dim));
}

bowline_session* make_session(bowline_model* model, bowline_device* device) {
  temporaries t = {{NULL}, {0}, 0};
  bowline_entry_point entry;
  bowline_session* out = NULL;
  bowline_error* error = NULL;
  entry.size = sizeof(entry);
  entry.name = temporary_text(&t, "predict");
  entry.dims = batch_dim(&t);
  entry.dim_count = 1;
  entry.compute_dtype = BOWLINE_NO_DTYPE;
  must(api->session_create(model, device, temporary(&t, &entry, sizeof(entry)), 1, NULL, &out,
                           &error),
       &error);
  end_call(&t);
  return out;
}

bowline_trainer* make_trainer(bowline_model* model, bowline_device* device) {
  temporaries t = {{NULL}, {0}, 0};
  bowline_train_options options;
  bowline_schedule schedule;
  bowline_optimizer optimizer = {sizeof(optimizer), NULL, NULL, 0};
  bowline_setting setting = {sizeof(setting), NULL, 0.0f};
  bowline_trainer* out = NULL;
  bowline_error* error = NULL;
  options.size = sizeof(options);
  must(api->train_options_init(&options, &error), &error);
  schedule.size = sizeof(schedule);
  must(api->schedule_init(&schedule, &error), &error);
  schedule.learning_rate = 0.1f;
  setting.name = temporary_text(&t, "weight_decay");
  optimizer.name = temporary_text(&t, "adamw");
  optimizer.settings = temporary(&t, &setting, sizeof(setting));
  optimizer.setting_count = 1;
  options.entry_point = temporary_text(&t, "loss");
  options.loss = temporary_text(&t, "loss");
  options.dims = batch_dim(&t);
  options.dim_count = 1;
  options.schedule = temporary(&t, &schedule, sizeof(schedule));
  options.optimizer = temporary(&t, &optimizer, sizeof(optimizer));
  must(api->trainer_create(model, device, temporary(&t, &options, sizeof(options)), &out, &error),
       &error);
  end_call(&t);
  return out;
}

/* A tensor of ROWS rows whose struct, name and shape are temporary. */
static bowline_tensor tensor(temporaries* t, const char* name, int64_t columns, float* data) {
  bowline_tensor out;
  int64_t shape[2] = {ROWS, 0};
  shape[1] = columns;
  memset(&out, 0, sizeof(out));
  out.size = sizeof(out);
  out.name = temporary_text(t, name);
  out.dtype = BOWLINE_F32;
  out.rank = 2;
  out.shape = temporary(t, shape, sizeof(shape));
  out.data = data;
  out.bytes = (uint64_t)(ROWS * columns) * sizeof(float);
  return out;
}

/* Points, and the values of 2a - 3b at them. */
static void points(float* x, float* y) {
  int i = 0;
  for (i = 0; i < ROWS; ++i) {
    x[2 * i] = (float)(i % 3) - 1.0f;
    x[2 * i + 1] = (float)(i % 5) / 2.0f - 1.0f;
    y[i] = 2.0f * x[2 * i] - 3.0f * x[2 * i + 1];
  }
}

bowline_code train(bowline_trainer* trainer, float* loss, thrown* out) {
  temporaries t = {{NULL}, {0}, 0};
  float x[2 * ROWS];
  float y[ROWS];
  bowline_tensor tensors[2];
  bowline_batch batch;
  bowline_step_report report;
  bowline_error* error = NULL;
  bowline_code code = BOWLINE_OK;
  points(x, y);
  tensors[0] = tensor(&t, "x", 2, temporary(&t, x, sizeof(x)));
  tensors[1] = tensor(&t, "target", 1, temporary(&t, y, sizeof(y)));
  batch.size = sizeof(batch);
  batch.tensors = temporary(&t, tensors, sizeof(tensors));
  batch.count = 2;
  report.size = sizeof(report);
  report.loss = -1;
  code = api->trainer_step(trainer, temporary(&t, &batch, sizeof(batch)), 1, &report, &error);
  end_call(&t);
  if (loss != NULL) {
    *loss = report.loss;
  }
  return take_error(code, error, out);
}

bowline_code predict(bowline_session* session, float* y, thrown* out) {
  temporaries t = {{NULL}, {0}, 0};
  float x[2 * ROWS];
  float ignored[ROWS];
  bowline_tensor from;
  bowline_tensor to;
  bowline_error* error = NULL;
  bowline_code code = BOWLINE_OK;
  points(x, ignored);
  from = tensor(&t, "x", 2, temporary(&t, x, sizeof(x)));
  to = tensor(&t, "y", 1, y);
  code =
      api->session_run(session, temporary_text(&t, "predict"), temporary(&t, &from, sizeof(from)),
                       1, temporary(&t, &to, sizeof(to)), 1, NULL, 0, NULL, 0, &error);
  end_call(&t);
  return take_error(code, error, out);
}
