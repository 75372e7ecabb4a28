// Writers of states, and where readers are allowed.
#include "graph/updates.h"

#include "api/internals.h"
#include "graph/bind.h"
#include "ties/seed_models.h"

namespace bowline {
namespace {

using test::must;

const std::vector<Attribute> kFirstAxis = {{"axis", 0}};

// A model with the states "a" and "b" [4, 2] and the weight "w". `build` makes an entry point of
// them and of x [1, 2].
struct States {
  Model model;
  Parameter a = must(model.parameter("a", {4, 2}, Init::zeros(), StorageRole::kv_cache));
  Parameter b = must(model.parameter("b", {4, 2}, Init::zeros(), StorageRole::running_statistic));
  Parameter w = must(model.parameter("w", {4, 2}, Init::zeros()));

  template <class Build>
  Status build(Build make) {
    GraphBuilder g(model, "g");
    const Value x = g.input("x", DType::f32, {1, 2});
    g.output("y", make(g, x));
    return g.finish();
  }
  std::vector<uint32_t> written() const {
    return must(graph::written_storages(Internals::state(model)->entry_points.graphs.at(0),
                                        Internals::state(model)->table));
  }
};

Value write(GraphBuilder& g, Value state, Value rows) {
  return g.op("WriteRows", {state, rows}, kFirstAxis);
}
Value total(GraphBuilder& g, Value v) { return g.op("ReduceSum", {v}); }

TEST(Updates, AreFoundByStorage) {
  States s;
  ASSERT_OK(s.build([&](GraphBuilder& g, Value x) {
    const Value b = write(g, g.parameter(s.b), x);
    return g.op("Add", {total(g, b), total(g, write(g, g.parameter(s.a), x))});
  }));
  EXPECT_EQ(s.written(), (std::vector<uint32_t>{0, 1}));
}

TEST(Updates, NobodyWritesWithoutAWriter) {
  States s;
  ASSERT_OK(s.build([&](GraphBuilder& g, Value) { return total(g, g.parameter(s.a)); }));
  EXPECT_TRUE(s.written().empty());
}

template <class Build>
void expect_refused(States& s, const std::string& message, Build make) {
  const Status refused = s.build(make);
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_EQ(refused.message(), message);
  EXPECT_TRUE(Internals::state(s.model)->entry_points.graphs.empty());
}

TEST(Updates, AStorageHasOneWriter) {
  States s;
  expect_refused(
      s,
      "Storage 0 has two writers: node 0 (WriteRows) through parameter \"a\", and node 1 "
      "\"again\" (WriteRows) through \"a\".",
      [&](GraphBuilder& g, Value x) {
        const Value a = g.parameter(s.a);
        write(g, a, x);
        g.named("again");
        return write(g, a, x);
      });
}

TEST(Updates, AStorageThatIsTrainedHasNone) {
  States s;
  const std::string message =
      "node 0 (WriteRows) writes parameter \"w\", whose storage 2 (a weight) is trainable.";
  expect_refused(s, message,
                 [&](GraphBuilder& g, Value x) { return write(g, g.parameter(s.w), x); });
  ASSERT_OK(s.model.freeze("w"));
  ASSERT_OK(s.build([&](GraphBuilder& g, Value x) { return write(g, g.parameter(s.w), x); }));
  EXPECT_EQ(s.written(), std::vector<uint32_t>{2});
  // The flag may change: a plan checks again.
  ASSERT_OK(s.model.freeze("w", false));
  EXPECT_EQ(
      graph::bind(Internals::state(s.model)->entry_points.graphs[0], *Internals::state(s.model), {})
          .status()
          .message(),
      message);
}

TEST(Updates, AStateIsNeverThawed) {
  States s;
  const Status refused = s.model.freeze("b", false);
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_EQ(refused.message(),
            "\"b\" cannot be thawed: it is a running_statistic, which is not trained.");
}

TEST(Updates, WhatIsWrittenIsAParameterAsItLies) {
  States s;
  expect_refused(s, "Input 0 of node 1 (WriteRows) is not a parameter, but the node writes it.",
                 [&](GraphBuilder& g, Value x) {
                   return write(g, g.op("Reshape", {x}, {{"dims", {1, 2}}}), x);
                 });
  View transposed;
  transposed.transpose = true;
  const Parameter t = must(s.model.tied_parameter("t", s.a, transposed));
  expect_refused(
      s, "node 1 (WriteRows) writes parameter \"t\", which is a transposed view of storage 0.",
      [&](GraphBuilder& g, Value x) {
        return g.op("WriteRows", {g.parameter(t), g.op("Reshape", {x}, {{"dims", {2, 1}}})},
                    {{"axis", 1}});
      });
}

TEST(Updates, AReaderOfTheParameterStandsInFrontOfTheWriter) {
  const auto message = [](const char* reader, int writer = 0) {
    return format(
        "{} reads parameter \"a\", but not before node {} (WriteRows) writes its storage 0 through "
        "\"a\". To read the new values, use the output of that node.",
        reader, writer);
  };
  States s;
  expect_refused(s, message("node 1 (ReduceSum)"), [&](GraphBuilder& g, Value x) {
    const Value a = g.parameter(s.a);
    write(g, a, x);
    return total(g, a);
  });
  expect_refused(s, message("output \"y\""), [&](GraphBuilder& g, Value x) {
    const Value a = g.parameter(s.a);
    write(g, a, x);
    return a;
  });
  // A view is read at its readers.
  expect_refused(s, message("node 2 (ReduceSum)", 1), [&](GraphBuilder& g, Value x) {
    const Value a = g.parameter(s.a);
    const Value flat = g.op("Reshape", {a}, {{"dims", {8}}});
    write(g, a, x);
    return total(g, flat);
  });
}

TEST(Updates, TheRowsAreNotOfTheStateItself) {
  States s;
  expect_refused(s,
                 "node 0 (WriteRows) reads parameter \"a\", but not before node 0 "
                 "(WriteRows) writes its storage 0 through \"a\". To read the new values, use the "
                 "output of that node.",
                 [&](GraphBuilder& g, Value) {
                   const Value a = g.parameter(s.a);
                   return write(g, a, a);
                 });
}

TEST(Updates, TiesDecide) {
  States s;
  const Parameter c = must(s.model.parameter("c", {4, 2}, Init::zeros(), StorageRole::kv_cache));
  ASSERT_OK(s.build([&](GraphBuilder& g, Value x) {
    const Value written = write(g, g.parameter(s.a), x);
    return g.op("Add", {total(g, written), total(g, g.parameter(c))});
  }));
  const graph::GenericGraph& g = Internals::state(s.model)->entry_points.graphs[0];
  EXPECT_OK(graph::bind(g, *Internals::state(s.model), {}).status());
  ASSERT_OK(s.model.tie("a", "c"));
  const Status refused = graph::bind(g, *Internals::state(s.model), {}).status();
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_EQ(refused.message(),
            "node 2 (ReduceSum) reads parameter \"c\", but not before node 0 "
            "(WriteRows) writes its storage 0 through \"a\". To read the new values, use the "
            "output of that node.");
  ASSERT_OK(s.model.untie("c").status());
  EXPECT_OK(graph::bind(g, *Internals::state(s.model), {}).status());
}

// A Repeat of two iterations that writes a list and sums its entries before and after the write.
Status build_repeat(Model& model, const ParameterList& states, bool reads_behind) {
  GraphBuilder g(model, "g");
  const Value x = g.input("x", DType::f32, {1, 2});
  const auto y = g.repeat(2, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
    const Value state = body.parameter(states);
    Value before = reads_behind ? state : body.op("ReduceSum", {state});
    const Value after = write(body, state, in[0]);
    before = reads_behind ? body.op("ReduceSum", {state}) : before;
    const Value sum = body.op("Add", {before, body.op("ReduceSum", {after})});
    return std::vector<Value>{body.op("Add", {in[0], sum})};
  });
  g.output("y", y.at(0));
  return g.finish();
}

TEST(Updates, AnIterationWritesItsEntryOfAList) {
  Model model;
  const ParameterList own =
      must(model.parameters("k.{}", 2, {4, 2}, Init::zeros(), StorageRole::kv_cache));
  ASSERT_OK(build_repeat(model, own, false));
  EXPECT_EQ(must(graph::written_storages(Internals::state(model)->entry_points.graphs[0],
                                         Internals::state(model)->table)),
            (std::vector<uint32_t>{0, 1}));
  ASSERT_OK(model.tie("k.0", "k.1"));
  EXPECT_EQ(
      graph::bind(Internals::state(model)->entry_points.graphs[0], *Internals::state(model), {})
          .status()
          .message(),
      "Storage 0 has two writers: node 1 (WriteRows) in the body of node 0 (Repeat) through "
      "parameter \"k.0\", and node 1 (WriteRows) in the body of node 0 (Repeat) through \"k.1\".");
}

TEST(Updates, ABodyReadsBeforeItWrites) {
  Model model;
  const ParameterList own =
      must(model.parameters("k.{}", 2, {4, 2}, Init::zeros(), StorageRole::kv_cache));
  EXPECT_EQ(build_repeat(model, own, true).message(),
            "node 1 (ReduceSum) in the body of node 0 (Repeat) reads parameter \"k.0\", but not "
            "before node 0 (WriteRows) in the body of node 0 (Repeat) writes its storage 0 through "
            "\"k.0\". To read the new values, use the output of that node.");
}

// A body does not show whether another iteration has written the entry.
TEST(Updates, ABodyReadsNoEntryOfAnotherIteration) {
  Model model;
  const ParameterList own =
      must(model.parameters("k.{}", 2, {4, 2}, Init::zeros(), StorageRole::kv_cache));
  const ParameterList swapped{{own.items[1], own.items[0]}};
  GraphBuilder g(model, "g");
  const Value x = g.input("x", DType::f32, {1, 2});
  const auto y = g.repeat(2, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
    const Value other = body.op("ReduceSum", {body.parameter(swapped)});
    write(body, body.parameter(own), in[0]);
    return std::vector<Value>{body.op("Add", {in[0], other})};
  });
  g.output("y", y.at(0));
  EXPECT_EQ(g.finish().message().substr(0, 66),
            "node 0 (ReduceSum) in the body of node 0 (Repeat) reads parameter ");
}

