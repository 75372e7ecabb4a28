//! ops(f32, f16, bf16) Attention PackedAttention
// Attention with memory linear in the length: for few queries (device/attention_few.cuh), on tensor
// cores (device/attention_mma.cuh), or in f32 arithmetic (device/attention_tiles.cuh). If the
// queries do not fill the GPU, the keys are divided into parts, whose results are joined.
#include "device/attention_few.cuh"
#include "device/attention_softmax_mma.cuh"
#include "device/attention_tiles.cuh"
#include "device/begin.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels {
namespace {

// One block computes o and lse of kOwn queries of a head, over one part of the keys.
template <int kPadded, int kRows>
__global__ void __launch_bounds__(kThreads, 3) attention_kernel(Problem p) {
  begin_kernel();
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
  const Rows queries = p.queries_of(place.batch, place.head);
  const int kv_head = place.head / (p.heads / p.kv_heads);
  const Rows keys = p.keys_of(place.batch, kv_head);
  const Rows values = p.values_of(place.batch, kv_head);
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
    BOWLINE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int query = place.first + down + kDown * i;
      const int left = p.seen(query) - (first + 4 * across);
      const int hidden = p.first_key(query) - (first + 4 * across);
      float s[4];
      BOWLINE_UNROLL
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
    BOWLINE_UNROLL
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
    BOWLINE_UNROLL
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
    BOWLINE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const float f = factor[down + kDown * i];
      BOWLINE_UNROLL
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
      p.put_lse(place.batch, place.head, query, sum == 0 ? -INFINITY : top + logf(sum));
    }
  }
  __syncthreads();
  BOWLINE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const float f = factor[down + kDown * i];
    BOWLINE_UNROLL
    for (int c = 0; c < T::kQuadsEach; ++c) {
      sums[i][c] =
          make_float4(f * sums[i][c].x, f * sums[i][c].y, f * sums[i][c].z, f * sums[i][c].w);
    }
  }
  Rows to = p.of_queries(p.q, place.batch, place.head);
  to.first += static_cast<int>(blockIdx.y * p.rows());
  write<T>(to, p.out, place.first, sums);
}

