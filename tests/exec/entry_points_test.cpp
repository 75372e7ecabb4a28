// Sessions with several entry points and several sets of dims.
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

// "double": y = 2 x for x [rows, width]. "sum": s = the sum of x [rows]. Both have w = 2.
Model two_entry_points() {
  Model m;
  const Parameter w = must(m.parameter("w", {1}, Init::ones()));
  {
    GraphBuilder g(m, "double");
    const Value x = g.input("x", DType::f32, {"rows", "width"});
    g.output("y",
             g.op("Mul", {g.op("Softplus", {g.op("Mul", {x, g.parameter(w)})}), g.parameter(w)}));
    EXPECT_OK(g.finish());
  }
  {
    GraphBuilder g(m, "sum");
    const Value x = g.input("x", DType::f32, {"rows"});
    g.output("s", g.op("ReduceSum", {g.op("Mul", {x, g.parameter(w)})}));
    EXPECT_OK(g.finish());
  }
  EXPECT_OK(m.materialize(1));
  return m;
}

const std::vector<BoundEntryPoint> kPlans = {{"double", {{"rows", 2}, {"width", 3}}},
                                             {"double", {{"rows", 64}, {"width", 32}}},
                                             {"sum", {{"rows", 5}}}};

Floats counting(size_t n) {
  Floats out;
  for (size_t i = 0; i < n; ++i) {
    out.push_back(static_cast<float>(i) / 64 - 1);
  }
  return out;
}

// Runs "double" with this shape and compares it with a session that has no other plan.
void expect_double(Session& session, const Model& model, const Device& device, int64_t rows,
                   int64_t width) {
  Floats x = counting(static_cast<size_t>(rows * width));
  Floats y(x.size());
  Floats alone(x.size());
  const Tensor inputs[] = {tensor("x", {rows, width}, x)};
  const Tensor outputs[] = {tensor("y", {rows, width}, y)};
  ASSERT_OK(session.run("double", inputs, outputs));
  const BoundDim dims[] = {{"rows", rows}, {"width", width}};
  Session single = must(Session::create(model, device, "double", dims));
  const Tensor same[] = {tensor("y", {rows, width}, alone)};
  ASSERT_OK(single.run(inputs, same));
  EXPECT_EQ(y, alone);
}

float sum_of(Session& session, Floats x) {
  Floats s(1);
  const Tensor inputs[] = {tensor("x", {static_cast<int64_t>(x.size())}, x)};
  const Tensor outputs[] = {tensor("s", {}, s)};
  EXPECT_OK(session.run("sum", inputs, outputs));
  return s[0];
}

class EntryPoints : public OnDevice {};

TEST_P(EntryPoints, RunByTheShapesOfTheirInputs) {
  Model m = two_entry_points();
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, kPlans));
  EXPECT_EQ(s.counters().plan_builds, 3u);
  expect_double(s, m, device_, 64, 32);
  EXPECT_EQ(sum_of(s, {1, 2, 3, 4, 5}), 15);
  expect_double(s, m, device_, 2, 3);
  expect_double(s, m, device_, 64, 32);
  ASSERT_OK(set(m, "w", {1}, {3}));
  EXPECT_EQ(sum_of(s, {1, 2, 3, 4, 5}), 45);
  EXPECT_EQ(s.counters().plan_builds, 3u);
  EXPECT_EQ(s.counters().submits, 5u);
  // A change of the table makes all plans again, once.
  ASSERT_OK(m.freeze("w"));
  EXPECT_EQ(sum_of(s, {0, 0, 1, 0, 0}), 3);
  expect_double(s, m, device_, 2, 3);
  EXPECT_EQ(s.counters().plan_builds, 6u);
}

TEST_P(EntryPoints, ShareOneArena) {
  Model m = two_entry_points();
  ASSERT_OK(m.to(device_));
  uint64_t arena = 0;
  uint64_t backend = 0;
  for (const BoundEntryPoint& plan : kPlans) {
    Session single = must(Session::create(m, device_, std::span(&plan, 1)));
    arena = std::max(arena, single.memory().arena_bytes);
    backend += single.memory().backend_bytes;
  }
  ASSERT_GT(arena, 0u);
  device_.reset_counters();
  Session s = must(Session::create(m, device_, kPlans));
  EXPECT_EQ(s.memory().arena_bytes, arena);
  EXPECT_EQ(s.memory().backend_bytes, backend);
  EXPECT_EQ(s.memory().predicted_bytes, device_.counters().peak_bytes);
  EXPECT_EQ(device_.counters().allocations, 3u) << "arena, inputs and outputs, step words";
}

