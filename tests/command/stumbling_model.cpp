// Writes a model of byte pairs. Its loss and gradient are finite except for windows with the byte
// 'Z'. With two_means=true the loss ignores labels behind an 'e', and adds a mean over the logits
// of all labels.
#include <algorithm>
#include <vector>

#include "writer_main.h"

using namespace bowline;

namespace {

constexpr int64_t kBytes = 256;

// The mean of the terms whose previous token is not 'e'.
Value mean_of_some(GraphBuilder& graph, Value logits, Value labels, Value tokens,
                   Parameter counts) {
  const Value terms = graph.op("CrossEntropy", {logits, labels}, {{"reduction", "none"}});
  const Value counted = graph.op("Gather", {graph.parameter(counts), tokens});
  return graph.op("Div", {graph.op("ReduceSum", {graph.op("Mul", {terms, counted})}),
                          graph.op("ReduceSum", {counted})});
}

// `counts` is the weight of the second loss by token.
Status add_loss(Model& model, Parameter pairs, std::optional<Parameter> counts) {
  GraphBuilder graph(model, "loss");
  const Value tokens = graph.input("tokens", DType::i32, {"batch", "seq"});
  const Value labels = graph.input("labels", DType::i32, {"batch", "seq"});
  const Value x = graph.op("Embedding", {graph.parameter(pairs), tokens});
  const Value logits = graph.op("Add", {x, x});
  if (counts) {
    const Value mean = mean_of_some(graph, logits, labels, tokens, *counts);
    const Value squares = graph.op("ReduceMean", {graph.op("Mul", {logits, logits})});
    graph.output("loss", graph.op("Add", {mean, squares}));
  } else {
    graph.output("loss", graph.op("CrossEntropy", {logits, labels}));
  }
  return graph.finish();
}

}  // namespace

const char* const kArguments = "FILE [two_means=true]";

Status write_model(const std::string& path, const Options& options) {
  Model model;
  const std::vector<int64_t> shape = {kBytes, kBytes};
  BOWLINE_TRY_ASSIGN(const Parameter pairs, model.parameter("pairs", shape, Init::zeros()));
  std::optional<Parameter> counts;
  if (options.contains("two_means")) {
    BOWLINE_TRY_ASSIGN(counts, model.parameter("counts", {kBytes}, Init::ones()));
    BOWLINE_TRY(model.freeze("counts"));
  }
  BOWLINE_TRY(add_loss(model, pairs, counts));
  BOWLINE_TRY(model.materialize(1));
  std::vector<float> values(kBytes * kBytes);
  std::fill_n(values.begin() + 'Z' * kBytes, kBytes, 3e38f);  // twice this value exceeds f32
  BOWLINE_TRY(model.set_value("pairs", {"pairs", DType::f32, shape, values.data()}));
  if (counts) {
    const std::vector<int64_t> bytes = {kBytes};
    std::vector<float> each(kBytes, 1);
    each['e'] = 0;
    BOWLINE_TRY(model.set_value("counts", {"counts", DType::f32, bytes, each.data()}));
  }
  return model.save(path);
}
