// One weight in several places: on two devices, in parts, behind two handles, and as shapes without
// values.
#include "ties/recipes/topics.h"

namespace bowline::test {
namespace {

float run_loss(Session& session, Seed& s) {
  Floats sum(1);
  const Tensor outputs[] = {tensor("loss", {}, sum)};
  must(session.run(s.batch(), outputs));
  return sum[0];
}

// The rows of E are on A and on B. Embedding and head stay one weight, and a session gathers its
// rows.
void split_by_rows(Bench& t) {
  Seed s = lm32();
  const std::string ties = s.model.ties();
  const Device both[] = {t.a, t.b};
  const uint64_t on_a = t.a.counters().live_bytes, on_b = t.b.counters().live_bytes;
  must(shard(s.model, both));
  t.count("bytes on A, two rows", t.a.counters().live_bytes - on_a, 16);
  t.count("bytes on B, one row", t.b.counters().live_bytes - on_b, 8);
  t.same("ties", s.model.ties(), ties);
  t.same("where", must(s.model.describe()).storages[0].where,
         t.a.info().name + " + " + t.b.info().name);
  t.same("E", values(s.model, "head"), Floats({1, 0, 0, 1, 1, 1}));
  Session session = must(Session::create(s.model, t.b, "loss", {}));
  t.same("logits", logits_of(session, s), Floats({1, 1, 2}));
  t.count("transfers of the first run", session.counters().transfers, 1);
  t.same("logits again", logits_of(session, s), Floats({1, 1, 2}));
  t.count("transfers while nothing is written", session.counters().transfers, 1);
  must(set(s.model, "embed", {3, 2}, {4, 1, 2, 3, 5, 6}));
  t.same("the head after a write to the embedding", values(s.model, "head"),
         Floats({4, 1, 2, 3, 5, 6}));
  t.same("logits after a write", logits_of(session, s), Floats({26, 28, 61}));
  t.count("transfers after a write", session.counters().transfers, 2);
  must(set(s.model, "embed", {3, 2}, {1, 0, 0, 1, 1, 1}));

  // Every verb that reads bytes.
  const std::string path = t.file("split.bowline");
  must(s.model.save(path));
  const Model opened = must(Model::open(path));
  const Model copy = must(s.model.clone());
  for (const Model* m : std::initializer_list<const Model*>{&opened, &copy}) {
    t.same("ties of a copy", m->ties(), ties);
    t.same("values of a copy", values(*m, "head"), Floats({1, 0, 0, 1, 1, 1}));
  }
  must(set(s.model, "embed", {3, 2}, Floats(6, 9)));
  t.same("a clone has bytes of its own", values(copy, "embed"), Floats({1, 0, 0, 1, 1, 1}));
  must(s.model.load(path));
  must(s.model.cast(DType::bf16, "embed"));
  must(s.model.cast(DType::f32, "embed"));
  t.same("where, after a load and casts", must(s.model.describe()).storages[0].where,
         t.a.info().name + " + " + t.b.info().name);
  must(s.model.resize("embed", 4));
  t.same("E with a row more", values(s.model, "head"), Floats({1, 0, 0, 1, 1, 1, 0, 0}));
  t.count("bytes on A, two rows of four, and the clone's", t.a.counters().live_bytes - on_a, 32);
  must(s.model.resize("embed", 3));

  t.refused("a training of parts", Trainer::create(s.model, t.b, plain_sgd(0.1f)).status(),
            Code::bad_argument, {"\"embed\"", "Model::to()"});
  must(s.model.to(t.b));
  t.same("ties after gathering", s.model.ties(), ties);
  Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
  step(trainer, s);
  t.number("the loss after a step", loss(trainer, s), 2.1, {{2.72, "untied"}});
}

// Embedding and head are in two groups of parameters that are split one after the other.
void two_groups(Bench& t) {
  Seed s = lm32();
  const Device both[] = {t.a, t.b};
  t.count("storages of the first group", must(shard(s.model, both, "embed")).storages, 1);
  t.count("storages of the second", must(shard(s.model, both, "head")).storages, 1);
  t.holds("one storage", must(s.model.same_storage("embed", "head")));
  t.same("logits", logits_of(s, t.b), Floats({1, 1, 2}));
  t.refused("a device that is given twice", shard(s.model, std::vector<Device>{t.a, t.a}).status(),
            Code::bad_argument, {t.a.info().name});
  t.refused("no device", shard(s.model, {}).status(), Code::bad_argument);
  t.refused("a pattern without a match", shard(s.model, both, "decoder.*").status(),
            Code::bad_argument, {"\"decoder.*\""});
  must(offload(s.model));
  t.same("E in host memory", values(s.model, "head"), Floats({1, 0, 0, 1, 1, 1}));
}

// A storage that cannot be split is on the first device. Three rows are split over two devices, and
// one row is on one device.
void odd_sizes(Bench& t) {
  Model m;
  must(m.parameter("number", {}, Init::ones()));
  must(m.parameter("row", {1, 4}, Init::ones()));
  must(m.parameter("empty", {0, 4}, Init::zeros()));
  const Parameter three = must(m.parameter("three", {3, 4}, Init::normal(1)));
  View last;
  last.row_start = 1;
  last.rows = 2;
  must(m.tied_parameter("last two", three, last));
  must(m.parameter("codes", {5, 32}, Init::normal(1)));
  must(m.materialize(3));
  must(quantize(m, "int8", "codes"));
  std::vector<Floats> before;
  const char* const names[] = {"number", "row", "three", "last two", "codes"};
  for (const char* name : names) {
    before.push_back(values(m, name));
  }
  const Device both[] = {t.a, t.b};
  must(shard(m, both));
  for (const bool gathered : {false, true}) {
    for (size_t i = 0; i < before.size(); ++i) {
      t.same(names[i], values(m, names[i]), before[i]);
    }
    // Through a view over the boundary.
    before[3] = Floats(8, gathered ? 1.0f : 2.0f);
    must(set(m, "last two", {2, 4}, before[3]));
    std::copy(before[3].begin(), before[3].end(), before[2].begin() + 4);
    t.same("three", values(m, "three"), before[2]);
    must(m.to(t.b));
  }
}

void two_places(Bench& t) {
  Seed s = lm32();
  must(s.model.to(t.a));
  const std::string ties = s.model.ties();
  const uint64_t begin = t.b.counters().live_bytes;
  const PlacementReport report = must(replicate(s.model, t.b));
  t.count("storages", report.storages, 1);
  t.count("bytes", report.bytes, 24);
  t.count("bytes on B", t.b.counters().live_bytes - begin, 24);
  t.count("storages of a second call", must(replicate(s.model, t.b, "head")).storages, 0);
  t.same("ties", s.model.ties(), ties);
  t.same("where", must(s.model.describe()).storages[0].where, t.a.info().name);
  Session on_a = must(Session::create(s.model, t.a, "loss", {}));
  Session on_b = must(Session::create(s.model, t.b, "loss", {}));
  t.same("logits on A", logits_of(on_a, s), Floats({1, 1, 2}));
  t.same("logits on B", logits_of(on_b, s), Floats({1, 1, 2}));
  t.count("transfers, for nothing was written", on_b.counters().transfers, 0);
  t.b.reset_counters();
  must(set(s.model, "head", {3, 2}, {2, 0, 0, 2, 2, 2}));
  t.same("logits on A after a write", logits_of(on_a, s), Floats({4, 4, 8}));
  t.same("logits on B after a write", logits_of(on_b, s), Floats({4, 4, 8}));
  logits_of(on_b, s);
  t.count("transfers", on_b.counters().transfers, 1);
  t.count("allocations on B", t.b.counters().allocations, 0);
  t.count("plans", on_b.counters().plan_builds, 1);
  must(set(s.model, "head", {3, 2}, {1, 0, 0, 1, 1, 1}));

  // A training writes the home storage. The replicas for inference follow.
  Trainer trainer = must(Trainer::create(s.model, t.a, plain_sgd(0.1f)));
  step(trainer, s);
  t.number("the loss on A", loss(trainer, s), 2.1, {}, 1e-6);
  t.number("the loss that is served on B", run_loss(on_b, s), 2.1, {{4.0, "the replica is stale"}});
  // A cast changes the bytes, so the replica is made again.
  must(s.model.cast(DType::bf16, "embed"));
  must(s.model.cast(DType::f32, "embed"));
  t.number("the loss on B after two casts", run_loss(on_b, s), 2.1, {}, 1.0 / 64);

  Seed idle = lm32();
  must(idle.model.to(t.a));
  const uint64_t others = t.b.counters().live_bytes;
  must(replicate(idle.model, t.b));
  must(idle.model.cast(DType::bf16, "embed"));
  t.count("bytes on B of a replica that nothing can read", t.b.counters().live_bytes - others, 0);

  const std::string path = t.file("replicated.bowline");
  must(s.model.save(path));
  t.count("payload bytes", weight_bytes(must(Model::open(path))), 24);
  must(s.model.to(t.a));
  t.refused("a session where nothing lies any more",
            Session::create(s.model, t.b, "loss", {}).status(), Code::bad_argument,
            {t.a.info().name});
}

void second_handle(Bench& t) {
  Seed s = lm32();
  must(s.model.to(t.b));
  const uint64_t begin = t.b.counters().live_bytes;
  std::optional<Model> other = must(s.model.share());
  t.count("bytes more on B", t.b.counters().live_bytes - begin, 0);
  t.same("parameters", other->parameters(), s.model.parameters());
  must(other->freeze_storage("head"));
  t.holds("the flag is seen", !must(s.model.describe()).parameters[0].trainable);
  must(s.model.freeze_storage("embed", false));
  Session first = must(Session::create(s.model, t.b, "loss", {}));
  Session second = must(Session::create(*other, t.b, "loss", {}));
  must(set(*other, "head", {3, 2}, {2, 0, 0, 2, 2, 2}));
  t.same("logits of the first session", logits_of(first, s), Floats({4, 4, 8}));
  t.same("logits of the second session", logits_of(second, s), Floats({4, 4, 8}));
  must(s.model.untie("head"));
  t.holds("the partition is one", !must(other->same_storage("embed", "head")));
  t.same("logits after an untie", logits_of(second, s), Floats({4, 4, 8}));
  must(other->tie("embed", "head"));
  // Training through one handle also trains the other.
  Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
  t.refused("a second training", Trainer::create(*other, t.b, plain_sgd(0.1f)).status(),
            Code::bad_argument, {"busy"});
  other.reset();
  t.same("logits after the other has gone", logits_of(first, s), Floats({4, 4, 8}));
  Model last = must(s.model.share());
  s.model = Model();
  t.same("values after the first has gone", values(last, "embed"), Floats({2, 0, 0, 2, 2, 2}));
}

void shapes_alone(Bench& t) {
  Seed s = lm32();
  must(s.model.to(t.b));
  const std::string path = t.file("lm32.bowline");
  must(s.model.save(path));
  const uint64_t begin = t.b.counters().live_bytes;
  Model m = must(s.model.skeleton());
  t.count("bytes of shapes", t.b.counters().live_bytes - begin, 0);
  t.same("parameters", m.parameters(), s.model.parameters());
  t.same("ties", m.ties(), s.model.ties());
  Floats none(6);
  t.refused("values that are not there", m.get_value("head", tensor("", {3, 2}, none)),
            Code::bad_argument, {"materialize()", "load()"});
  t.refused("a session", Session::create(m, t.b, "loss", {}).status(), Code::bad_argument,
            {"materialize()"});
  t.b.reset_counters();
  must(m.materialize(1));
  t.count("allocations, one per storage", t.b.counters().allocations, 1);
  t.same("what is drawn", values(m, "head"), Floats(6));
  t.same("the other model", values(s.model, "head"), Floats({1, 0, 0, 1, 1, 1}));
  for (const LoadMode mode : {LoadMode::copy, LoadMode::assign}) {
    Model loaded = must(m.skeleton());
    t.b.reset_counters();
    must(loaded.load(path, {.mode = mode}));
    t.count("allocations of a load", t.b.counters().allocations, 1);
    t.same("where", must(loaded.describe()).storages[0].where, t.b.info().name);
    s.model = std::move(loaded);
    t.same("logits", logits_of(s, t.b), Floats({1, 1, 2}));
    t.same("ties", s.model.ties(), m.ties());
  }
}

// A working copy belongs to its storage. An untied storage with the same generation must not use
// it.
void copies_of_an_untied_weight(Bench& t) {
  Model m;
  const Parameter w = must(m.parameter("w", {1}, Init::ones()));
  const Parameter v = must(m.parameter("v", {1}, Init::ones()));
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {1});
  g.output("y", g.op("Add", {g.op("Mul", {g.parameter(w), x}), g.op("Mul", {g.parameter(v), x})}));
  must(g.finish());
  must(m.to(t.b));  // so that the storage is as new as an untied storage
  must(m.materialize(1));
  const BoundEntryPoint entry[] = {{"forward", {}, DType::bf16}};
  Session kept = must(Session::create(m, t.b, entry));
  const auto y = [&](Session& session) {
    Floats one = {1}, out(1);
    const Tensor in[] = {tensor("x", {1}, one)}, outputs[] = {tensor("y", {1}, out)};
    must(session.run(in, outputs));
    return out[0];
  };
  t.number("w + v", y(kept), 2);
  must(m.tie("w", "v"));
  must(m.untie("v"));
  Session other = must(Session::create(m, t.b, entry));
  t.number("w + v, untied", y(other), 2);
  must(set(m, "w", {1}, {4}));
  t.number("another w", y(other), 5, {{8, "v reads the copy of w"}});
  must(set(m, "v", {1}, {16}));
  t.number("another v", y(other), 20, {{8, "v reads the copy of w"}});
  t.number("in the older session", y(kept), 20);
}

constexpr Recipe kSharingRecipes[] = {
    {"R21", "facebookresearch/lingua PR#75; NVIDIA-NeMo/RL#227",
     "sharding took the parameters of each module: embedding and head differed until a reload",
     split_by_rows},
    {"R22", "huggingface/accelerate PR#4171; saforem2/ezpz#237",
     "the second name of a tie was refused: it belonged to another group already", two_groups},
    {"I10 parts", "parts of sizes that do not divide", "a row on the cut was lost or read twice",
     odd_sizes},
    {"R27 replicas", "pytorch#651, #34513, PR#33907; facebookarchive/caffe2 data parallel",
     "a replica kept the values that it was made with", two_places},
    {"R25", "pytorch#9996, PR#10220",
     "a parameter lost its flag or was copied when another part of the program got it",
     second_handle},
    {"R23", "verl-project/verl#7834",
     "ties existed only after the values were initialized, so models of shapes could not be loaded",
     shapes_alone},
    {"I22 untied", "keys of caches", "an untied weight read the working copy of the other one",
     copies_of_an_untied_weight},
};

}  // namespace

std::span<const Recipe> recipes_of_sharing() { return kSharingRecipes; }

}  // namespace bowline::test
