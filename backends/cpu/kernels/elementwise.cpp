//! ops Add Sub Mul Relu Silu Gelu Tanh Scale ReluGrad SiluGrad GeluGrad
// Elementwise operators; two-operand ones broadcast (numpy rules).
#include "compute/elementwise.h"

#include <algorithm>

#include "kernel.h"

namespace bowline::cpu {
namespace {

size_t size(const Arg& arg) { return static_cast<size_t>(arg.elements()); }

float apply(Binary op, float a, float b) {
  return op == Binary::add ? a + b : op == Binary::sub ? a - b : a * b;
}

// Unequal shapes: rows of the last axis, whose two operands each step by 0 or 1.
void broadcast_binary(const Launch& l, Binary op) {
  const Shape& out = *l.out[0].shape;
  if (out.elements() == 0) {
    return;
  }
  struct Side {
    const float* data;
    std::array<int64_t, kMaxRank> stride{};
  } side[2];
  for (size_t s = 0; s < 2; ++s) {
    const Shape& in = *l.in[s].shape;
    side[s].data = l.in[s].f32();
    int64_t step = 1;
    for (int a = in.rank() - 1; a >= 0; --a) {
      side[s].stride[static_cast<size_t>(a + out.rank() - in.rank())] = in[a] == 1 ? 0 : step;
      step *= in[a];
    }
  }
  const int last = out.rank() - 1;
  const int64_t n = out.rank() == 0 ? 1 : out.back();
  const int64_t sa = out.rank() == 0 ? 0 : side[0].stride[static_cast<size_t>(last)];
  const int64_t sb = out.rank() == 0 ? 0 : side[1].stride[static_cast<size_t>(last)];
  float* y = l.out[0].f32();
  parallel_blocks(l.threads, out.elements() / n, std::max<int64_t>(1, 16384 / n),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) {
                      int64_t rest = row;
                      int64_t at[2] = {0, 0};
                      for (int a = last - 1; a >= 0; --a) {
                        at[0] += rest % out[a] * side[0].stride[static_cast<size_t>(a)];
                        at[1] += rest % out[a] * side[1].stride[static_cast<size_t>(a)];
                        rest /= out[a];
                      }
                      const float* a = side[0].data + at[0];
                      const float* b = side[1].data + at[1];
                      for (int64_t i = 0; i < n; ++i) {
                        y[row * n + i] = apply(op, a[i * sa], b[i * sb]);
                      }
                    }
                  });
}

template <Binary op>
void run_binary(const Launch& l) {
  if (*l.in[0].shape == *l.in[1].shape) {
    binary(l.threads, op, size(l.out[0]), l.in[0].f32(), l.in[1].f32(), l.out[0].f32());
  } else {
    broadcast_binary(l, op);
  }
}

template <Activation op>
void run_activation(const Launch& l) {
  activation(l.threads, op, size(l.out[0]), l.in[0].f32(), l.out[0].f32());
}

template <Activation op>
void run_activation_grad(const Launch& l) {
  activation_backward(l.threads, op, size(l.out[0]), l.in[0].f32(), l.in[1].f32(), l.out[0].f32());
}

Activation gelu_of(const Launch& l) {
  return l.attributes<GeluAttributes>().form() == GeluForm::erf ? Activation::gelu
                                                                : Activation::gelu_tanh;
}

void run_gelu(const Launch& l) {
  activation(l.threads, gelu_of(l), size(l.out[0]), l.in[0].f32(), l.out[0].f32());
}

void run_gelu_grad(const Launch& l) {
  activation_backward(l.threads, gelu_of(l), size(l.out[0]), l.in[0].f32(), l.in[1].f32(),
                      l.out[0].f32());
}

void run_scale(const Launch& l) {
  scale(l.threads, size(l.out[0]), l.attributes<ScaleAttributes>().factor(), l.in[0].f32(),
        l.out[0].f32());
}

}  // namespace

extern const Kernel kernel_add, kernel_sub, kernel_mul, kernel_relu, kernel_silu, kernel_gelu,
    kernel_tanh, kernel_scale, kernel_relu_grad, kernel_silu_grad, kernel_gelu_grad;
const Kernel kernel_add{.run = run_binary<Binary::add>};
const Kernel kernel_sub{.run = run_binary<Binary::sub>};
const Kernel kernel_mul{.run = run_binary<Binary::mul>};
const Kernel kernel_relu{.run = run_activation<Activation::relu>};
const Kernel kernel_silu{.run = run_activation<Activation::silu>};
const Kernel kernel_gelu{.run = run_gelu};
const Kernel kernel_tanh{.run = run_activation<Activation::tanh>};
const Kernel kernel_scale{.run = run_scale};
const Kernel kernel_relu_grad{.run = run_activation_grad<Activation::relu>};
const Kernel kernel_silu_grad{.run = run_activation_grad<Activation::silu>};
const Kernel kernel_gelu_grad{.run = run_gelu_grad};

}  // namespace bowline::cpu
