// compare_nets: builds, trains and runs the networks of compare_torch.py with Bowline. nets.py has
// the same networks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "bowline.h"

namespace bowline {
namespace {

constexpr int kWarmup = 3;
constexpr size_t kLeastRuns = 9;
constexpr double kLeastSeconds = 1;
constexpr int64_t kHidden = 256;                // of lstm
constexpr int64_t kSide = 96, kClasses = 1000;  // of mobilenet
constexpr int64_t kPixels = 3 * kSide * kSide;

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

  bool is_lstm() const { return net == "lstm"; }
  std::vector<BoundDim> dims() const {
    return is_lstm() ? std::vector<BoundDim>{{"batch", batch}, {"seq", seq}}
                     : std::vector<BoundDim>{{"batch", batch}};
  }
};

// Ends the program with the message of an error.
void must(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "compare_nets: %s\n", status.message().c_str());
    std::exit(1);
  }
}
template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

// An entry point. All entry points of a model use the same parameters.
struct Graph {
  Graph(Model& of, std::string_view name) : model(of), g(of, name) {}

  Value parameter(const std::string& name, const TensorShape& shape, Init init,
                  StorageRole role = StorageRole::weight) {
    const Result<Parameter> found = model.find(name);
    return g.parameter(found.ok() ? found.value() : must(model.parameter(name, shape, init, role)));
  }

  // A size x size convolution, a norm of its channels and, except at the end of a block, a ReLU6.
  Value layer(Value x, int64_t in, int64_t out, int64_t size, int64_t stride, int64_t groups,
              bool bounded) {
    const std::string name = "layer" + std::to_string(layers++);
    const float bound = std::sqrt(6.0f / static_cast<float>(size * size * in / groups));
    const int64_t pad = size / 2;
    const Value window =
        parameter(name + ".window", {out, in / groups, size, size}, Init::uniform(bound));
    x = g.op("Conv", {x, window},
             {{"pads", {pad, pad, pad, pad}}, {"strides", {stride, stride}}, {"groups", groups}});
    const StorageRole running = StorageRole::running_statistic;
    x = g.op("BatchNorm", {x, parameter(name + ".scale", {out}, Init::ones()),
                           parameter(name + ".bias", {out}, Init::zeros()),
                           parameter(name + ".mean", {out}, Init::zeros(), running),
                           parameter(name + ".variance", {out}, Init::ones(), running)});
    return bounded ? g.op("Clip", {x}, {{"min", 0}, {"max", 6}}) : x;
  }

  Model& model;
  GraphBuilder g;
  int layers = 0;
};

// A byte-level language model: Embedding, an LSTM layer, Linear.
void build_lstm(Model& model) {
  Graph n(model, "loss");
  GraphBuilder& g = n.g;
  const auto matrix = [&](const char* name, int64_t rows) {
    return n.parameter(name, {rows, kHidden}, Init::normal(0.06f));
  };
  Value x =
      g.op("Embedding", {matrix("embedding", 256), g.input("bytes", DType::i32, {"seq", "batch"})});
  x = g.op("Linear",
           {x, matrix("w_in", 4 * kHidden), n.parameter("b", {4 * kHidden}, Init::zeros())});
  const Value h = g.input("h", DType::f32, {"batch", kHidden});
  const Value c = g.input("c", DType::f32, {"batch", kHidden});
  x = g.op("Linear", {g.op("Lstm", {x, matrix("w", 4 * kHidden), h, c}), matrix("head", 256)});
  g.output("loss", g.op("CrossEntropy", {x, g.input("next", DType::i32, {"seq", "batch"})}));
  must(g.finish());
}