TEST_P(EntryPoints, ARunThatFitsNoneIsRefused) {
  Model m = two_entry_points();
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, kPlans));
  Floats x = counting(6);
  const auto message = [&](std::optional<std::string_view> name, Dims shape) {
    const Tensor inputs[] = {tensor("x", shape, x)};
    const Status status = name ? s.run(*name, inputs, {}) : s.run(inputs, {});
    EXPECT_EQ(status.code(), Code::bad_argument);
    return status.message();
  };
  EXPECT_EQ(
      message({}, {2, 3}),
      "The session has several entry points, \"double\" of rows = 2, width = 3 and \"sum\" of "
      "rows = 5. Name the one to run.");
  EXPECT_EQ(message("triple", {2, 3}),
            "The session has no plan of \"triple\"; it has \"double\" of rows = 2, width = 3; "
            "\"double\" of rows = 64, width = 32; \"sum\" of rows = 5.");
  EXPECT_EQ(message("double", {3, 2}),
            "The shapes of the inputs fit none of the plans: \"double\" of rows = 2, width = 3; "
            "\"double\" of rows = 64, width = 32; \"sum\" of rows = 5.");
  EXPECT_EQ(message("sum", {6}), "Input \"x\" is f32[6], not f32[5].");
  EXPECT_EQ(device_.counters().submits, 0u);

  const BoundEntryPoint twice[] = {kPlans[0], kPlans[2], kPlans[0]};
  EXPECT_EQ(Session::create(m, device_, twice).status().message(),
            "\"double\" of rows = 2, width = 3 and \"double\" of rows = 2, width = 3 take inputs "
            "of the same shapes, so the session cannot tell them apart.");
  EXPECT_EQ(Session::create(m, device_, std::span<const BoundEntryPoint>()).status().message(),
            "A session needs at least one entry point.");
}

// Two capacities of a dynamic dimension: a run uses the smallest plan that can hold it.
TEST_P(EntryPoints, WithCountedDimsTheSmallestThatHoldsARunIsTaken) {
  Model m;
  ASSERT_OK(m.set_dim_limits("rows", {2, 1000, true}));
  GraphBuilder g(m, "square");
  const Value x = g.input("x", DType::f32, {"rows", 3});
  g.output("y", g.op("Mul", {x, x}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.to(device_));
  const BoundEntryPoint plans[] = {{"square", {{"rows", 64}}}, {"square", {{"rows", 8}}}};
  Session s = must(Session::create(m, device_, plans));
  const auto run = [&](int64_t rows) {
    Floats x_values = counting(static_cast<size_t>(rows * 3));
    Floats y(x_values.size(), -1);
    const Tensor in[] = {tensor("x", {rows, 3}, x_values)};
    const Tensor out[] = {tensor("y", {rows, 3}, y)};
    const Status status = s.run(in, out);
    for (size_t i = 0; status.ok() && i < y.size(); ++i) {
      EXPECT_EQ(y[i], x_values[i] * x_values[i]) << rows << ", " << i;
    }
    return status;
  };
  for (const int64_t rows : {64, 2, 8, 9, 63}) {
    EXPECT_OK(run(rows));
  }
  EXPECT_EQ(s.counters().plan_builds, 2u);
  for (const int64_t rows : {1, 65}) {
    EXPECT_EQ(
        run(rows).message(),
        "The shapes of the inputs fit none of the plans: \"square\" of rows = 64; \"square\" of "
        "rows = 8.");
  }
}

TEST_P(EntryPoints, AreProfiledByName) {
  Model m = two_entry_points();
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, kPlans));
  Floats x = counting(5);
  const Tensor inputs[] = {tensor("x", {5}, x)};
  const std::vector<NodeTime> times = must(s.profile("sum", inputs));
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].op, "Mul");
  EXPECT_EQ(times[1].op, "ReduceSum");
  EXPECT_EQ(s.profile(inputs).status().code(), Code::bad_argument);
}
BOWLINE_ON_ALL_DEVICES(EntryPoints);

}  // namespace
}  // namespace bowline::test
