// Generation with a cache, compared with the whole text through `forward`.
#include <thread>

#include "base/random.h"
#include "bowline_text.h"
#include "generate/decoder_model.h"
#include "text/sampler.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using text::Generator;
using text::GeneratorOptions;
using text::SamplerOptions;
using Ids = std::vector<int32_t>;

constexpr float kCloseOfCodes = 0.1f;

Ids some_ids(size_t n, int64_t vocabulary, uint32_t seed = 1) {
  Ids out;
  for (uint32_t i = 0; i < n; ++i) {
    out.push_back(static_cast<int32_t>(philox({i, seed, 0, 0}, {3, 3})[0] %
                                       static_cast<uint64_t>(vocabulary)));
  }
  return out;
}

Ids answer(Generator& g, size_t n) {
  Ids out;
  for (size_t i = 0; i < n; ++i) {
    out.push_back(must(g.next()));
  }
  return out;
}

// Logits [rows, vocabulary] of the whole text at once.
Floats recomputed(const Model& model, const Device& device, Ids text, int64_t vocabulary) {
  const auto n = static_cast<int64_t>(text.size());
  Session s = must(
      Session::create(model, device, "forward", std::vector<BoundDim>{{"batch", 1}, {"seq", n}}));
  Floats out(static_cast<size_t>(n * vocabulary));
  const Tensor in = tensor("tokens", {1, n}, text), to = tensor("logits", {1, n, vocabulary}, out);
  must(s.run({&in, 1}, {&to, 1}));
  return out;
}

class Generation : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) {
      ASSERT_OK(model_.to(device_));
    }
  }
  Generator generator(const GeneratorOptions& options = {.context = 320}) {
    return must(Generator::create(model_, device_, options));
  }
  DecoderShape shape_;
  Model model_ = decoder_model(shape_);
};

TEST_P(Generation, GreedyIsWhatTheWholeTextGives) {
  Generator g = generator();
  const Ids prompt = some_ids(43, shape_.vocabulary);
  ASSERT_OK(g.feed(prompt));
  const Ids drawn = answer(g, 256);
  const Ids all(g.tokens().begin(), g.tokens().end());
  ASSERT_EQ(all.size(), 299u);
  const Floats logits = recomputed(model_, device_, all, shape_.vocabulary);
  for (size_t i = 0; i < drawn.size(); ++i) {
    const auto row = logits.begin() + static_cast<ptrdiff_t>(prompt.size() - 1 + i) * 300;
    ASSERT_EQ(drawn[i], std::max_element(row, row + 300) - row) << i;
  }
  EXPECT_EQ(g.full_logits_count(), 0u);
}

TEST_P(Generation, PlansAreMadeOnce) {
  Generator g = generator();
  const Counters begin = g.counters();
  EXPECT_EQ(begin.plan_builds, 4u);
  EXPECT_EQ(begin.recordings, 4u);
  for (const size_t n : {1, 2, 17, 40, 130}) {
    ASSERT_OK(g.feed(some_ids(n, shape_.vocabulary)));
    (void)answer(g, 3);
    ASSERT_OK(g.rewind(n));
  }
  ASSERT_OK(g.set_sampler({.temperature = 0.8f}));
  (void)answer(g, 3);
  EXPECT_EQ(g.counters().plan_builds, 4u);
  EXPECT_EQ(g.counters().recordings, 4u);
}

TEST_P(Generation, APromptMayComeInAnyPieces) {
  Generator g = generator();
  const Ids prompt = some_ids(150, shape_.vocabulary);
  ASSERT_OK(g.feed(prompt));
  const Ids wanted = answer(g, 12);
  for (const size_t piece : {1u, 7u, 64u}) {
    ASSERT_OK(g.rewind(0));
    for (size_t at = 0; at < prompt.size(); at += piece) {
      ASSERT_OK(g.feed(std::span(prompt).subspan(at, std::min(piece, prompt.size() - at))));
    }
    EXPECT_EQ(answer(g, 12), wanted) << piece;
  }
}

TEST_P(Generation, APrefixStaysInTheCache) {
  Generator g = generator();
  Ids text = some_ids(40, shape_.vocabulary);
  ASSERT_OK(g.feed(text));
  const Ids first = answer(g, 10);
  ASSERT_OK(g.rewind(40));
  EXPECT_EQ(answer(g, 10), first);
  // A text with a common prefix: the same answer, then other tokens.
  text.insert(text.end(), first.begin(), first.end());
  const Ids more = some_ids(9, shape_.vocabulary, 2);
  text.insert(text.end(), more.begin(), more.end());
  const uint64_t before = g.counters().submits;
  EXPECT_EQ(must(g.replace(text)), 49u);
  EXPECT_EQ(g.counters().submits, before + 1);
  const Ids second = answer(g, 10);
  ASSERT_OK(g.rewind(0));
  ASSERT_OK(g.feed(text));
  EXPECT_EQ(answer(g, 10), second);
}

