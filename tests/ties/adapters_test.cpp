// Low-rank adapters on storages and on single uses, on every device.
#include "model/tied_model.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using Adapters = OnDevice;
BOWLINE_ON_ALL_DEVICES(Adapters);

AdapterOptions rank_one(std::string target, bool per_parameter = false) {
  AdapterOptions o;
  o.rank = 1;
  o.alpha = 1;
  o.target = std::move(target);
  o.per_parameter = per_parameter;
  return o;
}

Floats logits(Session& session, int32_t id) {
  std::vector<int32_t> ids = {id};
  Floats out(3), sum(1);
  const Tensor in[] = {tensor("x", {1}, ids)};
  const Tensor outputs[] = {tensor("loss", {}, sum), tensor("logits", {1, 3}, out)};
  EXPECT_OK(session.run(in, outputs));
  return out;
}

Session session_of(Seed& s, const Device& device) {
  return must(Session::create(s.model, device, "loss", {}));
}

// Sets A and B of the adapter so that row `row` of its target changes by (x, y).
void set_row(Model& model, const std::string& adapter, int row, float x, float y) {
  Floats b(3);
  b[static_cast<size_t>(row)] = 1;
  EXPECT_OK(set(model, adapter + ".lora_a", {1, 2}, {x, y}));
  EXPECT_OK(set(model, adapter + ".lora_b", {3, 1}, b));
}

// LM32 with an adapter that adds (1,1) to row 0 of the head.
Seed adapted_lm32(bool per_parameter) {
  Seed s = lm32();
  must(add_adapter(s.model, "ad", rank_one("head", per_parameter)));
  set_row(s.model, "head.ad", 0, 1, 1);
  return s;
}

std::string listing(const Model& m) { return m.parameters() + m.storages() + m.ties(); }

TEST_P(Adapters, OfAStorageAreSeenByEveryUse) {
  Seed s = adapted_lm32(false);
  ASSERT_OK(s.model.to(device_));
  Session session = session_of(s, device_);
  EXPECT_EQ(logits(session, 2), Floats({3, 1, 2}));
  EXPECT_EQ(logits(session, 0), Floats({5, 1, 3})) << "(2,1) looked up, and read by the head";
  ASSERT_OK(merge_adapter(s.model, "ad"));
  EXPECT_EQ(values(s.model, "embed"), Floats({2, 1, 0, 1, 1, 1}));
  EXPECT_EQ(logits(session, 0), Floats({5, 1, 3}));
}

TEST_P(Adapters, AreMixedAndSwitchedWithoutAPlan) {
  Seed s = adapted_lm32(true);
  must(add_adapter(s.model, "other", rank_one("head", true)));
  set_row(s.model, "head.other", 1, 0, 1);
  ASSERT_OK(s.model.to(device_));
  EXPECT_EQ(adapters(s.model), std::vector<std::string>({"ad", "other"}));
  Session session = session_of(s, device_);
  EXPECT_EQ(logits(session, 2), Floats({3, 2, 2}));
  ASSERT_OK(set_adapter_weight(s.model, "ad", 0.5f));
  ASSERT_OK(set_adapter_weight(s.model, "other", 2));
  EXPECT_EQ(must(adapter_weight(s.model, "ad")), 0.5f);
  EXPECT_EQ(must(adapter_weight(s.model, "other")), 2);
  EXPECT_EQ(logits(session, 2), Floats({2, 3, 2}));
  ASSERT_OK(set_adapter_weight(s.model, "ad", 0));
  ASSERT_OK(set_adapter_weight(s.model, "other", 0));
  EXPECT_EQ(logits(session, 2), Floats({1, 1, 2}));
  EXPECT_EQ(session.counters().plan_builds, 1u);
  ASSERT_OK(set_adapter_weight(s.model, "other", 1));
  ASSERT_OK(remove_adapter(s.model, "ad"));
  EXPECT_EQ(logits(session, 2), Floats({1, 2, 2}));
  EXPECT_EQ(values(s.model, "head.other.lora_a"), Floats({0, 1}));
  ASSERT_OK(remove_adapter(s.model, "other"));
  EXPECT_EQ(logits(session, 2), Floats({1, 1, 2}));
  EXPECT_EQ(s.model.parameters(), "embed tie 0 f32[3,2] frozen\nhead tie 0 f32[3,2] frozen\n");
}

