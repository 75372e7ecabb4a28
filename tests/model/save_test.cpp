// Saves models to files and opens them again.
#include "graph/save.h"

#include <sys/stat.h>

#include <fstream>

#include "api/internals.h"
#include "graph/load.h"
#include "model/sample_file.h"
#include "model/tied_model.h"
#include "params/verbs.h"

namespace bowline {
namespace {

using test::Folder;
using test::make_tied_model;
using test::read_file;

uint64_t payload_bytes(const std::string& path) {
  const auto file = model::VerifiedFile::open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  uint64_t sum = 0;
  for (const auto* row : *file.value()->tables().storages()) {
    sum += row->range() == nullptr ? 0 : row->range()->length();
  }
  return sum;
}

// Saves the tied model with values.
Model save_tied_model(const std::string& path) {
  Model model = make_tied_model();
  EXPECT_TRUE(model.materialize(1).ok());
  EXPECT_TRUE(model.save(path).ok());
  return model;
}

TEST(Save, ALoadedModelThatIsSavedUnchangedGivesTheSameBytes) {
  const Folder folder;
  const Model model = save_tied_model(folder / "a");
  auto loaded = Model::open(folder / "a");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_TRUE(loaded.value().save(folder / "b").ok());
  EXPECT_EQ(read_file(folder / "a"), read_file(folder / "b"));
  EXPECT_EQ(loaded.value().ties(), model.ties());
  EXPECT_EQ(loaded.value().parameters(), model.parameters());
  // Also saves from a device, over the file that the model was loaded from.
  const auto device = Device::open("cpu");
  ASSERT_TRUE(device.ok()) << device.status().message();
  ASSERT_TRUE(loaded.value().to(device.value()).ok());
  ASSERT_TRUE(loaded.value().save(folder / "a").ok());
  EXPECT_EQ(read_file(folder / "a"), read_file(folder / "b"));
  EXPECT_EQ(folder.files(), 2u) << "no temporary file is left";
}

TEST(Save, KeepsTheDimsThatAttributesName) {
  const Folder folder;
  Model model;
  GraphBuilder g(model, "f");
  const Value x = g.input("x", DType::f32, {"a", "b"});
  const Value y = g.op("Reshape", {x}, {{"dims", {1, "a", "b"}}});
  g.output("y", g.op("Slice", {y}, {{"axis", 1}, {"length", "a"}}));
  ASSERT_EQ(g.finish().message(), "");
  ASSERT_EQ(model.save(folder / "a").message(), "");
  const auto opened = Model::open(folder / "a");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const auto& nodes = Internals::state(opened.value())->entry_points.graphs.at(0).nodes;
  EXPECT_EQ(attributes_text(Op::Reshape, nodes.at(0).attributes), "dims=[1,a,b]");
  EXPECT_EQ(attributes_text(Op::Slice, nodes.at(1).attributes), "axis=1 start=0 length=a");
}

// Returns true if this process maps a file with this name.
bool is_mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with(path)) {
      return true;
    }
  }
  return false;
}

using Features = std::vector<std::string>;

// Saves the model, opens the file again and returns the features that the file lists.
Features features_of(const Model& model, const std::string& path) {
  EXPECT_TRUE(model.save(path).ok());
  const auto file = model::VerifiedFile::open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  Features out;
  const auto* const names = file.ok() ? file.value()->tables().features() : nullptr;
  for (uint32_t i = 0; names != nullptr && i < names->size(); ++i) {
    out.push_back(names->Get(i)->str());
  }
  EXPECT_TRUE(Model::open(path).ok());
  return out;
}

// A file lists a feature if an older reader, which ignores the attribute, would compute another
// result. An attribute needs no feature if the older reader computes the same result.
TEST(Save, NamesTheFeaturesThatAttributesNeed) {
  const auto features = [](const std::vector<Attribute>& attributes, const std::string& path) {
    Model model;
    GraphBuilder g(model, "f");
    const Value x = g.input("x", DType::f32, {1, 3, 1, 4});
    Value y = x;  // in the body of a Repeat, too
    y = g.repeat(2, {y}, [&](GraphBuilder& body, const std::vector<Value>& carried) {
           const Value v = carried[0];
           return std::vector{body.op("Attention", {v, v, v}, attributes)};
         }).at(0);
    g.output("y", y);
    EXPECT_TRUE(g.finish().ok());
    return features_of(model, path);
  };
  const Folder folder;
  EXPECT_EQ(features({{"causal", true}, {"softcap", 0.0}, {"window", 0}}, folder / "a"),
            Features());
  EXPECT_EQ(features({{"causal", true}, {"window", 2}}, folder / "b"),
            Features{"attention_window"});
  EXPECT_EQ(features({{"causal", true}, {"softcap", 2.0}, {"window", 2}}, folder / "c"),
            (Features{"attention_softcap", "attention_window"}));
}

