#include "blocks/embed_losses.h"

#include "base/status.h"
#include "blocks/pooling.h"

namespace bowline::import {
namespace {

// Random streams of a set of texts.
constexpr int kStreamsOfTexts = 1 << 20;
constexpr double kLeastSquare = 1e-12;  // of a distance, whose gradient is infinite at 0

class Losses {
 public:
  Losses(Model& model, const TextHead& head, const AddRows& rows, int64_t width, bool dropout)
      : model_(model), head_(head), rows_(rows), width_(width), dropout_(dropout) {}

  Status add_ranking(const char* entry, size_t texts) const {
    GraphBuilder g(model_, entry);
    const std::vector<Embedded> all = vectors(g, texts);
    const Value numbers = numbers_of_rows(g, all[0].tokens);
    const Value scale = constant(g, head_.similarity_scale);
    output_sum(g, all, true, [&](const std::vector<Value>& rows) {
      std::vector<Value> cosines;
      for (size_t i = 1; i < texts; ++i) {
        cosines.push_back(g.op("MatMul", {rows[0], rows[i]}, {{"transpose_b", true}}));
      }
      const Value scores = texts == 2 ? cosines[0] : g.op("Concat", cosines, {{"axis", 1}});
      return g.op("CrossEntropy", {g.op("Mul", {scores, scale}), numbers});
    });
    return g.finish();
  }

  Status add_triplets() const {
    GraphBuilder g(model_, "triplet_loss");
    const Value margin = constant(g, head_.triplet_margin);
    output_sum(g, vectors(g, 3), !head_.widths.empty(), [&](const std::vector<Value>& rows) {
      const Value gap = g.op("Sub", {distance(g, rows[0], rows[1]), distance(g, rows[0], rows[2])});
      return g.op("ReduceMean", {g.op("Relu", {g.op("Add", {gap, margin})})});
    });
    return g.finish();
  }

  Status add_scores() const {
    GraphBuilder g(model_, "score_loss");
    const std::vector<Embedded> all = vectors(g, 2);
    const Value scores = g.input("scores", DType::f32, {"batch"});
    output_sum(g, all, true, [&](const std::vector<Value>& rows) {
      const Value products = g.op("Mul", {rows[0], rows[1]});
      const Value cosines = g.op("ReduceSum", {products}, {{"axes", kChannels}});
      return g.op("MeanSquaredError", {cosines, scores});
    });
    return g.finish();
  }

 private:
  inline static const std::vector<GraphDim> kChannels = {1};

  std::vector<Embedded> vectors(GraphBuilder& g, size_t texts) const {
    const char* const prefixes[] = {"", "second_", "third_"};
    std::vector<Embedded> out;
    for (size_t i = 0; i < texts; ++i) {
      out.push_back(embed(g, head_, rows_,
                          {dropout_, prefixes[i], static_cast<int>(i) * kStreamsOfTexts}, width_));
    }
    return out;
  }

  // Adds the output "loss": the sum of a loss of the embeddings of each width.
  template <class Of>
  void output_sum(GraphBuilder& g, const std::vector<Embedded>& all, bool normalizes,
                  const Of& loss) const {
    std::vector<int64_t> widths = head_.widths;
    widths.insert(widths.begin(), width_);
    std::optional<Value> sum;
    for (const int64_t width : widths) {
      std::vector<Value> rows;
      for (const Embedded& texts : all) {
        const Value part = width == width_
                               ? texts.vectors
                               : g.op("Slice", {texts.vectors}, {{"axis", 1}, {"length", width}});
        rows.push_back(normalizes ? normalized(g, part) : part);
      }
      const Value own = loss(rows);
      sum = sum ? g.op("Add", {*sum, own}) : own;
    }
    g.output("loss", *sum);
  }

  static Value constant(GraphBuilder& g, const Weight& weight) {
    return g.parameter(std::get<Parameter>(weight.of));
  }

  // 0 to batch - 1.
  static Value numbers_of_rows(GraphBuilder& g, Value tokens) {
    const Value column = g.op("Slice", {tokens}, {{"axis", 1}, {"length", 1}});
    const Value first = g.op("Reshape", {column}, {{"dims", {"batch"}}});
    const Value ones = g.op("Cast", {g.op("Equal", {first, first})}, {{"to", "i32"}});
    return g.op("CumSum", {ones}, {{"axis", 0}, {"exclusive", true}});
  }

  static Value distance(GraphBuilder& g, Value a, Value b) {
    const Value difference = g.op("Sub", {a, b});
    const Value squares = g.op("ReduceSum", {g.op("Square", {difference})}, {{"axes", kChannels}});
    return g.op("Sqrt", {g.op("Clip", {squares}, {{"min", kLeastSquare}})});
  }

  Model& model_;
  const TextHead& head_;
  const AddRows& rows_;
  int64_t width_;
  bool dropout_;
};

}  // namespace

Embedded embed(GraphBuilder& g, const TextHead& head, const AddRows& rows, const RowsOf& of,
               int64_t width) {
  const HiddenRows r = rows(g, of);
  const Value lengths =
      r.lengths ? *r.lengths : g.input(of.prefix + "lengths", DType::i32, {"batch"});
  const Value vectors = pool(g, r.hidden, r.tokens, lengths, head.pooling, width);
  return {head.normalize ? normalized(g, vectors) : vectors, r.tokens};
}

Status add_embed_losses(Model& model, const TextHead& head, const AddRows& rows, int64_t width,
                        bool dropout) {
  const Losses losses(model, head, rows, width, dropout);
  BOWLINE_TRY(losses.add_ranking("loss", 2));
  BOWLINE_TRY(losses.add_ranking("loss_with_negatives", 3));
  BOWLINE_TRY(losses.add_triplets());
  return losses.add_scores();
}

}  // namespace bowline::import
