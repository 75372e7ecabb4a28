// Adapters in the table of parameters: the views of their parameters, and failing devices.
#include "params/adapter.h"

#include <gtest/gtest.h>

#include "params/table_fixture.h"

namespace bowline {
namespace {

using params::Reading;
using params::Table;
using test::Fault;
using test::make_table;
using test::state_of;
using Floats = std::vector<float>;

Result<AdapterReport> add(Table& t, std::string target, bool per_parameter = false) {
  AdapterOptions o;
  o.rank = 2;
  o.alpha = 2;
  o.target = std::move(target);
  o.per_parameter = per_parameter;
  const std::vector<Reading> readings(t.parameters.size(), Reading::matrix);
  return params::add_adapter(t, "ad", o, readings, 0);
}

// A = (1,2 / 3,4), B = (1,0 / 0,1 / 1,1): B A = (1,2 / 3,4 / 4,6).
Table adapted() {
  Table t = make_table();
  EXPECT_TRUE(add(t, "emb").ok());
  Floats a = {1, 2, 3, 4}, b = {1, 0, 0, 1, 1, 1};
  EXPECT_TRUE(params::set_value(t, "emb.ad.lora_a", test::tensor_of(a, {2, 2}), 0).ok());
  EXPECT_TRUE(params::set_value(t, "emb.ad.lora_b", test::tensor_of(b, {3, 2}), 0).ok());
  return t;
}

TEST(Adapter, ParametersShowAndBAsTheirTargets) {
  Table t = adapted();
  EXPECT_EQ(test::values_of(t, "tail.ad.lora_b"), (Floats{0, 1, 1, 1}));
  EXPECT_EQ(test::values_of(t, "tail.ad.lora_a"), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(test::values_of(t, "emb_t.ad.lora_a"), (Floats{1, 3, 2, 4}));
  EXPECT_EQ(test::values_of(t, "emb_t.ad.lora_b"), (Floats{1, 0, 1, 0, 1, 1}));
  const auto plain = params::low_rank(t, 0, "ad"), turned = params::low_rank(t, 2, "ad");
  EXPECT_EQ(t.parameters[plain->u].name, "emb.ad.lora_b");
  EXPECT_EQ(t.parameters[turned->u].name, "emb_t.ad.lora_a");
  EXPECT_FALSE(params::low_rank(t, 4, "ad").has_value());
  for (uint32_t tie = 0; tie < t.storages.size(); ++tie) {
    const params::Role role = t.storages[tie].role;
    EXPECT_EQ(t.storages[tie].trainable && params::is_trained(role),
              role == params::Role::adapter_a || role == params::Role::adapter_b)
        << tie << ": the others are frozen";
  }
}

TEST(Adapter, MergingAddsItOnceAndRoundsOnce) {
  Table t = adapted();
  ASSERT_TRUE(params::set_adapter_weight(t, "ad", 0.5f, 0).ok());
  ASSERT_TRUE(params::merge_adapter(t, "ad", 0).ok());
  EXPECT_EQ(test::values_of(t, "head"), (Floats{1.5f, 3, 4.5f, 6, 7, 9}));
}

// A "!" in the target makes the adapter of this parameter full rank, whatever `rank` is. A vector
// counts as one row.
TEST(Adapter, WholeChangesAreOfTheRankOfValuesAndOfBiasesToo) {
  Table t = make_table();
  AdapterOptions o;
  o.rank = 5;
  o.alpha = 10;
  o.target = "{w,!emb,!b}";
  std::vector<Reading> readings(t.parameters.size(), Reading::matrix);
  readings[5] = Reading::bias;
  ASSERT_TRUE(params::add_adapter(t, "ad", o, readings, 0).ok());
  const auto shape = [&](const char* name) {
    return t.storages[t.parameters[*t.find(name)].tie].shape;
  };
  EXPECT_EQ(shape("w.ad.lora_a"), (Shape{5, 2}));
  EXPECT_EQ(shape("emb.ad.lora_a"), (Shape{2, 2}));
  EXPECT_EQ(shape("emb.ad.lora_b"), (Shape{3, 2}));
  EXPECT_EQ(shape("b.ad.lora_a"), (Shape{1, 4}));
  EXPECT_EQ(shape("b.ad.lora_b"), (Shape{1, 1}));
  Floats a = {1, 2, 3, 4}, b = {1};
  ASSERT_TRUE(params::set_value(t, "b.ad.lora_a", test::tensor_of(a, {1, 4}), 0).ok());
  ASSERT_TRUE(params::set_value(t, "b.ad.lora_b", test::tensor_of(b, {1, 1}), 0).ok());
  ASSERT_TRUE(params::set_adapter_weight(t, "ad", 0.5f, 0).ok());
  EXPECT_EQ(params::adapter_weight(t, "ad").value(), 0.5f)
      << "10 / 5 is of the rank that was asked for";
  ASSERT_TRUE(params::merge_adapter(t, "ad", 0).ok());
  EXPECT_EQ(test::values_of(t, "b"), (Floats{51, 53, 55, 57}));
}

TEST(Adapter, WhatCannotBeChangedWhollyIsNamed) {
  Table t = make_table();
  AdapterOptions o;
  o.target = "{w,!b}";
  std::vector<Reading> readings(t.parameters.size(), Reading::matrix);
  for (const Reading reading : {Reading::matrix, Reading::other, Reading::none}) {
    readings[5] = reading;
    EXPECT_NE(params::add_adapter(t, "ad", o, readings, 0)
                  .status()
                  .message()
                  .find("\"b\" cannot be changed with full rank by adapter \"ad\""),
              std::string::npos);
  }
}

TEST(Adapter, MergingAUseOfATieIsRefused) {
  Table t = make_table();
  ASSERT_TRUE(add(t, "tail", true).ok());
  EXPECT_EQ(test::values_of(t, "tail.ad.lora_b").size(), 4u) << "of the rows that it shows";
  EXPECT_NE(
      params::merge_adapter(t, "ad", 0).message().find("untie(\"tail\") first; it costs 32 bytes"),
      std::string::npos)
      << "two rows of the weight and of its moment";
}

TEST(Adapter, TheDigestIsOfWhatParametersShow) {
  const Table t = make_table();
  const auto digest = params::digest(t).value();
  EXPECT_EQ(params::digest(adapted()).value(), digest) << "adapters are left out";
  Table untied = make_table();
  ASSERT_TRUE(params::untie(untied, "head", 0).ok());
  EXPECT_EQ(params::digest(untied).value(), digest) << "whatever is tied to what";
  Floats other = {10, 11, 12, 14};
  Table changed = make_table();
  ASSERT_TRUE(params::set_value(changed, "w", test::tensor_of(other, {2, 2}), 0).ok());
  EXPECT_NE(params::digest(changed).value(), digest);
}

TEST(Adapter, RemovingKeepsTheNumbersOfTheOthersApart) {
  Table t = adapted();
  ASSERT_TRUE(params::add_parameter(t, "late", DType::f32, Shape{1}.dims(), Init::ones(), 0).ok());
  std::vector<uint32_t> numbers;
  const Table out = params::without_adapter(t, "ad", 0, numbers).value();
  EXPECT_EQ(out.parameters.size(), 8u);
  EXPECT_EQ(numbers[0], 0u);
  EXPECT_EQ(numbers[7], UINT32_MAX);
  EXPECT_EQ(numbers[t.require("late").value()], 7u);
  EXPECT_EQ(out.parameters[7].tie, t.parameters[t.require("late").value()].tie);
  EXPECT_TRUE(params::adapter_names(out).empty());
  EXPECT_FALSE(out.find("emb.ad.lora_a").has_value());
  EXPECT_TRUE(out.storages[5].empty);
}

// Each device call of a verb fails once. The table does not change, and the verb returns the code
// of the device.
template <class Verb>
int failing_calls(const Verb& verb) {
  for (int n = 1;; ++n) {
    const auto fault = std::make_shared<Fault>();
    Table t = adapted();
    EXPECT_TRUE(params::move(t, test::faulty_device(fault), 0).ok());
    const std::string before = state_of(t);
    Table staged = t;
    fault->arm(n, Code::device_lost);
    const Status status = verb(staged);
    const bool fired = fault->fired();
    const int calls = fault->calls;
    fault->disarm();
    EXPECT_EQ(status.code(), fired ? Code::device_lost : Code::ok) << "call " << n;
    EXPECT_EQ(state_of(t), before) << "call " << n;
    if (!fired) {
      return calls;
    }
  }
}

TEST(Adapter, DevicesThatFail) {
  EXPECT_GT(failing_calls([](Table& t) { return params::merge_adapter(t, "ad", 0); }), 4);
  EXPECT_GT(failing_calls([](Table& t) {
              AdapterOptions o;
              const std::vector<Reading> all(t.parameters.size(), Reading::matrix);
              return params::add_adapter(t, "second", o, all, 0).status();
            }),
            5);
}

TEST(Adapter, BusyRefuses) {
  Table t = adapted();
  const std::string before = state_of(t);
  std::vector<uint32_t> numbers;
  EXPECT_EQ(params::merge_adapter(t, "ad", 1).code(), Code::bad_argument);
  EXPECT_EQ(params::set_adapter_weight(t, "ad", 1, 1).code(), Code::bad_argument);
  EXPECT_EQ(params::without_adapter(t, "ad", 1, numbers).status().code(), Code::bad_argument);
  EXPECT_EQ(state_of(t), before);
}

}  // namespace
}  // namespace bowline
