// Lets the n-th file operation fail, n = 1, 2, ..., until a checkpoint is saved or resumed without
// a failure.
#include "api/internals.h"
#include "faults/faulty_files.h"
#include "model/tied_model.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"
#include "train/trainer.h"

namespace bowline::test {
namespace {

// A trainer in the middle of a step.
struct Trained {
  Trained() : lm(tiny_lm(2)), device(open_test_device("cpu")) {
    EXPECT_OK(lm.model.to(device));
    TrainOptions options = adamw(lm);
    options.accumulation = 2;
    trainer = std::make_unique<train::TrainerState>(Internals::state(lm.model), options);
    EXPECT_OK(trainer->start(Internals::open(device).get()));
    step(0);
  }
  void step(uint32_t number) { must(trainer->micro_step(lm.data(number))); }
  std::string saved() const {
    EXPECT_OK(trainer->save(folder / "state", {}));
    return read_file(folder / "state");
  }

  Folder folder;
  TinyLm lm;
  Device device;
  std::unique_ptr<train::TrainerState> trainer;
};

TEST(CheckpointFiles, ASaveThatFailsLeavesTheOlderOne) {
  Trained w;
  const std::string path = w.folder / "checkpoint";
  ASSERT_OK(w.trainer->save(path, {}));
  const std::string older = read_file(path);
  w.step(1);
  w.step(2);
  const std::string newer = w.saved();
  for (const int error : {EIO, ENOSPC}) {
    for (int n = 1;; ++n) {
      SCOPED_TRACE(format("operation {}", n));
      write_file(path, older);
      FaultyFiles files;
      files.arm(n, error);
      const Status status = w.trainer->save(path, {}, files);
      const std::string now = read_file(path);
      EXPECT_TRUE(now == newer || (now == older && !status.ok()));
      EXPECT_EQ(files.open_descriptors(), 0);
      EXPECT_TRUE(status.ok() || status.code() == Code::io_error) << status.message();
      EXPECT_EQ(w.trainer->state(), TrainState::ready);
      if (!files.fired()) {
        EXPECT_OK(status);
        EXPECT_GT(n, 10);
        break;
      }
    }
  }
  EXPECT_EQ(w.saved(), newer) << "the trainer is as before";
}

TEST(CheckpointFiles, AResumeThatFailsChangesNothing) {
  Trained w;
  const std::string path = w.folder / "checkpoint";
  ASSERT_OK(w.trainer->save(path, {}));
  const std::string older = w.saved();
  w.step(1);
  w.step(2);
  const std::string newer = w.saved();
  ASSERT_NE(older, newer);
  for (int n = 1;; ++n) {
    SCOPED_TRACE(format("operation {}", n));
    FaultyFiles files;
    files.arm(n, EIO);
    const Status status = w.trainer->resume(path, {}, files).status();
    EXPECT_EQ(files.open_descriptors(), 0);
    EXPECT_EQ(w.trainer->state(), TrainState::ready);
    if (status.ok()) {
      EXPECT_EQ(w.saved(), older);
    }
    if (!files.fired()) {
      EXPECT_OK(status);
      EXPECT_GT(n, 4);
      break;
    }
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::io_error) << status.message();
      EXPECT_EQ(w.saved(), newer);
    }
  }
}

}  // namespace
}  // namespace bowline::test
