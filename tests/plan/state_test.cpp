// States that a graph writes: on every device, in files, and in the listings of the host.
#include <fstream>

#include "plan/listing.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

const std::vector<Attribute> kFirstAxis = {{"axis", 0}};

// Writes x [2, 2] into "cache" [6, 2]. "before" and "after" are the values of the cache.
Model cache_model() {
  Model model;
  const Parameter cache =
      must(model.parameter("cache", {6, 2}, Init::zeros(), StorageRole::kv_cache));
  GraphBuilder g(model, "step");
  const Value x = g.input("x", DType::f32, {2, 2});
  const Value state = g.parameter(cache);
  const Value before = g.op("Mul", {state, state});
  const Value after = g.named("keep").op("WriteRows", {state, x}, kFirstAxis);
  g.output("before", before);
  g.output("after", after);
  g.output("changed", g.op("Sub", {g.op("Mul", {after, after}), before}));
  EXPECT_OK(g.finish());
  EXPECT_OK(model.materialize(1));
  return model;
}

struct Seen {
  Floats before = Floats(12), after = Floats(12), changed = Floats(12);
};

Status run(Session& s, Floats x, int64_t position, Seen& seen) {
  const Tensor in = tensor("x", {2, 2}, x);
  const Tensor out[] = {tensor("before", {6, 2}, seen.before), tensor("after", {6, 2}, seen.after),
                        tensor("changed", {6, 2}, seen.changed)};
  return s.run({&in, 1}, out, std::vector<StepScalar>{{"position", position}});
}

uint64_t version(const Model& model) { return Internals::state(model)->table.storages[0].version; }

class State : public OnDevice {};
BOWLINE_ON_ALL_DEVICES(State);

TEST_P(State, IsWrittenAndStays) {
  Model model = cache_model();
  ASSERT_OK(model.to(device_));
  Session s = must(Session::create(model, device_, "step", {}));
  Floats expected(12);
  for (const int64_t position : {2, 0, 3, 4}) {
    const Floats x = {1.0f + static_cast<float>(position), 2, 3, 4};
    Floats squares;
    for (const float v : expected) {
      squares.push_back(v * v);
    }
    const uint64_t before = version(model);
    Seen seen;
    ASSERT_OK(run(s, x, position, seen));
    EXPECT_EQ(seen.before, squares) << "who reads the parameter sees the state before";
    std::ranges::copy(x, expected.begin() + 2 * position);
    EXPECT_EQ(seen.after, expected);
    for (size_t i = 0; i < squares.size(); ++i) {
      EXPECT_EQ(seen.changed[i], expected[i] * expected[i] - squares[i]);
    }
    EXPECT_EQ(values(model, "cache"), expected);
    EXPECT_EQ(version(model), before + 1);
  }
  EXPECT_EQ(s.counters().plan_builds, 1u);
}

TEST_P(State, RowsBehindItAreRefusedAndNothingIsWritten) {
  Model model = cache_model();
  ASSERT_OK(model.to(device_));
  Session s = must(Session::create(model, device_, "step", {}));
  Seen seen;
  ASSERT_OK(run(s, {1, 2, 3, 4}, 4, seen));
  const Floats written = values(model, "cache");
  for (const auto& [position, last] :
       {std::pair<int64_t, int64_t>{5, 6}, {6, 7}, {4294967295, 2147483647}}) {
    const Status refused = run(s, {9, 9, 9, 9}, position, seen);
    EXPECT_EQ(refused.code(), Code::index_out_of_range);
    EXPECT_EQ(refused.message(),
              format("Index {} is out of range in node 1 \"keep\" (WriteRows).", last));
    EXPECT_EQ(values(model, "cache"), written);
  }
  EXPECT_OK(run(s, {9, 9, 9, 9}, 0, seen));
}