Status encode_zeros(Model& model, const char* name, std::string_view encoding) {
  const auto zeros = [](uint64_t, std::span<std::byte> out) -> Status {
    std::ranges::fill(out, std::byte{0});
    return {};
  };
  return model.set_source(name, zeros, encoding);
}

std::string first_line(const Status& status) {
  return status.message().substr(0, status.message().find('\n'));
}

// Rows of the last axis have separate scales and are written as a whole.
TEST(Updates, CodesTakeRows) {
  States s;
  ASSERT_OK(s.build([&](GraphBuilder& g, Value x) {
    write(g, g.parameter(s.a), x);
    return x;
  }));
  const std::string before = s.model.storages();
  for (const char* encoding : {"int8", "int8 with zero points block row",
                               "int8 block row scale f16", "int8 block 2 axis 0", "int4"}) {
    const Status refused = encode_zeros(s.model, "a", encoding);
    EXPECT_EQ(refused.code(), Code::bad_argument) << encoding;
    EXPECT_NE(first_line(refused).find("node 0 (WriteRows) writes parameter \"a\", whose storage 0 "
                                       "is stored as int"),
              std::string::npos)
        << refused.message();
  }
  EXPECT_EQ(s.model.storages(), before);
  EXPECT_OK(encode_zeros(s.model, "a", "int8 block row"));
  EXPECT_EQ(s.written(), (std::vector<uint32_t>{0}));
  const QuantizeReport other = must(quantize(s.model, "int8", "a"));
  EXPECT_EQ(other.storages, 0u);
  EXPECT_EQ(other.kept, (std::vector<std::string>{"\"a\" is a kv_cache"}));
}

