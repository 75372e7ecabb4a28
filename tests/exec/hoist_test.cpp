// Hoisting: values that depend only on parameters are computed once per version of the parameters,
// with the same bits.
#include "faults/faulty_device.h"
#include "faults/host_device.h"
#include "plan/plan.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

constexpr int64_t kRows = 6;
constexpr int64_t kColumns = 5;
constexpr size_t kWindow = kRows * kColumns;

// sin(s) cos(s) c with s = a + b, for a column, a row and a scalar. It needs more memory than its
// result.
Value window(GraphBuilder& g, Value a, Value b, Value c) {
  const Value s = g.op("Add", {a, b});
  return g.op("Mul", {g.op("Mul", {g.op("Sin", {s}), g.op("Cos", {s})}), c});
}

// y = x + window. In the entry point "given" the window depends on inputs instead of parameters, so
// that each run computes it.
Model window_model() {
  Model m;
  const Parameter a = must(m.parameter("a", {kRows, 1}, Init::normal(1)));
  const Parameter b = must(m.parameter("b", {kColumns}, Init::normal(1)));
  const Parameter c = must(m.parameter("c", {1}, Init::ones()));
  const Parameter d = must(m.parameter("d", {1}, Init::ones()));
  {
    GraphBuilder g(m, "forward");
    const Value x = g.input("x", DType::f32, {kRows, kColumns});
    const Value w = window(g, g.parameter(a), g.parameter(b), g.parameter(c));
    g.output("y", g.op("Mul", {g.op("Add", {x, w}), g.parameter(d)}));
    EXPECT_OK(g.finish());
  }
  GraphBuilder g(m, "given");
  const Value x = g.input("x", DType::f32, {kRows, kColumns});
  const Value w = window(g, g.input("a", DType::f32, {kRows, 1}),
                         g.input("b", DType::f32, {kColumns}), g.input("c", DType::f32, {1}));
  g.output("y", g.op("Mul", {g.op("Add", {x, w}), g.parameter(d)}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

Floats numbers(size_t n, int shift) {
  Floats out;
  for (size_t i = 0; i < n; ++i) {
    out.push_back(static_cast<float>((i * 7 + static_cast<size_t>(shift) * 5) % 11) / 4 - 1);
  }
  return out;
}

struct Windowed {
  Floats x = numbers(kWindow, 3);
  Floats y = Floats(kWindow);

  Status run(Session& session, std::span<const Tensor> overrides = {}) {
    const Tensor inputs[] = {tensor("x", {kRows, kColumns}, x)};
    const Tensor outputs[] = {tensor("y", {kRows, kColumns}, y)};
    return session.run(inputs, outputs, {}, overrides);
  }
  // Compares with the entry point "given" for these values and the current d.
  void expect(const Model& m, const Device& device, Floats a, Floats b, Floats c) const {
    Session given = must(Session::create(m, device, "given", {}));
    Floats in = x;
    Floats right(kWindow);
    const Tensor inputs[] = {tensor("x", {kRows, kColumns}, in), tensor("a", {kRows, 1}, a),
                             tensor("b", {kColumns}, b), tensor("c", {1}, c)};
    const Tensor outputs[] = {tensor("y", {kRows, kColumns}, right)};
    ASSERT_OK(given.run(inputs, outputs));
    EXPECT_EQ(y, right);
  }
  void expect(const Model& m, const Device& device) const {
    expect(m, device, values(m, "a"), values(m, "b"), values(m, "c"));
  }
};

bool is_hoisted(const Session& s, std::string_view op) {
  const std::string forward = must(s.listing("forward"));
  return forward.find(format("{}(", op)) == std::string::npos &&
         must(s.listing("build")).find(format("{}(", op)) != std::string::npos;
}

class Hoisting : public OnDevice {};

TEST_P(Hoisting, ComputesOncePerVersion) {
  Model m = window_model();
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "forward", {}));
  EXPECT_TRUE(is_hoisted(s, "Sin")) << must(s.listing("forward")) << must(s.listing("build"));
  const std::string forward = must(s.listing("forward"));
  EXPECT_NE(forward.find("Add(in0, held0)"), std::string::npos) << forward;
  const PlanInfo plan = must(s.describe());
  ASSERT_EQ(plan.segments.size(), 2u);
  EXPECT_EQ(plan.segments[0].name, "forward");
  EXPECT_EQ(plan.segments[1].name, "hoisted");
  EXPECT_EQ(plan.segments[1].storages, (std::vector<uint32_t>{0, 1, 2}));
  Windowed w;
  uint64_t refreshes = s.counters().refreshes;
  const auto run_after = [&](uint64_t more) {
    for (int run = 0; run < 3; ++run) {
      w.x = numbers(kWindow, run);
      ASSERT_OK(w.run(s));
      w.expect(m, device_);
    }
    EXPECT_EQ(s.counters().refreshes, refreshes + more);
    refreshes += more;
  };
  // If the device computes in 16 bits, the copies of the parameters are made again, too.
  const bool narrow = plan.segments[1].copies.size() != 0;
  run_after(narrow ? refreshes + 1 + plan.segments[0].copies.size() + plan.segments[1].copies.size()
                   : 1);
  for (const auto& [name, n] : {std::pair("a", kRows), {"b", kColumns}, {"c", int64_t{1}}}) {
    const Dims shape = std::string_view(name) == "a" ? Dims{kRows, 1} : Dims{n};
    ASSERT_OK(set(m, name, shape, numbers(static_cast<size_t>(n), 2)));
    run_after(narrow ? 2 : 1);
  }
  ASSERT_OK(set(m, "d", {1}, {0.5f}));
  run_after(narrow ? 1 : 0);
  EXPECT_EQ(s.counters().plan_builds, 1u);
}

// Ties and verbs that change rows.
TEST_P(Hoisting, FollowsEveryWayOfWriting) {
  Model m = window_model();
  ASSERT_OK(m.tied_parameter("b2", must(m.find("b"))));
  const std::string path = testing::TempDir() + test_name("hoisting " + GetParam());
  ASSERT_OK(m.save(path));
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "forward", {}));
  Windowed w;
  const auto check = [&] {
    ASSERT_OK(w.run(s));
    w.expect(m, device_);
  };
  check();
  ASSERT_OK(set(m, "b2", {kColumns}, numbers(kColumns, 4)));
  check();
  EXPECT_OK(m.load(path).status());
  check();
  ASSERT_OK(m.untie("b2"));
  ASSERT_OK(set(m, "b2", {kColumns}, numbers(kColumns, 5)));
  check();
  ASSERT_OK(set(m, "b", {kColumns}, numbers(kColumns, 6)));
  check();
  ASSERT_OK(m.tie("b", "b2"));
  check();
  ASSERT_OK(m.freeze("a"));
  check();
}

