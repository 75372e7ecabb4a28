// DeviceBuffer: inputs and outputs that stay on the device.
#include "bowline/external.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

// "forward": y = 3 x for x [rows, width].
struct Tripled {
  explicit Tripled(const Device& on, bool dynamic = false) : device(on) {
    const Parameter w = must(model.parameter("w", {1}, Init::ones()));
    for (const char* const dim : {"rows", "width"}) {
      EXPECT_OK(model.set_dim_limits(dim, {1, 64, dynamic}));
    }
    GraphBuilder g(model, "forward");
    const Value x = g.input("x", DType::f32, {"rows", "width"});
    const Value twice = g.op("Add", {x, x});
    g.output("y", g.op("Add", {g.op("Mul", {x, g.parameter(w)}), twice}));
    EXPECT_OK(g.finish());
    EXPECT_OK(model.materialize(1));
    EXPECT_OK(model.to(device));
  }
  Session session(int64_t rows, int64_t width) {
    const BoundDim dims[] = {{"rows", rows}, {"width", width}};
    return must(Session::create(model, device, "forward", dims));
  }
  Device device;
  Model model;
};

Floats quarters(size_t n) {
  Floats out;
  for (size_t i = 0; i < n; ++i) {
    out.push_back(static_cast<float>(i) / 4 - 3);
  }
  return out;
}

Floats times(Floats values, float factor) {
  for (float& v : values) {
    v *= factor;
  }
  return values;
}

DeviceBuffer buffer_of(const Device& device, const Floats& values, uint64_t offset = 0) {
  DeviceBuffer buffer = must(DeviceBuffer::create(device, offset + values.size() * 4));
  EXPECT_OK(buffer.write(offset, std::as_bytes(std::span(values))));
  return buffer;
}

Floats floats_in(const DeviceBuffer& buffer, uint64_t offset, size_t count) {
  Floats out(count);
  EXPECT_OK(buffer.read(offset, std::as_writable_bytes(std::span(out))));
  return out;
}

Tensor in_buffer(std::string_view name, const Dims& shape, const DeviceBuffer& buffer,
                 uint64_t offset = 0) {
  Tensor out{name, DType::f32, shape};
  out.buffer = &buffer;
  out.offset = offset;
  return out;
}

class Buffers : public OnDevice {};
BOWLINE_ON_ALL_DEVICES(Buffers);

TEST_P(Buffers, KeepBytesUntilTheLastCopyEnds) {
  const uint64_t before = device_.counters().live_bytes;
  {
    std::optional<DeviceBuffer> first = must(DeviceBuffer::create(device_, 4096));
    const DeviceBuffer second = *first;
    first.reset();
    EXPECT_EQ(device_.counters().live_bytes, before + 4096);
  }
  EXPECT_EQ(device_.counters().live_bytes, before);
  const DeviceBuffer buffer = must(DeviceBuffer::create(device_, 24));
  EXPECT_EQ(buffer.bytes(), 24u);
  EXPECT_EQ(floats_in(buffer, 0, 6), Floats(6));
  const Floats two = {5, 7};
  const DeviceBuffer copy = buffer;
  ASSERT_OK(copy.write(8, std::as_bytes(std::span(two))));
  EXPECT_EQ(floats_in(buffer, 0, 6), (Floats{0, 0, 5, 7, 0, 0}));
}

// A run of two sessions: the output of the first is the input of the second. Only the per-step
// scalars are copied between host and device.
TEST_P(Buffers, ConnectTwoSessions) {
  Tripled m(device_);
  Session first = m.session(4, 8);
  Session second = m.session(4, 8);
  const Floats x = quarters(32);
  const DeviceBuffer in = buffer_of(device_, x, 4);
  const DeviceBuffer between = must(DeviceBuffer::create(device_, 32 * 4));
  const DeviceBuffer out = must(DeviceBuffer::create(device_, 32 * 4 + 64));
  device_.reset_counters();
  const Tensor inputs[] = {in_buffer("x", {4, 8}, in, 4), in_buffer("x", {4, 8}, between)};
  const Tensor outputs[] = {in_buffer("y", {4, 8}, between), in_buffer("y", {4, 8}, out, 64)};
  ASSERT_OK(first.run({&inputs[0], 1}, {&outputs[0], 1}));
  ASSERT_OK(second.run({&inputs[1], 1}, {&outputs[1], 1}));
  const DeviceCounters counters = device_.counters();
  EXPECT_EQ(counters.copies_in, 2u);
  EXPECT_EQ(counters.copies_out, 2u);
  EXPECT_EQ(floats_in(between, 0, 32), times(x, 3));
  EXPECT_EQ(floats_in(out, 64, 32), times(x, 9));
  EXPECT_EQ(floats_in(in, 4, 32), x);
  // With host memory on one side.
  Floats host = x;
  Floats y(32);
  const Tensor host_input = tensor("x", {4, 8}, host);
  const Tensor host_output = tensor("y", {4, 8}, y);
  ASSERT_OK(first.run({&host_input, 1}, {&outputs[0], 1}));
  ASSERT_OK(first.run({&inputs[1], 1}, {&host_output, 1}));
  EXPECT_EQ(y, times(x, 9));
}