TEST_P(Generation, DrawnTokensFollowFromTheSeed) {
  GeneratorOptions options{.context = 320};
  options.sampler = {.temperature = 0.9f, .top_k = 20, .top_p = 0.95f, .seed = 5};
  Generator g = generator(options);
  const Ids prompt = some_ids(20, shape_.vocabulary);
  ASSERT_OK(g.feed(prompt));
  const Ids first = answer(g, 30);
  EXPECT_EQ(g.full_logits_count(), 0u);
  ASSERT_OK(g.rewind(20));
  EXPECT_EQ(answer(g, 30), first);
  ASSERT_OK(g.rewind(20));
  options.sampler.seed = 6;
  ASSERT_OK(g.set_sampler(options.sampler));
  EXPECT_NE(answer(g, 30), first);
}

// What a device returns decides as its whole row of logits does.
TEST_P(Generation, TheLargestLogitsOfADeviceDecideAsAllDo) {
  shape_ = {.layers = 1, .vocabulary = 3001, .deviation = 0.6};
  Model model = decoder_model(shape_);
  const Device own = open_test_device(GetParam());
  ASSERT_OK(model.resize("cache.*", 64).status());
  ASSERT_OK(model.to(own));
  const BoundDim length = {"kv_length", 64};
  Session session = must(Session::create(model, own, "decode", {&length, 1}));
  int32_t token = 7, position = 0;
  float lse = 0;
  Floats all(3001), top(256);
  Ids ids(256);
  const Tensor in[] = {{"tokens", DType::i32, {1, 1}, &token},
                       {"positions", DType::i32, {1}, &position}};
  const Tensor out[] = {{"lse", DType::f32, {1}, &lse},
                        {"top_logits", DType::f32, {1, 256}, top.data()},
                        {"top_ids", DType::i32, {1, 256}, ids.data()},
                        {"logits", DType::f32, {1, 3001}, all.data()}};
  int decided = 0;
  for (; position < 12; ++position) {
    const StepScalar steps[] = {{"position", static_cast<uint64_t>(position)},
                                {"kv_length", static_cast<uint64_t>(position) + 1}};
    ASSERT_OK(session.run("decode", in, out, steps));
    const Ids window = {token, ids[1], ids[5]};
    for (uint64_t i = 0; i < 96; ++i) {
      SamplerOptions o = {.temperature = static_cast<float>(i % 8) / 4, .seed = i};
      o.top_k = i / 8 % 3 == 1 ? 40 : 0;
      o.min_p = i / 8 % 3 == 2 ? 0.05f : 0;
      o.repetition_penalty = i % 5 == 0 ? 1.2f : 1;
      const std::optional<int32_t> few = text::draw(o, {top, ids, lse, {}, 3001}, window, i);
      if (few) {
        ASSERT_EQ(few, text::draw(o, {top, ids, lse, all, 3001}, window, i)) << i;
        ++decided;
      }
    }
    token = ids[static_cast<size_t>(position) % 3];
  }
  EXPECT_GT(decided, 700);
}

// The same tokens, whether all logits are on the host or not.
TEST_P(Generation, AnyTokenMayBeDrawnAtATemperature) {
  Generator g = generator();
  ASSERT_OK(g.set_sampler({.temperature = 1.5f, .seed = 3}));
  ASSERT_OK(g.feed(some_ids(20, shape_.vocabulary)));
  const Ids first = answer(g, 40);
  const uint64_t copied = g.full_logits_count();
  EXPECT_GT(copied, 0u);
  EXPECT_LT(copied, 40u);
  // From another token on, other tokens are drawn with all logits.
  ASSERT_OK(g.rewind(41));
  EXPECT_EQ(answer(g, 19), Ids(first.begin() + 21, first.end()));
}

