// The life of handles.
#include <cstdio>

#include "world.h"

namespace c_test {
namespace {

TEST(Handles, ClosingTwiceIsRefused) {
  World world;
  must(api()->session_close, world.h.session);
  expect_error(call(api()->session_close, world.h.session), BOWLINE_BAD_ARGUMENT, "is closed");
  world.h.session = nullptr;
}

TEST(Handles, ASessionAndATrainerKeepTheirModelAndDevice) {
  World world;
  const std::vector<float> before = scores_of(world.h.session);
  must(api()->device_close, world.h.device);
  must(api()->model_close, world.h.model);
  world.h.device = nullptr;
  world.h.model = nullptr;
  EXPECT_EQ(scores_of(world.h.session), before);
  const Batch batch;
  auto report = sized<bowline_step_report>();
  must(api()->trainer_micro_step, world.h.trainer, batch.tensors, 2, nullptr, 0, &report, nullptr);
  EXPECT_EQ(report.step, 1u);
  EXPECT_NE(scores_of(world.h.session), before);
}

TEST(Handles, AModelKeepsItsDevice) {
  bowline_device* const device = open_cpu();
  bowline_model* const model = make_model();
  must(api()->model_to, model, device, nullptr);
  must(api()->device_close, device);
  bowline_model* clone = nullptr;
  must(api()->model_clone, model, &clone);
  must(api()->model_close, model);
  std::vector<float> value(kWidth * kWidth);
  const int64_t shape[] = {kWidth, kWidth};
  const bowline_tensor out = {sizeof(out),  nullptr,          BOWLINE_F32, 2, shape,
                              value.data(), 4 * value.size(), nullptr,     0};
  must(api()->model_get_value, clone, "second.weight", &out);
  must(api()->model_close, clone);
}

TEST(Handles, ThousandsAreOpenedAndClosed) {
  std::vector<bowline_model*> models(5000);
  for (bowline_model*& model : models) {
    must(api()->model_create, &model);
    must(api()->model_close, model);
  }
  for (bowline_model*& model : models) {
    must(api()->model_create, &model);
  }
  for (bowline_model* model : models) {
    must(api()->model_reset_counters, model);
  }
  for (bowline_model* model : models) {
    must(api()->model_close, model);
  }
  for (size_t i = models.size() - 1024; i < models.size(); ++i) {
    expect_error(call(api()->model_close, models[i]), BOWLINE_BAD_ARGUMENT, "is closed");
  }
}

// A closed handle is not given to the next 1,024 callers.
TEST(Handles, AClosedHandleIsRecognizedForLong) {
  bowline_model* first = nullptr;
  must(api()->model_create, &first);
  must(api()->model_close, first);
  for (int i = 0; i < 1023; ++i) {
    bowline_model* model = nullptr;
    must(api()->model_create, &model);
    EXPECT_NE(model, first);
    must(api()->model_close, model);
    expect_error(call(api()->model_reset_counters, first), BOWLINE_BAD_ARGUMENT, "is closed");
  }
}

// An offloaded model has no block on a device.
TEST(Handles, AnOffloadedModelIsSavedAndRolledBack) {
  World world;
  const std::vector<float> before = scores_of(world.h.session);
  const std::string path = ::testing::TempDir() + "c_offloaded.bowline";
  must(api()->model_offload, world.h.model, nullptr);
  must(api()->trainer_snapshot, world.h.trainer);
  must(api()->trainer_save, world.h.trainer, path.c_str(), nullptr, nullptr, 0);
  must(api()->trainer_rollback, world.h.trainer);
  must(api()->model_to, world.h.model, world.h.device, nullptr);
  EXPECT_EQ(scores_of(world.h.session), before);
  std::remove(path.c_str());
}

TEST(Handles, SharesBelongToOneFamily) {
  World world;
  bowline_model* share = nullptr;
  must(api()->model_share, world.h.model, &share);
  must(api()->model_close, world.h.model);
  world.h.model = nullptr;
  bowline_buffer* ties = nullptr;
  must(api()->model_ties, share, &ties);
  EXPECT_NE(text_of(ties).find("second.weight"), std::string::npos);
  must(api()->model_close, share);
}

}  // namespace
}  // namespace c_test
