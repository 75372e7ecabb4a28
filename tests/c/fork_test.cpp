// What a child process can do with the handles of its parent.
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

namespace c_test {
namespace {

void use_old_handles(World& world) {
  const Batch batch;
  float scores[kBatch * kClasses];
  const int64_t shape[] = {kBatch, kClasses};
  const bowline_tensor out = {sizeof(out), "scores",       BOWLINE_F32, 2, shape,
                              scores,      sizeof(scores), nullptr,     0};
  expect_error(call(api()->session_run, world.h.session, nullptr, batch.tensors, 2, &out, 1,
                    nullptr, 0, nullptr, 0),
               BOWLINE_DEVICE_LOST, "fork()");
  expect_error(call(api()->trainer_micro_step, world.h.trainer, batch.tensors, 2, nullptr, 0,
                    nullptr, nullptr),
               BOWLINE_DEVICE_LOST, "fork()");
  // Closing them is safe.
  world.close();
}

TEST(Fork, AChildOpensItsOwnDevice) {
  World world;
  const std::vector<float> before = scores_of(world.h.session);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    use_old_handles(world);
    World own;
    EXPECT_EQ(scores_of(own.h.session), before);
    own.close();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(scores_of(world.h.session), before);
}

}  // namespace
}  // namespace c_test
