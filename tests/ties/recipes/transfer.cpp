// Moves, casts, skeletons and placements.
#include "api/internals.h"
#include "device/device.h"
#include "faults/wrapped_device.h"
#include "ties/recipes/topics.h"

namespace bowline::test {
namespace {

// Layers without bias and with the sizes in `widths`. Layer `tied` shares the weight of layer 0.
Model stack(const std::vector<int64_t>& widths, size_t tied) {
  Model m;
  std::vector<Parameter> weights;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const std::string name = format("layer{}.weight", i + 1);
    weights.push_back(i == tied
                          ? must(m.tied_parameter(name, weights[0]))
                          : must(m.parameter(name, {widths[i + 1], widths[i]}, Init::normal(1))));
  }
  GraphBuilder g(m, "forward");
  Value x = g.input("x", DType::f32, {1, widths[0]});
  for (const Parameter& w : weights) {
    x = g.op("Linear", {x, g.parameter(w)});
  }
  g.output("y", x);
  must(g.finish());
  must(m.materialize(1));
  return m;
}

// Returns the number of elements in all storages of weights.
uint64_t stored_values(const Model& m) {
  uint64_t sum = 0;
  for (const StorageInfo& s : storages_of(m, StorageRole::weight)) {
    sum += s.bytes / size_of(s.dtype);
  }
  return sum;
}

uint64_t storages(const Model& m) { return storages_of(m, StorageRole::weight).size(); }

float lm32_after_a_step(Seed& s, const Device& device) {
  Trainer trainer = must(Trainer::create(s.model, device, plain_sgd(0.1f)));
  step(trainer, s);
  return loss(trainer, s);
}

// A CPU device on which the n-th copy to the device fails.
class CopiesFail : public WrappedDevice {
 public:
  CopiesFail(std::unique_ptr<device::Device> inner, int nth)
      : WrappedDevice(std::move(inner)), left_(nth) {}
  Status copy_in(device::Buffer to, uint64_t offset, std::span<const std::byte> from) override {
    BOWLINE_REQUIRE_CODE(--left_ != 0, Code::device_lost, "This copy fails on purpose.");
    return WrappedDevice::copy_in(to, offset, from);
  }

