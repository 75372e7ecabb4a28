// Makes a byte-level decoder-only transformer with random weights. The embedding is tied to the
// head.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "bowline.h"

using namespace bowline;

namespace {

void must(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "make_model: %s\n", status.message().c_str());
    std::exit(1);
  }
}
template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

struct Sizes {
  int layers;
  int channels;
  int heads;
  double dropout;
};

// The parameters of the model. A list has a parameter per layer.
struct Weights {
  Parameter embedding, head, final_norm;
  ParameterList attention_norm, q, k, v, out, mlp_norm, up, down;
};

constexpr int64_t kVocabulary = 256;

Weights declare(Model& model, const Sizes& sizes) {
  const int64_t c = sizes.channels;
  const Init normal = Init::normal(0.08f);
  // Each layer adds two branches to the residual stream. This scale keeps the size of the sum.
  const Init branch = Init::normal(0.08f / std::sqrt(2.0f * static_cast<float>(sizes.layers)));
  const auto list = [&](const char* name, const std::vector<int64_t>& shape, Init init) {
    return must(model.parameters(std::string("blocks.{}.") + name, sizes.layers, shape, init));
  };
  Weights w;
  w.embedding = must(model.parameter("embedding.weight", std::vector{kVocabulary, c}, normal));
  w.head = must(model.tied_parameter("head.weight", w.embedding));
  w.attention_norm = list("attention_norm.weight", {c}, Init::ones());
  w.q = list("attention.q.weight", {c, c}, normal);
  w.k = list("attention.k.weight", {c, c}, normal);
  w.v = list("attention.v.weight", {c, c}, normal);
  w.out = list("attention.out.weight", {c, c}, branch);
  w.mlp_norm = list("mlp_norm.weight", {c}, Init::ones());
  w.up = list("mlp.up.weight", {4 * c, c}, normal);
  w.down = list("mlp.down.weight", {c, 4 * c}, branch);
  w.final_norm = must(model.parameter("final_norm.weight", std::vector{c}, Init::ones()));
  return w;
}

// One layer: x + attention(norm(x)), then x + mlp(norm(x)).
Value layer(GraphBuilder& g, Value x, const Sizes& sizes, const Weights& w) {
  const auto linear = [&](Value v, const ParameterList& p) {
    return g.op("Linear", {v, g.parameter(p)});
  };
  const auto heads = [&](Value v) {
    const GraphDim size = sizes.channels / sizes.heads;
    return g.op("Reshape", {v}, {{"dims", {"batch", "seq", sizes.heads, size}}});
  };
  const auto dropout = [&](Value v, double stream) {
    return sizes.dropout == 0 ? v
                              : g.op("Dropout", {v}, {{"rate", sizes.dropout}, {"stream", stream}});
  };
  Value y = g.op("RmsNorm", {x, g.parameter(w.attention_norm)});
  const Value q = g.op("Rope", {heads(linear(y, w.q))});
  const Value k = g.op("Rope", {heads(linear(y, w.k))});
  y = g.op("Attention", {q, k, heads(linear(y, w.v))}, {{"causal", 1}});
  y = g.op("Reshape", {y}, {{"dims", {"batch", "seq", sizes.channels}}});
  x = g.op("Add", {x, dropout(linear(y, w.out), 0)});
  y = g.op("RmsNorm", {x, g.parameter(w.mlp_norm)});
  y = g.op("Gelu", {linear(y, w.up)});
  return g.op("Add", {x, dropout(linear(y, w.down), 1)});
}

// Entry point "forward": tokens -> logits. Entry point "loss": tokens, labels -> loss.
void add_graph(Model& model, const std::string& name, const Sizes& sizes, const Weights& w) {
  GraphBuilder g(model, name);
  const Value tokens = g.input("tokens", DType::i32, {"batch", "seq"});
  Value x = g.op("Embedding", {g.parameter(w.embedding), tokens});
  x = g.repeat(sizes.layers, {x}, [&](GraphBuilder& body, const std::vector<Value>& carried) {
         return std::vector{layer(body, carried[0], sizes, w)};
       }).at(0);
  x = g.op("RmsNorm", {x, g.parameter(w.final_norm)});
  const Value logits = g.op("Linear", {x, g.parameter(w.head)});
  if (name == "forward") {
    g.output("logits", logits);
  } else {
    const Value labels = g.input("labels", DType::i32, {"batch", "seq"});
    g.output("loss", g.op("CrossEntropy", {logits, labels}));
  }
  must(g.finish());
}

int usage() {
  std::fprintf(stderr,
               "usage: make_model [--layers 5] [--channels 128] [--heads 4] [--dropout 0] "
               "[--seed 1] OUT\n"
               "channels / heads is even; example: make_model --seed 7 fresh.bowline\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {{"--layers", "5"},
                                              {"--channels", "128"},
                                              {"--heads", "4"},
                                              {"--dropout", "0"},
                                              {"--seed", "1"}};
  int i = 1;
  for (; i + 1 < argc; i += 2) {
    if (!flags.contains(argv[i])) {
      return usage();
    }
    flags[argv[i]] = argv[i + 1];
  }
  const Sizes sizes = {std::atoi(flags["--layers"].c_str()), std::atoi(flags["--channels"].c_str()),
                       std::atoi(flags["--heads"].c_str()), std::atof(flags["--dropout"].c_str())};
  if (i + 1 != argc || argv[i][0] == '-' || sizes.layers < 1 || sizes.heads < 1 ||
      sizes.channels < 1 || sizes.channels % (2 * sizes.heads) != 0) {
    return usage();
  }
  Model model;
  const Weights weights = declare(model, sizes);
  add_graph(model, "loss", sizes, weights);
  add_graph(model, "forward", sizes, weights);
  must(model.set_metadata("tokenizer", "bytes"));
  must(model.materialize(std::strtoull(flags["--seed"].c_str(), nullptr, 10)));
  must(model.save(argv[i]));
  std::printf("written: %s\nties\n%s", argv[i], model.ties().c_str());
  return 0;
}
