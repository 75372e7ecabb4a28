// Callbacks that call back, throw, fail, and run while another thread calls.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "world.h"

namespace c_test {
namespace {

using Work = std::function<bowline_code(bowline_error**)>;

bowline_code hook(void* user, const char*, float*, uint64_t, bowline_error** error) {
  return (*static_cast<Work*>(user))(error);
}

// Takes a step whose gradient hook does `work`.
Outcome step_with(const World& world, Work work) {
  must(api()->trainer_set_gradient_hook, world.h.trainer, hook, &work);
  const Batch batch;
  const Outcome out = call(api()->trainer_micro_step, world.h.trainer, batch.tensors, 2, nullptr, 0,
                           nullptr, nullptr);
  must(api()->trainer_set_gradient_hook, world.h.trainer, nullptr, nullptr);
  return out;
}

// The library works after a failed callback.
void expect_steps(const World& world) {
  const Outcome done = step_with(world, [](bowline_error**) { return BOWLINE_OK; });
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
  scores_of(world.h.session);
}

TEST(Callbacks, AnotherThreadIsRefusedDuringACall) {
  World world;
  int calls = 0;
  const Outcome done = step_with(world, [&](bowline_error**) {
    std::thread([&] {
      ++calls;
      bowline_buffer* out = nullptr;
      expect_error(call(api()->model_describe, world.h.model, &out), BOWLINE_BAD_ARGUMENT,
                   "Another thread uses the model");
      expect_error(call(api()->session_close, world.h.session), BOWLINE_BAD_ARGUMENT,
                   "Another thread");
      must(api()->device_info, world.h.device, &out);
      EXPECT_NE(text_of(out).find("cpu"), std::string::npos);
      // Another model is another family.
      api()->model_close(make_model(), nullptr);
    }).join();
    return BOWLINE_OK;
  });
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
  EXPECT_GT(calls, 0);
  expect_steps(world);
}

TEST(Callbacks, ACallbackCannotUseItsModel) {
  World world;
  const Outcome done = step_with(world, [&](bowline_error**) {
    uint64_t steps = 7;
    expect_error(call(api()->trainer_steps, world.h.trainer, &steps), BOWLINE_BAD_ARGUMENT,
                 "A callback of the model calls");
    EXPECT_EQ(steps, 7u);
    for (const Outcome& closed :
         {call(api()->model_close, world.h.model), call(api()->trainer_close, world.h.trainer)}) {
      expect_error(closed, BOWLINE_BAD_ARGUMENT, "A callback of the model calls");
    }
    return BOWLINE_OK;
  });
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
  expect_steps(world);
}

TEST(Callbacks, AnExceptionBecomesInternal) {
  World world;
  expect_error(
      step_with(world, [](bowline_error**) -> bowline_code { throw std::runtime_error("no"); }),
      BOWLINE_INTERNAL, "A callback of the program threw an exception.");
  expect_steps(world);
}

TEST(Callbacks, TheErrorOfACallbackComesBack) {
  World world;
  expect_error(step_with(world,
                         [](bowline_error** error) {
                           *error = api()->error_create(BOWLINE_NON_FINITE, "The program says no.");
                           return BOWLINE_NON_FINITE;
                         }),
               BOWLINE_NON_FINITE, "The program says no.");
  expect_steps(world);
  expect_error(step_with(world, [](bowline_error**) { return BOWLINE_IO_ERROR; }), BOWLINE_IO_ERROR,
               "A callback of the program returned 8.");
  expect_steps(world);
  expect_error(step_with(world, [](bowline_error**) { return bowline_code{99}; }),
               BOWLINE_BAD_ARGUMENT, "A callback of the program returned 99.");
  expect_steps(world);
  // An error without a code is freed and does not count.
  const Outcome done = step_with(world, [](bowline_error** error) {
    *error = api()->error_create(BOWLINE_IO_ERROR, "Ignored.");
    return BOWLINE_OK;
  });
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
}

TEST(Callbacks, AnyThreadCancelsATrainer) {
  World world;
  const Outcome done = step_with(world, [&](bowline_error**) {
    std::thread([&] { must(api()->trainer_cancel, world.h.trainer); }).join();
    return BOWLINE_OK;
  });
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
  EXPECT_EQ(step_with(world, [](bowline_error**) { return BOWLINE_OK; }).code, BOWLINE_CANCELLED);
  expect_steps(world);
}

TEST(Callbacks, AnyThreadCancelsASession) {
  World world;
  const std::vector<float> right = scores_of(world.h.session);
  std::thread([&] { must(api()->session_cancel, world.h.session); }).join();
  expect_error(call(api()->session_run, world.h.session, nullptr, nullptr, size_t{0}, nullptr,
                    size_t{0}, nullptr, size_t{0}, nullptr, size_t{0}),
               BOWLINE_BAD_ARGUMENT, "");  // the request stays
  const Batch batch;
  expect_error(call(api()->session_run, world.h.session, nullptr, batch.tensors, size_t{2}, nullptr,
                    size_t{0}, nullptr, size_t{0}, nullptr, size_t{0}),
               BOWLINE_CANCELLED, "The run was cancelled.");
  EXPECT_EQ(scores_of(world.h.session), right);
  must(api()->session_close, world.h.session);
  std::thread([&] {
    expect_error(call(api()->session_cancel, world.h.session), BOWLINE_BAD_ARGUMENT, "is closed");
  }).join();
  world.h.session = nullptr;
}

TEST(Callbacks, CopyingWaitsForACallInAnotherThread) {
  World world;
  bowline_model* const other = make_model();
  std::thread copies;
  std::atomic<bool> is_over = false;
  const Outcome done = step_with(world, [&](bowline_error**) {
    expect_error(call(api()->model_copy_values_from, other, world.h.model), BOWLINE_BAD_ARGUMENT,
                 "A callback of the model calls");
    if (!copies.joinable()) {  // the hook is called for each weight
      copies = std::thread([&] {
        must(api()->model_copy_values_from, other, world.h.model);
        EXPECT_TRUE(is_over);
      });
    }
    std::this_thread::yield();
    is_over = true;  // the copy begins after the step
    return BOWLINE_OK;
  });
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
  copies.join();
  for (const char* name : {"first.weight", "last.weight"}) {
    std::vector<std::vector<float>> found;
    for (bowline_model* const model : {other, world.h.model}) {
      const bool is_last = name[0] == 'l';
      std::vector<float>& value = found.emplace_back((is_last ? kClasses : kWidth) * kWidth);
      const int64_t shape[] = {is_last ? kClasses : kWidth, kWidth};
      const bowline_tensor out = {sizeof(out),  nullptr,          BOWLINE_F32, 2, shape,
                                  value.data(), 4 * value.size(), nullptr,     0};
      must(api()->model_get_value, model, name, &out);
    }
    EXPECT_EQ(found[0], found[1]) << name;
  }
  must(api()->model_copy_values_from, other, other);
  must(api()->model_close, other);
  expect_steps(world);
}

TEST(Callbacks, ALogAndAnExecutorAreCalled) {
  struct Seen {
    std::vector<std::pair<int32_t, std::string>> log;
    size_t tasks = 0;
  } seen;
  auto options = sized<bowline_device_options>();
  must(api()->device_options_init, &options);
  EXPECT_EQ(options.max_load, 1);
  options.threads = 2;
  options.log_user = options.executor_user = &seen;
  options.log = [](void* user, int32_t level, const char* message) {
    static_cast<Seen*>(user)->log.emplace_back(level, message);
  };
  options.executor = [](void* user, size_t count, bowline_task task, void* context) {
    static_cast<Seen*>(user)->tasks += count;
    for (size_t i = 0; i < count; ++i) {
      task(context, i);
    }
  };
  bowline_device* device = nullptr;
  must(api()->device_open, "cpu", &options, &device);
  ASSERT_EQ(seen.log.size(), 1u);
  EXPECT_EQ(seen.log[0].first, BOWLINE_LOG_INFO);
  EXPECT_EQ(seen.log[0].second.find("Opened device cpu: "), 0u);
  bowline_model* const model = make_model();
  must(api()->model_to, model, device, nullptr);
  bowline_session* const session = make_session(model, device);
  EXPECT_EQ(scores_of(session).size(), 8u);
  EXPECT_EQ(seen.log.size(), 2u);
  must(api()->session_close, session);
  must(api()->model_close, model);
  must(api()->device_close, device);
  options.executor = nullptr;
  options.core_count = 1;
  expect_error(call(api()->device_open, "cpu", &options, &device), BOWLINE_BAD_ARGUMENT,
               "The list of cores is NULL.");
  options.core_count = 0;
  options.max_load = 2;
  expect_error(call(api()->device_open, "cpu", &options, &device), BOWLINE_BAD_ARGUMENT,
               "DeviceOptions::max_load is 2, outside 0.05 to 1.");
}

TEST(Callbacks, APausedTrainerContinues) {
  World world;
  expect_steps(world);
  const std::string path = testing::TempDir() + "c_pause_" + std::to_string(getpid());
  auto progress = sized<bowline_progress>();
  progress.data_cursor = 7;
  must(api()->trainer_pause, world.h.trainer, path.c_str(), &progress, nullptr, size_t{0});
  int32_t state = -1;
  must(api()->trainer_state, world.h.trainer, &state);
  EXPECT_EQ(state, BOWLINE_PAUSED);
  must(api()->model_to, world.h.model, world.h.device, nullptr);
  must(api()->trainer_resume, world.h.trainer, path.c_str(), 0, &progress, nullptr);
  EXPECT_EQ(progress.data_cursor, 7u);
  expect_steps(world);
  std::remove(path.c_str());
}

// ----------------------------------------------------------------------------------------- loading

struct Loading {
  std::function<bowline_code(const bowline_tensor* value, const bowline_tensor** to,
                             bowline_error** error)>
      work;
  std::vector<std::string> names;
};

bowline_code load_hook(void* user, const char* of, const bowline_tensor* value,
                       const bowline_tensor** to, bowline_error** error) {
  auto& loading = *static_cast<Loading*>(user);
  loading.names.push_back(nlohmann::json::parse(of)["here"]["name"]);
  EXPECT_EQ(loading.names.back(), value->name);
  return loading.work(value, to, error);
}

struct LoadHooks : ::testing::Test {
  void SetUp() override { must(api()->model_save, world.h.model, path.c_str()); }
  void TearDown() override { std::remove(path.c_str()); }
  Outcome load() {
    auto options = sized<bowline_load_options>();
    must(api()->load_options_init, &options);
    options.hook = load_hook;
    options.user = &loading;
    return call(api()->model_load, world.h.model, path.c_str(), &options, nullptr);
  }
  std::vector<float> last_weight() {
    std::vector<float> out(kClasses * kWidth);
    const int64_t shape[] = {kClasses, kWidth};
    const bowline_tensor t = {sizeof(t),  nullptr,        BOWLINE_F32, 2, shape,
                              out.data(), 4 * out.size(), nullptr,     0};
    must(api()->model_get_value, world.h.model, "last.weight", &t);
    return out;
  }
  World world;
  Loading loading;
  // Tests run at the same time.
  std::string path = ::testing::TempDir() + "c_" +
                     ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".bowline";
};

TEST_F(LoadHooks, AHookReplacesAValue) {
  std::vector<float> ours(kClasses * kWidth, 0.5f);
  bowline_tensor replaced;
  loading.work = [&](const bowline_tensor* value, const bowline_tensor** to, bowline_error**) {
    replaced = *value;
    replaced.data = ours.data();
    if (loading.names.back() == "last.weight") {
      *to = &replaced;
    }
    return BOWLINE_OK;
  };
  const Outcome done = load();
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
  EXPECT_EQ(last_weight(), ours);
}

TEST_F(LoadHooks, AFailedHookChangesNothing) {
  const std::vector<float> before = last_weight();
  loading.work = [&](const bowline_tensor*, const bowline_tensor**, bowline_error** error) {
    // The sentence of a call inside of the hook is passed on.
    return api()->model_close(world.h.model, error);
  };
  expect_error(load(), BOWLINE_BAD_ARGUMENT, "A callback of the model calls");
  loading.work = [](const bowline_tensor*, const bowline_tensor**,
                    bowline_error**) -> bowline_code { throw 1; };
  expect_error(load(), BOWLINE_INTERNAL, "threw an exception");
  auto wrong = sized<bowline_tensor>();
  wrong.dtype = 99;
  loading.work = [&](const bowline_tensor*, const bowline_tensor** to, bowline_error**) {
    *to = &wrong;
    return BOWLINE_OK;
  };
  expect_error(load(), BOWLINE_BAD_ARGUMENT, "There is no dtype 99.");
  EXPECT_EQ(last_weight(), before);
  scores_of(world.h.session);
}

bowline_code throwing_source(void*, uint64_t, void*, uint64_t, bowline_error**) { throw 1; }

TEST(Callbacks, AThrowingSourceBecomesInternal) {
  World world;
  const Outcome done = call(api()->model_set_source, world.h.model, "last.weight", throwing_source,
                            nullptr, nullptr);
  expect_error(done.code == BOWLINE_OK
                   ? call(api()->model_save, world.h.model, (::testing::TempDir() + "x").c_str())
                   : done,
               BOWLINE_INTERNAL, "threw an exception");
}

}  // namespace
}  // namespace c_test
