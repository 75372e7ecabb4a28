// Closure: a model that the builder accepts and save() writes opens again, with the same listings
// and bytes. Random models, many of them hostile. BOWLINE_CLOSURE_MODELS sets their number,
// BOWLINE_CLOSURE_SEED the first seed.
#include <cstdlib>
#include <random>

#include "api/internals.h"
#include "graph/load.h"
#include "graph/save.h"
#include "model/tied_model.h"
#include "ties/seed_models.h"

namespace bowline {
namespace {

using test::Folder;
using test::read_file;

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class RandomModel {
 public:
  explicit RandomModel(uint64_t seed) : random_(seed) {}

  // Returns the first error, if any.
  Status build(Model& model) {
    hostile_ = pick(3) == 0;
    for (int i = pick(5); i >= 0; --i) {
      BOWLINE_TRY(declare(model));
    }
    for (int i = pick(3); i > 0; --i) {
      BOWLINE_TRY(model.set_metadata(name(), pick(4) == 0 ? std::string("a\0b", 3) : text()));
    }
    for (int i = pick(3); i > 0; --i) {
      BOWLINE_TRY(graph(model));
    }
    return change(model);
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[pick(static_cast<int>(all.size()))];
  }
  bool odd() { return hostile_ && pick(12) == 0; }

  std::string name() {
    if (odd()) {
      return one_of<std::string>({"", "a\nb", "\xff", "\xc0\x80", std::string(1025, 'n'), "a", "a",
                                  std::string(1024, 'm'), "a, b: c", "\x7f"});
    }
    return format("{}{}", one_of<const char*>({"n", "layer.", "é"}), pick(1000));
  }
  std::string text() {
    return odd() ? one_of<std::string>({"\xff", std::string((1 << 20) + 1, 't'), ""})
                 : format("text {}", pick(10));
  }
  int64_t dim() {
    return odd() ? one_of<int64_t>({-1, 0, 2147483647, 2147483648, 1 << 20}) : 1 + pick(3);
  }
  test::Dims shape() {
    test::Dims out;
    for (int i = odd() ? 9 : 1 + pick(3); i > 0; --i) {
      out.push_back(dim());
    }
    return out;
  }
  View view() {
    View v;
    v.row_start = pick(4) == 0 ? pick(3) : 0;
    v.rows = pick(4) == 0 ? pick(3) - 1 : -1;
    v.transpose = pick(3) == 0;
    if (pick(4) == 0) {
      v.shape = shape();
    }
    return v;
  }
  Parameter parameter() {
    return odd() || parameters_.empty()
               ? Parameter{static_cast<uint32_t>(pick(5)), 1}
               : parameters_[static_cast<size_t>(pick(static_cast<int>(parameters_.size())))];
  }

  Status declare(Model& model) {
    const Init init{static_cast<Init::Kind>(odd() ? 9 : pick(4)), odd() ? NAN : 0.5f};
    if (pick(3) == 0 && !parameters_.empty()) {
      Result<Parameter> tied = pick(2) == 0 ? model.tied_parameter(name(), parameter())
                                            : model.tied_parameter(name(), parameter(), view());
      if (tied.ok()) {
        parameters_.push_back(tied.value());
      } else if (hostile_) {
        return tied.status();
      }
      return {};
    }
    BOWLINE_TRY_ASSIGN(const Parameter added, model.parameter(name(), shape(), init));
    parameters_.push_back(added);
    return {};
  }

  std::vector<GraphDim> dims() {
    std::vector<GraphDim> out;
    for (const int64_t d : shape()) {
      out.push_back(pick(4) == 0 ? GraphDim(odd() ? name() : one_of<std::string>({"batch", "seq"}))
                                 : GraphDim(d));
    }
    return out;
  }

  Value value() {
    return odd() || values_.empty()
               ? Value{static_cast<uint32_t>(pick(9)), static_cast<uint32_t>(pick(9))}
               : values_[static_cast<size_t>(pick(static_cast<int>(values_.size())))];
  }

  // Adds a node with a random operator; half of the nodes are valid.
  Value node(GraphBuilder& g, Value a, Value b) {
    if (pick(4) == 0) {
      g.named(name());
    }
    const double number = odd() ? one_of<double>({9, -1, 0.5, 1e300, -1e300}) : pick(2);
    switch (pick(hostile_ ? 12 : 6)) {
      case 0:
        return g.op("Add", {a, a});
      case 1:
        return g.op("Gelu", {a}, {{"form", number}});
      case 2:
        return g.op("Softmax", {a}, {{"axis", odd() ? number : -1}});
      case 3:
        return g.op(
            "ReduceSum", {a},
            {{"axes", odd() ? std::vector<GraphDim>(9, GraphDim(0)) : std::vector<GraphDim>{0}},
             {"keep_dims", 1}});
      case 4:
        return g.op("Dropout", {a}, {{"stream", number}});
      case 5:
        return g.op("Scale", {a});
      case 6:
        return g.op("Mul", {a, b});
      case 7:
        return g.op("Concat", std::vector<Value>(static_cast<size_t>(pick(12)), a),
                    {{"axis", number}});
      case 10:
        return g.op("Slice", {a}, {{"axis", 0}, {"length", odd() ? name() : "rows"}});
      case 9: {
        g.op("Split", {a}, {{"axis", number}, {"sizes", dims()}});
        const std::vector<Value> parts = g.last_outputs();
        return parts.empty() ? a : parts.back();
      }
      case 8:
        return g.op("Reshape", {a}, {{"dims", dims()}});
      default:
        return g.op("Linear", {a, b});
    }
  }

  Status graph(Model& model) {
    GraphBuilder g(model, name());
    values_.clear();
    for (int i = pick(3); i >= 0; --i) {
      values_.push_back(g.input(name(), odd() ? static_cast<DType>(pick(12)) : DType::f32, dims()));
    }
    for (int i = pick(3); i > 0; --i) {
      values_.push_back(g.parameter(parameter()));
    }
    for (int i = pick(5); i > 0; --i) {
      values_.push_back(node(g, value(), value()));
    }
    if (pick(2) == 0) {
      repeat(g);
    }
    for (int i = pick(3); i >= 0; --i) {
      g.output(name(), value());
    }
    return g.finish();
  }

  void repeat(GraphBuilder& g) {
    const int count = odd() ? one_of({0, -1, 65536, 65537, 100000}) : 1 + pick(3);
    std::vector<Value> carried;
    for (int i = odd() ? 0 : 1 + pick(2); i > 0; --i) {
      carried.push_back(value());
    }
    const auto out = g.repeat(count, carried, [&](GraphBuilder& b, const std::vector<Value>& in) {
      std::vector<Value> leaving;
      for (const Value v : in) {
        const Value other = pick(2) == 0
                                ? b.capture(value())
                                : b.parameter(ParameterList{std::vector<Parameter>(
                                      static_cast<size_t>(odd() ? 2 : count), parameter())});
        leaving.push_back(pick(3) == 0 ? v : b.op("Gelu", {pick(4) == 0 ? other : v}));
      }
      return leaving;
    });
    values_.insert(values_.end(), out.begin(), out.end());
  }

  // Calls verbs on the finished model. A rejected verb changes nothing.
  Status change(Model& model) {
    if (pick(2) == 0) {
      for (const params::Storage& s : Internals::state(model)->table.storages) {
        BOWLINE_REQUIRE(s.shape.elements() < 1 << 16, "It is too large for this test.");
      }
      BOWLINE_TRY(model.materialize(1));
    }
    const auto any = [&]() -> std::string {
      const auto& rows = Internals::state(model)->table.parameters;
      return rows[static_cast<size_t>(pick(static_cast<int>(rows.size())))].name;
    };
    for (int i = pick(6); i > 0; --i) {
      switch (pick(4)) {
        case 0:
          (void)model.tie(any(), any(), view());
          break;
        case 1:
          (void)model.untie(any());
          break;
        case 2:
          (void)model.freeze(any(), pick(2) == 0);
          break;
        default:
          (void)model.tie(any(), any());
      }
    }
    return {};
  }

  std::mt19937_64 random_;
  bool hostile_ = false;
  std::vector<Parameter> parameters_;
  std::vector<Value> values_;
};

std::string logical(const Model& m) { return m.parameters() + m.ties(); }

TEST(Closure, WhatIsSavedOpensAndIsTheSame) {
  const uint64_t first = setting("BOWLINE_CLOSURE_SEED", 1);
  const uint64_t count = setting("BOWLINE_CLOSURE_MODELS", 1000);
  const Folder folder;
  uint64_t saved = 0;
  uint64_t refused = 0;
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    Model model;
    if (!RandomModel(seed).build(model).ok()) {
      ++refused;
      continue;
    }
    const Status status = model.save(folder / "a");
    ASSERT_TRUE(status.ok()) << "BOWLINE_CLOSURE_SEED=" << seed
                             << " BOWLINE_CLOSURE_MODELS=1: " << status.message();
    const Result<Model> opened = Model::open(folder / "a");
    ASSERT_TRUE(opened.ok()) << "seed " << seed << ": " << opened.status().message();
    EXPECT_EQ(logical(opened.value()), logical(model)) << "seed " << seed;
    ASSERT_TRUE(opened.value().save(folder / "b").ok()) << "seed " << seed;
    EXPECT_EQ(read_file(folder / "a"), read_file(folder / "b")) << "seed " << seed;
    ++saved;
  }
  if (count >= 1000) {
    EXPECT_GT(saved, count / 4);
    EXPECT_GT(refused, count / 20);
  }
}

// The last check: a model that violates a rule is not saved, and an existing file stays.
TEST(Closure, SaveCommitsNothingThatWouldNotOpen) {
  const Folder folder;
  Model model = test::make_tied_model();
  ASSERT_OK(model.save(folder / "m"));
  const std::string before = read_file(folder / "m");
  Internals::state(model)->entry_points.graphs[0].output_names[0] = "a\nb";
  const Status status = model.save(folder / "m");
  EXPECT_EQ(status.code(), Code::bad_argument);
  EXPECT_EQ(status.message().substr(0, status.message().find('\n')),
            "Output 0 has a name that is not valid UTF-8 or holds control characters.");
  EXPECT_NE(status.message().find("- The file could not be opened again, so it is not saved."),
            std::string::npos);
  EXPECT_EQ(read_file(folder / "m"), before);
  EXPECT_EQ(folder.files(), 1u) << "no temporary file is left";
}

TEST(Closure, AnAssignedShapeThatTheGraphCannotTakeIsRefused) {
  const Folder folder;
  Model model;
  const Parameter w = test::must(model.parameter("w", {2, 2}, Init::ones()));
  GraphBuilder g(model, "f");
  const Value y = g.op("Linear", {g.input("x", DType::f32, {1, 2}), g.parameter(w)});
  g.output("y", g.op("Add", {y, g.input("z", DType::f32, {1, 2})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(model.materialize(1));
  Model other;
  test::must(other.parameter("w", {5, 2}, Init::ones()));
  ASSERT_OK(other.materialize(1));
  ASSERT_OK(other.save(folder / "five"));
  const std::string before = model.parameters() + model.storages();
  const Status status = model.load(folder / "five", {.mode = LoadMode::assign}).status();
  EXPECT_EQ(status.code(), Code::bad_argument);
  EXPECT_NE(status.message().find("While checking node 1 (Add)"), std::string::npos)
      << status.message();
  EXPECT_EQ(model.parameters() + model.storages(), before);
}

// Tables may have any number of entries: three for each of these parameters.
TEST(Closure, ManyParameters) {
  const Folder folder;
  Model model;
  for (int i = 0; i < 67'000; ++i) {
    test::must(model.parameter(format("w.{}", i), {2}, Init::ones()));
  }
  ASSERT_OK(model.save(folder / "m"));
  const Model opened = test::must(Model::open(folder / "m"));
  EXPECT_EQ(opened.parameters(), model.parameters());
}

TEST(Budget, IsKeptAndNamed) {
  const Folder folder;
  ASSERT_OK(test::make_tied_model().save(folder / "m"));
  const auto open_with = [&](Budget budget) {
    OpenOptions options;
    options.budget = budget;
    return Model::open(folder / "m", options).status();
  };
  EXPECT_OK(open_with({}));
  const Status few_bytes = open_with({1000, 0, 0});
  EXPECT_EQ(few_bytes.code(), Code::over_budget);
  EXPECT_NE(few_bytes.message().find("bytes of memory exceed the budget of 1000."),
            std::string::npos);
  const Status few_nodes = open_with({0, 2, 0});
  EXPECT_EQ(few_nodes.code(), Code::over_budget);
  EXPECT_EQ(few_nodes.message().substr(0, few_nodes.message().find('\n')),
            "3 nodes exceed the budget of 2.");
  EXPECT_EQ(open_with({0, 0, 1e-9}).code(), Code::over_budget);
  EXPECT_EQ(Budget::of_file(65536).bytes, (uint64_t{96} << 20) + 256 * 65536);
  EXPECT_LE(Budget::of_file(65536).bytes, uint64_t{128} << 20);
}

// The file is read, not memory-mapped: later changes of the file have no effect.
TEST(OpenOptions, AReadFileMayChange) {
  const Folder folder;
  Model model = test::make_tied_model();
  ASSERT_OK(model.materialize(1));
  ASSERT_OK(model.save(folder / "m"));
  OpenOptions options;
  options.memory_map = false;
  for (const bool truncated : {false, true}) {
    Model opened = test::must(Model::open(folder / "m", options));
    const std::string bytes = read_file(folder / "m");
    if (truncated) {
      std::filesystem::resize_file(folder / "m", 4096);
    } else {
      std::string changed = bytes;
      changed[4096] = static_cast<char>(changed[4096] + 1);
      test::write_file(folder / "m", changed);
    }
    EXPECT_EQ(test::values(opened, "emb.weight"), test::values(model, "emb.weight"));
    ASSERT_OK(opened.save(folder / "copy"));
    EXPECT_EQ(read_file(folder / "copy"), bytes);
    test::write_file(folder / "m", bytes);
  }
}

}  // namespace
}  // namespace bowline
