//! ops(f32, f16, bf16) Attention
// Attention with memory linear in the length (device/attention.cuh). If few queries see many keys,
// the keys are divided into parts, whose results are joined.
#include "device/attention.cuh"
#include "device/codes.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels {
namespace {

// One block computes o and lse of kOwn queries of a head, over one part of the keys.
template <int kPadded, int kRows>
__global__ void __launch_bounds__(kThreads) attention_kernel(Problem p) {
  using T = Tiling<kPadded, kRows>;
  __shared__ Shared<float4[T::kOwn * T::kQuads]> own;
  __shared__ Shared<float4[T::kBuffer]> buffer;
  __shared__ Shared<float4[T::kWeights]> weights;
  __shared__ Shared<float[T::kOwn]> factor;
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  const int across = static_cast<int>(threadIdx.x) % kAcross;
  // Sums along a row of weights.
  const int row = static_cast<int>(threadIdx.x) / T::kPerRow;
  const int part = static_cast<int>(threadIdx.x) % T::kPerRow;

  const Place place(p.tiles, T::kOwn, p.heads);
  p.read_counts(place.batch);
  const Rows queries = p.of_queries(p.q, place.batch, place.head);
  const int kv_head = place.head / (p.heads / p.kv_heads);
  const Rows keys = p.of_keys(p.k, place.batch, kv_head);
  const Rows values = p.of_keys(p.v, place.batch, kv_head);
  load_own<T>(own, queries, place.first);

  float4 sums[kRows][T::kQuadsEach];
  clear<T>(sums);
  float top = -INFINITY;  // of the row so far
  float sum = 0;          // of exp(s - top)
  const int part_begin = static_cast<int>(blockIdx.y) * p.part;
  const int begin = max(part_begin, p.first_key(place.first) / kOthers * kOthers);
  const int last = min(place.first + T::kOwn, p.live_queries) - 1;
  const int end = last < place.first ? 0 : min(p.seen(last), part_begin + p.part);
  for (int first = begin; first < end; first += kOthers) {
    float dots[kRows][4];
    multiply<T>(own, buffer, keys, first, dots);
    for (int i = 0; i < kRows; ++i) {
      const int query = place.first + down + kDown * i;
      const int left = p.seen(query) - (first + 4 * across);
      const int hidden = p.first_key(query) - (first + 4 * across);
      float s[4];
      for (int j = 0; j < 4; ++j) {
        s[j] = hidden <= j && j < left ? p.masked(p.capped(p.scale * dots[i][j]), place.batch,
                                                  place.head, query, first + 4 * across + j)
                                       : -INFINITY;
      }
      weights[(down + kDown * i) * (kOthers / 4) + across] = make_float4(s[0], s[1], s[2], s[3]);
    }
    __syncthreads();
    constexpr int kEach = kOthers / 4 / T::kPerRow;
    float4 s[kEach];
    float new_top = top;
    for (int c = 0; c < kEach; ++c) {
      s[c] = weights[row * (kOthers / 4) + part + T::kPerRow * c];
      new_top = fmaxf(new_top, fmaxf(fmaxf(s[c].x, s[c].y), fmaxf(s[c].z, s[c].w)));
    }
    for (int other = 1; other < T::kPerRow; other *= 2) {
      new_top = fmaxf(new_top, __shfl_xor_sync(0xFFFFFFFF, new_top, other));
    }
    const float shift = new_top == -INFINITY ? 0.0f : new_top;
    const float scaled = new_top == top ? 1.0f : expf(top - shift);
    float more = 0;
    for (int c = 0; c < kEach; ++c) {
      const float4 e = make_float4(expf(s[c].x - shift), expf(s[c].y - shift), expf(s[c].z - shift),
                                   expf(s[c].w - shift));
      weights[row * (kOthers / 4) + part + T::kPerRow * c] = e;
      more += (e.x + e.y) + (e.z + e.w);
    }
    for (int other = 1; other < T::kPerRow; other *= 2) {
      more += __shfl_xor_sync(0xFFFFFFFF, more, other);
    }
    sum = sum * scaled + more;
    top = new_top;
    if (part == 0) {
      factor[row] = scaled;
    }
    __syncthreads();
    for (int i = 0; i < kRows; ++i) {
      const float f = factor[down + kDown * i];
      for (int c = 0; c < T::kQuadsEach; ++c) {
        sums[i][c] =
            make_float4(f * sums[i][c].x, f * sums[i][c].y, f * sums[i][c].z, f * sums[i][c].w);
      }
    }
    add_rows<T>(weights, buffer, values, first, end, sums, p.mask.any());
  }
  if (part == 0) {
    factor[row] = sum == 0 ? 0.0f : 1.0f / sum;
    const int query = place.first + row;
    if (query < p.queries) {
      p.row_out[blockIdx.y * p.rows() + (place.batch * p.heads + place.head) * p.queries + query] =
          sum == 0 ? -INFINITY : top + logf(sum);
    }
  }
  __syncthreads();
  for (int i = 0; i < kRows; ++i) {
    const float f = factor[down + kDown * i];
    for (int c = 0; c < T::kQuadsEach; ++c) {
      sums[i][c] =
          make_float4(f * sums[i][c].x, f * sums[i][c].y, f * sums[i][c].z, f * sums[i][c].w);
    }
  }
  write<T>(
      queries,
      p.out + blockIdx.y * p.rows() * p.dim + p.start(place.batch, p.queries, p.heads, place.head),
      place.first, sums);
}

// Combines the parts: adds their results, weighted by exp(lse).
__global__ void join_kernel(const float* outs, const float* lses, int parts, float* out, float* lse,
                            Problem p) {
  const int64_t rows = p.rows();
  const int64_t count = rows * p.dim;
  for_elements(static_cast<uint64_t>(count), [&](uint64_t element) {
    const auto i = static_cast<int64_t>(element);
    const int64_t row = i / p.dim;  // [batch, query, head]
    const int64_t query = row / p.heads;
    const int64_t at =
        (query / p.queries * p.heads + row % p.heads) * p.queries + query % p.queries;
    float top = -INFINITY;
    for (int part = 0; part < parts; ++part) {
      top = fmaxf(top, lses[part * rows + at]);
    }
    float sum = 0;
    float weights = 0;
    for (int part = 0; part < parts; ++part) {
      const float l = lses[part * rows + at];
      const float weight = l == -INFINITY ? 0.0f : expf(l - top);
      weights += weight;
      sum += weight * outs[part * count + i];
    }
    out[i] = weights == 0 ? 0.0f : sum / weights;
    if (i % p.dim == 0) {
      lse[at] = weights == 0 ? -INFINITY : top + logf(weights);
    }
  });
}

// Dequantizes rows of keys or values to f32. A batch element has `keys` rows of `inner` elements;
// only rows before the current size are valid.
__global__ void decode_kernel(Codes from, float* to, const uint32_t* count_at, uint64_t n, int keys,
                              uint64_t inner) {
  for_elements(n, [&](uint64_t i) {
    const uint64_t key = i / inner % static_cast<uint64_t>(keys);
    if (count_at == nullptr || key < *count_at) {
      const auto columns = static_cast<uint64_t>(from.columns);
      to[i] = decode(from, static_cast<int64_t>(i / columns), static_cast<uint32_t>(i % columns));
    }
  });
}

// Reports a length that is out of range.
__global__ void check_lengths_kernel(const int32_t* lengths, int count, int keys,
                                     device::StepHead* head, uint32_t node) {
  for_elements(static_cast<uint64_t>(count), [&](uint64_t i) {
    if (lengths[i] < 0 || lengths[i] > keys) {
      bad_index(head, node, lengths[i]);
    }
  });
}

// The number of parts of the keys, if few queries see many keys. Sets the keys per part.
int parts_of(Problem& p) {
  constexpr int64_t kSmallest = 128;  // keys per part
  constexpr int64_t kMaxBytes = int64_t{8} << 20;
  Problem small = p;
  const int64_t blocks = tile(small, false, 2 * kDown);
  if (blocks == 0 || blocks >= kFill) {
    return 1;
  }
  const int64_t parts =
      std::min({2 * kFill / blocks, p.keys / kSmallest, kMaxBytes / (p.rows() * (p.dim + 1) * 4)});
  if (parts <= 1) {
    return 1;
  }
  p.part = static_cast<int>((p.keys + parts * kOthers - 1) / (parts * kOthers)) * kOthers;
  return (p.keys + p.part - 1) / p.part;
}

// Floats of dequantized keys or values.
uint64_t decoded_floats(const device::Operand& o) {
  return o.encoding.is_plain() ? 0 : round_up(static_cast<uint64_t>(o.shape.elements()), 64);
}

uint64_t attention_workspace(const NodeView& node) {
  Problem p = problem_of(node.attributes<AttentionAttributes>(), node.in(0), node.in(1));
  const int parts = parts_of(p);
  const std::span<const device::Operand> in = node.query.inputs;
  return Wide::bytes(node) + (decoded_floats(in[1]) + decoded_floats(in[2])) * sizeof(float) +
         (parts == 1 ? 0 : static_cast<uint64_t>(parts * p.rows() * (p.dim + 1)) * 4);
}

// The address of input i in f32. A quantized input is dequantized into the workspace, and
// `workspace` moves behind it.
const float* numbers_of(Launch& l, size_t i, const float* plain, float*& workspace) {
  if (!l.is_encoded(i)) {
    return plain;
  }
  const Shape& shape = l.in_shape(i);
  const auto n = static_cast<uint64_t>(shape.elements());
  float* const to = workspace;
  l.launch("attention decode", decode_kernel, element_blocks(n), kElementThreads, codes_of(l, i),
           to, l.count(i, 1), n, static_cast<int>(shape[1]),
           static_cast<uint64_t>(shape.elements(2, 4)));
  workspace += decoded_floats(l.in_operand(i));
  return to;
}

void attention(Launch& l) {
  Wide wide(l);
  Problem p = problem_of(l, wide, 3);
  if (p.mask.lengths != nullptr) {
    l.launch("attention lengths", check_lengths_kernel,
             element_blocks(static_cast<uint64_t>(p.batches)), kElementThreads, p.mask.lengths,
             p.batches, p.keys, l.head(), l.node());
  }
  p.query_count = l.count(0, 1);
  p.key_count = l.count(1, 1);
  float* workspace = wide.workspace();
  p.k = numbers_of(l, 1, p.k, workspace);
  p.v = numbers_of(l, 2, p.v, workspace);
  const int parts = parts_of(p);
  p.out = parts == 1 ? wide.out(0) : workspace;
  p.row_out = parts == 1 ? wide.out(1) : workspace + parts * p.rows() * p.dim;
  p.four = p.dim % 4 == 0 && aligned16(p.q, p.k, p.v, p.out);
  with_tiling<128>(p, false, [&]<int kPadded, int kRows>() {
    const unsigned blocks = tile(p, false, Tiling<kPadded, kRows>::kOwn);
    l.launch("attention", attention_kernel<kPadded, kRows>,
             dim3(blocks, static_cast<unsigned>(parts)), kThreads, p);
  });
  if (parts > 1) {
    l.launch("attention join", join_kernel, element_blocks(static_cast<uint64_t>(p.rows() * p.dim)),
             kElementThreads, p.out, p.row_out, parts, wide.out(0), wide.out(1), p);
  }
  wide.finish();
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(attention, .run = attention, .workspace = attention_workspace,
                          .refusal = refusal, .encoded = 0b110);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels
