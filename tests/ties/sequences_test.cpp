// Random models with random ties, and random sequences of verbs and training steps on random
// devices. After each action, the ties and the values must equal those of a plain model that does
// the same by hand.
//
// BOWLINE_SEQUENCES sets the number of sequences (default 60), BOWLINE_SEQUENCE_SEED the first
// seed. A failure names the seed and prints the shortest part of the sequence that still fails.
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>

#include "conformance/random/dice.h"
#include "core/encoding.h"
#include "ties/plain_model.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

using conformance::random::Dice;

// One verb of a sequence. Its arguments follow from its seed and the current model.
struct Action {
  enum class Kind : uint8_t {
    tie,
    untie,
    write,
    swap,
    assign,
    round,  // cast to bf16 and back
    move,
    move_one,
    offload,
    reopen,
    clone,
    load,
    freeze,
    thaw,
    lay_out,
    restore,
    step,
    run_overridden,
    roll_back,
    replicate,
    shard,
    serve,
    fill_shapes,
    share,
    quantize,
    dequantize,
    adapt,
  };
  static constexpr const char* kNames[] = {
      "tie",       "untie",      "write",   "swap",    "assign",      "round",
      "move",      "move1",      "offload", "reopen",  "clone",       "load",
      "freeze",    "thaw",       "layout",  "restore", "step",        "run with an override",
      "roll back", "replicate",  "shard",   "serve",   "fill shapes", "share",
      "quantize",  "dequantize", "adapt"};
  Kind kind = Kind::tie;
  uint64_t seed = 0;
};

class Sequence {
 public:
  explicit Sequence(uint64_t seed) : dice_(seed), folder_(testing::TempDir()) {
    const std::vector<std::string> names = usable([] {
      std::vector<std::string> all = computing_device_names();
      all.insert(all.end(), std::begin(kMocks), std::end(kMocks));
      return all;
    }());
    for (int i = 0; i < 2; ++i) {
      places_.push_back(open_test_device(dice_.of(names)));
    }
    path_ = folder_ + "sequence" + std::to_string(seed) + ".bowline";
    build();
  }
  ~Sequence() { std::filesystem::remove(path_); }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  std::string devices() const { return places_[0].info().name + ", " + places_[1].info().name; }

  // Throws the first problem.
  void run(const Action& action) {
    Dice dice(action.seed);
    // A Trainer refuses these verbs.
    if (action.kind >= Action::Kind::quantize && dice.chance(0.8)) {
      trainer_.reset();
    }
    const std::string before = listings();
    const Status status = act(action.kind, dice);
    if (!status.ok()) {
      require(status.code() == Code::bad_argument ||
                  (status.code() == Code::unsupported && quantized_ > 0),
              status.message());
      require(listings() == before, "A refused verb has changed something: " + status.message());
      ++refused_;
    }
    ++done_;
    compare();
  }
  int done() const { return done_; }
  int refused() const { return refused_; }
  int quantized() const { return quantized_; }
  int adapted() const { return adapted_; }

 private:
  // The loss is the weighted sum of the terms.
  struct Term {
    enum class Kind : uint8_t {
      product,    // sum(P * Q)
      linear,     // sum(Linear(x, P))
      embedding,  // sum(Embedding(P, ids))
      matmul,     // sum(MatMul(y, P))
    };
    Kind kind = Kind::product;
    size_t p, q, weight;  // q equals p except for a product
  };

  struct Batch {
    Floats weights;
    Floats x, y;  // [kXRows, columns_], [kYRows, rows_]
    std::vector<int32_t> ids;
  };
  // The loss, the sum of the absolute values of its terms, and the gradient of each storage.
  struct Outcome {
    double loss = 0;
    double size = 0;
    std::map<size_t, std::vector<double>> gradient, gradient_size;
  };
  static constexpr int64_t kXRows = 3, kYRows = 2, kIds = 4;

  int64_t below(Dice& dice, size_t n) { return dice.below(static_cast<int64_t>(n)); }
  size_t any(Dice& dice, size_t n) { return static_cast<size_t>(below(dice, n)); }
  double number(Dice& dice) {
    return static_cast<double>(static_cast<float>(dice.uniform() - 0.5));
  }

  // ------------------------------------------------------------------------------------- the model

  // Adds a storage with a parameter that shows all of it, and returns the index of the parameter.
  // The storage has a view of shape [rows_, columns_].
  size_t new_storage() {
    const int64_t form = dice_.below(4);
    const Dims shapes[] = {
        {rows_, columns_}, {columns_, rows_}, {rows_ * columns_}, {rows_ + 2, columns_}};
    const Dims& dims = shapes[form];
    const std::string name = "s" + std::to_string(plain_.storages.size());
    must(model_.parameter(name, dims, Init::zeros()));
    PlainStorage storage{Shape(dims), {}, true};
    storage.values.resize(static_cast<size_t>(storage.shape.elements()));
    plain_.parameters.push_back({name, plain_.add(std::move(storage)), {}});
    return plain_.parameters.size() - 1;
  }

  // Returns a random view of a storage as [rows_, columns_], if the storage has one.
  std::optional<View> view_of(const Shape& shape, bool may_transpose) {
    View view;
    if (shape.rank() == 1) {
      view.shape = {rows_, columns_};
    } else if (shape[0] == rows_ + 2 && shape[1] == columns_) {
      view.row_start = dice_.below(3);
      view.rows = rows_;
    } else if (!(shape == Shape{rows_, columns_})) {
      view.transpose = true;
    }
    return view.transpose && !may_transpose ? std::nullopt : std::optional(view);
  }