TEST_P(State, NeedsAPosition) {
  Model model = cache_model();
  ASSERT_OK(model.to(device_));
  Session s = must(Session::create(model, device_, "step", {}));
  Floats x(4);
  const Tensor in = tensor("x", {2, 2}, x);
  const uint64_t before = version(model);
  const Status refused = s.run({&in, 1}, {});
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_EQ(refused.message(),
            "Per-step scalar \"position\" (u32) of node 1 \"keep\" (WriteRows) has no default, and "
            "no value is given.");
  EXPECT_EQ(version(model), before);
  EXPECT_EQ(s.counters().submits, 0u);
}

// A cache per layer in a Repeat: x -> x + the sum of the values in its cache.
Model layered_model() {
  Model model;
  const ParameterList caches =
      must(model.parameters("k.{}", 3, {4, 1}, Init::zeros(), StorageRole::kv_cache));
  GraphBuilder g(model, "step");
  const Value x = g.input("x", DType::f32, {1, 1});
  const auto y = g.repeat(3, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
    const Value state = body.parameter(caches);
    const Value old = body.op("ReduceSum", {state});
    const Value now = body.op("WriteRows", {state, in[0]}, kFirstAxis);
    const Value sum = body.op("Sub", {body.op("ReduceSum", {now}), old});
    return std::vector<Value>{body.op("Add", {in[0], body.op("Add", {sum, old})})};
  });
  g.output("y", y.at(0));
  EXPECT_OK(g.finish());
  EXPECT_OK(model.materialize(1));
  return model;
}

TEST_P(State, OfALayerInARepeat) {
  Model model = layered_model();
  ASSERT_OK(model.to(device_));
  Session s = must(Session::create(model, device_, "step", {}));
  Floats caches[3] = {Floats(4), Floats(4), Floats(4)};
  for (const int position : {1, 3, 1}) {
    Floats x = {2.0f + static_cast<float>(position)}, y(1);
    const Tensor in = tensor("x", {1, 1}, x), out = tensor("y", {1, 1}, y);
    ASSERT_OK(s.run({&in, 1}, {&out, 1}, std::vector<StepScalar>{{"position", position}}));
    float h = x[0];
    for (size_t layer = 0; layer < 3; ++layer) {
      caches[layer][static_cast<size_t>(position)] = h;
      for (const float v : caches[layer]) {
        h += v;
      }
    }
    EXPECT_EQ(y[0], h);
    for (size_t layer = 0; layer < 3; ++layer) {
      EXPECT_EQ(values(model, format("k.{}", layer)), caches[layer]) << layer;
    }
  }
}

// The state is the rows [1, 5) of a storage with 6 rows.
TEST_P(State, IsAViewOfRows) {
  Model model;
  const Parameter all = must(model.parameter("all", {6, 2}, Init::ones(), StorageRole::kv_cache));
  View rows;
  rows.row_start = 1;
  rows.rows = 4;
  const Parameter part = must(model.tied_parameter("part", all, rows));
  GraphBuilder g(model, "step");
  const Value x = g.input("x", DType::f32, {1, 2});
  g.output("y", g.op("WriteRows", {g.parameter(part), x}, kFirstAxis));
  ASSERT_OK(g.finish());
  ASSERT_OK(model.materialize(1));
  ASSERT_OK(model.to(device_));
  Session s = must(Session::create(model, device_, "step", {}));
  Floats x_data = {5, 6}, y(8);
  const Tensor in = tensor("x", {1, 2}, x_data), out = tensor("y", {4, 2}, y);
  ASSERT_OK(s.run({&in, 1}, {&out, 1}, std::vector<StepScalar>{{"position", 3}}));
  EXPECT_EQ(y, (Floats{1, 1, 1, 1, 1, 1, 5, 6}));
  EXPECT_EQ(values(model, "all"), (Floats{1, 1, 1, 1, 1, 1, 1, 1, 5, 6, 1, 1}));
  const Status refused = s.run({&in, 1}, {}, std::vector<StepScalar>{{"position", 4}});
  EXPECT_EQ(refused.code(), Code::index_out_of_range);
  EXPECT_EQ(values(model, "all").back(), 1);
}

