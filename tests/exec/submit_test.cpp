// Session::submit(): runs in the order of the calls, in a thread of the session.
#include <future>
#include <thread>

#include "faults/acting_device.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

// "forward": y = w x.
Model scaled() {
  Model model;
  const Parameter w = must(model.parameter("w", {1}, Init::ones()));
  GraphBuilder g(model, "forward");
  const Value x = g.input("x", DType::f32, {1});
  g.output("y", g.op("Mul", {x, g.parameter(w)}));
  EXPECT_OK(g.finish());
  EXPECT_OK(model.materialize(1));
  return model;
}

class Submit : public OnDevice {};
BOWLINE_ON_ALL_DEVICES(Submit);

TEST_P(Submit, RunsAreDoneInTheirOrder) {
  Model model = scaled();
  ASSERT_OK(model.to(device_));
  Session session = must(Session::create(model, device_, "forward", {}));
  constexpr int kRuns = 20;
  Floats x(kRuns), y(kRuns);
  std::vector<int> order;
  std::vector<PendingRun> runs;
  for (int i = 0; i < kRuns; ++i) {
    const auto at = static_cast<size_t>(i);
    x[at] = static_cast<float>(i) + 1;
    // The names and the arrays of tensors need not outlive the call.
    const std::string in = "x", out = "y";
    const Tensor input{in, DType::f32, {1}, &x[at]};
    const Tensor output{out, DType::f32, {1}, &y[at]};
    RunRequest request;
    request.inputs = {&input, 1};
    request.outputs = {&output, 1};
    request.done = [&order, i](const Status& status) {
      EXPECT_OK(status);
      order.push_back(i);
    };
    runs.push_back(must(session.submit(request)));
  }
  for (const PendingRun& run : runs) {
    EXPECT_OK(run.wait());
    EXPECT_TRUE(run.done());
  }
  EXPECT_EQ(y, x);
  EXPECT_EQ(session.counters().submits, 20u);
  { const Session ended = std::move(session); }  // waits for the last callback
  ASSERT_EQ(order.size(), 20u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST_P(Submit, OutputsInBuffersFeedTheNextRun) {
  Model model = scaled();
  ASSERT_OK(set(model, "w", {1}, {2}));
  ASSERT_OK(model.to(device_));
  Session session = must(Session::create(model, device_, "forward", {}));
  Floats one = {1}, out(1);
  std::vector<PendingRun> runs;
  {
    const DeviceBuffer between = must(DeviceBuffer::create(device_, 4));
    ASSERT_OK(between.write(0, std::as_bytes(std::span(one))));
    Tensor input{"x", DType::f32, {1}}, output{"y", DType::f32, {1}};
    input.buffer = output.buffer = &between;
    for (int i = 0; i < 5; ++i) {
      RunRequest request;
      request.inputs = {&input, 1};
      request.outputs = {&output, 1};
      runs.push_back(must(session.submit(request)));
    }
    EXPECT_OK(runs.back().wait());
    ASSERT_OK(between.read(0, std::as_writable_bytes(std::span(out))));
  }
  EXPECT_EQ(out[0], 32);
}

TEST(SubmitOnTheCpu, ErrorsOfARunComeFromItsWait) {
  const Device device = open_test_device("cpu");
  Model model = scaled();
  ASSERT_OK(model.to(device));
  Session session = must(Session::create(model, device, "forward", {}));
  RunRequest request;
  request.entry_point = "other";
  Status seen;
  request.done = [&](const Status& status) { seen = status; };
  const PendingRun wrong = must(session.submit(request));
  EXPECT_EQ(wrong.wait().code(), Code::bad_argument);
  EXPECT_EQ(wrong.wait().message(), "The session has no plan of \"other\"; it has \"forward\".");
  Floats x = {5}, y(1);
  const Tensor input = tensor("x", {1}, x);
  const Tensor output = tensor("y", {1}, y);
  EXPECT_OK(session.run({&input, 1}, {&output, 1}));  // after the pending run
  EXPECT_EQ(y, x);
  { const Session ended = std::move(session); }
  EXPECT_EQ(seen.message(), wrong.wait().message());
  RunRequest late;
  EXPECT_EQ(session.submit(late).status().code(), Code::bad_argument);
}

// The callback of the first run holds the queue, so that the others are pending for sure.
struct Held {
  explicit Held(Session& session, Floats& x) : input(tensor("x", {1}, x)) {
    RunRequest request;
    request.inputs = {&input, 1};
    request.done = [this](const Status&) { open.get_future().wait(); };
    first = must(session.submit(request));
    EXPECT_OK(first->wait());
  }
  RunRequest request() {
    RunRequest out;
    out.inputs = {&input, 1};
    return out;
  }
  Tensor input;
  std::promise<void> open;
  std::optional<PendingRun> first;
};

TEST(SubmitOnTheCpu, APendingRunIsCancelledAlone) {
  const Device device = open_test_device("cpu");
  Model model = scaled();
  ASSERT_OK(model.to(device));
  Session session = must(Session::create(model, device, "forward", {}));
  Floats x = {1};
  Held held(session, x);
  const PendingRun second = must(session.submit(held.request()));
  const PendingRun third = must(session.submit(held.request()));
  EXPECT_FALSE(second.done());
  second.cancel();
  held.open.set_value();
  EXPECT_EQ(second.wait().code(), Code::cancelled);
  EXPECT_EQ(second.wait().message(), "The run was cancelled before it began.");
  EXPECT_OK(third.wait());
  third.cancel();  // it has ended
  EXPECT_OK(third.wait());
  EXPECT_OK(session.run({&held.input, 1}, {}));
}

TEST(SubmitOnTheCpu, TheEndOfTheSessionCancelsPendingRuns) {
  const Device device = open_test_device("cpu");
  Model model = scaled();
  ASSERT_OK(model.to(device));
  std::optional<Session> session = must(Session::create(model, device, "forward", {}));
  Floats x = {1};
  Held held(*session, x);
  const PendingRun second = must(session->submit(held.request()));
  std::thread end([&] { session.reset(); });
  held.open.set_value();
  end.join();
  EXPECT_TRUE(second.done());
  const Code code = second.wait().code();
  EXPECT_TRUE(code == Code::cancelled || code == Code::ok) << static_cast<int>(code);
  second.cancel();
}

TEST(SubmitOnTheCpu, PendingRunsProtectTheModel) {
  const Device device = open_test_device("cpu");
  Model model = scaled();
  ASSERT_OK(model.to(device));
  Session session = must(Session::create(model, device, "forward", {}));
  Floats x = {1};
  Held held(session, x);
  const PendingRun second = must(session.submit(held.request()));
  EXPECT_EQ(set(model, "w", {1}, {2}).code(), Code::bad_argument);
  held.open.set_value();
  EXPECT_OK(second.wait());
  EXPECT_OK(set(model, "w", {1}, {2}));
}

TEST(SubmitOnTheCpu, TheNumberOfPendingRunsIsLimited) {
  const Device device = open_test_device("cpu");
  Model model = scaled();
  ASSERT_OK(model.to(device));
  Session session = must(Session::create(model, device, "forward", {}));
  Floats x = {1};
  Held held(session, x);
  std::vector<PendingRun> runs;
  for (size_t i = 0; i < Session::kMostPending; ++i) {
    runs.push_back(must(session.submit(held.request())));
  }
  const Status status = session.submit(held.request()).status();
  EXPECT_EQ(status.code(), Code::bad_argument);
  EXPECT_EQ(status.message(), "64 runs are pending, which is the most. Wait for one of them.");
  held.open.set_value();
  EXPECT_OK(runs.back().wait());
  EXPECT_OK(must(session.submit(held.request())).wait());
}

TEST(SubmitOnTheCpu, CallbacksMayOnlySubmit) {
  const Device device = open_test_device("cpu");
  Model model = scaled();
  ASSERT_OK(model.to(device));
  Session session = must(Session::create(model, device, "forward", {}));
  Floats x = {1};
  const Tensor input = tensor("x", {1}, x);
  RunRequest plain;
  plain.inputs = {&input, 1};
  Status ran, waited;
  std::promise<PendingRun> next;
  RunRequest request = plain;
  request.done = [&](const Status&) {
    ran = session.run({&input, 1}, {});
    const PendingRun later = must(session.submit(plain));
    waited = later.wait();
    next.set_value(later);
    throw 1;  // ignored
  };
  ASSERT_OK(must(session.submit(request)).wait());
  EXPECT_OK(next.get_future().get().wait());
  EXPECT_EQ(ran.code(), Code::bad_argument);
  EXPECT_EQ(ran.message(),
            "A callback of a submitted run uses its session. It may only submit runs.");
  EXPECT_EQ(waited.code(), Code::bad_argument);
}

TEST(SubmitOnTheCpu, ACallbackMayDestroyTheSession) {
  const Device device = open_test_device("cpu");
  Model model = scaled();
  ASSERT_OK(model.to(device));
  std::optional<Session> session = must(Session::create(model, device, "forward", {}));
  Floats x = {1};
  const Tensor input = tensor("x", {1}, x);
  RunRequest request;
  request.inputs = {&input, 1};
  std::promise<void> submitted, destroyed;
  request.done = [&](const Status&) {
    submitted.get_future().wait();
    session.reset();
    destroyed.set_value();
  };
  const PendingRun first = must(session->submit(request));
  request.done = {};
  const PendingRun second = must(session->submit(request));
  submitted.set_value();
  destroyed.get_future().wait();
  EXPECT_OK(first.wait());
  EXPECT_EQ(second.wait().code(), Code::cancelled);
  EXPECT_OK(set(model, "w", {1}, {2}));
}

// The request comes while the run is active.
TEST(SubmitOnTheCpu, AnActiveRunIsCancelledAlone) {
  AtRecord at;
  const Device device = wrap("acting", std::make_unique<ActingDevice>(at));
  Seed s = lm32();
  ASSERT_OK(s.model.to(device));
  Session session = must(Session::create(s.model, device, "loss", {}));
  const std::vector<Tensor> batch = s.batch();
  RunRequest request;
  request.inputs = batch;
  std::promise<PendingRun> made;
  at.act = [&] { made.get_future().get().cancel(); };
  at.left = 1;
  const PendingRun run = must(session.submit(request));
  made.set_value(run);
  EXPECT_EQ(run.wait().code(), Code::cancelled);
  EXPECT_EQ(run.wait().message(), "The run was cancelled.");
  EXPECT_OK(session.run(batch, {}));
}

// Calls a function when values are read from the device.
class ReadingDevice : public WrappedDevice {
 public:
  explicit ReadingDevice(const std::function<void()>& act) : WrappedDevice(open_cpu()), act_(act) {}
  Status copy_out(std::span<std::byte> to, device::Buffer from, uint64_t offset) override {
    act_();
    return inner().copy_out(to, from, offset);
  }

 private:
  const std::function<void()>& act_;
};

// The request comes when the result is complete. It does not reach the next run.
TEST(SubmitOnTheCpu, ALateRequestCancelsNothing) {
  std::function<void()> act = [] {};
  const Device device = wrap("reading", std::make_unique<ReadingDevice>(act));
  Model model = scaled();
  ASSERT_OK(model.to(device));
  Session session = must(Session::create(model, device, "forward", {}));
  Floats x = {3};
  const Tensor input = tensor("x", {1}, x);
  RunRequest request;
  request.inputs = {&input, 1};
  std::promise<PendingRun> made;
  bool asked = false;
  act = [&] {
    if (!std::exchange(asked, true)) {
      made.get_future().get().cancel();
    }
  };
  const PendingRun run = must(session.submit(request));
  made.set_value(run);
  EXPECT_OK(run.wait());
  EXPECT_OK(session.run({&input, 1}, {}));
}

}  // namespace
}  // namespace bowline::test
