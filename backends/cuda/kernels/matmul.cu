//! ops(f32, f16, bf16) MatMul Linear FusedMatMul
// Matrix products, with what follows them: with cuBLASLt if it can, otherwise with Bowline's own
// kernels.
// matrix_vector.cu has products of a few rows with the rows of a weight, tensor_product.cu has
// products of 16-bit matrices and in TF32. This file has products in f32: of f32 matrices, and of
// bf16 matrices on GPUs whose tensor cores lack bf16.
//
// Every sum is in an order that depends only on the shapes.
#include <algorithm>

#include "blas.h"
#include "core/products.h"
#include "device/begin.cuh"
#include "device/codes.cuh"
#include "device/elements.cuh"
#include "device/f32_tiles.cuh"
#include "device/matrix_vector.cuh"
#include "device/splits.cuh"
#include "device/staged_product.cuh"
#include "device/storage.cuh"
#include "device/tensor_core.cuh"
#include "device/tensor_product.cuh"
#include "product_plan.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matmul_kernels {
namespace {

// One operand of y[batch, m, n] = a b + bias. Its rows are the m rows of a, or the n columns of b.
// If `along_k` is set, the elements of a row are contiguous.
template <class T>
struct Side {
  const T* data;
  int ld;  // stride between rows if along_k, else between steps of k
  int rows;
  bool along_k;
  bool four;    // lines start at multiples of four elements
  Codes codes;  // (optional) the quantized matrix, instead of data
};

template <class T>
struct Product {
  Side<T> sides[2];
  SplitResults<T> results;
  int k;
  Loops<2> batches;
  unsigned tiles[2];
  int split;  // k per part
};

// 4 x 4 elements on their way from global to shared memory, as contiguous lines.
struct Patch {
  float v[4][4];

