// Small models of every architecture compute what transformers computes.
//
// Tolerance: hidden rows and logits are around 1, after two f32 layers that sum in another order.
// 1e-4 covers the rounding of these sums. A missing bias, norm or rotation changes the results much
// more, because the fixtures have no zero bias and no scale of 1.
#include "fixtures.h"

namespace bowline::test {
namespace {

constexpr double kClose = 1e-4;

const char* const kDecoders[] = {
    "llama",     "llama_biased", "llama3",   "mistral",        "mistral_window",
    "qwen2",     "qwen2_window", "qwen3",    "qwen3_window",   "gpt2",
    "gemma",     "gemma2",       "gemma3",   "gemma2_biased",  "gemma3_older",
    "granite",   "smollm3",      "phi3",     "granite_biased", "smollm3_window",
    "phi3_part", "olmo2",        "olmo3",    "stablelm",       "stablelm_parallel",
    "ministral", "llama_yarn",   "phi3_long"};
// Decoders that differ from others only in how they are read.
const char* const kVariants[] = {"llama_proportional", "gemma3_images", "ministral3",
                                 "ministral3_images"};
// Decoders with weights after a step.
const char* const kStepped[] = {"gemma",     "gemma3", "granite",    "smollm3",
                                "phi3_part", "olmo2",  "stablelm",   "stablelm_parallel",
                                "ministral", "olmo3",  "llama_yarn", "phi3_long"};
// Decoders of one file each, with weights after a step.
const char* const kFamilies[] = {"arcee",
                                 "codegen",
                                 "cohere",
                                 "cohere2",
                                 "ernie4_5",
                                 "exaone4",
                                 "falcon",
                                 "falcon_groups",
                                 "falcon_one_norm",
                                 "falcon_sequential",
                                 "glm",
                                 "glm4",
                                 "gpt_bigcode",
                                 "gpt_bigcode_heads",
                                 "gpt_neo",
                                 "gpt_neox",
                                 "gpt_neox_sequential",
                                 "gptj",
                                 "helium",
                                 "hunyuan",
                                 "nemotron",
                                 "olmo",
                                 "opt",
                                 "persimmon",
                                 "phi",
                                 "seed_oss",
                                 "starcoder2",
                                 "xglm"};
const char* const kEncoders[] = {"bert",
                                 "bert_classes",
                                 "bert_sentences",
                                 "roberta",
                                 "roberta_classes",
                                 "distilbert_classes",
                                 "albert",
                                 "albert_classes",
                                 "electra",
                                 "electra_classes",
                                 "llama_classes",
                                 "gpt2_classes",
                                 "qwen3_sentences",
                                 "modernbert",
                                 "modernbert_classes",
                                 "modernbert_mean",
                                 "eurobert",
                                 "eurobert_classes",
                                 "eurobert_first",
                                 "gte",
                                 "gte_classes",
                                 "nomic_bert",
                                 "nomic_bert_classes"};
const char* const kDevices[] = {"cpu", "vulkan:0"};

using ModelCase = std::tuple<const char*, const char*>;  // model, device

std::string name_of_case(const testing::TestParamInfo<ModelCase>& info) {
  std::string device = std::get<1>(info.param);
  std::ranges::replace(device, '-', '_');
  return std::string(std::get<0>(info.param)) + "_" + device.substr(0, device.find(':'));
}

class Models : public testing::TestWithParam<ModelCase> {
 protected:
  void SetUp() override {
    BOWLINE_NEED(why_missing(device_name()));
    expected_ = read_numbers(fixture(name() + ".expected.safetensors"));
    auto built = import_folder(fixture(name()), options());
    ASSERT_TRUE(built.ok()) << built.status().message();
    built_ = std::make_unique<import::Built>(std::move(built).value());
    auto device = Device::open(device_name());
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = std::move(device).value();
    ASSERT_FINE(model().to(*device_));
  }

  virtual TextImportOptions options() const { return {}; }
  std::string name() const { return std::get<0>(GetParam()); }
  std::string device_name() const { return std::get<1>(GetParam()); }
  Model& model() { return built_->model; }
  const Numbers& expected(const std::string& what) const { return expected_.at(what); }

