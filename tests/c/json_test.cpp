// Reports are JSON that says what the C++ structs say.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "world.h"

namespace c_test {
namespace {

using Json = nlohmann::json;

const Json* named(const Json& list, std::string_view name) {
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](const Json& item) { return item["name"] == name; });
  return at == list.end() ? nullptr : &*at;
}

TEST(Reports, AModelNamesItsTies) {
  World world;
  bowline_buffer* out = nullptr;
  must(api()->model_describe, world.h.model, &out);
  const Json model = Json::parse(text_of(out));
  const Json* const first = named(model["parameters"], "first.weight");
  const Json* const second = named(model["parameters"], "second.weight");
  const Json* const last = named(model["parameters"], "last.weight");
  ASSERT_TRUE(first != nullptr && second != nullptr && last != nullptr) << model;
  EXPECT_EQ((*first)["tie"], (*second)["tie"]);
  EXPECT_NE((*first)["tie"], (*last)["tie"]);
  EXPECT_EQ((*first)["shape"], Json({kWidth, kWidth}));
  ASSERT_EQ(model["ties"].size(), 1u);
  EXPECT_EQ(model["ties"][0]["tie"], (*first)["tie"]);
  EXPECT_EQ(model["storages"][(*last)["tie"].get<size_t>()]["dtype"], "f32");
}

TEST(Reports, TrainersAndSessionsDescribeThemselves) {
  World world;
  bowline_buffer* out = nullptr;
  must(api()->session_describe, world.h.session, &out);
  EXPECT_TRUE(Json::parse(text_of(out)).is_object());
  must(api()->trainer_describe, world.h.trainer, &out);
  EXPECT_TRUE(Json::parse(text_of(out)).is_object());
  must(api()->model_untie, world.h.model, "second.weight", nullptr);
  must(api()->model_tie, world.h.model, "first.weight", "second.weight", nullptr, &out);
  EXPECT_TRUE(Json::parse(text_of(out)).is_object());
}

TEST(Reports, OptimizersAndDevicesAreListed) {
  bowline_buffer* out = nullptr;
  must(api()->optimizers, &out);
  const Json optimizers = Json::parse(text_of(out));
  const Json* const adamw = named(optimizers, "adamw");
  ASSERT_NE(adamw, nullptr) << optimizers;
  EXPECT_NE(named((*adamw)["settings"], "beta1"), nullptr) << *adamw;
  must(api()->device_list, &out);
  const Json devices = Json::parse(text_of(out));
  const Json* const cpu = named(devices, "cpu");
  ASSERT_NE(cpu, nullptr) << devices;
  bowline_device* const device = open_cpu();
  must(api()->device_info, device, &out);
  EXPECT_EQ(Json::parse(text_of(out))["name"], "cpu");
  must(api()->device_close, device);
}

// Names of parameters may have quotes. Integers keep all digits.
TEST(Reports, TextIsEscaped) {
  World world;
  bowline_buffer* out = nullptr;
  must(api()->model_set_metadata, world.h.model, "a\"key\\", "a \"value\"\n\x01");
  must(api()->model_metadata, world.h.model, "a\"key\\", &out);
  EXPECT_EQ(text_of(out), "a \"value\"\n\x01");
  must(api()->model_describe, world.h.model, &out);
  EXPECT_NE(Json::parse(text_of(out)).dump().find("key"), std::string::npos);
}

// The CPU has one kernel for each record.
TEST(Reports, TuningOnTheCpuSaysWhy) {
  World world;
  const bowline_bound_dim dim = {sizeof(dim), "batch", kBatch};
  const bowline_entry_point point = {sizeof(point), "loss", &dim, 1, BOWLINE_NO_DTYPE};
  const Batch batch;
  bowline_buffer* report = nullptr;
  const Outcome done = call(api()->tune_session, world.h.model, world.h.device, &point,
                            batch.tensors, 2, nullptr, 0, nullptr, &report);
  EXPECT_NE(done.code, BOWLINE_OK);
  EXPECT_TRUE(!done.message.empty() && done.message.back() == '.') << done.message;
  EXPECT_EQ(report, nullptr);
}

}  // namespace
}  // namespace c_test