TEST_P(Adapters, ComputeIn16Bits) {
  Seed s = adapted_lm32(true);
  ASSERT_OK(s.model.to(device_));
  const BoundEntryPoint half[] = {{"loss", {}, DType::f16}};
  Session session = must(Session::create(s.model, device_, half));
  EXPECT_EQ(logits(session, 2), Floats({3, 1, 2}));
  ASSERT_OK(set_adapter_weight(s.model, "ad", 3));
  EXPECT_EQ(logits(session, 2), Floats({7, 1, 2})) << "the copy in f16 is made again";
}

TEST_P(Adapters, FollowABaseThatIsCast) {
  for (const char* what : {"*", "embed"}) {
    Seed s = adapted_lm32(false);
    must(s.model.cast(DType::f16, what));
    ASSERT_OK(set_adapter_weight(s.model, "ad", 0.5f));
    ASSERT_OK(s.model.to(device_));
    Session session = session_of(s, device_);
    std::vector<int32_t> ids = {2};
    uint16_t sum = 0, out[3] = {};
    const int64_t row[] = {1, 3};
    const Tensor in[] = {tensor("x", {1}, ids)};
    const Tensor outputs[] = {{"loss", DType::f16, {}, &sum}, {"logits", DType::f16, row, out}};
    ASSERT_OK(session.run(in, outputs));
    EXPECT_EQ(out[0], 0x4000) << what;  // 1 + 0.5 * 2
    EXPECT_EQ(out[1], 0x3C00) << what;
    EXPECT_EQ(out[2], 0x4000) << what;
  }
}

constexpr double kScale = 1.5;  // alpha 3, rank 2

using Numbers = std::vector<double>;

// Returns L of AE23 with W' = W + 1.5 B A in the encoder, in the decoder, or in both.
double loss_of_ae23(const Numbers& a, const Numbers& b, bool encoder, bool decoder) {
  const double w[2][3] = {{1, 2, 3}, {4, 5, 6}}, x[3] = {1, 0, 0};
  const auto entry = [&](bool changed, int i, int j) {
    double sum = 0;
    for (int k = 0; k < 2; ++k) {
      sum += b[static_cast<size_t>(2 * i + k)] * a[static_cast<size_t>(3 * k + j)];
    }
    return w[i][j] + (changed ? kScale * sum : 0);
  };
  double out = 0;
  for (int i = 0; i < 2; ++i) {
    double y = 0;
    for (int j = 0; j < 3; ++j) {
      y += entry(encoder, i, j) * x[j];
    }
    for (int j = 0; j < 3; ++j) {
      out += entry(decoder, i, j) * y;
    }
  }
  return out;
}

Numbers slope(Numbers at, const std::function<double(const Numbers&)>& f) {
  Numbers out;
  for (double& v : at) {
    const double middle = v;
    v = middle + 1e-4;
    const double above = f(at);
    v = middle - 1e-4;
    out.push_back((above - f(at)) / 2e-4);
    v = middle;
  }
  return out;
}