TEST(Save, NamesTheFeaturesOfScaledRotationsAndSmoothedLabels) {
  const auto features = [](double factor, double smoothing, const std::string& path) {
    Model model;
    GraphBuilder g(model, "f");
    const Value x = g.input("x", DType::f32, {1, 3, 1, 4});
    const Value y = g.op("Rope", {x},
                         {{"base", 100.0},
                          {"factor", factor},
                          {"low_frequency_factor", 2.0},
                          {"original_length", 16}});
    g.output("loss", g.op("CrossEntropy", {y, g.input("labels", DType::i32, {1, 3, 1})},
                          {{"label_smoothing", smoothing}}));
    EXPECT_TRUE(g.finish().ok());
    return features_of(model, path);
  };
  const Folder folder;
  EXPECT_EQ(features(1, 0, folder / "a"), Features());
  EXPECT_EQ(features(4, 0, folder / "b"), Features{"rope_scaling"});
  EXPECT_EQ(features(1, 0.1, folder / "c"), Features{"cross_entropy_label_smoothing"});
}

TEST(Save, NamesTheFeatureOfGivenFrequencies) {
  const auto features = [](const std::vector<double>& frequencies, const std::string& path) {
    Model model;
    GraphBuilder g(model, "f");
    const Value x = g.input("x", DType::f32, {1, 3, 1, 4});
    g.output("y", g.op("Rope", {x}, {{"frequencies", frequencies}}));
    EXPECT_TRUE(g.finish().ok());
    return features_of(model, path);
  };
  const Folder folder;
  EXPECT_EQ(features({}, folder / "a"), Features());
  EXPECT_EQ(features({1, 0.25}, folder / "b"), Features{"rope_frequencies"});
}

TEST(Open, AModelWhoseStoragesHaveLeftItsFileGivesItBack) {
  const Folder folder;
  (void)save_tied_model(folder / "a");
  auto loaded = Model::open(folder / "a");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(is_mapped(folder / "a"));
  const auto device = Device::open("cpu");
  ASSERT_TRUE(device.ok()) << device.status().message();
  ASSERT_TRUE(loaded.value().to(device.value()).ok());
  EXPECT_FALSE(is_mapped(folder / "a"));
}

TEST(Save, TheSampleWithEverythingInItGivesTheSameBytes) {
  const Folder folder;
  const test::Bytes bytes = test::make_sample().bytes();
  test::write_file(folder / "a", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  auto model = Model::open(folder / "a");
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_TRUE(model.value().save(folder / "b").ok());
  auto again = Model::open(folder / "b");
  ASSERT_TRUE(again.ok()) << again.status().message();
  ASSERT_TRUE(again.value().save(folder / "c").ok());
  EXPECT_EQ(read_file(folder / "b"), read_file(folder / "c"));
  EXPECT_EQ(model.value().describe().value().training.value().step, 7u);
  ASSERT_TRUE(model.value().drop_training_state().ok());
  EXPECT_EQ(again.value().storages(), model.value().storages());
  EXPECT_FALSE(again.value().describe().value().training.has_value()) << "a Trainer writes that";
  EXPECT_EQ(again.value().describe().value().metadata.at(0).second, "MIT");
}

// A skeleton has shapes, but no bytes.
TEST(Save, AModelWithoutBytesIsASkeleton) {
  const Folder folder;
  ASSERT_TRUE(make_tied_model().save(folder / "skeleton").ok());
  EXPECT_EQ(payload_bytes(folder / "skeleton"), 0u);
  auto loaded = Model::open(folder / "skeleton");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_TRUE(loaded.value().materialize(1).ok());
  Model direct = make_tied_model();
  ASSERT_TRUE(direct.materialize(1).ok());
  ASSERT_TRUE(loaded.value().save(folder / "a").ok());
  ASSERT_TRUE(direct.save(folder / "b").ok());
  EXPECT_EQ(read_file(folder / "a"), read_file(folder / "b"));
}

// A file holds a tied weight once. Nine of twelve exporters of tied ALBERT and GPT models wrote a
// copy per use: onnxruntime#10340, safetensors#202.
TEST(Save, ATiedWeightIsInTheFileOnce) {
  const Folder folder;
  Model lm;
  const int64_t table[] = {1000, 64}, square[] = {64, 64};
  const Parameter emb = lm.parameter("emb", table, Init::normal(1)).value();
  ASSERT_TRUE(lm.tied_parameter("head", emb).ok());
  ASSERT_TRUE(lm.materialize(1).ok());
  ASSERT_TRUE(lm.save(folder / "lm").ok());
  EXPECT_EQ(payload_bytes(folder / "lm"), 256000u);

  Model ut;
  const Parameter w = ut.parameter("w", square, Init::normal(1)).value();
  GraphBuilder g(ut, "forward");
  Value x = g.input("x", DType::f32, {"batch", 64});
  const ParameterList list{std::vector<Parameter>(12, w)};
  x = g.repeat(12, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
    return std::vector<Value>{body.op("Linear", {in[0], body.parameter(list)})};
  })[0];
  g.output("y", x);
  ASSERT_TRUE(g.finish().ok());
  ASSERT_TRUE(ut.materialize(1).ok());
  ASSERT_TRUE(ut.save(folder / "ut").ok());
  EXPECT_EQ(payload_bytes(folder / "ut"), 16384u);
  EXPECT_EQ(std::filesystem::file_size(folder / "ut"), 4096u + 16384 + model::kTrailerBytes);
}

