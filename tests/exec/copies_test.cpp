// Derived copies of storages: made once per version, at a fixed address, shared by all readers.
#include "exec/segment.h"
#include "faults/faulty_device.h"
#include "faults/host_device.h"
#include "graph/bind.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

// Casts `v` to bf16; all products here use bf16 copies.
Value half(GraphBuilder& g, Value v) { return g.op("Cast", {v}, {{"to", "bf16"}}); }
Value full(GraphBuilder& g, Value v) { return g.op("Cast", {v}, {{"to", "f32"}}); }

// y [2,4] = x [2,3] w, in bf16. "tied" is the transposed storage and adds a second product.
Model product_model() {
  Model m;
  const Parameter w = must(m.parameter("w", {3, 4}, Init::zeros()));
  View transposed;
  transposed.transpose = true;
  const Parameter tied = must(m.tied_parameter("tied", w, transposed));
  GraphBuilder g(m, "forward");
  const Value x = half(g, g.input("x", DType::f32, {2, 3}));
  const Value y = g.op("MatMul", {x, half(g, g.parameter(w))});
  g.output("y", full(g, y));
  g.output("z", full(g, g.op("MatMul", {y, half(g, g.parameter(tied))})));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  return m;
}

struct Product {
  Floats x = {1, 2, 3, -1, 0, 2};
  Floats w;
  Floats y = Floats(8);
  Floats z = Floats(6);

  Status run(Session& session) {
    const Tensor inputs[] = {tensor("x", {2, 3}, x)};
    const Tensor outputs[] = {tensor("y", {2, 4}, y), tensor("z", {2, 3}, z)};
    return session.run(inputs, outputs);
  }
  // Small integers, which bf16 represents exactly.
  void expect() const {
    for (size_t r = 0; r < 2; ++r) {
      Floats row(4);
      for (size_t c = 0; c < 4; ++c) {
        for (size_t k = 0; k < 3; ++k) {
          row[c] += x[r * 3 + k] * w[k * 4 + c];
        }
        EXPECT_EQ(y[r * 4 + c], row[c]) << r << "," << c;
      }
      for (size_t k = 0; k < 3; ++k) {
        float sum = 0;
        for (size_t c = 0; c < 4; ++c) {
          sum += row[c] * w[k * 4 + c];
        }
        EXPECT_EQ(z[r * 3 + k], sum) << r << "," << k;
      }
    }
  }
};

Floats weights(int shift) {
  Floats w;
  for (int i = 0; i < 12; ++i) {
    w.push_back(static_cast<float>((i * 5 + shift) % 7 - 3));
  }
  return w;
}

std::shared_ptr<params::Residency> copy_of(const Model& model, uint32_t tie) {
  const auto& copies = Internals::state(model)->table.storages[tie].copies;
  return copies.empty() ? nullptr : copies[0].lock();
}

class DerivedCopies : public OnDevice {};

TEST_P(DerivedCopies, AreMadeOncePerVersionAtOneAddress) {
  Model m = product_model();
  ASSERT_OK(m.to(device_));
  Product p;
  p.w = weights(0);
  ASSERT_OK(set(m, "w", {3, 4}, p.w));
  device_.reset_counters();
  Session s = must(Session::create(m, device_, "forward", {}));
  EXPECT_EQ(device_.counters().records, 2u)
      << "the plan and one refresh, of two uses of one storage";
  const std::shared_ptr<params::Residency> copy = copy_of(m, 0);
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->version(), std::nullopt);
  for (const int shift : {0, 1, 2}) {
    p.w = weights(shift);
    ASSERT_OK(set(m, "w", {3, 4}, p.w));
    for (int run = 0; run < 3; ++run) {
      ASSERT_OK(p.run(s));
      p.expect();
      EXPECT_EQ(s.counters().refreshes, static_cast<uint64_t>(shift) + 1);
    }
    EXPECT_EQ(copy_of(m, 0), copy);
    EXPECT_EQ(copy->version(), Internals::state(m)->table.storages[0].version);
  }
  EXPECT_EQ(device_.counters().records, 2u);
  EXPECT_EQ(s.counters().plan_builds, 1u);
  EXPECT_EQ(s.counters().submits, 9u);
  EXPECT_EQ(device_.counters().submits, 9u) << "a refresh needs no submission of its own";
}