// MobileNetV2 of width 1. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks",
// 2018.
void build_mobilenet(Model& model, std::string_view entry_point) {
  struct Blocks {
    int64_t expansion, channels, count, stride;
  };
  constexpr Blocks kBlocks[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  Graph n(model, entry_point);
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
  if (entry_point == "loss") {
    g.output("loss", g.op("CrossEntropy", {x, g.input("labels", DType::i32, {"batch"})}));
  } else {
    g.output("logits", x);
  }
  must(g.finish());
}

// The batches of the data file. All values have 4 bytes.
class Batches {
 public:
  explicit Batches(const Options& o)
      : o_(o),
        words_(static_cast<size_t>(o.batch * (o.is_lstm() ? o.seq + 1 : kPixels + 1))),
        zeros_(static_cast<size_t>(o.batch * kHidden)) {
    std::ifstream file(o.data, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file || bytes.empty() || bytes.size() % (4 * words_) != 0) {
      must(Status(Code::bad_file, "Data file \"" + escaped(o.data) + "\" cannot be read, or has " +
                                      std::to_string(bytes.size()) + " bytes; a batch has " +
                                      std::to_string(4 * words_) + "."));
    }
    data_.resize(bytes.size() / 4);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(data_.data()));
  }

  // The tensors of batch `i`, counted again from the first one after the last.
  std::vector<Tensor> at(size_t i) {
    float* const first = data_.data() + i * words_ % data_.size();
    if (o_.is_lstm()) {
      return {{"bytes", DType::i32, {o_.seq, o_.batch}, first},
              {"next", DType::i32, {o_.seq, o_.batch}, first + o_.batch},
              {"h", DType::f32, {o_.batch, kHidden}, zeros_.data()},
              {"c", DType::f32, {o_.batch, kHidden}, zeros_.data()}};
    }
    return {{"images", DType::f32, {o_.batch, 3, kSide, kSide}, first},
            {"labels", DType::i32, {o_.batch}, first + o_.batch * kPixels}};
  }

 private:
  const Options& o_;
  size_t words_;
  std::vector<float> zeros_;
  std::vector<float> data_;
};

// Calls `once` with the index of the call, `count` times. If `count` is 0, calls it until the
// median is steady. Returns the median in ms.
double median_ms(int64_t count, const std::function<void(size_t)>& once) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  double total = 0;
  for (int64_t i = 0;; ++i) {
    if (count != 0 ? i == count : times.size() >= kLeastRuns && total >= kLeastSeconds) {
      break;
    }
    const Clock::time_point start = Clock::now();
    once(static_cast<size_t>(i));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i >= kWarmup || (count != 0 && count <= kWarmup)) {
      times.push_back(1e3 * seconds);
      total += seconds;
    }
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

void make(const Options& o) {
  Model model;
  if (o.is_lstm()) {
    build_lstm(model);
  } else {
    build_mobilenet(model, "loss");
    build_mobilenet(model, "forward");
  }
  must(model.materialize(1));
  must(model.save(o.model));
}

nlohmann::json train(const Options& o, const Device& device, Model& model) {
  Batches batches(o);
  TrainOptions options;
  options.dims = o.dims();
  options.optimizer = o.is_lstm() ? Optimizer{"adamw", {{"weight_decay", 0.1f}, {"beta2", 0.95f}}}
                                  : Optimizer{"sgd", {{"momentum", 0.9f}}};
  options.schedule.learning_rate = o.is_lstm() ? 1e-3f : 1e-4f;
  Trainer trainer = must(Trainer::create(model, device, options));
  std::vector<float> losses;
  const double ms = median_ms(
      o.steps, [&](size_t i) { losses.push_back(must(trainer.micro_step(batches.at(i)))->loss); });
  if (!o.save.empty()) {
    must(model.save(o.save));
  }
  return {{"time_ms", ms}, {"losses", losses}};
}

nlohmann::json infer(const Options& o, const Device& device, Model& model) {
  Session session = must(Session::create(model, device, "forward", o.dims()));
  std::vector<float> logits(static_cast<size_t>(o.batch * kClasses));
  const Tensor out[] = {{"logits", DType::f32, {o.batch, kClasses}, logits.data()}};
  Batches batches(o);
  const std::vector<Tensor> in = batches.at(0);
  const double ms =
      median_ms(o.steps, [&](size_t) { must(session.run(std::span(in).first(1), out)); });
  if (!o.result.empty()) {
    const std::span<const std::byte> bytes[] = {std::as_bytes(std::span(logits))};
    must(write_file(o.result, bytes));
  }
  return {{"time_ms", ms}};
}

void print_on_device(const Options& o,
                     nlohmann::json (*work)(const Options&, const Device&, Model&)) {
  DeviceOptions device_options;
  device_options.threads = o.threads;
  const Device device = must(Device::open(o.device, device_options));
  Model model = must(Model::open(o.model));
  must(model.to(device));
  std::printf("%s\n", work(o, device, model).dump().c_str());
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
                  "Batches, numbers of 4 bytes: lstm i32 [seq + 1, batch]; mobilenet "
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
  if (make_verb->parsed()) {
    make(o);
  } else {
    print_on_device(o, train_verb->parsed() ? train : infer);
  }
  return 0;
}

}  // namespace bowline

int main(int argc, char** argv) { return bowline::main_of(argc, argv); }