TEST_P(State, IsWhatCloneAndSaveSee) {
  Model model = cache_model();
  ASSERT_OK(model.to(device_));
  Session s = must(Session::create(model, device_, "step", {}));
  Seen seen;
  ASSERT_OK(run(s, {1, 2, 3, 4}, 1, seen));
  const Floats now = values(model, "cache");
  const Model copy = must(model.clone());
  const std::string path = testing::TempDir() + "state_" + test_name(GetParam()) + ".bowline";
  ASSERT_OK(model.save(path));
  ASSERT_OK(run(s, {9, 9, 9, 9}, 1, seen));
  EXPECT_NE(values(model, "cache"), now);
  EXPECT_EQ(values(copy, "cache"), now);
  Model opened = must(Model::open(path));
  EXPECT_EQ(values(opened, "cache"), now);
  // The opened model continues with the saved state.
  ASSERT_OK(opened.to(device_));
  Session again = must(Session::create(opened, device_, "step", {}));
  ASSERT_OK(run(again, {9, 9, 9, 9}, 1, seen));
  EXPECT_EQ(values(opened, "cache"), values(model, "cache"));
  std::remove(path.c_str());
}

// A run reads a value that the caller sets between two runs.
TEST_P(State, IsSetBetweenRuns) {
  Model model = cache_model();
  ASSERT_OK(model.to(device_));
  Session s = must(Session::create(model, device_, "step", {}));
  Seen seen;
  ASSERT_OK(run(s, {1, 2, 3, 4}, 1, seen));
  ASSERT_OK(set(model, "cache", {6, 2}, Floats(12, 3)));
  ASSERT_OK(run(s, {1, 2, 3, 4}, 4, seen));
  EXPECT_EQ(seen.before, Floats(12, 9));
  EXPECT_EQ(seen.after, (Floats{3, 3, 3, 3, 3, 3, 3, 3, 1, 2, 3, 4}));
}

TEST(StateListing, NamesWhatANodeUpdates) {
  Model model = cache_model();
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(model.to(cpu));
  Session s = must(Session::create(model, cpu, "step", {}));
  const std::string nodes = must(s.listing("forward"));
  EXPECT_NE(nodes.find("= WriteRows(@cache, in0) axis=0 updates @cache\n"), std::string::npos)
      << nodes;
  // The reader of the old value, the writer and the reader of the new value wait for each other.
  const std::string records = must(s.listing("build", true));
  const auto level = [&](const char* node) {
    const size_t at = records.find(node);
    const size_t begin = at == records.npos ? at : records.rfind("level ", at);
    EXPECT_NE(begin, records.npos) << records;
    return begin == records.npos ? -1 : std::atoi(records.c_str() + begin + 6);
  };
  EXPECT_LT(level("# node 0 (Mul)"), level("# node 1 "));
  EXPECT_LT(level("# node 1 "), level("# node 2 (Mul)"));
}

TEST(StateTraining, IsRefused) {
  Model model;
  const Parameter w = must(model.parameter("w", {2, 2}, Init::ones()));
  const Parameter cache =
      must(model.parameter("cache", {6, 2}, Init::zeros(), StorageRole::kv_cache));
  GraphBuilder g(model, "loss");
  const Value x = g.input("x", DType::f32, {1, 2});
  const Value y = g.op("Linear", {x, g.parameter(w)});
  g.op("WriteRows", {g.parameter(cache), x}, kFirstAxis);
  g.output("loss", g.op("ReduceSum", {y}));
  ASSERT_OK(g.finish());
  ASSERT_OK(model.materialize(1));
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(model.to(cpu));
  const std::string before = model.storages();
  const Status refused = Trainer::create(model, cpu, TrainOptions{}).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_EQ(refused.message(),
            "Graph \"loss\" writes storage 1, a kv_cache. During training, a graph may only write "
            "running statistics.");
  EXPECT_EQ(model.storages(), before);
}

}  // namespace
}  // namespace bowline::test
