// Every function with null, closed and wrong handles, and null pointers.
#include <cstring>
#include <set>
#include <string_view>

#include "world.h"

namespace c_test {
namespace {

Outcome made(const Call& c, const Handles& h) {
  bowline_error* error = nullptr;
  const bowline_code code = c.call(h, &error);
  EXPECT_EQ(code != BOWLINE_OK, error != nullptr) << c.name;
  return outcome_of(code, error);
}

bool is_sentence(const std::string& text) { return text.size() > 8 && text.back() == '.'; }

void expect_refused(const Call& c, const Outcome& done) {
  EXPECT_EQ(done.code, BOWLINE_BAD_ARGUMENT) << c.name << ": " << done.message;
  EXPECT_TRUE(is_sentence(done.message)) << c.name << ": " << done.message;
}

bool is_close(const Call& c) { return std::string_view(c.name).ends_with("_close"); }

// Sets each handle of `h` to `pointer`. Two texts follow the handles.
void set_all(Handles* h, void* pointer) {
  static_assert(sizeof(Handles) % sizeof(void*) == 0);
  for (size_t i = 0; i < sizeof(Handles) / sizeof(void*) - 2; ++i) {
    std::memcpy(reinterpret_cast<char*>(h) + i * sizeof(void*), &pointer, sizeof(void*));
  }
}

TEST(Calls, EveryFunctionIsCalled) {
  // version, code_name, dtype_name, dtype_size, three of buffers and four of errors.
  size_t others = 11;
  size_t members = sizeof(bowline_api) / sizeof(void*) - 1;
  members += sizeof(bowline_text_api) / sizeof(void*) - 1;
  if (import_api() != nullptr) {
    others += 3;  // names of formats, tasks and parts
    members += sizeof(bowline_import_api) / sizeof(void*) - 1;
    EXPECT_EQ(import_api()->size, sizeof(bowline_import_api));
  }
  EXPECT_EQ(std::size(kCalls) + others, members);
  EXPECT_EQ(api()->size, sizeof(bowline_api));
  EXPECT_EQ(bowline_get_api(0), nullptr);
  EXPECT_EQ(bowline_get_api(BOWLINE_API_VERSION + 1), nullptr);
  EXPECT_EQ(bowline_get_text_api(0), nullptr);
  EXPECT_EQ(bowline_get_import_api(0), nullptr);
  EXPECT_EQ(bowline_get_import_api(BOWLINE_API_VERSION + 1), nullptr);
  for (size_t i = 0; i < sizeof(bowline_api) / sizeof(void*); ++i) {
    void* member = nullptr;
    std::memcpy(&member, reinterpret_cast<const char*>(api()) + i * sizeof(void*), sizeof(void*));
    EXPECT_NE(member, nullptr) << i;
  }
}

TEST(Calls, FunctionsWithoutErrorsTakeAnything) {
  EXPECT_NE(std::strchr(api()->version(), '.'), nullptr);
  EXPECT_STREQ(api()->code_name(BOWLINE_BAD_FILE), "bad_file");
  EXPECT_STREQ(api()->code_name(BOWLINE_INTERNAL), "internal");
  EXPECT_STREQ(api()->code_name(99), "unknown");
  EXPECT_STREQ(api()->code_name(-1), "unknown");
  EXPECT_STREQ(api()->dtype_name(BOWLINE_BF16), "bf16");
  EXPECT_STREQ(api()->dtype_name(BOWLINE_NO_DTYPE), "unknown");
  EXPECT_EQ(api()->dtype_size(BOWLINE_I64), 8u);
  EXPECT_EQ(api()->dtype_size(99), 0u);
  EXPECT_EQ(api()->error_code(nullptr), BOWLINE_OK);
  EXPECT_STREQ(api()->error_message(nullptr), "");
  api()->error_free(nullptr);
  bowline_error* const error = api()->error_create(BOWLINE_IO_ERROR, nullptr);
  EXPECT_EQ(api()->error_code(error), BOWLINE_IO_ERROR);
  EXPECT_STREQ(api()->error_message(error), "");
  api()->error_free(error);
  EXPECT_EQ(api()->buffer_data(nullptr), nullptr);
  EXPECT_EQ(api()->buffer_size(nullptr), 0u);
  api()->buffer_free(nullptr);
}

TEST(Calls, NullHandlesAreRefused) {
  for (const Call& c : kCalls) {
    const Outcome done = made(c, {});
    if (is_close(c)) {
      EXPECT_EQ(done.code, BOWLINE_OK) << c.name << ": " << done.message;
    } else {
      expect_refused(c, done);
    }
    // The error itself may be null.
    EXPECT_EQ(c.call({}, nullptr), done.code) << c.name;
  }
}

// Calls for which no other argument is required.
const std::set<std::string_view> kHarmless = {
    "device_reset_counters", "model_materialize", "model_cast", "model_to", "model_offload",
    "model_replicate", "model_reset_counters", "model_restore_weight_format", "trainer_cancel",
    "device_buffer_write", "device_buffer_read", "session_submit", "pending_run_cancel",
    "session_cancel", "model_copy_values_from", "trainer_set_learning_rate",
    "trainer_set_gradient_hook", "trainer_snapshot", "trainer_rollback", "trainer_restart_step",
    "builder_last_outputs", "generator_feed", "generator_rewind", "generator_replace",
    "generator_tokens", "generator_set_sampler", "generator_cancel", "tokenizer_encode",
    // builder_finish() returns their errors.
    "builder_parameter", "builder_parameter_list", "builder_capture"};

TEST(Calls, NullPointersAreRefused) {
  World world;
  for (const Call& c : kCalls) {
    if (is_close(c)) {
      continue;
    }
    SCOPED_TRACE(c.name);
    const Outcome done = made(c, world.h);
    if (c.name == std::string_view("reset_tuning")) {
      expect_error(done, BOWLINE_UNSUPPORTED, "nothing to tune.");
    } else if (kHarmless.count(c.name) != 0) {
      EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
    } else {
      expect_refused(c, done);
    }
  }
  const Batch batch;
  expect_error(call(api()->session_run, world.h.session, nullptr, batch.tensors, size_t{2}, nullptr,
                    size_t{0}, nullptr, size_t{0}, nullptr, size_t{0}),
               BOWLINE_CANCELLED, "The run was cancelled.");  // by session_cancel()
  EXPECT_EQ(scores_of(world.h.session).size(), 8u);
}

// Calls that do something without their output.
const std::set<std::string_view> kOptionalOut = {
    "model_parameter",        "model_tied_parameter", "model_load_adapter",   "builder_input",
    "builder_parameter",      "builder_op",           "builder_last_outputs", "builder_repeat",
    "builder_parameter_list", "builder_capture",      "reset_tuning",         "tokenizer_encode",
    "generator_tokens"};

// With handles and texts, only the outputs and structs are missing.
TEST(Calls, NullOutputsAreRefused) {
  World world;
  world.h.text = "last.weight";
  world.h.path = "/no/folder/file";
  for (const Call& c : kCalls) {
    if (is_close(c)) {
      continue;
    }
    const Outcome done = made(c, world.h);
    EXPECT_TRUE(done.code == BOWLINE_OK || is_sentence(done.message)) << c.name << done.message;
    if (c.has_out && kOptionalOut.count(c.name) == 0) {
      expect_refused(c, done);
      EXPECT_NE(done.message.find("NULL"), std::string::npos) << c.name << ": " << done.message;
    }
  }
}

// A handle behind the first one may be null, too.
TEST(Calls, SecondHandlesAreChecked) {
  World world;
  Handles only;
  only.model = world.h.model;
  for (const Call& c : kCalls) {
    if (c.first == First::model && !is_close(c)) {
      const Outcome done = made(c, only);
      EXPECT_TRUE(done.code == BOWLINE_OK || is_sentence(done.message)) << c.name << done.message;
    }
  }
  expect_error(call(api()->model_to, only.model, nullptr, nullptr), BOWLINE_BAD_ARGUMENT,
               "The handle of the device is NULL");
}

TEST(Calls, ClosedHandlesAreRefused) {
  World world;
  const Handles closed = world.h;
  world.close();
  for (const Call& c : kCalls) {
    // Only Vulkan devices make a device_semaphore, and the world has the CPU.
    if (c.first != First::none && c.first != First::device_semaphore) {
      const Outcome done = made(c, closed);
      expect_refused(c, done);
      // A function that makes a handle checks "out" first.
      EXPECT_TRUE(done.message.find("is closed") != std::string::npos ||
                  std::string_view(c.name).ends_with("_create"))
          << c.name << done.message;
    }
  }
}

TEST(Calls, HandlesOfOtherKindsAreRefused) {
  World world;
  Handles other;
  set_all(&other, world.h.model);
  other.model = reinterpret_cast<bowline_model*>(world.h.session);
  Handles memory;
  alignas(16) char bytes[256] = "Not a handle.";
  set_all(&memory, bytes);
  for (const Call& c : kCalls) {
    if (c.first != First::none) {
      expect_refused(c, made(c, other));
      expect_refused(c, made(c, memory));
    }
  }
}

}  // namespace
}  // namespace c_test