  template <class T>
  __device__ void load(const T* at, int ld, bool four, int lines, int columns) {
    for (int i = 0; i < 4; ++i) {
      if (four && i < lines && columns >= 4) {
        read_some<T, 4>(at + int64_t{i} * ld, v[i]);
      } else {
        for (int j = 0; j < 4; ++j) {
          v[i][j] = i < lines && j < columns ? read(at + int64_t{i} * ld + j) : 0.0f;
        }
      }
    }
  }
  __device__ void load(const Codes& from, int64_t row, int64_t column, int lines, int columns) {
    BOWLINE_UNROLL
    for (int i = 0; i < 4; ++i) {
      decode4(from, row + (i < lines ? i : 0), static_cast<uint32_t>(column),
              static_cast<uint32_t>(i < lines && columns > 0 ? column + columns : 0), v[i]);
    }
  }
  __device__ float4 line(int i) const { return make_float4(v[i][0], v[i][1], v[i][2], v[i][3]); }
  __device__ float4 column(int j) const { return make_float4(v[0][j], v[1][j], v[2][j], v[3][j]); }
};

// The sum of a line of an operand over the steps of k in the panels of all teams, from `at` on.
template <class T, class Memory>
__device__ float sum_of_line(const Memory& shared, int at, int operand, int line) {
  float sum = 0;
  BOWLINE_ROLL
  for (int i = 0; i < T::kThreads / T::kTeam * T::kStep; ++i) {
    const int k = i % T::kStep;
    const float4 v = shared[at + i / T::kStep * T::kTeamSize + operand * T::kSideSize +
                            k * T::kQuads + (line / 4 ^ k / 4)];
    sum += line % 4 == 0 ? v.x : line % 4 == 1 ? v.y : line % 4 == 2 ? v.z : v.w;
  }
  return sum;
}

// kCodes: an operand may be quantized.
template <class S, int kTile, int kEach, int kTeams, bool kCodes>
__device__ void multiply_tile(const Product<S>& p) {
  using T = F32Tiling<kTile, kEach, kTeams>;
  // [2 buffers][team][side][k][group of 4 rows]. The groups of a row are permuted by k, so that the
  // threads that write one column of patches use different banks.
  __shared__ Shared<float4[2 * T::kBuffer]> shared;
  const int thread = static_cast<int>(threadIdx.x) % T::kTeam;
  const int team = static_cast<int>(threadIdx.x) / T::kTeam;

  const TilePlace place = place_of_block(p.tiles, p.results.splits, blockIdx.x);
  int64_t offsets[2];
  p.batches.offsets(place.batch, offsets);

  // The first half of a team loads a, the second half loads b.
  const int which = thread / (T::kTeam / 2);
  const Side<S> side = which == 0 ? p.sides[0] : p.sides[1];
  const PatchPlace<T> at(side.along_k, thread % (T::kTeam / 2));
  const int row = (which == 0 ? place.tile[0] : place.tile[1]) * kTile + 4 * at.quad;
  const int begin = place.part * p.split;
  const int end = p.k - begin < p.split ? p.k : begin + p.split;
  const int rows_left = side.rows - row;
  int k_left = end - begin - team * T::kStep - at.step;
  const int64_t k0 = end - k_left;
  const int64_t first = which == 0 ? offsets[0] : offsets[1];
  const bool codes = kCodes && side.codes.codes != nullptr;
  const S* from =
      codes ? nullptr
            : side.data + first + (side.along_k ? int64_t{row} * side.ld + k0 : k0 * side.ld + row);
  int64_t line = codes ? first / side.ld + (side.along_k ? row : k0) : 0;
  int64_t along = side.along_k ? k0 : row;

  Patch moving;
  const auto load = [&] {
    const int lines = side.along_k ? rows_left : k_left;
    const int columns = side.along_k ? k_left : rows_left;
    if (codes) {
      moving.load(side.codes, line, along, lines, columns);
      (side.along_k ? along : line) += kTeams * T::kStep;
    } else {
      moving.load(from, side.ld, side.four, lines, columns);
      from += side.along_k ? kTeams * T::kStep : int64_t{kTeams * T::kStep} * side.ld;
    }
    k_left -= kTeams * T::kStep;
  };
  const auto store = [&](int buffer) {
    const int to = buffer * T::kBuffer + team * T::kTeamSize + which * T::kSideSize +
                   at.step * T::kQuads + (at.quad ^ at.step / 4);
    for (int i = 0; i < 4; ++i) {
      shared[to + i * T::kQuads] = side.along_k ? moving.column(i) : moving.line(i);
    }
  };

  const int mine[2] = {T::first_row(thread), T::first_column(thread)};
  float sum[kEach][kEach];
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      sum[i][j] = 0;
    }
  }
  // In the first tiles, a thread sums a line of an operand. All registers are in use.
  __shared__ Shared<float[kTile]> line_sums;
  const bool sums_lines = !kCodes && p.results.sums_lines(place);
  const int steps = (end - begin + kTeams * T::kStep - 1) / (kTeams * T::kStep);
  // Loading is much code, so the first step has no code of its own.
  BOWLINE_ROLL
  for (int step = -1; step < steps; ++step) {
    if (step + 1 < steps) {
      load();
    }
    if (step >= 0) {
      multiply_step<T>(shared, step % 2 * T::kBuffer + team * T::kTeamSize, mine, sum);
    }
    if (const int of = opaque(static_cast<int>(threadIdx.x));
        step >= 0 && sums_lines && of < kTile) {
      const float more = sum_of_line<T>(shared, step % 2 * T::kBuffer, p.results.lines.operand, of);
      line_sums[of] = (step == 0 ? 0.0f : static_cast<float>(line_sums[of])) + more;
    }
    if (step + 1 < steps) {
      store((step + 1) % 2);
    }
    __syncthreads();
  }

  if (kTeams > 1) {
    add_teams<T>(shared, sum, team, thread);
  }
  // Computed again: it would occupy registers in the loop.
  const TilePlace same = place_of_block(
      p.tiles, p.results.splits, static_cast<unsigned>(opaque(static_cast<int>(blockIdx.x))));
  if (team == 0) {
    write_tile<T>(p.results, sum, same, mine);
  }
  if (const int of = static_cast<int>(threadIdx.x); sums_lines && of < kTile) {
    p.results.put_line(same, same.along(p.results.lines.operand) * kTile + of,
                       steps == 0 ? 0.0f : static_cast<float>(line_sums[of]));
  }
  p.results.template finish<kTile, kTile, T::kThreads, 4>(same);
}

// Two blocks per SM leave too few registers for the conversion of operands.
template <class S, int kTile, int kEach, int kTeams, bool kCodes>
__global__ void __launch_bounds__(F32Tiling<kTile, kEach, kTeams>::kThreads,
                                  kCodes || !std::is_same_v<S, float> ? 1 : 2)
    product_kernel(Product<S> p) {
  begin_kernel();
  if constexpr (std::is_same_v<S, float> || kFor75) {
    multiply_tile<S, kTile, kEach, kTeams, kCodes>(p);
  }
}

