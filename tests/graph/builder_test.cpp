// Errors of the builder and the verbs, each with its message: a model must not contain anything
// that a file could not.
#include <functional>

#include "api/internals.h"
#include "ties/seed_models.h"

namespace bowline {
namespace {

using test::Dims;
using test::must;

struct Refusal {
  const char* name;
  std::function<void(Model& model, GraphBuilder& g)> build;
  const char* says;
};

std::string too_long() { return std::string(1025, 'n'); }

Value x_of(GraphBuilder& g) { return g.input("x", DType::f32, {1, 2}); }

std::vector<Value> same(GraphBuilder&, const std::vector<Value>& carried) { return carried; }

const Refusal kRefusals[] = {
    {"AnInputOfNoName", [](Model&, GraphBuilder& g) { g.input("", DType::f32, {1}); },
     "An input has no name."},
    {"AnInputTwice",
     [](Model&, GraphBuilder& g) {
       x_of(g);
       x_of(g);
     },
     "An input has the name \"x\", which is taken."},
    {"AnInputWithALineBreak", [](Model&, GraphBuilder& g) { g.input("x\n", DType::f32, {1}); },
     "An input has a name that is not valid UTF-8 or holds control characters."},
    {"AnUnknownDtype", [](Model&, GraphBuilder& g) { g.input("x", static_cast<DType>(9), {1}); },
     "Input \"x\" has the unknown dtype 9."},
    {"ADimOfABadName", [](Model&, GraphBuilder& g) { g.input("x", DType::f32, {"b\n"}); },
     "A dim has a name that is not valid UTF-8 or holds control characters."},
    {"ANegativeDim", [](Model&, GraphBuilder& g) { g.input("x", DType::f32, {-1}); },
     "Dim -1 lies outside 0..2147483647."},
    {"RankNine",
     [](Model&, GraphBuilder& g) {
       g.input("x", DType::f32, {1, 1, 1, 1, 1, 1, 1, 1, 1});
     },
     "The shape has rank 9 or more, above the limit of 8."},
    {"AnOutputTwice",
     [](Model&, GraphBuilder& g) {
       g.output("y", x_of(g));
       g.output("y", g.op("Tanh", {g.input("z", DType::f32, {1})}));
     },
     "An output has the name \"y\", which is taken."},
    {"AnOutputOfNoName", [](Model&, GraphBuilder& g) { g.output("", x_of(g)); },
     "An output has no name."},
    {"ANodeOfALongName", [](Model&, GraphBuilder& g) { g.named(too_long()).op("Tanh", {x_of(g)}); },
     "The node has a name of 1025 bytes, above the limit of 1024."},
    {"AnUnknownEnumValue",
     [](Model&, GraphBuilder& g) {
       g.op("Gelu", {x_of(g)}, {{"form", 9}});
     },
     "Attribute form has the unknown value 9."},
    {"HalfAnEnumValue",
     [](Model&, GraphBuilder& g) {
       g.op("Gelu", {x_of(g)}, {{"form", 0.5}});
     },
     "Attribute form has the unknown value 0.5."},
    {"ANumberThatIsNoInteger",
     [](Model&, GraphBuilder& g) {
       g.op("Softmax", {x_of(g)}, {{"axis", 1e30}});
     },
     "Attribute axis has a value of the wrong kind."},
    {"TooManyAxes",
     [](Model&, GraphBuilder& g) {
       g.op("ReduceSum", {x_of(g)}, {{"axes", std::vector<GraphDim>(9, GraphDim(0))}});
     },
     "The attribute axes has 9 entries, above 8."},
    {"ARepeatOf65537", [](Model&, GraphBuilder& g) { g.repeat(65537, {x_of(g)}, same); },
     "The Repeat has a count of 65537, outside 1..65536."},
    {"ARepeatOfNothing", [](Model&, GraphBuilder& g) { g.repeat(2, {}, same); },
     "The Repeat needs at least one carried value."},
    {"AnInternalOperator", [](Model&, GraphBuilder& g) { g.op("Fill", {}); },
     "Models have no operator \"Fill\". Did you mean \"Silu\" or \"Tile\"?"},
    {"AMistypedOperator", [](Model&, GraphBuilder& g) { g.op("linaer", {}); },
     "Models have no operator \"linaer\". Did you mean \"Linear\"?"},
    {"APartOfTheNameOfAnOperator", [](Model&, GraphBuilder& g) { g.op("Conv2d", {}); },
     "Models have no operator \"Conv2d\". Did you mean \"Conv\"?"},
    {"AMistypedAttribute",
     [](Model&, GraphBuilder& g) {
       g.op("Softmax", {x_of(g)}, {{"axes", 0}});
     },
     "There is no attribute \"axes\". Did you mean \"axis\"?"},
    {"AHandleOfNothing", [](Model&, GraphBuilder& g) { g.parameter(Parameter{}); },
     "The handle names no parameter."},
    {"AHandleOfAnotherModel",
     [](Model&, GraphBuilder& g) {
       Model other;
       g.parameter(must(other.parameter("a", {2, 2}, Init::ones())));
     },
     "The parameter belongs to another model."},
    {"AGraphThatIsThere",
     [](Model& m, GraphBuilder& g) {
       GraphBuilder other(m, "g");
       other.output("y", x_of(other));
       EXPECT_OK(other.finish());
       g.output("y", x_of(g));
     },
     "There is a graph \"g\" already."},
};

TEST(Builder, RefusesWhatNoFileHolds) {
  for (const Refusal& r : kRefusals) {
    Model model;
    GraphBuilder g(model, "g");
    r.build(model, g);
    if (g.finish().ok()) {
      ADD_FAILURE() << r.name << " is accepted";
      continue;
    }
    const Status status = g.finish();
    EXPECT_EQ(status.code(), Code::bad_argument) << r.name;
    EXPECT_EQ(status.message().substr(0, status.message().find('\n')), r.says) << r.name;
  }
}

TEST(Builder, RefusesNamesOfGraphs) {
  for (const auto& [name, says] :
       {std::pair(std::string(), "A graph has no name."),
        std::pair(std::string("a\nb"),
                  "A graph has a name that is not valid UTF-8 or holds control characters."),
        std::pair(too_long(), "A graph has a name of 1025 bytes, above the limit of 1024.")}) {
    Model model;
    GraphBuilder g(model, name);
    g.output("y", x_of(g));
    const std::string message = g.finish().message();
    EXPECT_EQ(message.substr(0, message.find('\n')), says);
    EXPECT_TRUE(must(model.describe()).entry_points.empty());
  }
}

TEST(Metadata, HoldsTextOnly) {
  Model model;
  EXPECT_OK(model.set_metadata("k", std::string(1 << 20, 'a')));
  EXPECT_EQ(model.set_metadata("k", std::string((1 << 20) + 1, 'a')).message(),
            "The metadata \"k\" has 1048577 bytes, above the limit of 1048576.");
  EXPECT_EQ(model.set_metadata("k", "\xff").message(), "The metadata \"k\" is not valid UTF-8.");
  EXPECT_EQ(model.set_metadata("k\n", "v").message(),
            "A metadata entry has a name that is not valid UTF-8 or holds control characters.");
  EXPECT_EQ(model.metadata("k").size(), size_t{1} << 20) << "as before";
}

// After an error each call still returns the right number of values, and the first error is
// reported.
TEST(Builder, CountsValuesAfterAnError) {
  Model model;
  const Parameter w = must(model.parameter("w", {2, 2}, Init::ones()));
  GraphBuilder g(model, "g");
  const Value x = g.input("x", DType::f32, {1, 3});
  const Value bad = g.op("Linear", {x, g.parameter(w)});
  EXPECT_EQ(bad.index, Value{}.index);
  bool ran = false;
  const auto y = g.repeat(2, {bad, x}, [&](GraphBuilder&, const std::vector<Value>& carried) {
    ran = true;
    return carried;
  });
  ASSERT_EQ(y.size(), 2u);
  EXPECT_EQ(y.at(1).index, Value{}.index);
  EXPECT_FALSE(ran);
  g.op("LayerNorm", {y.at(0)});
  EXPECT_EQ(g.last_outputs().size(), static_cast<size_t>(op_def(Op::LayerNorm).outputs));
  g.output("y", y.at(0));
  const Status status = g.finish();
  EXPECT_NE(status.message().find("node 0 (Linear)"), std::string::npos) << status.message();
}

TEST(Builder, MayOutliveItsModel) {
  auto model = std::make_unique<Model>();
  GraphBuilder g(*model, "g");
  const Value x = x_of(g);
  model.reset();
  EXPECT_EQ(g.op("Tanh", {x}).index, Value{}.index);
  g.output("y", x);
  EXPECT_EQ(g.finish().message(),
            "The model of this builder no longer exists.\n- While building graph \"g\".");
}

TEST(MovedFrom, EveryCallAnswers) {
  const Device cpu = must(Device::open("cpu"));
  test::Seed s = test::lm32();
  ASSERT_OK(s.model.to(cpu));
  Session session = must(Session::create(s.model, cpu, "loss", {}));
  Trainer trainer = must(Trainer::create(s.model, cpu, {}));
  const Session session_now = std::move(session);
  const Trainer trainer_now = std::move(trainer);
  const Model model_now = std::move(s.model);
  Model& m = s.model;
  test::Floats one = {1};
  const Tensor t = test::tensor("x", {1}, one);
  const std::string empty = "The model is empty: it was moved from, or there was no memory for it.";
  for (const Status& status :
       {m.parameter("a", {1}, {}).status(), m.tied_parameter("a", {}).status(),
        m.parameters("a", 1, {1}, {}).status(), m.find("a").status(), m.materialize(1),
        m.tie("a", "b").status(), m.untie("a").status(), m.set_value("a", t), m.get_value("a", t),
        m.freeze("a"), m.freeze_storage("a"), m.to(cpu), m.clone().status(), m.save("a"),
        m.load("a").status(), m.set_metadata("a", "b"), m.same_storage("a", "b").status(),
        Session::create(m, cpu, "loss", {}).status(), Trainer::create(m, cpu, {}).status()}) {
    EXPECT_EQ(status.code(), Code::bad_argument);
    EXPECT_EQ(status.message(), empty);
  }
  EXPECT_EQ(m.parameters() + m.storages() + m.ties() + m.metadata("a"), "");
  GraphBuilder g(m, "g");
  g.output("y", x_of(g));
  EXPECT_EQ(g.finish().code(), Code::bad_argument);
  EXPECT_EQ(session.run({}, {}).message(),
            "The session is empty: it was moved from, or there was no memory for it.");
  EXPECT_EQ(session.listing("build").status().code(), Code::bad_argument);
  EXPECT_EQ(session.memory().predicted_bytes + session.counters().submits, 0u);
  trainer.cancel();
  for (const Status& status :
       {trainer.micro_step({}).status(), trainer.step({}).status(), trainer.evaluate({}).status(),
        trainer.snapshot(), trainer.rollback(), trainer.save("a", {}), trainer.resume("a").status(),
        trainer.listing("build").status()}) {
    EXPECT_EQ(status.message(),
              "The trainer is empty: it was moved from, or there was no memory for it.");
  }
  EXPECT_EQ(trainer.steps() + trainer.memory().predicted_bytes, 0u);
}

TEST(Handles, BelongToOneModel) {
  Model a;
  Model b;
  const Parameter of_a = must(a.parameter("w", {2, 2}, Init::ones()));
  must(b.parameter("w", {2, 2}, Init::ones()));
  EXPECT_EQ(b.tied_parameter("v", of_a).status().message(),
            "The parameter belongs to another model.");
  EXPECT_TRUE(a.tied_parameter("v", of_a).ok());
  Model c = must(a.clone());
  EXPECT_FALSE(c.tied_parameter("u", of_a).ok()) << "a clone is another model";
  EXPECT_TRUE(c.tied_parameter("u", must(c.find("w"))).ok());
}

TEST(Views, AreRelativeToTheStorage) {
  Model m;
  const Parameter a = must(m.parameter("a", {2, 2}, Init::zeros()));
  View turned;
  turned.transpose = true;
  const Parameter a_t = must(m.tied_parameter("a_t", a, turned));
  must(m.tied_parameter("inherits", a_t));
  must(m.tied_parameter("again", a_t, turned));
  must(m.tied_parameter("whole", a_t, View{}));
  for (const char* name : {"t_inherits", "t_again", "t_whole"}) {
    must(m.parameter(name, {2, 2}, Init::zeros()));
  }
  ASSERT_OK(m.materialize(1));
  ASSERT_OK(test::set(m, "a", {2, 2}, {1, 2, 3, 4}));
  ASSERT_OK(m.tie("a_t", "t_inherits"));
  ASSERT_OK(m.tie("a_t", "t_again", turned));
  ASSERT_OK(m.tie("a_t", "t_whole", View{}));
  const test::Floats shown = {1, 3, 2, 4}, stored = {1, 2, 3, 4};
  for (const char* name : {"inherits", "again", "t_inherits", "t_again"}) {
    EXPECT_EQ(test::values(m, name), shown) << name;
  }
  EXPECT_EQ(test::values(m, "whole"), stored);
  EXPECT_EQ(test::values(m, "t_whole"), stored);
  EXPECT_EQ(m.tie("a", "a", turned).status().message(),
            "Parameter \"a\" cannot be tied to itself through another view.");
  EXPECT_OK(m.tie("a", "a"));
  EXPECT_EQ(test::values(m, "a"), stored);
}

TEST(Freeze, ThawingOneOfSeveralNeedsTheIntent) {
  test::Seed s = test::lm32();
  ASSERT_OK(s.model.freeze("embed"));
  const std::string before = s.model.storages();
  EXPECT_EQ(s.model.freeze("head", false).message(),
            "Thawing \"head\" would also thaw \"embed\", because they share storage 0. To thaw all "
            "of them, call freeze_storage(name, false).");
  EXPECT_EQ(s.model.storages(), before);
  ASSERT_OK(s.model.freeze_storage("head", false));
  EXPECT_EQ(s.model.storages().find("frozen"), std::string::npos);
  ASSERT_OK(s.model.freeze("head", false));  // already thawed
  EXPECT_EQ(s.model.same_storage("embed", "haed").status().message(),
            "There is no parameter \"haed\" among the 2 of the model.");
}

TEST(Builder, AnErrorLeavesAsManyValuesAsWithoutIt) {
  Model m;
  GraphBuilder g(m, "g");
  const Value x = g.input("x", DType::f32, {6});
  g.op("Split", {x}, {{"axis", 7}, {"sizes", {1, 2, 3}}});
  EXPECT_EQ(g.last_outputs().size(), 3u);
  g.op("Split", {x}, {{"axis", "first"}, {"sizes", {1, 5}}});
  EXPECT_EQ(g.last_outputs().size(), 2u);
  g.op("Tanh", {x});
  EXPECT_EQ(g.last_outputs().size(), 1u);
  EXPECT_EQ(g.finish().message(),
            "Axis 7 lies outside the rank (1).\n- While checking node 0 (Split).\n- While building "
            "graph \"g\".");
}

TEST(Tensors, OwnTheirShape) {
  Model m;
  must(m.parameter("w", {1, 3}, Init::ones()));
  ASSERT_OK(m.materialize(1));
  float data[3] = {};
  const Tensor t{
      "w", DType::f32, {{1, 3}}, data};  // regression: the braces once made a dangling array
  EXPECT_TRUE(std::ranges::equal(t.shape, Dims{1, 3}));
  ASSERT_OK(m.get_value("w", t));
  EXPECT_EQ(data[2], 1);
  EXPECT_TRUE(std::ranges::equal(TensorShape{5}, Dims{5}));
  EXPECT_TRUE(std::ranges::equal(TensorShape(), Dims{}));
  const Dims twelve(12, 1);
  EXPECT_EQ(m.get_value("w", Tensor{"w", DType::f32, twelve, data}).message(),
            "The shape has rank 9 or more, above the limit of 8.");
  EXPECT_FALSE(m.parameter("v", twelve, Init::ones()).ok());
}

TEST(ResultDeathTest, TheValueOfAFailureEndsWithItsMessage) {
  EXPECT_DEATH((void)Model::open("/nowhere.bowline").value(),
               "value\\(\\) was called on a failed Result: io_error: File \"/nowhere.bowline\" "
               "cannot be opened");
}

// Rows are never reused, but empty rows at the end are neither listed, saved nor cloned.
TEST(Rows, EmptyOnesAtTheEndAreForgotten) {
  test::Seed s = test::lm32();
  for (int i = 0; i < 100; ++i) {
    must(s.model.untie("head"));
    ASSERT_OK(s.model.tie("embed", "head"));
  }
  EXPECT_EQ(Internals::state(s.model)->table.storages.size(), 101u);
  EXPECT_EQ(std::ranges::count(s.model.storages(), '\n'), 1);
  EXPECT_EQ(Internals::state(must(s.model.clone()))->table.storages.size(), 1u);
  must(s.model.untie("head"));
  EXPECT_EQ(s.model.parameters().find("head tie 101"), s.model.parameters().find("head"));
}

}  // namespace
}  // namespace bowline
