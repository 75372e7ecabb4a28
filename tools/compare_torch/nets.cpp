// compare_nets: builds, trains and runs the networks of compare_torch.py with Bowline. nets.py has
// the same networks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "bowline.h"

namespace bowline {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kWarmup = 3;
constexpr size_t kLeastRuns = 9;
constexpr double kLeastSeconds = 1;

struct Options {
  std::string net;
  std::string model;
  std::string data;
  std::string device = "cpu";
  std::string save;
  std::string result;
  int64_t batch = 1;
  int64_t seq = 64;
  int64_t steps = 0;
  int threads = 0;
};

// A network with its entry points and batches. All values of a batch have 4 bytes.
class Net {
 public:
  virtual ~Net() = default;
  virtual Status build(Model& model) const = 0;
  // Returns the tensors of batch `at`, as views of the data.
  virtual std::vector<Tensor> batch(std::vector<float>& data, size_t at) = 0;
  virtual size_t words() const = 0;
  virtual std::vector<BoundDim> dims() const = 0;
  virtual Optimizer optimizer() const = 0;
  virtual TensorShape logits() const = 0;
};

// A byte-level language model: Embedding, an LSTM layer, Linear.
class LstmNet : public Net {
 public:
  explicit LstmNet(const Options& o) : batch_(o.batch), seq_(o.seq) {}

  Status build(Model& model) const override {
    GraphBuilder g(model, "loss");
    Status status;
    const auto parameter = [&](const char* name, const TensorShape& shape) {
      Result<Parameter> made =
          model.parameter(name, shape, shape.size() > 1 ? Init::normal(0.06f) : Init::zeros());
      if (!made.ok()) {
        status = made.status();
        return Value();
      }
      return g.parameter(made.value());
    };
    Value x = g.input("bytes", DType::i32, {"seq", "batch"});
    x = g.op("Embedding", {parameter("embedding", {256, kHidden}), x});
    x = g.op("Linear",
             {x, parameter("w_in", {4 * kHidden, kHidden}), parameter("b", {4 * kHidden})});
    const Value h = g.input("h", DType::f32, {"batch", kHidden});
    const Value c = g.input("c", DType::f32, {"batch", kHidden});
    x = g.op("Lstm", {x, parameter("w", {4 * kHidden, kHidden}), h, c});
    x = g.op("Linear", {x, parameter("head", {256, kHidden})});
    g.output("loss", g.op("CrossEntropy", {x, g.input("next", DType::i32, {"seq", "batch"})}));
    BOWLINE_TRY(status);
    return g.finish();
  }

  // The data has rows of seq + 1 bytes. In the tensor a sequence is a column.
  std::vector<Tensor> batch(std::vector<float>& data, size_t at) override {
    const auto* rows = reinterpret_cast<const int32_t*>(data.data()) + at * words();
    bytes_.resize(words());
    for (int64_t b = 0; b < batch_; ++b) {
      for (int64_t t = 0; t <= seq_; ++t) {
        bytes_[static_cast<size_t>(t * batch_ + b)] = rows[b * (seq_ + 1) + t];
      }
    }
    zeros_.resize(static_cast<size_t>(batch_ * kHidden));
    return {{"bytes", DType::i32, {seq_, batch_}, bytes_.data()},
            {"next", DType::i32, {seq_, batch_}, bytes_.data() + batch_},
            {"h", DType::f32, {batch_, kHidden}, zeros_.data()},
            {"c", DType::f32, {batch_, kHidden}, zeros_.data()}};
  }
  size_t words() const override { return static_cast<size_t>(batch_ * (seq_ + 1)); }
  std::vector<BoundDim> dims() const override { return {{"batch", batch_}, {"seq", seq_}}; }
  Optimizer optimizer() const override {
    return {"adamw", {{"weight_decay", 0.1f}, {"beta2", 0.95f}}};
  }
  TensorShape logits() const override { return {}; }

