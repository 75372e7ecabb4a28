// Buffers of devices, submitted runs, and objects of the program.
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "world.h"

namespace c_test {
namespace {

constexpr uint64_t kPointBytes = sizeof(float) * kBatch * kWidth;
constexpr uint64_t kScoreBytes = sizeof(float) * kBatch * kClasses;
constexpr int64_t kScoreShape[] = {kBatch, kClasses};

bowline_tensor scores_in(bowline_device_buffer* buffer) {
  auto out = sized<bowline_tensor>();
  out.name = "scores";
  out.dtype = BOWLINE_F32;
  out.rank = 2;
  out.shape = kScoreShape;
  out.bytes = kScoreBytes;
  out.buffer = buffer;
  return out;
}

struct Buffers {
  Buffers() {
    must(api()->device_buffer_create, world.h.device, kPointBytes, &points);
    must(api()->device_buffer_create, world.h.device, kScoreBytes, &scores);
    must(api()->device_buffer_write, points, uint64_t{0}, static_cast<const void*>(batch.points),
         kPointBytes);
    inputs[0] = batch.tensors[0];
    inputs[1] = batch.tensors[1];
    inputs[0].data = nullptr;
    inputs[0].buffer = points;
    output = scores_in(scores);
  }
  ~Buffers() {
    must(api()->device_buffer_close, points);
    must(api()->device_buffer_close, scores);
  }
  std::vector<float> read() {
    std::vector<float> out(kBatch * kClasses);
    must(api()->device_buffer_read, scores, uint64_t{0}, static_cast<void*>(out.data()),
         kScoreBytes);
    return out;
  }
  World world;
  const Batch batch;
  bowline_device_buffer* points = nullptr;
  bowline_device_buffer* scores = nullptr;
  bowline_tensor inputs[2];
  bowline_tensor output;
};

TEST(Buffers, AreInputsAndOutputs) {
  Buffers b;
  must(api()->session_run, b.world.h.session, nullptr, b.inputs, 2, &b.output, 1, nullptr, 0,
       nullptr, 0);
  EXPECT_EQ(b.read(), scores_of(b.world.h.session));
  uint64_t bytes = 0;
  must(api()->device_buffer_bytes, b.points, &bytes);
  EXPECT_EQ(bytes, kPointBytes);
}

TEST(Buffers, WrongOnesAreRefused) {
  Buffers b;
  float value = 0;
  expect_error(call(api()->device_buffer_write, b.points, kPointBytes,
                    static_cast<const void*>(&value), uint64_t{4}),
               BOWLINE_BAD_ARGUMENT, "do not fit into a buffer");
  expect_error(call(api()->device_buffer_read, b.points, uint64_t{0}, static_cast<void*>(nullptr),
                    uint64_t{4}),
               BOWLINE_BAD_ARGUMENT, "NULL");
  b.inputs[0].offset = 4;
  expect_error(call(api()->session_run, b.world.h.session, nullptr, b.inputs, 2, nullptr, 0,
                    nullptr, 0, nullptr, 0),
               BOWLINE_BAD_ARGUMENT, "from offset 4 on");
  bowline_device_buffer* closed = nullptr;
  must(api()->device_buffer_create, b.world.h.device, uint64_t{64}, &closed);
  must(api()->device_buffer_close, closed);
  b.inputs[0].buffer = closed;
  expect_error(call(api()->session_run, b.world.h.session, nullptr, b.inputs, 2, nullptr, 0,
                    nullptr, 0, nullptr, 0),
               BOWLINE_BAD_ARGUMENT, "closed");
}

// Counts the calls of a callback, and remembers the last message.
struct Done {
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  bowline_code code = -1;
  std::string message;

  static void call(void* user, bowline_code code, const char* message) {
    auto& done = *static_cast<Done*>(user);
    const std::lock_guard lock(done.mutex);
    ++done.calls;
    done.code = code;
    done.message = message;
    done.changed.notify_all();
  }
  void wait(int wanted) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return calls >= wanted; });
  }
};

TEST(SubmittedRuns, EndWithACallback) {
  Buffers b;
  Done done;
  bowline_pending_run* run = nullptr;
  must(api()->session_submit, b.world.h.session, nullptr, b.inputs, 2, &b.output, 1, nullptr, 0,
       nullptr, 0, Done::call, static_cast<void*>(&done), &run);
  must(api()->pending_run_wait, run);
  int32_t ended = 0;
  must(api()->pending_run_done, run, &ended);
  EXPECT_EQ(ended, 1);
  done.wait(1);
  EXPECT_EQ(done.code, BOWLINE_OK);
  EXPECT_EQ(done.message, "");
  EXPECT_EQ(b.read(), scores_of(b.world.h.session));
  must(api()->pending_run_close, run);
  expect_error(call(api()->pending_run_wait, run), BOWLINE_BAD_ARGUMENT, "closed");
  // A run that nobody keeps.
  must(api()->session_submit, b.world.h.session, "other", nullptr, 0, nullptr, 0, nullptr, 0,
       nullptr, 0, Done::call, static_cast<void*>(&done),
       static_cast<bowline_pending_run**>(nullptr));
  done.wait(2);
  EXPECT_EQ(done.code, BOWLINE_BAD_ARGUMENT);
  EXPECT_NE(done.message.find("other"), std::string::npos) << done.message;
}

