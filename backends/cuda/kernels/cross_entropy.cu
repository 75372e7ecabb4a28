//! ops(f32, f16, bf16) CrossEntropy CrossEntropyGrad FusedCrossEntropy FusedLinearCrossEntropy
// One team of threads per row of logits (device/labels.cuh).
//
// FusedCrossEntropy reads a row from device memory once: a block keeps it in shared memory, and a
// warp reads a short row from the L1 cache again. Longer rows are read again, mostly from the L2
// cache. The last block adds the losses.
//
// FusedLinearCrossEntropy computes its products with cuBLASLt, in chunks of rows. The logits of a
// chunk are in scratch memory, in lines of whole 16-byte packs, and their gradient overwrites them.
#include "device/exponential_sum.cuh"
#include "device/labels.cuh"
#include "device/last_block.cuh"
#include "device/staged_product.cuh"
#include "device/target.cuh"
#include "device/tensor_core.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::cross_entropy_kernels {
namespace {

// A row of more than kLongestOfWarp classes has a block, another row a warp. FusedCrossEntropy and
// the two operators add in the same order, so they give the same bits.
constexpr unsigned kRowBlock = 512;
template <unsigned kTeam>
constexpr unsigned kThreads = kTeam == kLanes ? kRowThreads : kTeam;

// The row of this thread.
template <unsigned kTeam>
__device__ uint64_t loss_row() {
  return uint64_t{blockIdx.x} * (kThreads<kTeam> / kTeam) + threadIdx.x / kTeam;
}

// Launches a kernel over the rows. kernel(team, width) is as in launch_packed_rows. A block gets
// `shared_bytes` of dynamic shared memory.
template <class X, class K, class... A>
void launch_losses(Launch& l, const char* name, const Labels& labels, bool packs,
                   unsigned shared_bytes, K kernel, A... args) {
  constexpr std::integral_constant<unsigned, kLanes> warp;
  constexpr std::integral_constant<unsigned, kRowBlock> block;
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, kPack<X>> pack;
  if (labels.classes <= kLongestOfWarp) {
    l.launch(name, packs ? kernel(warp, pack) : kernel(warp, one),
             blocks_for(labels.rows, kRowThreads / kLanes), kRowThreads, args...);
  } else {
    l.launch_shared(name, packs ? kernel(block, pack) : kernel(block, one),
                    blocks_for(labels.rows, 1), kRowBlock, shared_bytes, args...);
  }
}

// The sum of top - x over a row.
template <unsigned kTeam, class X>
__device__ float sum_below(const X* x, uint64_t n, float top) {
  float below = 0;
  for (uint64_t i = team_lane<kTeam>(); i < n; i += kTeam) {
    below += top - read(x + i);
  }
  return team_sum<kTeam>(below);
}

// The loss of a counted row. `of_label` is top - x[label], `below` is from sum_below.
__device__ float loss_of_row(float log_sum, float of_label, float below, float smoothing,
                             uint64_t classes) {
  return smoothing == 0 ? log_sum + of_label
                        : log_sum + ((1 - smoothing) * of_label +
                                     smoothing * (below / static_cast<float>(classes)));
}

// lse and the loss of every row.
template <unsigned kTeam, int kWidth, class X>
__global__ void cross_entropy_kernel(const X* x, Labels labels, float* lse, float* losses,
                                     float smoothing) {
  begin_kernel();
  const uint64_t row = loss_row<kTeam>();
  if (row >= labels.rows) {
    return;
  }
  const uint64_t n = labels.classes;
  x += row * n;
  const ExponentialSum total = exponential_sum<kTeam, kWidth>(x, n);
  const float below = smoothing == 0 ? 0.0f : sum_below<kTeam>(x, n, total.top);
  if (team_lane<kTeam>() == 0) {
    const float log_sum = logf(total.sum);
    lse[row] = total.top + log_sum;
    float loss = 0;
    if (labels.counted(row) && labels.inside(row)) {
      loss = loss_of_row(log_sum, total.top - read(x + labels.data[row]), below, smoothing, n);
    }
    losses[row] = loss;
    labels.report(row);
  }
}

// The gradient of the elements of a row.
struct RowGradient {
  int64_t label;
  bool counted;
  float factor;
  float lse;
  float share;  // of the label smoothing, per class
  float rest;   // of the label

