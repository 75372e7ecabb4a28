// Every golden file of every released format is loaded, verified whole, run and saved again.
#include "golden/golden.h"

#include <gtest/gtest.h>

#include "model/tied_model.h"

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
    // Format 1 is the one that this version writes: the bytes come back.
    const test::Folder folder;
    ASSERT_TRUE(model.value().save(folder / "again").ok());
    EXPECT_EQ(test::read_file(folder / "again") == test::read_file(path), true) << path;
  }
}

// A wrong expectation is noticed: the comparison compares.
TEST(Golden, AWrongWeightIsNoticed) {
  const auto device = Device::open("cpu");
  ASSERT_TRUE(device.ok()) << device.status().message();
  auto model = Model::open(golden_files().at(0));
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
