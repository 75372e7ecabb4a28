// What the tests of the C interface share: calls with their errors, and a tiny model with a handle
// of each kind.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bowline_c.h"

namespace c_test {

const bowline_api* api();
// Null if the library was built without bowline::text.
const bowline_text_api* text_api();
// Null if the library was built without bowline::import.
const bowline_import_api* import_api();

#include "generated/calls.inc"

// What a call returned. The sentence is empty without an error.
struct Outcome {
  bowline_code code = BOWLINE_OK;
  std::string message;
};
Outcome outcome_of(bowline_code code, bowline_error* error);

// Calls a function, whose last parameter is an error.
template <class... P, class... A>
Outcome call(bowline_code (*function)(P...), A... arguments) {
  bowline_error* error = nullptr;
  const bowline_code code = function(arguments..., &error);
  return outcome_of(code, error);
}

// The same, for a call that must succeed.
template <class... P, class... A>
void must(bowline_code (*function)(P...), A... arguments) {
  const Outcome done = call(function, arguments...);
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
}

// A failed call with the code and a part of its sentence.
void expect_error(const Outcome& done, bowline_code code, std::string_view part);

std::string text_of(bowline_buffer* buffer);

// A struct whose other members are 0.
template <class T>
T sized() {
  T out = {};
  out.size = sizeof(T);
  return out;
}

constexpr int64_t kBatch = 4, kWidth = 4, kClasses = 2;

// The arguments of a step.
struct Batch {
  Batch();
  Batch(const Batch&) = delete;
  int64_t shape[2] = {kBatch, kWidth};
  float points[kBatch * kWidth];
  int32_t labels[kBatch];
  bowline_tensor tensors[2];
};

// The classifier of these tests. "second.weight" is tied to "first.weight".
bowline_model* make_model();
bowline_device* open_cpu();
bowline_trainer* make_trainer(bowline_model* model, bowline_device* device);
bowline_session* make_session(bowline_model* model, bowline_device* device);
// The scores that a session computes.
std::vector<float> scores_of(bowline_session* session);

// A handle of each kind.
struct World {
  World();
  World(const World&) = delete;
  ~World() { close(); }
  void close();
  Handles h;
};
// A file with a model that can generate.
std::string decoder_path();

}  // namespace c_test