// The graph in the file grows only by the entries of the parameter lists.
TEST(Save, ARepeatDoesNotGrowWithItsCount) {
  const auto graph_bytes = [](int layers) {
    const Folder folder;
    Model model = make_tied_model({11, 6, layers});
    EXPECT_TRUE(model.save(folder / "m").ok());
    const auto file = model::VerifiedFile::open(folder / "m");
    EXPECT_TRUE(file.ok()) << file.status().message();
    size_t bytes = 0;
    for (const auto* g : *file.value()->tables().graphs()) {
      const std::unique_ptr<file::GraphT> unpacked(g->UnPack());
      for (auto& node : unpacked->nodes) {
        if (auto* repeat = node->op.AsRepeat()) {
          EXPECT_EQ(repeat->parameters[0]->parameters.size(), static_cast<size_t>(layers));
          repeat->parameters[0]->parameters.clear();
        }
      }
      flatbuffers::FlatBufferBuilder builder;
      builder.Finish(file::Graph::Pack(builder, unpacked.get()));
      bytes += builder.GetSize();
    }
    return bytes;
  };
  EXPECT_EQ(graph_bytes(4), graph_bytes(16));
  EXPECT_EQ(graph_bytes(2), graph_bytes(4));
}

TEST(Save, OneNameOfATieIsEnoughForALoad) {
  const Folder folder;
  Model model = make_tied_model();
  ASSERT_TRUE(model.materialize(1).ok());
  Model one;
  const int64_t table[] = {11, 6};
  ASSERT_TRUE(one.parameter("head.weight", table, Init::normal(1)).ok());
  ASSERT_TRUE(one.materialize(9).ok());
  ASSERT_TRUE(one.save(folder / "head").ok());
  EXPECT_EQ(model.load(folder / "head").status().code(), Code::bad_argument);
  const std::string ties = model.ties();
  const auto report = model.load(folder / "head", {.mode = LoadMode::copy, .partial = true});
  ASSERT_TRUE(report.ok()) << report.status().message();
  std::vector<float> a(66), b(66);
  Tensor ta{"", DType::f32, table, a.data()}, tb{"", DType::f32, table, b.data()};
  ASSERT_TRUE(model.get_value("emb.weight", ta).ok());
  ASSERT_TRUE(one.get_value("head.weight", tb).ok());
  EXPECT_EQ(a, b);
  EXPECT_EQ(model.ties(), ties);
}

TEST(Save, OptimizerRowsAreWrittenWithATrainingStateOnly) {
  const Folder folder;
  Model model = make_tied_model();
  ASSERT_TRUE(model.materialize(1).ok());
  params::Table& table = Internals::state(model)->table;
  for (const params::Role role : {params::Role::moment, params::Role::gradient}) {
    params::Storage row = table.storages[0];
    row.role = role;
    row.owner = 0;
    table.add(row);
  }
  const auto rows = [&](const model::TrainingState* training) {
    EXPECT_TRUE(graph::save_model(*Internals::state(model), folder / "m", training).ok());
    const auto loaded = Model::open(folder / "m");
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded.value().describe().value().storages.size();
  };
  model::TrainingState training;
  EXPECT_EQ(rows(nullptr), 4u);
  EXPECT_EQ(rows(&training), 5u);
  training.micro_step = 1;
  EXPECT_EQ(rows(&training), 6u);
}

TEST(Save, KeepsTheModeOfTheFileThatItReplaces) {
  const Folder folder;
  const std::string path = folder / "m";
  ASSERT_TRUE(make_tied_model().save(path).ok());
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(make_tied_model().save(path).ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
}

TEST(Save, PlacesThatCannotBeWrittenAreIoErrors) {
  const Folder folder;
  EXPECT_EQ(make_tied_model().save(folder / "no/such/folder").code(), Code::io_error);
  EXPECT_EQ(make_tied_model().save(testing::TempDir()).code(), Code::io_error);
  EXPECT_EQ(Model::open(folder / "nothing").status().code(), Code::io_error);
  EXPECT_EQ(Model::open(testing::TempDir()).status().code(), Code::io_error);
  test::write_file(folder / "empty", "");
  EXPECT_EQ(Model::open(folder / "empty").status().code(), Code::bad_file);
}

TEST(Clone, SharesNothingThatIsWritten) {
  const Folder folder;
  Model model = make_tied_model();
  ASSERT_TRUE(model.materialize(1).ok());
  auto copy = model.clone();
  ASSERT_TRUE(copy.ok());
  ASSERT_TRUE(copy.value().untie("head.weight").ok());
  EXPECT_TRUE(model.same_storage("emb.weight", "head.weight").value());
  EXPECT_FALSE(copy.value().same_storage("emb.weight", "head.weight").value());
  ASSERT_TRUE(model.save(folder / "a").ok());
  ASSERT_TRUE(copy.value().tie("emb.weight", "head.weight").ok());
  EXPECT_TRUE(copy.value().save(folder / "b").ok());
}

}  // namespace
}  // namespace bowline