  size_t declare(const std::string& name, bool may_transpose) {
    while (true) {
      const size_t whole = wholes_.empty() || dice_.chance(0.4) ? new_storage() : dice_.of(wholes_);
      if (std::ranges::find(wholes_, whole) == wholes_.end()) {
        wholes_.push_back(whole);
      }
      const PlainParameter& of = plain_.parameters[whole];
      const std::optional<View> view = view_of(plain_.storages.at(of.storage).shape, may_transpose);
      if (view) {
        must(model_.tied_parameter(name, must(model_.find(of.name)), *view));
        plain_.parameters.push_back({name, of.storage, *view});
        return plain_.parameters.size() - 1;
      }
    }
  }

  void build() {
    // A storage can be quantized only if all of its readers accept an encoding. The sizes are large
    // enough for blocks of 32 in some storages.
    reads_ = dice_.chance(0.6);
    const std::vector<std::pair<int64_t, int64_t>> small = {{1, 1},
                                                            {2, 3},
                                                            {3, 5},
                                                            {7, 4},
                                                            {17, 33}},
                                                   large = {
                                                       {2, 3}, {7, 4}, {17, 33}, {5, 64}, {32, 96}};
    std::tie(rows_, columns_) = dice_.of(reads_ ? large : small);
    std::vector<size_t> single;
    for (int64_t i = dice_.between(2, 4); i > 0; --i) {
      single.push_back(declare("p" + std::to_string(i), true));
    }
    repeats_ = dice_.between(2, 3);
    std::vector<size_t> lists[2];
    for (int l = 0; l < 2; ++l) {
      for (int64_t i = 0; i < repeats_; ++i) {
        lists[l].push_back(declare(std::string(l == 0 ? "a." : "b.") + std::to_string(i), false));
      }
    }
    GraphBuilder g(model_, "loss");
    Value x, y, ids;
    if (reads_) {
      x = g.input("x", DType::f32, {kXRows, columns_});
      y = g.input("y", DType::f32, {kYRows, rows_});
      ids = g.input("ids", DType::i32, {kIds});
    }
    std::vector<Value> weights;
    const auto weight = [&] {
      const std::string name = "w" + std::to_string(weights.size());
      weights.push_back(g.input(name, DType::f32, {}));
      return weights.back();
    };
    const auto times = [](GraphBuilder& in, Value of, Value w) {
      return in.op("Mul", {in.op("ReduceSum", {of}), w});
    };
    const auto multiply = [&](GraphBuilder& in, Value p, Value q, Value w) {
      return times(in, in.op("Mul", {p, q}), w);
    };
    const auto read = [&](GraphBuilder& in, Term::Kind kind, Value p, Value input, Value w) {
      switch (kind) {
        case Term::Kind::linear:
          return times(in, in.op("Linear", {input, p}), w);
        case Term::Kind::embedding:
          return times(in, in.op("Embedding", {p, input}), w);
        default:
          return times(in, in.op("MatMul", {input, p}), w);
      }
    };
    const auto parameter = [&](size_t p) {
      return g.parameter(must(model_.find(plain_.parameters[p].name)));
    };
    using enum Term::Kind;
    Value sum;
    for (size_t i = 0; i < single.size(); ++i) {
      Term term{product, single[i], single[i], weights.size()};
      Value value;
      if (reads_) {
        const Term::Kind kinds[] = {embedding, linear, matmul};
        const Value inputs[] = {ids, x, y};
        const size_t kind = i == 0 ? 0 : any(dice_, 3);
        term.kind = kinds[kind];
        value = read(g, term.kind, parameter(term.p), inputs[kind], weight());
      } else {
        term.q = dice_.chance(0.5) ? term.p : dice_.of(single);
        value = multiply(g, parameter(term.p), parameter(term.q), weight());
      }
      terms_.push_back(term);
      sum = i == 0 ? value : g.op("Add", {sum, value});
    }
    ParameterList entries[2];
    for (int l = 0; l < 2; ++l) {
      for (const size_t p : lists[l]) {
        entries[l].items.push_back(must(model_.find(plain_.parameters[p].name)));
      }
    }
    for (size_t i = 0; i < lists[0].size(); ++i) {
      const size_t a = lists[0][i], b = lists[1][i], w = weights.size();
      terms_.push_back({reads_ ? linear : product, a, a, w});
      terms_.push_back({reads_ ? matmul : product, reads_ ? b : a, b, w + 1});
    }
    const Value first = weight(), second = weight();
    sum =
        g.repeat(static_cast<int>(repeats_), {sum},
                 [&](GraphBuilder& body, const std::vector<Value>& carried) {
                   const Value a = body.parameter(entries[0]), b = body.parameter(entries[1]);
                   const Value v = body.capture(first), w = body.capture(second);
                   const Value s =
                       reads_ ? read(body, linear, a, body.capture(x), v) : multiply(body, a, a, v);
                   const Value t =
                       reads_ ? read(body, matmul, b, body.capture(y), w) : multiply(body, a, b, w);
                   return std::vector<Value>{body.op("Add", {carried[0], body.op("Add", {s, t})})};
                 })
            .at(0);
    g.output("loss", sum);
    must(g.finish());
    must(model_.materialize(1));
    weights_ = weights.size();
    for (size_t p = 0; p < plain_.parameters.size(); ++p) {
      write(p, dice_);
    }
    register_row();
    must(model_.to(places_[0]));
    compare();
  }