// The same on tensor cores: one block computes kColumns columns of o and lse of kOwn queries of a
// head, over one part of the keys.
template <class T, int kPadded, int kRowTiles, bool kPlain>
__device__ void multiply_tiles(const Problem& given) {
  using M = MmaTiling<kPadded, kRowTiles>;
  Problem p = promised<T, kPlain>(given);
  const Tile<T, kPadded> own{dynamic_shared()};
  const Packs others = own.packs.from(M::kOwn * M::kPacks);
  const Packs flags = others.from(2 * M::kStages * M::kOthers * M::kPacks);
  const auto tile = [&](int first, bool value) {
    const int stage = 2 * stage_of<M>(first) + (value ? 1 : 0);
    return Tile<T, kPadded>{others.from(stage * M::kOthers * M::kPacks)};
  };
  const Lane l(static_cast<int>(threadIdx.x));
  const Place place(p.tiles, M::kOwn, p.heads);
  p.read_counts(place.batch);
  const Rows queries = p.queries_of(place.batch, place.head);
  const int kv_head = place.head / (p.heads / p.kv_heads);
  const Rows keys = p.keys_of(place.batch, kv_head);
  const Rows values = p.values_of(place.batch, kv_head);
  const bool skip = p.mask.any();

  const int part_begin = static_cast<int>(blockIdx.y) * p.part;
  const int begin = max(part_begin, p.first_key(place.first) / M::kOthers * M::kOthers);
  const int last = min(place.first + M::kOwn, p.live_queries) - 1;
  const int end = last < place.first ? 0 : min(p.seen(last), part_begin + p.part);
  const int row = M::kRows * l.warp;  // of the warp
  const int query = place.first + row;
  const int last_query = min(query + M::kRows, p.live_queries) - 1;
  const int warp_begin = p.first_key(query);
  const int warp_end = last_query < query ? 0 : p.seen(last_query);
  const auto copy_keys = [&](int first) {
    if (first < end) {
      tile(first, false).template copy<M::kOthers, kPlain>(keys, first);
    }
  };
  const auto copy_values = [&](int first) {
    if (first < end) {
      tile(first, true).template copy<M::kOthers, kPlain>(values, first);
    }
  };
  own.template copy<M::kOwn, kPlain>(queries, place.first);
  copy_keys(begin);
  if (M::kStages == 2) {
    copy_values(begin);
  }
  commit_copies();

  const int first_step = first_step_of<kPadded, M::kColumns>(blockIdx.z);
  Block<M::kColumns / 8> out[kRowTiles];
  Softmax softmax[kRowTiles][2];
  // Adds a tile of keys. kWhole: all queries of the block see all of its keys.
  const auto add = [&]<bool kWhole>(int first) {
    const bool sees = kWhole || (first < warp_end && first + M::kOthers > warp_begin);
    wait_copies<0>();
    __syncthreads();
    if (M::kStages == 2) {
      copy_keys(first + M::kOthers);
      copy_values(first + M::kOthers);
    } else {
      copy_values(first);
    }
    commit_copies();
    Block<M::kOthers / 8> s[kRowTiles];
    if (sees) {
      multiply(l, own, row, tile(first, false), s);
    }
    if (M::kStages == 1) {
      wait_copies<0>();
      __syncthreads();
      copy_keys(first + M::kOthers);
      commit_copies();
    }
    const uint64_t odd = skip ? tile(first, true).template take_odd<M::kOthers>(flags) : 0;
    if (sees) {
      float factor = p.scale * kLog2E;
      if (!kWhole) {
        BOWLINE_UNROLL
        for (int t = 0; t < kRowTiles; ++t) {
          factor = score<kPlain>(p, l, {place.batch, place.head, query + 16 * t, first}, s[t]);
        }
      }
      weigh(factor, s, softmax, out);
      add_rows(l, s, tile(first, true), first_step, out);
      BOWLINE_UNROLL
      for (int t = 0; t < kRowTiles; ++t) {
        add_odd(odd, s[t], values, first, first_step, out[t]);
      }
    }
  };
  for_tiles<kPlain, M::kOthers>(begin, end, whole_keys<M::kOwn, M::kOthers>(p, place.first, end),
                                add);
  Rows to = p.of_queries(p.q, place.batch, place.head);
  to.first += static_cast<int>(blockIdx.y * p.rows());
  BOWLINE_UNROLL
  for (int t = 0; t < kRowTiles; ++t) {
    normalize(p, place, l, query + 16 * t, softmax[t], out[t]);
  }
  if (kPlain && p.out.type != DType::f32) {
    wait_own(begin < end);
    write_packs(l, out, own, row, to, static_cast<T*>(p.out.data), query, first_step);
    return;
  }
  const Target target{p.out.data, kPlain ? DType::f32 : p.out.type};
  BOWLINE_UNROLL
  for (int t = 0; t < kRowTiles; ++t) {
    write_sums(l, out[t], to, target, query + 16 * t, first_step);
  }
}

template <class T, int kPadded, int kRowTiles, bool kPlain>
__global__ void __launch_bounds__(kMmaThreads, kMmaBlocks) mma_kernel(Problem p) {
  begin_kernel();
  if constexpr (kMultiplies<T>) {
    multiply_tiles<T, kPadded, kRowTiles, kPlain>(p);
  }
}

// Joins the parts. One block per row.
__global__ void join_kernel(KeyParts parts, Problem p) {
  begin_kernel();
  join_row(p, parts, blockIdx.x);
}

// Reports a length that is out of range.
__global__ void check_lengths_kernel(const int32_t* lengths, int count, int keys,
                                     device::StepHead* head, uint32_t node) {
  begin_kernel();
  for_elements(static_cast<uint64_t>(count), [&](uint64_t i) {
    if (lengths[i] < 0 || lengths[i] > keys) {
      bad_index(head, node, lengths[i]);
    }
  });
}

