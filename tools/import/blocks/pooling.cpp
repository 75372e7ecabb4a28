#include "blocks/pooling.h"

namespace bowline::import {
namespace {

// 1 for rows within the length of their sequence, 0 for others: f32 [batch, seq, 1]. `last`: 1 only
// for the last of these rows.
Value counted_rows(GraphBuilder& g, Value tokens, Value lengths, bool last) {
  const Value ones = g.op("Cast", {g.op("Equal", {tokens, tokens})}, {{"to", "i32"}});
  const Value index = g.op("CumSum", {ones}, {{"axis", 1}, {"exclusive", !last}});
  const Value column = g.op("Reshape", {lengths}, {{"dims", {"batch", 1}}});
  const Value mask =
      g.op("Cast", {g.op(last ? "Equal" : "Less", {index, column})}, {{"to", "f32"}});
  return g.op("Reshape", {mask}, {{"dims", {"batch", "seq", 1}}});
}

}  // namespace

Value pool(GraphBuilder& g, Value hidden, Value tokens, Value lengths, std::string_view mode,
           int64_t width) {
  const std::vector<GraphDim> rows = {1};
  if (mode == "cls") {
    const Value first = g.op("Slice", {hidden}, {{"axis", 1}, {"length", 1}});
    return g.op("Reshape", {first}, {{"dims", {"batch", width}}});
  }
  const Value mask = counted_rows(g, tokens, lengths, mode == "last");
  if (mode == "max") {  // log 0 = -infinity excludes the other rows
    return g.op("ReduceMax", {g.op("Add", {hidden, g.op("Log", {mask})})}, {{"axes", rows}});
  }
  const Value sum = g.op("ReduceSum", {g.op("Mul", {hidden, mask})}, {{"axes", rows}});
  if (mode == "last") {
    return sum;
  }
  const Value count = g.op("ReduceSum", {mask}, {{"axes", rows}});
  return g.op("Div", {sum, g.op("Clip", {count}, {{"min", 1e-9}})});
}

Value normalized(GraphBuilder& g, Value rows) {
  const std::vector<GraphDim> last = {1};
  const Value squares =
      g.op("ReduceSum", {g.op("Square", {rows})}, {{"axes", last}, {"keep_dims", true}});
  return g.op("Div", {rows, g.op("Clip", {g.op("Sqrt", {squares})}, {{"min", 1e-12}})});
}

}  // namespace bowline::import
