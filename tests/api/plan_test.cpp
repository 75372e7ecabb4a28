// Plans as data: the places of operands, reads and writes, and the same content as text.
#include <gtest/gtest.h>

#include <set>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

const RecordInfo& record_of(const SegmentInfo& segment, std::string_view op) {
  return *std::ranges::find(segment.records, op, &RecordInfo::op);
}

// y = x + rows 2..5 of a table. Nothing is optimized, so the values follow from the shapes.
TEST(Plan, AnOperandSaysWhereItLies) {
  Model model;
  ASSERT_OK(model.parameter("other", {3}, Init::ones()).status());
  const Parameter table = must(model.parameter("table", {6, 4}, Init::normal(1)));
  const Parameter rows = must(model.tied_parameter("rows", table, View{2, 3, {}, false}));
  GraphBuilder g(model, "forward");
  const Value x = g.input("x", DType::f32, {3, 4});
  g.output("y", g.named("sum").op("Add", {x, g.parameter(rows)}));
  ASSERT_OK(g.finish());
  ASSERT_OK(model.materialize(1));
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(model.to(cpu));
  const Session session = must(Session::create(model, cpu, "forward", {}));
  const PlanInfo plan = must(session.describe());
  EXPECT_EQ(plan.device, "cpu");
  ASSERT_EQ(plan.segments.size(), 1u);
  const SegmentInfo& forward = plan.segments[0];
  EXPECT_EQ(forward.name, "forward");
  EXPECT_EQ(forward.storages, std::vector<uint32_t>{1});
  EXPECT_TRUE(forward.writes.empty());
  ASSERT_EQ(forward.inputs.size(), 1u);
  EXPECT_EQ(forward.inputs[0].name, "x");
  EXPECT_EQ(forward.inputs[0].bytes, 48u);
  EXPECT_EQ(forward.outputs.at(0).shape, TensorShape({3, 4}));
  const RecordInfo& add = record_of(forward, "Add");
  EXPECT_NE(add.node.find("\"sum\""), std::string::npos);
  ASSERT_EQ(add.inputs.size(), 2u);
  EXPECT_EQ(add.inputs[0].slot, OperandInfo::Slot::io);
  EXPECT_EQ(add.inputs[0].offset, forward.inputs[0].offset);
  EXPECT_EQ(add.inputs[1].slot, OperandInfo::Slot::storage);
  EXPECT_EQ(add.inputs[1].number, 1u);
  EXPECT_EQ(add.inputs[1].offset, 2u * 4 * 4);
  EXPECT_EQ(add.inputs[1].bytes, 3u * 4 * 4);
  EXPECT_EQ(add.inputs[1].shape, TensorShape({3, 4}));
  EXPECT_EQ(add.outputs.at(0).offset, forward.outputs[0].offset);
  const MemoryReport memory = session.memory();
  EXPECT_LE(forward.arena_bytes, memory.arena_bytes);
  EXPECT_EQ(forward.launches, session.counters().launches);
}

// Every record and offset of the text is in the data.
void expect_text(const std::string& text, const SegmentInfo& segment) {
  for (size_t i = 0; i < segment.records.size(); ++i) {
    const RecordInfo& r = segment.records[i];
    const size_t at = text.find(format("{} {}: ", segment.name, i));
    ASSERT_NE(at, std::string::npos) << segment.name << " " << i;
    const std::string line = text.substr(at, text.find('\n', at) - at);
    if (r.kind != RecordInfo::Kind::op) {
      continue;
    }
    EXPECT_NE(line.find(format(" = {}(", r.op)), std::string::npos) << line;
    EXPECT_NE(line.find(format(" level {}", r.level)), std::string::npos) << line;
    for (const auto* operands : {&r.inputs, &r.outputs}) {
      for (const OperandInfo& o : *operands) {
        const std::string place = o.slot == OperandInfo::Slot::table
                                      ? format("table {}", o.number)
                                      : format(" {}..{}", o.offset, o.offset + o.bytes);
        EXPECT_NE(line.find(place), std::string::npos) << line;
      }
    }
  }
  for (const StepScalarInfo& s : segment.scalars) {
    EXPECT_NE(text.find(format(": {} {}{}{}\n", s.type, s.name, s.read ? " read" : "",
                               s.written ? " written" : "")),
              std::string::npos)
        << s.name;
  }
}

