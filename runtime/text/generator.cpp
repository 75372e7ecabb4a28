#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "base/boundary.h"
#include "base/escape.h"
#include "base/parse.h"
#include "bowline_text.h"
#include "text/require.h"
#include "text/sampler.h"

namespace bowline::text {
namespace {

constexpr std::string_view kCache = "cache.*";
// Graphs are checked with small trial sizes. The cache must hold these, too.
constexpr int64_t kLeastRows = 64;
// Without a cache: tokens of the first plan, and the context if the model does not state it.
constexpr int64_t kFirstTokens = 64;
constexpr int64_t kUsualContext = 1024;

// Parses "2,32000".
Result<std::vector<int32_t>> stop_ids_of(const Model& model) {
  const std::string all = model.metadata("eos_token_ids");
  std::vector<int32_t> ids;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(',', at), all.size());
    const auto id = number_in<int32_t>(std::string_view(all).substr(at, end - at));
    BOWLINE_REQUIRE_FILE(id && *id >= 0, "Metadata eos_token_ids (\"{}\") is not a list of ids.",
                         escaped(all));
    ids.push_back(*id);
    at = end + 1;
  }
  return ids;
}

Result<int64_t> context_of(const Model& model) {
  const std::string text = model.metadata("context_length");
  const auto length = number_in<int64_t>(text);
  BOWLINE_REQUIRE_CODE(length && *length >= 1, text.empty() ? Code::bad_argument : Code::bad_file,
                       "The model has no maximum text length: metadata context_length is \"{}\".",
                       escaped(text));
  return *length;
}

// Learned positions end with their table. Rotary positions have no limit.
Status check_positions(const Model& model, int64_t context) {
  const std::string text = model.metadata("position_rows");
  const auto rows = number_in<int64_t>(text);
  BOWLINE_REQUIRE_FILE(text.empty() || rows.value_or(-1) >= 0,
                       "Metadata position_rows is \"{}\", not an integer. Import the model again.",
                       escaped(text));
  BOWLINE_REQUIRE(!rows || context <= *rows,
                  "A context of {} tokens exceeds the {} learned positions of the model. "
                  "Use a context of at most {}.",
                  context, *rows, *rows);
  return {};
}

template <class Part>
const Part* named(const std::vector<Part>& parts, std::string_view name) {
  const auto found = std::ranges::find(parts, name, &Part::name);
  return found == parts.end() ? nullptr : &*found;
}

bool has_cache(const ModelInfo& model) {
  return named(model.entry_points, "prefill") != nullptr &&
         named(model.entry_points, "decode") != nullptr;
}

// Binds `forward` to a text of `tokens` tokens.
// Errors  bad_argument: it does not read tokens and return logits for each token.
Result<BoundEntryPoint> forward_of(const ModelInfo& model, int64_t tokens,
                                   std::optional<DType> compute) {
  const EntryPointInfo* const forward = named(model.entry_points, "forward");
  const InputInfo* const in =
      forward != nullptr && forward->inputs.size() == 1 ? &forward->inputs[0] : nullptr;
  const OutputInfo* const out = forward != nullptr ? named(forward->outputs, "logits") : nullptr;
  const bool fits = in != nullptr && in->name == "tokens" && in->dtype == DType::i32 &&
                    in->dims.size() == 2 && !in->dims[1].name.empty() &&
                    (!in->dims[0].name.empty() || in->dims[0].value == 1) && out != nullptr &&
                    out->dtype == DType::f32 && out->rank == 3;
  BOWLINE_REQUIRE(
      fits,
      "The model cannot generate: it has neither the entry points \"prefill\" and \"decode\" nor "
      "an "
      "entry point \"forward\" that reads tokens i32 [batch, seq] alone and returns logits f32 "
      "[batch, seq, n].");
  BoundEntryPoint bound{"forward", {{in->dims[1].name, tokens}}, compute};
  if (!in->dims[0].name.empty()) {
    bound.dims.insert(bound.dims.begin(), {in->dims[0].name, 1});
  }
  return bound;
}

