// load(): matches by parameter name, copies per storage.
#include <gtest/gtest.h>

#include "params/table_fixture.h"

namespace bowline {
namespace {

using params::Table;
using test::make_table;
using test::state_of;
using test::values_of;
using Floats = std::vector<float>;

struct Source {
  Table table;
  void add(const char* name, Shape shape, const Floats& values, View view = {}) {
    params::Storage s;
    s.shape = shape;
    params::install(s, params::make_home(nullptr, test::bytes_of(values)).value());
    table.add({name, table.add(std::move(s)), view, {}});
  }
};

TEST(Load, AFileWithoutValuesNamesTheRemedy) {
  Table t = make_table();
  Source s;
  s.add("head", {3, 2}, {6, 5, 4, 3, 2, 1});
  params::Storage empty;
  empty.shape = {2, 2};
  s.table.add({"w", s.table.add(std::move(empty)), {}, {}});
  s.add("b", {4}, {0, 0, 0, 0});
  s.add("q", {2, 2}, {0, 0, 0, 0});
  const std::string before = t.list_storages();
  const Status refused = params::load(t, s.table, LoadMode::copy, false, 0).status();
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_EQ(refused.message(),
            "The file does not supply \"w\". It was saved before materialize() or load() gave its "
            "model values. Load a file that has values, or call materialize().");
  EXPECT_EQ(t.list_storages(), before) << "nothing is loaded";
}

TEST(Load, OneNameOfATieSatisfiesAll) {
  Table t = make_table();
  Source s;
  s.add("head", {3, 2}, {6, 5, 4, 3, 2, 1});
  s.add("w", {2, 2}, {0, 0, 0, 0});
  s.add("b", {4}, {0, 0, 0, 0});
  s.add("q", {2, 2}, {0, 0, 0, 0});
  const std::string ties = t.list_ties();
  const auto report = params::load(t, s.table, LoadMode::copy, false, 0);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report.value().storages, 4u);
  EXPECT_EQ(values_of(t, "emb"), (Floats{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(values_of(t, "emb_t"), (Floats{6, 4, 2, 5, 3, 1}));
  EXPECT_EQ(t.list_ties(), ties);
}

TEST(Load, TwoPayloadsForOneStorageAreRefusedWithBothNames) {
  Table t = make_table();
  Source s;
  s.add("emb", {3, 2}, {6, 5, 4, 3, 2, 1});
  s.add("head", {3, 2}, {6, 5, 4, 3, 2, 0});
  const std::string before = state_of(t);
  const auto report = params::load(t, s.table, LoadMode::copy, true, 0);
  EXPECT_EQ(report.status().code(), Code::bad_argument);
  EXPECT_NE(report.status().message().find("\"emb\""), std::string::npos);
  EXPECT_NE(report.status().message().find("\"head\""), std::string::npos);
  EXPECT_EQ(state_of(t), before);
}

TEST(Load, EqualPayloadsAgree) {
  Table t = make_table();
  Source s;
  s.add("emb", {3, 2}, {6, 5, 4, 3, 2, 1});
  s.add("emb_t", {2, 3}, {6, 4, 2, 5, 3, 1});
  s.add("tail", {2, 2}, {4, 3, 2, 1});
  ASSERT_TRUE(params::load(t, s.table, LoadMode::copy, true, 0).ok());
  EXPECT_EQ(values_of(t, "head"), (Floats{6, 5, 4, 3, 2, 1}));
}

TEST(Load, OnePayloadFillsSeveralPlacesOfAStorage) {
  Table t;
  ASSERT_TRUE(
      params::add_parameter(t, "all", DType::f32, Shape{4, 2}.dims(), Init::zeros(), 0).ok());
  ASSERT_TRUE(params::add_tied_parameter(t, "upper", 0, View{0, 2, {}, false}, 0).ok());
  ASSERT_TRUE(params::add_tied_parameter(t, "lower", 0, View{2, 2, {}, false}, 0).ok());
  ASSERT_TRUE(params::materialize(t, 1, 0).ok());
  Source s;
  s.add("upper", {2, 2}, {1, 2, 3, 4});
  s.table.add({"lower", 0, {}, {}});
  const auto report = params::load(t, s.table, LoadMode::copy, true, 0);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(values_of(t, "all"), (Floats{1, 2, 3, 4, 1, 2, 3, 4}));
  EXPECT_TRUE(report.value().missing.empty());
}

TEST(Load, PartOfAStorageIsMergedOnlyWhenPartial) {
  Table t = make_table();
  Source s;
  s.add("tail", {2, 2}, {-1, -2, -3, -4});
  s.add("nobody", {1}, {0});
  const std::string before = state_of(t);
  EXPECT_EQ(params::load(t, s.table, LoadMode::copy, false, 0).status().code(), Code::bad_argument);
  EXPECT_EQ(state_of(t), before);
  const auto report = params::load(t, s.table, LoadMode::copy, true, 0);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(values_of(t, "emb"), (Floats{1, 2, -1, -2, -3, -4}));
  EXPECT_EQ(report.value().unexpected, std::vector<std::string>{"nobody"});
  EXPECT_EQ(report.value().missing,
            (std::vector<std::string>{"emb", "head", "emb_t", "w", "b", "q"}));
}

TEST(Load, CopyWantsTheSameShapeAssignTakesItOver) {
  Table t = make_table();
  Source s;
  s.add("b", {2, 3}, {1, 2, 3, 4, 5, 6});
  const std::string before = state_of(t);
  EXPECT_EQ(params::load(t, s.table, LoadMode::copy, true, 0).status().code(), Code::bad_argument);
  EXPECT_EQ(state_of(t), before);
  const uint64_t generation = t.storages[3].generation;
  ASSERT_TRUE(params::load(t, s.table, LoadMode::assign, true, 0).ok());
  EXPECT_EQ(values_of(t, "b"), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(t.storages[3].shape, (Shape{2, 3}));
  EXPECT_EQ(t.storages[3].generation, generation + 1);
}

TEST(Load, AssignedShapeMustFitTheViewsOfTheTie) {
  Table t = make_table();
  Source s;
  s.add("emb", {2, 2}, {1, 2, 3, 4});  // "tail" shows rows 1..3
  const std::string before = state_of(t);
  const auto report = params::load(t, s.table, LoadMode::assign, true, 0);
  EXPECT_EQ(report.status().code(), Code::bad_argument);
  EXPECT_EQ(state_of(t), before);
  Source larger;
  larger.add("emb", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_TRUE(params::load(t, larger.table, LoadMode::assign, true, 0).ok());
  EXPECT_EQ(values_of(t, "head"), (Floats{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_TRUE(t.storages[2].empty) << "a moment of another shape is dropped";
}

TEST(Load, ParametersOfATieThatTheFileHasInTwoShapesAreBothNamed) {
  Table t = make_table();
  Source s;
  s.add("emb", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  s.add("head", {3, 2}, {1, 2, 3, 4, 5, 6});
  const std::string before = state_of(t);
  const Status refused = params::load(t, s.table, LoadMode::assign, true, 0).status();
  EXPECT_EQ(
      refused.message(),
      "Parameters \"emb\" and \"head\" share storage 0. With \"emb\" of the file, \"head\" would "
      "be f32[4,2], but in the file it is f32[3,2].\n- While loading storage 0 (\"emb\").");
  EXPECT_EQ(state_of(t), before);
}

TEST(Load, ASkeletonIsFilledOnItsDevice) {
  Table t;
  t.set_device(test::host_device());
  ASSERT_TRUE(params::add_parameter(t, "w", DType::f32, Shape{2, 2}.dims(), {}, 0).ok());
  ASSERT_TRUE(params::load(t, make_table(), LoadMode::copy, true, 0).ok());
  EXPECT_EQ(values_of(t, "w"), (Floats{10, 11, 12, 13}));
  EXPECT_NE(t.storages[0].home.block, nullptr);
}

}  // namespace
}  // namespace bowline