  Session session(const std::string& entry, std::vector<BoundDim> dims) {
    auto made = Session::create(model(), *device_, entry, dims);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(made).value();
  }

  // Runs an entry point and returns an output.
  std::vector<float> run(const std::string& entry, const std::vector<std::string>& inputs,
                         const std::string& output, std::vector<int64_t> shape) {
    const std::vector<int64_t>& tokens = expected("tokens").shape;
    Session s = session(entry, {{"batch", tokens[0]}, {"seq", tokens[1]}});
    std::vector<Tensor> in;
    for (const std::string& i : inputs) {
      in.push_back(expected(i).tensor(i));
    }
    int64_t n = 1;
    for (const int64_t d : shape) {
      n *= d;
    }
    std::vector<float> out(static_cast<size_t>(n));
    const Tensor outputs[] = {{output, DType::f32, shape, out.data()}};
    const Status ran = s.run(in, outputs);
    EXPECT_TRUE(ran.ok()) << ran.message();
    return out;
  }

  // Trains with one batch: the first loss equals the loss of transformers, and the loss falls.
  void expect_training(std::vector<std::string> inputs, double close) {
    const std::vector<int64_t>& tokens = expected("tokens").shape;
    TrainOptions options;
    options.dims = {{"batch", tokens[0]}, {"seq", tokens[1]}};
    options.schedule.learning_rate = 3e-3f;
    auto trainer = Trainer::create(model(), *device_, options);
    ASSERT_TRUE(trainer.ok()) << trainer.status().message();
    std::vector<Tensor> batch;
    for (const std::string& i : inputs) {
      batch.push_back(expected(i).tensor(i));
    }
    std::vector<float> losses;
    for (int i = 0; i < 4; ++i) {
      const auto step = trainer.value().micro_step(batch);
      ASSERT_TRUE(step.ok()) << step.status().message();
      losses.push_back(step.value()->loss);
    }
    EXPECT_NEAR(losses.front(), expected("loss").floats()[0], close);
    EXPECT_LT(losses.back(), 0.9f * losses.front());
  }

  // Makes an SGD step and compares the weights that the fixture has. Returns their number.
  int expect_step(const std::vector<std::string>& inputs) {
    const std::vector<int64_t>& tokens = expected("tokens").shape;
    TrainOptions options;
    options.dims = {{"batch", tokens[0]}, {"seq", tokens[1]}};
    options.optimizer = {"sgd"};
    options.schedule.learning_rate = 0.25f;
    auto trainer = Trainer::create(model(), *device_, options);
    EXPECT_TRUE(trainer.ok()) << trainer.status().message();
    std::vector<Tensor> batch;
    for (const std::string& i : inputs) {
      batch.push_back(expected(i).tensor(i));
    }
    if (!trainer.ok()) {
      return 0;
    }
    const auto step = trainer.value().micro_step(batch);
    EXPECT_TRUE(step.ok()) << step.status().message();
    int compared = 0;
    for (const auto& [key, right] : expected_) {
      if (key.starts_with("step.")) {
        const std::string parameter = key.substr(std::string_view("step.").size());
        std::vector<float> given(right.floats().size());
        const Status read =
            model().get_value(parameter, {parameter, DType::f32, right.shape, given.data()});
        EXPECT_TRUE(read.ok()) << read.message();
        EXPECT_LT(difference(given, right.floats()), kClose) << parameter;
        ++compared;
      }
    }
    return compared;
  }