// Errors  bad_argument: the entry points do not have the inputs and outputs that generation needs.
Status check_cached(const ModelInfo& model) {
  const EntryPointInfo& decode = *named(model.entry_points, "decode");
  const auto gives = [&](std::string_view name, DType dtype, uint32_t rank) {
    const OutputInfo* const out = named(decode.outputs, name);
    return out != nullptr && out->dtype == dtype && out->rank == rank;
  };
  BOWLINE_REQUIRE(gives("logits", DType::f32, 2) && gives("top_logits", DType::f32, 2) &&
                      gives("top_ids", DType::i32, 2) && gives("lse", DType::f32, 1),
                  "The model cannot generate: its entry point \"decode\" does not return logits "
                  "f32 [1, n], top_logits f32 [1, k], top_ids i32 [1, k] and lse f32 [1].");
  return {};
}

}  // namespace

class GeneratorState {
 public:
  static Result<std::unique_ptr<GeneratorState>> create(Model& model, const Device& device,
                                                        const GeneratorOptions& options) {
    BOWLINE_TRY(check(options.sampler));
    BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
    const bool is_cached = has_cache(info);
    BOWLINE_TRY(is_cached ? check_cached(info) : Status());
    int64_t context = options.context;
    if (context == 0 && !is_cached && model.metadata("context_length").empty()) {
      context = kUsualContext;
    } else if (context == 0) {
      BOWLINE_TRY_ASSIGN(context, context_of(model));
    }
    BOWLINE_REQUIRE(context >= 1 && context <= INT32_MAX,
                    "A context of {} tokens is outside of 1..{}.", context, INT32_MAX);
    BOWLINE_TRY(check_positions(model, context));
    BOWLINE_TRY_ASSIGN(std::vector<int32_t> stops, stop_ids_of(model));
    BOWLINE_TRY_ASSIGN(std::unique_ptr<GeneratorState> state,
                       (is_cached ? create_cached : create_whole)(model, device, options, context));
    state->sampler = options.sampler;
    state->stops = options.stop_ids.value_or(std::move(stops));
    state->context = context;
    return state;
  }