// Which kernel runs, a function of shapes, dtypes and the device.
struct Choice {
  AttentionKernel kernel;
  int own;  // queries of a block; for few_rows, rows of a key head
  int parts;
};

// Tensor cores compute in this dtype, and the tiles fit in shared memory.
bool uses_tensor_cores(const Problem& p, DType type, const Traits& traits) {
  unsigned shared = 0;
  with_padded(p, [&]<int kPadded>() { shared = MmaTiling<kPadded, 1>::kShared; });
  return type != DType::f32 && traits.multiplies(type) && shared <= traits.shared_bytes();
}

// Sets the tiles of the problem. Returns the number of blocks without parts.
unsigned set_tiles(Problem& p, Choice& choice) {
  if (choice.kernel != AttentionKernel::few_rows) {
    return tile(p, false, choice.own);
  }
  const int group = p.heads / p.kv_heads;
  choice.own = p.queries * group == 1 ? 1 : 4;
  p.tiles = blocks_for(static_cast<uint64_t>(p.queries * group), static_cast<uint64_t>(choice.own));
  return p.tiles * static_cast<unsigned>(p.batches * p.kv_heads);
}

// The most parts with at least `smallest` keys each.
int64_t most_parts(const Problem& p, int64_t smallest) {
  constexpr int64_t kMaxBytes = int64_t{8} << 20;
  return std::min(
      {p.keys / smallest, kMaxBytes / (p.rows() * (p.dim + 1) * 4), int64_t{kMaxParts}});
}

// Sets the keys per part of the problem.
void divide(Problem& p, Choice& choice, int64_t parts) {
  if (parts > 1) {
    const int unit = choice.kernel == AttentionKernel::few_rows ? kFewKeys : kOthers;
    p.part = static_cast<int>((p.keys + parts * unit - 1) / (parts * unit)) * unit;
    choice.parts = (p.keys + p.part - 1) / p.part;
  }
}

Choice with_kernel(AttentionKernel kernel) {
  return {kernel, kernel == AttentionKernel::mma ? 16 * kMmaWarps : 2 * kDown, 1};
}

// The ways that `bowline tune` measures: every kernel that can run, with 1, 2, 4 and more parts.
std::vector<Choice> candidates_of(const Problem& p, DType type, bool quantized,
                                  const Traits& traits) {
  constexpr int kMostQueries = 32;  // of few_rows, which reads all keys again for every few queries
  std::vector<Choice> out;
  for (const AttentionKernel kernel :
       {AttentionKernel::few_rows, AttentionKernel::mma, AttentionKernel::tiles}) {
    const bool can_run = kernel == AttentionKernel::few_rows ? p.queries <= kMostQueries
                         : kernel == AttentionKernel::mma
                             ? !quantized && uses_tensor_cores(p, type, traits)
                             : true;
    const bool is_wanted =
        traits.attention == AttentionKernel::by_shape || traits.attention == kernel;
    Problem tiled = p;
    Choice choice = with_kernel(kernel);
    if (!can_run || !is_wanted || set_tiles(tiled, choice) == 0) {
      continue;
    }
    out.push_back(choice);
    const int64_t most = traits.parts == Parts::one ? 1 : most_parts(p, kOthers);
    for (int64_t parts = 2; parts <= most; parts *= 2) {
      divide(tiled, choice, parts);
      if (choice.parts > out.back().parts) {
        out.push_back(choice);
      }
    }
  }
  return out;
}