  template <int kMany>
  __device__ void apply(uint64_t i, float (&v)[kMany]) const {
    for (int k = 0; k < kMany; ++k) {
      const float hit = (static_cast<int64_t>(i) + k == label ? rest : 0.0f) + share;
      v[k] = counted ? (expf(v[k] - lse) - hit) * factor : 0.0f;
    }
  }
};

// Writes the gradient of a row. dx may overwrite x. A thread loads several elements before it
// stores the first. load(i, values) reads the kWidth elements of a group.
template <unsigned kTeam, int kWidth, class X, class Load>
__device__ void write_gradient(const X* x, uint64_t n, const RowGradient& gradient, X* dx,
                               Load&& load) {
  constexpr int kLoads = kWidth > 4 ? 2 : 4;
  constexpr uint64_t kStep = kTeam * kWidth;
  const RowParts<kWidth> parts(x, n);
  const uint64_t single = parts.single(team_lane<kTeam>());
  if (single < n) {
    float v[1];
    read_some(x + single, v);
    gradient.apply(single, v);
    write_some(dx + single, v);
  }
  for (uint64_t first = parts.begin + team_lane<kTeam>() * kWidth; first < parts.end;
       first += kLoads * kStep) {
    float v[kLoads][kWidth] = {};
    for (int b = 0; b < kLoads; ++b) {
      if (first + b * kStep < parts.end) {
        load(first + b * kStep, v[b]);
      }
    }
    for (int b = 0; b < kLoads; ++b) {
      const uint64_t i = first + b * kStep;
      if (i < parts.end) {
        gradient.apply(i, v[b]);
        write_some(dx + i, v[b]);
      }
    }
  }
}

// The rows are in reverse order, because the last rows that CrossEntropy read are still in the
// cache.
template <unsigned kTeam, int kWidth, class X>
__global__ void cross_entropy_grad_kernel(const X* x, Labels labels, const float* lse,
                                          Factor factor, float smoothing, X* dx) {
  begin_kernel();
  if (loss_row<kTeam>() >= labels.rows) {
    return;
  }
  const uint64_t row = labels.rows - 1 - loss_row<kTeam>();
  const uint64_t n = labels.classes;
  const RowGradient gradient = {labels.data[row],
                                labels.counted(row),
                                factor.of(row),
                                lse[row],
                                smoothing / static_cast<float>(n),
                                1 - smoothing};
  x += row * n;
  write_gradient<kTeam, kWidth>(x, n, gradient, dx + row * n,
                                [&](uint64_t i, float(&v)[kWidth]) { read_some(x + i, v); });
}

// How FusedCrossEntropy adds the losses of the rows.
struct TotalLoss {
  float* terms;         // of the rows of this launch
  float* loss;          // null: not added
  const float* weight;  // null: not divided
  uint32_t* counter;    // from Launch::block_counters
  uint64_t before;      // rows of earlier launches, whose terms are also added
};

// The loss and the gradient of every row. Rows begin `line` elements apart. dx may overwrite x. If
// `keeps` is set, a block keeps its row in shared memory.
template <unsigned kTeam, int kWidth, class X>
__global__ void fused_cross_entropy_kernel(const X* x, uint64_t line, Labels labels, Factor factor,
                                           float smoothing, X* dx, TotalLoss total, bool keeps) {
  begin_kernel();
  const uint64_t row = loss_row<kTeam>();
  const uint64_t n = labels.classes;
  if (row < labels.rows) {
    x += row * line;
    const bool has_label = labels.counted(row) && labels.inside(row);
    // Before the gradient overwrites it.
    const float at_label = has_label ? read(x + labels.data[row]) : 0.0f;
    const uint64_t begin = RowParts<kWidth>(x, n).begin;
    const auto read_group = [&](uint64_t i, float(&v)[kWidth]) {
      if constexpr (kWidth > 1) {
        const auto pack = *reinterpret_cast<const uint4*>(x + i);
        if (keeps) {
          dynamic_shared().store(static_cast<int>((i - begin) / kWidth), pack);
        }
        unpack<X>(pack, v);
      } else {
        read_some(x + i, v);
      }
    };
    const ExponentialSum sum = exponential_sum<kTeam, kWidth>(x, n, read_group);
    const float below = smoothing == 0 ? 0.0f : sum_below<kTeam>(x, n, sum.top);
    if constexpr (kTeam == kLanes) {
      __syncwarp();  // all lanes have read what others overwrite
    }
    const float log_sum = logf(sum.sum);
    if (team_lane<kTeam>() == 0) {
      total.terms[row] =
          has_label ? loss_of_row(log_sum, sum.top - at_label, below, smoothing, n) : 0.0f;
      labels.report(row);
    }
    const RowGradient gradient = {labels.data[row],
                                  labels.counted(row),
                                  factor.of(row),
                                  sum.top + log_sum,
                                  smoothing / static_cast<float>(n),
                                  1 - smoothing};
    // A thread reads only what it has stored itself.
    dx += row * line;
    write_gradient<kTeam, kWidth>(x, n, gradient, dx, [&](uint64_t i, float(&v)[kWidth]) {
      if constexpr (kWidth > 1) {
        if (keeps) {
          const auto at = static_cast<int>((i - begin) / kWidth);
          return unpack<X>(dynamic_shared().load(at), v);
        }
      }
      read_some(x + i, v);
    });
  }
  if (total.loss != nullptr && arrives_last(total.counter, gridDim.x)) {
    float sum = 0;  // as in total_loss_kernel
    const float* const terms = total.terms - total.before;
    const uint64_t rows = total.before + labels.rows;
    for (uint64_t i = threadIdx.x; threadIdx.x < kRowThreads && i < rows; i += kRowThreads) {
      sum += terms[i];
    }
    sum = team_sum<kThreads<kTeam>>(sum);
    if (threadIdx.x == 0) {
      *total.loss = total.weight != nullptr && *total.weight != 0 ? sum / *total.weight : sum;
    }
  }
}

template <class X>
void cross_entropy(Launch& l) {
  const auto& t = l.attributes<CrossEntropyAttributes>();
  const Labels labels = labels_of<CrossEntropyAttributes>(l);
  launch_losses<X>(
      l, "cross entropy", labels, true, 0,
      [](auto team, auto width) { return cross_entropy_kernel<team(), width(), X>; }, l.in_as<X>(0),
      labels, l.out(1), terms_of(l, t.reduction()), t.label_smoothing());
  add_up<X>(l, labels, t.reduction(), nullptr);
}

// The number of counted rows, and the losses of the rows.
uint64_t fused_workspace(const NodeView& node) { return terms_workspace(node) + sizeof(float); }

template <class X>
void launch_fused(Launch& l, const X* x, X* dx, uint64_t line, const Labels& labels,
                  const Factor& factor, float smoothing, const TotalLoss& total) {
  const bool packs = aligned_alike(x, dx) && (line == labels.classes || line * sizeof(X) % 16 == 0);
  constexpr uint64_t kStatic = 512;  // of the sums of a block, at most
  const uint64_t row_bytes = labels.classes / kPack<X> * 16;
  const bool keeps =
      packs && labels.classes > kLongestOfWarp && row_bytes + kStatic <= l.traits().shared_bytes();
  launch_losses<X>(
      l, "fused cross entropy", labels, packs, keeps ? static_cast<unsigned>(row_bytes) : 0,
      [](auto team, auto width) { return fused_cross_entropy_kernel<team(), width(), X>; }, x, line,
      labels, factor, smoothing, dx, total, keeps);
}

template <class X>
void fused_cross_entropy(Launch& l) {
  const auto& t = l.attributes<CrossEntropyAttributes>();
  const Labels labels = labels_of<CrossEntropyAttributes>(l);
  const bool adds = t.reduction() != Reduction::none;
  float* const terms = adds ? l.workspace() + 1 : l.out(1);
  const X* const no_weight = nullptr;
  if (labels.rows == 0) {
    if (adds) {
      l.launch("total loss", total_loss_kernel<X>, 1, kRowThreads, terms, labels, no_weight,
               l.out(1), false);
    }
    return;
  }
  const Factor factor = factor_of<X>(l, labels, t.reduction(), l.in(2), no_weight);
  launch_fused(l, l.in_as<X>(0), l.out_as<X>(0), labels.classes, labels, factor,
               t.label_smoothing(),
               {.terms = terms,
                .loss = adds ? l.out(1) : nullptr,
                .weight = factor.weight,
                .counter = l.block_counters(),
                .before = 0});
}

// A FusedLinearCrossEntropy in chunks of rows, and its scratch memory: the number of counted rows
// and the losses of the rows, the logits of a chunk, a copy of the weight, and what the library
// needs.
struct LinearLoss {
  int64_t rows = 0, classes = 0, k = 0;
  DType type = DType::f32;
  bool tf32 = false;
  int64_t line = 0;   // elements between the lines of the logits
  int64_t chunk = 0;  // rows