// The product of a node, without addresses.
struct Form {
  BlasProduct sizes;
  Loops<2> batches;
  bool has_gelu = false;    // Gelu or its gradient follows
  bool is_plain = false;    // operands are not quantized, and have at most one batch axis
  bool in_library = false;  // the library may have such products
  Staging staging;          // how one goes through scratch memory
};

template <class Node>
MatrixProduct sizes_of(const Node& node) {
  MatrixProduct p = matrix_product_of(node);
  p.join_rows();
  return p;
}

// Sets what follows the product. Returns false if the library has no epilogue for it.
template <class Node>
bool set_epilogue(BlasProduct& p, const Node& node) {
  if (node.op != Op::FusedMatMul) {
    p.epilogue = node.inputs.size() == 3 ? BlasEpilogue::bias : BlasEpilogue::none;
    return true;
  }
  const auto& t = node.attributes.template as<file::FusedMatMulAttributes>();
  p.adds = t.addend();
  p.epilogue = t.bias()    ? BlasEpilogue::bias
               : t.sum_a() ? BlasEpilogue::sums_a
               : t.sum_b() ? BlasEpilogue::sums_b
                           : BlasEpilogue::none;
  return !t.gelu() && !t.gelu_grad();
}

template <class Node>
Form form_of(const Node& node, const Traits& traits) {
  const MatrixProduct p = sizes_of(node);
  const auto batch = static_cast<int64_t>(p.batch.elements());
  Form f;
  f.sizes = {.m = p.m,
             .n = p.n,
             .k = p.k,
             .batch = batch,
             .stride_a = p.batch.strides[0][0],
             .stride_b = p.batch.strides[1][0],
             .transpose_a = p.transpose_a,
             .transpose_b = p.transpose_b,
             .type = node.inputs[0].dtype,
             .y_type = node.outputs[0].dtype};
  f.batches = p.batch;
  f.has_gelu = !set_epilogue(f.sizes, node);
  f.is_plain = p.batch.rank <= 1 && p.k > 0 && node.inputs[0].encoding.is_plain() &&
               node.inputs[1].encoding.is_plain();
  f.in_library = f.is_plain && !f.has_gelu;
  f.staging = f.in_library ? staging_of(f.sizes, traits) : Staging();
  f.sizes.tf32 = traits.tf32 && node.type == DType::f32;
  return f;
}

const char* refusal_of(const BlasProduct& s) {
  constexpr int64_t kMax = INT32_MAX - 1024;
  const bool fits =
      std::max({s.m, s.n, s.k}) <= kMax && static_cast<double>(tiles_along(s.m, 32)) *
                                                   static_cast<double>(tiles_along(s.n, 32)) *
                                                   static_cast<double>(s.batch) <=
                                               static_cast<double>(kMax);
  return fits ? nullptr : "The matrices have more than 2^31 rows, columns or tiles.";
}

template <int kTile, int kEach, int kTeams, class T>
void launch_tiles(Launch& l, Product<T> p, int64_t batch) {
  const bool codes = p.sides[0].codes.codes != nullptr || p.sides[1].codes.codes != nullptr;
  for (int i = 0; i < 2; ++i) {
    p.tiles[i] = static_cast<unsigned>(tiles_along(p.sides[i].rows, kTile));
  }
  const unsigned blocks = p.tiles[0] * p.tiles[1] * p.results.splits * static_cast<unsigned>(batch);
  l.launch("product",
           codes ? product_kernel<T, kTile, kEach, kTeams, true>
                 : product_kernel<T, kTile, kEach, kTeams, false>,
           blocks, F32Tiling<kTile, kEach, kTeams>::kThreads, p);
}

// Multiplies operands of dtype T, or quantized ones, in f32.
template <class T>
void multiply(Launch& l, const Form& f) {
  const BlasProduct& s = f.sizes;
  const ProductPlan plan = product_plan(s, l.traits(), l.candidate());
  const auto side = [&](size_t i, int64_t rows, bool along_k) {
    const int ld = static_cast<int>(along_k ? s.k : rows);
    const T* const data = l.is_encoded(i) ? nullptr : l.in_as<T>(i);
    const bool four = ld % 4 == 0 && reinterpret_cast<uintptr_t>(data) % (4 * sizeof(T)) == 0;
    return Side<T>{data,    ld,   static_cast<int>(rows),
                   along_k, four, s.k > 0 ? codes_of(l, i) : Codes{}};
  };
  Product<T> p;
  p.sides[0] = side(0, s.m, !s.transpose_a);
  p.sides[1] = side(1, s.n, s.transpose_b);
  p.k = static_cast<int>(s.k);
  p.batches = f.batches;
  p.split = plan.split;
  p.results = split_results_of<T>(l, sizes_of(l.record()), plan.splits, 4);
  if (plan.tile == 128) {
    launch_tiles<128, 8, 1>(l, p, s.batch);
  } else if (plan.tile == 64) {
    launch_tiles<64, 4, 1>(l, p, s.batch);
  } else {
    launch_tiles<32, 4, 4>(l, p, s.batch);
  }
}