// Sets the tiles and the keys per part of the problem, as the candidate does, or by shape.
Choice choose(Problem& p, DType type, bool quantized, const Traits& traits, uint32_t candidate) {
  constexpr int kMaxFewQueries = 8;
  if (candidate != device::kNoCandidate) {
    const std::vector<Choice> candidates = candidates_of(p, type, quantized, traits);
    if (candidate < candidates.size()) {
      Choice choice = candidates[candidate];
      (void)set_tiles(p, choice);
      divide(p, choice, choice.parts);
      return choice;
    }
  }
  const AttentionKernel forced = traits.attention;
  const bool many = traits.parts == Parts::many;
  const bool is_few = forced == AttentionKernel::by_shape ? p.queries <= kMaxFewQueries
                                                          : forced == AttentionKernel::few_rows;
  const bool is_mma = !is_few && forced != AttentionKernel::tiles && !quantized &&
                      uses_tensor_cores(p, type, traits);
  Choice out = with_kernel(is_few   ? AttentionKernel::few_rows
                           : is_mma ? AttentionKernel::mma
                                    : AttentionKernel::tiles);
  const unsigned blocks = set_tiles(p, out);
  const int64_t fill = int64_t{traits.processors} * (is_few ? 4 : 1);
  if (blocks == 0 || traits.parts == Parts::one || (!many && blocks >= fill)) {
    return out;
  }
  // Tensor cores multiply so fast that fewer keys per part are not worth a launch that joins.
  // A few queries take shorter parts if the usual ones do not reach every multiprocessor.
  const bool is_sparse = is_few && int64_t{p.keys} / 64 * blocks < traits.processors;
  const int64_t smallest = many ? 1 : is_mma ? 512 : is_sparse ? kFewKeys : 64;
  const int64_t useful = many ? kMaxParts : 2 * fill / blocks;
  divide(p, out, std::min(useful, most_parts(p, smallest)));
  return out;
}

// What a query says of attention.
struct Asked {
  Problem problem;
  bool quantized;
};
Asked asked(const NodeView& node) {
  if (node.query.op == Op::PackedAttention) {
    return {packed_problem(node.attributes<file::PackedAttentionAttributes>(), node.in(0)), false};
  }
  const std::span<const device::Operand> in = node.query.inputs;
  return {problem_of(node.attributes<AttentionAttributes>(), node.in(0), node.in(1)),
          !in[1].encoding.is_plain() || !in[2].encoding.is_plain()};
}

uint64_t workspace(const NodeView& node) {
  auto [p, quantized] = asked(node);
  const int parts = choose(p, node.query.type, quantized, node.traits, node.query.candidate).parts;
  return parts == 1 ? 0 : static_cast<uint64_t>(parts * p.rows() * (p.dim + 1)) * sizeof(float);
}

uint32_t candidates(const NodeView& node) {
  const auto [p, quantized] = asked(node);
  return static_cast<uint32_t>(candidates_of(p, node.query.type, quantized, node.traits).size());
}

// K is the type of a stored key.
template <class K>
void few_rows(Launch& l, const Problem& p, const Choice& choice, const KeyParts& parts) {
  const dim3 blocks(p.tiles * static_cast<unsigned>(p.batches * p.kv_heads),
                    static_cast<unsigned>(choice.parts));
  l.launch("attention", choice.own == 1 ? few_rows_kernel<K, 1> : few_rows_kernel<K, 4>, blocks,
           kFewThreads, p, parts);
}

template <class T>
void mma(Launch& l, const Problem& p, const Choice& choice) {
  const auto launch = [&]<int kPadded, int kRowTiles, bool kPlain>() {
    using M = MmaTiling<kPadded, kRowTiles>;
    Problem tiled = p;
    const dim3 blocks(tile(tiled, false, M::kOwn), static_cast<unsigned>(choice.parts),
                      kPadded / M::kColumns);
    constexpr bool kFew = kRowTiles < kPlainRowTiles<kPadded>;
    l.launch_shared(!kPlain ? "general tensor attention"
                    : kFew  ? "tensor attention of few blocks"
                            : "tensor attention",
                    mma_kernel<T, kPadded, kRowTiles, kPlain>, blocks, kMmaThreads, M::kShared,
                    tiled);
  };
  with_padded(p, [&]<int kPadded>() {
    constexpr int kRowTiles = kPlainRowTiles<kPadded>;
    Problem tiled = p;
    const unsigned blocks = tile(tiled, false, MmaTiling<kPadded, kRowTiles>::kOwn);
    if (is_plain<kRowTiles>(p, blocks, l.traits())) {
      launch.template operator()<kPadded, kRowTiles, true>();
    } else if (is_plain<1>(p, blocks, l.traits())) {
      launch.template operator()<kPadded, 1, true>();
    } else {
      launch.template operator()<kGeneralPadded<kPadded>, 1, false>();
    }
  });
}