 private:
  static constexpr int64_t kHidden = 256;
  int64_t batch_;
  int64_t seq_;
  std::vector<int32_t> bytes_;
  std::vector<float> zeros_;
};

// MobileNetV2 of width 1 on 96 x 96 pixels, 1000 classes. Sandler et al., "MobileNetV2: Inverted
// Residuals and Linear Bottlenecks", 2018.
class MobileNet : public Net {
 public:
  explicit MobileNet(const Options& o) : batch_(o.batch) {}

  Status build(Model& model) const override {
    BOWLINE_TRY(entry_point(model, "loss"));
    return entry_point(model, "forward");
  }

  std::vector<Tensor> batch(std::vector<float>& data, size_t at) override {
    float* const images = data.data() + at * words();
    return {{"images", DType::f32, {batch_, 3, kSide, kSide}, images},
            {"labels", DType::i32, {batch_}, images + batch_ * 3 * kSide * kSide}};
  }
  size_t words() const override { return static_cast<size_t>(batch_ * (3 * kSide * kSide + 1)); }
  std::vector<BoundDim> dims() const override { return {{"batch", batch_}}; }
  Optimizer optimizer() const override { return {"sgd", {{"momentum", 0.9f}}}; }
  TensorShape logits() const override { return {batch_, kClasses}; }

 private:
  static constexpr int64_t kSide = 96;
  static constexpr int64_t kClasses = 1000;

  // An entry point. Both entry points use the same parameters.
  class Graph {
   public:
    Graph(Model& model, std::string_view name) : g(model, name), model_(model) {}

    Value parameter(const std::string& name, const TensorShape& shape, Init init,
                    StorageRole role = StorageRole::weight) {
      Result<Parameter> found = model_.find(name);
      if (!found.ok()) {
        found = model_.parameter(name, shape, init, role);
      }
      if (!found.ok()) {
        status = found.status();
        return {};
      }
      return g.parameter(found.value());
    }

    // A size x size convolution, a norm of its channels and, except at the end of a block, a ReLU6.
    Value layer(Value x, int64_t in, int64_t out, int64_t size, int64_t stride, int64_t groups,
                bool bounded) {
      const std::string name = "layer" + std::to_string(layers_++);
      const float bound = std::sqrt(6.0f / static_cast<float>(size * size * in / groups));
      const Value window =
          parameter(name + ".window", {out, in / groups, size, size}, Init::uniform(bound));
      const int64_t pad = size / 2;
      x = g.op("Conv", {x, window},
               {{"pads", {pad, pad, pad, pad}}, {"strides", {stride, stride}}, {"groups", groups}});
      const StorageRole running = StorageRole::running_statistic;
      const Value scale = parameter(name + ".scale", {out}, Init::ones());
      const Value bias = parameter(name + ".bias", {out}, Init::zeros());
      const Value mean = parameter(name + ".mean", {out}, Init::zeros(), running);
      const Value variance = parameter(name + ".variance", {out}, Init::ones(), running);
      x = g.op("BatchNorm", {x, scale, bias, mean, variance});
      return bounded ? g.op("Clip", {x}, {{"min", 0}, {"max", 6}}) : x;
    }

    GraphBuilder g;
    Status status;

   private:
    Model& model_;
    int layers_ = 0;
  };

