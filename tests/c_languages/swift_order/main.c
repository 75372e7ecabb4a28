// Calls the C interface in the orders in which a Swift wrapper may call it (wrapper.h).
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "wrapper.h"

/* The handles of four objects. `open` says which of them still have a reference. */
enum { DEVICE, MODEL, SESSION, TRAINER, OBJECTS };
typedef struct objects {
  bowline_device* device;
  bowline_model* model;
  bowline_session* session;
  bowline_trainer* trainer;
  int open[OBJECTS];
} objects;

static objects make_objects(void) {
  objects out = {NULL, NULL, NULL, NULL, {1, 1, 1, 1}};
  out.device = open_device("cpu");
  out.model = make_model(out.device);
  out.session = make_session(out.model, out.device);
  out.trainer = make_trainer(out.model, out.device);
  return out;
}

/* deinit of an object. It cannot throw. */
static void deinit(objects* of, int which) {
  bowline_code code = BOWLINE_OK;
  of->open[which] = 0;
  switch (which) {
    case DEVICE:
      code = api->device_close(of->device, NULL);
      break;
    case MODEL:
      code = api->model_close(of->model, NULL);
      break;
    case SESSION:
      code = api->session_close(of->session, NULL);
      break;
    default:
      code = api->trainer_close(of->trainer, NULL);
      break;
  }
  EXPECT(code == BOWLINE_OK);
}

/* An open session and trainer work, whatever else was closed. Closed ones say so. */
static void check_objects(const objects* of) {
  thrown error;
  float loss = 0;
  float y[ROWS];
  bowline_code code = train(of->trainer, &loss, &error);
  if (of->open[TRAINER]) {
    EXPECT(code == BOWLINE_OK && loss >= 0);
  } else {
    EXPECT(code == BOWLINE_BAD_ARGUMENT &&
           strcmp(error.message, "The handle of the trainer is closed.") == 0);
  }
  code = predict(of->session, y, &error);
  EXPECT(code == (of->open[SESSION] ? BOWLINE_OK : BOWLINE_BAD_ARGUMENT));
  if (!of->open[MODEL]) {
    EXPECT(api->model_materialize(of->model, 1, NULL) == BOWLINE_BAD_ARGUMENT);
    EXPECT(api->model_close(of->model, NULL) == BOWLINE_BAD_ARGUMENT);
  }
}

/* All 24 orders of deinit. */
static void close_in_every_order(void) {
  int order = 0;
  for (order = 0; order < 24; ++order) {
    objects of = make_objects();
    int rest = order;
    int left = OBJECTS;
    check_objects(&of);
    for (; left > 0; --left) {
      int skip = rest % left;
      int which = 0;
      rest /= left;
      while (!of.open[which] || skip-- > 0) {
        ++which;
      }
      deinit(&of, which);
      check_objects(&of);
    }
  }
}

/* A property of the wrapper: assigning it retains the new closure and releases the old one. */
static void set_hook(bowline_trainer* trainer, closure** property, closure* hook) {
  bowline_error* error = NULL;
  closure* const old = *property;
  *property = hook == NULL ? NULL : retain(hook);
  must(api->trainer_set_gradient_hook(trainer, hook == NULL ? NULL : call_hook, hook, &error),
       &error);
  if (old != NULL) {
    release(old);
  }
}

static void call_closures(void) {
  objects of = make_objects();
  closure* property = NULL;
  closure* counts = make_closure(NULL);
  closure* throws = make_closure("Stop \xE2\x80\x93 enough.");
  thrown error;
  set_hook(of.trainer, &property, counts);
  EXPECT(train(of.trainer, NULL, &error) == BOWLINE_OK);
  EXPECT(counts->calls == 2);  // weight and bias
  release(counts);
  EXPECT(train(of.trainer, NULL, &error) == BOWLINE_OK);  // the property retains it
  set_hook(of.trainer, &property, throws);
  release(throws);
  EXPECT(live_closures() == 1);
  EXPECT(train(of.trainer, NULL, &error) == BOWLINE_CANCELLED);
  EXPECT(strcmp(error.message, "Stop \xE2\x80\x93 enough.") == 0);
  set_hook(of.trainer, &property, NULL);
  EXPECT(live_closures() == 0);
  EXPECT(train(of.trainer, NULL, &error) == BOWLINE_OK);

  // deinit of the trainer: closes the handle, then releases the closure.
  property = make_closure(NULL);
  must(api->trainer_set_gradient_hook(of.trainer, call_hook, property, NULL), NULL);
  deinit(&of, TRAINER);
  release(property);
  EXPECT(live_closures() == 0);
  deinit(&of, SESSION);
  deinit(&of, MODEL);
  deinit(&of, DEVICE);
}