void tiles(Launch& l, const Problem& p, const Choice& choice) {
  with_tiling<128>(p, false, 0, [&]<int kPadded, int kRows>() {
    Problem tiled = p;
    const unsigned blocks = tile(tiled, false, Tiling<kPadded, kRows>::kOwn);
    l.launch("attention", attention_kernel<kPadded, kRows>,
             dim3(blocks, static_cast<unsigned>(choice.parts)), kThreads, tiled);
  });
}

// The operands of the problem are set.
template <class T>
void run(Launch& l, Problem p, bool quantized) {
  const Choice choice = choose(p, l.type(), quantized, l.traits(), l.candidate());
  KeyParts parts = {.count = choice.parts, .out = {l.out(0), l.type()}, .row_out = l.out(1)};
  p.out = parts.out;
  p.row_out = parts.row_out;
  if (choice.parts > 1) {
    parts.outs = l.workspace();
    parts.lses = l.workspace() + int64_t{choice.parts} * p.rows() * p.dim;
    p.out = {parts.outs, DType::f32};
    p.row_out = parts.lses;
  }
  switch (choice.kernel) {
    case AttentionKernel::few_rows:
      parts.counters = l.block_counters();
      parts.last_block_joins =
          choice.parts > 1 &&
          p.tiles * static_cast<unsigned>(p.batches * p.kv_heads) <= kBlockCounters;
      quantized ? few_rows<Codes>(l, p, choice, parts) : few_rows<T>(l, p, choice, parts);
      break;
    case AttentionKernel::mma:
      if constexpr (sizeof(T) == 2) {
        mma<T>(l, p, choice);
      }
      break;
    case AttentionKernel::by_shape:
    case AttentionKernel::tiles:
      tiles(l, p, choice);
      break;
  }
  if (choice.parts > 1 && !parts.last_block_joins) {
    l.launch("attention join", join_kernel, static_cast<unsigned>(p.rows()), kJoinThreads, parts,
             p);
  }
}

template <class T>
void attention(Launch& l) {
  Problem p = problem_of(l, 3);
  if (p.mask.lengths != nullptr) {
    l.launch("attention lengths", check_lengths_kernel,
             element_blocks(static_cast<uint64_t>(p.batches)), kElementThreads, p.mask.lengths,
             p.batches, p.keys, l.head(), l.node());
  }
  p.query_count = l.count(0, 1);
  p.key_count = l.count(1, 1);
  const bool quantized = l.is_encoded(1) || l.is_encoded(2);
  align(p, l.in(0), l.in(l.is_encoded(1) ? 0 : 1), l.in(l.is_encoded(2) ? 0 : 2), l.out(0));
  run<T>(l, p, quantized);
}

template <class T>
void packed_attention(Launch& l) {
  Problem p = packed_problem<T>(l);
  align(p, p.q.data, p.k.data, p.v.data, l.out(0));
  run<T>(l, p, false);
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(attention, .run = attention<T>, .workspace = workspace,
                          .candidates = candidates, .refusal = refusal, .encoded = 0b110);
BOWLINE_KERNELS_OF_FLOATS(packed_attention, .run = packed_attention<T>, .workspace = workspace,
                          .candidates = candidates, .refusal = packed_refusal);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::attention_kernels