  // ---------------------------------------------------------------------------------------- verbs

  void register_row() {
    WeightFormat row;
    row.name = "row";
    row.layout = [](std::span<const StorageInfo> group) -> Result<FormatLayout> {
      FormatLayout out;
      for (const StorageInfo& s : group) {
        out.bytes += 12;
        out.offsets.push_back(out.bytes);
        out.bytes += s.bytes;
      }
      return out;
    };
    must(register_weight_format(model_, std::move(row)));
  }

  void write(size_t p, Dice& dice) {
    const PlainParameter& of = plain_.parameters[p];
    std::vector<double> numbers(plain_.places(of).size());
    std::ranges::generate(numbers, [&] { return number(dice); });
    if (set(of, numbers)) {
      plain_.write(of, numbers);
    }
  }
  // set_value() refuses quantized storages.
  bool set(const PlainParameter& of, std::span<const double> numbers) {
    Floats values(numbers.begin(), numbers.end());
    const Status s =
        model_.set_value(of.name, {"", DType::f32, plain_.shown(of).dims(), values.data()});
    const bool encoded = plain_.storages.at(of.storage).encoded;
    require(s.code() == (encoded ? Code::unsupported : Code::ok), "A write: " + s.message());
    return !encoded;
  }

  Status act(Action::Kind kind, Dice& dice) {
    const size_t n = plain_.parameters.size();
    const size_t a = any(dice, n), b = any(dice, n);
    const PlainParameter& first = plain_.parameters[a];
    const PlainParameter& second = plain_.parameters[b];
    switch (kind) {
      case Action::Kind::tie:
        BOWLINE_TRY(model_.tie(first.name, second.name).status());
        if (!(first.storage == second.storage && first.view == second.view)) {
          plain_.tie(a, b);
        }
        return {};
      case Action::Kind::untie:
        BOWLINE_TRY(model_.untie(first.name).status());
        plain_.untie(a);
        return {};
      case Action::Kind::write:
        write(a, dice);
        return {};
      case Action::Kind::swap:
        BOWLINE_TRY(model_.swap(first.name, second.name));
        plain_.swap(a, b);
        return {};
      case Action::Kind::assign:
        return assign(first, dice);
      case Action::Kind::round:
        return round();
      case Action::Kind::move:
        return model_.to(places_[any(dice, 2)]);
      case Action::Kind::move_one:
        BOWLINE_TRY(model_.to(places_[any(dice, 2)], first.name));
        return dice.chance(0.5) ? model_.to(places_[0]) : Status();
      case Action::Kind::offload:
        return offload(model_, dice.chance(0.5) ? "*" : first.name);
      case Action::Kind::reopen:
        return reopen();
      case Action::Kind::clone:
        return clone();
      case Action::Kind::load:
        return load(dice);
      case Action::Kind::freeze:
      case Action::Kind::thaw:
        BOWLINE_TRY(model_.freeze_storage(first.name, kind == Action::Kind::freeze));
        plain_.storages[first.storage].trainable = kind == Action::Kind::thaw;
        return {};
      case Action::Kind::lay_out:
        return set_weight_format(model_, "row", dice.chance(0.5) ? "*" : "s?").status();
      case Action::Kind::restore:
        return restore_weight_format(model_, dice.chance(0.5) ? "*" : first.name).status();
      case Action::Kind::step:
        return step(dice);
      case Action::Kind::run_overridden:
        return run_overridden(a, dice);
      case Action::Kind::roll_back:
        return roll_back(a, b, dice);
      case Action::Kind::replicate:
        return replicate(model_, places_[any(dice, 2)], dice.chance(0.5) ? "*" : first.name)
            .status();
      case Action::Kind::shard:
        return shard(model_, places_, dice.chance(0.5) ? "*" : first.name).status();
      case Action::Kind::serve:
        return serve(a, dice);
      case Action::Kind::fill_shapes:
        return fill_shapes();
      case Action::Kind::share: {
        BOWLINE_TRY_ASSIGN(Model other, model_.share());
        model_ = std::move(other);
        return {};
      }
      case Action::Kind::quantize:
        return quantize(dice.chance(0.5) ? "*" : first.name, dice);
      case Action::Kind::dequantize: {
        const std::string pattern = dice.chance(0.5) ? "*" : first.name;
        BOWLINE_TRY(dequantize(model_, pattern).status());
        for (auto& [number, storage] : plain_.storages) {
          storage.encoded = storage.encoded && pattern != "*" && number != first.storage;
        }
        return {};
      }
      case Action::Kind::adapt:
        return adapt(dice.chance(0.5) ? "*" : first.name, dice);
    }
    return {};
  }

