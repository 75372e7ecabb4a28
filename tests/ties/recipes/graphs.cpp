// Graphs, plans and initial values.
#include "ties/recipes/topics.h"

namespace bowline::test {
namespace {

// Returns the nodes of the forward part and the records of the plan for y = w^n x.
std::pair<uint64_t, size_t> plan_of_universal(const Device& device, int n) {
  Seed s = universal(n);
  must(s.model.to(device));
  Session session = must(Session::create(s.model, device, "loss", {}));
  const std::string listing = must(session.listing("forward"));
  return {static_cast<uint64_t>(std::ranges::count(listing, '\n')),
          must(session.describe()).segments.at(0).records.size()};
}

// L = sum(x Wᵀ) + sum(V²), V tied to W.
void overrides(Bench& t) {
  Model m;
  const Parameter w = must(m.parameter("w", {30, 20}, Init::normal(1)));
  const Parameter v = must(m.tied_parameter("v", w));
  must(m.tied_parameter("top", w, View{0, 10, {}, false}));
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", DType::f32, {1, 20});
  const Value y = g.op("ReduceSum", {g.op("Linear", {x, g.parameter(w)})});
  const Value squares = g.op("ReduceSum", {g.op("Square", {g.parameter(v)})});
  g.output("loss", g.op("Add", {y, squares}));
  must(g.finish());
  must(m.materialize(1));
  must(m.to(t.b));
  Floats ones(20, 1), zeros(600, 0), sum(1), gradient(600);
  const Tensor inputs[] = {tensor("x", {1, 20}, ones)}, outputs[] = {tensor("loss", {}, sum)};
  const std::string before = m.storages();
  const Floats values_before = values(m, "w");
  for (const std::optional<DType> compute : {std::optional<DType>(), std::optional(DType::bf16)}) {
    const BoundEntryPoint entry[] = {{"loss", {}, compute}};
    Session session = must(Session::create(m, t.b, entry));
    must(session.run(inputs, outputs));
    const Floats own = sum;
    t.holds("the weights give another loss", own[0] != 0);
    for (const char* name : {"w", "v"}) {
      const Tensor zero[] = {tensor(name, {30, 20}, zeros)};
      must(session.run(inputs, outputs, {}, zero));
      t.number(format("the loss with zeros for {}", name), sum[0], 0,
               {{10.3369, "a use kept the old weight"}}, 0);
      must(session.run(inputs, outputs));
      t.same("the loss afterwards", sum, own);
    }
    // An override of a part gives the same loss as a model with this part written.
    Model written = must(m.clone());
    Floats part(200, 0);
    must(set(written, "top", {10, 20}, part));
    Session of_written = must(Session::create(written, t.b, entry));
    must(of_written.run(inputs, outputs));
    const Floats right = sum;
    const Tensor top[] = {tensor("top", {10, 20}, part)};
    must(session.run(inputs, outputs, {}, top));
    t.same("the loss with zeros for a part", sum, right);
    const Tensor both[] = {tensor("w", {30, 20}, zeros), tensor("v", {30, 20}, zeros)};
    t.refused("two overrides of one storage", session.run(inputs, outputs, {}, both),
              Code::bad_argument, {"\"w\"", "\"v\""});
  }
  t.same("storages", m.storages(), before);
  Trainer trainer = must(Trainer::create(m, t.b, plain_sgd(0.5f)));
  const Tensor zero[] = {tensor("v", {30, 20}, zeros)};
  const auto report = must(trainer.micro_step(inputs, zero));
  t.number("the loss of the step", report->loss, 0, {}, 0);
  must(trainer.gradient("w", tensor("", {30, 20}, gradient)));
  t.same("the gradient where the weights are 0", gradient, Floats(600, 1));
  Floats right = values_before;
  for (float& r : right) {
    r -= 0.5f;
  }
  t.same("the weights after the step", values(m, "w"), right);
}

// The gradient excludes the use of E by the embedding.
void one_use_stopped(Bench& t) {
  Seed s;
  s.shape = {1};
  s.ids = {2};
  const Parameter embedding = must(s.model.parameter("embed", {3, 2}, Init::zeros()));
  const Parameter head = must(s.model.tied_parameter("head", embedding));
  GraphBuilder g(s.model, "loss");
  const Value x = g.input("x", DType::i32, {1});
  const Value rows = g.op("Embedding", {g.op("StopGradient", {g.parameter(embedding)}), x});
  g.output("loss", g.op("ReduceSum", {g.op("Linear", {rows, g.parameter(head)})}));
  must(g.finish());
  must(s.model.materialize(1));
  must(set(s.model, "embed", {3, 2}, {1, 0, 0, 1, 1, 1}));
  must(s.model.to(t.b));
  Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
  t.number("the loss", step(trainer, s).loss, 4);
  Floats gradient(6);
  must(trainer.gradient("embed", tensor("", {3, 2}, gradient)));
  t.same("the gradient", gradient, Floats(6, 1));
  t.number("the loss after a step", loss(trainer, s), 3.06,
           {{2.1, "both uses are trained"}, {2.88, "the other use is stopped"}});
}

// A hook sees all gradients of LM32 and halves them.
void gradient_hooks(Bench& t) {
  for (const uint32_t accumulation : {1u, 2u}) {
    Seed s = lm32();
    must(s.model.to(t.b));
    TrainOptions o = plain_sgd(0.2f);
    o.accumulation = accumulation;
    Trainer trainer = must(Trainer::create(s.model, t.b, o));
    std::vector<std::string> names;
    trainer.set_gradient_hook([&](const GradientInfo& of, std::span<float> gradient) {
      names = of.parameters;
      t.same("the gradient", gradient, Floats({1, 1, 1, 1, 3, 3}));
      for (float& g : gradient) {
        g /= 2;
      }
      return Status();
    });
    const std::vector<Tensor> batch = s.batch();
    for (uint32_t i = 0; i < accumulation; ++i) {
      must(trainer.micro_step(batch));
    }
    t.count("calls, one per tie", trainer.counters().hook_calls, 1);
    t.holds("the hook gets both names", names == std::vector<std::string>{"embed", "head"});
    t.number("the loss after a step", loss(trainer, s), 2.1, {{0.8, "the hook is not heard"}});
    trainer.set_gradient_hook([](const GradientInfo&, std::span<float>) {
      return Status(Code::cancelled, "The hook ends the step.");
    });
    const Floats before = values(s.model, "embed");
    if (accumulation == 2) {
      must(trainer.micro_step(batch));
    }
    t.refused("a hook that fails", trainer.micro_step(batch).status(), Code::cancelled);
    t.same("the weights", values(s.model, "embed"), before);
    t.holds(
        "the state says how to go on",
        trainer.state() == (accumulation == 2 ? TrainState::gradients_lost : TrainState::ready));
    must(trainer.restart_step());
    trainer.set_gradient_hook(nullptr);
    for (uint32_t i = 0; i < accumulation; ++i) {
      must(trainer.micro_step(batch));
    }
    t.holds("a step without a hook goes on", values(s.model, "embed") != before);
  }
}

// A callback inside a step or a verb must not change the model.
void called_inside(Bench& t) {
  Seed s = lm32();
  must(s.model.to(t.b));
  Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
  const std::string path = t.file("inside.bowline");
  must(s.model.save(path));
  const std::vector<Tensor> batch = s.batch();
  int calls = 0;
  const auto all_refused = [&](std::string_view where) {
    ++calls;
    const std::string before = s.model.parameters() + s.model.ties();
    for (const Status& refused :
         {set(s.model, "embed", {3, 2}, Floats(6)), s.model.untie("head").status(),
          s.model.tie("embed", "head").status(), s.model.to(t.a),
          s.model.cast(DType::bf16).status(), s.model.freeze_storage("head"),
          s.model.load(path).status(), quantize(s.model, "int8").status(),
          set_weight_format(s.model, "flat").status(),
          s.model.parameter("new", {1}, Init::zeros()).status(),
          s.model.resize("embed", 4).status()}) {
      t.refused(where, refused, Code::bad_argument, {});
    }
    t.same(where, s.model.parameters() + s.model.ties(), before);
  };
  trainer.set_gradient_hook([&](const GradientInfo&, std::span<float>) {
    all_refused("in a gradient hook");
    t.refused("a step inside a step", trainer.micro_step(batch).status(), Code::bad_argument,
              {"busy", "hook"});
    t.refused("a rollback inside a step", trainer.rollback(), Code::bad_argument, {"busy"});
    trainer.set_gradient_hook(nullptr);
    return Status();
  });
  must(trainer.micro_step(batch));
  t.count("calls of hooks", static_cast<uint64_t>(calls), 1);
  t.number("the loss after a step", loss(trainer, s), 2.1);
  must(trainer.micro_step(batch));

  LoadOptions o;
  o.hook = [&](const LoadedParameter&, const Tensor&) -> Result<std::optional<LoadedValue>> {
    all_refused("in the hook of a load");
    return std::optional<LoadedValue>();
  };
  must(s.model.load(path, o));
  WeightFormat nosy;
  nosy.name = "nosy";
  nosy.layout = [&](std::span<const StorageInfo> group) -> Result<FormatLayout> {
    all_refused("in the layout of a format");
    FormatLayout out;
    for (const StorageInfo& storage : group) {
      out.offsets.push_back(out.bytes);
      out.bytes += storage.bytes;
    }
    return out;
  };
  must(register_weight_format(s.model, nosy));
  must(set_weight_format(s.model, "nosy"));
  must(set(s.model, "head", {3, 2}, {1, 0, 0, 1, 1, 1}));
  must(offload(s.model));
  must(s.model.to(t.b));  // and is packed again
  t.count("calls of hooks and layouts", static_cast<uint64_t>(calls), 4);
  t.same("logits", logits_of(s, t.b), Floats({1, 1, 2}));
}

// Weight drop: the recurrent weight is multiplied by a mask. The graph contains the product.
void masked_weight(Bench& t) {
  constexpr int64_t kHidden = 4;
  Seed s;
  s.shape = {3, 1, 4 * kHidden};
  for (int64_t i = 0; i < 3 * 4 * kHidden; ++i) {
    s.x.push_back(static_cast<float>(i * 5 % 7) * 0.125f - 0.25f);
  }
  const Dims square = {4 * kHidden, kHidden};
  const Parameter w = must(s.model.parameter("lstm.weight_hh", square, Init::uniform(0.5f)));
  const Parameter mask =
      must(s.model.parameter("mask", square, Init::zeros(), StorageRole::constant));
  const Parameter state =
      must(s.model.parameter("state", {1, kHidden}, Init::zeros(), StorageRole::constant));
  GraphBuilder g(s.model, "loss");
  const Value x = g.input("x", DType::f32, {3, 1, 4 * kHidden});
  const Value dropped = g.op("Mul", {g.parameter(w), g.parameter(mask)});
  const Value cell = g.op("Cast", {g.parameter(state)}, {{"to", "f32"}});
  g.output("loss", g.op("ReduceSum", {g.op("Lstm", {x, dropped, g.parameter(state), cell})}));
  must(g.finish());
  must(s.model.materialize(5));
  Floats ones(static_cast<size_t>(4 * kHidden * kHidden));
  for (size_t i = 0; i < ones.size(); ++i) {
    ones[i] = i % 3 == 0 ? 0.0f : 1.0f;
  }
  must(set(s.model, "mask", square, ones));
  must(s.model.to(t.b));
  must(set_weight_format(s.model, "flat", "lstm.*"));
  const Floats before = values(s.model, "lstm.weight_hh");
  Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
  step(trainer, s);
  t.b.reset_counters();
  for (int i = 0; i < 19; ++i) {
    step(trainer, s);
  }
  t.count("allocations of 19 steps", t.b.counters().allocations, 0);
  t.count("packs, for updates write the block itself",
          s.model.counters().packs + s.model.counters().repacks, 1);
  t.count("fallbacks", s.model.counters().fallbacks, 0);
  const Floats after = values(s.model, "lstm.weight_hh");
  for (size_t i = 0; i < after.size(); ++i) {
    t.holds(format("element {} is trained where the mask lets it", i),
            (after[i] != before[i]) == (ones[i] != 0));
  }
}

// The scale of a norm is folded into the head. Only one of two uses may have the scale.
void folded_scale(Bench& t) {
  Seed s = lm32();
  must(s.model.to(t.b));
  const uint64_t cost = must(s.model.untie_cost("head"));
  t.count("what an own head costs", cost, 24);
  t.count("what it has cost", must(s.model.untie("head")), cost);
  must(set(s.model, "head", {3, 2}, {2, 0, 0, 3, 2, 3}));
  t.same("the embedding", values(s.model, "embed"), Floats({1, 0, 0, 1, 1, 1}));
  t.same("logits, scaled by (2,3)", logits_of(s, t.b), Floats({2, 3, 5}));
}

constexpr Recipe kGraphsRecipes[] = {
    {"R81", "microsoft/Olive PR#2240",
     "a session folded the transpose of a tied head into a copy of it",
     [](Bench& t) {
       const std::string path = t.file("lm.bowline");
       must(lookup_and_head({1000, 64}).save(path));
       const uint64_t begin = t.b.counters().live_bytes;
       Model m = must(Model::open(path));
       must(m.to(t.b));
       t.at_most("bytes on B", t.b.counters().live_bytes - begin, 281600);
       Session session = must(Session::create(m, t.b, "forward", {}));
       const MemoryReport memory = session.memory();
       t.count("predicted bytes of storages", memory.storage_bytes, 256000);
       t.count("predicted bytes of copies", memory.copy_bytes, t.rounds() ? 128000 : 0);
       Model two = lookup_and_head({1000, 64});
       must(two.untie("head"));
       must(two.to(t.b));
       Session untied = must(Session::create(two, t.b, "forward", {}));
       t.count("bytes of the arena, as of two weights", memory.arena_bytes,
               untied.memory().arena_bytes);
     }},
    {"R77", "pytorch#163303",
     "an export made constants of parameters that the model read through a list",
     [](Bench& t) {
       Seed s = universal(3);
       const std::string path = t.file("ut.bowline");
       must(s.model.save(path));
       Seed again = universal(3);
       again.model = must(Model::open(path));
       t.count("storages", storages_of(again.model, StorageRole::weight).size(), 1);
       t.count("constants", storages_of(again.model, StorageRole::constant).size(), 0);
       must(again.model.to(t.b));
       Session session = must(Session::create(again.model, t.b, "loss", {}));
       must(set(again.model, "layer.2.w", {1, 1}, {2}));
       Floats y(1);
       const Tensor out[] = {tensor("loss", {}, y)};
       must(session.run(again.batch(), out));
       t.number("y after a write", y[0], 8, {{1.331, "the write is lost"}});
     }},
    {"R78", "dmlc/gluon-nlp#1086, apache/mxnet#17184",
     "a model with internal ties could not share its weights with a model for evaluation",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       const uint64_t begin = t.b.counters().live_bytes;
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
       Session session = must(Session::create(s.model, t.b, "loss", {}));
       step(trainer, s);
       t.numbers("logits after a step", logits_of(session, s), Floats({0.56f, 0.56f, 0.98f}));
       t.count("copies of E", storages_of(s.model, StorageRole::weight).size(), 1);
       t.holds("the trainer takes memory", t.b.counters().live_bytes > begin);
     }},
    {"R109", "onnxruntime PR#32507, PR#7421, PR#29163; pykeio/ort#544; NVIDIA/apex PR#132",
     "each session made the derived copy of a weight for itself: 64 MiB more each",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       const BoundEntryPoint entry[] = {{"loss", {}, DType::bf16}};
       std::vector<Session> sessions;
       uint64_t refreshes = 0;
       for (int i = 0; i < 8; ++i) {
         sessions.push_back(must(Session::create(s.model, t.b, entry)));
         t.same("logits", logits_of(sessions.back(), s), Floats({1, 1, 2}));
         refreshes += sessions.back().counters().refreshes;
         t.count("copies of E", must(s.model.describe()).storages.at(0).copies.size(), 1);
       }
       t.count("times that the copy was made", refreshes, 1);
       must(set(s.model, "head", {3, 2}, {2, 0, 0, 2, 2, 2}));
       for (Session& session : sessions) {
         t.same("logits of 2 E", logits_of(session, s), Floats({4, 4, 8}));
       }
     }},
    {"R112", "vllm#48941, #48312; sgl-project/sglang PR#27140; sparkinfer PR#147",
     "weights were loaded at new addresses, and the captured plan read the old addresses",
     [](Bench& t) {
       const std::string path = t.file("doubled.bowline");
       {
         Seed doubled = lm32();
         must(set(doubled.model, "embed", {3, 2}, {2, 0, 0, 2, 2, 2}));
         must(doubled.model.save(path));
       }
       Seed s = lm32();
       must(s.model.to(t.b));
       const BoundEntryPoint entry[] = {{"loss", {}, DType::bf16}};
       Session session = must(Session::create(s.model, t.b, entry));
       t.same("logits", logits_of(session, s), Floats({1, 1, 2}));
       for (const LoadMode mode : {LoadMode::copy, LoadMode::assign}) {
         must(set(s.model, "embed", {3, 2}, {1, 0, 0, 1, 1, 1}));
         must(s.model.load(path, {.mode = mode}));
         t.same("logits of 2 E", logits_of(session, s), Floats({4, 4, 8}));
       }
     }},
    {"R82", "inisis/OnnxSlim#135; ModelCloud/GPTQModel PR#1550",
     "a fold into the head changed the shared weight, so the embedding changed, too", folded_scale},
    {"R101", "pytorch#40193, #32346; salesforce/awd-lstm-lm#51",
     "derived weights were packed again at every call, or not found", masked_weight},
    {"R118", "pytorch/functorch#446, #904; pytorch#86708",
     "an override by one name left another use with the old weight: 10.3369 instead of 0",
     overrides},
    {"I54", "one gradient per weight; hooks fire once, whatever its uses",
     "a hook got the gradient of each use, once per use", gradient_hooks},
    {"I14 inside", "verbs called from a callback",
     "a hook changed the weights that the step it was called in was about to write", called_inside},
    {"D7", "detach() of one of two uses",
     "to freeze one use, a user had to untie the weight or freeze all of it", one_use_stopped},
    {"R122", "patrick-kidger/equinox#790",
     "the wrapper of a shared weight was resolved in every step: 30 to 50 times slower",
     [](Bench& t) {
       const auto one = plan_of_universal(t.b, 1), two = plan_of_universal(t.b, 2);
       for (const int n : {4, 16}) {
         const auto more = plan_of_universal(t.b, n);
         t.count("nodes", more.first, two.first);
         t.count("records", more.second, two.second);
       }
       t.at_most("nodes of one", one.first, two.first);
     }},
    {"R123", "karpathy/build-nanogpt#89; fastai PR#2090; Modalities PR#456",
     "the direction of a tie changed the initial values, and so the loss",
     [](Bench& t) {
       Floats drawn;
       for (const bool head_first : {false, true}) {
         for (const bool tied_later : {false, true}) {
           Model m;
           const char* const names[] = {head_first ? "head" : "embed",
                                        head_first ? "embed" : "head"};
           const Parameter first = must(m.parameter(names[0], {5, 3}, Init::normal(1)));
           if (tied_later) {
             must(m.parameter(names[1], {5, 3}, Init::normal(1)));
             must(m.tie(names[0], names[1]));
           } else {
             must(m.tied_parameter(names[1], first));
           }
           must(m.materialize(7));
           must(m.to(t.b));
           drawn = drawn.empty() ? values(m, "embed") : drawn;
           t.same("embed", values(m, "embed"), drawn);
           t.same("head", values(m, "head"), drawn);
         }
       }
     }},
};

}  // namespace

std::span<const Recipe> recipes_of_graphs() { return kGraphsRecipes; }

}  // namespace bowline::test
