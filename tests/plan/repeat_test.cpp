// A Repeat does not grow with its count: the listing, the Program and the graph in the file stay
// the same.
#include <filesystem>
#include <regex>

#include "api/internals.h"
#include "generated/model_generated.h"
#include "model/verify.h"
#include "plan/listing.h"
#include "plan/plan.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

// Returns the canonical text with " n x " instead of every " N x ".
std::string without_counts(const std::string& listing, int layers) {
  return std::regex_replace(listing, std::regex(" " + std::to_string(layers) + " x "), " n x ");
}

TEST(Repeat, ListingsAreEqualForAnyCount) {
  std::vector<std::string> texts;
  for (const int layers : {1, 4, 16}) {
    const Device cpu = open_test_device("cpu");
    TinyLm lm = tiny_lm(layers);
    ASSERT_OK(lm.model.to(cpu));
    Trainer t = must(Trainer::create(lm.model, cpu, adamw(lm)));
    std::string text;
    for (const char* part : {"forward", "backward", "update"}) {
      text += without_counts(must(t.listing(part)), layers);
    }
    texts.push_back(text);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
}

TEST(Repeat, ProgramsHaveEqualSizes) {
  std::vector<std::pair<size_t, size_t>> sizes;
  for (const int layers : {1, 4, 16}) {
    const Device cpu = open_test_device("cpu");
    TinyLm lm = tiny_lm(layers);
    ASSERT_OK(lm.model.to(cpu));
    const graph::ModelState& state = *Internals::state(lm.model);
    const std::vector<BoundDim> dims = lm.dims();
    const graph::BoundGraph bound =
        must(graph::bind(*state.entry_points.find("loss"), state, dims));
    plan::StepLayout layout;
    const plan::Plan plan = must(plan::lower(bound, "forward", *Internals::open(cpu), layout));
    sizes.emplace_back(plan.program.records.size(), plan.program.tables.size());
    for (const device::Table& table : plan.program.tables) {
      EXPECT_EQ(table.entries.size(), static_cast<size_t>(layers));
    }
  }
  EXPECT_EQ(sizes[0], sizes[1]);
  EXPECT_EQ(sizes[0], sizes[2]);
}

TEST(Repeat, GraphsInTheFileHaveEqualSizes) {
  std::vector<std::vector<size_t>> sizes;
  for (const int layers : {1, 4, 16}) {
    const std::string path = testing::TempDir() + "repeat_size.bowline";
    ASSERT_OK(tiny_lm(layers).model.save(path));
    const auto file = must(model::VerifiedFile::open(path));
    std::vector<size_t>& counts = sizes.emplace_back();
    for (const file::Graph* g : *file->tables().graphs()) {
      counts.push_back(g->nodes()->size());
      counts.push_back(g->inputs()->size());
      counts.push_back(g->body_parameters());
    }
    std::filesystem::remove(path);
  }
  EXPECT_EQ(sizes[0], sizes[1]);
  EXPECT_EQ(sizes[0], sizes[2]);
}

TEST(Repeat, EqualsTheUnrolledGraph) {
  // Three layers as a Repeat and as three copies have the same loss and norm.
  const Device cpu = open_test_device("cpu");
  constexpr int kLayers = 3;
  constexpr int64_t kWidth = 6;
  const auto build = [&](bool repeat) {
    Seed s;
    s.shape = {2, kWidth};
    for (int i = 0; i < 2 * kWidth; ++i) {
      s.x.push_back(0.1f * static_cast<float>(i + 1));
    }
    const Dims square = {kWidth, kWidth};
    const ParameterList w = must(s.model.parameters("w.{}", kLayers, square, Init::normal(0.5f)));
    const Parameter shift = must(s.model.parameter("shift", Dims{kWidth}, Init::normal(1)));
    GraphBuilder g(s.model, "loss");
    const Value x = g.input("x", DType::f32, {2, kWidth});
    const Value common = g.op("Tanh", {g.parameter(shift)});
    const auto layer = [](GraphBuilder& b, Value in, Value weight, Value add) {
      return b.op("Add", {in, b.op("Silu", {b.op("Add", {b.op("Linear", {in, weight}), add})})});
    };
    Value y = x;
    if (repeat) {
      y = g.repeat(kLayers, {x}, [&](GraphBuilder& b, const std::vector<Value>& c) {
             return std::vector<Value>{layer(b, c[0], b.parameter(w), b.capture(common))};
           }).at(0);
    } else {
      for (int i = 0; i < kLayers; ++i) {
        y = layer(g, y, g.parameter(w.items[static_cast<size_t>(i)]), common);
      }
    }
    g.output("loss", g.op("ReduceSum", {g.op("Mul", {y, y})}));
    EXPECT_OK(g.finish());
    EXPECT_OK(s.model.materialize(4));
    EXPECT_OK(s.model.to(cpu));
    Trainer t = must(Trainer::create(s.model, cpu, plain_sgd(0.001f)));
    Floats out = {step(t, s).loss, step(t, s).loss};
    for (const char* name : {"w.0", "w.1", "w.2", "shift"}) {
      const Floats v = values(s.model, name);
      out.insert(out.end(), v.begin(), v.end());
    }
    return out;
  };
  const Floats a = build(true);
  const Floats b = build(false);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_GT(a[0], 0);
  EXPECT_LT(a[1], a[0]);
  for (size_t i = 0; i < a.size(); ++i) {
    expect_number(a[i], b[i], {}, 1e-5);
  }
}

}  // namespace
}  // namespace bowline::test