  Status entry_point(Model& model, std::string_view name) const {
    struct Blocks {
      int64_t expansion, channels, count, stride;
    };
    constexpr Blocks kBlocks[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    Graph n(model, name);
    GraphBuilder& g = n.g;
    Value x = g.input("images", DType::f32, {"batch", 3, kSide, kSide});
    int64_t in = 32;
    x = n.layer(x, 3, in, 3, 2, 1, true);
    for (const Blocks& blocks : kBlocks) {
      for (int64_t i = 0; i < blocks.count; ++i) {
        const int64_t stride = i == 0 ? blocks.stride : 1;
        const int64_t wide = in * blocks.expansion;
        Value y = blocks.expansion == 1 ? x : n.layer(x, in, wide, 1, 1, 1, true);
        y = n.layer(y, wide, wide, 3, stride, wide, true);
        y = n.layer(y, wide, blocks.channels, 1, 1, 1, false);
        x = stride == 1 && in == blocks.channels ? g.op("Add", {x, y}) : y;
        in = blocks.channels;
      }
    }
    x = g.op("GlobalAveragePool", {n.layer(x, in, 1280, 1, 1, 1, true)});
    x = g.op("Reshape", {x}, {{"dims", {-1, 1280}}});
    x = g.op("Linear", {x, n.parameter("head", {kClasses, 1280}, Init::uniform(0.03f)),
                        n.parameter("head.bias", {kClasses}, Init::zeros())});
    if (name == "loss") {
      g.output("loss", g.op("CrossEntropy", {x, g.input("labels", DType::i32, {"batch"})}));
    } else {
      g.output("logits", x);
    }
    BOWLINE_TRY(n.status);
    return g.finish();
  }

  int64_t batch_;
};

std::unique_ptr<Net> net_of(const Options& o) {
  if (o.net == "lstm") {
    return std::make_unique<LstmNet>(o);
  }
  return std::make_unique<MobileNet>(o);
}

Result<std::vector<float>> read_data(const std::string& path, size_t words) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file || bytes.empty() || bytes.size() % (4 * words) != 0) {
    return Status(Code::bad_file, "Data file \"" + escaped(path) + "\" cannot be read, or has " +
                                      std::to_string(bytes.size()) + " bytes; a batch has " +
                                      std::to_string(4 * words) + ".");
  }
  std::vector<float> data(bytes.size() / 4);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(data.data()));
  return data;
}

// Calls `once` with the index of the call, `count` times. If `count` is 0, calls it until the
// median is steady. Returns the median in ms.
Result<double> median_ms(int64_t count, const std::function<Status(size_t)>& once) {
  std::vector<double> times;
  double total = 0;
  for (int64_t i = 0;; ++i) {
    if (count != 0 ? i == count : times.size() >= kLeastRuns && total >= kLeastSeconds) {
      break;
    }
    const Clock::time_point start = Clock::now();
    BOWLINE_TRY(once(static_cast<size_t>(i)));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i >= kWarmup || (count != 0 && count <= kWarmup)) {
      times.push_back(1e3 * seconds);
      total += seconds;
    }
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

Status make(const Options& o) {
  Model model;
  BOWLINE_TRY(net_of(o)->build(model));
  BOWLINE_TRY(model.materialize(1));
  return model.save(o.model);
}

Result<nlohmann::json> train_net(const Options& o, const Device& device, Model& model) {
  const std::unique_ptr<Net> net = net_of(o);
  BOWLINE_TRY_ASSIGN(std::vector<float> data, read_data(o.data, net->words()));
  TrainOptions options;
  options.dims = net->dims();
  options.optimizer = net->optimizer();
  options.schedule.learning_rate = o.net == "lstm" ? 1e-3f : 1e-4f;
  BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(model, device, options));
  const size_t batches = data.size() / net->words();
  std::vector<float> losses;
  std::vector<Tensor> batch;
  BOWLINE_TRY_ASSIGN(const double ms, median_ms(o.steps, [&](size_t i) -> Status {
                       batch = net->batch(data, i % batches);
                       BOWLINE_TRY_ASSIGN(const std::optional<StepReport> report,
                                          trainer.micro_step(batch));
                       losses.push_back(report->loss);
                       return {};
                     }));
  nlohmann::json j = {{"time_ms", ms}, {"losses", losses}};
  if (!o.save.empty()) {
    BOWLINE_TRY(model.save(o.save));
  }
  return j;
}