  std::map<std::string, Numbers> expected_;
  std::unique_ptr<import::Built> built_;
  std::optional<Device> device_;
};

class Decoders : public Models {
 protected:
  void expect_forward();
  void expect_decoded(double close);
  void expect_greedy();
};

void Decoders::expect_forward() {
  const Numbers& logits = expected("logits");
  EXPECT_LT(difference(run("forward", {"tokens"}, "logits", logits.shape), logits.floats()),
            kClose);
  const std::vector<float> loss = run("loss", {"tokens", "labels"}, "loss", {});
  EXPECT_LT(difference(loss, expected("loss").floats()), kClose);
}

TEST_P(Decoders, ForwardAndLossAreThoseOfTransformers) { expect_forward(); }

// A prompt in two parts, then token by token, gives the same logits as forward.
void Decoders::expect_decoded(double close) {
  const Numbers& tokens = expected("tokens");
  const Numbers& logits = expected("logits");
  const int64_t n = tokens.shape[1], vocabulary = logits.shape[2];
  ASSERT_FINE(model().resize("cache.*", n).status());
  const std::vector<BoundEntryPoint> entries = {{"prefill", {{"rows", 8}, {"kv_length", n}}, {}},
                                                {"decode", {{"kv_length", n}}, {}}};
  auto made = Session::create(model(), *device_, entries);
  ASSERT_TRUE(made.ok()) << made.status().message();
  Session& s = made.value();
  for (const auto& [first, rows] : {std::pair<int32_t, int32_t>(0, 3), {3, 2}}) {
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < rows; ++i) {
      positions.push_back(first + i);
    }
    const Numbers part = numbers_of(
        {1, rows}, tokens.ids().subspan(static_cast<size_t>(first), static_cast<size_t>(rows)));
    const Numbers at = numbers_of({rows}, positions);
    const Tensor in[] = {part.tensor("tokens"), at.tensor("positions")};
    const StepScalar steps[] = {{"position", first}, {"kv_length", first + rows}};
    ASSERT_FINE(s.run("prefill", in, {}, steps));
  }
  const int64_t k = std::min<int64_t>(vocabulary, 256);
  std::vector<float> row(static_cast<size_t>(vocabulary)), top(static_cast<size_t>(k)), lse(1);
  std::vector<int32_t> ids(static_cast<size_t>(k));
  const Tensor out[] = {{"logits", DType::f32, {1, vocabulary}, row.data()},
                        {"top_logits", DType::f32, {1, k}, top.data()},
                        {"top_ids", DType::i32, {1, k}, ids.data()},
                        {"lse", DType::f32, {1}, lse.data()}};
  for (int32_t i = 5; i < n; ++i) {
    const int32_t token[] = {tokens.ids()[static_cast<size_t>(i)]}, at[] = {i};
    const Numbers one = numbers_of({1, 1}, token), position = numbers_of({1}, at);
    const Tensor in[] = {one.tensor("tokens"), position.tensor("positions")};
    const StepScalar steps[] = {{"position", i}, {"kv_length", i + 1}};
    ASSERT_FINE(s.run("decode", in, out, steps));
    const auto v = static_cast<size_t>(vocabulary);
    const auto right = logits.floats().subspan(static_cast<size_t>(i) * v, v);
    EXPECT_LT(difference(row, right), close) << "token " << i;
    double sum = 0;
    for (const float x : row) {
      sum += std::exp(static_cast<double>(x));
    }
    EXPECT_NEAR(lse[0], std::log(sum), kClose);
    for (size_t j = 0; j < top.size(); ++j) {
      EXPECT_EQ(top[j], row[static_cast<size_t>(ids[j])]);
      EXPECT_TRUE(j == 0 || top[j] <= top[j - 1]);
    }
  }
  EXPECT_EQ(s.counters().plan_builds, 2u);  // one per entry point, for any number of tokens
}

TEST_P(Decoders, PrefillAndDecodeAreForward) { expect_decoded(kClose); }

// Keys, values and queries are rounded once, to 11 or 8 bits: errors are a few times 2^-11 or 2^-8,
// for values around 2.
TEST_P(Decoders, CachesOf16BitsAreClose) {
  for (const auto& [dtype, close] : {std::pair(DType::f16, 0.01), {DType::bf16, 0.1}}) {
    auto built = import_folder(fixture(name()), {.kv_dtype = dtype});
    ASSERT_TRUE(built.ok()) << built.status().message();
    *built_ = std::move(built).value();
    ASSERT_FINE(model().to(*device_));
    expect_decoded(close);
  }
}

// The error is at most 1/254 of the largest value of the row; for bf16 it is 2^-9 of the value. So
// the bound is twice as large.
TEST_P(Decoders, CachesOfInt8AreClose) {
  auto built = import_folder(fixture(name()), {.kv_dtype = DType::i8});
  ASSERT_TRUE(built.ok()) << built.status().message();
  *built_ = std::move(built).value();
  ASSERT_FINE(model().to(*device_));
  expect_decoded(0.2);
  expect_greedy();
}

// Greedy generation: each token is fed back.
TEST_P(Decoders, GreedyTokensAreThoseOfTransformers) { expect_greedy(); }

void Decoders::expect_greedy() {
  const std::span<const int32_t> right = expected("greedy").ids();
  const std::span<const int32_t> prompt = expected("tokens").ids().first(8);
  const auto n = static_cast<int64_t>(prompt.size() + right.size());
  ASSERT_FINE(model().resize("cache.*", n).status());
  Session s = session("decode", {{"kv_length", n}});
  std::vector<int32_t> given;
  int32_t next = prompt[0];
  for (int32_t i = 0; i + 1 < n; ++i) {
    const int32_t token[] = {next}, at[] = {i};
    const Numbers one = numbers_of({1, 1}, token), position = numbers_of({1}, at);
    const Tensor in[] = {one.tensor("tokens"), position.tensor("positions")};
    std::vector<int32_t> ids(64);
    const Tensor out[] = {{"top_ids", DType::i32, {1, 64}, ids.data()}};
    const StepScalar steps[] = {{"position", i}, {"kv_length", i + 1}};
    ASSERT_FINE(s.run(in, out, steps));
    const auto behind = static_cast<size_t>(i + 1);
    next = behind < prompt.size() ? prompt[behind] : ids[0];
    if (behind >= prompt.size()) {
      given.push_back(next);
    }
  }
  EXPECT_EQ(given, std::vector<int32_t>(right.begin(), right.end()));
}

TEST_P(Decoders, ATrainingLowersTheLoss) { expect_training({"tokens", "labels"}, kClose); }

// f32 masters, bf16 computation.
TEST_P(Decoders, ATrainingInBf16LowersTheLoss) {
  auto built = import_folder(fixture(name()), {.dtype = DType::bf16});
  ASSERT_TRUE(built.ok()) << built.status().message();
  *built_ = std::move(built).value();
  ASSERT_FINE(model().to(*device_));
  expect_training({"tokens", "labels"}, 0.1);
}

class SteppedDecoders : public Decoders {};

// Gradients flow through the scales, norms and rotations of the architecture.
TEST_P(SteppedDecoders, AStepChangesTheFirstLayerAsPyTorchDoes) {
  expect_forward();
  EXPECT_GE(expect_step({"tokens", "labels"}), 3);
}

class VariantsOfDecoders : public Decoders {};

TEST_P(VariantsOfDecoders, ComputeWhatTransformersComputes) {
  expect_forward();
  expect_decoded(kClose);
  expect_greedy();
  expect_training({"tokens", "labels"}, kClose);
}

const auto kThreeDevices = testing::Values("cpu", "vulkan:0", "cuda-emu:0");
INSTANTIATE_TEST_SUITE_P(All, SteppedDecoders,
                         testing::Combine(testing::ValuesIn(kStepped), kThreeDevices),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Families, SteppedDecoders,
                         testing::Combine(testing::ValuesIn(kFamilies), kThreeDevices),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Families, VariantsOfDecoders,
                         testing::Combine(testing::ValuesIn(kFamilies), testing::Values("cpu")),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(All, Decoders,
                         testing::Combine(testing::ValuesIn(kDecoders),
                                          testing::ValuesIn(kDevices)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(All, VariantsOfDecoders,
                         testing::Combine(testing::ValuesIn(kVariants), testing::Values("cpu")),
                         name_of_case);

class Encoders : public Models {
 protected:
  bool has_head() const { return expected_.contains("logits"); }
  // Hidden rows beyond the length are undefined. Sets them to 0, as in the fixture.
  void clear_padding(std::vector<float>& hidden, const char* like = "hidden") const {
    const std::vector<int64_t>& shape = expected(like).shape;
    for (int64_t b = 0; b < shape[0]; ++b) {
      const int64_t length = expected("lengths").ids()[static_cast<size_t>(b)];
      const auto row = hidden.begin() + (b * shape[1]) * shape[2];
      std::fill(row + length * shape[2], row + shape[1] * shape[2], 0.0f);
    }
  }
};

TEST_P(Encoders, HiddenRowsAreThoseOfTransformers) {
  const Numbers& hidden = expected("hidden");
  // Rows of a decoder do not depend on the length of the text.
  const bool is_decoder = model().metadata("pooling") == "last";
  const std::vector<std::string> inputs = {"tokens", "lengths"};
  std::vector<float> given =
      run("forward", {inputs.begin(), inputs.end() - (is_decoder ? 1 : 0)}, "hidden", hidden.shape);
  clear_padding(given);
  EXPECT_LT(difference(given, hidden.floats()), kClose);
}

TEST_P(Encoders, ClassesAndTheirLossAreThoseOfTransformers) {
  if (!has_head()) {
    EXPECT_EQ(built_->task, ImportTask::embed);
    return;
  }
  const Numbers& logits = expected("logits");
  const std::vector<float> given = run("classify", {"tokens", "lengths"}, "logits", logits.shape);
  EXPECT_LT(difference(given, logits.floats()), kClose);
  const std::vector<float> loss = run("loss", {"tokens", "lengths", "labels"}, "loss", {});
  EXPECT_LT(difference(loss, expected("loss").floats()), kClose);
}

TEST_P(Encoders, ATrainingLowersTheLoss) {
  if (has_head()) {
    expect_training({"tokens", "lengths", "labels"}, kClose);
  }
}

// A shared layer gets the sum of the gradients of all its uses. Padding behind the last token of a
// text gives none.
TEST_P(Encoders, AStepChangesLayersAsPyTorchDoes) {
  const std::map<std::string, int> steps = {
      {"albert_classes", 2},     {"llama_classes", 3},   {"gpt2_classes", 3},
      {"modernbert_classes", 2}, {"modernbert_mean", 2}, {"eurobert_classes", 2},
      {"eurobert_first", 2},     {"gte_classes", 3},     {"nomic_bert_classes", 3}};
  if (steps.contains(name())) {
    EXPECT_EQ(expect_step({"tokens", "lengths", "labels"}), steps.at(name()));
  }
}

TEST_P(Encoders, PooledRowsAreThoseOfTransformers) {
  std::vector<const char*> modes = {"mean", "cls", "max"};
  if (model().metadata("pooling") == "last") {
    modes.push_back("last");
  }
  for (const char* pooling : modes) {
    auto built = import_folder(fixture(name()), {.task = ImportTask::embed, .pooling = pooling});
    ASSERT_TRUE(built.ok()) << built.status().message();
    *built_ = std::move(built).value();
    ASSERT_FINE(model().to(*device_));
    EXPECT_EQ(model().metadata("pooling"), pooling);
    const Numbers& pooled = expected(pooling);
    std::vector<float> right(pooled.floats().begin(), pooled.floats().end());
    if (model().metadata("normalize") == "true") {
      for (auto row = right.begin(); row != right.end(); row += pooled.shape[1]) {
        double squares = 0;
        std::for_each(row, row + pooled.shape[1], [&](float x) { squares += x * x; });
        std::for_each(row, row + pooled.shape[1],
                      [&](float& x) { x = static_cast<float>(x / std::sqrt(squares)); });
      }
    }
    const std::vector<float> given = run("embed", {"tokens", "lengths"}, "embedding", pooled.shape);
    EXPECT_LT(difference(given, right), kClose) << pooling;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Encoders,
                         testing::Combine(testing::ValuesIn(kEncoders),
                                          testing::ValuesIn(kDevices)),
                         name_of_case);

// Labels of tokens.
class Tags : public Encoders {
 protected:
  std::vector<std::string> inputs(std::initializer_list<const char*> more) const {
    std::vector<std::string> out = {"tokens", "lengths"};
    out.resize(name().starts_with("llama") ? 1 : 2);  // rows of a decoder need no lengths
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
};

TEST_P(Tags, LogitsAndTheirLossAreThoseOfTransformers) {
  EXPECT_EQ(built_->task, ImportTask::tag);
  const Numbers& logits = expected("logits");
  std::vector<float> given = run("tag", inputs({}), "logits", logits.shape);
  clear_padding(given, "logits");
  EXPECT_LT(difference(given, logits.floats()), kClose);
  const std::vector<float> loss = run("loss", inputs({"labels"}), "loss", {});
  EXPECT_LT(difference(loss, expected("loss").floats()), kClose);
}

TEST_P(Tags, AStepChangesTheHeadAsPyTorchDoes) { EXPECT_EQ(expect_step(inputs({"labels"})), 2); }

TEST_P(Tags, ATrainingLowersTheLoss) { expect_training(inputs({"labels"}), kClose); }

INSTANTIATE_TEST_SUITE_P(All, Tags,
                         testing::Combine(testing::Values("bert_tags", "modernbert_tags",
                                                          "roberta_tags", "llama_tags"),
                                          kThreeDevices),
                         name_of_case);

// Losses of embeddings.
class Sentences : public Encoders {
 protected:
  inline static const std::vector<std::string> kPairs = {"tokens", "lengths", "second_tokens",
                                                         "second_lengths"};
  static std::vector<std::string> with(std::vector<std::string> inputs,
                                       std::initializer_list<const char*> more) {
    inputs.insert(inputs.end(), more.begin(), more.end());
    return inputs;
  }
};

TEST_P(Sentences, LossesAreThoseOfSentenceTransformers) {
  const std::map<std::string, std::vector<std::string>> losses = {
      {"loss", kPairs},
      {"loss_with_negatives", with(kPairs, {"third_tokens", "third_lengths"})},
      {"triplet_loss", with(kPairs, {"third_tokens", "third_lengths"})},
      {"score_loss", with(kPairs, {"scores"})}};
  for (const auto& [loss, inputs] : losses) {
    EXPECT_LT(difference(run(loss, inputs, "loss", {}), expected(loss).floats()), kClose) << loss;
  }
}

TEST_P(Sentences, ShorterWidthsAddTheirLosses) {
  auto built = import_folder(fixture(name()), {.matryoshka = {12, 20}});
  ASSERT_TRUE(built.ok()) << built.status().message();
  *built_ = std::move(built).value();
  ASSERT_FINE(model().to(*device_));
  const std::map<std::string, std::vector<std::string>> losses = {
      {"loss", kPairs},
      {"triplet_loss", with(kPairs, {"third_tokens", "third_lengths"})},
      {"score_loss", with(kPairs, {"scores"})}};
  for (const auto& [loss, inputs] : losses) {
    const float right = expected("matryoshka." + loss).floats()[0];
    EXPECT_NEAR(run(loss, inputs, "loss", {})[0], right, kClose * right) << loss;
  }
  // The sum of three losses of the same rows is still a mean over the rows.
  TrainOptions options;
  options.dims = {{"batch", 3}, {"seq", 12}};
  auto trainer = Trainer::create(model(), *device_, options);
  ASSERT_TRUE(trainer.ok()) << trainer.status().message();
}

TEST_P(Sentences, AStepChangesLayersAsPyTorchDoes) { EXPECT_EQ(expect_step(kPairs), 2); }

TEST_P(Sentences, ATrainingLowersTheLoss) { expect_training(kPairs, kClose); }

INSTANTIATE_TEST_SUITE_P(All, Sentences,
                         testing::Combine(testing::Values("bert_sentences", "qwen3_sentences"),
                                          kThreeDevices),
                         name_of_case);

}  // namespace
}  // namespace bowline::test