// A transposed view of a changed storage has the transposed change, and both uses contribute to the
// gradients of A and B.
TEST_P(Adapters, TransposedViewsSeeTheChangeAndTrainIt) {
  const Numbers a = {0.5, -1, 0.25, 1, 0.75, -0.5}, b = {0.25, 1, -0.5, 0.75};
  for (const auto& [target, per_parameter] :
       {std::pair("encoder", false), {"encoder", true}, {"decoder", true}}) {
    const bool encoder = !per_parameter || target == std::string("encoder");
    const bool decoder = !per_parameter || target == std::string("decoder");
    Seed s = ae23();
    AdapterOptions o = rank_one(target, per_parameter);
    o.rank = 2;
    o.alpha = 3;
    must(add_adapter(s.model, "ad", o));
    const ModelInfo info = must(s.model.describe());
    const auto storage_of = [&](StorageRole role) {
      return std::ranges::find(info.storages, role, &StorageInfo::role)->tie;
    };
    const auto give = [&, target = target](StorageRole role, const Numbers& v, const Dims& shape,
                                           Dims turned) {
      for (const ParameterInfo& p : info.parameters) {
        if (p.tie == storage_of(role) && !p.view.transpose) {
          EXPECT_OK(set(s.model, p.name, shape, Floats(v.begin(), v.end())));
          return;
        }
      }
      Floats t;
      for (int64_t j = 0; j < turned[0]; ++j) {
        for (int64_t i = 0; i < turned[1]; ++i) {
          t.push_back(static_cast<float>(v[static_cast<size_t>(i * turned[0] + j)]));
        }
      }
      EXPECT_OK(set(
          s.model,
          std::string(target) + ".ad" + (role == StorageRole::adapter_a ? ".lora_a" : ".lora_b"),
          turned, t));
    };
    give(StorageRole::adapter_a, a, {2, 3}, {3, 2});
    give(StorageRole::adapter_b, b, {2, 2}, {2, 2});
    ASSERT_OK(s.model.to(device_));
    const auto base = must(s.model.storage_bytes(0));
    Trainer t = must(Trainer::create(s.model, device_, plain_sgd(1)));
    expect_number(loss(t, s), loss_of_ae23(a, b, encoder, decoder));
    step(t, s);
    EXPECT_EQ(must(s.model.storage_bytes(0)), base) << "the base is frozen";
    const auto check = [&](StorageRole role, const Numbers& from, const Numbers& gradient) {
      const auto bytes = must(s.model.storage_bytes(storage_of(role)));
      Floats now(from.size());
      ASSERT_EQ(bytes.size(), now.size() * sizeof(float));
      std::memcpy(now.data(), bytes.data(), bytes.size());
      for (size_t i = 0; i < now.size(); ++i) {
        expect_number(now[i], from[i] - gradient[i], {{from[i], "no gradient"}}, 1e-5);
      }
    };
    check(StorageRole::adapter_a, a,
          slope(a, [&, &b = b](const Numbers& v) { return loss_of_ae23(v, b, encoder, decoder); }));
    check(StorageRole::adapter_b, b,
          slope(b, [&, &a = a](const Numbers& v) { return loss_of_ae23(a, v, encoder, decoder); }));
  }
}

// y = w2 w1 w0 x in a Repeat.
Seed three_layers() {
  Seed s;
  s.shape = {1, 2};
  s.x = {1, 1};
  ParameterList list = must(s.model.parameters("layer.{}.w", 3, Dims{2, 2}, Init::zeros()));
  GraphBuilder g(s.model, "loss");
  const Value x = g.input("x", DType::f32, {1, 2});
  const auto y = g.repeat(3, {x}, [&](GraphBuilder& body, const std::vector<Value>& carried) {
    return std::vector<Value>{body.op("Linear", {carried[0], body.parameter(list)})};
  });
  g.output("loss", g.op("ReduceSum", {y.at(0)}));
  EXPECT_OK(g.finish());
  EXPECT_OK(s.model.materialize(1));
  EXPECT_OK(set(s.model, "layer.0.w", {2, 2}, {1, 2, 3, 4}));
  EXPECT_OK(set(s.model, "layer.1.w", {2, 2}, {0, 1, 1, 0}));
  EXPECT_OK(set(s.model, "layer.2.w", {2, 2}, {1, 0, 0, 2}));
  return s;
}

// x = (1,1). Layer 0 gives (3,7), and the adapter adds 2 to the first row. Layer 1 gives (7,5).
// Layer 2 gives (7,10), and the adapter adds 12 to the second row.
TEST_P(Adapters, OfSomeIterationsOfARepeat) {
  Seed s = three_layers();
  must(add_adapter(s.model, "ad", rank_one("layer.{0,2}.w")));
  ASSERT_OK(set(s.model, "layer.0.w.ad.lora_a", {1, 2}, {1, 1}));
  ASSERT_OK(set(s.model, "layer.0.w.ad.lora_b", {2, 1}, {1, 0}));
  ASSERT_OK(set(s.model, "layer.2.w.ad.lora_a", {1, 2}, {1, 1}));
  ASSERT_OK(set(s.model, "layer.2.w.ad.lora_b", {2, 1}, {0, 1}));
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.125f)));
  expect_number(loss(t, s), 29, {{17, "no change"}, {22, "one of two"}});
  // By hand: dL/dy2 = (1,1), dL/dx2 = (2,3) through w2' = [[1,0],[1,3]], and dL/dx1 = (3,2) through
  // w1.
  step(t, s);
  EXPECT_EQ(values(s.model, "layer.2.w.ad.lora_b"), Floats({-12 * 0.125f, 1 - 12 * 0.125f}));
  EXPECT_EQ(values(s.model, "layer.2.w.ad.lora_a"), Floats({1 - 7 * 0.125f, 1 - 5 * 0.125f}));
  EXPECT_EQ(values(s.model, "layer.0.w.ad.lora_b"), Floats({1 - 6 * 0.125f, -4 * 0.125f}));
  EXPECT_EQ(values(s.model, "layer.0.w.ad.lora_a"), Floats({1 - 3 * 0.125f, 1 - 3 * 0.125f}));
  EXPECT_EQ(values(s.model, "layer.1.w"), Floats({0, 1, 1, 0}));
}