Result<nlohmann::json> run_net(const Options& o, const Device& device, Model& model) {
  const std::unique_ptr<Net> net = net_of(o);
  BOWLINE_TRY_ASSIGN(std::vector<float> data, read_data(o.data, net->words()));
  BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, "forward", net->dims()));
  const TensorShape shape = net->logits();
  std::vector<float> logits(static_cast<size_t>(shape[0] * shape[1]));
  const Tensor out[] = {{"logits", DType::f32, shape, logits.data()}};
  std::vector<Tensor> in = net->batch(data, 0);
  in.pop_back();  // the labels
  BOWLINE_TRY_ASSIGN(const double ms,
                     median_ms(o.steps, [&](size_t) { return session.run(in, out); }));
  nlohmann::json j = {{"time_ms", ms}};
  if (!o.result.empty()) {
    const std::span<const std::byte> bytes[] = {std::as_bytes(std::span(logits))};
    BOWLINE_TRY(write_file(o.result, bytes));
  }
  return j;
}

Status on_device(const Options& o, const auto& work) {
  DeviceOptions device_options;
  device_options.threads = o.threads;
  BOWLINE_TRY_ASSIGN(const Device device, Device::open(o.device, device_options));
  BOWLINE_TRY_ASSIGN(Model model, Model::open(o.model));
  BOWLINE_TRY(model.to(device));
  BOWLINE_TRY_ASSIGN(const nlohmann::json j, work(o, device, model));
  std::printf("%s\n", j.dump().c_str());
  return {};
}

}  // namespace

int main_of(int argc, char** argv) {
  CLI::App app(
      "Makes, trains and runs the networks of compare_torch.py, and prints times and losses as "
      "JSON");
  app.footer(
      "example: compare_nets make lstm lstm.bowline\n"
      "         compare_nets train lstm lstm.bowline --data tokens.bin --batch 16 --seq 64\n\n"
      "exit codes: 0 done, 1 it failed, 2 wrong usage");
  app.require_subcommand(1);
  Options o;
  const auto verb = [&](const char* name, const char* what, const std::vector<std::string>& nets) {
    CLI::App* v = app.add_subcommand(name, what);
    v->add_option("net", o.net, "Network")->required()->check(CLI::IsMember(nets));
    v->add_option("model", o.model, "Model file")->required();
    return v;
  };
  const auto timed = [&](CLI::App* v) {
    v->add_option("--data", o.data,
                  "Batches, numbers of 4 bytes: lstm i32 [batch, seq + 1]; mobilenet "
                  "f32 images [batch, 3, 96, 96], then i32 labels [batch]")
        ->required();
    v->add_option("--batch", o.batch, "Rows per batch")->check(CLI::Range(1, 1 << 16));
    v->add_option("--steps", o.steps, "How often (0: until the median is steady)")
        ->check(CLI::Range(0, 1 << 20));
    v->add_option("--threads", o.threads, "CPU threads (0: one per core it may use)")
        ->check(CLI::Range(0, 1024));
    v->add_option("--device", o.device, "Device, as `bowline devices` lists it");
  };
  CLI::App* make_verb = verb("make", "Writes a model with new weights", {"lstm", "mobilenet"});
  CLI::App* train_verb = verb("train", "Times training steps", {"lstm", "mobilenet"});
  timed(train_verb);
  train_verb->add_option("--seq", o.seq, "Bytes per row of lstm")->check(CLI::Range(1, 1 << 16));
  train_verb->add_option("--save", o.save, "Where the trained model is written");
  CLI::App* run_verb = verb("run", "Times inference on the first batch", {"mobilenet"});
  timed(run_verb);
  run_verb->add_option("--result", o.result, "Where the logits are written, f32 [batch, 1000]");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const Status status = make_verb->parsed()    ? make(o)
                        : train_verb->parsed() ? on_device(o, train_net)
                                               : on_device(o, run_net);
  if (!status.ok()) {
    std::fprintf(stderr, "compare_nets: %s\n", status.message().c_str());
  }
  return status.ok() ? 0 : 1;
}

}  // namespace bowline

int main(int argc, char** argv) { return bowline::main_of(argc, argv); }