TEST(Buffers, OfTheCpuHaveAnAddress) {
  World world;
  void* data = nullptr;
  bowline_device_buffer* buffer = nullptr;
  must(api()->create_host_buffer, world.h.device, uint64_t{8}, &data, &buffer);
  const float values[] = {3, 5};
  must(api()->device_buffer_write, buffer, uint64_t{0}, static_cast<const void*>(values),
       uint64_t{8});
  EXPECT_EQ(static_cast<const float*>(data)[1], 5);
  must(api()->device_buffer_close, buffer);
  void** const nowhere = nullptr;
  expect_error(call(api()->create_host_buffer, world.h.device, uint64_t{8}, nowhere, &buffer),
               BOWLINE_BAD_ARGUMENT, "data");
}

TEST(Buffers, OfTheCpuHaveNoCudaAddress) {
  World world;
  void* data = nullptr;
  uint64_t address = 7;
  bowline_device_buffer* buffer = nullptr;
  must(api()->create_host_buffer, world.h.device, uint64_t{8}, &data, &buffer);
  expect_error(call(api()->cuda_address, buffer, &address), BOWLINE_UNSUPPORTED, "CUDA");
  EXPECT_EQ(address, 7u);
  uint64_t* const nowhere = nullptr;
  expect_error(call(api()->cuda_address, buffer, nowhere), BOWLINE_BAD_ARGUMENT, "out");
  must(api()->device_buffer_close, buffer);
  expect_error(call(api()->adopt_cuda_memory, world.h.device, uint64_t{64}, uint64_t{8}, &buffer),
               BOWLINE_UNSUPPORTED, "");
}

struct Heap {
  size_t live = 0;
  size_t calls = 0;
  size_t left = SIZE_MAX;
};

TEST(Allocator, OwnsTheMemoryOfTheCpu) {
  Heap heap;
  auto options = sized<bowline_device_options>();
  must(api()->device_options_init, &options);
  options.allocator_user = &heap;
  options.allocate = [](void* user, size_t bytes, size_t alignment) -> void* {
    auto& h = *static_cast<Heap*>(user);
    ++h.calls;
    h.live += bytes;
    return std::aligned_alloc(alignment, bytes);
  };
  bowline_device* device = nullptr;
  expect_error(call(api()->device_open, "cpu", &options, &device), BOWLINE_BAD_ARGUMENT,
               "only one of allocate() and free()");
  options.deallocate = [](void* user, void* memory, size_t bytes) {
    static_cast<Heap*>(user)->live -= bytes;
    std::free(memory);
  };
  must(api()->device_open, "cpu", &options, &device);
  bowline_device_buffer* buffer = nullptr;
  must(api()->device_buffer_create, device, uint64_t{100}, &buffer);
  EXPECT_EQ(heap.live, 128u);
  must(api()->device_buffer_close, buffer);
  EXPECT_EQ(heap.live, 0u);
  EXPECT_EQ(heap.calls, 1u);
  must(api()->device_close, device);
}

TEST(External, OtherObjectsAreRefused) {
  World world;
  auto vulkan = sized<bowline_external_vulkan>();
  bowline_device* device = nullptr;
  const bowline_device_options* const defaults = nullptr;
  const Outcome adopted = call(api()->adopt_vulkan, &vulkan, defaults, &device);
  EXPECT_TRUE(adopted.code == BOWLINE_BAD_ARGUMENT || adopted.code == BOWLINE_UNSUPPORTED);
  EXPECT_NE(adopted.message, "");
  vulkan.size = 4;
  expect_error(call(api()->adopt_vulkan, &vulkan, defaults, &device), BOWLINE_BAD_ARGUMENT, "size");
  bowline_device_buffer* buffer = nullptr;
  expect_error(
      call(api()->create_exportable, world.h.device, uint64_t{64}, BOWLINE_OPAQUE_FD, &buffer),
      BOWLINE_UNSUPPORTED, "does not share memory");
  expect_error(call(api()->create_exportable, world.h.device, uint64_t{64}, 7, &buffer),
               BOWLINE_BAD_ARGUMENT, "kind has no value 7");
  bowline_device_semaphore* semaphore = nullptr;
  expect_error(call(api()->device_semaphore_import_fd, world.h.device, -1, 1, &semaphore),
               BOWLINE_UNSUPPORTED, "does not share semaphores");
}

}  // namespace
}  // namespace c_test
