// Writes a model of byte pairs whose loss and gradient are finite, but for windows with the byte 'Z'.
#include <algorithm>
#include <vector>

#include "writer_main.h"

using namespace bowline;

namespace {

constexpr int64_t kBytes = 256;

Status add_loss(Model& model, Parameter pairs) {
  GraphBuilder graph(model, "loss");
  const Value tokens = graph.input("tokens", DType::i32, {"batch", "seq"});
  const Value labels = graph.input("labels", DType::i32, {"batch", "seq"});
  const Value x = graph.op("Embedding", {graph.parameter(pairs), tokens});
  const Value logits = graph.op("Add", {x, x});
  graph.output("loss", graph.op("CrossEntropy", {logits, labels}));
  return graph.finish();
}

}  // namespace

const char* const kArguments = "FILE";

Status write_model(const std::string& path, const Options&) {
  Model model;
  const std::vector<int64_t> shape = {kBytes, kBytes};
  const Result<Parameter> pairs = model.parameter("pairs", shape, Init::zeros());
  if (!pairs.ok()) {
    return pairs.status();
  }
  if (Status s = add_loss(model, pairs.value()); !s.ok()) {
    return s;
  }
  if (Status s = model.materialize(1); !s.ok()) {
    return s;
  }
  std::vector<float> values(kBytes * kBytes);
  std::fill_n(values.begin() + 'Z' * kBytes, kBytes, 3e38f);  // twice that is no f32
  if (Status s = model.set_value("pairs", {"pairs", DType::f32, shape, values.data()}); !s.ok()) {
    return s;
  }
  return model.save(path);
}
