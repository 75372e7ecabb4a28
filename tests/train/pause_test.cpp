// Trainer::pause(): the device is free, and the run continues from the checkpoint with the same
// bits.
#include <unistd.h>

#include <filesystem>

#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

class Pause : public OnDevice {
 protected:
  ~Pause() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "bowline_pause_" + std::to_string(getpid());
};
BOWLINE_ON_ALL_DEVICES(Pause);

TrainOptions options(const TinyLm& lm) {
  TrainOptions o = adamw(lm);
  o.accumulation = 2;
  return o;
}

TEST_P(Pause, TheRunContinuesWithTheSameBits) {
  const auto trained = [&](bool pauses) {
    TinyLm lm = tiny_lm();
    EXPECT_OK(lm.model.to(device_));
    Trainer t = must(Trainer::create(lm.model, device_, options(lm)));
    must(train_step(t, lm, 0, 2));
    must(t.micro_step(lm.data(2)));  // in the middle of a step
    if (pauses) {
      Progress data;
      data.data_cursor = 3;
      EXPECT_OK(t.pause(path_, data));
      EXPECT_EQ(t.state(), TrainState::paused);
      EXPECT_OK(lm.model.to(device_));
      const Progress there = must(t.resume(path_));
      EXPECT_EQ(there.data_cursor, 3u);
      EXPECT_EQ(there.micro_step, 1u);
    }
    EXPECT_EQ(t.state(), TrainState::ready);
    must(t.micro_step(lm.data(3)));
    must(train_step(t, lm, 4, 2));
    return all_bytes(lm.model);
  };
  EXPECT_EQ(trained(true), trained(false));
}

TEST_P(Pause, NothingIsLeftOnTheDevice) {
  const uint64_t before = device_.counters().live_bytes;
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(device_));
  Session session = must(Session::create(lm.model, device_, "loss", lm.dims()));
  Trainer t = must(Trainer::create(lm.model, device_, options(lm)));
  must(train_step(t, lm, 0, 2));
  ASSERT_OK(t.snapshot());
  ASSERT_OK(session.run(lm.data(9), {}));
  must(t.evaluate(lm.data(9)));
  const Floats weights = values(lm.model, "embed.weight");
  ASSERT_OK(t.pause(path_, {}));
  EXPECT_EQ(device_.counters().live_bytes, before);
  const std::weak_ptr<device::OpenDevice> open = Internals::open(device_);
  const std::string name = device_.info().name;
  device_ = Internals::device(nullptr);
  EXPECT_TRUE(open.expired());  // the device is closed
  // The weights are still there.
  EXPECT_EQ(values(lm.model, "embed.weight"), weights);
  device_ = open_test_device(name);
  ASSERT_OK(lm.model.to(device_));
  must(t.resume(path_));
  EXPECT_EQ(values(lm.model, "embed.weight"), weights);
  ASSERT_OK(session.run(lm.data(9), {}));
  must(train_step(t, lm, 2, 2));
}

TEST_P(Pause, CallsOfAPausedTrainerSayWhatToDo) {
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, options(lm)));
  must(train_step(t, lm, 0, 2));
  ASSERT_OK(t.pause(path_, {}));
  const auto refused = [](const Status& status) {
    EXPECT_EQ(status.code(), Code::bad_argument);
    EXPECT_TRUE(status.message().ends_with(
        " cannot run now: the trainer is paused. Call Model::to(), then resume()."))
        << status.message();
  };
  refused(t.micro_step(lm.data(2)).status());
  refused(t.evaluate(lm.data(2)).status());
  refused(t.save(path_, {}));
  refused(t.pause(path_, {}));
  refused(t.snapshot());
  refused(t.restart_step());
  EXPECT_EQ(t.resume(path_).status().message(),
            "The model is not on a device. Move it with Model::to().");
  ASSERT_OK(lm.model.to(device_));
  must(t.resume(path_));
  must(train_step(t, lm, 2, 2));
}

TEST_P(Pause, AFailedPauseChangesNothing) {
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(device_));
  Trainer t = must(Trainer::create(lm.model, device_, options(lm)));
  must(train_step(t, lm, 0, 2));
  const auto before = all_bytes(lm.model);
  EXPECT_EQ(t.pause("/no/folder/file", {}).code(), Code::io_error);
  EXPECT_EQ(t.state(), TrainState::ready);
  EXPECT_EQ(all_bytes(lm.model), before);
  must(train_step(t, lm, 2, 2));
}

}  // namespace
}  // namespace bowline::test