  // The values become the dequantized values, which are close to the old values. All later verbs
  // must keep them exactly.
  Status quantize(const std::string& pattern, Dice& dice) {
    const std::string encodings[] = {"int8",
                                     "int8 block row",
                                     "int8 block 32",
                                     "int8 scale bf16",
                                     "int8 with zero points",
                                     "int4",
                                     "int4 with zero points",
                                     "q8_0",
                                     "q4_0"};
    const std::string& encoding = encodings[any(dice, std::size(encodings))];
    BOWLINE_TRY(bowline::quantize(model_, encoding, pattern).status());
    const ModelInfo info = must(model_.describe());
    for (auto& [number, storage] : plain_.storages) {
      const uint32_t tie = tie_of(info, number);
      if (storage.encoded || info.storages[tie].encoding == "plain") {
        continue;
      }
      const Floats codes = stored(tie);
      double largest = 0;
      for (const double v : storage.values) {
        largest = std::max(largest, std::abs(v));
      }
      // The largest quantization step. More blocks or zero points make the step smaller.
      const double step =
          largest / (encoding.find('8') == std::string::npos || encoding == "q4_0" ? 7 : 127);
      for (size_t i = 0; i < codes.size(); ++i) {
        const double now = static_cast<double>(codes[i]);
        require(std::abs(now - storage.values[i]) <= 1.01 * step,
                format("{} as {} is {}", storage.values[i], encoding, now));
        storage.values[i] = now;
      }
      storage.encoded = true;
      storage.trainable = false;
      ++quantized_;
    }
    return {};
  }

  // The change of a storage [out, in] by an adapter: the tie indices of A [rank, in] and B [out,
  // rank].
  struct Change {
    uint32_t a, b;
  };
  std::map<size_t, Change> changes(std::span<const std::string> targets) const {
    const ModelInfo info = must(model_.describe());
    const auto tie = [&](const std::string& name) {
      return std::ranges::find(info.parameters, name, &ParameterInfo::name)->tie;
    };
    std::map<size_t, Change> out;
    for (const std::string& target : targets) {
      const auto of = std::ranges::find(plain_.parameters, target, &PlainParameter::name);
      const Change change{tie(target + ".ad.lora_a"), tie(target + ".ad.lora_b")};
      const auto [known, fresh] = out.emplace(of->storage, change);
      require(fresh || (known->second.a == change.a && known->second.b == change.b),
              "A storage has two changes.");
    }
    return out;
  }

  // Adds an adapter with values, applies one verb, checks the loss, takes a step, and merges or
  // removes the adapter.
  Status adapt(const std::string& pattern, Dice& dice) {
    AdapterOptions options;
    options.rank = dice.between(1, 3);
    options.alpha = 2;
    options.target = pattern;
    options.seed = dice.bits();
    options.freeze_others = dice.chance(0.7);
    BOWLINE_TRY_ASSIGN(const AdapterReport report, add_adapter(model_, "ad", options));
    ++adapted_;
    for (auto& [number, storage] : plain_.storages) {
      storage.trainable = storage.trainable && !options.freeze_others;
    }
    for (const ParameterInfo& p : must(model_.describe()).parameters) {
      if (p.name.ends_with(".ad.lora_b")) {
        Floats values(static_cast<size_t>(Shape(p.shape).elements()));
        std::ranges::generate(values, [&] { return static_cast<float>(number(dice)); });
        must(model_.set_value(p.name, {"", DType::f32, p.shape, values.data()}));
      }
    }
    const int64_t verb = dice.below(4);
    must(verb == 0 ? reopen() : verb == 1 ? clone() : verb == 2 ? offload(model_) : Status());
    gather(dice);
    const std::map<size_t, Change> changed = changes(report.targets);
    const double scale = 2.0 / static_cast<double>(options.rank);
    PlainModel seen = plain_;
    for (const auto& [number, change] : changed) {
      add_product(seen.storages.at(number), scale, stored(change.b), stored(change.a));
    }
    Batch batch = draw_batch(dice);
    Session session = must(Session::create(model_, home(), "loss", {}));
    float sum = 0;
    const Tensor outputs[] = {{"loss", DType::f32, {}, &sum}};
    must(session.run(tensors(batch), outputs));
    const Outcome right = outcome(seen, batch);
    require_near(static_cast<double>(sum), right.loss, 2 * right.size + 1,
                 "the loss with an adapter");
    if (options.freeze_others && dice.chance(0.7)) {
      train_adapter(changed, scale, right, batch);
    }
    return dice.chance(0.5) ? merge(changed, scale) : remove_adapter(model_, "ad");
  }

  // Computes W + scale * B A.
  static void add_product(PlainStorage& w, double scale, const Floats& b, const Floats& a) {
    const auto out = static_cast<size_t>(w.shape[0]), in = static_cast<size_t>(w.shape[1]);
    const size_t rank = a.size() / in;
    for (size_t i = 0; i < out; ++i) {
      for (size_t k = 0; k < rank; ++k) {
        for (size_t j = 0; j < in; ++j) {
          w.values[i * in + j] +=
              scale * static_cast<double>(b[i * rank + k]) * static_cast<double>(a[k * in + j]);
        }
      }
    }
  }