TEST(Plan, ATrainingHasItsSegments) {
  const Device cpu = open_test_device("cpu");
  TinyLm lm = tiny_lm(3);
  ASSERT_OK(lm.model.to(cpu));
  TrainOptions options = adamw(lm);
  options.accumulation = 2;
  const Trainer trainer = must(Trainer::create(lm.model, cpu, options));
  const PlanInfo plan = must(trainer.describe());
  EXPECT_EQ(plan.accumulation, 2u);
  ASSERT_EQ(plan.segments.size(), 3u);
  const SegmentInfo& accumulate = plan.segments[0];
  const SegmentInfo& update = plan.segments[1];
  EXPECT_EQ(accumulate.name, "accumulate");
  EXPECT_EQ(update.name, "update");
  EXPECT_EQ(plan.segments[2].name, "forward");
  EXPECT_EQ(accumulate.inputs.size(), 2u);
  const std::string text = must(trainer.listing("build", true));
  expect_text(text, accumulate);
  expect_text(text, update);

  // The writers: gradients first, then weights and moments.
  const ModelInfo info = must(lm.model.describe());
  std::set<StorageRole> written[2];
  for (const size_t i : {size_t{0}, size_t{1}}) {
    for (const uint32_t tie : plan.segments[i].writes) {
      written[i].insert(info.storages[tie].role);
    }
  }
  EXPECT_EQ(written[0], std::set{StorageRole::gradient});
  EXPECT_EQ(written[1], (std::set{StorageRole::weight, StorageRole::moment}));
  EXPECT_TRUE(plan.segments[2].writes.empty());

  // Dropout reads per-step scalars: two have defaults.
  const auto step = std::ranges::find(accumulate.scalars, "training", &StepScalarInfo::name);
  ASSERT_NE(step, accumulate.scalars.end());
  EXPECT_TRUE(step->read);
  ASSERT_TRUE(step->default_value.has_value());
  EXPECT_EQ(std::get<uint64_t>(*step->default_value), 0u);
  EXPECT_NE(std::ranges::find(update.scalars, "learning_rate", &StepScalarInfo::name),
            update.scalars.end());

  // The layers are one Repeat. Its weights are tables with an entry per layer.
  const auto begin =
      std::ranges::find(accumulate.records, RecordInfo::Kind::repeat_begin, &RecordInfo::kind);
  ASSERT_NE(begin, accumulate.records.end());
  EXPECT_EQ(begin->count, 3u);
  const auto linear = std::find_if(begin, accumulate.records.end(),
                                   [](const RecordInfo& r) { return r.op == "Linear"; });
  ASSERT_EQ(linear->inputs.at(1).slot, OperandInfo::Slot::table);
  const auto& entries = accumulate.tables.at(linear->inputs[1].number);
  ASSERT_EQ(entries.size(), 3u);
  for (size_t layer = 0; layer < entries.size(); ++layer) {
    const auto q =
        std::ranges::find(info.parameters, format("layers.{}.q", layer), &ParameterInfo::name);
    EXPECT_EQ(entries[layer].number, q->tie);
    EXPECT_EQ(entries[layer].elements, 256u);
  }
}

TEST(Plan, WithoutAPlanThereIsNoDescription) {
  const Device cpu = open_test_device("cpu");
  TinyLm lm = tiny_lm(1);
  ASSERT_OK(lm.model.to(cpu));
  const Session session = must(Session::create(lm.model, cpu, "loss", lm.dims()));
  EXPECT_TRUE(session.describe().ok());
  ASSERT_OK(lm.model.to(open_test_device("moving")));
  EXPECT_EQ(session.describe().status().code(), Code::bad_argument);
}

}  // namespace
}  // namespace bowline::test