// The sums of lines that the library has written to scratch memory, because it cannot add to a
// gradient, or has another dtype.
template <class T>
__global__ void put_lines_kernel(const void* sums, DType type, Target<T> to, uint64_t count) {
  begin_kernel();
  for_elements(count, [&](uint64_t i) { to.put(i, read(sums, type, static_cast<int64_t>(i))); });
}

constexpr uint64_t kLineAlignment = 256;  // of the workspace behind the sums
uint64_t line_bytes(const BlasProduct& p) {
  const bool sums = p.epilogue == BlasEpilogue::sums_a || p.epilogue == BlasEpilogue::sums_b;
  const uint64_t bytes = static_cast<uint64_t>(std::max(p.m, p.n)) * sizeof(float);
  return sums ? (bytes + kLineAlignment - 1) / kLineAlignment * kLineAlignment : 0;
}

template <class T>
bool multiply_with_library(Launch& l, const Form& f) {
  const Results r = results_of(l);
  BlasProduct p = f.sizes;
  p.adds = p.adds || r.adds;
  // The library adds the old gradient instead of the addend.
  if (!f.in_library || r.is_frozen() || (r.gradient != nullptr && r.addend != nullptr)) {
    return false;
  }
  if (f.staging.of != Staging::Of::nothing && multiply_staged(l, p, f.staging)) {
    return true;
  }
  const LineSums<T> lines = line_sums_of<T>(l);
  const bool direct = !lines.to.adds && l.outputs() == 2 && l.out_type(1) == p.y_type;
  const uint64_t skipped = line_bytes(p);
  BlasOperands o = {.a = l.in(0),
                    .b = l.in(1),
                    .y = l.out(0),
                    .c = r.adds ? r.gradient : r.addend,
                    .bias = const_cast<void*>(r.bias),
                    .workspace = l.workspace() + skipped / sizeof(float),
                    .workspace_bytes = l.workspace_bytes() - skipped};
  if (lines.operand < 0) {
    p.epilogue = skipped > 0 ? BlasEpilogue::none : p.epilogue;  // the sums are frozen
    return l.multiply(p, o);
  }
  o.bias = direct ? l.out(1) : l.workspace();
  if (!l.multiply(p, o)) {
    return false;
  }
  if (!direct) {
    const auto count = static_cast<uint64_t>(lines.operand == 0 ? p.m : p.n);
    l.launch("sums of lines", put_lines_kernel<T>, element_blocks(count), kElementThreads, o.bias,
             p.y_type, lines.to, count);
  }
  return true;
}

// True if matrix_vector.cu computes the product.
bool is_few_rows(const Traits& traits, const device::Operand& a, const MatrixProduct& sizes) {
  return traits.has_few_rows && has_few_rows(sizes) && a.encoding.is_plain();
}

// True if the kernels of tensor_product.cu compute the product. In TF32, the addresses of the
// operands decide, too.
template <class Node>
bool on_tensor_cores(const Node& node, const MatrixProduct& sizes, const Traits& traits) {
  return traits.multiplies(node.type) ||
         (node.type == DType::f32 && may_use_tf32(traits, node.inputs, sizes));
}

// The candidates are Bowline's own kernels. Without a candidate, the library goes first.
template <class Node>
uint32_t candidates_of(const Node& node, const MatrixProduct& sizes, const Form& f,
                       const Traits& traits) {
  return on_tensor_cores(node, sizes, traits)
             ? tensor_product_candidates(sizes, node.type, node.inputs, traits)
             : static_cast<uint32_t>(product_plans(f.sizes).size());
}

uint32_t candidates(const NodeView& v) {
  const MatrixProduct sizes = sizes_of(v.query);
  return sizes.is_empty() ? 0
         : is_few_rows(v.traits, v.query.inputs[0], sizes)
             ? few_rows_candidates(sizes)
             : candidates_of(v.query, sizes, form_of(v.query, v.traits), v.traits);
}

