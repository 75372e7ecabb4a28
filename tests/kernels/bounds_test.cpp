// No CPU kernel touches memory outside of its operands, on every instruction set of this machine.
// That memory may belong to another thread, or be unmapped.
#include "compute/attention.h"
#include "compute/convert.h"
#include "compute/convolution.h"
#include "compute/elementwise.h"
#include "compute/gemm.h"
#include "compute/planes.h"
#include "compute/recurrent.h"
#include "compute/rope.h"
#include "compute/row.h"
#include "compute/update.h"
#include "kernels/instruction_sets.h"

namespace bowline::detail::cpu {
namespace {

struct Edge : EdgeOf<float> {
  explicit Edge(size_t n, float value = 0.5f) : EdgeOf(n, value) {}
};

class Bounds : public OnInstructionSet {
 protected:
  static void* scratch(size_t bytes) {
    static std::vector<std::byte> memory;
    memory.resize(std::max(memory.size(), bytes + 64));
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (64 - at % 64);
  }

  Threads threads_{1};
};

constexpr size_t kLongest = 67;  // more than four vectors of every set

TEST_P(Bounds, OfElements) {
  for (size_t n = 1; n <= kLongest; ++n) {
    Edge a(n), b(n), c(n), y(n);
    for (uint32_t f = 0; f < kFunctions; ++f) {
      const FunctionCall call{static_cast<Function>(f)};
      elementwise(threads_, call, n, {{a}, {b}, c}, y);
      elementwise_row(call, n, {{a}, {Edge(1), 0}, c}, y);
    }
#define BOWLINE_BINARY(name)                                             \
  elementwise_row({Function::name##_binary}, n, {{Edge(1), 0}, {b}}, y); \
  elementwise_row({Function::name##_binary}, n, {{Edge(1), 0}, {Edge(1), 0}}, y);
#define BOWLINE_COMPARE(name)                                             \
  elementwise_row({Function::name##_compare}, n, {{Edge(1), 0}, {b}}, y); \
  elementwise_row({Function::name##_compare}, n, {{Edge(1), 0}, {Edge(1), 0}}, y);
#define BOWLINE_GRADIENT_A(name)                                                \
  elementwise_row({Function::name##_gradient_a}, n, {{Edge(1), 0}, {b}, c}, y); \
  elementwise_row({Function::name##_gradient_a}, n, {{Edge(1), 0}, {Edge(1), 0}, c}, y);
#define BOWLINE_GRADIENT_B(name)                                                \
  elementwise_row({Function::name##_gradient_b}, n, {{Edge(1), 0}, {b}, c}, y); \
  elementwise_row({Function::name##_gradient_b}, n, {{Edge(1), 0}, {Edge(1), 0}, c}, y);
#include "generated/functions.inc"
    EXPECT_FLOAT_EQ(static_cast<float>(
                        sum_of_squares(threads_, n, a, scratch(sum_of_squares_scratch_bytes(n)))),
                    0.25f * static_cast<float>(n));
  }
}

TEST_P(Bounds, OfOptimizers) {
  std::array<uint32_t, kMostOptimizerWords> words;
  words.fill(std::bit_cast<uint32_t>(0.5f));
  for (const OptimizerDef& def : optimizer_defs()) {
    std::vector<Attribute> values;
    for (const OptimizerState& state : def.states) {
      if (!state.needs.empty()) {
        values.emplace_back(state.needs, state.needs == "momentum" ? 0.9 : 1.0);
      }
    }
    const UpdateOperands operands =
        update_operands(def.op, attributes_from(def.op, values).value());
    for (size_t n = 1; n <= kLongest; ++n) {
      Edge g(n), w(n), x(n), y(n), z(n);
      States states = {x, y, z};
      for (size_t s = 0; s < states.size(); ++s) {
        states[s] = operands.states[s] ? states[s] : nullptr;
      }
      EXPECT_TRUE(update(threads_, {def.op, operands.numbers, words, 1}, n, g, w, states));
    }
  }
}

// Calls f(T{}) for the dtypes of a kernel.
template <class F>
void each_type(const F& f) {
  f(float{});
  f(f16{});
  f(bf16{});
}

TEST_P(Bounds, OfNorms) {
  each_type([&]<class T>(T) {
    const T value = from_f32<T>(0.5f);
    for (size_t n = 1; n <= kLongest; ++n) {
      constexpr size_t kRows = 3;
      EdgeOf<T> x(kRows * n, value), dy(kRows * n, value), y(kRows * n), gamma(n, value), beta(n);
      EdgeOf<T> dgamma(n), dbeta(n);
      void* memory = scratch(norm_backward_scratch_bytes(kRows, n));
      norm<T>(threads_, kRows, n, x, gamma, beta, 1e-5f, y);
      norm_backward<T>(threads_, kRows, n, x, gamma, dy, 1e-5f, y, dgamma, dbeta, memory);
      EXPECT_EQ(to_f32(dbeta[n - 1]), 0.5f * kRows);
      norm<T>(threads_, kRows, n, x, gamma, nullptr, 0, y);
      EXPECT_NEAR(to_f32(y[kRows * n - 1]), 0.5f, 1e-6f);
      norm_backward<T>(threads_, kRows, n, x, gamma, dy, 0, y, dgamma, nullptr, memory);
      EXPECT_NEAR(to_f32(dgamma[n - 1]), 0.5f * kRows, 1e-6f);
    }
  });
}

TEST_P(Bounds, OfRows) {
  for (size_t n = 1; n <= kLongest; ++n) {
    constexpr size_t kRows = 3;
    Edge x(kRows * n), dy(kRows * n), y(kRows * n);
    softmax(threads_, kRows, n, x, y);
    softmax_backward(threads_, kRows, n, y, dy, x);
    Edge sums(kRows);
    log_sum_exp(threads_, kRows, n, x, sums);
    const int32_t labels[kRows] = {};
    cross_entropy_backward(threads_, kRows, n, x, labels, -1, {}, 0.25f, y);
  }
}

TEST_P(Bounds, OfRope) {
  for (size_t dim = 2; dim <= kLongest; ++dim) {
    RopeShape s;
    s.outer = s.heads = 1;
    s.positions = 3;
    s.dim = dim;
    s.rotary_dims = dim / 2 * 2;
    s.x_outer = s.y_outer = s.positions * dim;
    s.x_position = s.y_position = s.x_head = s.y_head = dim;
    void* table = scratch(rope_table_bytes(s));
    const std::vector<double> frequency(s.rotary_dims / 2, 0.5);
    rope_table(threads_, s, frequency.data(), table);
    for (const bool interleaved : {false, true}) {
      s.interleaved = interleaved;
      each_type([&]<class T>(T) {
        rope<T>(threads_, s, EdgeOf<T>(s.x_outer), EdgeOf<T>(s.y_outer), table);
      });
    }
  }
}

TEST_P(Bounds, OfRecurrentLayers) {
  for (size_t n = 1; n <= kLongest; ++n) {
    for (const size_t batch : {1, 7}) {
      RecurrentShape s;
      s.steps = 2;
      s.batch = batch;
      s.units = n;
      const size_t state = batch * n;
      const size_t all = s.steps * state;
      s.gates = 4;
      lstm(threads_, s,
           {Edge(4 * all), Edge(4 * n * n), Edge(state), Edge(state), Edge(all), Edge(all),
            Edge(4 * all)},
           scratch(recurrent_scratch_bytes(s, threads_)));
      lstm_backward(threads_, s,
                    {Edge(4 * all), Edge(4 * n * n), Edge(state), Edge(all), Edge(all), Edge(all),
                     Edge(4 * all), Edge(state), Edge(state)},
                    scratch(recurrent_scratch_bytes(s, threads_)));
      s.gates = 3;
      for (const bool reset_after : {false, true}) {
        gru(threads_, s,
            {Edge(3 * all), Edge(3 * n * n), Edge(state), Edge(n), Edge(all), Edge(3 * all),
             Edge(all), reset_after},
            scratch(recurrent_scratch_bytes(s, threads_)));
        gru_backward(threads_, s,
                     {Edge(3 * all), Edge(all), Edge(3 * n * n), Edge(state), Edge(all), Edge(all),
                      Edge(3 * all), Edge(all), Edge(state), reset_after},
                     scratch(recurrent_scratch_bytes(s, threads_)));
      }
    }
  }
}

TEST_P(Bounds, OfProducts) {
  for (const GemmLayout layout : {GemmLayout::nn, GemmLayout::nt, GemmLayout::tn, GemmLayout::tt}) {
    for (const size_t m : {1, 2, 6, 7, 13}) {
      for (const size_t k : {1, 5, 33}) {
        for (size_t n = 1; n <= kLongest; ++n) {
          GemmShape s;
          s.layout = layout;
          s.m = m;
          s.n = n;
          s.k = k;
          s.lda = layout == GemmLayout::tn || layout == GemmLayout::tt ? m : k;
          s.ldb = layout == GemmLayout::nt || layout == GemmLayout::tt ? k : n;
          s.ldc = n;
          Edge c(m * n);
          Edge bias(n);
          gemm(threads_, s, Edge(m * k), Edge(k * n), c, {true, bias},
               scratch(gemm_scratch_bytes(s, threads_)));
          ASSERT_FLOAT_EQ(c[m * n - 1], 1 + 0.25f * static_cast<float>(k));
        }
      }
    }
  }
}

// Panels are as wide as the tile of the product.
TEST_P(Bounds, OfTheScratchOfProducts) {
  for (const GemmLayout layout : {GemmLayout::nn, GemmLayout::nt, GemmLayout::tn}) {
    for (const size_t m : {7, 16, 67}) {
      for (const size_t n : {24, 50, 60, 72, 121, 128, 450, 504, 505, 512, 513, 600}) {
        const size_t k = 300;
        const GemmShape s{
            layout, m, n, k, layout == GemmLayout::tn ? m : k, layout == GemmLayout::nt ? k : n, n};
        Edge c(m * n);
        Edge room((gemm_scratch_bytes(s, threads_) + 63) / 64 * 64 / sizeof(float));
        gemm(threads_, s, Edge(m * k), Edge(k * n), c, {}, room);
        ASSERT_FLOAT_EQ(c[m * n - 1], 0.25f * static_cast<float>(k));
        ASSERT_FLOAT_EQ(c[0], 0.25f * static_cast<float>(k));
      }
    }
  }
}

WindowAxis axis_of(int64_t in, int64_t window, int64_t stride) {
  WindowAxis a;
  a.in = in;
  a.window = window;
  a.stride = stride;
  a.pad = a.pad_end = window / 2;
  a.out = (in + 2 * a.pad - window) / stride + 1;
  return a;
}

// Depthwise, pointwise and grouped convolutions. The scratch memory ends at a protected page, too.
TEST_P(Bounds, OfConvolutions) {
  const auto count = [](int64_t n) { return static_cast<size_t>(n); };
  for (const auto& [groups, inputs, outputs, window, stride] :
       std::vector<std::array<int64_t, 5>>{{3, 1, 1, 3, 1},
                                           {3, 1, 1, 3, 2},
                                           {3, 1, 1, 5, 1},
                                           {3, 1, 2, 3, 1},
                                           {1, 5, 7, 1, 1},
                                           {1, 25, 7, 1, 1},
                                           {1, 3, 7, 3, 2},
                                           {1, 3, 7, 3, 1}}) {
    for (const int64_t height : {1, 2, 3, 6, 9}) {
      for (const int64_t width : {1, 3, 6, 7, 8, 12, 16, 17, 24, 33}) {
        Convolution c;
        c.windows.axis[1] = axis_of(height, window, stride);
        c.windows.axis[2] = axis_of(width, window, stride);
        c.batch = 3;
        c.groups = groups;
        c.inputs = inputs;
        c.outputs = outputs;
        const size_t in = count(c.batch * groups * inputs * c.windows.inputs());
        const size_t out = count(c.batch * groups * outputs * c.windows.outputs());
        const size_t weights = count(groups * outputs * inputs * c.windows.window());
        const uint64_t bytes = (convolution_scratch_bytes(c, threads_) + 63) / 64 * 64;
        Edge x(in), w(weights), b(count(groups * outputs)), y(out), dx(in), dw(weights);
        Edge room(bytes / sizeof(float));
        convolve(threads_, c, x, w, b, y, room);
        convolve_back(threads_, c, y, w, nullptr, dx, room);
        convolve_weights(threads_, c, x, y, dw, room);
      }
    }
  }
}

TEST_P(Bounds, OfPlanes) {
  for (size_t n = 1; n <= kLongest; ++n) {
    const ChannelPlanes planes{3, n, n};
    Edge x(3 * n), dy(3 * n), y(3 * n);
    EXPECT_DOUBLE_EQ(sum_of(planes, x), 1.5 * static_cast<double>(n));
    EXPECT_DOUBLE_EQ(squares_of(planes, x, 0.25f), 0.1875 * static_cast<double>(n));
    const PlaneSums sums = gradient_sums_of(planes, x, dy, 0.25f);
    EXPECT_DOUBLE_EQ(sums.products, 0.375 * static_cast<double>(n));
    scale_planes_of(planes, x, 0.25f, 2, 1, y);
    mix_planes_of(planes, x, dy, 0.25f, 1, 1, 1, dy);
  }
}

TEST_P(Bounds, OfAttention) {
  each_type([&]<class T>(T) {
    const T value = from_f32<T>(0.5f);
    for (size_t dim = 1; dim <= kLongest; ++dim) {
      for (const auto& [queries, softcap] : std::vector<std::pair<size_t, float>>{
               {1, 0}, {3, 0}, {8, 0}, {17, 0}, {1, 3}, {17, 3}}) {
        AttentionShape s;
        s.softcap = softcap;
        s.window = softcap == 0 ? 0 : 2;
        s.batch = s.heads = s.kv_heads = 1;
        s.queries = queries;
        s.keys = 5;
        s.dim = dim;
        s.causal = true;
        const AttentionStrides strides{0, 0, dim};
        EdgeOf<T> q(queries * dim, value), k(s.keys * dim, value), v(s.keys * dim, value);
        EdgeOf<T> o(queries * dim);
        Edge lse(queries);
        attention<T>(threads_, s, {q, strides}, {k, strides}, {v, strides}, {o, strides}, lse,
                     queries, scratch(attention_scratch_bytes<T>(s, threads_)));
        EXPECT_EQ(to_f32(o[queries * dim - 1]), 0.5f) << "every row of v is the same";
        EdgeOf<T> dout(queries * dim, value), dq(queries * dim), dk(s.keys * dim), dv(s.keys * dim);
        attention_backward<T>(threads_, s,
                              {{q, strides},
                               {k, strides},
                               {v, strides},
                               {o, strides},
                               {dout, strides},
                               lse,
                               {dq, strides},
                               {dk, strides},
                               {dv, strides}},
                              scratch(attention_backward_scratch_bytes<T>(s, threads_)));
      }
    }
  });
}

BOWLINE_ON_ALL_INSTRUCTION_SETS(Bounds);

}  // namespace
}  // namespace bowline::detail::cpu
