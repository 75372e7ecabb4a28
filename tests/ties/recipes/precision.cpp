// Precision: a storage decides its dtype. Masters, moments and statistics keep their own dtypes.
#include "base/float16.h"
#include "ties/recipes/topics.h"

namespace bowline::test {
namespace {

// Returns the values of a bf16 parameter.
Floats short_values(const Model& model, std::string_view name, size_t n) {
  std::vector<uint16_t> bits(n);
  must(model.get_value(name, {"", DType::bf16, {static_cast<int64_t>(n)}, bits.data()}));
  Floats out;
  for (const uint16_t b : bits) {
    out.push_back(to_f32(bf16{b}));
  }
  return out;
}

uint32_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// y = x Wᵀ and L = sum(y). The sum is computed in bf16 or in f32.
Model linear(DType dtype, bool wide_sum) {
  Model m;
  const Parameter w = must(m.parameter("w", {66, 44}, Init::ones(), StorageRole::weight, dtype));
  GraphBuilder g(m, "loss");
  const Value x = g.input("x", dtype, {22, 44});
  const Value y = g.op("MatMul", {x, g.parameter(w)}, {{"transpose_b", true}});
  g.output("y", y);
  g.output("loss", g.op("ReduceSum", {wide_sum ? g.op("Cast", {y}, {{"to", "f32"}}) : y}));
  must(g.finish());
  must(m.materialize(1));
  return m;
}

std::string listings(Trainer& trainer) {
  return must(trainer.listing("forward")) + "--\n" + must(trainer.listing("backward")) + "--\n" +
         must(trainer.listing("update"));
}

// Returns the lines of a listing that compute in f32, except the seed of the gradient and the sum
// into the row of the storage.
std::string temporaries_in_f32(const std::string& listing) {
  std::string out;
  for (size_t at = listing.find("f32["); at != listing.npos; at = listing.find("f32[", at + 1)) {
    const std::string line = listing.substr(at, listing.find('\n', at) - at);
    if (!line.starts_with("f32[] ") && !line.starts_with("f32[66,44] = AccumulateGrad(")) {
      out += line + "\n";
    }
  }
  return out;
}

// LIN: a model that is cast equals a model that is built in the dtype.
void cast_equals_built(Bench& t) {
  std::vector<uint16_t> ones(22 * 44, bf16_bits(1));
  const Tensor batch[] = {{"x", DType::bf16, {22, 44}, ones.data()}};
  const std::span<const Tensor> batches[] = {batch};
  std::string listing_of_cast;
  TrainOptions o = plain_sgd(0);
  o.precision.compute_dtype =
      DType::f32;  // the dtype of the operands, even if the device prefers another
  for (const bool built : {false, true}) {
    Model m = linear(built ? DType::bf16 : DType::f32, false);
    t.count("storages cast", must(m.cast(DType::bf16)).storages, built ? 0 : 1);
    must(m.to(t.b));
    Session session = must(Session::create(m, t.b, "loss", {}));
    std::vector<uint16_t> y(22 * 66), sum(1);
    const Tensor outputs[] = {{"y", DType::bf16, {22, 66}, y.data()},
                              {"loss", DType::bf16, {}, sum.data()}};
    must(session.run(batch, outputs));
    t.holds("y is 44", y == std::vector<uint16_t>(22 * 66, bf16_bits(44)));
    t.count("63888 in bf16", sum[0], bf16_bits(64000));
    Trainer trainer = must(Trainer::create(m, t.b, o));
    t.number("the loss", must(trainer.step(batches)).loss, 64000, {}, 0);
    Floats gradient(66 * 44);
    must(trainer.gradient("w", tensor("", {66, 44}, gradient)));
    t.same("the gradient", gradient, Floats(66 * 44, 22));
    const std::string backward = must(trainer.listing("backward"));
    // The seed, its cast and reshape, and the gradients of the sum and of the product. The last
    // gradient is added to the row.
    t.at_most("nodes of the backward part",
              static_cast<uint64_t>(std::ranges::count(backward, '\n')), 6);
    t.same("temporaries in f32", temporaries_in_f32(backward), "");
    if (built) {
      t.same("listings of built and cast", listings(trainer), listing_of_cast);
    }
    listing_of_cast = listings(trainer);
  }
  Model m = linear(DType::bf16, true);
  must(m.to(t.b));
  Trainer trainer = must(Trainer::create(m, t.b, o));
  t.number("the loss, summed in f32", must(trainer.step(batches)).loss, 63888, {}, 0);
}

// MASTER: resumes from the master of a checkpoint.
void master_of_a_checkpoint(Bench& t) {
  const std::string path = t.file("master.bowline");
  {
    Model m = theta_model();
    must(m.to(t.b));
    Trainer trainer = must(Trainer::create(m, t.b, plain_sgd(0.001f)));
    run_steps(trainer, 1);
    must(trainer.save(path, {}));
  }
  Model m = must(Model::open(path));
  must(m.to(t.b));
  TrainOptions o = plain_sgd(0.001f);
  o.start = TrainStart::from_checkpoint;
  Trainer trainer = must(Trainer::create(m, t.b, o));
  for (const char* how : {"opened", "resumed"}) {
    t.count(format("bits of the master, {}", how), bits_of(row_of(m, StorageRole::master)[0]),
            0x3f7fbe77);
    run_steps(trainer, 1);
    t.number(format("the master after a step, {}", how), row_of(m, StorageRole::master)[0], 0.998,
             {{0.999, "rebuilt from bf16"}});
    must(trainer.resume(path));
  }
}

// OPTSTATE: the second moment in the checkpoint holds 1 + 2^-23, which needs f32.
void moments_of_short_storages(Bench& t) {
  const std::string path = t.file("moments.bowline");
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Model m = theta_model(dtype);
    must(m.to(t.b));
    TrainOptions o = adam(0.001f);
    o.precision.loss_scale = 1;
    Trainer trainer = must(Trainer::create(m, t.b, o));
    run_steps(trainer, 3);
    const Floats before = row_of(m, StorageRole::moment, 1);
    t.holds("the number tells a rounding", before[0] != to_f32(from_f32<bf16>(before[0])) &&
                                               before[0] != to_f32(from_f32<f16>(before[0])));
    must(trainer.save(path, {}));
    run_steps(trainer, 2);
    must(trainer.resume(path));
    t.same("the second moment", row_of(m, StorageRole::moment, 1), before);
  }
}

// ACC: sums the contributions of many uses.
void contributions_of_many_uses(Bench& t) {
  Model m;
  const Parameter w = must(m.parameter("w", {1}, Init::ones(), StorageRole::weight, DType::bf16));
  GraphBuilder g(m, "loss");
  const Value one = g.input("one", DType::bf16, {1});
  const Value small = g.input("small", DType::bf16, {1});
  Value total = g.op("Mul", {g.parameter(w), one});
  for (int i = 0; i < 256; ++i) {
    total = g.op("Add", {total, g.op("Mul", {g.parameter(w), small})});
  }
  g.output("loss", g.op("ReduceSum", {total}));
  must(g.finish());
  must(m.materialize(1));
  must(m.to(t.b));
  TrainOptions o = plain_sgd(0);
  o.accumulation = 2;
  Trainer trainer = must(Trainer::create(m, t.b, o));
  uint16_t one_bits = bf16_bits(1), small_bits = bf16_bits(0x1p-8f);
  const Tensor batch[] = {{"one", DType::bf16, {1}, &one_bits},
                          {"small", DType::bf16, {1}, &small_bits}};
  must(trainer.micro_step(batch));
  Floats gradient(1);
  must(trainer.gradient("w", tensor("", {1}, gradient)));
  t.number("the gradient", gradient[0], 2.0, {{1.0, "summed in bf16"}}, 0);
}

// CASTCACHE: writes the storage in every possible way.
void working_copies(Bench& t) {
  const std::string path = t.file("w.bowline");
  Model m;
  const Parameter w = must(m.parameter("w", {1}, Init::ones()));
  must(m.tied_parameter("v", w));
  must(m.parameter("other", {1}, Init::ones()));
  GraphBuilder g(m, "forward");
  g.output("y", g.op("Mul", {g.parameter(w), g.input("two", DType::f32, {1})}));
  must(g.finish());
  must(m.materialize(1));
  must(set(m, "w", {1}, {1.5f}));
  must(m.save(path));
  must(set(m, "w", {1}, {1}));
  must(set(m, "other", {1}, {1.5f}));
  must(m.to(t.b));
  const BoundEntryPoint entry[] = {{"forward", {}, DType::bf16}};
  Session session = must(Session::create(m, t.b, entry));
  const auto y = [&] {
    Floats in = {2}, out = {0};
    const Tensor inputs[] = {tensor("two", {1}, in)}, outputs[] = {tensor("y", {1}, out)};
    must(session.run(inputs, outputs));
    return static_cast<double>(out[0]);
  };
  t.number("y", y(), 2, {}, 0);
  t.number("y", y(), 2, {}, 0);
  t.count("refreshes, one per version", session.counters().refreshes, 1);
  const auto written = [&](std::string_view how) {
    t.number(how, y(), 3, {{2, "the copy is stale"}}, 0);
    must(set(m, "v", {1}, {1}));
    t.number("y", y(), 2, {{3, "the copy is stale"}}, 0);
  };
  must(set(m, "v", {1}, {1.5f}));
  written("by set_value of the other name");
  must(m.load(path, {.mode = LoadMode::copy, .partial = true}));
  written("by load");
  must(set(m, "other", {1}, {1.5f}));
  must(m.swap("w", "other"));
  written("by swap");
  Floats one_and_a_half = {1.5f};
  must(m.assign("w", tensor("", {1}, one_and_a_half)));
  written("by assign");
}

void batch_norm(Bench& t) {
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    for (const bool affine : {true, false}) {
      Model m;
      const auto one = [&](const char* name, StorageRole role = StorageRole::weight) {
        return must(m.parameter(name, {1}, Init::ones(), role));
      };
      const Parameter scale = one("scale"), bias = one("bias"), head = one("head");
      const Parameter mean = one("mean", StorageRole::running_statistic);
      const Parameter variance = one("variance", StorageRole::running_statistic);
      GraphBuilder g(m, "loss");
      const auto cast = [&](Value v, const std::string& to) {
        return std::string_view(dtype) == "f32" ? v : g.op("Cast", {v}, {{"to", to}});
      };
      const auto low = [&](Value v) { return cast(v, dtype); };
      const Value x = g.input("x", DType::f32, {125, 1});
      const Value y = g.op("BatchNorm",
                           {low(x), low(g.parameter(scale)), low(g.parameter(bias)),
                            g.parameter(mean), g.parameter(variance)},
                           {{"momentum", 0.1}, {"eps", 1e-5}});
      g.output("loss", g.op("ReduceMean", {g.op("Add", {cast(y, "f32"), g.parameter(head)})}));
      must(g.finish());
      must(m.materialize(1));
      if (!affine) {
        must(m.freeze("scale"));
        must(m.freeze("bias"));
      }
      must(m.to(t.b));
      TrainOptions o = plain_sgd(0.001f);
      o.precision.loss_scale = 1;
      Trainer trainer = must(Trainer::create(m, t.b, o));
      Floats numbers(125, 1.0f);
      std::fill_n(numbers.begin(), 16, 1.0078125f);  // the mean is 1.001, exact in 16 bits
      const Tensor batch[] = {tensor("x", {125, 1}, numbers)};
      const int steps = t.b.info().name == "cpu" ? 1000 : 20;
      for (int i = 0; i < steps; ++i) {
        must(trainer.micro_step(batch));
      }
      t.number(format("the mean in {}", dtype), values(m, "mean")[0],
               1.001 - 0.001 * std::pow(0.9, steps), {{1.0, "kept in 16 bits"}});
      const Floats before = values(m, "variance");
      must(trainer.evaluate(batch));
      t.same("an evaluation writes nothing", values(m, "variance"), before);
    }
  }
}