  // Takes one step. G is the gradient of W: B gets scale * G A^T, and A gets scale * B^T G.
  void train_adapter(const std::map<size_t, Change>& changed, double scale, const Outcome& right,
                     Batch& batch) {
    constexpr double kRate = 0.125;
    std::map<uint32_t, Floats> before;
    for (const auto& [number, change] : changed) {
      before[change.a] = stored(change.a);
      before[change.b] = stored(change.b);
    }
    if (!trainer_) {
      trainer_ = must(Trainer::create(model_, home(), plain_sgd(0.125f)));
    }
    must(trainer_->micro_step(tensors(batch)));
    if (batch.ids[0] == 0) {
      trainer_.reset();  // otherwise the trainer is alive when the adapter ends
    }
    for (const auto& [number, change] : changed) {
      const PlainStorage& w = plain_.storages.at(number);
      const auto out = static_cast<size_t>(w.shape[0]), in = static_cast<size_t>(w.shape[1]);
      const Floats &a = before[change.a], &b = before[change.b];
      const size_t rank = a.size() / in;
      std::vector<double> a_slope(a.size()), b_slope(b.size()), a_size(a.size()), b_size(b.size());
      for (size_t i = 0; i < out; ++i) {
        for (size_t j = 0; j < in; ++j) {
          const double g = right.gradient.at(number)[i * in + j];
          const double size = right.gradient_size.at(number)[i * in + j];
          for (size_t k = 0; k < rank; ++k) {
            const auto from_b = scale * static_cast<double>(b[i * rank + k]);
            const auto from_a = scale * static_cast<double>(a[k * in + j]);
            a_slope[k * in + j] += g * from_b;
            a_size[k * in + j] += size * std::abs(from_b);
            b_slope[i * rank + k] += g * from_a;
            b_size[i * rank + k] += size * std::abs(from_a);
          }
        }
      }
      const auto check = [&](uint32_t tie, const Floats& from, const std::vector<double>& slope,
                             const std::vector<double>& size) {
        const Floats now = stored(tie);
        for (size_t i = 0; i < now.size(); ++i) {
          const auto v = static_cast<double>(from[i]);
          require_near(static_cast<double>(now[i]), v - kRate * slope[i],
                       std::abs(v) + kRate * size[i], format("element {} of an adapter", i));
        }
      };
      check(change.a, a, a_slope, a_size);
      check(change.b, b, b_slope, b_size);
    }
  }

  // Merges the adapter into the storages. If merging is refused, removes the adapter.
  Status merge(const std::map<size_t, Change>& changed, double scale) {
    PlainModel merged = plain_;
    bool has_codes = false;
    for (const auto& [number, change] : changed) {
      add_product(merged.storages.at(number), scale, stored(change.b), stored(change.a));
      has_codes = has_codes || plain_.storages.at(number).encoded;
    }
    const Status s = merge_adapter(model_, "ad");
    if (has_codes) {
      require(s.code() == Code::bad_argument, "A merge into codes: " + s.message());
      return remove_adapter(model_, "ad");
    }
    must(s);
    const ModelInfo info = must(model_.describe());
    for (const auto& [number, change] : changed) {
      PlainStorage& storage = plain_.storages.at(number);
      const Floats now = stored(tie_of(info, number));
      for (size_t i = 0; i < now.size(); ++i) {
        const double wanted = merged.storages.at(number).values[i];
        const auto got = static_cast<double>(now[i]);
        require(std::abs(got - wanted) <= 1e-5 * (1 + std::abs(wanted)),
                format("merged: {} instead of {}", got, wanted));
        storage.values[i] = got;
      }
    }
    return {};
  }

  Status assign(const PlainParameter& of, Dice& dice) {
    std::vector<double> numbers(plain_.places(of).size());
    std::ranges::generate(numbers, [&] { return number(dice); });
    Floats values(numbers.begin(), numbers.end());
    BOWLINE_TRY(model_.assign(of.name, {"", DType::f32, plain_.shown(of).dims(), values.data()}));
    plain_.write(of, numbers);
    plain_.storages[of.storage].encoded = false;
    return {};
  }

  Status round() {
    BOWLINE_TRY(model_.cast(DType::bf16).status());
    BOWLINE_TRY(model_.cast(DType::f32).status());
    for (auto& [number, storage] : plain_.storages) {
      if (storage.encoded) {
        continue;
      }
      for (double& v : storage.values) {
        v = static_cast<double>(to_f32(from_f32<bf16>(static_cast<float>(v))));
      }
    }
    return {};
  }

  // The device that holds everything.
  const Device& home() const { return places_[home_]; }
  void gather(Dice& dice) {
    home_ = any(dice, 2);
    must(model_.to(home()));
  }

  Status reopen() {
    trainer_.reset();
    BOWLINE_TRY(model_.save(path_));
    BOWLINE_TRY_ASSIGN(Model again, Model::open(path_));
    require(again.ties() == model_.ties(), "The file has other ties.");
    model_ = std::move(again);
    register_row();
    return model_.to(places_[0]);
  }

  Status fill_shapes() {
    must(model_.save(path_));
    Model shapes = must(model_.skeleton());
    must(shapes.load(path_));
    trainer_.reset();
    model_ = std::move(shapes);
    // load() skips elements that no parameter shows, except in quantized storages, which are read
    // as a whole with their scales.
    std::map<size_t, std::set<size_t>> seen;
    for (const PlainParameter& p : plain_.parameters) {
      const std::vector<size_t> places = plain_.places(p);
      seen[p.storage].insert(places.begin(), places.end());
    }
    for (auto& [number, storage] : plain_.storages) {
      for (size_t i = 0; i < storage.values.size() && !storage.encoded; ++i) {
        storage.values[i] = seen[number].contains(i) ? storage.values[i] : 0;
      }
    }
    return {};
  }

