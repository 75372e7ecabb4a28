// Optimizers: each storage has one state and one update, however many names it has.
#include "ties/recipes/topics.h"

namespace bowline::test {
namespace {

Floats embed_after_steps(Seed& s, Trainer& trainer, int steps) {
  for (int i = 0; i < steps; ++i) {
    step(trainer, s);
  }
  return values(s.model, "embed");
}

constexpr Recipe kOptimizersRecipes[] = {
    {"R30", "the recipe \"Extension points in nn.Module\", its stale optimizer",
     "a parameter was replaced after the optimizer was made: steps ran, the model never changed",
     [](Bench& t) {
       Model m;
       const Parameter w = must(m.parameter("w", {1, 2}, Init::zeros()));
       GraphBuilder g(m, "loss");
       const Value x = g.input("x", DType::f32, {1, 2});
       g.output("loss", g.op("ReduceSum", {g.op("Mul", {x, g.parameter(w)})}));
       must(g.finish());
       must(m.materialize(1));
       must(set(m, "w", {1, 2}, {1, 2}));
       must(m.to(t.b));
       Trainer trainer = must(Trainer::create(m, t.b, plain_sgd(0.1f)));
       Floats doubled = {2, 4}, ones = {1, 1};
       must(m.assign("w", tensor("", {1, 2}, doubled)));
       const Tensor batch[] = {tensor("x", {1, 2}, ones)};
       const std::span<const Tensor> batches[] = {batch};
       must(trainer.step(batches));
       const Floats after = values(m, "w");
       t.number("w[0]", after[0], 1.9, {{2, "the step went elsewhere"}});
       t.number("w[1]", after[1], 3.9, {{4, "the step went elsewhere"}});
     }},
    {"R31", "pytorch#7844, #69214, PR#3056; pytorch-lightning PR#554; mlverse/torch#683",
     "an optimizer that was made before the move kept its state on the CPU",
     [](Bench& t) {
       for (const Optimizer& optimizer :
            {Optimizer{"adagrad"}, adam(0.1f).optimizer, Optimizer{"sgd", {{"momentum", 0.9f}}}}) {
         TrainOptions o = adam(0.1f);
         o.optimizer = optimizer;
         Seed before = lm32(), after = lm32();
         must(before.model.to(t.a));
         Trainer first = must(Trainer::create(before.model, t.a, o));
         must(before.model.to(t.b));
         must(after.model.to(t.b));
         Trainer second = must(Trainer::create(after.model, t.b, o));
         t.same(optimizer.name, embed_after_steps(before, first, 3),
                embed_after_steps(after, second, 3));
       }
     }},
    {"R32", "pytorch#40967, #72243; volcengine/veGiantModel#6",
     "a parameter that was listed twice was updated twice",
     [](Bench& t) {
       Seed s = scalar2(1);
       must(s.model.to(t.b));
       TrainOptions o = plain_sgd(0.1f);
       o.groups = {{"a", 1, {}}, {"b", 2, {}}};
       t.refused("two groups with one storage", Trainer::create(s.model, t.b, o).status(),
                 Code::bad_argument, {"\"a\"", "\"b\""});
     }},
    {"R33", "tinygrad/tinygrad PR#1047", "a tensor was passed twice, and the model learned nothing",
     [](Bench& t) {
       Seed s = scalar2(1);
       must(s.model.to(t.b));
       TrainOptions o = plain_sgd(0.1f);
       o.groups = {{"?", 1, {}}};
       Trainer trainer = must(Trainer::create(s.model, t.b, o));
       step(trainer, s);
       t.number("a", values(s.model, "a")[0], 0.8, {{0.6, "updated twice"}});
     }},
    {"R34", "deepspeedai/DeepSpeed#195", "the optimizer held state for each name of a tie",
     [](Bench& t) {
       Model m;
       const Parameter e = must(m.parameter("embed", {1000, 64}, Init::normal(0.02f)));
       const Parameter head = must(m.tied_parameter("head", e));
       GraphBuilder g(m, "loss");
       const Value ids = g.input("ids", DType::i32, {1});
       const Value logits =
           g.op("Linear", {g.op("Embedding", {g.parameter(e), ids}), g.parameter(head)});
       g.output("loss", g.op("ReduceSum", {logits}));
       must(g.finish());
       must(m.materialize(1));
       must(m.to(t.b));
       Trainer trainer = must(Trainer::create(m, t.b, adam(0.1f)));
       uint64_t bytes = 0;
       for (const StorageInfo& row : storages_of(m, StorageRole::moment)) {
         bytes += row.bytes;
       }
       t.count("bytes of moments", bytes, 2 * 256000);
     }},
    {"R37", "rwth-i6/returnn#1319, PR#1320",
     "a weight was in both groups: its embedding without decay, its layer with decay",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       TrainOptions o = plain_sgd(0.1f);
       o.groups = {{"embed", 1, 0.0f}, {"head", 1, 0.1f}};
       t.refused("two decays for one storage", Trainer::create(s.model, t.b, o).status(),
                 Code::bad_argument, {"\"embed\"", "\"head\""});
       o.groups = {{"*e*d", 1, 0.1f}};
       must(Trainer::create(s.model, t.b, o));
     }},
    {"R39", "FluxML/Optimisers.jl#97", "optimizers did not handle tied weights at all",
     [](Bench& t) {
       Seed s = ae23();
       must(s.model.to(t.b));
       Trainer trainer = must(Trainer::create(s.model, t.b, adam(0.1f)));
       step(trainer, s);
       t.count("moments", storages_of(s.model, StorageRole::moment).size(), 2);
       // The first step of Adam is the sign of the gradient. All gradients are positive here.
       t.numbers("W", values(s.model, "encoder"), Floats({.9f, 1.9f, 2.9f, 3.9f, 4.9f, 5.9f}));
     }},
    {"R40", "paiml/entrenar#314",
     "one optimizer stepped the head on the GPU, another the embedding on the CPU: they diverged",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.a, "embed"));
       must(s.model.to(t.b, "head"));
       Trainer trainer = must(Trainer::create(s.model, t.b, adam(0.1f)));
       for (int i = 0; i < 5; ++i) {
         step(trainer, s);
         t.same("embedding and head", values(s.model, "embed"), values(s.model, "head"));
       }
       t.count("first moments", storages_of(s.model, StorageRole::moment).size(), 2);
     }},
    {"R42", "NVIDIA/TransformerEngine PR#545",
     "a use of a shared weight added to a gradient that was not set to zero",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       TrainOptions o = plain_sgd(0);
       Trainer trainer = must(Trainer::create(s.model, t.b, o));
       for (int i = 0; i < 3; ++i) {
         step(trainer, s);
         for (const char* name : {"embed", "head"}) {
           Floats gradient(6);
           must(trainer.gradient(name, tensor("", {3, 2}, gradient)));
           t.same(name, gradient, Floats({1, 1, 1, 1, 3, 3}));
         }
       }
     }},
    {"R121", "jax-ml/jax#9635, #12627; liesel-devs/liesel PR#272",
     "a buffer with two names was donated twice",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
       t.b.reset_counters();
       step(trainer, s);
       t.count("allocations of a step", t.b.counters().allocations, 0);
       t.number("the loss after a step", loss(trainer, s), 2.1, {{2.72, "untied"}});
     }},
    {"R124", "awslabs/sockeye PR#768; facebookarchive/caffe2#1891",
     "a sparse gradient and a dense gradient could not be added",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0)));
       step(trainer, s);
       Floats gradient(6);
       must(trainer.gradient("embed", tensor("", {3, 2}, gradient)));
       t.same("the gradient", gradient, Floats({1, 1, 1, 1, 3, 3}));
     }},
};

}  // namespace

std::span<const Recipe> recipes_of_optimizers() { return kOptimizersRecipes; }

}  // namespace bowline::test