 private:
  int left_;
};

Device with_failing_copy(int nth) {
  for (const device::Backend* backend : device::backends()) {
    if (backend->name() == "cpu") {
      DeviceInfo info;
      info.name = "failing";
      return Internals::device(std::make_shared<device::OpenDevice>(
          std::move(info), std::make_unique<CopiesFail>(must(backend->open(0, {})), nth)));
    }
  }
  throw std::runtime_error("This build has no CPU.");
}

// The copy of the second of three storages fails.
void failed_move(Bench& t) {
  Seed s = lm32();
  must(s.model.parameter("second", {2}, Init::ones()));
  must(s.model.parameter("third", {2}, Init::ones()));
  must(s.model.materialize(1));
  for (const char* name : {"second", "third"}) {
    must(s.model.freeze(name));
  }
  must(s.model.to(t.b));
  const std::string before = s.model.storages();
  for (int nth = 1; nth <= 3; ++nth) {
    t.refused("a move of which a copy fails", s.model.to(with_failing_copy(nth)), Code::device_lost,
              {"on purpose"});
    t.same("storages", s.model.storages(), before);
  }
  Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
  t.number("the loss", loss(trainer, s), 4);
  step(trainer, s);
  t.number("the loss after a step", loss(trainer, s), 2.1);
}

constexpr Recipe kTransferRecipes[] = {
    {"T14", "a transfer fails",
     "half of a model had moved when a copy failed, and neither half could be used", failed_move},
    {"R1", "torch/nn#187, PR#303",
     "a cast made new tensors per module, and a siamese network was untied",
     [](Bench& t) {
       Seed s = scalar2(3);
       const std::string before = s.model.ties();
       must(s.model.cast(DType::f16));
       must(s.model.cast(DType::f32));
       for (const Device& d : {t.a, t.b, t.a, t.b}) {
         must(s.model.to(d));
         t.same("ties", s.model.ties(), before);
       }
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
       step(trainer, s);
       t.number("the loss after a step", loss(trainer, s), 2.4, {{4.2, "untied"}});
     }},
    {"R2", "torch/nn#415", "some layers had their own conversion: 34 values instead of 17",
     [](Bench& t) {
       Model m;
       const Parameter w = must(m.parameter("left.weight", {1, 1, 4, 4}, Init::normal(1)));
       const Parameter c = must(m.parameter("left.bias", {1}, Init::normal(1)));
       const Parameter v = must(m.tied_parameter("right.weight", w));
       const Parameter d = must(m.tied_parameter("right.bias", c));
       GraphBuilder g(m, "forward");
       const Value x = g.input("x", DType::f32, {1, 1, 5, 5});
       const auto conv = [&](Parameter weight, Parameter bias) {
         return g.op("Conv", {x, g.parameter(weight), g.parameter(bias)});
       };
       g.output("y", g.op("Sub", {conv(w, c), conv(v, d)}));
       must(g.finish());
       must(m.materialize(1));
       for (const Device& place : {t.a, t.b, t.a, t.b}) {
         must(m.to(place));
         t.count("values", stored_values(m), 17);
       }
       Session session = must(Session::create(m, t.b, "forward", {}));
       Floats in(25), out(4, 1.0f);
       for (size_t i = 0; i < in.size(); ++i) {
         in[i] = static_cast<float>(i);
       }
       const Tensor inputs[] = {tensor("x", {1, 1, 5, 5}, in)};
       const Tensor outputs[] = {tensor("y", {1, 1, 2, 2}, out)};
       must(session.run(inputs, outputs));
       t.same("left - right", out, Floats(4, 0.0f));
     }},
    {"R4", "pytorch/xla#1245, huggingface/transformers#1663",
     "a move split embedding and head, save wrote both, load merged them: perplexity 73 became "
     "61,233",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       t.number("the loss on B", lm32_after_a_step(s, t.b), 2.1, {{2.72, "untied"}});
       const std::string path = t.file("lm32.bowline");
       must(s.model.save(path));
       Seed again = lm32_skeleton();
       again.model = must(Model::open(path));
       t.count("payload bytes", weight_bytes(again.model), 24);
       must(again.model.to(t.a));
       Session session = must(Session::create(again.model, t.a, "loss", {}));
       Floats sum(1);
       const Tensor out[] = {tensor("loss", {}, sum)};
       must(session.run(again.batch(), out));
       t.number("the loss on A", sum[0], 2.1, {{2.72, "untied"}});
     }},
    {"R5", "Lightning-AI/pytorch-lightning#2705, PR#5441",
     "the documentation required to tie again after a move, but no caller did: 960 values, not 640",
     [](Bench& t) {
       Model m = stack({32, 10, 32, 10}, 2);
       for (const Device& place : {t.a, t.b}) {
         must(m.to(place));
         t.count("values", stored_values(m), 640);
         t.count("storages", storages(m), 2);
       }
     }},
    {"R6", "pytorch/xla#7042", "a tie of four names was cast, then moved: the list of names grew",
     [](Bench& t) {
       Model m;
       const Parameter shared = must(m.parameter("shared", {3, 2}, Init::normal(1)));
       for (const char* name : {"encoder.embed", "decoder.embed", "head"}) {
         must(m.tied_parameter(name, shared));
       }
       must(m.materialize(1));
       must(m.cast(DType::bf16));
       must(m.to(t.b));
       std::string names;
       for (const ParameterInfo& p : must(m.describe()).parameters) {
         names += format("{} {}\n", p.name, p.tie);
       }
       t.same("parameters", names, "shared 0\nencoder.embed 0\ndecoder.embed 0\nhead 0\n");
     }},
    {"R8", "the forum thread \"Weight sharing on cuda\"",
     "some devices kept mod.a = mod.b as a side effect, and the others lost it",
     [](Bench& t) {
       Seed s = scalar2(3);
       must(s.model.parameter("equal", {1}, Init::ones()));
       must(s.model.materialize(1));
       for (const Device& place : {t.a, t.b}) {
         must(s.model.to(place));
         t.holds("a and b are one storage", must(s.model.same_storage("a", "b")));
         t.holds("equal values are no tie", !must(s.model.same_storage("a", "equal")));
         t.same("a and the one that is equal", values(s.model, "equal"), values(s.model, "a"));
       }
     }},
    {"R9", "huggingface/transformers PR#13030, huggingface/accelerate PR#138",
     "each model was tied again by hand after a move, but without the bias",
     [](Bench& t) {
       Model m = tied_table(3, 2);
       const Parameter bias = must(m.parameter("bias", {3}, Init::normal(1)));
       must(m.tied_parameter("decoder.bias", bias));
       must(m.materialize(1));
       const std::string before = m.ties();
       must(m.to(t.b));
       t.same("ties", m.ties(), before);
       t.count("storages", storages(m), 2);
     }},
    {"R10", "FluxML/Flux.jl#1504, #2432",
     "a transposed wrapper was copied by the move: 36 + 35 parameters",
     [](Bench& t) {
       Seed s = ae23();
       must(s.model.to(t.a));
       must(s.model.to(t.b));
       t.count("values", stored_values(s.model), 6);
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.01f)));
       t.number("the loss", step(trainer, s).loss, 66);
       t.number("the loss after a step", loss(trainer, s), 61.6176, {{62.8998, "untied"}});
     }},
    {"R11", "InfiniTensor/InfiniTrain#236",
     "a cast to the same dtype made new tensors, and a move made two: 1,024 values, not 512",
     [](Bench& t) {
       Model m = tied_table(32, 16);
       must(m.to(t.b));
       const std::string before = m.storages();
       t.b.reset_counters();
       must(m.cast(DType::f32));
       must(m.to(t.b));
       t.count("allocations", t.b.counters().allocations, 0);
       t.same("storages", m.storages(), before);
       t.count("values", stored_values(m), 512);
     }},
    {"R12", "huggingface/accelerate#993, PR#1000",
     "each module's hook moved its own copy; embedding on one device, head on another",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.a, "embed"));
       must(s.model.to(t.b, "head"));
       const ModelInfo info = must(s.model.describe());
       t.same("where the tie lies", info.storages.at(0).where, t.b.info().name);
       t.number("the loss after a step", lm32_after_a_step(s, t.b), 2.1, {{2.72, "untied"}});
     }},
    {"R13", "huggingface/accelerate#3668, PR#2737",
     "a hook made the parameter again while the model had only shapes",
     [](Bench& t) {
       Seed s = lm32_skeleton();
       const std::string before = s.model.ties();
       t.holds("the partition is known without bytes", must(s.model.same_storage("embed", "head")));
       must(s.model.to(t.b));
       must(s.model.materialize(1));
       t.same("ties", s.model.ties(), before);
       t.count("storages", storages(s.model), 1);
     }},
    {"R15", "huggingface/accelerate#1197, PR#1204",
     "loading into a model of shapes made a tensor per name, and the tie was lost",
     [](Bench& t) {
       const std::string path = t.file("half.bowline");
       {
         Model half;
         must(half.parameter("head", {3, 2}, Init::zeros()));
         must(half.materialize(1));
         must(set(half, "head", {3, 2}, {1, 0, 0, 1, 1, 1}));
         must(half.save(path));
       }
       Seed s = lm32_skeleton();
       const std::string before = s.model.ties();
       const LoadReport report = must(s.model.load(path));
       t.count("storages loaded", report.storages, 1);
       t.count("names that are missing", report.missing.size(), 0);
       t.same("ties", s.model.ties(), before);
       must(s.model.to(t.b));
       t.same("logits", logits_of(s, t.b), Floats({1, 1, 2}));
     }},
    {"R16", "huggingface/accelerate PR#2330",
     "each device had a tied weight once per name, and again in the forward pass",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.tied_parameter("third", must(s.model.find("head"))));
       t.b.reset_counters();
       const uint64_t begin = t.b.counters().live_bytes;
       must(s.model.to(t.b));
       t.count("copies to B", t.b.counters().copies_in, 1);
       t.count("bytes on B", t.b.counters().live_bytes - begin, 24);
       Session session = must(Session::create(s.model, t.b, "loss", {}));
       t.count("bytes of storages in the plan", session.memory().storage_bytes, 24);
       const uint64_t planned = t.b.counters().live_bytes;
       logits_of(session, s);
       t.count("bytes on B after the forward pass", t.b.counters().live_bytes, planned);
     }},
    {"R18", "huggingface/accelerate PR#4083",
     "ties were found by address, but offloaded weights have no address: all loaded the same value",
     [](Bench& t) {
       Model m;
       const char* const names[] = {"one", "two", "three"};
       for (const char* name : names) {
         must(m.parameter(name, {2, 2}, Init::zeros()));
       }
       must(m.tied_parameter("also three", must(m.find("three"))));
       must(m.materialize(1));
       for (size_t i = 0; i < 3; ++i) {
         must(set(m, names[i], {2, 2}, Floats(4, static_cast<float>(i + 1))));
       }
       const uint64_t begin = t.b.counters().live_bytes;
       must(m.to(t.b));
       const std::string before = m.ties();
       must(offload(m));
       t.count("bytes on B while all is offloaded", t.b.counters().live_bytes, begin);
       t.same("ties", m.ties(), before);
       must(m.to(t.b));
       for (size_t i = 0; i < 3; ++i) {
         t.same(names[i], values(m, names[i]), Floats(4, static_cast<float>(i + 1)));
       }
       must(offload(m, "*three"));
       t.count("bytes on B", t.b.counters().live_bytes - begin, 32);
       t.same("ties", m.ties(), before);
       must(set(m, "also three", {2, 2}, Floats(4, 4)));
       must(m.to(t.b));
       t.same("three, written while it was away", values(m, "three"), Floats(4, 4));
     }},
    {"R19", "huggingface/accelerate#1510, PR#2324, PR#1241; huggingface/transformers PR#46625",
     "a name with the same prefix counted as a tie, and sizes were added once per name",
     [](Bench& t) {
       Model m;
       const Parameter w = must(m.parameter("c.w", {4}, Init::ones()));
       must(m.tied_parameter("c.w_sub.p", w));
       must(m.parameter("c.w_other", {4}, Init::ones()));
       for (int i = 0; i < 20; ++i) {
         const Parameter p = must(m.parameter(format("backbone.{}", i), {2}, Init::ones()));
         must(m.tied_parameter(format("teacher.{}", i), p));
       }
       must(m.materialize(1));
       const uint64_t begin = t.b.counters().live_bytes;
       must(m.to(t.b));
       t.holds("no tie by name", !must(m.same_storage("c.w", "c.w_other")));
       t.count("bytes on B", t.b.counters().live_bytes - begin, 2 * 16 + 20 * 8);
       t.count("bytes of storages", weight_bytes(m), 2 * 16 + 20 * 8);
     }},
    {"R26", "pytorch#187008, #145529", "any weak reference to a parameter made move and cast fail",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.a));
       const std::string path = t.file("doubled.bowline");
       {
         Seed doubled = lm32();
         must(set(doubled.model, "head", {3, 2}, {2, 0, 0, 2, 2, 2}));
         must(doubled.model.save(path));
       }
       Session first = must(Session::create(s.model, t.a, "loss", {}));
       Session second = must(Session::create(s.model, t.a, "loss", {}));
       logits_of(first, s);
       must(s.model.cast(DType::bf16, "embed"));
       must(s.model.cast(DType::f32, "head"));
       must(s.model.load(path));
       t.same("the first holder", logits_of(first, s), Floats({4, 4, 8}));
       must(s.model.to(t.b));
       Session third = must(Session::create(s.model, t.b, "loss", {}));
       t.same("a holder on B", logits_of(third, s), Floats({4, 4, 8}));
       must(s.model.to(t.a));
       t.same("the second holder", logits_of(second, s), Floats({4, 4, 8}));
     }},
    {"R29", "mlverse/torch#305", "a layer with two names was listed twice",
     [](Bench& t) {
       Model m;
       const Parameter w = must(m.parameter("x.weight", {2, 2}, Init::normal(1)));
       const Parameter b = must(m.parameter("x.bias", {2}, Init::normal(1)));
       must(m.tied_parameter("y.weight", w));
       must(m.tied_parameter("y.bias", b));
       must(m.materialize(1));
       must(m.to(t.b));
       t.count("storages", storages(m), 2);
       t.count("parameters", must(m.describe()).parameters.size(), 4);
     }},
};

}  // namespace

std::span<const Recipe> recipes_of_transfer() { return kTransferRecipes; }

}  // namespace bowline::test
