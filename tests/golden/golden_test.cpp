// Every golden file of every released format is loaded, fully verified, run and saved again.
#include "golden/golden.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/tied_model.h"
#include "ties/seed_models.h"

namespace bowline {
namespace {

std::vector<std::string> golden_files() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(BOWLINE_GOLDEN_FOLDER)) {
    if (entry.path().extension() == ".bowline") {
      out.push_back(entry.path().string());
    }
  }
  std::ranges::sort(out);
  return out;
}

TEST(Golden, EveryFileLoadsRunsAndSaves) {
  const std::vector<std::string> files = golden_files();
  ASSERT_FALSE(files.empty());
  const auto device = Device::open("cpu");
  ASSERT_TRUE(device.ok()) << device.status().message();
  for (const std::string& path : files) {
    const auto verified = model::VerifiedFile::open(path);
    ASSERT_TRUE(verified.ok()) << verified.status().message();
    EXPECT_TRUE(verified.value()->verify_all().ok());
    auto model = Model::open(path);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::string ties = model.value().ties();
    EXPECT_FALSE(ties.empty()) << path;
    ASSERT_TRUE(model.value().to(device.value()).ok());
    const Status run = test::run_self_tests(model.value(), device.value());
    EXPECT_TRUE(run.ok()) << path << ": " << run.message();
    EXPECT_EQ(model.value().ties(), ties);
    // This version writes format 1, so the bytes are the same.
    const test::Folder folder;
    ASSERT_TRUE(model.value().save(folder / "again").ok());
    EXPECT_EQ(test::read_file(folder / "again") == test::read_file(path), true) << path;
  }
}

// Token by token, with keys and values in the states of the file, a decoder gives the logits that
// the file expects for all tokens at once.
TEST(Golden, ADecoderWritesItsStates) {
  const std::string path = BOWLINE_GOLDEN_FOLDER "/1/decoder.bowline";
  Model model = test::must(Model::open(path));
  const Device device = test::must(Device::open("cpu"));
  ASSERT_OK(model.to(device));
  const ModelInfo info = test::must(model.describe());
  const auto decode = std::ranges::find(info.entry_points, "decode", &EntryPointInfo::name);
  ASSERT_NE(decode, info.entry_points.end());
  EXPECT_EQ(decode->updates.size(), 2u);
  const SelfTestValues values = test::must(model.self_test(0));
  ASSERT_EQ(info.self_tests[0].entry_point, "prefill");
  std::vector<int32_t> ids(values.inputs[0].size() / sizeof(int32_t));
  std::memcpy(ids.data(), values.inputs[0].data(), values.inputs[0].size());
  std::vector<float> expected(values.outputs[0].size() / sizeof(float));
  std::memcpy(expected.data(), values.outputs[0].data(), values.outputs[0].size());
  const size_t classes = expected.size() / ids.size();

  const BoundDim dims[] = {{"kv_length", 16}};
  Session session = test::must(Session::create(model, device, "decode", dims));
  for (size_t i = 0; i < ids.size(); ++i) {
    int32_t at = static_cast<int32_t>(i);
    std::vector<float> logits(classes);
    const Tensor inputs[] = {{"id", DType::i32, {1, 1}, &ids[i]}, {"at", DType::i32, {1, 1}, &at}};
    const Tensor outputs[] = {
        {"logits", DType::f32, {1, 1, static_cast<int64_t>(classes)}, logits.data()}};
    const StepScalar steps[] = {{"position", i}, {"kv_length", i + 1}};
    ASSERT_OK(session.run(inputs, outputs, steps));
    for (size_t c = 0; c < classes; ++c) {
      EXPECT_NEAR(logits[c], expected[i * classes + c], 2e-5) << i << ", " << c;
    }
  }
  EXPECT_EQ(session.counters().plan_builds, 1u);
}

// Checks that the comparison notices a wrong value.
TEST(Golden, AWrongWeightIsNoticed) {
  const auto device = Device::open("cpu");
  ASSERT_TRUE(device.ok()) << device.status().message();
  auto model = Model::open(BOWLINE_GOLDEN_FOLDER "/1/tied_lm.bowline");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelInfo info = model.value().describe().value();
  const std::string& name = info.parameters[0].name;
  const Shape shape(info.storages[0].shape);
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  Tensor tensor{"", DType::f32, shape.dims(), values.data()};
  ASSERT_TRUE(model.value().get_value(name, tensor).ok());
  values[20] += 0.5f;
  ASSERT_TRUE(model.value().set_value(name, tensor).ok());
  ASSERT_TRUE(model.value().to(device.value()).ok());
  EXPECT_EQ(test::run_self_tests(model.value(), device.value()).code(), Code::bad_argument);
}

}  // namespace
}  // namespace bowline