TEST_P(Hoisting, ReadsWhatAStepTrained) {
  Model m = window_model();
  const Parameter a = must(m.find("a"));
  {
    GraphBuilder g(m, "loss");
    const Value x = g.input("x", DType::f32, {kRows, kColumns});
    const Value w =
        window(g, g.parameter(a), g.parameter(must(m.find("b"))), g.parameter(must(m.find("c"))));
    g.output("loss", g.op("ReduceMean", {g.op("Mul", {g.op("Add", {x, w}), x})}));
    ASSERT_OK(g.finish());
  }
  ASSERT_OK(m.freeze("d"));
  ASSERT_OK(m.to(device_));
  TrainOptions options;
  options.optimizer = {"sgd"};
  options.schedule.learning_rate = 0.5f;
  Trainer trainer = must(Trainer::create(m, device_, options));
  Session s = must(Session::create(m, device_, "forward", {}));
  Windowed w;
  ASSERT_OK(trainer.snapshot());
  const Floats before = values(m, "a");
  for (int step = 0; step < 2; ++step) {
    ASSERT_OK(w.run(s));
    w.expect(m, device_);
    const Tensor batch[] = {tensor("x", {kRows, kColumns}, w.x)};
    ASSERT_OK(trainer.micro_step(batch));
  }
  EXPECT_NE(values(m, "a"), before);
  ASSERT_OK(w.run(s));
  w.expect(m, device_);
  ASSERT_OK(trainer.rollback());
  EXPECT_EQ(values(m, "a"), before);
  ASSERT_OK(w.run(s));
  w.expect(m, device_);
}

TEST_P(Hoisting, OverridesAreForOneRun) {
  Model m = window_model();
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "forward", {}));
  Windowed w;
  const Floats a = values(m, "a"), b = values(m, "b"), c = values(m, "c");
  Floats other = numbers(kColumns, 8);
  const Tensor overrides[] = {tensor("b", {kColumns}, other)};
  for (int round = 0; round < 2; ++round) {
    ASSERT_OK(w.run(s, overrides));
    w.expect(m, device_, a, other, c);
    ASSERT_OK(w.run(s));
    w.expect(m, device_, a, b, c);
  }
  // The window does not depend on this parameter.
  const uint64_t refreshes = s.counters().refreshes;
  Floats half = {1.0f};
  const Tensor of_d[] = {tensor("d", {1}, half)};
  ASSERT_OK(w.run(s, of_d));
  w.expect(m, device_, a, b, c);
  const bool narrow = must(s.describe()).segments[0].copies.size() != 0;
  EXPECT_EQ(s.counters().refreshes, refreshes + (narrow ? 1 : 0));
}

