// The verbs on host memory, and on devices with several memory layouts.
#include <gtest/gtest.h>

#include <cmath>

#include "params/table_fixture.h"

namespace bowline {
namespace {

using params::Table;
using test::DevicePointer;
using test::make_table;
using test::state_of;
using test::tensor_of;
using test::values_of;
using Floats = std::vector<float>;

class Verbs : public testing::TestWithParam<const char*> {
 protected:
  static DevicePointer device() {
    const std::string_view name = GetParam();
    return name == "host"     ? nullptr
           : name == "opaque" ? test::opaque_device()
           : name == "moving" ? test::moving_device()
                              : test::host_device();
  }
};

TEST_P(Verbs, ReadThroughViews) {
  const Table t = make_table(device());
  EXPECT_EQ(values_of(t, "emb"), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values_of(t, "emb_t"), (Floats{1, 3, 5, 2, 4, 6}));
  EXPECT_EQ(values_of(t, "tail"), (Floats{3, 4, 5, 6}));
}

TEST_P(Verbs, WriteThroughOneParameterIsSeenByAll) {
  Table t = make_table(device());
  Floats v = {10, 30, 50, 20, 40, 60};
  const uint64_t version = t.storages[0].version;
  const uint64_t generation = t.storages[0].generation;
  ASSERT_TRUE(params::set_value(t, "emb_t", tensor_of(v, {2, 3}), 0).ok());
  EXPECT_EQ(values_of(t, "head"), (Floats{10, 20, 30, 40, 50, 60}));
  Floats tail = {-3, -4, -5, -6};
  ASSERT_TRUE(params::set_value(t, "tail", tensor_of(tail, {2, 2}), 0).ok());
  EXPECT_EQ(values_of(t, "emb"), (Floats{10, 20, -3, -4, -5, -6}));
  EXPECT_EQ(t.storages[0].version, version + 2);
  EXPECT_EQ(t.storages[0].generation, generation) << "a write keeps the address";
  EXPECT_EQ(params::set_value(t, "tail", tensor_of(tail, {4}), 0).code(), Code::bad_argument);
  EXPECT_EQ(params::set_value(t, "nobody", tensor_of(tail, {4}), 0).code(), Code::bad_argument);
}

TEST_P(Verbs, UntieCopiesWhatTheParameterShowsWithItsMoments) {
  Table t = make_table(device());
  const auto cost = params::untie(t, "head", 0);
  ASSERT_TRUE(cost.ok()) << cost.status().message();
  EXPECT_EQ(cost.value(), 48u);
  Floats v = {0, 0, 0, 0, 0, 0};
  ASSERT_TRUE(params::set_value(t, "emb", tensor_of(v, {3, 2}), 0).ok());
  EXPECT_EQ(values_of(t, "head"), (Floats{1, 2, 3, 4, 5, 6}));
  const uint32_t tie = t.parameters[1].tie;
  ASSERT_EQ(tie, 5u);
  const auto moment = t.owned(tie, params::Role::moment, 0);
  ASSERT_TRUE(moment.has_value());
  EXPECT_EQ(params::read_bytes(t.storages[*moment]).value(),
            params::read_bytes(t.storages[2]).value());

  ASSERT_TRUE(params::untie(t, "emb_t", 0).ok());
  EXPECT_EQ(values_of(t, "emb_t"), v);
  EXPECT_EQ(t.storages[t.parameters[2].tie].shape, (Shape{3, 2})) << "still a transpose";
  EXPECT_TRUE(t.parameters[2].view.transpose);

  Floats rows = {7, 8, 9, 10, 11, 12};
  ASSERT_TRUE(params::set_value(t, "emb", tensor_of(rows, {3, 2}), 0).ok());
  ASSERT_TRUE(params::untie(t, "tail", 0).ok());
  EXPECT_EQ(t.parameters[3].view, View{}) << "it shows all of its own storage";
  EXPECT_EQ(values_of(t, "tail"), (Floats{9, 10, 11, 12}));
  EXPECT_EQ(params::untie(t, "w", 0).value(), 0u) << "nobody shares it";
}

TEST_P(Verbs, TieDropsTheOtherStorage) {
  Table t = make_table(device());
  ASSERT_TRUE(params::tie(t, "w", "q", {}, 0).ok());
  EXPECT_EQ(values_of(t, "q"), (Floats{10, 11, 12, 13}));
  EXPECT_TRUE(t.storages[4].empty);
  EXPECT_FALSE(t.storages[4].home.valid());
  const std::string before = state_of(t);
  ASSERT_TRUE(params::tie(t, "w", "q", {}, 0).ok());
  EXPECT_EQ(state_of(t), before) << "tying again changes nothing";

  View transposed;
  transposed.transpose = true;
  ASSERT_TRUE(params::tie(t, "w", "q", transposed, 0).ok());
  EXPECT_EQ(values_of(t, "q"), (Floats{10, 12, 11, 13}));
  EXPECT_EQ(params::tie(t, "w", "b", {}, 0).status().code(), Code::bad_argument);
  ASSERT_TRUE(params::freeze(t, "tail", true, false, 0).ok());
  EXPECT_EQ(params::tie(t, "tail", "w", {}, 0).status().code(), Code::bad_argument)
      << "frozen and trainable";
}

TEST_P(Verbs, TieThenUntieGivesTheValuesBack) {
  Table t = make_table(device());
  ASSERT_TRUE(params::tie(t, "w", "q", {}, 0).ok());
  ASSERT_TRUE(params::untie(t, "q", 0).ok());
  EXPECT_EQ(values_of(t, "q"), values_of(t, "w"));
  EXPECT_NE(t.parameters[6].tie, 4u) << "an empty row is never used again";
}

TEST_P(Verbs, UntieCostsWhatItSays) {
  for (const char* name : {"head", "emb_t", "tail", "w"}) {
    Table t = make_table(device());
    const std::string before = state_of(t);
    const uint64_t cost = params::untie_cost(t, name).value();
    EXPECT_EQ(state_of(t), before);
    EXPECT_EQ(params::untie(t, name, 0).value(), cost) << name;
  }
}

Table numbered(std::initializer_list<const char*> names) {
  Table t;
  for (const char* name : names) {
    EXPECT_TRUE(params::add_parameter(t, name, DType::f32, Shape{2}.dims(), Init::ones(), 0).ok());
  }
  return t;
}

TEST(TieNumbered, TakesTheLeastNumberWhateverTheOrder) {
  Table t = numbered({"b.10.w", "b.2.w", "b.1.w", "b.1.bias", "b.2.bias", "c.2.w", "b.x.w"});
  const auto pairs = params::numbered_pairs(t, "b.{}.*").value();
  const TieReport report = params::tie(t, pairs, 0).value();
  ASSERT_EQ(report.ties.size(), 3u);
  EXPECT_EQ(report.text(),
            "tied \"b.2.bias\" to \"b.1.bias\"\ntied \"b.2.w\" to \"b.1.w\"\ntied \"b.10.w\" to "
            "\"b.1.w\"\ndropped storage 0 (weight, 8 bytes)\ndropped storage 1 (weight, 8 "
            "bytes)\ndropped storage 4 (weight, 8 bytes)\n");
  EXPECT_EQ(t.parameters[0].tie, 2u);
  EXPECT_EQ(t.parameters[1].tie, 2u);
  EXPECT_EQ(t.parameters[4].tie, 3u);
  EXPECT_EQ(t.parameters[5].tie, 5u) << "of another name";
  EXPECT_TRUE(t.storages[0].empty && t.storages[1].empty && t.storages[4].empty);
  const std::string before = state_of(t);
  EXPECT_TRUE(params::tie(t, pairs, 0).value().ties.empty());
  EXPECT_EQ(state_of(t), before) << "tying again changes nothing";
}

TEST(TieNumbered, EqualsAChainOfPairs) {
  const auto names = {"b.0.w", "b.1.w", "b.2.w", "b.3.w"};
  Table a = numbered(names), b = numbered(names);
  ASSERT_TRUE(params::tie(a, params::numbered_pairs(a, "b.{}.w").value(), 0).ok());
  for (const auto& [i, j] :
       {std::pair("b.0.w", "b.1.w"), std::pair("b.1.w", "b.2.w"), std::pair("b.2.w", "b.3.w")}) {
    ASSERT_TRUE(params::tie(b, i, j, {}, 0).ok());
  }
  EXPECT_EQ(a.list_ties(), b.list_ties());
}

TEST(TieNumbered, NamesWhatDoesNotMatch) {
  Table t = numbered({"b.0.w", "b.1.w", "b.0.v"});
  const auto refusal = [&](const char* pattern) {
    return params::numbered_pairs(t, pattern).status().message();
  };
  EXPECT_EQ(
      refusal("c.{}.w"),
      "No two of the 3 parameters match the pattern \"c.{}.w\" and differ only in its number.");
  EXPECT_EQ(
      refusal("b.{}.v"),
      "No two of the 3 parameters match the pattern \"b.{}.v\" and differ only in its number.");
  EXPECT_EQ(refusal("b.*.w"),
            "The pattern \"b.*.w\" must contain \"{}\" once, in place of the number.");
  EXPECT_EQ(refusal("{}.{}.w"),
            "The pattern \"{}.{}.w\" must contain \"{}\" once, in place of the number.");
  EXPECT_EQ(refusal("b.{}.{w"), "The pattern \"b.{}.{w\" has an unmatched brace.");
}

TEST_P(Verbs, SwapExchangesWhatStoragesHold) {
  Table t = make_table(device());
  const uint64_t version = t.storages[1].version, generation = t.storages[1].generation;
  EXPECT_FALSE(params::swap(t, "emb", "w", 0).ok()) << "rows 1 to 3 of [2,2] there are not";
  const std::string before = state_of(t);
  ASSERT_TRUE(params::swap(t, "w", "q", 0).ok());
  EXPECT_EQ(values_of(t, "w"), (Floats{20, 21, 22, 23}));
  EXPECT_EQ(values_of(t, "q"), (Floats{10, 11, 12, 13}));
  EXPECT_EQ(t.parameters[4].tie, 1u);
  EXPECT_GT(t.storages[1].version, version);
  EXPECT_GT(t.storages[1].generation, generation);
  ASSERT_TRUE(params::swap(t, "w", "b", 0).ok());
  EXPECT_EQ(values_of(t, "w"), (Floats{50, 51, 52, 53}));
  EXPECT_EQ(t.storages[1].shape, (Shape{4}));
  EXPECT_EQ(t.storages[3].shape, (Shape{2, 2}));
}

TEST_P(Verbs, SwapTakesTheMomentsAlong) {
  Table t = make_table(device());
  ASSERT_TRUE(params::untie(t, "head", 0).ok());
  const uint32_t head = t.parameters[1].tie;
  Floats other = {-1, -2, -3, -4, -5, -6};
  ASSERT_TRUE(params::set_value(t, "head", tensor_of(other, {3, 2}), 0).ok());
  const uint32_t of_head = *t.owned(head, params::Role::moment, 0);
  ASSERT_TRUE(params::swap(t, "head", "emb", 0).ok());
  EXPECT_EQ(values_of(t, "emb"), other);
  EXPECT_EQ(values_of(t, "emb_t"), (Floats{-1, -3, -5, -2, -4, -6})) << "every holder sees it";
  EXPECT_EQ(*t.owned(0, params::Role::moment, 0), of_head);
  EXPECT_EQ(*t.owned(head, params::Role::moment, 0), 2u);
}

TEST_P(Verbs, ResizeKeepsRowsAndAddsNewOnes) {
  Table t = make_table(device());
  ASSERT_TRUE(params::untie(t, "tail", 0).ok());
  const ResizeReport more = params::resize(t, "{emb,w}", 4, Init::ones(), 1, 0).value();
  EXPECT_EQ(more.storages, 2u);
  EXPECT_EQ(more.bytes_before, 24u + 16);
  EXPECT_EQ(more.bytes_after, 32u + 32);
  EXPECT_EQ(values_of(t, "emb"), (Floats{1, 2, 3, 4, 5, 6, 1, 1}));
  EXPECT_EQ(values_of(t, "emb_t"), (Floats{1, 3, 5, 1, 2, 4, 6, 1}));
  EXPECT_EQ(values_of(t, "w"), (Floats{10, 11, 12, 13, 1, 1, 1, 1}));
  std::vector<std::byte> scratch;
  const auto moment = params::read_all(t.storages[2], scratch).value();
  Floats m(8);
  ASSERT_EQ(moment.size(), 32u);
  std::memcpy(m.data(), moment.data(), 32);
  EXPECT_EQ(m, (Floats{100, 101, 102, 103, 104, 105, 0, 0}));
  EXPECT_EQ(params::resize(t, "emb", 4, Init::ones(), 1, 0).value().storages, 0u);
  ASSERT_TRUE(params::resize(t, "emb", 1, Init::ones(), 1, 0).ok());
  EXPECT_EQ(values_of(t, "head"), (Floats{1, 2}));
  EXPECT_EQ(t.storages[2].bytes(), 8u);
}

// resize() keeps quantized rows and their scales. New rows are zeros.
TEST_P(Verbs, ResizeAddsRowsToCodes) {
  Table t;
  t.set_device(device());
  ASSERT_TRUE(params::add_parameter(t, "w", DType::f32, Shape{2, 3}.dims(), Init::zeros(), 0).ok());
  const Floats given = {127, -3, 5, 254, 2, -4};
  const Encoding rows = parse_encoding("int8 block row").value();
  const auto codes = [&](uint64_t first, std::span<std::byte> out) -> Status {
    std::vector<std::byte> all(rows.for_shape({2, 3}).bytes(DType::f32, {2, 3}));
    rows.for_shape({2, 3}).encode(given, DType::f32, {2, 3}, all);
    std::ranges::copy(std::span(all).subspan(first, out.size()), out.begin());
    return {};
  };
  ASSERT_TRUE(params::set_source(t, "w", codes, rows, 0).ok());
  const ResizeReport more = params::resize(t, "w", 4, Init::zeros(), 1, 0).value();
  EXPECT_EQ(more.bytes_before, 8u + 8);
  EXPECT_EQ(more.bytes_after, 12u + 16);
  EXPECT_EQ(values_of(t, "w"), (Floats{127, -3, 5, 254, 2, -4, 0, 0, 0, 0, 0, 0}));
  ASSERT_TRUE(params::resize(t, "w", 1, Init::zeros(), 1, 0).ok());
  EXPECT_EQ(values_of(t, "w"), (Floats{127, -3, 5}));
  EXPECT_EQ(params::resize(t, "w", 2, Init::ones(), 1, 0).status().message(),
            "It is stored as int8 block 3 axis -1 scale f32, so its new rows can only be zeros.\n"
            "- While giving \"w\" 2 rows.");
}

TEST_P(Verbs, ResizeNamesAViewThatHasNoPlace) {
  Table t = make_table(device());
  EXPECT_NE(params::resize(t, "emb", 2, Init::zeros(), 1, 0)
                .status()
                .message()
                .find("The view of \"tail\""),
            std::string::npos);
  EXPECT_EQ(params::resize(t, "none*", 2, Init::zeros(), 1, 0).status().message(),
            "The pattern \"none*\" matches none of the 7 parameters.");
}

TEST_P(Verbs, MaterializeDrawsOncePerStorage) {
  Table t;
  t.set_device(device());
  const auto a =
      params::add_parameter(t, "a", DType::f32, Shape{1000, 3}.dims(), Init::normal(2), 0);
  ASSERT_TRUE(params::add_tied_parameter(t, "b", a.value(), {}, 0).ok());
  ASSERT_TRUE(params::add_parameter(t, "u", DType::f32, Shape{7}.dims(), Init::uniform(1), 0).ok());
  ASSERT_TRUE(params::add_parameter(t, "o", DType::f32, Shape{5}.dims(), Init::ones(), 0).ok());
  ASSERT_TRUE(params::add_parameter(t, "z", DType::i64, Shape{0, 3}.dims(), Init::zeros(), 0).ok());
  ASSERT_TRUE(params::materialize(t, 7, 0).ok());
  const Floats v = values_of(t, "a");
  EXPECT_EQ(values_of(t, "b"), v);
  double sum = 0, square = 0;
  for (const float x : v) {
    sum += static_cast<double>(x);
    square += static_cast<double>(x) * static_cast<double>(x);
  }
  EXPECT_NEAR(sum / 3000, 0, 0.15);
  EXPECT_NEAR(std::sqrt(square / 3000), 2, 0.1);
  EXPECT_EQ(values_of(t, "o"), (Floats{1, 1, 1, 1, 1}));
  const std::string before = state_of(t);
  ASSERT_TRUE(params::materialize(t, 8, 0).ok());
  EXPECT_EQ(state_of(t), before) << "rows with bytes keep them";

  Table other;
  ASSERT_TRUE(
      params::add_parameter(other, "x", DType::f32, Shape{1000, 3}.dims(), Init::normal(2), 0)
          .ok());
  ASSERT_TRUE(params::materialize(other, 7, 0).ok());
  EXPECT_EQ(values_of(other, "x"), v) << "the same seed and tie index, on any device";
  ASSERT_TRUE(
      params::add_parameter(other, "y", DType::f32, Shape{1000, 3}.dims(), Init::normal(2), 0)
          .ok());
  ASSERT_TRUE(params::materialize(other, 7, 0).ok());
  const Floats of_y = values_of(other, "y");
  for (size_t i = 0; i < v.size(); ++i) {
    ASSERT_NE(of_y[i], v[i]) << "another tie index draws other numbers";
  }
}

TEST_P(Verbs, MoveIsOneTransferPerStorageAndComesBackEqual) {
  const DevicePointer d = test::host_device();
  Table t = make_table(device());
  const std::string ties = t.list_ties();
  const auto before = test::values_of(t, "emb_t");
  ASSERT_TRUE(params::move(t, d, 0).ok());
  // A moment in host memory stays there until a trainer uses it.
  const bool with_moment = std::string_view(GetParam()) != "host";
  EXPECT_EQ(d->counters().allocations, with_moment ? 5u : 4u);
  EXPECT_EQ(d->counters().copies_in, with_moment ? 5u : 4u);
  EXPECT_EQ(d->counters().live_bytes, 24u + 16 + 16 + 16 + (with_moment ? 24u : 0u));
  EXPECT_EQ(t.list_ties(), ties);
  const std::string there = state_of(t);
  d->reset_counters();
  ASSERT_TRUE(params::move(t, d, 0).ok());
  EXPECT_EQ(d->counters().allocations + d->counters().copies_in, 0u);
  EXPECT_EQ(state_of(t), there) << "moving to where it is does nothing";
  ASSERT_TRUE(params::move(t, nullptr, 0).ok());
  EXPECT_EQ(d->counters().live_bytes, 0u);
  EXPECT_EQ(values_of(t, "emb_t"), before);
  EXPECT_EQ(t.list_ties(), ties);
}

TEST_P(Verbs, CloneIsIsomorphicWithItsOwnBytes) {
  Table t = make_table(device());
  auto c = params::clone(t);
  ASSERT_TRUE(c.ok());
  params::drop_training(t);
  EXPECT_EQ(state_of(c.value()), state_of(t)) << "without the rows of training";
  Floats v = {9, 9, 9, 9};
  ASSERT_TRUE(params::set_value(c.value(), "tail", tensor_of(v, {2, 2}), 0).ok());
  EXPECT_EQ(values_of(t, "emb"), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values_of(c.value(), "head"), (Floats{1, 2, 9, 9, 9, 9}));
}

TEST_P(Verbs, FreezeIsAFlagOfTheStorage) {
  Table t = make_table(device());
  ASSERT_TRUE(params::freeze(t, "emb_t", true, false, 0).ok());
  EXPECT_FALSE(t.storages[0].trainable);
  const std::string frozen = state_of(t);
  ASSERT_TRUE(params::freeze(t, "head", true, false, 0).ok());
  EXPECT_EQ(state_of(t), frozen);
  ASSERT_TRUE(params::freeze(t, "head", false, true, 0).ok());
  EXPECT_TRUE(t.storages[0].trainable);
}

TEST_P(Verbs, BusyRefusesWhatChangesStorages) {
  Table t = make_table(device());
  const std::string before = state_of(t);
  Floats v = {9, 9, 9, 9};
  EXPECT_EQ(params::set_value(t, "w", tensor_of(v, {2, 2}), 1).code(), Code::bad_argument);
  EXPECT_EQ(params::tie(t, "w", "q", {}, 1).status().code(), Code::bad_argument);
  EXPECT_EQ(params::untie(t, "head", 1).status().code(), Code::bad_argument);
  EXPECT_EQ(params::move(t, test::host_device(), 1).status().code(), Code::bad_argument);
  EXPECT_EQ(params::load(t, make_table(), LoadMode::copy, false, 1).status().code(),
            Code::bad_argument);
  EXPECT_EQ(state_of(t), before);
  EXPECT_EQ(values_of(t, "w"), (Floats{10, 11, 12, 13}));
}

INSTANTIATE_TEST_SUITE_P(Homes, Verbs, testing::Values("host", "device", "opaque", "moving"),
                         [](const auto& home) { return std::string(home.param); });

TEST(Listings, AreStable) {
  const Table t = make_table();
  EXPECT_EQ(t.list_ties(), "0: emb, head, emb_t transposed, tail rows 1..3\n");
  EXPECT_EQ(t.list_parameters(),
            "emb tie 0 f32[3,2]\n"
            "head tie 0 f32[3,2]\n"
            "emb_t tie 0 f32[2,3] transposed\n"
            "tail tie 0 f32[2,2] rows 1..3\n"
            "w tie 1 f32[2,2]\n"
            "b tie 3 f32[4]\n"
            "q tie 4 f32[2,2]\n");
  EXPECT_EQ(t.list_storages(),
            "0 f32[3,2] 24 bytes weight version 1 generation 1 host\n"
            "1 f32[2,2] 16 bytes weight version 1 generation 1 host\n"
            "2 f32[3,2] 24 bytes moment 0 of 0 version 1 generation 1 host\n"
            "3 f32[4] 16 bytes weight version 1 generation 1 host\n"
            "4 f32[2,2] 16 bytes weight version 1 generation 1 host\n");
}

TEST(Declaring, RefusesBadNamesShapesAndViews) {
  Table t = make_table();
  const auto add = [&](std::string_view name, std::vector<int64_t> shape) {
    return params::add_parameter(t, name, DType::f32, shape, {}, 0).status().code();
  };
  EXPECT_EQ(add("emb", {1}), Code::bad_argument);
  EXPECT_EQ(add("", {1}), Code::bad_argument);
  EXPECT_EQ(add("a\xC0\x80", {1}), Code::bad_argument);
  EXPECT_EQ(add("line\nbreak", {1}), Code::bad_argument);
  EXPECT_EQ(add("n", {-1}), Code::bad_argument);
  EXPECT_EQ(add("n", {1, 1, 1, 1, 1, 1, 1, 1, 1}), Code::bad_argument);
  EXPECT_EQ(add("n", {1 << 21, 1 << 21}), Code::bad_argument);
  View rows;
  rows.row_start = 2;
  rows.rows = 2;
  EXPECT_EQ(params::add_tied_parameter(t, "n", 0, rows, 0).status().code(), Code::bad_argument);
  View reshape;
  reshape.shape = {7};
  EXPECT_EQ(params::add_tied_parameter(t, "n", 0, reshape, 0).status().code(), Code::bad_argument);
  EXPECT_EQ(t.parameters.size(), 7u);
  EXPECT_EQ(t.storages.size(), 5u);
}

}  // namespace
}  // namespace bowline