// The cache is quantized, with a scale for each row of a head.
TEST_P(Generation, AnInt8CacheIsAThirdOfTheBytes) {
  shape_.int8_cache = true;
  Model model = decoder_model(shape_);
  const Device own = open_test_device(GetParam());
  ASSERT_OK(model.to(own));
  Generator g = must(Generator::create(model, own, {.context = 128}));
  ASSERT_OK(g.feed(some_ids(40, shape_.vocabulary)));
  const Ids drawn = answer(g, 60);
  EXPECT_EQ(g.memory().predicted_bytes, own.counters().live_bytes);
  const Floats logits = recomputed(model, own, {g.tokens().begin(), g.tokens().end()}, 300);
  for (size_t i = 0; i < drawn.size(); ++i) {
    const auto row = logits.begin() + static_cast<ptrdiff_t>(39 + i) * 300;
    // Quantization may swap two tokens with nearly equal logits.
    EXPECT_GE(row[drawn[i]], *std::max_element(row, row + 300) - kCloseOfCodes) << i;
  }
  const int64_t head = shape_.width / shape_.heads;
  for (const StorageInfo& s : must(model.describe()).storages) {
    if (s.role == StorageRole::kv_cache) {
      EXPECT_EQ(s.encoding, "int8 block 8 axis -1 scale f32");
      EXPECT_EQ(s.bytes, static_cast<uint64_t>(128 * shape_.kv_heads * (head + 4)));
      EXPECT_EQ(s.where, GetParam());
    }
  }
  // The same text gives the same quantized values.
  ASSERT_OK(g.rewind(40));
  EXPECT_EQ(answer(g, 60), drawn);
}

BOWLINE_ON_ALL_DEVICES(Generation);

class GenerationOnCpu : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(model_.to(cpu_)); }
  Generator generator(const GeneratorOptions& options) {
    return must(Generator::create(model_, cpu_, options));
  }
  void expect_refused(const GeneratorOptions& options, Code code, const std::string& text) {
    const auto made = Generator::create(model_, cpu_, options);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.status().code(), code);
    EXPECT_NE(made.status().message().find(text), std::string::npos) << made.status().message();
  }
  DecoderShape shape_;
  Model model_ = decoder_model(shape_);
  Device cpu_ = open_test_device("cpu");
};

TEST_F(GenerationOnCpu, ATextEndsWhereTheContextDoes) {
  Generator g = generator({.context = 20});
  EXPECT_EQ(g.context(), 20);
  const Ids prompt = some_ids(18, shape_.vocabulary);
  const Status long_one = g.feed(some_ids(21, shape_.vocabulary));
  EXPECT_EQ(long_one.code(), Code::bad_argument);
  EXPECT_EQ(long_one.message(),
            "The text has 0 tokens, and 21 more do not fit in the context (20).");
  EXPECT_TRUE(g.tokens().empty());
  ASSERT_OK(g.feed(prompt));
  EXPECT_FALSE(g.feed(prompt).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(g.has_room());
    ASSERT_OK(g.next());
  }
  EXPECT_FALSE(g.has_room());
  const auto none = g.next();
  EXPECT_EQ(none.status().message(), "The text has 21 tokens, more than the context (20).");
  EXPECT_EQ(g.tokens().size(), 21u);
  ASSERT_OK(g.rewind(5));
  ASSERT_OK(g.next());
}

TEST_F(GenerationOnCpu, WhatIsNoTextIsRefused) {
  Generator g = generator({.context = 20});
  EXPECT_EQ(g.next().status().message(), "There is no text to continue. Feed a prompt first.");
  const Ids bad = {1, 300}, negative = {-1};
  EXPECT_EQ(g.feed(bad).code(), Code::index_out_of_range);
  EXPECT_EQ(g.feed(bad).message(), "Token 1 (300) is outside of the vocabulary (300).");
  EXPECT_EQ(g.feed(negative).code(), Code::index_out_of_range);
  EXPECT_TRUE(g.tokens().empty());
  EXPECT_EQ(g.rewind(1).message(), "The text has 0 tokens, not 1.");
  Generator taken = std::move(g);
  EXPECT_EQ(g.next().status().message(),
            "The generator is empty: it was moved from, or there was no memory for it.");
  EXPECT_EQ(g.feed(bad).code(), Code::bad_argument);
}