  static Result<std::unique_ptr<GeneratorState>> create_cached(Model& model, const Device& device,
                                                               const GeneratorOptions& options,
                                                               int64_t context) {
    BOWLINE_TRY_ASSIGN(const std::vector<BoundEntryPoint> plans, plans_of(options, context));
    BOWLINE_TRY(model.resize(kCache, std::max(context, kLeastRows))
                    .status()
                    .at(format("While resizing the cache to {} tokens.", context)));
    BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, plans));
    BOWLINE_TRY_ASSIGN(const PlanInfo plan, session.describe());
    std::unique_ptr<GeneratorState> state(new GeneratorState(std::move(session)));
    BOWLINE_TRY(state->take_sizes(plan.segments[0].outputs));
    for (size_t i = 1; i < plans.size(); ++i) {
      state->buckets_.push_back(plans[i].dims[1].value);
    }
    return state;
  }

  static Result<std::unique_ptr<GeneratorState>> create_whole(Model& model, const Device& device,
                                                              const GeneratorOptions& options,
                                                              int64_t context) {
    Whole whole{&model, device, options.compute_dtype, std::min(kFirstTokens, context)};
    BOWLINE_TRY_ASSIGN(Session session, whole.session());
    BOWLINE_TRY_ASSIGN(const PlanInfo plan, session.describe());
    const TensorShape logits = named(plan.segments[0].outputs, "logits")->shape;
    BOWLINE_REQUIRE(logits[0] == 1 && logits[1] == whole.tokens && logits[2] >= 1,
                    "The logits of \"forward\" are not one row for each token.");
    std::unique_ptr<GeneratorState> state(new GeneratorState(std::move(session)));
    state->vocabulary_ = logits[2];
    state->whole_ = std::move(whole);
    BOWLINE_TRY(state->require_causal());
    return state;
  }

  Status feed(std::span<const int32_t> ids) {
    const size_t room = static_cast<size_t>(context) - std::min(text.size(), size_t(context));
    BOWLINE_REQUIRE(ids.size() <= room,
                    "The text has {} tokens, and {} more do not fit in the context ({}).",
                    text.size(), ids.size(), context);
    for (size_t i = 0; i < ids.size(); ++i) {
      BOWLINE_REQUIRE_CODE(ids[i] >= 0 && ids[i] < vocabulary_, Code::index_out_of_range,
                           "Token {} ({}) is outside of the vocabulary ({}).", i, ids[i],
                           vocabulary_);
    }
    const size_t before = text.size();
    text.insert(text.end(), ids.begin(), ids.end());
    const Status read = prefill();
    if (!read.ok()) {
      text.resize(before);
      cached_ = std::min(cached_, before);
    }
    return read;
  }

  Result<int32_t> next() {
    BOWLINE_REQUIRE(!text.empty(), "There is no text to continue. Feed a prompt first.");
    BOWLINE_REQUIRE(has_room(), "The text has {} tokens, more than the context ({}).", text.size(),
                    context);
    BOWLINE_TRY(prefill());
    BOWLINE_TRY(decode(needed_all_));
    std::optional<int32_t> id = whole_ ? drawn(all_) : drawn({});
    needed_all_ = !id;
    if (!id && std::isfinite(lse_)) {
      // Decodes the same token again; the cache entry is the same.
      BOWLINE_TRY(all_.empty() ? decode(true) : Status());
      id = drawn(all_);
    }
    BOWLINE_REQUIRE_CODE(std::isfinite(lse_) && id, Code::non_finite,
                         "The logits after token {} are not finite: the log of the sum of their "
                         "exponentials is {}.",
                         text.size() - 1, std::to_string(lse_));
    text.push_back(*id);
    return *id;
  }

  // The last token is always read again, for its logits.
  void rewind(size_t length) {
    text.resize(length);
    cached_ = std::min(cached_, length - std::min<size_t>(length, 1));
  }

  Result<size_t> replace(std::span<const int32_t> ids) {
    const size_t same = static_cast<size_t>(std::ranges::mismatch(text, ids).in1 - text.begin());
    const std::vector<int32_t> before = text;
    const size_t cached = cached_;
    rewind(same);
    const size_t kept = cached_;
    if (Status fed = feed(ids.subspan(same)); !fed.ok()) {
      // The cache no longer has the overwritten tokens.
      text = before;
      cached_ = std::min(cached, kept);
      return fed;
    }
    return kept;
  }

  bool has_room() const { return text.size() <= static_cast<size_t>(context); }
  Counters counters() const { return session_.counters(); }
  MemoryReport memory() const { return session_.memory(); }
  Result<PlanInfo> describe() const { return session_.describe(); }

  std::vector<int32_t> text;
  std::vector<int32_t> stops;
  SamplerOptions sampler;
  int64_t context = 0;
  uint64_t full_logits_count = 0;
  std::atomic<bool> cancelled = false;

 private:
  // Generation without a cache: each token reads the whole text. If the text outgrows the plan, a
  // plan with twice the tokens replaces it.
  struct Whole {
    Model* model;
    Device device;
    std::optional<DType> compute;
    int64_t tokens;  // of the plan

    Result<Session> session() const {
      BOWLINE_TRY_ASSIGN(const ModelInfo info, model->describe());
      BOWLINE_TRY_ASSIGN(const BoundEntryPoint forward, forward_of(info, tokens, compute));
      return Session::create(*model, device, std::span(&forward, 1));
    }
  };

  explicit GeneratorState(Session session) : session_(std::move(session)) {}

  // Computes the logits of `ids` into `logits_`. `filler` fills the rest of the plan.
  Status run_forward(std::span<const int32_t> ids, int32_t filler) {
    const auto tokens = static_cast<size_t>(whole_->tokens);
    padded_.assign(ids.begin(), ids.end());
    padded_.resize(tokens, filler);
    logits_.resize(tokens * static_cast<size_t>(vocabulary_));
    const Tensor in{"tokens", DType::i32, {1, whole_->tokens}, padded_.data()};
    const Tensor out{"logits", DType::f32, {1, whole_->tokens, vocabulary_}, logits_.data()};
    return session_.run("forward", {&in, 1}, {&out, 1});
  }

  std::span<const float> row_of(size_t token) const {
    const auto n = static_cast<size_t>(vocabulary_);
    return std::span(logits_).subspan(token * n, n);
  }

  // Errors  bad_argument: the logits of a token depend on later tokens.
  Status require_causal() {
    const int32_t first = 0;
    BOWLINE_TRY(run_forward({&first, 1}, 0));
    const std::vector<float> before(row_of(0).begin(), row_of(0).end());
    BOWLINE_TRY(run_forward({&first, 1}, static_cast<int32_t>(vocabulary_ - 1)));
    const auto is_same = [](float a, float b) {
      return a == b || (std::isnan(a) && std::isnan(b));
    };
    BOWLINE_REQUIRE(std::ranges::equal(before, row_of(0), is_same),
                    "The model cannot generate: in its entry point \"forward\" the logits of "
                    "a token depend on later tokens.");
    return {};
  }

  Status read_whole() {
    BOWLINE_TRY(require_going_on());
    if (std::cmp_greater(text.size(), whole_->tokens)) {
      Whole longer = *whole_;
      while (std::cmp_greater(text.size(), longer.tokens)) {
        longer.tokens = std::min(2 * longer.tokens, context);
      }
      BOWLINE_TRY_ASSIGN(session_, longer.session());
      whole_ = std::move(longer);
    }
    BOWLINE_TRY(run_forward(text, 0));
    const std::span<const float> last = row_of(text.size() - 1);
    all_.assign(last.begin(), last.end());
    const auto most = static_cast<double>(*std::ranges::max_element(all_));
    double sum = 0;
    for (const float logit : all_) {
      sum += std::exp(static_cast<double>(logit) - most);
    }
    lse_ = static_cast<float>(most + std::log(sum));
    ++full_logits_count;
    return {};
  }

  // `decode`, then a `prefill` per row count.
  static Result<std::vector<BoundEntryPoint>> plans_of(const GeneratorOptions& options,
                                                       int64_t context) {
    const BoundDim all{"kv_length", context};
    std::vector<BoundEntryPoint> plans = {{"decode", {all}, options.compute_dtype}};
    int64_t before = 0;
    for (const int64_t rows : options.prefill_chunks) {
      BOWLINE_REQUIRE(rows > before, "prefill_chunks is not ascending from 1: {} follows {}.", rows,
                      before);
      if (before < context) {
        plans.push_back(
            {"prefill", {all, {"rows", std::min(rows, context)}}, options.compute_dtype});
      }
      before = rows;
    }
    BOWLINE_REQUIRE(plans.size() > 1, "prefill_chunks is empty.");
    return plans;
  }

  // Reads the size of the vocabulary and the number of largest logits.
  Status take_sizes(const std::vector<IoInfo>& outputs) {
    const TensorShape top = named(outputs, "top_logits")->shape;
    vocabulary_ = named(outputs, "logits")->shape[1];
    BOWLINE_REQUIRE(named(outputs, "logits")->shape[0] == 1 && top[0] == 1 && top[1] >= 1 &&
                        top[1] <= vocabulary_ && named(outputs, "top_ids")->shape == top &&
                        named(outputs, "lse")->shape == TensorShape{1},
                    "The outputs of \"decode\" do not have one token.");
    top_.resize(static_cast<size_t>(top[1]));
    top_ids_.resize(top_.size());
    return {};
  }

  Status require_going_on() {
    return cancelled.exchange(false) ? Status(Code::cancelled, "The generation is cancelled.")
                                     : Status();
  }

  // Number of tokens for the next plan. If the plan would be more than half empty, the rest goes to
  // a smaller plan.
  size_t piece_of(size_t waiting) const {
    size_t piece = static_cast<size_t>(buckets_.front());
    for (const int64_t rows : buckets_) {
      piece = static_cast<size_t>(rows) < 2 * waiting ? static_cast<size_t>(rows) : piece;
    }
    return std::min(piece, waiting);
  }

  // Reads the tokens that are not in the cache, except the last one.
  Status prefill() {
    if (whole_) {
      return {};
    }
    while (cached_ + 1 < text.size()) {
      BOWLINE_TRY(require_going_on());
      const size_t rows = piece_of(text.size() - 1 - cached_);
      positions_.resize(rows);
      for (size_t i = 0; i < rows; ++i) {
        positions_[i] = static_cast<int32_t>(cached_ + i);
      }
      const auto n = static_cast<int64_t>(rows);
      const Tensor in[] = {{"tokens", DType::i32, {1, n}, text.data() + cached_},
                           {"positions", DType::i32, {n}, positions_.data()}};
      const StepScalar steps[] = {{"position", cached_}, {"kv_length", cached_ + rows}};
      BOWLINE_TRY(session_.run("prefill", in, {}, steps));
      cached_ += rows;
    }
    return {};
  }

  Status decode(bool whole) {
    if (whole_) {
      return read_whole();
    }
    BOWLINE_TRY(require_going_on());
    const size_t position = text.size() - 1;
    auto at = static_cast<int32_t>(position);
    all_.resize(whole ? static_cast<size_t>(vocabulary_) : 0);
    const auto k = static_cast<int64_t>(top_.size());
    const Tensor in[] = {{"tokens", DType::i32, {1, 1}, &text.back()},
                         {"positions", DType::i32, {1}, &at}};
    const Tensor out[] = {{"lse", DType::f32, {1}, &lse_},
                          {"top_logits", DType::f32, {1, k}, top_.data()},
                          {"top_ids", DType::i32, {1, k}, top_ids_.data()},
                          {"logits", DType::f32, {1, vocabulary_}, all_.data()}};
    const StepScalar steps[] = {{"position", position}, {"kv_length", text.size()}};
    BOWLINE_TRY(session_.run("decode", in, std::span(out).first(whole ? 4 : 3), steps));
    cached_ = std::max(cached_, text.size());
    full_logits_count += whole ? 1 : 0;
    return {};
  }

  std::optional<int32_t> drawn(std::span<const float> all) const {
    const size_t window = std::min(text.size(), static_cast<size_t>(sampler.repetition_window));
    const Logits logits{top_, top_ids_, lse_, all, static_cast<size_t>(vocabulary_)};
    return draw(sampler, logits, std::span(text).last(window), text.size());
  }

  Session session_;
  std::optional<Whole> whole_;  // set if there is no cache
  std::vector<int32_t> padded_;
  std::vector<float> logits_;
  std::vector<int64_t> buckets_;
  int64_t vocabulary_ = 0;
  size_t cached_ = 0;  // number of tokens whose keys and values are in the cache
  std::vector<int32_t> positions_;
  float lse_ = 0;
  std::vector<float> top_;
  std::vector<int32_t> top_ids_;
  std::vector<float> all_;
  bool needed_all_ = false;  // the largest logits did not decide the last token
};

