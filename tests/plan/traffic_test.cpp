// The memory traffic of records (plan/traffic.h).
#include <functional>

#include "ties/models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

// Plans the graph that `build` makes, and returns its only record of `op`.
RecordInfo record_of(const std::string& device, const std::string& op,
                     const std::function<void(Model&, GraphBuilder&)>& build) {
  Model model;
  GraphBuilder g(model, "forward");
  build(model, g);
  must(g.finish());
  const Device planning = must(Device::open("planning:" + device));
  must(model.to(planning));
  const Session session = must(Session::create(model, planning, "forward", {}));
  std::vector<RecordInfo> found;
  const PlanInfo plan = must(session.describe());
  for (const RecordInfo& r : plan.segments[0].records) {
    if (r.op == op) {
      found.push_back(r);
    }
  }
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? RecordInfo{} : found[0];
}

// Of the table, only the rows that the ids name are read.
TEST(Traffic, AnEmbeddingReadsItsRows) {
  const RecordInfo r = record_of("cpu", "Embedding", [](Model& m, GraphBuilder& g) {
    const Parameter table = must(m.parameter("table", {1000, 16}, Init::zeros()));
    const Value ids = g.input("ids", DType::i32, {3});
    g.output("y", g.op("Embedding", {g.parameter(table), ids}));
  });
  EXPECT_EQ(r.read_bytes, 3 * 16 * 4u + 3 * 4u);
  EXPECT_EQ(r.written_bytes, 3 * 16 * 4u);
}

TEST(Traffic, AnOperandThatIsNamedTwiceIsReadOnce) {
  const RecordInfo r = record_of("cpu", "Mul", [](Model&, GraphBuilder& g) {
    const Value x = g.input("x", DType::f32, {8, 8});
    g.output("y", g.op("Mul", {x, x}));
  });
  EXPECT_EQ(r.read_bytes, 8 * 8 * 4u);
  EXPECT_EQ(r.written_bytes, 8 * 8 * 4u);
}

// A state into which rows are written is neither read nor written as a whole.
TEST(Traffic, WriteRowsWritesItsRows) {
  const RecordInfo r = record_of("cpu", "WriteRows", [](Model& m, GraphBuilder& g) {
    const Parameter cache =
        must(m.parameter("cache", {512, 8}, Init::zeros(), StorageRole::kv_cache));
    const Value rows = g.input("rows", DType::f32, {2, 8});
    g.output("y", g.op("Square", {g.op("WriteRows", {g.parameter(cache), rows})}));
  });
  EXPECT_EQ(r.read_bytes, 2 * 8 * 4u);
  EXPECT_EQ(r.written_bytes, 2 * 8 * 4u);
}

// The records of the update of two parameters.
std::vector<RecordInfo> records_of_update(DType dtype) {
  Model model;
  const Parameter a = must(model.parameter("a", {100}, Init::zeros(), StorageRole::weight, dtype));
  const Parameter b = must(model.parameter("b", {100}, Init::zeros(), StorageRole::weight, dtype));
  GraphBuilder g(model, "loss");
  const Value product = g.op("Mul", {g.parameter(a), g.parameter(b)});
  const Value terms = dtype == DType::f32 ? product : g.op("Cast", {product}, {{"to", "f32"}});
  g.output("loss", g.op("ReduceSum", {terms}, {{"axes", {0}}, {"keep_dims", false}}));
  must(g.finish());
  const Device planning = must(Device::open("planning:cpu"));
  must(model.to(planning));
  const Trainer trainer = must(Trainer::create(model, planning, {}));
  const PlanInfo plan = must(trainer.describe());
  return std::ranges::find(plan.segments, "update", &SegmentInfo::name)->records;
}

// An optimizer reads weight, gradient and moments of all storages and the clip factor. It writes
// all but the gradient.
TEST(Traffic, AnOptimizerTakesEveryListEntry) {
  const std::vector<RecordInfo> records = records_of_update(DType::f32);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].op, "ClipByGlobalNorm");
  EXPECT_EQ(records[1].op, "AdamW");
  EXPECT_EQ(records[1].read_bytes, 2 * 4 * 100 * 4u + 4u);
  EXPECT_EQ(records[1].written_bytes, 2 * 3 * 100 * 4u);
}

// Of weights of 16 bits, it reads only the masters. It writes both, so no other record reads the
// masters again.
TEST(Traffic, AnOptimizerAlsoWritesRoundedWeights) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const std::vector<RecordInfo> records = records_of_update(dtype);
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[1].op, "AdamW");
    EXPECT_EQ(records[1].read_bytes, 2 * 4 * 100 * 4u + 4u);
    EXPECT_EQ(records[1].written_bytes, 2 * (3 * 4 + 2) * 100u);
  }
}

class PlannedTraffic : public OnDevice {};

INSTANTIATE_TEST_SUITE_P(Devices, PlannedTraffic, testing::ValuesIn(computing_device_names()),
                         [](const auto& p) { return test_name(p.param); });

// The workspace counts twice: a kernel that converts operands to f32 there is seen to do so.
TEST_P(PlannedTraffic, TheWorkspaceIsWrittenAndRead) {
  const RecordInfo r = record_of(GetParam(), "MatMul", [](Model&, GraphBuilder& g) {
    const Value a = g.input("a", DType::bf16, {64, 64}), b = g.input("b", DType::bf16, {64, 64});
    g.output("y", g.op("MatMul", {a, b}));
  });
  const uint64_t workspace = r.workspace ? r.workspace->bytes : 0;
  EXPECT_EQ(r.read_bytes, 2 * 64 * 64 * 2u + workspace);
  EXPECT_EQ(r.written_bytes, 64 * 64 * 2u + workspace);
}

}  // namespace
}  // namespace bowline::test