TEST_F(GenerationOnCpu, OptionsOutsideTheirRangeAreRefused) {
  expect_refused({.context = -1}, Code::bad_argument, "A context of -1 tokens");
  ASSERT_OK(model_.set_metadata("position_rows", "20"));
  expect_refused({.context = 21}, Code::bad_argument, "21 tokens exceeds the 20 learned positions");
  EXPECT_EQ(generator({.context = 20}).context(), 20);
  ASSERT_OK(model_.set_metadata("position_rows", "x"));
  expect_refused({.context = 20}, Code::bad_file, "position_rows is \"x\", not an integer");
  ASSERT_OK(model_.set_metadata("position_rows", ""));
  expect_refused({.sampler = {.top_p = 2}}, Code::bad_argument, "top_p (2");
  expect_refused({.prefill_chunks = {}}, Code::bad_argument, "prefill_chunks is empty");
  expect_refused({.prefill_chunks = {16, 16}}, Code::bad_argument,
                 "not ascending from 1: 16 follows 16");
  expect_refused({.prefill_chunks = {0}}, Code::bad_argument, "not ascending");
  ASSERT_OK(model_.set_metadata("eos_token_ids", "2,x"));
  expect_refused({}, Code::bad_file, "eos_token_ids (\"2,x\") is not a list of ids");
  ASSERT_OK(model_.set_metadata("eos_token_ids", ""));
  ASSERT_OK(model_.set_metadata("context_length", "many"));
  expect_refused({}, Code::bad_file, "context_length is \"many\"");
  ASSERT_OK(model_.set_metadata("context_length", ""));
  expect_refused({}, Code::bad_argument, "has no maximum text length");
}

TEST_F(GenerationOnCpu, AModelThatCannotGenerateIsRefused) {
  Model bare;
  auto none = Generator::create(bare, cpu_, {.context = 8});
  EXPECT_EQ(
      none.status().message(),
      "The model cannot generate: it has neither the entry points \"prefill\" and \"decode\" nor "
      "an entry point \"forward\" that reads tokens i32 [batch, seq] alone and returns logits f32 "
      "[batch, seq, n].");
  Model other;
  for (const char* name : {"prefill", "decode"}) {
    GraphBuilder g(other, name);
    g.output("logits", g.op("Neg", {g.input("x", DType::f32, {1, 4})}));
    ASSERT_OK(g.finish());
  }
  none = Generator::create(other, cpu_, {.context = 8});
  EXPECT_NE(none.status().message().find("does not return logits f32 [1, n]"), std::string::npos)
      << none.status().message();
}

// `forward` as the importer builds it, without the entry points for a cache.
Model without_cache(const DecoderShape& shape) {
  Model model;
  DecoderModel decoder(model, shape);
  decoder.add_forward();
  must(model.materialize(1));
  return model;
}

TEST_P(Generation, WithoutACacheTheTokensAreTheSame) {
  Model bare = without_cache(shape_);
  ASSERT_OK(bare.to(device_));
  Generator whole = must(Generator::create(bare, device_, {.context = 200}));
  Generator cached = generator({.context = 200});
  const Ids prompt = some_ids(43, shape_.vocabulary);
  for (Generator* g : {&whole, &cached}) {
    ASSERT_OK(g->feed(prompt));
  }
  // 43 and 100 tokens: plans of 64, 128 and 200.
  EXPECT_EQ(answer(whole, 100), answer(cached, 100));
  ASSERT_OK(whole.rewind(50));
  ASSERT_OK(cached.rewind(50));
  EXPECT_EQ(answer(whole, 5), answer(cached, 5));
  EXPECT_EQ(whole.full_logits_count(), 105u);
}

TEST_F(GenerationOnCpu, WithoutACacheAndALengthATextHasAThousandTokens) {
  Model bare = without_cache(shape_);
  ASSERT_OK(bare.to(cpu_));
  EXPECT_EQ(must(Generator::create(bare, cpu_)).context(), 1024);
  ASSERT_OK(bare.set_metadata("context_length", "40"));
  Generator g = must(Generator::create(bare, cpu_));
  EXPECT_EQ(g.context(), 40);
  ASSERT_OK(g.feed(some_ids(40, shape_.vocabulary)));
  ASSERT_OK(g.next());
  EXPECT_FALSE(g.has_room());
}

// Each logit is the mean over all tokens, as in a bidirectional encoder.
TEST_F(GenerationOnCpu, WhatLooksAheadCannotGenerate) {
  Model encoder;
  const Parameter table = must(encoder.parameter("table", {7, 5}, Init::normal(1)));
  GraphBuilder g(encoder, "forward");
  const Value x =
      g.op("Embedding", {g.parameter(table), g.input("tokens", DType::i32, {"batch", "seq"})});
  g.output("logits", g.op("Add", {x, g.op("ReduceMean", {x}, {{"axes", {1}}, {"keep_dims", 1}})}));
  ASSERT_OK(g.finish());
  ASSERT_OK(encoder.materialize(1));
  ASSERT_OK(encoder.to(cpu_));
  const auto none = Generator::create(encoder, cpu_);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::bad_argument);
  EXPECT_NE(none.status().message().find("depend on later tokens"), std::string::npos)
      << none.status().message();
}