void floor_of_a_role(Bench& t) {
  Model m;
  must(m.parameter("w", {1}, Init::ones()));
  must(m.parameter("mean", {1}, Init::zeros(), StorageRole::running_statistic));
  must(m.parameter("var", {1}, Init::zeros(), StorageRole::running_statistic));
  must(m.tied_parameter("also w", must(m.find("w"))));
  must(m.materialize(1));
  must(set(m, "mean", {1}, {0.1f}));
  must(set(m, "var", {1}, {1e-8f}));
  must(m.to(t.b));
  const CastReport report = must(m.cast(DType::f16));
  t.count("storages cast", report.storages, 1);
  t.count("parameters that keep their dtype", report.kept.size(), 2);
  t.holds("the tie stays", must(m.same_storage("w", "also w")));
  must(m.cast(DType::f32));
  t.number("the mean", values(m, "mean")[0], static_cast<double>(0.1f),
           {{0.09997559, "rounded to f16"}}, 0);
  t.same("the variance", values(m, "var"), Floats({1e-8f}));
  t.refused(
      "a statistic in f16",
      m.parameter("short", {1}, Init::zeros(), StorageRole::running_statistic, DType::f16).status(),
      Code::bad_argument);
}

// A storage gets the address of a freed storage.
void address_used_again(Bench& t) {
  Seed s = lm32();
  must(s.model.to(t.b));
  const BoundEntryPoint entry[] = {{"loss", {}, DType::bf16}};
  Session session = must(Session::create(s.model, t.b, entry));
  t.same("logits", logits_of(session, s), Floats({1, 1, 2}));
  must(s.model.to(t.a));
  must(set(s.model, "embed", {3, 2}, {2, 0, 0, 2, 2, 2}));
  must(s.model.to(t.b));
  t.same("logits of 2 E, moved away and back", logits_of(session, s), Floats({4, 4, 8}));
  must(set(s.model, "head", {3, 2}, {1, 0, 0, 1, 1, 1}));
  t.same("logits of E, written in place", logits_of(session, s), Floats({1, 1, 2}));
}

