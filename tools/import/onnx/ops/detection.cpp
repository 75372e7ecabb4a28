// Non-maximum suppression.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/escape.h"
#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

constexpr int64_t kMostPicks = 1000;  // per class; each pick becomes separate nodes
constexpr float kGone = -std::numeric_limits<float>::infinity();

// The corners of boxes [batch, n, 4], each as [batch, 1, n].
struct Corners {
  Term top, left, bottom, right;
};

Corners corners_of(Context& c, const Term& boxes, bool centred_boxes) {
  const Dims flat = {boxes.dims[0], 1, boxes.dims[1]};
  const auto column = [&](int64_t i) { return c.m.reshape(c.m.slice(boxes, 2, i, 1), flat); };
  if (centred_boxes) {  // x, y, width, height
    const Term width = column(2) * 0.5, height = column(3) * 0.5;
    return {column(1) - height, column(0) - width, column(1) + height, column(0) + width};
  }
  // Any two opposite corners: y, x, y, x.
  const auto of = [&](const char* op, int64_t i) {
    return c.m.binary(op, column(i), column(i + 2));
  };
  return {of("Min", 0), of("Min", 1), of("Max", 0), of("Max", 1)};
}

Term area_of(const Corners& b) { return (b.bottom - b.top) * (b.right - b.left); }

// True if the intersection of two boxes is more than `threshold` of their union.
Term overlaps(Context& c, const Corners& a, const Corners& b, double threshold) {
  const Term zero = c.m.scalar(DType::f32, 0);
  const auto common = [&](const Term& end_a, const Term& end_b, const Term& a0, const Term& b0) {
    return max(min(end_a, end_b) - max(a0, b0), zero);
  };
  const Term shared =
      common(a.bottom, b.bottom, a.top, b.top) * common(a.right, b.right, a.left, b.left);
  const Term all = area_of(a) + area_of(b) - shared;
  const Term some = (shared > zero) & (all > zero);
  return some & (shared > all * threshold);
}

// Picks boxes one after the other, by batch and class. Returns indices [batch, classes, picks]; -1
// if no box is left.
Term picked(Context& c, Term scores, const Corners& boxes, int64_t picks, double threshold) {
  const Dims one = {scores.dims[0], scores.dims[1], 1};
  const int64_t n = scores.dims[2];
  const Term count = c.m.count_along(2, 3, n);
  const Term gone = c.m.scalar(DType::f32, kGone);
  Terms out;
  for (int64_t i = 0; i < picks; ++i) {
    const Term best = c.m.reduce("ReduceMax", scores, {2}, true);
    const Term place =
        c.m.op("ArgMax", {scores}, {{"axis", 2}, {"keep_dims", true}}, DType::i32, one);
    const auto at_place = [&](const Term& corner) {
      return c.m.op("GatherElements", {c.m.expand(corner, scores.dims), place}, {{"axis", 2}},
                    DType::f32, one);
    };
    const Corners own = {at_place(boxes.top), at_place(boxes.left), at_place(boxes.bottom),
                         at_place(boxes.right)};
    out.push_back(where(best > gone, place, -1));
    const Term taken = (count == place) | overlaps(c, boxes, own, threshold);
    scores = where(taken, gone, scores);
  }
  return c.m.concat(out, 2);
}

// Returns rows (batch, class, box) of the valid picks in order, followed by rows of -1.
Term table_of_picks(Context& c, const Term& picks) {
  const int64_t rows = picks.elements();
  const auto column = [&](const Term& t) {
    return c.m.reshape(c.m.expand(t, picks.dims), {rows, 1});
  };
  const auto along = [&](size_t axis) {
    return column(c.m.count_along(static_cast<int64_t>(axis), 3, picks.dims[axis]));
  };
  const Term table = c.m.concat({along(0), along(1), column(picks)}, 1);
  const Term there = c.m.reshape(picks, {rows}) >= 0;
  const Term counted =
      c.m.op("CumSum", {cast(there, DType::i32)}, {{"axis", 0}}, DType::i32, {rows});
  // Missing picks are written to an extra row at the end, which is cut off.
  const Term place = where(there, counted - 1, rows);
  const Term none = c.m.filled(DType::i32, {rows + 1, 3}, -1);
  const Term moved =
      c.m.op("ScatterElements", {none, c.m.expand(c.m.reshape(place, {rows, 1}), {rows, 3}), table},
             {{"axis", 0}, {"reduction", "none"}}, DType::i32, none.dims);
  return cast(c.m.slice(moved, 0, 0, rows), DType::i64);
}

// The number of boxes depends on data, so the output has room for the maximum and is filled with
// -1. A node that reads the output would take these rows for boxes. So it must be the last node.
Term non_max_suppression(Context& c) {
  const Term boxes = c.in(0);
  const Term scores = c.in(1);
  const double most = c.has(2) ? c.number(2) : 0;
  const double overlap = c.has(3) ? c.number(3) : 0;
  const double least = c.has(4) ? c.number(4) : double{kGone};
  const bool centred_boxes = c.flag("center_point_box", false);
  const bool fits = boxes.rank() == 3 && scores.rank() == 3 && boxes.dims[2] == 4 &&
                    boxes.dims[0] == scores.dims[0] && boxes.dims[1] == scores.dims[2] &&
                    boxes.dtype == DType::f32 && scores.dtype == DType::f32;
  require(fits, "Boxes {} and scores {} do not fit.", boxes.dims, scores.dims);
  support(c.only_output(0),
          "The number of boxes depends on data, so this must be the last node: its "
          "result must be an output of the graph that no node reads.");
  const int64_t n = boxes.dims[1];
  const auto picks = static_cast<int64_t>(std::clamp(most, 0.0, static_cast<double>(n)));
  support(picks <= kMostPicks, "Up to {} boxes of each class are more than {}.", picks, kMostPicks);
  if (picks == 0 || scores.elements() == 0) {
    return c.m.constant(ConstantTensor::of(DType::i64, {0, 3}, std::vector<int64_t>()));
  }
  const Term shown = where(scores > least, scores, kGone);
  const Term rows =
      table_of_picks(c, picked(c, shown, corners_of(c, boxes, centred_boxes), picks, overlap));
  c.m.note(fmt::format("Output \"{}\" has {} rows: first the selected boxes, then rows of -1.",
                       escaped(c.node().output(0)), rows.dims[0]));
  return rows;
}

constexpr Lowering kDetectionLowerings[] = {
    {"NonMaxSuppression", non_max_suppression},
};

}  // namespace

std::span<const Lowering> lowerings_of_detection() { return kDetectionLowerings; }

}  // namespace bowline::onnx
