/* Trains a small classifier, saves it and opens the file again, in C99 with bowline_c.h alone. The
   two hidden layers share their weight.

   usage: c_app [DEVICE [OUT [MODEL]]]. It writes OUT. With MODEL, a file that c_app wrote, it
   continues the training of this model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bowline_c.h"

enum { BATCH = 64, WIDTH = 8, CLASSES = 2, STEPS = 60 };

static const bowline_api* bl;
static bowline_error* error;
static float points[BATCH * WIDTH];
static int32_t labels[BATCH];

/* Every call is checked. A program that goes on after an error would close its handles here. */
static void must(bowline_code code) {
  if (code != BOWLINE_OK) {
    fprintf(stderr, "c_app: %s: %s\n", bl->code_name(code), bl->error_message(error));
    bl->error_free(error);
    exit(1);
  }
}

/* Is the sum of the first half of a point larger than that of the second half? */
static void make_data(void) {
  uint32_t random = 1;
  for (int i = 0; i < BATCH; ++i) {
    float difference = 0;
    for (int j = 0; j < WIDTH; ++j) {
      random = random * 1664525u + 1013904223u;
      points[i * WIDTH + j] = (float)(random >> 8) / 8388608.0f - 1.0f;
      difference += j < WIDTH / 2 ? points[i * WIDTH + j] : -points[i * WIDTH + j];
    }
    labels[i] = difference > 0;
  }
}

static bowline_tensor tensor(const char* name, bowline_dtype dtype, int32_t rank,
                             const int64_t* shape, void* data) {
  bowline_tensor out = {sizeof out, name, dtype, rank, shape, data, bl->dtype_size(dtype), NULL, 0};
  for (int32_t i = 0; i < rank; ++i) {
    out.bytes *= (uint64_t)shape[i];
  }
  return out;
}

/* Adds Linear(x, weight, bias), and Tanh if `is_hidden`. */
static bowline_value layer(bowline_builder* g, bowline_value x, bowline_parameter weight,
                           bowline_parameter bias, int is_hidden) {
  bowline_value in[3], out;
  in[0] = x;
  must(bl->builder_parameter(g, weight, &in[1], &error));
  must(bl->builder_parameter(g, bias, &in[2], &error));
  must(bl->builder_op(g, "Linear", in, 3, NULL, 0, &out, &error));
  if (is_hidden) {
    must(bl->builder_op(g, "Tanh", &out, 1, NULL, 0, &out, &error));
  }
  return out;
}

static bowline_parameter parameter(bowline_model* model, const char* name, int64_t rows,
                                   int64_t columns) {
  const bowline_init init = {sizeof init, BOWLINE_INIT_UNIFORM, 0.6f};
  const int64_t shape[] = {rows, columns};
  bowline_parameter out;
  must(bl->model_parameter(model, name, shape, columns == 0 ? 1 : 2, columns == 0 ? NULL : &init,
                           BOWLINE_ROLE_WEIGHT, BOWLINE_F32, &out, &error));
  return out;
}

static bowline_model* build(void) {
  const bowline_graph_dim dims[] = {{sizeof dims[0], 0, "batch"}, {sizeof dims[0], WIDTH, NULL}};
  bowline_model* model = NULL;
  bowline_builder* g = NULL;
  bowline_parameter weight, shared;
  bowline_value x, loss[2];
  must(bl->model_create(&model, &error));
  must(bl->builder_create(model, "loss", &g, &error));
  must(bl->builder_input(g, "points", BOWLINE_F32, dims, 2, &x, &error));
  must(bl->builder_input(g, "labels", BOWLINE_I32, dims, 1, &loss[1], &error));
  weight = parameter(model, "first.weight", WIDTH, WIDTH);
  must(bl->model_tied_parameter(model, "second.weight", weight, NULL, &shared, &error));
  x = layer(g, x, weight, parameter(model, "first.bias", WIDTH, 0), 1);
  x = layer(g, x, shared, parameter(model, "second.bias", WIDTH, 0), 1);
  x = layer(g, x, parameter(model, "last.weight", CLASSES, WIDTH),
            parameter(model, "last.bias", CLASSES, 0), 0);
  loss[0] = x;
  must(bl->builder_output(g, "scores", x, &error));
  must(bl->builder_op(g, "CrossEntropy", loss, 2, NULL, 0, &loss[0], &error));
  must(bl->builder_output(g, "loss", loss[0], &error));
  must(bl->builder_finish(g, &error));
  must(bl->builder_close(g, &error));
  must(bl->model_materialize(model, 1, &error));
  return model;
}