// A Linear over two rows of three values, with weights of zeros and a bias of ones.
struct WithBias {
  Seed s;
  Parameter w;
  Parameter bias;
};
WithBias with_bias() {
  Seed s;
  s.shape = {2, 3};
  s.x = {1, -2, 0.5f, 3, 1, -1};
  const Parameter w = must(s.model.parameter("w", {4, 3}, Init::zeros()));
  const Parameter bias = must(s.model.parameter("bias", {4}, Init::ones()));
  return {std::move(s), w, bias};
}

// Two rows of 1 + 3/2 * 2 (1,2,3,4). By hand: dL/db = (2,2,2,2), so the gradient of B is 3/2 * 20
// and each gradient of A is 3/2 * 4.
TEST_P(Adapters, ChangeABiasWholly) {
  auto [s, w, bias] = with_bias();
  GraphBuilder g(s.model, "loss");
  const Value x = g.input("x", DType::f32, {2, 3});
  g.output("loss", g.op("ReduceSum", {g.op("Linear", {x, g.parameter(w), g.parameter(bias)})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(s.model.materialize(1));
  AdapterOptions o;
  o.rank = 2;
  o.alpha = 3;
  o.target = "!bias";
  must(add_adapter(s.model, "ad", o));
  ASSERT_OK(set(s.model, "bias.ad.lora_a", {1, 4}, {1, 2, 3, 4}));
  ASSERT_OK(set(s.model, "bias.ad.lora_b", {1, 1}, {2}));
  ASSERT_OK(s.model.to(device_));
  Trainer t = must(Trainer::create(s.model, device_, plain_sgd(0.125f)));
  expect_number(loss(t, s), 68, {{8, "no change"}, {48, "without the scale"}});
  step(t, s);
  EXPECT_EQ(values(s.model, "bias.ad.lora_b"), Floats({2 - 30 * 0.125f}));
  EXPECT_EQ(values(s.model, "bias.ad.lora_a"), Floats({0.25f, 1.25f, 2.25f, 3.25f}));
  EXPECT_EQ(values(s.model, "bias"), Floats({1, 1, 1, 1}));
  ASSERT_OK(merge_adapter(s.model, "ad"));
  EXPECT_EQ(values(s.model, "bias"), Floats({0.34375f, -2.28125f, -4.90625f, -7.53125f}));
}

// A graph with the same formula computes the same values, also after steps of Adam.
TEST_P(Adapters, EqualTheGraphThatSaysThem) {
  const auto make = [](bool by_hand) {
    auto [s, w, bias] = with_bias();
    GraphBuilder g(s.model, "loss");
    const Value x = g.input("x", DType::f32, {2, 3});
    Value y = g.op("Linear", {x, g.parameter(w), g.parameter(bias)});
    if (by_hand) {
      const Parameter a = must(s.model.parameter("a", {2, 3}, Init::zeros()));
      const Parameter b = must(s.model.parameter("b", {4, 2}, Init::zeros()));
      const Value narrow = g.op("Linear", {x, g.parameter(a)});
      const Parameter factor =
          must(s.model.parameter("factor", {1}, Init::ones(), StorageRole::constant));
      const Value scaled = g.op("Mul", {narrow, g.parameter(factor)});
      y = g.op("Add", {y, g.op("Linear", {scaled, g.parameter(b)})});
    }
    g.output("loss", g.op("ReduceSum", {g.op("Tanh", {y})}));
    EXPECT_OK(g.finish());
    EXPECT_OK(s.model.materialize(1));
    AdapterOptions o;
    o.rank = 2;
    o.alpha = 3;
    if (by_hand) {
      EXPECT_OK(set(s.model, "factor", {1}, {1.5f}));
      EXPECT_OK(s.model.freeze("w"));
      EXPECT_OK(s.model.freeze("bias"));
    } else {
      must(add_adapter(s.model, "ad", o));
    }
    EXPECT_OK(set(s.model, "w", {4, 3}, {1, 0, 2, -1, 1, 1, 0, 0, 1, 0.5f, 0, -1}));
    EXPECT_OK(set(s.model, by_hand ? "a" : "w.ad.lora_a", {2, 3}, {0.1f, 0.2f, -0.1f, 0.3f, 0, 1}));
    EXPECT_OK(
        set(s.model, by_hand ? "b" : "w.ad.lora_b", {4, 2}, {0, 1, 0.5f, 0, 0.2f, 0.1f, 0, 0}));
    return std::move(s);
  };
  Seed hand = make(true), adapter = make(false);
  ASSERT_OK(hand.model.to(device_));
  ASSERT_OK(adapter.model.to(device_));
  TrainOptions o;
  o.optimizer.settings["weight_decay"] = 0;
  o.schedule.learning_rate = 0.1f;
  Trainer by_hand = must(Trainer::create(hand.model, device_, o));
  Trainer by_adapter = must(Trainer::create(adapter.model, device_, o));
  for (int i = 0; i < 3; ++i) {
    expect_number(step(by_adapter, adapter).loss, step(by_hand, hand).loss);
  }
  const auto near = [](const Floats& x, const Floats& y) {
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      expect_number(x[i], y[i], {}, 1e-5);
    }
  };
  near(values(adapter.model, "w.ad.lora_a"), values(hand.model, "a"));
  near(values(adapter.model, "w.ad.lora_b"), values(hand.model, "b"));
}

TEST_P(Adapters, AreKeptByCopiesAndFiles) {
  Seed s = adapted_lm32(true);
  ASSERT_OK(set_adapter_weight(s.model, "ad", 2));
  ASSERT_OK(s.model.to(device_));
  const Folder folder;
  const std::string path = folder / "whole.bowline";
  ASSERT_OK(s.model.save(path));
  for (const bool by_file : {false, true}) {
    Model copy = by_file ? must(Model::open(path)) : must(s.model.clone());
    EXPECT_EQ(copy.parameters(), s.model.parameters());
    EXPECT_NE(copy.parameters().find("changes head"), std::string::npos);
    ASSERT_OK(copy.to(device_));
    Session session = must(Session::create(copy, device_, "loss", {}));
    EXPECT_EQ(logits(session, 2), Floats({5, 1, 2}));
  }
}

TEST_P(Adapters, FilesHoldThemAloneAndNameTheirBase) {
  Seed s = adapted_lm32(true);
  ASSERT_OK(s.model.to(device_));
  const Folder folder;
  const std::string path = folder / "adapter.bowline";
  ASSERT_OK(save_adapter(s.model, "ad", path));
  const ModelInfo file = must(must(Model::open(path)).describe());
  EXPECT_EQ(file.parameters.size(), 5u);
  EXPECT_EQ(file.storages.size(), 5u) << "A, B and three numbers";
  ASSERT_TRUE(file.base.has_value());
  EXPECT_EQ(file.base->digest.size(), 16u);

  Seed fresh = lm32();
  ASSERT_OK(fresh.model.to(device_));
  Session session = session_of(fresh, device_);
  EXPECT_EQ(logits(session, 2), Floats({1, 1, 2}));
  EXPECT_EQ(must(load_adapter(fresh.model, path)), "ad");
  EXPECT_EQ(logits(session, 2), Floats({3, 1, 2}));
  EXPECT_EQ(load_adapter(fresh.model, path).status().message(),
            "There is an adapter \"ad\" already.");
  EXPECT_EQ(must(load_adapter(fresh.model, path, "ad2")), "ad2");
  EXPECT_EQ(logits(session, 2), Floats({5, 1, 2}));
  ASSERT_OK(set_adapter_weight(fresh.model, "ad2", 0));
  EXPECT_EQ(logits(session, 2), Floats({3, 1, 2}));
  EXPECT_EQ(must(load_adapter(fresh.model, path, "a.b")), "a.b") << "a dot is no end of a name";
  ASSERT_OK(remove_adapter(fresh.model, "a.b"));
  EXPECT_EQ(adapters(fresh.model), (std::vector<std::string>{"ad", "ad2"}));

  Seed other = lm32();
  ASSERT_OK(set(other.model, "embed", {3, 2}, {1, 0, 0, 1, 1, 2}));
  const std::string before = listing(other.model);
  const Status refused = load_adapter(other.model, path).status();
  EXPECT_EQ(refused.code(), Code::bad_argument);
  EXPECT_NE(refused.message().find("was trained on the base \"base\" with the digest"),
            std::string::npos)
      << refused.message();
  EXPECT_EQ(listing(other.model), before);
}

TEST_P(Adapters, GoOnThroughTieUntieAndSwap) {
  Seed s = adapted_lm32(true);
  ASSERT_OK(s.model.to(device_));
  Session session = session_of(s, device_);
  must(s.model.untie("head"));
  EXPECT_EQ(logits(session, 2), Floats({3, 1, 2}));
  ASSERT_OK(set(s.model, "head", {3, 2}, {0, 0, 0, 0, 0, 0}));
  ASSERT_OK(s.model.swap("embed", "head"));
  ASSERT_OK(s.model.swap("embed", "head"));
  EXPECT_EQ(logits(session, 2), Floats({2, 0, 0}));
  ASSERT_OK(s.model.tie("embed", "head"));
  EXPECT_EQ(logits(session, 2), Floats({3, 1, 2}));
  const std::string before = listing(s.model);
  const std::string refused = std::string(s.model.resize("embed", 4).status().message());
  EXPECT_NE(refused.find("\"head.ad.lora_"), std::string::npos) << "the change has three rows";
  EXPECT_NE(refused.find("merge_adapter() or remove_adapter() before resize() to 4 rows"),
            std::string::npos)
      << refused;
  EXPECT_EQ(listing(s.model), before);
}

TEST(AdapterErrors, AreNamed) {
  Seed s = lm32();
  must(s.model.parameter("bias", {3}, Init::zeros()));
  ASSERT_OK(s.model.materialize(1));
  const std::string before = listing(s.model);
  const auto refusal = [&](const AdapterOptions& o, std::string_view name = "ad") {
    const Status status = add_adapter(s.model, name, o).status();
    EXPECT_EQ(status.code(), Code::bad_argument);
    EXPECT_EQ(listing(s.model), before);
    return status.message();
  };
  AdapterOptions zero = rank_one("head");
  zero.rank = 0;
  EXPECT_EQ(refusal(zero), "Adapter \"ad\" has a rank of 0.");
  EXPECT_EQ(refusal(rank_one("none*")), "The pattern \"none*\" matches none of the 3 parameters.");
  EXPECT_EQ(refusal(rank_one("bias")),
            "None of the 1 parameters that match the pattern \"bias\" is a weight of rank 2 that "
            "is read only as the matrix of Linear, Embedding or MatMul.");
  EXPECT_FALSE(refusal(rank_one("head"), "").empty());
  AdapterOptions infinite = rank_one("head");
  infinite.alpha = INFINITY;
  EXPECT_EQ(refusal(infinite), "Adapter \"ad\" has an alpha of inf.");
  EXPECT_EQ(set_adapter_weight(s.model, "ad", 1).message(), "There is no adapter \"ad\".");
  EXPECT_EQ(adapter_weight(s.model, "ad").status().message(), "There is no adapter \"ad\".");
  EXPECT_EQ(remove_adapter(s.model, "ad").message(), "There is no adapter \"ad\".");
  EXPECT_EQ(merge_adapter(s.model, "ad").message(), "There is no adapter \"ad\".");
  EXPECT_EQ(save_adapter(s.model, "ad", "/nowhere/x").message(), "There is no adapter \"ad\".");
  must(add_adapter(s.model, "ad", rank_one("head")));
  EXPECT_EQ(add_adapter(s.model, "ad", rank_one("head")).status().message(),
            "There is an adapter \"ad\" already.");
  EXPECT_FALSE(set_adapter_weight(s.model, "ad", INFINITY).ok());
}

// If another node reads one parameter of a tie in a different way, an adapter can change only a
// single use.
TEST(AdapterErrors, AnotherReaderIsNamed) {
  Seed s = lm32();
  GraphBuilder g(s.model, "square");
  const Value w = g.parameter(must(s.model.find("embed")));
  g.output("y", g.op("Mul", {w, w}));
  ASSERT_OK(g.finish());
  EXPECT_EQ(
      add_adapter(s.model, "ad", rank_one("head")).status().message(),
      "Adapter \"ad\" would change \"embed\", which shares the storage of \"head\" and is "
      "not read only as the matrix of Linear, Embedding or MatMul. AdapterOptions::per_parameter "
      "changes only \"head\".");
  EXPECT_OK(add_adapter(s.model, "ad", rank_one("head", true)));
}

}  // namespace
}  // namespace bowline::test