template <class T>
void product(Launch& l) {
  const MatrixProduct sizes = sizes_of(l.record());
  if (sizes.is_empty() || (results_of(l).is_frozen() && line_sums_of<T>(l).operand < 0)) {
    return;
  }
  if (is_few_rows(l.traits(), l.in_operand(0), sizes)) {
    multiply_few_rows(l, sizes);
    return;
  }
  const Form f = form_of(l.record(), l.traits());
  if (l.candidate() >= candidates_of(l.record(), sizes, f, l.traits()) &&
      multiply_with_library<T>(l, f)) {
    return;
  }
  if (on_tensor_cores(l.record(), sizes, l.traits()) && multiply_on_tensor_cores(l, sizes)) {
    return;
  }
  if constexpr (!std::is_same_v<T, __half>) {
    multiply<T>(l, f);
  }
}

// The products of the library for a node. Contributions to gradients are f32.
BlasProduct as_gradient(const NodeView& v, const Form& f) {
  const bool can_be = f.sizes.epilogue == BlasEpilogue::none || line_bytes(f.sizes) > 0;
  BlasProduct p = f.sizes;
  p.y_type = can_be && v.query.op != Op::Linear ? DType::f32 : p.y_type;
  return p;
}

uint64_t workspace_of_library(const NodeView& v, const Form& f) {
  if (!f.in_library) {
    return 0;
  }
  const BlasProduct gradient = as_gradient(v, f);
  uint64_t bytes =
      line_bytes(f.sizes) + std::max(v.blas->workspace(f.sizes), v.blas->workspace(gradient));
  for (const BlasProduct& p : {f.sizes, gradient}) {
    if (const Staging s = staging_of(p, v.traits); s.of != Staging::Of::nothing) {
      bytes = std::max(bytes, staged_workspace(p, s, *v.blas));
    }
  }
  return bytes;
}

uint64_t workspace(const NodeView& v) {
  const MatrixProduct sizes = sizes_of(v.query);
  if (sizes.is_empty()) {
    return 0;
  }
  if (is_few_rows(v.traits, v.query.inputs[0], sizes)) {
    return few_rows_workspace(sizes, !v.query.inputs[1].encoding.is_plain(), v.traits,
                              v.query.candidate);
  }
  const Form f = form_of(v.query, v.traits);
  const uint32_t candidate = v.query.candidate;
  const bool is_own = candidate < candidates_of(v.query, sizes, f, v.traits);
  const uint64_t theirs = is_own || v.blas == nullptr ? 0 : workspace_of_library(v, f);
  uint64_t own = 0;
  if (on_tensor_cores(v.query, sizes, v.traits)) {
    own = tensor_product_workspace(sizes, v.query.type, v.query.inputs, v.traits, candidate);
  }
  if (!v.traits.multiplies(v.query.type)) {
    own = std::max(own, parts_bytes(sizes, product_plan(f.sizes, v.traits, candidate).splits));
  }
  return std::max(own, theirs);
}

// The values before Gelu never are a gradient.
uint32_t gradients_of_fused(const NodeView& v) {
  return v.attributes<file::FusedMatMulAttributes>().gelu() ? 0b1 : 0b11;
}

const char* refusal(const NodeView& v) {
  const Form f = form_of(v.query, v.traits);
  if (line_bytes(f.sizes) > 0 && sizes_of(v.query).is_empty()) {
    return "A product without results has no sums of lines.";
  }
  if (line_bytes(f.sizes) > 0 && v.blas != nullptr && f.in_library &&
      !v.blas->supports(as_gradient(v, f))) {
    return "This version of cuBLASLt has no sums of lines.";
  }
  if (f.has_gelu && v.blas != nullptr && f.is_plain && f.sizes.type != DType::f32 &&
      is_large(f.sizes) && v.blas->supports(f.sizes)) {
    return "The product of cuBLASLt and a launch of Gelu are faster.";
  }
  return refusal_of(f.sizes);
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(mat_mul, .run = product<T>, .workspace = workspace,
                          .candidates = candidates, .refusal = refusal, .accumulates = outputs<0b1>,
                          .encoded = 0b11);
BOWLINE_KERNELS_OF_FLOATS(linear, .run = product<T>, .workspace = workspace,
                          .candidates = candidates, .refusal = refusal, .encoded = 0b10);
BOWLINE_KERNELS_OF_FLOATS(fused_mat_mul, .run = product<T>, .workspace = workspace,
                          .candidates = candidates, .refusal = refusal,
                          .accumulates = gradients_of_fused, .encoded = 0b10);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::matmul_kernels
