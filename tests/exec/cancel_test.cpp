// Session::cancel(): a request ends the running call or the next one, and later runs have the same
// bits.
#include <thread>

#include "faults/acting_device.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

class Cancel : public OnDevice {};
BOWLINE_ON_ALL_DEVICES(Cancel);

Status run_once(Session& session, Seed& s) {
  Floats logits(3);
  const Tensor outputs[] = {tensor("logits", {1, 3}, logits)};
  return session.run(s.batch(), outputs);
}

TEST_P(Cancel, ARequestBeforeARunCancelsIt) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  Session session = must(Session::create(s.model, device_, "loss", {}));
  const Floats right = logits_of(session, s);
  std::thread([&] { session.cancel(); }).join();
  session.cancel();  // counts as the same request
  const Status cancelled = session.run(s.batch(), {});
  EXPECT_EQ(cancelled.code(), Code::cancelled);
  EXPECT_EQ(cancelled.message(), "The run was cancelled.");
  EXPECT_EQ(logits_of(session, s), right);
}

TEST_P(Cancel, ACallThatFailsKeepsTheRequest) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  Session session = must(Session::create(s.model, device_, "loss", {}));
  session.cancel();
  EXPECT_EQ(session.run({}, {}).code(), Code::bad_argument);
  EXPECT_EQ(session.run(s.batch(), {}).code(), Code::cancelled);
  EXPECT_OK(session.run(s.batch(), {}));
}

TEST_P(Cancel, TheNextProfileIsCancelled) {
  Seed s = lm32();
  ASSERT_OK(s.model.to(device_));
  Session session = must(Session::create(s.model, device_, "loss", {}));
  session.cancel();
  EXPECT_EQ(session.profile(s.batch()).status().code(), Code::cancelled);
  EXPECT_OK(session.profile(s.batch()));
}

// The request comes after record n of the run, from the same thread.
TEST(CancelOnTheCpu, ARunningRunStopsAtTheNextRecord) {
  AtRecord at;
  const Device device = wrap("acting", std::make_unique<ActingDevice>(at));
  Seed s = lm32();
  ASSERT_OK(s.model.to(device));
  Session session = must(Session::create(s.model, device, "loss", {}));
  const Floats right = logits_of(session, s);
  at.act = [&] { session.cancel(); };
  at.records = 0;
  logits_of(session, s);
  const int all = at.records;
  ASSERT_GE(all, 3);
  for (int n = 1; n <= all; ++n) {
    at.records = 0;
    at.left = n;
    EXPECT_EQ(run_once(session, s).code(), Code::cancelled) << "record " << n;
    EXPECT_EQ(at.records, n);
    EXPECT_EQ(logits_of(session, s), right) << "record " << n;
  }
}

// The first run after a change of a weight computes the hoisted values again.
TEST(CancelOnTheCpu, HoistedValuesOfACancelledRunAreNotUsed) {
  AtRecord at;
  const Device device = wrap("acting", std::make_unique<ActingDevice>(at));
  Model model;
  const Dims shape = {4, 4};
  const Parameter a = must(model.parameter("a", shape, Init::normal(1)));
  const Parameter b = must(model.parameter("b", shape, Init::normal(1)));
  GraphBuilder g(model, "forward");
  const Value w = g.op("Softmax", {g.op("Mul", {g.parameter(a), g.parameter(b)})});
  g.output("y", g.op("Linear", {g.input("x", DType::f32, {2, 4}), w}));
  ASSERT_OK(g.finish());
  ASSERT_OK(model.materialize(1));
  ASSERT_OK(model.to(device));
  Session session = must(Session::create(model, device, "forward", {}));
  run_with_x(session, {2, 4});
  at.records = 0;
  run_with_x(session, {2, 4});
  const int plain = at.records;
  ASSERT_OK(set(model, "a", shape, Floats(16, 0.5f)));
  at.records = 0;
  at.left = 1;
  at.act = [&] { session.cancel(); };
  Floats x(8, 1);
  const Tensor in = tensor("x", {2, 4}, x);
  EXPECT_EQ(session.run({&in, 1}, {}).code(), Code::cancelled);
  at.records = 0;
  const Floats after = run_with_x(session, {2, 4});
  EXPECT_GT(at.records, plain);  // the values were hoisted
  Session fresh = must(Session::create(model, device, "forward", {}));
  EXPECT_EQ(after, run_with_x(fresh, {2, 4}));
}

// A node of several tasks stops between them: the executor asks before it runs the first task.
TEST(CancelOnTheCpu, ANodeStopsBetweenItsTasks) {
  Session* running = nullptr;
  int calls = 0;
  DeviceOptions options;
  options.threads = 2;
  options.executor = [&](size_t count, const std::function<void(size_t)>& task) {
    ++calls;
    if (running != nullptr) {
      running->cancel();
    }
    for (size_t i = 0; i < count; ++i) {
      task(i);
    }
  };
  const Device device = must(Device::open("cpu", options));
  Model model;
  const Parameter w = must(model.parameter("w", {512, 512}, Init::normal(1)));
  GraphBuilder g(model, "forward");
  const Value y = g.op("Linear", {g.input("x", DType::f32, {512, 512}), g.parameter(w)});
  g.output("y", y);
  ASSERT_OK(g.finish());
  ASSERT_OK(model.materialize(1));
  ASSERT_OK(model.to(device));
  Session session = must(Session::create(model, device, "forward", {}));
  const Floats right = run_with_x(session, {512, 512});
  ASSERT_GT(calls, 0);
  running = &session;
  Floats x(512 * 512, 1), y_data(512 * 512, -1);
  const Tensor in = tensor("x", {512, 512}, x);
  EXPECT_EQ(session.run({&in, 1}, {}).code(), Code::cancelled);
  running = nullptr;
  EXPECT_EQ(run_with_x(session, {512, 512}), right);
}

}  // namespace
}  // namespace bowline::test