  template <class Node>
  static LinearLoss of(const Node& node, const Traits& traits) {
    const Shape &x = node.inputs[0].shape, &w = node.inputs[1].shape;
    LinearLoss s = {.rows = x.rows(), .classes = w[0], .k = w[1], .type = node.inputs[0].dtype};
    s.tf32 = traits.tf32 && s.type == DType::f32;
    s.line = in_packs(s.classes);
    // The gradient of the weight is read and written again for each chunk, so there are few.
    constexpr int64_t kStageBytes = int64_t{48} << 20;
    constexpr int64_t kMostChunks = 8;
    const int64_t granule = traits.stages_products ? 8 : 128;  // rows of a tile
    const int64_t line_bytes = s.line * static_cast<int64_t>(size_of(s.type));
    const int64_t wanted = std::max(kStageBytes / line_bytes, s.rows / kMostChunks);
    const int64_t chunk =
        traits.stages_products ? granule : (wanted + granule - 1) / granule * granule;
    s.chunk = std::min(s.rows, std::max(granule, chunk));
    return s;
  }

  // The copy of the weight has rows of zeros, so that the logits are whole packs.
  bool copies_weight() const { return line != classes; }
  uint64_t logits_at() const {
    return in_scratch((static_cast<uint64_t>(rows) + 1) * sizeof(float));
  }
  uint64_t weight_at() const {
    return logits_at() + in_scratch(static_cast<uint64_t>(chunk * line) * size_of(type));
  }
  uint64_t library_at() const {
    const int64_t elements = copies_weight() ? line * k : 0;
    return weight_at() + in_scratch(static_cast<uint64_t>(elements) * size_of(type));
  }

