// The child of a fork() has no threads of the device. It must not wait for them or free their
// resources.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "exec/pending.h"
#include "faults/host_device.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

#if !defined(__SANITIZE_THREAD__)  // it ends every child of a process with threads

namespace bowline::test {
namespace {

constexpr int kWorkers = 4;
constexpr unsigned kSecondsOfAChild = 60;

// Returns the result of `f` in a child process. A child that crashes or hangs is reported as a
// failure.
std::string in_child(const std::function<std::string()>& f) {
  int ends[2];
  if (pipe(ends) != 0) {
    return "no pipe";
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSecondsOfAChild);
    std::string text;
    try {
      text = f();
    } catch (const std::exception& e) {
      text = e.what();
    }
    const bool written =
        write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string out;
  char part[512];
  for (ssize_t n = 0; (n = read(ends[0], part, sizeof part)) > 0;) {
    out.append(part, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? out : format("{} (signal {})", out, WTERMSIG(status));
}

class Fork : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { BOWLINE_NEED(why_test_device_missing(GetParam())); }
};

TEST_P(Fork, TheChildIsToldAndEndsAndTheParentGoesOn) {
  std::optional<Device> device = open_test_device(GetParam(), kWorkers);
  std::optional<Seed> s = lm32();
  must(s->model.to(*device));
  std::optional<Session> session = must(Session::create(s->model, *device, "loss", {}));
  const Floats logits = logits_of(*session, *s);
  std::optional<Trainer> trainer = must(Trainer::create(s->model, *device, plain_sgd(0.1f)));

  const std::string refusal = format(
      "Device {} was opened before fork(), and this is the child process. Open a device "
      "here, and load the model again.",
      device->info().name);
  const std::string child = in_child([&] {
    Floats out(3);
    const Tensor outputs[] = {tensor("logits", {1, 3}, out)};
    const std::vector<Tensor> batch = s->batch();
    const std::span<const Tensor> batches[] = {batch};
    const Status refused[] = {session->run(batch, outputs), trainer->step(batches).status(),
                              s->model.get_value("embed", tensor("", {3, 2}, out)),
                              Session::create(s->model, *device, "loss", {}).status()};
    for (const Status& status : refused) {
      require(status.code() == Code::device_lost && status.message().starts_with(refusal),
              format("{}: {}", name_of(status.code()), status.message()));
    }
    trainer.reset();
    session.reset();
    s.reset();
    device.reset();
    // Objects that the child opens itself work.
    Seed own = lm32();
    const Device cpu = open_test_device("cpu", kWorkers);
    must(own.model.to(cpu));
    logits_of(own, cpu);
    return std::string("done");
  });
  EXPECT_EQ(child, "done");
  EXPECT_EQ(logits_of(*session, *s), logits);
}

INSTANTIATE_TEST_SUITE_P(Devices, Fork, testing::ValuesIn(device_names()),
                         [](const auto& p) { return test_name(p.param); });

// A thread that held the lock at the fork does not exist in the child to release it.
TEST(ForkInACall, TheChildDoesNotWaitForATurnOfTheParent) {
  class Copying : public HostDevice {
   public:
    Status copy_in(device::Buffer, uint64_t, std::span<const std::byte>) override {
      inside = true;
      inside.notify_all();
      go_on.wait(false);
      return {};
    }
    std::atomic<bool> inside = false, go_on = false;
  };
  auto own = std::make_unique<Copying>();
  Copying& copying = *own;
  const auto device = open_for_test("copying", std::move(own));
  std::thread thread([&] { EXPECT_OK(device->copy_in({1}, 0, {})); });
  copying.inside.wait(false);
  EXPECT_EQ(in_child([&] {
              device->reset_counters();
              return format("{} copies, {}", device->counters().copies_in,
                            device->wait().ok() ? "waited" : "refused");
            }),
            "0 copies, refused");
  copying.go_on = true;
  copying.go_on.notify_all();
  thread.join();
}

// The fork takes place while another call has the mutex of the queue.
TEST(ForkInACall, TheChildDoesNotWaitForASubmittedRun) {
  exec::CancelRequest cancel;
  std::shared_ptr<exec::PendingState> run;
  std::string child;
  const auto pending = [&](bool begins) {
    if (begins && run != nullptr) {
      child = in_child([&] {
        run->cancel();
        return std::string(run->done() && run->wait().ok() ? "told" : "wrong");
      });
    }
  };
  exec::RunQueue queue([](const RunRequest&) { return Status(); }, pending, cancel);
  run = must(queue.add({}));
  EXPECT_OK(run->wait());
  EXPECT_OK(must(queue.add({}))->wait());
  EXPECT_EQ(child, "told");
}

}  // namespace
}  // namespace bowline::test

#endif
