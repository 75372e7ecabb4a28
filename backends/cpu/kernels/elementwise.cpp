//! elementwise
// Operators with formulas (runtime/ops/formulas); those of two operands broadcast (numpy rules).
#include "compute/elementwise.h"

#include <algorithm>

#include "kernel.h"

namespace bowline::cpu {
namespace {

// One operand, stretched to the output.
struct Side {
  const float* data;
  std::array<int64_t, kMaxRank> stride{};
};

Side stretched(const Arg& in, const Shape& out) {
  Side side{.data = in.f32()};
  int64_t step = 1;
  for (int a = in.shape->rank() - 1; a >= 0; --a) {
    const int64_t dim = (*in.shape)[a];
    side.stride[static_cast<size_t>(a + out.rank() - in.shape->rank())] = dim == 1 ? 0 : step;
    step *= dim;
  }
  return side;
}

// Unequal shapes: rows of the last axis, whose two operands each step by 0 or 1.
void broadcast(const Launch& l, const FunctionCall& f) {
  const Shape& out = *l.out[0].shape;
  if (out.elements() == 0) {
    return;
  }
  const Side sides[] = {stretched(l.in[0], out), stretched(l.in[1], out)};
  const int last = out.rank() - 1;
  const int64_t n = out.back();
  const auto steps = [&](const Side& s) {
    return static_cast<size_t>(s.stride[static_cast<size_t>(last)]);
  };
  float* y = l.out[0].f32();
  parallel_blocks(l.threads, out.elements() / n, std::max<int64_t>(1, 16384 / n),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) {
                      int64_t rest = row;
                      int64_t at[2] = {0, 0};
                      for (int a = last - 1; a >= 0; --a) {
                        at[0] += rest % out[a] * sides[0].stride[static_cast<size_t>(a)];
                        at[1] += rest % out[a] * sides[1].stride[static_cast<size_t>(a)];
                        rest /= out[a];
                      }
                      elementwise_row(f, static_cast<size_t>(n), sides[0].data + at[0],
                                      steps(sides[0]), sides[1].data + at[1], steps(sides[1]),
                                      y + row * n);
                    }
                  });
}

void run(const Launch& l) {
  const FunctionCall f = function_of(l.record.op, l.record.attributes);
  const Arg& last = l.in[l.in.size() - 1];
  if (*l.in[0].shape == *l.out[0].shape && *last.shape == *l.out[0].shape) {
    elementwise(l.threads, f, static_cast<size_t>(l.out[0].elements()), l.in[0].f32(), last.f32(),
                l.out[0].f32());
  } else {
    broadcast(l, f);
  }
}

}  // namespace

extern const Kernel kernel_elementwise;
const Kernel kernel_elementwise{.run = run};

}  // namespace bowline::cpu