TEST_F(GenerationOnCpu, TheModelSaysWhatEndsAText) {
  ASSERT_OK(model_.set_metadata("eos_token_ids", "2,17"));
  const Generator g = generator({});
  EXPECT_TRUE(g.is_stop(2) && g.is_stop(17));
  EXPECT_FALSE(g.is_stop(1));
  EXPECT_EQ(g.context(), shape_.context);
  const Generator own = generator({.context = 8, .stop_ids = Ids{4}});
  EXPECT_TRUE(own.is_stop(4));
  EXPECT_FALSE(own.is_stop(2));
}

TEST_F(GenerationOnCpu, ACancelledTextGoesOn) {
  Generator g = generator({.context = 320});
  const Ids prompt = some_ids(50, shape_.vocabulary);
  ASSERT_OK(g.feed(prompt));
  const Ids wanted = answer(g, 4);
  ASSERT_OK(g.rewind(0));
  std::thread([&] { g.cancel(); }).join();
  EXPECT_EQ(g.feed(prompt).code(), Code::cancelled);
  EXPECT_TRUE(g.tokens().empty());
  ASSERT_OK(g.feed(prompt));
  g.cancel();
  EXPECT_EQ(g.next().status().code(), Code::cancelled);
  EXPECT_EQ(g.tokens().size(), 50u);
  EXPECT_EQ(answer(g, 4), wanted);
}

// If a replacement fails, the old text continues, although its cache was overwritten.
TEST_F(GenerationOnCpu, ATextThatIsNotReplacedStays) {
  Generator g = generator({.context = 60});
  ASSERT_OK(g.feed(some_ids(40, shape_.vocabulary)));
  const Ids wanted = answer(g, 8);
  ASSERT_OK(g.rewind(40));
  Ids other = some_ids(30, shape_.vocabulary, 2);
  other.push_back(-1);
  EXPECT_EQ(g.replace(other).status().code(), Code::index_out_of_range);
  EXPECT_EQ(g.tokens().size(), 40u);
  EXPECT_EQ(answer(g, 8), wanted);
}

TEST_F(GenerationOnCpu, LogitsThatAreNotFiniteAreSaidToBe) {
  Floats gamma(static_cast<size_t>(shape_.width), NAN);
  ASSERT_OK(set(model_, "model.norm.weight", {shape_.width}, gamma));
  Generator g = generator({.context = 20});
  ASSERT_OK(g.feed(some_ids(3, shape_.vocabulary)));
  EXPECT_EQ(g.next().status().code(), Code::non_finite);
  EXPECT_EQ(g.tokens().size(), 3u);
}

// A Slice of a written cache is a view of the cache: the arena has no copy of its size.
TEST_F(GenerationOnCpu, TheCacheIsReadWhereItLies) {
  const Generator small = generator({.context = 64, .prefill_chunks = {16}});
  const uint64_t arena = small.memory().arena_bytes;
  const Generator large = generator({.context = 4096, .prefill_chunks = {16}});
  EXPECT_EQ(large.memory().arena_bytes, arena);
}

TEST_F(GenerationOnCpu, ACacheOfCodesIsReadWhereItLies) {
  shape_.int8_cache = true;
  model_ = decoder_model(shape_);
  ASSERT_OK(model_.to(cpu_));
  const Generator small = generator({.context = 64, .prefill_chunks = {16}});
  const uint64_t arena = small.memory().arena_bytes;
  const Generator large = generator({.context = 4096, .prefill_chunks = {16}});
  EXPECT_EQ(large.memory().arena_bytes, arena);
}

TEST_F(GenerationOnCpu, SixteenBitsGenerateToo) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    shape_.dtype = dtype;
    Model model = decoder_model(shape_);
    ASSERT_OK(model.to(cpu_));
    Generator g = must(Generator::create(model, cpu_, {.context = 64}));
    ASSERT_OK(g.feed(some_ids(20, shape_.vocabulary)));
    const Ids drawn = answer(g, 20);
    const Floats logits =
        recomputed(model, cpu_, Ids(g.tokens().begin(), g.tokens().end()), shape_.vocabulary);
    for (size_t i = 0; i < drawn.size(); ++i) {
      const auto row = logits.begin() + static_cast<ptrdiff_t>(19 + i) * 300;
      // Rounding to 16 bits may swap two tokens with nearly equal logits.
      EXPECT_GE(row[drawn[i]], *std::max_element(row, row + 300) * 0.98f) << i;
    }
  }
}

}  // namespace
}  // namespace bowline::test