// Two entry points hold values of shared storages: neither uses the memory of the other.
TEST_P(Hoisting, EntryPointsHoldTheirOwnValues) {
  Model m = window_model();
  {
    GraphBuilder g(m, "other");
    const Value x = g.input("x", DType::f32, {kRows, kColumns});
    const Value w = window(g, g.parameter(must(m.find("a"))), g.parameter(must(m.find("b"))),
                           g.parameter(must(m.find("d"))));
    g.output("y", g.op("Mul", {g.op("Cos", {x}), g.op("Cos", {w})}));
    ASSERT_OK(g.finish());
  }
  ASSERT_OK(m.to(device_));
  const BoundEntryPoint both[] = {{"forward", {}}, {"other", {}}};
  const auto run = [](Session& s, const char* entry_point, Floats x) {
    Floats y(kWindow);
    const Tensor in[] = {tensor("x", {kRows, kColumns}, x)};
    const Tensor out[] = {tensor("y", {kRows, kColumns}, y)};
    EXPECT_OK(s.run(entry_point, in, out));
    return y;
  };
  Session s = must(Session::create(m, device_, both));
  for (int round = 0; round < 8; ++round) {
    if (round == 1) {
      ASSERT_OK(set(m, "b", {kColumns}, numbers(kColumns, 9)));
    }
    // One window is computed again, and its scratch memory must not overlap the other window.
    if (round == 2 || round == 4) {
      ASSERT_OK(set(m, round == 2 ? "c" : "d", {1}, {0.75f}));
    }
    for (const char* entry_point : {"forward", "other"}) {
      Session alone = must(Session::create(m, device_, entry_point, {}));
      const Floats x = numbers(kWindow, round);
      EXPECT_EQ(run(s, entry_point, x), run(alone, entry_point, x)) << entry_point << round;
    }
  }
}

// A state that this or another entry point writes: each run reads its current value.
TEST_P(Hoisting, LeavesStatesToTheRun) {
  Model m;
  const Parameter state = must(m.parameter("state", {4, 2}, Init::zeros(), StorageRole::kv_cache));
  const Parameter own = must(m.parameter("own", {4, 2}, Init::zeros(), StorageRole::constant));
  {
    GraphBuilder g(m, "write");
    const Value rows = g.input("rows", DType::f32, {1, 2});
    const Value before = g.op("Cos", {g.parameter(own)});
    g.output("sum", g.op("Add", {before, g.op("ReduceSum", {rows})}));
    g.output("all", g.op("WriteRows", {g.parameter(own), rows}, {{"axis", 0}}));
    ASSERT_OK(g.finish());
  }
  {
    GraphBuilder g(m, "read");
    const Value x = g.input("x", DType::f32, {4, 2});
    g.output("y", g.op("Add", {x, g.op("Cos", {g.parameter(state)})}));
    ASSERT_OK(g.finish());
  }
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  const BoundEntryPoint both[] = {{"write", {}}, {"read", {}}};
  Session s = must(Session::create(m, device_, both));
  for (const SegmentInfo& segment : must(s.describe()).segments) {
    EXPECT_EQ(segment.name, "forward");
  }
}