TEST_P(DerivedCopies, AreListed) {
  Model m = product_model();
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "forward", {}));
  EXPECT_NE(m.storages().find(", as bf16 to be made\n"), std::string::npos) << m.storages();
  Product p;
  ASSERT_OK(p.run(s));
  EXPECT_NE(m.storages().find(", as bf16 version 1\n"), std::string::npos) << m.storages();
  const std::string forward = must(s.listing("forward"));
  EXPECT_NE(forward.find("bf16[2,4] = MatMul(%1, @w:bf16)"), std::string::npos) << forward;
  EXPECT_NE(forward.find("bf16[2,3] = MatMul(%2, @tied:bf16) transpose_a=false transpose_b=true"),
            std::string::npos)
      << forward;
  EXPECT_EQ(forward.find("Cast(@"), std::string::npos) << forward;
  EXPECT_EQ(must(s.listing("build")), "refresh storage 0 as bf16: Cast, when it was written\n");
  EXPECT_NE(must(s.listing("build", true)).find("storage 0 as bf16 0..24"), std::string::npos);
}

TEST_P(DerivedCopies, AreSharedAndGoWithTheirReaders) {
  Model m = product_model();
  ASSERT_OK(m.to(device_));
  const uint64_t live = device_.counters().live_bytes;
  Product p;
  p.w = weights(3);
  ASSERT_OK(set(m, "w", {3, 4}, p.w));
  {
    Session first = must(Session::create(m, device_, "forward", {}));
    ASSERT_OK(p.run(first));
    EXPECT_EQ(first.memory().copy_bytes >= 24, true);
    const uint64_t records = device_.counters().records;
    Session second = must(Session::create(m, device_, "forward", {}));
    EXPECT_EQ(device_.counters().records, records + 1) << "the refresh is there";
    ASSERT_OK(p.run(second));
    p.expect();
    EXPECT_EQ(second.counters().refreshes, 0u) << "it is of this version";
    p.w = weights(4);
    ASSERT_OK(set(m, "w", {3, 4}, p.w));
    ASSERT_OK(p.run(second));
    ASSERT_OK(p.run(first));
    p.expect();
    EXPECT_EQ(first.counters().refreshes + second.counters().refreshes, 2u);
  }
  EXPECT_EQ(device_.counters().live_bytes, live);
  EXPECT_EQ(copy_of(m, 0), nullptr);
}

// Every way of writing makes a new copy at the next use, and the counter shows it.
TEST_P(DerivedCopies, FollowEveryWayOfWriting) {
  Model m;
  const Parameter w = must(m.parameter("w", {1, 1}, Init::ones()));
  GraphBuilder g(m, "loss");
  const Value x = half(g, g.input("x", DType::f32, {1, 1}));
  const Value y = full(g, g.op("MatMul", {x, half(g, g.parameter(w))}));
  g.output("loss", g.op("ReduceSum", {y}));
  EXPECT_OK(g.finish());
  EXPECT_OK(m.materialize(1));
  const std::string path = testing::TempDir() + test_name("copies " + GetParam());
  ASSERT_OK(set(m, "w", {1, 1}, {1.5f}));
  ASSERT_OK(m.save(path));
  ASSERT_OK(set(m, "w", {1, 1}, {1.0f}));
  ASSERT_OK(m.to(device_));

  TrainOptions options;
  options.optimizer = {"sgd"};
  options.schedule.learning_rate = 0.25f;
  options.accumulation = 2;
  Trainer trainer = must(Trainer::create(m, device_, options));
  Floats two = {2};
  const Tensor batch[] = {tensor("x", {1, 1}, two)};
  const auto loss = [&] { return must(trainer.evaluate(batch)); };
  EXPECT_EQ(loss(), 2);
  EXPECT_EQ(loss(), 2);
  EXPECT_EQ(trainer.counters().refreshes, 1u);
  ASSERT_OK(set(m, "w", {1, 1}, {1.5f}));
  EXPECT_EQ(loss(), 3);
  EXPECT_EQ(trainer.counters().refreshes, 2u);
  ASSERT_OK(trainer.snapshot());
  // The gradient is 2 and the rate 1/4: the weight decreases by 1/2 per step, and the loss by 1.
  for (const float expected : {3.0f, 2.0f, 1.0f}) {
    for (int micro = 0; micro < 2; ++micro) {
      const auto report = must(trainer.micro_step(batch));
      ASSERT_EQ(report.has_value(), micro == 1);
      EXPECT_EQ(report ? report->loss : expected, expected);
    }
  }
  EXPECT_EQ(trainer.counters().refreshes, 2u) << "the optimizer writes the copy";
  EXPECT_EQ(loss(), 0);
  ASSERT_OK(trainer.rollback());
  EXPECT_EQ(loss(), 3);
  ASSERT_OK(set(m, "w", {1, 1}, {1.0f}));
  EXPECT_EQ(loss(), 2);
  EXPECT_EQ(must(m.load(path)).storages, 1u);
  EXPECT_EQ(loss(), 3);
  // The storage is replaced.
  ASSERT_OK(m.freeze("w"));
  ASSERT_OK(m.freeze("w", false));
  EXPECT_EQ(loss(), 3);
}

