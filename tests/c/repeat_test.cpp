// The callback that builds the body of a Repeat.
#include <functional>

#include "world.h"

namespace c_test {
namespace {

using Body =
    std::function<bowline_code(bowline_builder* body, bowline_value in, bowline_value* out)>;

bowline_code build(void* user, bowline_builder* body, const bowline_value* carried, size_t count,
                   bowline_value* next, bowline_error**) {
  EXPECT_EQ(count, 1u);
  return (*static_cast<Body*>(user))(body, carried[0], next);
}

// The input of a Repeat, and a part of its body.
struct Repeat : ::testing::Test {
  void SetUp() override {
    must(api()->model_create, &model);
    must(api()->builder_create, model, "main", &g);
    const auto dim = bowline_graph_dim{sizeof(bowline_graph_dim), 2, nullptr};
    must(api()->builder_input, g, "x", BOWLINE_F32, &dim, 1, &x);
  }
  void TearDown() override {
    must(api()->builder_close, g);
    must(api()->model_close, model);
  }
  static void add_tanh(bowline_builder* body, bowline_value in, bowline_value* out) {
    must(api()->builder_op, body, "Tanh", &in, 1, nullptr, 0, out);
  }
  Outcome repeat(Body body) {
    out = {77, 78};
    return call(api()->builder_repeat, g, 3, &x, 1, build, &body, &out);
  }
  bowline_model* model = nullptr;
  bowline_builder* g = nullptr;
  bowline_value x = {}, out = {};
};

TEST_F(Repeat, TheLibraryClosesTheBuilderOfABody) {
  bowline_builder* kept = nullptr;
  const Outcome done = repeat([&](bowline_builder* body, bowline_value in, bowline_value* next) {
    add_tanh(body, in, next);
    kept = body;
    expect_error(call(api()->builder_close, body), BOWLINE_BAD_ARGUMENT, "closed by the library");
    expect_error(call(api()->builder_finish, g), BOWLINE_BAD_ARGUMENT, "A callback of the model");
    return BOWLINE_OK;
  });
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
  expect_error(call(api()->builder_finish, kept), BOWLINE_BAD_ARGUMENT, "is closed");
  must(api()->builder_output, g, "y", out);
  must(api()->builder_finish, g);
}

TEST_F(Repeat, AFailedBodyFailsTheGraph) {
  const Outcome done = repeat([&](bowline_builder* body, bowline_value in, bowline_value* next) {
    add_tanh(body, in, next);
    return BOWLINE_CANCELLED;
  });
  expect_error(done, BOWLINE_CANCELLED, "A callback of the program returned 11.");
  EXPECT_EQ(out.index, 77u) << "A failed call set an output.";
  must(api()->builder_output, g, "y", x);
  EXPECT_EQ(call(api()->builder_finish, g).code, BOWLINE_BAD_ARGUMENT);
}

TEST_F(Repeat, AThrowingBodyBecomesInternal) {
  expect_error(
      repeat([](bowline_builder*, bowline_value, bowline_value*) -> bowline_code { throw 1; }),
      BOWLINE_INTERNAL, "threw an exception");
}

// A value that the body did not set is a value of no graph.
TEST_F(Repeat, AForgottenValueIsAnError) {
  const Outcome done = repeat(
      [](bowline_builder*, bowline_value, bowline_value*) { return bowline_code{BOWLINE_OK}; });
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
  must(api()->builder_output, g, "y", out);
  expect_error(call(api()->builder_finish, g), BOWLINE_BAD_ARGUMENT, "another graph");
}

}  // namespace
}  // namespace c_test
