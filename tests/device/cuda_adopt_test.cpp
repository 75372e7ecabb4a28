// adopt_cuda() on the emulation: a context and a stream of the program.
#include "bowline/external.h"
#include "need.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::detail::cuda_emu {

// As in backends/cuda/emu/runtime.h, which needs the folder of the backend.
struct Context;
struct Stream;
Context* make_context();
void destroy_context(Context* context);
int push_context(void* context);
int pop_context(void** context);
Context* current_context();

namespace {

using test::Floats;
using test::must;
using test::tensor;

const device::Backend* emulation() {
  for (const device::Backend* backend : device::backends()) {
    if (backend->name() == "cuda-emu") {
      return backend;
    }
  }
  return nullptr;
}

TEST(AdoptCuda, RunsInTheContextOfTheProgram) {
  BOWLINE_NEED(test::why_missing("cuda-emu:0"));
  Context* const context = make_context();
  Context* const other = make_context();
  ASSERT_EQ(push_context(other), 0);  // the thread has a context of its own
  {
    ExternalCuda external;
    external.context = context;
    DeviceInfo info;
    std::unique_ptr<device::Device> adopted =
        must(emulation()->adopt(external, DeviceOptions(), &info));
    EXPECT_EQ(info.name, "cuda:external");
    EXPECT_EQ(current_context(), other);
    const Device device = test::wrap("cuda:external", std::move(adopted));
    Model model;
    GraphBuilder g(model, "forward");
    const Value x = g.input("x", DType::f32, {4});
    g.output("y", g.op("Add", {x, x}));
    ASSERT_OK(g.finish());
    ASSERT_OK(model.to(device));
    Session session = must(Session::create(model, device, "forward", {}));
    Floats in = {1, 2, 3, 4};
    Floats out(4);
    const Tensor input = tensor("x", {4}, in);
    const Tensor output = tensor("y", {4}, out);
    ASSERT_OK(session.run({&input, 1}, {&output, 1}));
    EXPECT_EQ(out, (Floats{2, 4, 6, 8}));
    EXPECT_EQ(current_context(), other);
  }
  EXPECT_EQ(current_context(), other);
  void* popped = nullptr;
  EXPECT_EQ(pop_context(&popped), 0);
  destroy_context(other);
  destroy_context(context);
}

// A run doubles four numbers of the program, in its memory on the GPU. Here the program takes
// its memory from Bowline.
TEST(AdoptCuda, RunsInTheMemoryOfTheProgram) {
  BOWLINE_NEED(test::why_missing("cuda-emu:0"));
  const Device device = test::open_test_device("cuda-emu:0");
  const DeviceBuffer memory = must(DeviceBuffer::create(device, 64));
  const uint64_t address = must(cuda_address(memory));
  Model model;
  GraphBuilder g(model, "forward");
  const Value x = g.input("x", DType::f32, {4});
  g.output("y", g.op("Add", {x, x}));
  ASSERT_OK(g.finish());
  ASSERT_OK(model.to(device));
  Session session = must(Session::create(model, device, "forward", {}));
  const Floats in = {1, 2, 3, 4};
  ASSERT_OK(memory.write(0, std::as_bytes(std::span(in))));
  {
    const DeviceBuffer from = must(adopt_cuda_memory(device, address, 16));
    const DeviceBuffer to = must(adopt_cuda_memory(device, address + 48, 16));
    EXPECT_EQ(must(cuda_address(to)), address + 48);
    const int64_t shape[] = {4};
    Tensor input{"x", DType::f32, {}}, output{"y", DType::f32, {}};
    input.shape = output.shape = shape;
    input.buffer = &from;
    output.buffer = &to;
    ASSERT_OK(session.run({&input, 1}, {&output, 1}));
  }
  // The memory still belongs to the program.
  Floats all(16);
  ASSERT_OK(memory.read(0, std::as_writable_bytes(std::span(all))));
  EXPECT_EQ(all, (Floats{1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 6, 8}));
}

TEST(AdoptCuda, WrongMemoryIsRefused) {
  BOWLINE_NEED(test::why_missing("cuda-emu:0"));
  const Device device = test::open_test_device("cuda-emu:0");
  const DeviceBuffer memory = must(DeviceBuffer::create(device, 64));
  const uint64_t address = must(cuda_address(memory));
  Floats host(4);
  const auto code = [&](uint64_t at, uint64_t bytes) {
    return test::status_of(adopt_cuda_memory(device, at, bytes)).code();
  };
  EXPECT_EQ(code(address, 64), Code::ok);
  EXPECT_EQ(code(address, 0), Code::ok);  // the memory was not freed
  EXPECT_EQ(code(0, 4), Code::bad_argument);
  EXPECT_EQ(code(address, 65), Code::bad_argument);
  EXPECT_EQ(code(address + 64, 0), Code::bad_argument);
  EXPECT_EQ(code(address, UINT64_MAX), Code::bad_argument);
  EXPECT_EQ(code(reinterpret_cast<uintptr_t>(host.data()), 16), Code::bad_argument);
  for (const std::string& name : test::usable({"cpu", "vulkan:0"})) {
    const Device other = test::open_test_device(name);
    EXPECT_EQ(test::status_of(adopt_cuda_memory(other, address, 64)).code(), Code::unsupported);
    const DeviceBuffer there = must(DeviceBuffer::create(other, 64));
    EXPECT_EQ(test::status_of(cuda_address(there)).code(), Code::unsupported);
  }
  EXPECT_EQ(test::status_of(adopt_vulkan_buffer(device, address, 0, 64)).code(), Code::unsupported);
}

TEST(AdoptCuda, WrongContextsAreRefused) {
  BOWLINE_NEED(test::why_missing("cuda-emu:0"));
  DeviceInfo info;
  ExternalCuda external;
  const auto message = [&] {
    const Status status = test::status_of(emulation()->adopt(external, DeviceOptions(), &info));
    EXPECT_EQ(status.code(), Code::bad_argument);
    return status.message();
  };
  EXPECT_EQ(message(), "ExternalCuda::context is null.");
  Context* const context = make_context();
  destroy_context(context);
  external.context = context;
  EXPECT_EQ(message(), "The CUcontext of the program is not valid (CUresult 201).");
  EXPECT_EQ(current_context(), nullptr);
}

}  // namespace
}  // namespace bowline::detail::cuda_emu
