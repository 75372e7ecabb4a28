// Training with a short table. The plan multiplies the table before it gathers rows. The result
// equals that of a training in which a Reshape prevents this.
#include "base/random.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"
#include "train/tiny_lm.h"

namespace bowline::test::tables {
namespace {

constexpr int64_t kRows = 5, kWidth = 16, kSteps = 6, kBatch = 3;

// A model of ids under construction. With `apart` a Reshape separates the rows and their product.
struct Letters {
  explicit Letters(bool rows_apart) : apart(rows_apart) {}

  Value weight(const std::string& name, const Dims& shape) {
    return g.parameter(must(model.parameter(name, shape, Init::normal(0.5f))));
  }
  Value rows(Value table) {
    const Value x = g.named("letters").op("Embedding", {table, ids});
    return apart ? g.op("Reshape", {x}, {{"dims", {"seq", kBatch, kWidth}}}) : x;
  }
  Value product(Value x, Value w) { return g.op("Linear", {x, w}); }

  bool apart;
  Model model;
  GraphBuilder g{model, "loss"};
  Value ids = g.input("ids", DType::i32, {"seq", kBatch});
};

struct Case {
  const char* name;
  Value (*logits)(Letters& l);  // [seq, 3, 5]
  int gathered = 1;             // gathers from products of a table
  const char* frozen = "";
  bool adapter = false;
};

const Case kCases[] = {
    {"Linear",
     [](Letters& l) {
       return l.product(l.rows(l.weight("t", {kRows, kWidth})), l.weight("w", {kRows, kWidth}));
     }},
    {"Bias",
     [](Letters& l) {
       const Value x = l.rows(l.weight("t", {kRows, kWidth}));
       return l.g.op("Linear", {x, l.weight("w", {kRows, kWidth}), l.weight("b", {kRows})});
     }},
    {"MatMul",
     [](Letters& l) {
       const Value x = l.rows(l.weight("t", {kRows, kWidth}));
       return l.g.op("MatMul", {x, l.weight("w", {kWidth, kRows})});
     }},
    // The table is also the weight of the head.
    {"Tie",
     [](Letters& l) {
       const Value t = l.weight("t", {kRows, kWidth});
       const Value y = l.g.op("Tanh", {l.product(l.rows(t), l.weight("w", {kWidth, kWidth}))});
       return l.product(y, t);
     }},
    // The table is multiplied by itself.
    {"Square",
     [](Letters& l) {
       const Value t = l.weight("t", {kRows, kWidth});
       return l.product(l.rows(t), t);
     }},
    {"TwoReaders",
     [](Letters& l) {
       const Value x = l.rows(l.weight("t", {kRows, kWidth}));
       const Value a = l.product(x, l.weight("w", {kWidth, kWidth}));
       const Value b = l.product(x, l.weight("v", {kWidth, kWidth}));
       const Value y = l.g.op("Add", {x, l.g.op("Mul", {a, b})});
       return l.product(l.g.op("Tanh", {y}), l.weight("head", {kRows, kWidth}));
     },
     2},
    {"FrozenTable",
     [](Letters& l) {
       return l.product(l.rows(l.weight("t", {kRows, kWidth})), l.weight("w", {kRows, kWidth}));
     },
     1, "t"},
    {"FrozenWeight",
     [](Letters& l) {
       return l.product(l.rows(l.weight("t", {kRows, kWidth})), l.weight("w", {kRows, kWidth}));
     },
     1, "w"},
    // The first product of the adapter also has the table as operand.
    {"Adapter",
     [](Letters& l) {
       return l.product(l.rows(l.weight("t", {kRows, kWidth})), l.weight("w", {kRows, kWidth}));
     },
     2, "t", true},
};

Model model_of(const Case& c, bool apart) {
  Letters l(apart);
  const Value labels = l.g.input("labels", DType::i32, {"seq", kBatch});
  l.g.output("loss", l.g.op("CrossEntropy", {c.logits(l), labels}));
  EXPECT_OK(l.g.finish());
  EXPECT_OK(l.model.materialize(3));
  if (c.frozen[0] != '\0') {
    EXPECT_OK(l.model.freeze(c.frozen));
  }
  if (c.adapter) {
    EXPECT_OK(add_adapter(l.model, "lora", {.rank = 2, .target = "w"}).status());
  }
  return std::move(l.model);
}

// Ids that never select the last row of the table.
struct Batch {
  explicit Batch(uint32_t number) : ids(kSteps * kBatch), labels(ids.size()) {
    for (uint32_t i = 0; i < ids.size(); ++i) {
      const RandomBlock r = philox({i, number, 0, 0}, {5, 9});
      ids[i] = static_cast<int32_t>(r[0] % (kRows - 1));
      labels[i] = static_cast<int32_t>(r[1] % kRows);
    }
  }
  std::vector<Tensor> tensors() {
    return {tensor("ids", shape, ids), tensor("labels", shape, labels)};
  }
  Dims shape = {kSteps, kBatch};
  std::vector<int32_t> ids, labels;
};

int count_of(const std::string& listing, const std::string& op) {
  int count = 0;
  for (size_t at = listing.find(op + "("); at != listing.npos;
       at = listing.find(op + "(", at + 1)) {
    ++count;
  }
  return count;
}

class Tables : public OnDevice {
 protected:
  Trainer trainer_of(Model& model) {
    must(model.to(device_));
    TrainOptions o;
    o.dims = {{"seq", kSteps}};
    o.optimizer = {"sgd"};
    o.schedule.learning_rate = 0.5f;
    return must(Trainer::create(model, device_, o));
  }
};
BOWLINE_ON_ALL_DEVICES(Tables);

TEST_P(Tables, TrainAsRowsThatAreMultipliedOneByOne) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Model model = model_of(c, false), apart = model_of(c, true);
    Trainer fast = trainer_of(model), slow = trainer_of(apart);
    EXPECT_EQ(count_of(must(fast.listing("forward")), "Embedding"),
              std::string_view(c.name) == "TwoReaders" ? 3 : c.gathered);
    EXPECT_EQ(count_of(must(slow.listing("forward")), "Embedding"), 1);
    for (uint32_t i = 0; i < 4; ++i) {
      Batch batch(i);
      EXPECT_NEAR(must(fast.evaluate(batch.tensors())), must(slow.evaluate(batch.tensors())), 2e-6);
      const StepReport a = must(fast.micro_step(batch.tensors())).value();
      const StepReport b = must(slow.micro_step(batch.tensors())).value();
      EXPECT_NEAR(a.loss, b.loss, 2e-6) << i;
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5 * b.grad_norm) << i;
    }
    for (const ParameterInfo& p : must(model.describe()).parameters) {
      const Floats ours = values(model, p.name), theirs = values(apart, p.name);
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_NEAR(ours[i], theirs[i], 5e-6) << p.name << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace bowline::test::tables
