// The CUDA backend on faulty machines, by emulation: each gives a message and a code, and the
// process and the other devices continue.
#include <thread>

#include "train/tiny_lm.h"
#include "traits.h"

namespace bowline::test {
namespace {

using cuda_emu::machine;

class Emulated : public testing::Test {
 protected:
  void SetUp() override { cuda_emu::restart(); }
  void TearDown() override { cuda_emu::restart(); }

  static DeviceInfo first() {
    for (const DeviceInfo& d : Device::list()) {
      if (d.name == "cuda-emu:0") {
        return d;
      }
    }
    ADD_FAILURE() << "cuda-emu:0 is not listed.";
    return {};
  }
  static void expect_unusable(const std::string& part) {
    EXPECT_NE(first().unusable.find(part), std::string::npos) << first().unusable;
    const auto device = Device::open("cuda-emu:0");
    EXPECT_EQ(device.status().code(), Code::unsupported);
    EXPECT_NE(device.status().message().find(part), std::string::npos) << device.status().message();
    EXPECT_TRUE(Device::open("cpu").ok());
  }
};

TEST_F(Emulated, IsForTestsAndNeverTheBest) {
  EXPECT_EQ(first().unusable, "");
  EXPECT_TRUE(first().for_tests);
  EXPECT_NE(must(Device::open("best")).info().name, "cuda-emu:0");
}

TEST_F(Emulated, WithoutADriver) {
  machine().driver = cuda_emu::cudaErrorInsufficientDriver;
  machine().driver_version = 0;
  expect_unusable("There is no NVIDIA driver");
}

TEST_F(Emulated, WithADriverThatIsTooOld) {
  machine().driver = cuda_emu::cudaErrorInsufficientDriver;
  machine().driver_version = 11040;
  expect_unusable("supports CUDA 11.4; this build needs 13.0 or newer");
}

TEST_F(Emulated, WithoutAGpu) {
  machine().driver = cuda_emu::cudaErrorNoDevice;
  machine().driver_version = 13000;
  expect_unusable("finds no GPU");
}

TEST_F(Emulated, WithAGpuThatIsTooOld) {
  machine().major = 6;
  machine().minor = 1;
  expect_unusable("The GPU is of architecture sm_61; this build has code for 75-virtual");
}

TEST_F(Emulated, NamesCodeOfAnOlderGeneration) {
  constexpr std::string_view kOlder = " with PTX of sm_90,";
  machine().major = 9;
  EXPECT_EQ(first().description.find(kOlder), std::string::npos) << first().description;
  machine().major = 10;
  EXPECT_NE(first().description.find(kOlder), std::string::npos) << first().description;
}

TEST(Architectures, CodeRunsWhereTheGuideSays) {
  using cuda_emu::code_for;
  EXPECT_EQ(code_for("75-virtual 80-real", 7, 5), 75);
  EXPECT_EQ(code_for("75-virtual 80-real", 12, 0), 75);
  EXPECT_EQ(code_for("75-virtual 80-real", 7, 0), 0);
  EXPECT_EQ(code_for("75-virtual 80-real 87-real", 8, 6), 80);
  EXPECT_EQ(code_for("80-real", 9, 0), 0);
  EXPECT_EQ(code_for("87-real", 8, 6), 0);
  EXPECT_EQ(code_for("90", 10, 0), 90);
}

// The blocks of a cooperative launch must fit on the GPU at once: 1,536 threads and 100 KiB of
// shared memory on every multiprocessor of an emulated sm_80, of which the system takes 1 KiB per
// block.
TEST_F(Emulated, ACooperativeLaunchMustFitOnTheGpu) {
  using namespace cuda_emu;
  machine().processors = 3;
  machine().major = 8;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const auto launched = [&](unsigned blocks, unsigned threads, unsigned shared_bytes) {
    return launch_kernel(
        "test", dim3(blocks), dim3(threads), stream, [] {}, shared_bytes, nullptr, true);
  };
  EXPECT_EQ(launched(6, 768, 0), cudaSuccess);
  EXPECT_EQ(launched(7, 768, 0), cudaErrorCooperativeLaunchTooLarge);
  EXPECT_EQ(launched(6, 32, 48 << 10), cudaSuccess);
  EXPECT_EQ(launched(7, 32, 48 << 10), cudaErrorCooperativeLaunchTooLarge);
  machine().has_cooperative_launch = false;
  EXPECT_EQ(launched(1, 32, 0), cudaErrorNotSupported);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Emulated, ADeviceNumberThatIsNotThere) {
  const auto device = Device::open("cuda-emu:7");
  EXPECT_EQ(device.status().code(), Code::bad_argument);
  EXPECT_NE(device.status().message().find("cuda-emu:7"), std::string::npos);
  EXPECT_NE(device.status().message().find("cuda-emu:0"), std::string::npos);
}

TEST_F(Emulated, AGpuWithoutMemoryLeftNamesTheBytes) {
  machine().memory_bytes = 16000;
  const Device device = must(Device::open("cuda-emu:0"));
  Seed s = universal(4, 64);
  const Status moved = s.model.to(device);
  EXPECT_EQ(moved.code(), Code::out_of_memory);
  EXPECT_NE(moved.message().find("16384 bytes were requested, but the GPU has 16000 of 16000 left"),
            std::string::npos)
      << moved.message();
  // Smaller work continues, and so does the model on its old device.
  Seed small = lm32();
  EXPECT_OK(small.model.to(device));
  EXPECT_OK(s.model.to(must(Device::open("cpu"))));
}

TEST_F(Emulated, AFaultOfAKernelPoisonsTheDeviceAndNothingElse) {
  const Device device = must(Device::open("cuda-emu:0"));
  Seed s = lm32();
  ASSERT_OK(s.model.to(device));
  Trainer t = must(Trainer::create(s.model, device, plain_sgd(0.1f)));
  step(t, s);
  machine().next_wait = cuda_emu::cudaErrorIllegalAddress;
  const std::vector<Tensor> batch = s.batch();
  const Result<float> first_loss = t.evaluate(batch);
  EXPECT_EQ(first_loss.status().code(), Code::device_poisoned);
  EXPECT_NE(first_loss.status().message().find("restart the process"), std::string::npos)
      << first_loss.status().message();
  // Every later call fails at once with the same message: no kernel runs any more.
  const uint64_t submits = device.counters().submits;
  EXPECT_EQ(t.evaluate(batch).status().code(), Code::device_poisoned);
  EXPECT_EQ(s.model.to(must(Device::open("cpu"))).code(), Code::device_poisoned);
  EXPECT_EQ(device.counters().submits, submits);
  // The other devices continue.
  Seed other = lm32();
  const Device cpu = must(Device::open("cpu"));
  ASSERT_OK(other.model.to(cpu));
  Trainer on_cpu = must(Trainer::create(other.model, cpu, plain_sgd(0.1f)));
  step(on_cpu, other);
}

TEST_F(Emulated, AnyErrorThatTheContextKeepsPoisonsTheDevice) {
  for (const cuda_emu::cudaError_t error :
       {cuda_emu::cudaErrorNvlinkUncorrectable, cuda_emu::cudaErrorContained,
        cuda_emu::cudaErrorUnknown}) {
    const Device device = must(Device::open("cuda-emu:0"));
    Seed s = lm32();
    machine().next_wait = error;
    EXPECT_EQ(s.model.to(device).code(), Code::device_poisoned) << error;
    EXPECT_EQ(Device::open("cuda-emu:0").status().code(), Code::device_poisoned) << error;
    cuda_emu::restart();
  }
}

TEST_F(Emulated, AnErrorThatTheContextForgetsPoisonsNothing) {
  const Device device = must(Device::open("cuda-emu:0"));
  Seed s = lm32();
  machine().next_wait = cuda_emu::cudaErrorInvalidValue;
  machine().next_wait_sticks = false;
  EXPECT_EQ(s.model.to(device).code(), Code::internal);
  EXPECT_OK(s.model.to(device));
}

TEST_F(Emulated, OutputsComeBackAndAreNotUploaded) {
  const Device device = must(Device::open("cuda-emu:0"));
  Model m;
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {1024});
  g.output("y", g.op("Exp", {x}));
  g.output("z", g.op("Neg", {x}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.to(device));
  Session session = must(Session::create(m, device, "forward", {}));
  std::vector<float> in(1024, 1.0f), y(1024), z(1024);
  const std::vector<Tensor> inputs = {tensor("x", {1024}, in)};
  const std::vector<Tensor> outputs = {tensor("y", {1024}, y), tensor("z", {1024}, z)};
  ASSERT_OK(session.run(inputs, outputs));
  const uint64_t before_in = machine().bytes_in;
  const uint64_t before_out = machine().bytes_out;
  ASSERT_OK(session.run(inputs, outputs));
  constexpr uint64_t kTensor = 4096, kPerStepScalars = 256;
  EXPECT_LE(machine().bytes_in - before_in, kTensor + kPerStepScalars);
  EXPECT_GE(machine().bytes_out - before_out, 2 * kTensor);
  EXPECT_EQ(z, std::vector<float>(1024, -1.0f));
}

TEST_F(Emulated, AStepIsTwoGraphsAndOneWait) {
  const Device device = must(Device::open("cuda-emu:0"));
  TinyLm lm = tiny_lm();
  ASSERT_OK(lm.model.to(device));
  TrainOptions o;
  o.dims = lm.dims();
  Trainer t = must(Trainer::create(lm.model, device, o));
  const uint64_t waits = machine().waits;
  const uint64_t graphs = machine().graph_launches;
  for (uint32_t i = 0; i < 5; ++i) {
    const std::vector<Tensor> batch = lm.data(i);
    const std::span<const Tensor> batches[] = {batch};
    (void)must(t.step(batches));
  }
  EXPECT_EQ(machine().waits, waits + 5);
  EXPECT_EQ(machine().graph_launches, graphs + 2 * 5);
}

// Early launches need sm_90 and a driver that knows them in graphs, and follow a kernel.
TEST_F(Emulated, AnEarlyLaunchFollowsAKernel) {
  using namespace cuda_emu;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const auto launched = [&](bool early) {
    return launch_kernel(
        "test", dim3(1), dim3(1), stream, [] {}, 0, nullptr, false, early);
  };
  EXPECT_EQ(launched(true), cudaErrorInvalidValue);
  EXPECT_EQ(launched(false), cudaSuccess);
  EXPECT_EQ(launched(true), cudaSuccess);
  float x = 0;
  EXPECT_EQ(cudaMemsetAsync(&x, 0, sizeof(x), stream), cudaSuccess);
  EXPECT_EQ(launched(true), cudaErrorInvalidValue);
  EXPECT_EQ(launched(false), cudaSuccess);
  machine().major = 8;
  EXPECT_EQ(launched(true), cudaErrorNotSupported);
  machine().major = 12;
  machine().driver_version = 12020;
  EXPECT_EQ(launched(true), cudaErrorNotSupported);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(machine().early_launches, 1u);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// Trains a few steps. Returns the launches that started early.
uint64_t early_launches_of_steps() {
  const Device device = must(Device::open("cuda-emu:0"));
  TinyLm lm = tiny_lm();
  EXPECT_OK(lm.model.to(device));
  TrainOptions o;
  o.dims = lm.dims();
  Trainer t = must(Trainer::create(lm.model, device, o));
  const uint64_t before = machine().early_launches;
  for (uint32_t i = 0; i < 2; ++i) {
    const std::vector<Tensor> batch = lm.data(i);
    const std::span<const Tensor> batches[] = {batch};
    (void)must(t.step(batches));
  }
  return machine().early_launches - before;
}

TEST_F(Emulated, LaunchesStartEarlyWhereTheMachineCan) {
  EXPECT_GT(early_launches_of_steps(), 20u);
  machine().driver_version = 12020;
  EXPECT_EQ(early_launches_of_steps(), 0u);
  machine().driver_version = 12030;
  EXPECT_GT(early_launches_of_steps(), 20u);
  machine().major = 8;
  EXPECT_EQ(early_launches_of_steps(), 0u);
}

// The time of a record must not include the wait for the record before.
TEST_F(Emulated, NoRecordStartsEarlyWhenItIsTimed) {
  const Device device = must(Device::open("cuda-emu:0"));
  Model m;
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {8});
  g.output("y", g.op("Softmax", {g.op("Softmax", {x})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.to(device));
  Session session = must(Session::create(m, device, "forward", {}));
  std::vector<float> in(8, 1.0f), y(8);
  const std::vector<Tensor> inputs = {tensor("x", {8}, in)};
  const std::vector<Tensor> outputs = {tensor("y", {8}, y)};
  ASSERT_OK(session.run(inputs, outputs));
  EXPECT_EQ(machine().early_launches, 1u);
  (void)must(session.profile(inputs));
  EXPECT_EQ(machine().early_launches, 1u);
}

TEST_F(Emulated, AWrongKernelIsAPoisonedDeviceWithItsNameAndReason) {
  cuda_emu::cudaStream_t stream = nullptr;
  ASSERT_EQ(cuda_emu::cudaStreamCreateWithFlags(&stream, 0), cuda_emu::cudaSuccess);
  ASSERT_EQ(cuda_emu::launch_kernel("half_a_barrier", cuda_emu::dim3(1), cuda_emu::dim3(64), stream,
                                    [] {
                                      if (threadIdx.x < 32) {
                                        cuda_emu::__syncthreads();
                                      }
                                    }),
            cuda_emu::cudaSuccess);
  EXPECT_EQ(cuda_emu::cudaStreamSynchronize(stream), cuda_emu::cudaErrorLaunchFailure);
  const std::string text = cuda_emu::cudaGetErrorString(cuda_emu::cudaErrorLaunchFailure);
  EXPECT_NE(text.find("half_a_barrier: Block (0, 0, 0): 32 of 64 threads reach the barrier"),
            std::string::npos)
      << text;
  EXPECT_EQ(cuda_emu::cudaSetDevice(0), cuda_emu::cudaErrorLaunchFailure);
  EXPECT_EQ(cuda_emu::cudaStreamDestroy(stream), cuda_emu::cudaSuccess);
}

TEST_F(Emulated, WorkIsDoneWhenSomebodyWaitsAndNotBefore) {
  cuda_emu::cudaStream_t stream = nullptr;
  ASSERT_EQ(cuda_emu::cudaStreamCreateWithFlags(&stream, 0), cuda_emu::cudaSuccess);
  int value = 0;
  ASSERT_EQ(cuda_emu::launch_kernel("set", cuda_emu::dim3(1), cuda_emu::dim3(1), stream,
                                    [&] { value = 1; }),
            cuda_emu::cudaSuccess);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(cuda_emu::cudaStreamSynchronize(stream), cuda_emu::cudaSuccess);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(cuda_emu::cudaStreamDestroy(stream), cuda_emu::cudaSuccess);
}

// Each thread has a stream. The machine counts the launches and bytes of all of them.
TEST_F(Emulated, SeveralThreadsUseTheMachine) {
  using namespace cuda_emu;
  constexpr uint64_t kThreads = 4, kLaunches = 4000;
  constexpr const char* kName = "a_name_that_needs_memory_of_its_own";
  const uint64_t blocks = machine().blocks, bytes_in = machine().bytes_in;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      cudaStream_t stream = nullptr;
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, 0), cudaSuccess);
      const int from = 7;
      int to = 0;
      for (uint64_t i = 0; i < kLaunches; ++i) {
        ASSERT_EQ(launch_kernel(kName, dim3(1), dim3(1), stream, [] {}), cudaSuccess);
        ASSERT_EQ(cudaMemcpyAsync(&to, &from, sizeof(to), cudaMemcpyHostToDevice, stream),
                  cudaSuccess);
        ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      }
      EXPECT_EQ(to, from);
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(machine().last.name, kName);
  EXPECT_EQ(machine().blocks - blocks, kThreads * kLaunches);
  EXPECT_EQ(machine().bytes_in - bytes_in, kThreads * kLaunches * sizeof(int));
}

TEST_F(Emulated, AWaitInsideACaptureInvalidatesIt) {
  cuda_emu::cudaStream_t stream = nullptr;
  ASSERT_EQ(cuda_emu::cudaStreamCreateWithFlags(&stream, 0), cuda_emu::cudaSuccess);
  ASSERT_EQ(cuda_emu::cudaStreamBeginCapture(stream, cuda_emu::cudaStreamCaptureModeThreadLocal),
            cuda_emu::cudaSuccess);
  EXPECT_EQ(cuda_emu::cudaStreamSynchronize(stream), cuda_emu::cudaErrorStreamCaptureUnsupported);
  cuda_emu::cudaGraph_t graph = nullptr;
  EXPECT_EQ(cuda_emu::cudaStreamEndCapture(stream, &graph),
            cuda_emu::cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cuda_emu::cudaStreamDestroy(stream), cuda_emu::cudaSuccess);
}

}  // namespace
}  // namespace bowline::test
