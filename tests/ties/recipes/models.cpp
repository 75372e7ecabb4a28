// The models of models.h. Every known wrong value names the fault that causes it.
#include "ties/recipes/topics.h"

namespace bowline::test {
namespace {

constexpr const char* kMove = "torch/nn#187, torch/nn#415, pytorch/xla#1245";
constexpr const char* kByHand = "a model to check by hand";

void scalar2_norm(Bench& t) {
  Seed s = scalar2(3);
  must(s.model.to(t.b));
  TrainOptions o = plain_sgd(0.1f);
  o.clip_norm = 1;
  Trainer trainer = must(Trainer::create(s.model, t.b, o));
  t.number("the norm", step(trainer, s).grad_norm, 6,
           {{8.4853, "counted twice"}, {4.2426, "untied"}});
  t.number("a, clipped to 1", values(s.model, "a")[0], 0.9,
           {{0.92929, "the norm counts the tie twice"}});
}

constexpr Recipe kModelsRecipes[] = {
    {"SCALAR2", kMove, "sharing is lost on the way to a device; each factor gets half the gradient",
     [](Bench& t) {
       Seed s = scalar2(3);
       must(s.model.to(t.b));
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
       const StepReport r = step(trainer, s);
       t.number("the loss", r.loss, 6);
       t.number("the gradient", r.grad_norm, 6, {{8.4853, "counted twice"}, {4.2426, "untied"}});
       t.number("a", values(s.model, "a")[0], 0.4);
       t.same("b", values(s.model, "b"), values(s.model, "a"));
       t.number("the loss after a step", loss(trainer, s), 2.4,
                {{4.2, "untied, or the gradient is overwritten"},
                 {-1.2, "listed twice"},
                 {5.1, "one side is stale"},
                 {6, "the optimizer is stale"}});
     }},
    {"SCALAR2 decay", "rwth-i6/returnn#1319", "a weight in two groups is decayed in both",
     [](Bench& t) {
       for (const char* name : {"sgd", "adamw"}) {
         Seed s = scalar2(1);
         must(s.model.to(t.b));
         TrainOptions o = plain_sgd(0.1f);
         o.optimizer = {name, {{"weight_decay", 0.1f}, {"decay_all", 1}}};
         Trainer trainer = must(Trainer::create(s.model, t.b, o));
         step(trainer, s);
         // L2 in SGD: 1 - 0.1 (2 + 0.1). Decoupled decay in AdamW: 0.99, then a step of 0.1.
         t.number(name, values(s.model, "a")[0], std::string_view(name) == "sgd" ? 0.79 : 0.89,
                  {{0.78, "decayed twice"}, {0.8801, "decayed twice"}});
       }
     }},
    {"R35 SCALAR2 momentum", "BVLC/caffe#1211, PR#2866",
     "each sharer keeps a history of its own on the shared value",
     [](Bench& t) {
       Seed s = scalar2(1);
       must(s.model.to(t.b));
       TrainOptions o = plain_sgd(0.1f);
       o.optimizer.settings["momentum"] = 0.9f;
       Trainer trainer = must(Trainer::create(s.model, t.b, o));
       step(trainer, s);
       step(trainer, s);
       t.number("a", values(s.model, "a")[0], 0.42, {{0.13, "the sharer keeps its own history"}});
     }},
    {"SCALAR2 Adam", kByHand, "a tied weight is updated once per name",
     [](Bench& t) {
       Seed s = scalar2(1);
       must(s.model.to(t.b));
       TrainOptions o;
       o.optimizer.settings["weight_decay"] = 0;
       o.schedule.learning_rate = 0.1f;
       Trainer trainer = must(Trainer::create(s.model, t.b, o));
       step(trainer, s);
       t.number("a", values(s.model, "a")[0], 0.9, {{0.8, "updated twice"}});
     }},
    {"R38 SCALAR2 norm", "NVIDIA/Megatron-LM PR#7228",
     "both copies of a tied weight are summed into the norm, so gradients are clipped too much",
     scalar2_norm},
    {"R46 SCALAR2 scale", "huggingface/accelerate PR#115",
     "the wrapper and the optimizer both unscale",
     [](Bench& t) {
       Seed s = scalar2(3);
       must(s.model.to(t.b));
       TrainOptions o = plain_sgd(0.1f);
       o.precision.loss_scale = 1024;
       o.clip_norm = 1000;
       Trainer trainer = must(Trainer::create(s.model, t.b, o));
       const StepReport r = step(trainer, s);
       t.number("the loss", r.loss, 6, {{6144, "the loss is scaled"}});
       t.number("the norm", r.grad_norm, 6, {{6144, "not unscaled"}, {0.00586, "unscaled twice"}});
       Floats gradient(1);
       must(trainer.gradient("a", tensor("", {1}, gradient)));
       t.number("the gradient", gradient[0], 6,
                {{6144, "not unscaled"}, {0.00586, "unscaled twice"}});
       t.number("b", values(s.model, "b")[0], 0.4, {{-613.4, "not unscaled"}});
     }},
    {"LM32", kMove, "embedding and head are split; one of the gradients is lost",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       t.same("logits", logits_of(s, t.b), Floats({1, 1, 2}));
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
       const StepReport r = step(trainer, s);
       t.number("the loss", r.loss, 4);
       t.number("the norm", r.grad_norm, 4.690416,
                {{3.741657, "untied"}, {6.63325, "counted twice"}});
       const Floats e = values(s.model, "embed");
       t.numbers("E", e, Floats({.9f, -.1f, -.1f, .9f, .7f, .7f}));
       t.same("head", values(s.model, "head"), e);
       t.number("the loss after a step", loss(trainer, s), 2.1,
                {{2.72, "untied"},
                 {3.2, "the head is stale"},
                 {3.4, "the embedding is stale"},
                 {3.06, "the gradient of the embedding is lost"},
                 {2.88, "the gradient of the head is lost"},
                 {0.8, "listed twice"}});
     }},
    {"LM32 run", kByHand, "the bits of two names drift apart",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.01f)));
       for (const double right : {3.783, 3.577674, 3.383393, 3.199561, 3.025615}) {
         step(trainer, s);
         t.number("the loss", loss(trainer, s), right);
         t.same("head", values(s.model, "head"), values(s.model, "embed"));
       }
     }},
    {"AE23", "FluxML/Flux.jl#1504",
     "a transposed tie becomes a copy, and encoder and decoder diverge",
     [](Bench& t) {
       Seed s = ae23();
       must(s.model.to(t.b));
       Session session = must(Session::create(s.model, t.b, "loss", {}));
       Floats y(2), z(3);
       const Dims ys = {1, 2}, zs = {1, 3};
       const Tensor out[] = {tensor("y", ys, y), tensor("z", zs, z)};
       must(session.run(s.batch(), out));
       t.same("y", y, Floats({1, 4}));
       t.same("z", z, Floats({17, 22, 27}));
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.01f)));
       t.number("the loss", step(trainer, s).loss, 66);
       t.numbers("W", values(s.model, "encoder"),
                 Floats({0.93f, 1.99f, 2.99f, 3.81f, 4.96f, 5.96f}));
       t.number("the loss after a step", loss(trainer, s), 61.6176,
                {{62.8998, "untied"}, {62.73, "the copy of the decoder is stale"}});
     }},
    {"UT12", "patrick-kidger/equinox#790",
     "a weight has twelve uses: only one use counts, or each use takes a step",
     [](Bench& t) {
       Seed s = universal(12);
       must(s.model.to(t.b));
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.001f)));
       const StepReport r = step(trainer, s);
       t.number("y", r.loss, 3.138428377);
       t.number("the gradient", r.grad_norm, 34.237400473,
                {{2.853116706, "only the last use counts"}, {9.88348619, "counted as 12"}});
       t.number("w", values(s.model, "layer.11.w")[0], 1.0657626,
                {{0.689151194, "stepped 12 times"}});
     }},
};

}  // namespace

std::span<const Recipe> recipes_of_models() { return kModelsRecipes; }

}  // namespace bowline::test