// Three iterations, two storages.
TEST_P(DerivedCopies, OfAListOfARepeatAreOnePerStorage) {
  Model m;
  ParameterList list;
  const Parameter a = must(m.parameter("a", {2, 2}, Init::zeros()));
  list.items = {a, must(m.parameter("b", {2, 2}, Init::zeros())), must(m.tied_parameter("c", a))};
  GraphBuilder g(m, "forward");
  const Value x = half(g, g.input("x", DType::f32, {1, 2}));
  const auto y = g.repeat(3, {x}, [&](GraphBuilder& b, const std::vector<Value>& c) {
    return std::vector<Value>{b.op("MatMul", {c[0], half(b, b.parameter(list))})};
  });
  ASSERT_EQ(y.size(), 1u);
  g.output("y", full(g, y[0]));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  ASSERT_OK(set(m, "a", {2, 2}, {0, 2, 1, 0}));
  ASSERT_OK(set(m, "b", {2, 2}, {1, 1, 0, 1}));
  Session s = must(Session::create(m, device_, "forward", {}));
  Floats in = {1, 10};
  Floats out(2);
  const Tensor inputs[] = {tensor("x", {1, 2}, in)};
  const Tensor outputs[] = {tensor("y", {1, 2}, out)};
  ASSERT_OK(s.run(inputs, outputs));
  // [1,10] a = [10,2]; b: [10,12]; a: [12,20].
  EXPECT_EQ(out, (Floats{12, 20}));
  EXPECT_EQ(s.counters().refreshes, 2u);
  ASSERT_OK(set(m, "b", {2, 2}, {1, 0, 0, 1}));
  ASSERT_OK(s.run(inputs, outputs));
  EXPECT_EQ(out, (Floats{2, 20}));
  EXPECT_EQ(s.counters().refreshes, 3u) << "that of b alone";
}

// The remaining nodes get other indices, in bodies too.
TEST(DerivedCopiesOfAGraph, LeaveResultsThatNameTheirNodes) {
  Model m;
  const ParameterList list = must(m.parameters("w.{}", 2, {2, 2}, Init::ones()));
  GraphBuilder g(m, "forward");
  const Value x = half(g, g.input("x", DType::f32, {1, 2}));
  const auto y = g.repeat(2, {x}, [&](GraphBuilder& b, const std::vector<Value>& c) {
    const Value w = half(b, b.parameter(list));
    return std::vector<Value>{b.op("MatMul", {b.op("MatMul", {c[0], w}), w})};
  });
  const Value last = half(g, g.parameter(list.items[0]));
  g.output("y", full(g, g.op("MatMul", {y.at(0), last})));
  ASSERT_OK(g.finish());
  const graph::ModelState& state = *Internals::state(m);
  graph::BoundGraph bound = must(graph::bind(state.entry_points.graphs[0], state, {}));
  const size_t before = bound.nodes.size();
  EXPECT_EQ(plan::derive_copies(bound, state.table, before), before - 1);
  EXPECT_EQ(bound.nodes.size(), before - 1);
  const graph::BoundGraph& body = *bound.nodes[1].repeat->body;
  EXPECT_EQ(body.nodes.size(), 2u);
  for (const graph::BoundGraph* graph : {static_cast<const graph::BoundGraph*>(&bound), &body}) {
    for (uint32_t n = 0; n < graph->nodes.size(); ++n) {
      EXPECT_EQ((*graph)[graph->nodes[n].outputs[0]].node, n);
    }
  }
}

// A copy of the whole storage would cost more work and memory than the part.
TEST_P(DerivedCopies, OfAPartOfAStorageAreNotKept) {
  Model m;
  const Parameter w = must(m.parameter("w", {4, 2}, Init::ones()));
  View middle;
  middle.row_start = 1;
  middle.rows = 2;
  const Parameter part = must(m.tied_parameter("part", w, middle));
  GraphBuilder g(m, "forward");
  g.output("y", full(g, half(g, g.parameter(part))));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  Session s = must(Session::create(m, device_, "forward", {}));
  Floats out(4);
  const Tensor outputs[] = {tensor("y", {2, 2}, out)};
  ASSERT_OK(s.run({}, outputs));
  EXPECT_EQ(out, (Floats{1, 1, 1, 1}));
  EXPECT_EQ(s.counters().refreshes, 0u);
  EXPECT_NE(must(s.listing("forward")).find("Cast(@part)"), std::string::npos);
}

