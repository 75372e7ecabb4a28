// Writes a small encoder that reads bytes and classifies texts. It applies attention to a text that
// is padded on the right. The first row is the input of a head with 3 classes. With several=true a
// text can have several classes.
#include "writer_main.h"

using namespace bowline;

namespace {

constexpr int64_t kBytes = 256, kWidth = 16, kHeads = 2, kClasses = 3;

struct Encoder {
  Parameter embedding, q, k, v, head, bias, weights;
  bool several = false;

  Value rows(GraphBuilder& g, Value tokens, Value lengths) const {
    const auto heads = [&](Value x) {
      return g.op("Reshape", {x}, {{"dims", {"batch", "seq", kHeads, kWidth / kHeads}}});
    };
    const auto linear = [&](Value x, Parameter p) { return g.op("Linear", {x, g.parameter(p)}); };
    const Value x = g.op("Embedding", {g.parameter(embedding), tokens});
    const Value query = g.op("Rope", {heads(linear(x, q))});
    const Value key = g.op("Rope", {heads(linear(x, k))});
    Value y = g.op("Attention", {query, key, heads(linear(x, v)), lengths}, {{"mask", "lengths"}});
    y = g.op("Reshape", {y}, {{"dims", {"batch", "seq", kWidth}}});
    y = g.op("Slice", {y}, {{"axis", 1}, {"length", 1}});
    return g.op("Reshape", {y}, {{"dims", {"batch", kWidth}}});
  }

  // The mean weights each text by the weight of its class.
  Value loss(GraphBuilder& g, Value logits) const {
    if (several) {
      const Value targets = g.input("targets", DType::f32, {"batch", kClasses});
      return g.op("BinaryCrossEntropy", {logits, targets});
    }
    const Value labels = g.input("labels", DType::i32, {"batch"});
    const Value terms = g.op("CrossEntropy", {logits, labels}, {{"reduction", "none"}});
    // The terms are f32 for every dtype of the weights.
    const Value share =
        g.op("Cast", {g.op("Gather", {g.parameter(weights), labels})}, {{"to", "f32"}});
    const Value sum = g.op("ReduceSum", {g.op("Mul", {terms, share})});
    return g.op("Div", {sum, g.op("ReduceSum", {share})});
  }

  Status add(Model& model, std::string_view name) const {
    GraphBuilder g(model, name);
    const Value tokens = g.input("tokens", DType::i32, {"batch", "seq"});
    const Value lengths = g.input("lengths", DType::i32, {"batch"});
    const Value pooled = rows(g, tokens, lengths);
    if (name == "embed") {
      g.output("embedding", pooled);
      return g.finish();
    }
    const Value logits = g.op("Linear", {pooled, g.parameter(head), g.parameter(bias)});
    if (name == "loss") {
      g.output("loss", loss(g, logits));
    } else {
      g.output("logits", logits);
    }
    return g.finish();
  }
};

}  // namespace

const char* const kArguments = "FILE [several=true]";

Status write_model(const std::string& path, const Options& options) {
  Model model;
  Encoder e;
  e.several = options.contains("several");
  const auto matrix = [&](const char* name, int64_t rows) {
    return model.parameter(name, {rows, kWidth}, Init::normal(0.3f));
  };
  BOWLINE_TRY_ASSIGN(e.embedding, matrix("embeddings.weight", kBytes));
  BOWLINE_TRY_ASSIGN(e.q, matrix("encoder.query.weight", kWidth));
  BOWLINE_TRY_ASSIGN(e.k, matrix("encoder.key.weight", kWidth));
  BOWLINE_TRY_ASSIGN(e.v, matrix("encoder.value.weight", kWidth));
  BOWLINE_TRY_ASSIGN(e.head, matrix("classifier.weight", kClasses));
  BOWLINE_TRY_ASSIGN(e.bias, model.parameter("classifier.bias", {kClasses}, Init::zeros()));
  BOWLINE_TRY_ASSIGN(
      e.weights, model.parameter("class_weights", {kClasses}, Init::ones(), StorageRole::constant));
  for (const char* name : {"loss", "classify", "embed"}) {
    BOWLINE_TRY(e.add(model, name));
  }
  BOWLINE_TRY(model.set_metadata("tokenizer", "bytes"));
  BOWLINE_TRY(model.set_metadata("task", "classify"));
  BOWLINE_TRY(model.set_metadata("multi_label", e.several ? "true" : ""));
  BOWLINE_TRY(model.set_metadata("max_tokens", "64"));
  BOWLINE_TRY(model.materialize(1));
  return model.save(path);
}