  BlasProduct logits(int64_t of_rows) const {
    return {.m = of_rows,
            .n = line,
            .k = k,
            .transpose_b = true,
            .type = type,
            .y_type = type,
            .tf32 = tf32};
  }
  BlasProduct dx(int64_t of_rows) const {
    return {.m = of_rows, .n = k, .k = line, .type = type, .y_type = type, .tf32 = tf32};
  }
  BlasProduct dw(int64_t of_rows, bool adds) const {
    return {.m = classes,
            .n = k,
            .k = of_rows,
            .transpose_a = true,
            .type = type,
            .y_type = DType::f32,
            .adds = adds,
            .tf32 = tf32,
            .line_a = line};
  }
  // Of the operands: a weight can be a view that starts at any row.
  uint32_t least_alignment() const { return static_cast<uint32_t>(size_of(type)); }
  // The products of all chunks, without addresses.
  std::vector<BlasProduct> products() const {
    std::vector<BlasProduct> out;
    for (const int64_t of_rows : {chunk, rows % chunk}) {
      if (of_rows != 0) {
        out.insert(out.end(),
                   {logits(of_rows), dx(of_rows), dw(of_rows, false), dw(of_rows, true)});
      }
    }
    return out;
  }
};

uint64_t linear_workspace(const NodeView& v) {
  const LinearLoss s = LinearLoss::of(v.query, v.traits);
  uint64_t theirs = 0;
  for (const BlasProduct& p : s.products()) {
    theirs = std::max({theirs, v.blas->workspace(p), v.blas->workspace(p, s.least_alignment())});
  }
  return s.library_at() + theirs;
}

const char* linear_refusal(const NodeView& v) {
  const LinearLoss s = LinearLoss::of(v.query, v.traits);
  if (v.blas == nullptr) {
    return "The products need cuBLASLt.";
  }
  if (s.rows == 0 || s.k == 0) {
    return "There are no products.";
  }
  constexpr int64_t kMax = INT32_MAX - 1024;
  if (std::max({s.rows, s.line, s.k}) > kMax || s.line > kMax / s.k) {
    return "The matrices have more than 2^31 rows, columns or elements.";
  }
  const auto unsupported = [&](const BlasProduct& p) {
    return !v.blas->supports(p) || !v.blas->supports(p, s.least_alignment());
  };
  return std::ranges::any_of(s.products(), unsupported)
             ? "This version of cuBLASLt lacks a product of these sizes."
             : nullptr;
}

template <class X>
void fused_linear_cross_entropy(Launch& l) {
  const auto& t = l.attributes<FusedLinearCrossEntropyAttributes>();
  const LinearLoss s = LinearLoss::of(l.record(), l.traits());
  auto* const scratch = reinterpret_cast<std::byte*>(l.workspace());
  X* const logits = reinterpret_cast<X*>(scratch + s.logits_at());
  const bool is_each = t.reduction() == Reduction::none;
  const Target<float> dw = t.frozen() ? Target<float>{} : target_of<float>(l, 2);
  const X* w = l.in_as<X>(1);
  if (s.copies_weight()) {
    X* const copy = reinterpret_cast<X*>(scratch + s.weight_at());
    const int64_t line_bytes = s.k * static_cast<int64_t>(sizeof(X));
    copy_with_zeros(l, copy, w, s.classes * line_bytes, s.line * line_bytes);
    w = copy;
  }
  Labels labels = labels_of<FusedLinearCrossEntropyAttributes>(l, 2, s.classes);
  Factor factor = factor_of<X>(l, labels, t.reduction(), l.in(3), static_cast<const X*>(nullptr));
  TotalLoss total = {.terms = is_each ? l.out(1) : l.workspace() + 1,
                     .loss = nullptr,
                     .weight = factor.weight,
                     .counter = l.block_counters(),
                     .before = 0};
  for (int64_t first = 0; first < s.rows; first += s.chunk) {
    const int64_t rows = std::min(s.chunk, s.rows - first);
    const bool is_last = first + rows == s.rows;
    const auto multiply = [&](const BlasProduct& p, const void* a, const void* b, void* y) {
      const BlasOperands operands = {.a = a,
                                     .b = b,
                                     .y = y,
                                     .c = y,
                                     .workspace = scratch + s.library_at(),
                                     .workspace_bytes = l.workspace_bytes() - s.library_at()};
      if (!l.multiply(p, operands)) {
        l.fail(Status(Code::unsupported, "cuBLASLt has no product for these addresses."));
      }
    };
    const X* const x = l.in_as<X>(0) + first * s.k;
    multiply(s.logits(rows), x, w, logits);
    labels.rows = static_cast<uint64_t>(rows);
    total.loss = is_last && !is_each ? l.out(1) : nullptr;
    launch_fused(l, logits, logits, static_cast<uint64_t>(s.line), labels, factor,
                 t.label_smoothing(), total);
    if (!dw.is_frozen()) {
      multiply(s.dw(rows, first > 0 || dw.adds), logits, x,
               dw.data != nullptr ? dw.data : dw.gradient);
    }
    multiply(s.dx(rows), logits, w, l.out_as<X>(0) + first * s.k);
    labels.data += rows;
    factor.dloss += is_each ? rows : 0;
    total.terms += rows;
    total.before += static_cast<uint64_t>(rows);
  }
}

template <class X>
void cross_entropy_grad(Launch& l) {
  const auto& t = l.attributes<CrossEntropyAttributes>();
  const Labels labels = labels_of<CrossEntropyAttributes>(l);
  if (labels.rows == 0) {
    return;
  }
  const Factor factor =
      factor_of<X>(l, labels, t.reduction(), l.in(3), static_cast<const X*>(nullptr));
  launch_losses<X>(
      l, "cross entropy gradient", labels, aligned_alike(l.in(0), l.out(0)), 0,
      [](auto team, auto width) { return cross_entropy_grad_kernel<team(), width(), X>; },
      l.in_as<X>(0), labels, l.in(2), factor, t.label_smoothing(), l.out_as<X>(0));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(cross_entropy, .run = cross_entropy<T>, .workspace = terms_workspace);
BOWLINE_KERNELS_OF_FLOATS(cross_entropy_grad, .run = cross_entropy_grad<T>,
                          .workspace = grad_workspace);
BOWLINE_KERNELS_OF_FLOATS(fused_cross_entropy, .run = fused_cross_entropy<T>,
                          .workspace = fused_workspace);
BOWLINE_KERNELS_OF_FLOATS(fused_linear_cross_entropy, .run = fused_linear_cross_entropy<T>,
                          .workspace = linear_workspace, .refusal = linear_refusal,
                          .accumulates = outputs<0b100>);
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::cross_entropy_kernels
