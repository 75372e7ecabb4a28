// The description of a model, as data and as text.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "model/sample_file.h"
#include "model/tied_model.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) {
    out.push_back(line);
  }
  return out;
}

std::string shape_of(const TensorShape& shape) { return format("{}", Shape(shape)); }

// Every value of the data is in its line of the text.
void expect_text(const Model& model) {
  const ModelInfo info = must(model.describe());
  const std::vector<std::string> parameters = lines_of(model.parameters());
  ASSERT_EQ(parameters.size(), info.parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterInfo& p = info.parameters[i];
    const std::string begin = format("{} tie {} {}{}", p.name, p.tie, p.dtype, shape_of(p.shape));
    EXPECT_EQ(parameters[i].substr(0, begin.size()), begin);
    EXPECT_EQ(parameters[i].ends_with(" frozen"), !p.trainable);
    EXPECT_EQ(parameters[i].find(" transposed") != std::string::npos, p.view.transpose);
  }
  const std::vector<std::string> storages = lines_of(model.storages());
  ASSERT_EQ(storages.size(), info.storages.size());
  for (size_t tie = 0; tie < storages.size(); ++tie) {
    const StorageInfo& s = info.storages[tie];
    EXPECT_EQ(s.tie, tie);
    const std::string owner = s.owner ? format(" {} of {}", s.slot, *s.owner) : "";
    const std::string encoding = s.encoding == "plain" ? "" : " " + s.encoding;
    EXPECT_EQ(storages[tie],
              s.empty
                  ? format("{} empty", tie)
                  : format("{} {}{} {} bytes {}{}{}{} version {} generation {} {}", tie, s.dtype,
                           shape_of(s.shape), s.bytes, name_of(s.role), owner, encoding,
                           s.trainable ? "" : " frozen", s.version, s.generation, s.where));
  }
  const std::vector<std::string> ties = lines_of(model.ties());
  ASSERT_EQ(ties.size(), info.ties.size());
  for (size_t i = 0; i < ties.size(); ++i) {
    EXPECT_TRUE(ties[i].starts_with(format("{}: ", info.ties[i].tie))) << ties[i];
    for (const uint32_t number : info.ties[i].parameters) {
      EXPECT_NE(ties[i].find(info.parameters[number].name), std::string::npos) << ties[i];
    }
  }
}

// The ties asked pair by pair equal the groups.
void expect_ties(const Model& model) {
  const ModelInfo info = must(model.describe());
  std::vector<uint32_t> group(info.parameters.size(), UINT32_MAX);
  for (const TieInfo& tie : info.ties) {
    EXPECT_GE(tie.parameters.size(), 2u);
    for (const uint32_t number : tie.parameters) {
      group[number] = tie.tie;
      EXPECT_EQ(info.parameters[number].tie, tie.tie);
    }
  }
  for (size_t a = 0; a < info.parameters.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const bool tied = must(model.same_storage(info.parameters[a].name, info.parameters[b].name));
      EXPECT_EQ(tied, group[a] == group[b] && group[a] != UINT32_MAX)
          << info.parameters[a].name << " and " << info.parameters[b].name;
    }
  }
}