// A plan of a session writes the state, another reads its copy: the write of a plan counts like any
// other.
TEST_P(DerivedCopies, OfAStateFollowThePlanThatWritesIt) {
  Model m;
  const Parameter state = must(m.parameter("state", {4, 2}, Init::zeros(), StorageRole::kv_cache));
  {
    GraphBuilder g(m, "write");
    const Value rows = g.input("rows", DType::f32, {1, 2});
    g.output("all", g.op("WriteRows", {g.parameter(state), rows}, {{"axis", 0}}));
    ASSERT_OK(g.finish());
  }
  {
    GraphBuilder g(m, "read");
    g.output("half", full(g, half(g, g.parameter(state))));
    ASSERT_OK(g.finish());
  }
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(m.to(device_));
  const BoundEntryPoint both[] = {{"write", {}}, {"read", {}}};
  Session s = must(Session::create(m, device_, both));
  Floats expected(8);
  for (const size_t row : {size_t{2}, size_t{0}, size_t{2}}) {
    Floats rows = {static_cast<float>(row) + 1, -2};
    const Tensor in[] = {tensor("rows", {1, 2}, rows)};
    const StepScalar position[] = {{"position", row}};
    ASSERT_OK(s.run("write", in, {}, position));
    std::ranges::copy(rows, expected.begin() + static_cast<ptrdiff_t>(2 * row));
    for (int again = 0; again < 2; ++again) {
      Floats now(8);
      const Tensor out[] = {tensor("half", {4, 2}, now)};
      ASSERT_OK(s.run("read", {}, out));
      EXPECT_EQ(now, expected);
    }
  }
  EXPECT_EQ(s.counters().refreshes, 3u) << "once per write";
}

TEST_P(DerivedCopies, AreInTheReportAndWithinTheBudget) {
  Model m = product_model();
  ASSERT_OK(m.to(device_));
  device_.reset_counters();
  uint64_t needed = 0;
  uint64_t recordings = 0;
  {
    Session s = must(Session::create(m, device_, "forward", {}));
    const MemoryReport report = s.memory();
    needed = report.predicted_bytes;
    recordings = report.backend_bytes + report.copy_bytes - 24;  // bf16[3,4]
    EXPECT_EQ(device_.counters().peak_bytes, needed);
  }
  for (const uint64_t missing : {uint64_t{0}, uint64_t{1}}) {
    const Device limited = open_test_device(GetParam(), 1, needed - missing);
    Model same = product_model();
    ASSERT_OK(same.to(limited));
    const Status status = Session::create(same, limited, "forward", {}).status();
    EXPECT_EQ(status.code(), missing == 0 ? Code::ok : Code::over_budget) << status.message();
    EXPECT_EQ(copy_of(same, 0), nullptr);
  }
  // The size of recordings is known only afterwards; everything else is known before the first
  // block.
  const Device limited = open_test_device(GetParam(), 1, needed - recordings - 1);
  Model same = product_model();
  ASSERT_OK(same.to(limited));
  const uint64_t allocations = limited.counters().allocations;
  EXPECT_EQ(Session::create(same, limited, "forward", {}).status().code(), Code::over_budget);
  EXPECT_EQ(limited.counters().allocations, allocations);
}
BOWLINE_ON_ALL_DEVICES(DerivedCopies);

// Fails every n-th call of the device once. The next try succeeds, and no copy is made twice.
TEST(DerivedCopiesThatFail, AreMadeByTheNextTry) {
  for (int n = 1, fired = 1; fired != 0; ++n) {
    const auto fault = std::make_shared<Fault>();
    const Device device = wrap("faulty", std::make_unique<FaultyDevice>(open_cpu(), fault));
    Model m = product_model();
    ASSERT_OK(m.to(device));
    Product p;
    p.w = weights(0);
    ASSERT_OK(set(m, "w", {3, 4}, p.w));
    const uint64_t live = device.counters().live_bytes;
    std::optional<Session> s;
    const auto use = [&](int shift) -> Status {
      p.w = weights(shift);
      BOWLINE_TRY(set(m, "w", {3, 4}, p.w));
      if (!s) {
        BOWLINE_TRY_ASSIGN(s, Session::create(m, device, "forward", {}));
      }
      return p.run(*s);
    };
    fault->arm(n);
    fired = 0;
    for (const int shift : {0, 1}) {
      if (!use(shift).ok()) {
        ++fired;
        EXPECT_TRUE(s.has_value() || device.counters().live_bytes == live) << n;
        SCOPED_TRACE(n);
        ASSERT_OK(use(shift));
      }
      p.expect();
    }
    EXPECT_LE(fired, 1);
    EXPECT_LE(s->counters().refreshes, 3u) << "as often as w is written: " << n;
    s.reset();
    EXPECT_EQ(device.counters().live_bytes, live) << n;
  }
}

}  // namespace
}  // namespace bowline::test