  // A session on one device reads storages of the other device, or storages that are split over
  // both.
  Status serve(size_t p, Dice& dice) {
    must(model_.to(places_[0]));
    if (dice.chance(0.5)) {
      must(replicate(model_, places_[1]));
    } else {
      must(shard(model_, places_));
    }
    home_ = 1;
    Session session = must(Session::create(model_, home(), "loss", {}));
    for (int i = 0; i < 2; ++i) {
      Batch batch = draw_batch(dice);
      float sum = 0;
      const Tensor outputs[] = {{"loss", DType::f32, {}, &sum}};
      must(session.run(tensors(batch), outputs));
      const Outcome right = outcome(plain_, batch);
      require_near(static_cast<double>(sum), right.loss, right.size, "the loss that is served");
      write(p, dice);
    }
    return {};
  }

  Status clone() {
    trainer_.reset();
    BOWLINE_TRY_ASSIGN(Model copy, model_.clone());
    Dice other(1);
    write_only_model(0, other);
    model_ = std::move(copy);
    return {};
  }
  // Writes to the original model. The clone must not change.
  void write_only_model(size_t p, Dice& dice) {
    const PlainParameter& of = plain_.parameters[p];
    std::vector<double> numbers(plain_.places(of).size());
    std::ranges::generate(numbers, [&] { return number(dice); });
    set(of, numbers);
  }

  Status load(Dice& dice) {
    BOWLINE_TRY(model_.save(path_));
    for (int i = 0; i < 3; ++i) {
      write_only_model(any(dice, plain_.parameters.size()), dice);
    }
    return model_.load(path_, {.mode = dice.chance(0.5) ? LoadMode::copy : LoadMode::assign})
        .status();
  }

  // ------------------------------------------------------------------------------------- training

