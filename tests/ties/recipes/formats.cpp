// Weight formats: only the device sees the layout of the weights.
#include <set>

#include "ties/recipes/topics.h"

namespace bowline::test {
namespace {

constexpr int64_t kInput = 10, kUnits = 20, kSteps = 3;

// An LSTM with 10 inputs and 20 hidden units over 3 steps of one row, with the names of PyTorch. L
// = sum of h. With `tied`, b_hh shares the storage of b_ih.
Seed lstm(bool bias, bool tied = false) {
  Seed s;
  s.shape = {kSteps, 1, kInput};
  for (int64_t i = 0; i < kSteps * kInput; ++i) {
    s.x.push_back(static_cast<float>(i * 7 % 11) * 0.125f - 0.5f);
  }
  const auto weight = [&](const char* name, const Dims& dims) {
    return must(s.model.parameter(name, dims, Init::uniform(0.25f)));
  };
  const Parameter w_ih = weight("lstm.weight_ih", {4 * kUnits, kInput});
  const Parameter w_hh = weight("lstm.weight_hh", {4 * kUnits, kUnits});
  GraphBuilder g(s.model, "loss");
  Value gates = g.op("Linear", {g.input("x", DType::f32, {kSteps, 1, kInput}), g.parameter(w_ih)});
  if (bias) {
    const Parameter b_ih = weight("lstm.bias_ih", {4 * kUnits});
    const Parameter b_hh = tied ? must(s.model.tied_parameter("lstm.bias_hh", b_ih))
                                : weight("lstm.bias_hh", {4 * kUnits});
    gates = g.op("Add", {g.op("Add", {gates, g.parameter(b_ih)}), g.parameter(b_hh)});
  }
  const Value state = g.parameter(
      must(s.model.parameter("state", {1, kUnits}, Init::zeros(), StorageRole::constant)));
  const Value cell = g.op("Cast", {state}, {{"to", "f32"}});
  g.output("loss", g.op("ReduceSum", {g.op("Lstm", {gates, g.parameter(w_hh), state, cell})}));
  must(g.finish());
  must(s.model.materialize(5));
  return s;
}

// Returns the number of allocations that hold weights.
uint64_t blocks(const Model& m) {
  std::set<uint32_t> out;
  for (const StorageInfo& s : storages_of(m, StorageRole::weight)) {
    out.insert(s.block);
  }
  return out.size();
}

Floats all_values(const Model& m) {
  Floats out;
  for (const ParameterInfo& p : must(m.describe()).parameters) {
    const Floats part = values(m, p.name);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// The program of the report: two listings, with training between them.
void set_and_restore(Bench& t) {
  for (const bool bias : {true, false}) {
    Seed s = lstm(bias), plain = lstm(bias);
    must(s.model.to(t.b));
    must(plain.model.to(t.b));
    const uint64_t parameters = bias ? 4 : 2, numbers = bias ? 2560 : 2400;
    const uint64_t begin = t.b.counters().live_bytes;
    t.count("blocks before", blocks(s.model), parameters);
    const FormatReport report = must(set_weight_format(s.model, "flat", "lstm.*"));
    t.count("values of the block, with hidden zeros", report.bytes / 4, 2560);
    t.count("bytes more on B", t.b.counters().live_bytes - begin, (2560 - numbers) * 4);
    t.count("blocks", blocks(s.model), 1);
    t.count("parameters, the state among them", must(s.model.describe()).parameters.size(),
            parameters + 1);
    t.count("values", weight_bytes(s.model) / 4, numbers);
    TrainOptions o = adam(0.01f);
    o.optimizer.settings["weight_decay"] = 0.1f;
    o.optimizer.settings["decay_all"] = 1;
    Trainer packed = must(Trainer::create(s.model, t.b, o));
    Trainer other = must(Trainer::create(plain.model, t.b, o));
    for (int i = 0; i < 3; ++i) {
      const StepReport a = step(packed, s), b = step(other, plain);
      t.number("the norm beside that of the model without a format", a.grad_norm, b.grad_norm, {},
               0);
    }
    uint64_t moments = 0;
    for (const StorageInfo& row : storages_of(s.model, StorageRole::moment)) {
      moments += row.bytes / 4;
    }
    t.count("values of moments", moments, 2 * numbers);
    t.count("restored groups", must(restore_weight_format(s.model, "lstm.*")), 1);
    t.count("blocks afterwards", blocks(s.model), parameters);
    t.same("what was learned meanwhile", all_values(s.model), all_values(plain.model));
    step(packed, s);
    step(other, plain);
    t.same("what is learned afterwards", all_values(s.model), all_values(plain.model));
    t.count("packs", s.model.counters().packs, 1);
    t.count("repacks", s.model.counters().repacks, 0);
  }
}

void edges(Bench& t) {
  Seed s = lstm(true, true);
  t.refused("a model on no device", set_weight_format(s.model, "flat", "lstm.*").status(),
            Code::bad_argument, {"Model::to()"});
  must(s.model.to(t.b));
  const std::string ties = s.model.ties(), parameters = s.model.parameters();
  const std::string storages = s.model.storages();
  t.refused("an unknown format", set_weight_format(s.model, "diagonal").status(),
            Code::bad_argument, {"\"diagonal\"", "\"flat\""});
  t.refused("a pattern without a match", set_weight_format(s.model, "flat", "gru.*").status(),
            Code::bad_argument, {"\"gru.*\""});
  t.refused("a format of another operator",
            set_weight_format(s.model, "flat", "*weight_ih").status(), Code::bad_argument,
            {"Lstm"});
  t.count("groups where there are none", must(restore_weight_format(s.model)), 0);
  WeightFormat odd;
  odd.name = "odd";
  odd.layout = [](std::span<const StorageInfo> group) -> Result<FormatLayout> {
    return FormatLayout{64, std::vector<uint64_t>(group.size(), 0)};
  };
  must(register_weight_format(s.model, odd));
  t.refused("a name that is taken", register_weight_format(s.model, odd), Code::bad_argument,
            {"\"odd\""});
  t.refused("a layout that does not hold the group", set_weight_format(s.model, "odd").status(),
            Code::bad_argument, {"\"odd\""});
  odd.name = "elsewhere";
  odd.device = "cuda:17";
  must(register_weight_format(s.model, odd));
  t.refused("a format for another device", set_weight_format(s.model, "elsewhere").status(),
            Code::bad_argument, {"cuda:17", t.b.info().name});
  t.same("storages after refusals", s.model.storages(), storages);
  t.count("formats that are known", weight_formats(s.model).size(), 3);

  must(set_weight_format(s.model, "flat", "lstm.*"));
  t.count("blocks, one of the tied biases in it", blocks(s.model), 1);
  t.same("ties", s.model.ties(), ties);
  t.same("parameters", s.model.parameters(), parameters);
  const std::string packed = s.model.storages();
  must(set_weight_format(s.model, "flat", "lstm.*"));
  t.same("setting it twice", s.model.storages(), packed);
  t.count("packs", s.model.counters().packs, 1);
  must(set(s.model, "lstm.bias_hh", {80}, Floats(80, 0.5f)));
  t.count("repacks after a write", s.model.counters().repacks, 0);
  t.count("blocks after a write", blocks(s.model), 1);
}

// A cast changes the bytes of all members, and a move changes their place. Both keep the format.
void kept_by_verbs(Bench& t) {
  Seed s = lstm(true);
  must(s.model.to(t.b));
  must(set_weight_format(s.model, "flat", "lstm.*"));
  Session session = must(Session::create(s.model, t.b, "loss", {}));
  const auto sum = [&] {
    Floats out(1);
    const Tensor outputs[] = {tensor("loss", {}, out)};
    must(session.run(s.batch(), outputs));
    return out;
  };
  const Floats right = sum();
  must(s.model.cast(DType::bf16));
  t.count("blocks after a cast", blocks(s.model), 1);
  must(s.model.cast(DType::f32));
  t.count("repacks after two casts", s.model.counters().repacks, 2);
  const Floats rounded = sum();
  must(s.model.to(t.a));
  t.count("blocks after a move", blocks(s.model), 1);
  must(offload(s.model));
  t.count("blocks in host memory", blocks(s.model), 4);
  must(s.model.to(t.b));
  t.count("blocks after the way back", blocks(s.model), 1);
  t.same("the sum", sum(), rounded);
  must(s.model.tie("lstm.bias_ih", "lstm.bias_hh"));
  must(s.model.untie("lstm.bias_hh"));
  sum();
  Model copy = must(s.model.clone());
  t.count("blocks of a clone", blocks(copy), 1 + 1);
  t.count("fallbacks", s.model.counters().fallbacks, 0);
  t.holds("the sum is a number", std::isfinite(right[0]));
}

void save_while_packed(Bench& t) {
  Seed s = lstm(false);
  const std::string before = t.file("before.bowline"), packed = t.file("packed.bowline");
  must(s.model.to(t.b));
  must(s.model.save(before));
  must(set_weight_format(s.model, "flat", "lstm.*"));
  const std::string storages = s.model.storages();
  must(s.model.save(packed));
  t.same("the live model", s.model.storages(), storages);
  Model fresh = must(Model::open(packed));
  t.count("payload bytes", weight_bytes(fresh), 9600);
  t.same("the values of the file", all_values(fresh), all_values(s.model));
  t.count("blocks of a loaded model", blocks(fresh), 2);
  must(set(s.model, "lstm.weight_hh", {80, 20}, Floats(1600, 1)));
  must(s.model.load(before));
  t.count("blocks after a load", blocks(s.model), 1);
  t.same("the values of the load", all_values(s.model), all_values(fresh));
}

constexpr Recipe kFormatsRecipes[] = {
    {"G4", "the gist \"Weight format proposal\"; pytorch#914, PR#2179",
     "a packed block counted as a parameter: it was decayed, and its padding had optimizer state",
     set_and_restore},
    {"G14", "the gist \"Weight format proposal\"",
     "unknown formats, other devices, setting twice, ties in the block", edges},
    {"R27", "pytorch#651, #34513, PR#33907",
     "a recurrent layer kept a private list of its weights, and ran with the old ones",
     [](Bench& t) {
       Seed s = lstm(true);
       must(s.model.to(t.a));
       const auto sum = [&](Session& session) {
         Floats out(1);
         const Tensor outputs[] = {tensor("loss", {}, out)};
         must(session.run(s.batch(), outputs));
         return static_cast<double>(out[0]);
       };
       Session on_a = must(Session::create(s.model, t.a, "loss", {}));
       t.holds("the weights give a sum", sum(on_a) != 0);
       must(s.model.to(t.b));
       Session on_b = must(Session::create(s.model, t.b, "loss", {}));
       sum(on_b);
       for (const ParameterInfo& p : must(s.model.describe()).parameters) {
         Floats zeros(values(s.model, p.name).size());
         must(s.model.set_value(p.name, {"", DType::f32, p.shape, zeros.data()}));
       }
       t.number("the sum with weights of 0", sum(on_b), 0, {}, 0);
     }},
    {"R98", "the gist \"Weight format proposal\"; pytorch/examples#248, LaurentMazare/tch-rs#66",
     "an unrolled network compacted its weights at every call",
     [](Bench& t) {
       Seed s = lstm(true);
       must(s.model.to(t.b));
       must(set_weight_format(s.model, "flat", "lstm.*"));
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.01f)));
       Session session = must(Session::create(s.model, t.b, "loss", {}));
       step(trainer, s);
       t.b.reset_counters();
       for (int i = 0; i < 64; ++i) {
         step(trainer, s);
       }
       t.count("allocations of 64 steps", t.b.counters().allocations, 0);
       t.count("packs", s.model.counters().packs + s.model.counters().repacks, 1);
       t.count("plans", trainer.counters().plan_builds, 1);
       // Training and inference share the block.
       Floats served(1);
       const Tensor outputs[] = {tensor("loss", {}, served)};
       must(session.run(s.batch(), outputs));
       t.number("the loss that is served", served[0], loss(trainer, s), {}, 0);
     }},
    {"R102", "intel/intel-extension-for-pytorch#216, #356; bitsandbytes#2078, #1332",
     "parameters had the packed shape, were lost, or did not move with the model", kept_by_verbs},
    {"R104", "intel/intel-extension-for-pytorch#686",
     "packing copied the weights of a mapped file for each of its users",
     [](Bench& t) {
       const std::string path = t.file("lstm.bowline");
       must(lstm(true).model.save(path));
       Seed s = lstm(true);
       s.model = must(Model::open(path));
       must(s.model.to(t.b));
       must(set_weight_format(s.model, "flat", "lstm.*"));
       const uint64_t begin = t.b.counters().live_bytes;
       std::vector<Session> sessions;
       uint64_t plans = 0;
       for (int i = 0; i < 4; ++i) {
         sessions.push_back(must(Session::create(s.model, t.b, "loss", {})));
         const MemoryReport memory = sessions.back().memory();
         t.count("bytes of storages, in one block and beside it", memory.storage_bytes, 10240 + 80);
         plans += memory.arena_bytes + memory.io_bytes + memory.backend_bytes;
         plans += i == 0 ? memory.copy_bytes : 0;
       }
       t.at_most("bytes of four sessions", t.b.counters().live_bytes - begin, plans);
       t.count("packs", s.model.counters().packs + s.model.counters().repacks, 1);
     }},
    {"R103", "intel/intel-extension-for-pytorch#356; jllllll/bitsandbytes#2",
     "a packed state could not be saved, or not loaded back", save_while_packed},
};

}  // namespace

std::span<const Recipe> recipes_of_formats() { return kFormatsRecipes; }

}  // namespace bowline::test