// The rows of a smaller run are not those of the plan.
TEST_P(Buffers, HaveTheShapeOfTheRun) {
  Tripled m(device_, true);
  Session session = m.session(4, 8);
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{4, 8}, {3, 5}, {1, 8}, {4, 1}}) {
    SCOPED_TRACE(testing::Message() << rows << " " << width);
    const auto count = static_cast<size_t>(rows * width);
    const Floats x = quarters(count);
    const DeviceBuffer in = buffer_of(device_, x);
    const DeviceBuffer out = must(DeviceBuffer::create(device_, count * 4 + 4));
    const Tensor input = in_buffer("x", {rows, width}, in);
    const Tensor output = in_buffer("y", {rows, width}, out);
    ASSERT_OK(session.run({&input, 1}, {&output, 1}));
    Floats right = times(x, 3);
    right.push_back(0);  // what follows the output is not written
    EXPECT_EQ(floats_in(out, 0, count + 1), right);
  }
}

TEST_P(Buffers, HaveAnAddressOnlyOnTheCpu) {
  const Result<HostBuffer> made = create_host_buffer(device_, 24);
  if (device_.info().name == "cpu") {
    EXPECT_OK(made);
    return;
  }
  EXPECT_EQ(made.status().code(), Code::unsupported);
  EXPECT_EQ(made.status().message(), "The program cannot address the memory of device " +
                                         device_.info().name + ". Use DeviceBuffer::create().");
}

// The program and the runs use the same bytes.
TEST(BuffersOnTheCpu, ShareTheirAddress) {
  const Device cpu = open_test_device("cpu");
  const uint64_t before = cpu.counters().live_bytes;
  Tripled m(cpu);
  Session session = m.session(2, 2);
  {
    const HostBuffer x = must(create_host_buffer(cpu, 16));
    const HostBuffer y = must(create_host_buffer(cpu, 16));
    const std::span values(static_cast<float*>(x.data), 4);
    const std::span results(static_cast<const float*>(y.data), 4);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data) % 64, 0u);
    EXPECT_EQ(Floats(values.begin(), values.end()), Floats(4));
    std::ranges::copy(Floats{1, -2, 3, 4}, values.begin());
    const Tensor input = in_buffer("x", {2, 2}, x.buffer);
    const Tensor output = in_buffer("y", {2, 2}, y.buffer);
    ASSERT_OK(session.run({&input, 1}, {&output, 1}));
    EXPECT_EQ(Floats(results.begin(), results.end()), (Floats{3, -6, 9, 12}));
    EXPECT_EQ(floats_in(x.buffer, 0, 4), (Floats{1, -2, 3, 4}));
    const DeviceBuffer again = x.buffer;
    EXPECT_EQ(again.bytes(), 16u);
  }
  const uint64_t of_session = cpu.counters().live_bytes;
  const HostBuffer more = must(create_host_buffer(cpu, 1000));
  EXPECT_EQ(cpu.counters().live_bytes, of_session + 1000);
  EXPECT_GT(of_session, before);
}

TEST(BuffersOnTheCpu, OfAbsurdSizesAreRefused) {
  const Device cpu = open_test_device("cpu");
  const Device small = open_test_device("cpu", 1, uint64_t{16} << 20);
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - 63, uint64_t{1} << 60}) {
    SCOPED_TRACE(bytes);
    EXPECT_EQ(DeviceBuffer::create(cpu, bytes).status().code(), Code::out_of_memory);
    EXPECT_EQ(create_host_buffer(cpu, bytes).status().code(), Code::out_of_memory);
    EXPECT_EQ(create_host_buffer(small, bytes).status().code(), Code::over_budget);
  }
  const DeviceBuffer none = must(DeviceBuffer::create(cpu, 0));
  EXPECT_EQ(none.bytes(), 0u);
  EXPECT_OK(none.write(0, {}));
  EXPECT_EQ(none.write(1, {}).code(), Code::bad_argument);
}