  Batch draw_batch(Dice& dice) {
    Batch out;
    const auto draw = [&](Floats& numbers, int64_t n) {
      numbers.resize(static_cast<size_t>(n));
      std::ranges::generate(numbers, [&] { return static_cast<float>(number(dice)); });
    };
    draw(out.weights, static_cast<int64_t>(weights_));
    draw(out.x, kXRows * columns_);
    draw(out.y, kYRows * rows_);
    out.ids.resize(kIds);
    const int64_t least = std::min(rows_, columns_);  // a swap can transpose a table
    std::ranges::generate(out.ids, [&] { return static_cast<int32_t>(dice.below(least)); });
    return out;
  }
  std::vector<Tensor> tensors(Batch& batch) {
    names_.clear();
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      names_.push_back("w" + std::to_string(i));
    }
    std::vector<Tensor> out;
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      out.push_back({names_[i], DType::f32, {}, &batch.weights[i]});
    }
    if (reads_) {
      x_shape_ = {kXRows, columns_};
      y_shape_ = {kYRows, rows_};
      out.push_back(tensor("x", x_shape_, batch.x));
      out.push_back(tensor("y", y_shape_, batch.y));
      out.push_back(tensor("ids", ids_shape_, batch.ids));
    }
    return out;
  }

  // Returns the factor of element [row, column] of the parameter in its term, and the sum of the
  // absolute values in that factor.
  std::pair<double, double> factor(Term::Kind kind, int64_t row, int64_t column,
                                   const Batch& batch) const {
    double sum = 0, size = 0;
    const auto add = [&](double v) {
      sum += v;
      size += std::abs(v);
    };
    if (kind == Term::Kind::linear) {
      for (int64_t n = 0; n < kXRows; ++n) {
        add(static_cast<double>(batch.x[static_cast<size_t>(n * columns_ + column)]));
      }
    } else if (kind == Term::Kind::matmul) {
      for (int64_t n = 0; n < kYRows; ++n) {
        add(static_cast<double>(batch.y[static_cast<size_t>(n * rows_ + row)]));
      }
    } else {
      add(static_cast<double>(std::ranges::count(batch.ids, row)));
    }
    return {sum, size};
  }

  Outcome outcome(const PlainModel& of, const Batch& batch) const {
    Outcome out;
    for (const auto& [number, storage] : of.storages) {
      out.gradient[number].resize(storage.values.size());
      out.gradient_size[number].resize(storage.values.size());
    }
    for (const Term& term : terms_) {
      const PlainParameter& p = of.parameters[term.p];
      const PlainParameter& q = of.parameters[term.q];
      const std::vector<double> x = of.read(p), y = of.read(q);
      const std::vector<size_t> px = of.places(p), py = of.places(q);
      const auto w = static_cast<double>(batch.weights[term.weight]);
      const int64_t columns = of.shown(p).back();
      for (size_t i = 0; i < x.size(); ++i) {
        if (term.kind != Term::Kind::product) {
          const auto at = static_cast<int64_t>(i);
          const auto [sum, size] = factor(term.kind, at / columns, at % columns, batch);
          out.loss += w * sum * x[i];
          out.size += std::abs(w * x[i]) * size;
          out.gradient[p.storage][px[i]] += w * sum;
          out.gradient_size[p.storage][px[i]] += std::abs(w) * size;
          continue;
        }
        out.loss += w * x[i] * y[i];
        out.size += std::abs(w * x[i] * y[i]);
        out.gradient[p.storage][px[i]] += w * y[i];
        out.gradient[q.storage][py[i]] += w * x[i];
        out.gradient_size[p.storage][px[i]] += std::abs(w * y[i]);
        out.gradient_size[q.storage][py[i]] += std::abs(w * x[i]);
      }
    }
    return out;
  }

  // Compares a sum that the home device computes. `size` is the sum of the absolute values of its
  // products.
  void require_near(double got, double right, double size, const std::string& what) {
    // Three factors and their product are rounded to the 8 bits of bf16.
    const bool is_narrow = Internals::open(home())->capabilities().compute.has_value();
    require(std::abs(got - right) <= (is_narrow ? 4.0 / 256 : 1e-5) * (size + 1e-3),
            format("{}: {} instead of {}", what, got, right));
  }

  // Freezes the storages that no node reads. Returns true if a trainable storage is left.
  bool prepare_training() {
    std::set<size_t> used;
    for (const Term& term : terms_) {
      used.insert({plain_.parameters[term.p].storage, plain_.parameters[term.q].storage});
    }
    bool some = false;
    for (auto& [number, storage] : plain_.storages) {
      const auto user = std::ranges::find(plain_.parameters, number, &PlainParameter::storage);
      if (!used.contains(number)) {
        must(model_.freeze_storage(user->name));
        storage.trainable = false;
      }
      some = some || storage.trainable;
    }
    return some;
  }

  Status step(Dice& dice) {
    gather(dice);
    if (!prepare_training()) {
      return {};
    }
    if (!trainer_) {
      trainer_ = must(Trainer::create(model_, home(), plain_sgd(0.125f)));
    }
    Batch batch = draw_batch(dice);
    const Outcome right = outcome(plain_, batch);
    const std::vector<Tensor> in = tensors(batch);
    const StepReport report = *must(trainer_->micro_step(in));
    require_near(static_cast<double>(report.loss), right.loss, right.size, "the loss");
    const ModelInfo info = must(model_.describe());
    for (auto& [number, storage] : plain_.storages) {
      const auto user = std::ranges::find(plain_.parameters, number, &PlainParameter::storage);
      const Floats now = stored(tie_of(info, number));
      for (size_t i = 0; i < now.size(); ++i) {
        const double before = storage.values[i];
        const double step = storage.trainable ? 0.125 * right.gradient.at(number)[i] : 0.0;
        const double size = storage.trainable ? 0.125 * right.gradient_size.at(number)[i] : 0.0;
        if (storage.trainable) {
          require_near(static_cast<double>(now[i]), before - step, std::abs(before) + size,
                       format("storage of \"{}\", element {}, after a step", user->name, i));
        } else {
          require(static_cast<double>(now[i]) == before, "A frozen storage was trained.");
        }
        storage.values[i] = static_cast<double>(now[i]);
      }
    }
    return {};
  }

  Status run_overridden(size_t p, Dice& dice) {
    gather(dice);
    Session session = must(Session::create(model_, home(), "loss", {}));
    PlainModel seen = plain_;
    const PlainParameter& of = plain_.parameters[p];
    std::vector<double> numbers(plain_.places(of).size());
    std::ranges::generate(numbers, [&] { return number(dice); });
    seen.write(of, numbers);
    Floats values(numbers.begin(), numbers.end());
    Batch batch = draw_batch(dice);
    float sum = 0;
    const Tensor outputs[] = {{"loss", DType::f32, {}, &sum}};
    const Tensor overrides[] = {{of.name, DType::f32, plain_.shown(of).dims(), values.data()}};
    const std::string before = listings();
    const Status run = session.run(tensors(batch), outputs, {}, overrides);
    if (plain_.storages.at(of.storage).encoded) {
      require(run.code() == Code::unsupported, "An override of codes: " + run.message());
    } else {
      must(run);
    }
    require(listings() == before, "An override has changed the table.");
    const Outcome with = outcome(seen, batch), without = outcome(plain_, batch);
    if (run.ok()) {
      require_near(static_cast<double>(sum), with.loss, with.size, "the loss with an override");
    }
    must(session.run(tensors(batch), outputs));
    require_near(static_cast<double>(sum), without.loss, without.size, "the loss after it");
    return {};
  }

  // A rollback restores the state at the snapshot after a training step and two verbs.
  Status roll_back(size_t a, size_t b, Dice& dice) {
    BOWLINE_TRY(step(dice));
    if (!trainer_) {
      return {};
    }
    must(trainer_->snapshot());
    const PlainModel then = plain_;
    BOWLINE_TRY(step(dice));
    if (act(Action::Kind::tie, dice).ok() && dice.chance(0.5)) {
      must(act(Action::Kind::untie, dice));
    }
    write(a, dice);
    write(b, dice);
    gather(dice);
    must(trainer_->rollback());
    const size_t next = plain_.next;
    plain_ = then;
    plain_.next = next;
    return {};
  }

  // ------------------------------------------------------------------------------------ comparing

  // Omits the copies that plans derive from storages, because a run can create them.
  std::string listings() const {
    return model_.parameters() +
           std::regex_replace(model_.storages(), std::regex(", as [^\n]*"), "");
  }

  uint32_t tie_of(const ModelInfo& info, size_t number) const {
    const auto user = std::ranges::find(plain_.parameters, number, &PlainParameter::storage);
    return info.parameters[static_cast<size_t>(user - plain_.parameters.begin())].tie;
  }

  // Returns the values of a storage, dequantized if necessary.
  Floats stored(uint32_t tie) const {
    const std::vector<std::byte> bytes = must(model_.storage_bytes(tie));
    const StorageInfo info = must(model_.describe()).storages.at(tie);
    const Shape shape(info.shape);
    Floats out(static_cast<size_t>(shape.elements()));
    must(parse_encoding(info.encoding))
        .decode(bytes, info.dtype, shape, {0, shape.elements()}, out);
    return out;
  }

  // Compares the ties, the views, the flags, and every bit.
  void compare() const {
    const ModelInfo info = must(model_.describe());
    require(info.parameters.size() == plain_.parameters.size(), "The parameters are others.");
    std::map<uint32_t, size_t> plain_of;
    std::map<size_t, uint32_t> tie_of;
    for (size_t p = 0; p < info.parameters.size(); ++p) {
      const ParameterInfo& got = info.parameters[p];
      const PlainParameter& right = plain_.parameters[p];
      require(got.name == right.name, "The names are others.");
      plain_of.try_emplace(got.tie, right.storage);
      tie_of.try_emplace(right.storage, got.tie);
      require(plain_of[got.tie] == right.storage && tie_of[right.storage] == got.tie,
              "The partition is another one at \"" + right.name + "\".");
      require(got.view == right.view, "The view of \"" + right.name + "\" is another one.");
      require(got.trainable == plain_.storages.at(right.storage).trainable,
              "The flag of \"" + right.name + "\" is another one.");
    }
    for (const auto& [tie, number] : plain_of) {
      const Floats got = stored(tie);
      const PlainStorage& right = plain_.storages.at(number);
      require(
          Shape(info.storages.at(tie).shape) == right.shape && got.size() == right.values.size(),
          format("The shape of storage {} is another one.", tie));
      require(right.encoded == (info.storages.at(tie).encoding != "plain"),
              format("The encoding of storage {} is another one.", tie));
      for (size_t i = 0; i < got.size(); ++i) {
        require(
            static_cast<double>(got[i]) == right.values[i],
            format("storage {}, element {}: {} instead of {}", tie, i, got[i], right.values[i]));
      }
    }
  }

  Dice dice_;
  std::string folder_, path_;
  std::vector<Device> places_;
  Model model_;
  PlainModel plain_;
  std::optional<Trainer> trainer_;
  std::vector<size_t> wholes_;  // parameters that show all of a storage
  std::vector<Term> terms_;
  std::vector<std::string> names_;
  int64_t rows_ = 1, columns_ = 1, repeats_ = 1;
  Dims x_shape_, y_shape_, ids_shape_ = {kIds};
  bool reads_ = false;
  size_t weights_ = 0, home_ = 0;
  int done_ = 0, refused_ = 0, quantized_ = 0, adapted_ = 0;
};