class Described : public testing::Test {
 protected:
  Model sample() {
    const Bytes bytes = make_sample().bytes();
    write_file(path_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return must(Model::open(path_));
  }

  const Folder folder_;
  const std::string path_ = folder_ / "sample.bowline";
};

TEST_F(Described, AModelOfAFile) {
  const Model model = sample();
  const ModelInfo info = must(model.describe());
  ASSERT_EQ(info.parameters.size(), 6u);
  EXPECT_EQ(info.parameters[2].name, "emb_t");
  EXPECT_EQ(info.parameters[2].tie, 0u);
  EXPECT_TRUE(info.parameters[2].view.transpose);
  EXPECT_EQ(info.parameters[2].shape, TensorShape({2, 3}));
  EXPECT_EQ(info.parameters[0].shape, TensorShape({3, 2}));

  ASSERT_EQ(info.storages.size(), 6u);
  EXPECT_EQ(info.storages[0].bytes, 24u);
  EXPECT_EQ(info.storages[0].where, "file");
  EXPECT_EQ(info.storages[0].encoding, "plain");
  EXPECT_EQ(info.storages[0].owner, std::nullopt);
  const float one[] = {1, 0, 0, 1, 1, 1};
  EXPECT_EQ(info.storages[0].file_checksum, model::checksum(std::as_bytes(std::span(one))));
  EXPECT_EQ(info.storages[3].role, StorageRole::moment);
  EXPECT_EQ(info.storages[3].owner, 0u);
  EXPECT_TRUE(info.storages[4].empty);
  EXPECT_EQ(info.storages[5].where, "nowhere");
  EXPECT_EQ(info.storages[5].file_checksum, std::nullopt);

  ASSERT_EQ(info.ties.size(), 1u);
  EXPECT_EQ(info.ties[0].parameters, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(info.ties[0].bytes, 24u);
  EXPECT_EQ(info.ties[0].saved_bytes, 48u);
  ASSERT_EQ(info.dims.size(), 1u);
  EXPECT_EQ(info.dims[0].name, "batch");
  EXPECT_EQ(info.dims[0].max, 16);
  EXPECT_EQ(info.metadata, (Settings{{"license", "MIT"}}));
  ASSERT_EQ(info.assets.size(), 1u);
  EXPECT_EQ(info.assets[0].media_type, "text/plain");
  EXPECT_EQ(info.assets[0].bytes, must(model.asset("vocabulary")).size());
  EXPECT_EQ(must(model.asset("vocabulary"))[4], std::byte{'t'});
  EXPECT_EQ(model.asset("merges").status().code(), Code::bad_argument);
  ASSERT_TRUE(info.training.has_value());
  EXPECT_EQ(info.training->step, 7u);
  EXPECT_EQ(model.storage_bytes(1).value().size(), 16u);
  EXPECT_EQ(model.storage_bytes(4).status().code(), Code::bad_argument);
  EXPECT_EQ(model.storage_bytes(6).status().code(), Code::bad_argument);
  expect_text(model);
  expect_ties(model);
}

// Entry points with their dims, and a Repeat whose list contains a parameter twice.
TEST_F(Described, EntryPointsAndTheirNodes) {
  Model model;
  const Parameter a = must(model.parameter("a", {2, 2}, Init::normal(1)));
  const Parameter b = must(model.parameter("b", {2, 2}, Init::normal(1)));
  GraphBuilder g(model, "forward");
  const Value x = g.input("x", DType::f32, {"batch", 2});
  const auto carried = g.repeat(3, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
    return std::vector<Value>{body.op("Linear", {in[0], body.parameter({{a, b, a}})})};
  });
  g.output("y", g.named("last").op("Softmax", {carried[0]}));
  ASSERT_OK(g.finish());
  GraphBuilder h(model, "fixed");
  h.output("sum", h.op("ReduceSum", {h.parameter(a)}));
  h.output("both", h.op("Add", {h.parameter(a), h.parameter(b)}));
  ASSERT_OK(h.finish());

  const ModelInfo info = must(model.describe());
  ASSERT_EQ(info.entry_points.size(), 2u);
  const EntryPointInfo& forward = info.entry_points[0];
  ASSERT_EQ(forward.inputs.size(), 1u);
  EXPECT_EQ(forward.inputs[0].dims, (std::vector<GraphDim>{"batch", 2}));
  ASSERT_EQ(forward.outputs.size(), 1u);
  EXPECT_EQ(forward.outputs[0].rank, 2u);
  EXPECT_EQ(forward.outputs[0].shape, std::nullopt) << "batch is not bound";
  EXPECT_TRUE(forward.updates.empty());
  ASSERT_EQ(forward.nodes.size(), 2u);
  EXPECT_EQ(forward.nodes[0].op, "Repeat");
  EXPECT_EQ(forward.nodes[0].count, 3u);
  ASSERT_EQ(forward.nodes[0].body.size(), 1u);
  EXPECT_EQ(forward.nodes[0].body[0].op, "Linear");
  // The readers: x is an input of the iterations, each iteration reads its parameter, and the last
  // node reads the result.
  using Kind = NodeValueInfo::Kind;
  const NodeInfo& repeat = forward.nodes[0];
  const NodeInfo& linear = repeat.body[0];
  ASSERT_EQ(repeat.inputs.size(), 1u);
  EXPECT_EQ(repeat.inputs[0].kind, Kind::input);
  EXPECT_EQ(repeat.inputs[0].value, forward.inputs[0].value);
  ASSERT_EQ(linear.inputs.size(), 2u);
  EXPECT_EQ(repeat.body_inputs, std::vector<uint32_t>{linear.inputs[0].value});
  EXPECT_EQ(linear.inputs[1].kind, Kind::parameter);
  EXPECT_EQ(linear.inputs[1].parameters, (std::vector<uint32_t>{0, 1, 0}));
  EXPECT_EQ(repeat.body_outputs, std::vector<uint32_t>{linear.outputs[0].value});
  EXPECT_EQ(forward.nodes[1].inputs[0].value, repeat.outputs[0].value);
  EXPECT_EQ(forward.outputs[0].value, forward.nodes[1].outputs[0].value);
  EXPECT_EQ(forward.nodes[1].name, "last");
  ASSERT_FALSE(forward.nodes[1].attributes.empty());
  EXPECT_EQ(forward.nodes[1].attributes[0].first, "axis");
  EXPECT_EQ(info.entry_points[1].outputs[0].rank, 0u);
  EXPECT_EQ(info.entry_points[1].outputs[1].shape, TensorShape({2, 2}));

  // The list of the Repeat, once a plan exists.
  ASSERT_OK(model.materialize(1));
  const Device cpu = open_test_device("cpu");
  ASSERT_OK(model.to(cpu));
  const BoundDim dims[] = {{"batch", 5}};
  const Session session = must(Session::create(model, cpu, "forward", dims));
  const PlanInfo plan = must(session.describe());
  ASSERT_EQ(plan.repeat_lists.size(), 1u);
  EXPECT_EQ(plan.repeat_lists[0].ties, (std::vector<uint32_t>{0, 1, 0}));
  EXPECT_EQ(must(model.describe()).storages[0].where, "cpu");
}

// Verbs change the description and its text.
TEST_F(Described, FollowsTheVerbs) {
  Model model = make_tied_model();
  ASSERT_OK(model.materialize(3));
  expect_text(model);
  expect_ties(model);
  ASSERT_OK(model.tie("layers.0.weight", "layers.1.weight"));
  ASSERT_OK(model.freeze_storage("emb.weight"));
  ASSERT_OK(model.freeze("norm.weight"));
  const ModelInfo tied = must(model.describe());
  EXPECT_EQ(tied.ties.size(), 2u);
  EXPECT_FALSE(tied.parameters[0].trainable);
  EXPECT_FALSE(tied.parameters[1].trainable) << "the flag is the storage's";
  expect_text(model);
  expect_ties(model);
  ASSERT_OK(model.untie("head.weight").status());
  EXPECT_EQ(must(model.describe()).ties.size(), 1u);
  expect_text(model);
  expect_ties(model);
  Model moved = std::move(model);
  EXPECT_EQ(model.describe().status().code(), Code::bad_argument);  // NOLINT: it is moved from
  EXPECT_TRUE(moved.describe().ok());
}

TEST_F(Described, ACheckpoint) {
  const Device cpu = open_test_device("cpu");
  TinyLm lm = tiny_lm(2);
  ASSERT_OK(lm.model.to(cpu));
  {
    TrainOptions options = adamw(lm);
    options.accumulation = 2;
    Trainer trainer = must(Trainer::create(lm.model, cpu, options));
    must(train_step(trainer, lm, 0, 2));
    must(trainer.micro_step(lm.data(7)));
    Progress progress;
    progress.epoch = 3;
    progress.data_cursor = 17;
    progress.data_seed = 19;
    progress.config = {{"note", "mine"}};
    ASSERT_OK(trainer.save(path_, progress));
    expect_text(lm.model);
  }
  const Model opened = must(Model::open(path_));
  const ModelInfo info = must(opened.describe());
  ASSERT_TRUE(info.training.has_value());
  const TrainingInfo& t = *info.training;
  EXPECT_EQ(t.step, 1u);
  EXPECT_EQ(t.applied_steps, 1u);
  EXPECT_EQ(t.micro_step, 1u);
  EXPECT_EQ(t.counter, 3u);
  EXPECT_EQ(t.seed, 5u);
  EXPECT_EQ(t.epoch, 3u);
  EXPECT_EQ(t.data_cursor, 17u);
  EXPECT_EQ(t.data_seed, 19u);
  EXPECT_EQ(t.config, (Settings{{"note", "mine"}}));
  EXPECT_EQ(t.run.at(0).first, "optimizer");
  EXPECT_EQ(t.learning_rate, std::nullopt);
  // Each trained storage owns a gradient and two moments of its shape.
  std::map<uint32_t, std::vector<std::pair<StorageRole, uint32_t>>> owned;
  for (const StorageInfo& s : info.storages) {
    EXPECT_EQ(s.owner.has_value(), is_training(s.role));
    if (s.owner) {
      owned[*s.owner].emplace_back(s.role, s.slot);
      EXPECT_EQ(s.shape, info.storages[*s.owner].shape);
    }
  }
  for (const StorageInfo& s : info.storages) {
    const auto& rows = owned[s.tie];
    EXPECT_EQ(std::ranges::count(rows, std::pair(StorageRole::moment, 0u)), !is_training(s.role));
    EXPECT_EQ(std::ranges::count(rows, std::pair(StorageRole::moment, 1u)), !is_training(s.role));
  }
  expect_text(opened);
}

TEST_F(Described, ASelfTestHasItsValues) {
  const Model model = must(Model::open(BOWLINE_GOLDEN_FILE));
  const ModelInfo info = must(model.describe());
  ASSERT_EQ(info.self_tests.size(), 1u);
  const SelfTestInfo& test = info.self_tests[0];
  EXPECT_EQ(test.entry_point, "forward");
  EXPECT_EQ(test.relative_tolerance, 1e-5f);
  ASSERT_EQ(test.inputs.size(), 1u);
  EXPECT_EQ(test.inputs[0].name, "tokens");
  EXPECT_EQ(test.inputs[0].dtype, DType::i32);
  EXPECT_EQ(test.inputs[0].shape, TensorShape({3, 4}));
  const SelfTestValues values = must(model.self_test(0));
  EXPECT_EQ(values.inputs.at(0).size(), 3u * 4 * 4);
  EXPECT_EQ(values.outputs.at(0).size(), 3u * 4 * 11 * 4);
  EXPECT_EQ(model.self_test(1).status().code(), Code::bad_argument);
}

}  // namespace
}  // namespace bowline::test