/* A source is read when values are needed, also by a clone whose original is closed. So the wrapper
   releases the closure after both. */
static void keep_sources(void) {
  objects of = {NULL, NULL, NULL, NULL, {1, 1, 1, 0}};
  closure* const source = make_closure(NULL);
  bowline_model* clone = NULL;
  bowline_error* error = NULL;
  temporaries t = {{NULL}, {0}, 0};
  float y[ROWS] = {-1, -1, -1, -1, -1, -1, -1, -1};
  thrown ignored;
  of.device = open_device("cpu");
  of.model = make_model(of.device);
  must(api->model_set_source(of.model, temporary_text(&t, "weight"), call_source, source,
                             temporary_text(&t, "plain"), &error),
       &error);
  end_call(&t);
  must(api->model_clone(of.model, &clone, &error), &error);
  deinit(&of, MODEL);
  EXPECT(source->calls == 0);
  must(api->model_to(clone, of.device, NULL, &error), &error);
  EXPECT(source->calls > 0);
  of.session = make_session(clone, of.device);
  must(api->model_close(clone, &error), &error);
  release(source);
  EXPECT(live_closures() == 0);
  EXPECT(predict(of.session, y, &ignored) == BOWLINE_OK);
  EXPECT(y[0] == 1 && y[7] == 1);  // the weights are 0, the bias is 1
  deinit(&of, SESSION);
  deinit(&of, DEVICE);
}

/* A Swift actor: its jobs run one at a time, each perhaps on another thread. */
typedef struct job {
  objects* of;
  int step;
  float loss;
} job;

static void* run_job(void* argument) {
  job* const of = argument;
  thrown error;
  float y[ROWS];
  if (of->step == 0) {
    *of->of = make_objects();
  } else if (of->step <= 200) {
    EXPECT(train(of->of->trainer, &of->loss, &error) == BOWLINE_OK);
    EXPECT(predict(of->of->session, y, &error) == BOWLINE_OK);
  } else {
    deinit(of->of, of->step - 201);
  }
  return NULL;
}

static void run_actor(void) {
  objects of;
  job next = {NULL, 0, 0};
  float first = 0;
  float last = 0;
  next.of = &of;
  for (next.step = 0; next.step <= 200 + OBJECTS; ++next.step) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, run_job, &next) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    first = next.step == 1 ? next.loss : first;
    last = next.loss;
  }
  EXPECT(first > 1);
  EXPECT(last < 0.05f * first);
}

static void throw_errors(void) {
  temporaries t = {{NULL}, {0}, 0};
  bowline_model* model = (bowline_model*)&t;  // stays as it is if the call fails
  bowline_error* error = NULL;
  thrown out;
  const bowline_code code = api->model_open(
      temporary_text(&t, "/nonexistent/\xF0\x9F\xA7\xB5.bowline"), NULL, &model, &error);
  end_call(&t);
  EXPECT(take_error(code, error, &out) == BOWLINE_IO_ERROR);
  EXPECT(strstr(out.message, "/nonexistent/") != NULL);
  EXPECT(model == (bowline_model*)&t);
  // A Swift wrapper that uses `try?` does not want the error.
  EXPECT(api->model_open("/nonexistent/a", NULL, &model, NULL) == BOWLINE_IO_ERROR);
  EXPECT(api->model_open(NULL, NULL, &model, NULL) == BOWLINE_BAD_ARGUMENT);
  // deinit of an object whose init threw.
  EXPECT(api->model_close(NULL, NULL) == BOWLINE_OK);
}

int main(void) {
  api = bowline_get_api(BOWLINE_API_VERSION);
  EXPECT(api != NULL && api->size == sizeof(*api));
  throw_errors();
  close_in_every_order();
  call_closures();
  keep_sources();
  run_actor();
  printf("Version %s: all orders of Swift work.\n", api->version());
  return 0;
}