std::vector<Action> draw_actions(uint64_t seed) {
  Dice dice(seed ^ 0x5DEECE66Dull);
  std::vector<Action> out(static_cast<size_t>(dice.between(5, 16)));
  for (Action& a : out) {
    // Every third action is a step, because a step shows the effect of a verb. Verbs that only some
    // of the models accept are more frequent.
    a.kind = dice.chance(0.33)   ? Action::Kind::step
             : dice.chance(0.15) ? Action::Kind::quantize
             : dice.chance(0.1)  ? Action::Kind::adapt
                                 : static_cast<Action::Kind>(dice.below(std::size(Action::kNames)));
    a.seed = dice.bits();
  }
  return out;
}

struct Tally {
  int done = 0, refused = 0, quantized = 0, adapted = 0;
};

// Returns the first problem, or an empty text.
std::string run(uint64_t seed, std::span<const Action> actions, Tally* tally = nullptr) {
  try {
    Sequence sequence(seed);
    for (const Action& action : actions) {
      try {
        sequence.run(action);
      } catch (const std::exception& e) {
        return format("on {}, at \"{}\": {}", sequence.devices(),
                      Action::kNames[static_cast<size_t>(action.kind)], e.what());
      }
    }
    if (tally != nullptr) {
      tally->done += sequence.done();
      tally->refused += sequence.refused();
      tally->quantized += sequence.quantized();
      tally->adapted += sequence.adapted();
    }
  } catch (const std::exception& e) {
    return format("while building: {}", e.what());
  }
  return {};
}

// Removes actions that the failure does not need.
std::vector<Action> shrunk(uint64_t seed, std::vector<Action> actions) {
  for (size_t i = actions.size(); i-- > 0;) {
    std::vector<Action> fewer = actions;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (!run(seed, fewer).empty()) {
      actions = std::move(fewer);
    }
  }
  return actions;
}

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Sequences, OfVerbsAndSteps) {
  const uint64_t first = number_from("BOWLINE_SEQUENCE_SEED", 1);
  const uint64_t count = number_from("BOWLINE_SEQUENCES", 60);
  Tally tally;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::vector<Action> actions = draw_actions(seed);
    if (run(seed, actions, &tally).empty()) {
      continue;
    }
    const std::vector<Action> needed = shrunk(seed, actions);
    std::string text;
    for (const Action& a : needed) {
      text += std::string(text.empty() ? "" : ", ") + Action::kNames[static_cast<size_t>(a.kind)];
    }
    FAIL() << "BOWLINE_SEQUENCE_SEED=" << seed << " (" << text << "): " << run(seed, needed);
  }
  RecordProperty("done", tally.done);
  RecordProperty("refused", tally.refused);
  RecordProperty("quantized", tally.quantized);
  RecordProperty("adapted", tally.adapted);
  // A sequence of errors proves nothing.
  EXPECT_LT(tally.refused, tally.done / 2);
  EXPECT_GT(tally.quantized, 0);
  EXPECT_GT(tally.adapted, 0);
}

}  // namespace
}  // namespace bowline::test