TEST(BuffersOnTheCpu, ThatDoNotFitAreRefused) {
  const Device cpu = open_test_device("cpu");
  Tripled m(cpu);
  Session session = m.session(2, 2);
  const DeviceBuffer buffer = buffer_of(cpu, {1, 2, 3, 4});
  const std::string device = cpu.info().name;
  Floats host(4);
  const auto message = [&](const Tensor& input, const Tensor& output) {
    const Status status = session.run({&input, 1}, {&output, 1});
    EXPECT_EQ(status.code(), Code::bad_argument);
    return status.message();
  };
  const Tensor x = in_buffer("x", {2, 2}, buffer);
  const Tensor y = in_buffer("y", {2, 2}, buffer);
  EXPECT_EQ(message(in_buffer("x", {2, 2}, buffer, 4), y),
            "Input \"x\" needs 16 bytes from offset 4 on, but its buffer has 16 bytes.");
  EXPECT_EQ(message(x, in_buffer("y", {2, 2}, buffer, UINT64_MAX)),
            "Output \"y\" needs 16 bytes from offset 18446744073709551615 on, but its buffer has "
            "16 bytes.");
  Tensor both = x;
  both.data = host.data();
  EXPECT_EQ(message(both, y), "Input \"x\" has data and a buffer. Set only one of them.");
  Tensor other_type = x;
  other_type.dtype = DType::i32;
  EXPECT_EQ(message(other_type, y), "Input \"x\" is i32[2,2], not f32[2,2].");
  EXPECT_EQ(message(x, in_buffer("y", {4}, buffer)), "Output \"y\" is f32[4], not f32[2,2].");
  DeviceBuffer moved = buffer;
  const DeviceBuffer to = std::move(moved);
  EXPECT_EQ(message(in_buffer("x", {2, 2}, moved), y),
            "Input \"x\" is in a buffer that is empty: it was moved from.");
  const Device other = open_test_device("cpu");
  const DeviceBuffer elsewhere = must(DeviceBuffer::create(other, 16));
  EXPECT_EQ(message(in_buffer("x", {2, 2}, elsewhere), y),
            "Input \"x\" is in a buffer on device " + device +
                ", opened by another call, but the session runs on " + device + ".");
  EXPECT_EQ(floats_in(buffer, 0, 4), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(to.bytes(), 16u);
}

TEST(BuffersOnTheCpu, CopiesOutsideAreRefused) {
  const Device cpu = open_test_device("cpu");
  const DeviceBuffer buffer = must(DeviceBuffer::create(cpu, 16));
  Floats two(2);
  const Status written = buffer.write(12, std::as_bytes(std::span(two)));
  EXPECT_EQ(written.code(), Code::bad_argument);
  EXPECT_EQ(written.message(), "8 bytes at offset 12 do not fit into a buffer of 16 bytes.");
  const Status read = buffer.read(UINT64_MAX, std::as_writable_bytes(std::span(two)));
  EXPECT_EQ(read.message(),
            "8 bytes at offset 18446744073709551615 do not lie in a buffer of 16 bytes.");
  DeviceBuffer moved = buffer;
  const DeviceBuffer to = std::move(moved);
  EXPECT_EQ(moved.bytes(), 0u);
  EXPECT_EQ(moved.write(0, {}).code(), Code::bad_argument);
  EXPECT_EQ(DeviceBuffer::create(Internals::device(nullptr), 4).status().message(),
            "The device is empty: it was moved from.");
}

TEST(BuffersOnTheCpu, CountInTheMemoryBudget) {
  const Device small = open_test_device("cpu", 1, (uint64_t{8} << 20) + 1000);
  EXPECT_OK(DeviceBuffer::create(small, 1000));
  EXPECT_EQ(DeviceBuffer::create(small, uint64_t{8} << 20 | 2000).status().code(),
            Code::over_budget);
}

TEST(BuffersOnTheCpu, AreNoValuesOfParametersOrBatches) {
  const Device cpu = open_test_device("cpu");
  Seed s = lm32();
  ASSERT_OK(s.model.to(cpu));
  const DeviceBuffer buffer = must(DeviceBuffer::create(cpu, 4096));
  const ParameterInfo first = must(s.model.describe()).parameters[0];
  Tensor value{"", first.dtype, first.shape};
  value.buffer = &buffer;
  const std::string right = "The tensor for parameter \"" + first.name +
                            "\" is in a buffer of a device. Pass values in host memory.";
  EXPECT_EQ(s.model.set_value(first.name, value).message(), right);
  EXPECT_EQ(s.model.assign(first.name, value).message(), right);
}

}  // namespace
}  // namespace bowline::test