static void train(bowline_model* model, bowline_device* device, const bowline_tensor* batch) {
  const bowline_bound_dim dim = {sizeof dim, "batch", BATCH};
  bowline_schedule schedule = {sizeof schedule, 0, 0, 0, 0, 0};
  bowline_train_options options;
  bowline_trainer* trainer = NULL;
  must(bl->schedule_init(&schedule, &error));
  schedule.learning_rate = 0.02f;
  options.size = sizeof options;
  must(bl->train_options_init(&options, &error));
  options.dims = &dim;
  options.dim_count = 1;
  options.schedule = &schedule;
  must(bl->trainer_create(model, device, &options, &trainer, &error));
  for (int step = 1; step <= STEPS; ++step) {
    bowline_step_report report = {.size = sizeof report};
    must(bl->trainer_micro_step(trainer, batch, 2, NULL, 0, &report, NULL, &error));
    if (step == 1 || step % 20 == 0) {
      printf("step %d, loss %.4f\n", step, report.loss);
    }
  }
  must(bl->trainer_close(trainer, &error));
}

/* Writes the scores of all points to `scores`. */
static void run(bowline_model* model, bowline_device* device, const bowline_tensor* batch,
                float* scores) {
  const bowline_bound_dim dim = {sizeof dim, "batch", BATCH};
  const bowline_entry_point point = {sizeof point, "loss", &dim, 1, BOWLINE_NO_DTYPE};
  const int64_t shape[] = {BATCH, CLASSES};
  const bowline_tensor out = tensor("scores", BOWLINE_F32, 2, shape, scores);
  bowline_session* session = NULL;
  must(bl->session_create(model, device, &point, 1, NULL, &session, &error));
  must(bl->session_run(session, NULL, batch, 2, &out, 1, NULL, 0, NULL, 0, &error));
  must(bl->session_close(session, &error));
}

int main(int argc, char** argv) {
  const char* const path = argc > 2 ? argv[2] : "c_app.bowline";
  const int64_t shape[] = {BATCH, WIDTH};
  float trained[BATCH * CLASSES], opened[BATCH * CLASSES];
  bowline_device* device = NULL;
  bowline_model *model = NULL, *copy = NULL;
  bowline_buffer* ties = NULL;
  bowline_tensor batch[2];
  bl = bowline_get_api(BOWLINE_API_VERSION);
  if (bl == NULL) {
    fprintf(stderr, "c_app: the library does not have version %d.\n", BOWLINE_API_VERSION);
    return 1;
  }
  make_data();
  batch[0] = tensor("points", BOWLINE_F32, 2, shape, points);
  batch[1] = tensor("labels", BOWLINE_I32, 1, shape, labels);
  must(bl->device_open(argc > 1 ? argv[1] : "best", NULL, &device, &error));
  if (argc > 3) {
    must(bl->model_open(argv[3], NULL, &model, &error));
  } else {
    model = build();
  }
  must(bl->model_to(model, device, NULL, &error));
  train(model, device, batch);
  run(model, device, batch, trained);
  must(bl->model_save(model, path, &error));
  must(bl->model_open(path, NULL, &copy, &error));
  must(bl->model_to(copy, device, NULL, &error));
  run(copy, device, batch, opened);
  must(bl->model_ties(copy, &ties, &error));
  printf("ties:\n%s\n", (const char*)bl->buffer_data(ties));
  bl->buffer_free(ties);
  must(bl->model_close(copy, &error));
  must(bl->model_close(model, &error));
  must(bl->device_close(device, &error));
  if (memcmp(trained, opened, sizeof trained) != 0) {
    fprintf(stderr, "c_app: %s does not compute what the trained model computes.\n", path);
    return 1;
  }
  printf("%s computes the same scores\n", path);
  return 0;
}