// A product of two factors for each of many layers: all products together would be as large as the
// layers, but a run needs only one at a time.
Model factored_model(int layers) {
  Model m;
  GraphBuilder g(m, "forward");
  Value x = g.input("x", DType::f32, {1, 256});
  for (int i = 0; i < layers; ++i) {
    const auto factor = [&](const char* name, Dims shape) {
      return g.parameter(must(m.parameter(format("{}{}", name, i), shape, Init::normal(0.1f))));
    };
    x = g.op("MatMul", {x, g.op("MatMul", {factor("a", {256, 2}), factor("b", {2, 256})})});
  }
  g.output("y", x);
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

TEST_P(Hoisting, NeverHoldsMuchMoreThanARunNeeds) {
  Model one = factored_model(1);
  ASSERT_OK(one.to(device_));
  const Session s = must(Session::create(one, device_, "forward", {}));
  const PlanInfo plan = must(s.describe());
  EXPECT_EQ(plan.segments.size(), 2u);
  const uint64_t product = 256 * 256 * size_of(plan.segments[1].records[0].outputs[0].dtype);
  Model many = factored_model(12);
  ASSERT_OK(many.to(device_));
  const Session t = must(Session::create(many, device_, "forward", {}));
  EXPECT_EQ(must(t.describe()).segments.size(), 1u) << must(t.listing("build"));
  EXPECT_LT(t.memory().arena_bytes, 4 * product);
}

// There is a small value beside a value that is too large.
TEST_P(Hoisting, HoldsWhatIsSmallWhereNotAllFits) {
  Model m = factored_model(12);
  const Parameter small = must(m.parameter("small", {4}, Init::ones()));
  GraphBuilder g(m, "both");
  Value x = g.input("x", DType::f32, {1, 256});
  for (int i = 0; i < 12; ++i) {
    const auto factor = [&](const char* name) {
      return g.parameter(must(m.find(format("{}{}", name, i))));
    };
    x = g.op("MatMul", {x, g.op("MatMul", {factor("a"), factor("b")})});
  }
  g.output("y", g.op("Mul", {g.op("Reshape", {x}, {{"dims", {64, 4}}}),
                             g.op("Sin", {g.parameter(small)})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  const Session s = must(Session::create(m, device_, "both", {}));
  EXPECT_TRUE(is_hoisted(s, "Sin")) << must(s.listing("forward"));
  const PlanInfo plan = must(s.describe());
  ASSERT_EQ(plan.segments.size(), 2u);
  for (const RecordInfo& record : plan.segments[1].records) {
    EXPECT_NE(record.op, "MatMul");
  }
}

// Gathers rows of a table by indices in a parameter: each run with a bad index reports it.
TEST_P(Hoisting, LeavesBadIndicesToTheRun) {
  Model m;
  const Parameter table = must(m.parameter("table", {4, 2}, Init::ones()));
  const Parameter chosen =
      must(m.parameter("chosen", {2}, Init::zeros(), StorageRole::constant, DType::i32));
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {2, 2});
  const Value rows = g.op("Gather", {g.parameter(table), g.parameter(chosen)}, {{"axis", 0}});
  g.output("y", g.op("Add", {x, rows}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  std::vector<int32_t> bad = {1, 7};
  ASSERT_OK(m.set_value("chosen", tensor("", {2}, bad)));
  Session s = must(Session::create(m, device_, "forward", {}));
  Floats in(4), out(4);
  const Tensor inputs[] = {tensor("x", {2, 2}, in)};
  const Tensor outputs[] = {tensor("y", {2, 2}, out)};
  for (int run = 0; run < 2; ++run) {
    const Status status = s.run(inputs, outputs);
    EXPECT_EQ(status.code(), Code::index_out_of_range) << status.message();
    EXPECT_NE(std::string(status.message()).find("Gather"), std::string::npos) << status.message();
  }
}

// y = x + window + ...: a run has one window at a time. All windows are held if memory allows.
Model windows_model(int windows) {
  Model m;
  const Parameter a = must(m.parameter("a", {kRows, 1}, Init::normal(1)));
  const Parameter b = must(m.parameter("b", {kColumns}, Init::normal(1)));
  GraphBuilder g(m, "forward");
  Value y = g.input("x", DType::f32, {kRows, kColumns});
  for (int i = 0; i < windows; ++i) {
    const Parameter c = must(m.parameter(format("c{}", i), {1}, Init::normal(1)));
    y = g.op("Add", {y, window(g, g.parameter(a), g.parameter(b), g.parameter(c))});
  }
  g.output("y", y);
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

// A memory budget that suffices without held values still suffices, and the outputs are the same.
TEST_P(Hoisting, FitsWhereTheRunAloneDoes) {
  constexpr int kWindows = 24;
  Model m = windows_model(kWindows);
  ASSERT_OK(m.to(device_));
  device_.reset_counters();
  Windowed w;
  uint64_t needed = 0;
  {
    Session s = must(Session::create(m, device_, "forward", {}));
    EXPECT_TRUE(is_hoisted(s, "Sin"));
    needed = s.memory().predicted_bytes;
    EXPECT_EQ(device_.counters().peak_bytes, needed);
    ASSERT_OK(w.run(s));
  }
  const Device limited = open_test_device(GetParam(), 1, needed - 1);
  Model same = windows_model(kWindows);
  ASSERT_OK(same.to(limited));
  Session s = must(Session::create(same, limited, "forward", {}));
  EXPECT_FALSE(is_hoisted(s, "Sin"));
  EXPECT_LT(s.memory().predicted_bytes, needed);
  Windowed again;
  ASSERT_OK(again.run(s));
  EXPECT_EQ(again.y, w.y);
}

// The same for a plan budget: with the smallest sufficient budget nothing is held.
TEST_P(Hoisting, FitsTheBudgetThatTheRunAloneFits) {
  Model m = windows_model(24);
  ASSERT_OK(m.to(device_));
  const auto with_bytes = [&](uint64_t bytes) {
    Budget budget = Budget::of_plan();
    budget.bytes = bytes;
    return Session::create(m, device_, "forward", {}, budget);
  };
  uint64_t too_little = 1;
  const MemoryReport with_held = must(Session::create(m, device_, "forward", {})).memory();
  uint64_t enough = with_held.arena_bytes + with_held.io_bytes;
  while (enough - too_little > 1) {
    const uint64_t middle = too_little + (enough - too_little) / 2;
    (with_bytes(middle).ok() ? enough : too_little) = middle;
  }
  EXPECT_EQ(with_bytes(too_little).status().code(), Code::over_budget);
  EXPECT_EQ(must(must(with_bytes(enough)).describe()).segments.size(), 1u);
}
BOWLINE_ON_ALL_DEVICES(Hoisting);

// Fails every n-th call of the device once. The next try gives the right result.
TEST(HoistingThatFails, IsRightAtTheNextTry) {
  for (int n = 1, fired = 1; fired != 0; ++n) {
    const auto fault = std::make_shared<Fault>();
    const Device device = wrap("faulty", std::make_unique<FaultyDevice>(open_cpu(), fault));
    Model m = window_model();
    ASSERT_OK(m.to(device));
    Windowed w;
    std::optional<Session> s;
    const auto use = [&]() -> Status {
      if (!s) {
        BOWLINE_TRY_ASSIGN(s, Session::create(m, device, "forward", {}));
      }
      return w.run(*s);
    };
    fault->arm(n);
    fired = 0;
    for (const int shift : {0, 1}) {
      SCOPED_TRACE(n);
      if (!set(m, "b", {kColumns}, numbers(kColumns, shift)).ok()) {
        ++fired;
        ASSERT_OK(set(m, "b", {kColumns}, numbers(kColumns, shift)));
      }
      // Nothing is written between the two calls.
      if (!use().ok()) {
        ++fired;
        ASSERT_OK(use());
      }
      fired += fault->fired() && fired == 0 ? 1 : 0;
      const int at = fault->fail_at;
      fault->disarm();
      w.expect(m, device);
      fault->fail_at = at;
    }
  }
}

// A view of a held value costs nothing, so the viewed value is held. A view of a parameter is not
// held.
TEST(HoistingOfAGraph, TakesRootsOfViewsAndNoParameters) {
  Model m;
  const Parameter a = must(m.parameter("a", {4}, Init::ones()));
  const Parameter b = must(m.parameter("b", {2, 2}, Init::ones()));
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {2, 2});
  const auto square = [&](Value v) { return g.op("Reshape", {v}, {{"dims", {2, 2}}}); };
  const Value first = g.op("Mul", {x, square(g.op("Sin", {g.parameter(a)}))});
  const Value second = g.op("Mul", {first, square(g.parameter(a))});
  g.output("y", g.op("Mul", {second, g.parameter(b)}));
  g.output("alone", g.op("Cos", {g.parameter(b)}));
  ASSERT_OK(g.finish());
  const graph::ModelState& state = *Internals::state(m);
  graph::BoundGraph bound = must(graph::bind(state.entry_points.graphs[0], state, {}));
  const std::vector<graph::ValueId> found = plan::hoistable(bound, state.table);
  ASSERT_EQ(found.size(), 1u) << "what only an output reads is computed by the run";
  EXPECT_EQ(op_def(bound.nodes[bound[found[0]].node].op).name, std::string_view("Sin"));
  const graph::BoundGraph made = plan::hoist(bound, found);
  ASSERT_EQ(made.nodes.size(), 1u);
  EXPECT_EQ(bound.nodes.size(), 6u);
  EXPECT_EQ(made.held.values, found);
  EXPECT_EQ(bound[bound.held.values[0]].kind, graph::ValueKind::input);
}

}  // namespace
}  // namespace bowline::test