TEST(Updates, CodesAreNotWrittenAlongTheirRows) {
  States s;
  ASSERT_OK(s.build([&](GraphBuilder& g, Value x) {
    const Value column =
        g.op("Reshape", {g.op("Slice", {x}, {{"axis", 1}, {"length", 1}})}, {{"dims", {1, 1}}});
    const Value all = g.op("Concat", {column, column, column, column}, {{"axis", 0}});
    g.op("WriteRows", {g.parameter(s.a), all}, {{"axis", 1}});
    return x;
  }));
  EXPECT_EQ(first_line(encode_zeros(s.model, "a", "int8 block row")),
            "node 3 (WriteRows) writes parameter \"a\", whose storage 0 is stored as int8 block 2 "
            "axis -1 scale f32. The node cannot write rows of this encoding.");
}

// A value that is read after the writer is the state, and stays quantized while its rows are
// intact.
TEST(Updates, CodesGoOnlyWhereTheyAreRead) {
  const auto reads = [](const std::function<Value(GraphBuilder&, Value)>& read) {
    States s;
    const Parameter cache =
        must(s.model.parameter("cache", {4, 1, 2}, Init::zeros(), StorageRole::kv_cache));
    EXPECT_OK(s.build([&](GraphBuilder& g, Value x) {
      const Value rows = g.op("Reshape", {x}, {{"dims", {1, 1, 2}}});
      return read(g, write(g, g.parameter(cache), rows));
    }));
    return first_line(encode_zeros(s.model, "cache", "int8 block row"));
  };
  EXPECT_EQ(reads([](GraphBuilder& g, Value v) { return total(g, v); }),
            "\"cache\" cannot be stored as int8 block row axis -1 scale f32: it is read by node 2 "
            "(ReduceSum) of \"g\", which cannot read quantized values.");
  EXPECT_EQ(
      reads([](GraphBuilder&, Value v) { return v; }),
      "\"cache\" cannot be stored as int8 block row axis -1 scale f32: it is an output of \"g\".");
  EXPECT_EQ(reads([](GraphBuilder& g, Value v) {
              return g.op("Square", {g.op("Slice", {v}, {{"axis", 0}, {"length", 2}})});
            }),
            "\"cache\" cannot be stored as int8 block row axis -1 scale f32: it is read by node 3 "
            "(Square) of \"g\", which cannot read quantized values.");
  EXPECT_EQ(reads([](GraphBuilder& g, Value v) {
              return g.op("Slice", {v}, {{"axis", 0}, {"start", 1}, {"length", 2}});
            }),
            "\"cache\" cannot be stored as int8 block row axis -1 scale f32: it is read by node 2 "
            "(Slice) of \"g\", which cannot read quantized values.");
  EXPECT_EQ(reads([](GraphBuilder& g, Value v) {
              const Value k = g.op("Reshape", {v}, {{"dims", {1, 8, 1, 1}}});
              const Value q = g.op("Softplus", {g.op("Slice", {k}, {{"axis", 1}, {"length", 1}})});
              return g.op("Attention", {q, k, k});
            }),
            "\"cache\" cannot be stored as int8 block row axis -1 scale f32: it is read by node 2 "
            "(Reshape) of \"g\", which cannot read quantized values.");
}

TEST(Updates, AWriterIsKeptThoughNobodyReadsIt) {
  States s;
  ASSERT_OK(s.build([&](GraphBuilder& g, Value x) {
    write(g, g.parameter(s.a), x);
    return total(g, x);
  }));
  graph::BoundGraph g = must(graph::bind(Internals::state(s.model)->entry_points.graphs[0],
                                         *Internals::state(s.model), {}));
  graph::prune(g);
  EXPECT_EQ(g.nodes.size(), 2u);
}

TEST(Updates, AModelKnowsItsRoles) {
  Model model;
  const Status refused = model.parameter("a", {1}, Init::zeros(), StorageRole::gradient).status();
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_EQ(refused.message(), "Parameter \"a\" cannot be declared with the role gradient.");
  EXPECT_OK(model.parameter("a", {1}, Init::zeros(), StorageRole::constant).status());
  EXPECT_FALSE(Internals::state(model)->table.storages[0].trainable);
}

}  // namespace
}  // namespace bowline