constexpr Recipe kPrecisionRecipes[] = {
    {"R43", "pytorch#43706; facebookresearch/fairscale#50; NVIDIA/Megatron-LM#1359",
     "f32 state of 16-bit parameters was restored through 16 bits", moments_of_short_storages},
    {"R44", "TensorAuto/OpenTau#185, #184",
     "checkpoints had no masters, which were rebuilt from bf16: 16 bits lost per resume",
     master_of_a_checkpoint},
    {"R45", "areal-project/AReaL PR#1369",
     "updates were computed in bf16, and updates below half of its spacing were lost",
     [](Bench& t) {
       Model m = theta_model();
       must(m.to(t.b));
       Trainer trainer = must(Trainer::create(m, t.b, plain_sgd(0.001f)));
       run_steps(trainer, 100);
       t.number("the master", row_of(m, StorageRole::master)[0], 0.9000013,
                {{1.0, "updated in bf16"}});
       t.number("theta", short_values(m, "theta", 1)[0], 0.8984375, {{1.0, "updated in bf16"}}, 0);
     }},
    {"R49", "pytorch/xla#3718",
     "data was cast after it was made, its metadata stayed f32: casts in every step",
     cast_equals_built},
    {"R51", "pytorch#65766, #112583, PR#113685, PR#165068",
     "a cast that was cached without gradients was reused with gradients, which ended there",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       TrainOptions o = plain_sgd(0.1f);
       o.precision.compute_dtype = DType::bf16;
       Trainer trainer = must(Trainer::create(s.model, t.b, o));
       t.number("the loss without gradients", loss(trainer, s), 4);
       step(trainer, s);
       Floats gradient(6);
       must(trainer.gradient("embed", tensor("", {3, 2}, gradient)));
       t.same("the gradient", gradient, Floats({1, 1, 1, 1, 3, 3}));
       t.count("working copies made", trainer.counters().refreshes, 1);
     }},
    {"R52", "NVIDIA/apex PR#132", "a cached cast did not see that the weight was written",
     working_copies},
    {"R53", "NVIDIA/TransformerEngine PR#1972; flashinfer-ai/flashinfer PR#4069",
     "caches used addresses as keys: they were never updated, or found another tensor",
     address_used_again},
    {"R55", "NVIDIA/apex PR#144",
     "a cast of the model also cast the moments of BatchNorm, and rounded them", floor_of_a_role},
    {"R56 R54", "pytorch#70901, PR#126525; NVIDIA/apex#133, #122; fastai/fastai#507",
     "running statistics in half precision stood still; BatchNorm in half precision crashed",
     batch_norm},
    {"R59", "sums of tied contributions in bf16", "256 contributions of 2^-8 to 1 were lost",
     contributions_of_many_uses},
};

}  // namespace

std::span<const Recipe> recipes_of_precision() { return kPrecisionRecipes; }

}  // namespace bowline::test