Result<Generator> Generator::create(Model& model, const Device& device,
                                    const GeneratorOptions& options) {
  return guarded([&]() -> Result<Generator> {
    BOWLINE_TRY_ASSIGN(std::unique_ptr<GeneratorState> state,
                       GeneratorState::create(model, device, options));
    return Generator(std::move(state));
  });
}

Generator::Generator(std::unique_ptr<GeneratorState> state) : state_(std::move(state)) {}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

Status Generator::feed(std::span<const int32_t> ids) {
  return guarded(state_, "generator", [&](auto& state) { return state.feed(ids); });
}

Result<int32_t> Generator::next() {
  return guarded(state_, "generator", [](auto& state) { return state.next(); });
}

Status Generator::rewind(size_t length) {
  return guarded(state_, "generator", [&](auto& state) -> Status {
    BOWLINE_REQUIRE(length <= state.text.size(), "The text has {} tokens, not {}.",
                    state.text.size(), length);
    state.rewind(length);
    return {};
  });
}

Result<size_t> Generator::replace(std::span<const int32_t> ids) {
  return guarded(state_, "generator", [&](auto& state) { return state.replace(ids); });
}

std::span<const int32_t> Generator::tokens() const {
  return guarded(state_, "generator",
                 [](auto& state) { return std::span<const int32_t>(state.text); });
}

bool Generator::has_room() const { return state_ != nullptr && state_->has_room(); }

bool Generator::is_stop(int32_t id) const {
  return state_ != nullptr && std::ranges::find(state_->stops, id) != state_->stops.end();
}

int64_t Generator::context() const { return state_ == nullptr ? 0 : state_->context; }

Status Generator::set_sampler(const SamplerOptions& options) {
  return guarded(state_, "generator", [&](auto& state) -> Status {
    BOWLINE_TRY(check(options));
    state.sampler = options;
    return {};
  });
}

void Generator::cancel() {
  if (state_ != nullptr) {
    state_->cancelled = true;
  }
}

Counters Generator::counters() const {
  return guarded(state_, "generator", [](auto& state) { return state.counters(); });
}

MemoryReport Generator::memory() const {
  return guarded(state_, "generator", [](auto& state) { return state.memory(); });
}

Result<PlanInfo> Generator::describe() const {
  return guarded(state_, "generator", [](auto& state) { return state.describe(); });
}

uint64_t Generator::full_logits_count() const {
  return state_ == nullptr ? 0 : state_->full_logits_count;
}

}  // namespace bowline::text
