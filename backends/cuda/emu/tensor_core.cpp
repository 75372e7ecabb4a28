#include "emu/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "base/format.h"
#include "emu/runtime.h"
#include "emu/shared.h"

namespace bowline::detail::cuda_emu {
namespace {

constexpr int kWords = 4;        // per pack
constexpr unsigned kBanks = 32;  // of 4 bytes

// A word of dynamic shared memory.
struct Word {
  uint32_t value = 0;
  AccessLog log;
  uint64_t flight = 0;  // number of the block for which an asynchronous copy is on its way
};

struct Copy {
  int pack;
  uint4 value;
  unsigned group;
};

// The asynchronous copies of a thread that are not complete, oldest first.
struct Copies {
  uint64_t block = 0;
  unsigned group = 0;  // number of the open group
  std::vector<Copy> pending;
};

// The accesses of a warp by one execution of a line.
struct Access {
  unsigned bytes = 0;
  int words[kWarp];  // address by lane; -1: none
  Access() { std::fill(std::begin(words), std::end(words), -1); }
};

// The host runs one grid at a time. Blocks that run by turns have a memory each, others share one.
struct BlockMemory {
  std::vector<Word> words;
  std::vector<Copies> copies;  // by thread of the block
};
std::vector<BlockMemory> memories(1);  // by Running::place

BlockMemory& my_memory() {
  if (memories.size() <= running.place) {
    memories.resize(running.place + 1);
  }
  return memories[running.place];
}

struct Conflicts {
  bool on = false;
  uint64_t of_matrices = 0;
  std::map<std::tuple<uint64_t, unsigned, unsigned>, unsigned> executions;  // block, thread, line
  std::map<std::tuple<uint64_t, unsigned, unsigned, unsigned>, Access> accesses;
} conflicts;

// The additional passes of one phase of 128 bytes. `bytes` is the size of an access.
uint64_t passes(const int* words, unsigned lanes, unsigned bytes) {
  std::set<int> distinct;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    for (unsigned w = 0; words[lane] >= 0 && w < bytes / 4; ++w) {
      distinct.insert(words[lane] + static_cast<int>(w));
    }
  }
  unsigned most = 1;
  unsigned in_bank[kBanks] = {};
  for (const int word : distinct) {
    most = std::max(most, ++in_bank[static_cast<unsigned>(word) % kBanks]);
  }
  return most - 1;
}

void note(int word, unsigned bytes, Where where) {
  if (!conflicts.on) {
    return;
  }
  const Thread& t = *running.thread;
  const unsigned execution = conflicts.executions[{running.block_number, t.linear, where.line()}]++;
  Access& access = conflicts.accesses[{running.block_number, t.warp, where.line(), execution}];
  access.bytes = bytes;
  access.words[t.lane] = word;
}

Word& word_at(int word) {
  if (word < 0 || static_cast<unsigned>(word) >= running.shared_bytes / 4) {
    fail(format("It accesses word {} of {} in dynamic shared memory.", word,
                running.shared_bytes / 4));
  }
  std::vector<Word>& words = my_memory().words;
  if (words.size() < running.shared_bytes / 4) {
    words.resize(running.shared_bytes / 4);
  }
  Word& w = words[static_cast<size_t>(word)];
  if (w.flight == running.block_number) {
    fail("It accesses shared memory that an asynchronous copy has not filled yet.");
  }
  return w;
}

uint32_t read_word(int word) {
  Word& w = word_at(word);
  w.log.read();
  return w.value;
}

void write_word(int word, uint32_t value) {
  Word& w = word_at(word);
  w.log.write();
  w.value = value;
}

void write_pack(int pack, uint4 value) {
  write_word(kWords * pack, value.x);
  write_word(kWords * pack + 1, value.y);
  write_word(kWords * pack + 2, value.z);
  write_word(kWords * pack + 3, value.w);
}

// The copies of the running thread.
Copies& my_copies() {
  std::vector<Copies>& copies = my_memory().copies;
  if (copies.size() <= running.thread->linear) {
    copies.resize(running.thread->linear + 1);
  }
  Copies& mine = copies[running.thread->linear];
  if (mine.block != running.block_number) {
    mine = {};
    mine.block = running.block_number;
  }
  return mine;
}

// The operands of one lane of a matrix load.
struct MatrixRows {
  uint32_t* to;
  int pack;
};

// Loads kCount matrices of 8 x 8 16-bit elements. Lane 8 i + r has the address of row r of matrix
// i. Without transposition, lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each
// matrix; with it, the same elements of column l / 4.
template <int kCount, bool kTransposed>
void load_all(const uint64_t (&values)[kWarp]) {
  uint16_t rows[8 * kCount][8];
  int words[8 * kCount];
  for (int r = 0; r < 8 * kCount; ++r) {
    const auto* lane = reinterpret_cast<const MatrixRows*>(values[r]);
    words[r] = kWords * lane->pack;
    for (int w = 0; w < kWords; ++w) {
      Word& word = word_at(words[r] + w);
      word.log.read_by_warp();
      std::memcpy(&rows[r][2 * w], &word.value, sizeof(uint32_t));
    }
  }
  for (int i = 0; i < kCount; ++i) {
    conflicts.of_matrices += conflicts.on ? passes(words + 8 * i, 8, 16) : 0;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      const unsigned at = lane / 4;
      const unsigned pair = 2 * (lane % 4);
      const auto element = [&](unsigned k) -> uint32_t {
        return kTransposed ? rows[8 * i + static_cast<int>(k)][at]
                           : rows[8 * i + static_cast<int>(at)][k];
      };
      reinterpret_cast<const MatrixRows*>(values[lane])->to[i] = element(pair) | element(pair + 1)
                                                                                     << 16;
    }
  }
}

template <int kCount, bool kTransposed>
void load(uint32_t* to, int pack, Where where) {
  const MatrixRows mine = {to, pack};
  warp_together(&load_all<kCount, kTransposed>, reinterpret_cast<uintptr_t>(&mine), where);
}

// The operands of one lane.
struct MatrixOperands {
  float* sums;
  const uint32_t* a;
  const uint32_t* b;
};

float to_float(__half x) { return __half2float(x); }
float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
// Element `e` of a register. Of an f32, the lower bits are ignored: it is a TF32.
template <class T>
float element(uint32_t bits, unsigned e) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(bits & ~0x1FFFu);
  } else {
    return to_float(T{static_cast<uint16_t>(bits >> 16 * e)});
  }
}

// sums[16][8] += a[16][kDepth] b[kDepth][8]. A register has kEach elements along k. Lane l has
// elements of row l / 4 of a and column l / 4 of b.
template <class T>
void multiply_all(const uint64_t (&values)[kWarp]) {
  constexpr unsigned kEach = sizeof(uint32_t) / sizeof(T);
  constexpr unsigned kDepth = 8 * kEach;
  float a[16][kDepth];
  float b[kDepth][8];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const auto& o = *reinterpret_cast<const MatrixOperands*>(values[lane]);
    const unsigned row = lane / 4;
    for (unsigned e = 0; e < kEach; ++e) {
      const unsigned k = kEach * (lane % 4) + e;
      for (unsigned i = 0; i < 4; ++i) {
        a[row + 8 * (i % 2)][k + kDepth / 2 * (i / 2)] = element<T>(o.a[i], e);
      }
      for (unsigned i = 0; i < 2; ++i) {
        b[k + kDepth / 2 * i][row] = element<T>(o.b[i], e);
      }
    }
  }
  for (unsigned m = 0; m < 16; ++m) {
    float sum[8] = {};
    for (unsigned k = 0; k < kDepth; ++k) {
      for (unsigned n = 0; n < 8; ++n) {
        sum[n] += a[m][k] * b[k][n];
      }
    }
    for (unsigned n = 0; n < 8; ++n) {
      const auto& o = *reinterpret_cast<const MatrixOperands*>(values[4 * (m % 8) + n / 2]);
      o.sums[2 * (m / 8) + n % 2] += sum[n];
    }
  }
}

void require_sm_80(std::string_view type, Where where) {
  if (machine().major < 8) {
    fail(format("The product of {} at line {} needs sm_80.", type, where.line()));
  }
}

}  // namespace

void count_bank_conflicts(bool on) {
  conflicts = {};
  conflicts.on = on;
}

uint64_t bank_conflicts() {
  uint64_t sum = conflicts.of_matrices;
  for (const auto& [key, access] : conflicts.accesses) {
    const unsigned lanes = 128 / access.bytes;
    for (unsigned first = 0; first < kWarp; first += lanes) {
      sum += passes(access.words + first, std::min(lanes, kWarp), access.bytes);
    }
  }
  return sum;
}

uint4 Packs::load(int pack, Where where) const {
  const int word = kWords * (first_ + pack);
  note(word, 16, where);
  return {read_word(word), read_word(word + 1), read_word(word + 2), read_word(word + 3)};
}

void Packs::store(int pack, uint4 value, Where where) const {
  note(kWords * (first_ + pack), 16, where);
  write_pack(first_ + pack, value);
}

uint32_t Packs::load_word(int word, Where where) const {
  note(kWords * first_ + word, 4, where);
  return read_word(kWords * first_ + word);
}

void Packs::store_word(int word, uint32_t value, Where where) const {
  note(kWords * first_ + word, 4, where);
  write_word(kWords * first_ + word, value);
}

void load_matrices(uint32_t (&to)[4], const Packs& from, int row, Where where) {
  load<4, false>(to, from.first() + row, where);
}
void load_matrices(uint32_t (&to)[2], const Packs& from, int row, Where where) {
  load<2, false>(to, from.first() + row, where);
}
void load_transposed(uint32_t (&to)[4], const Packs& from, int row, Where where) {
  load<4, true>(to, from.first() + row, where);
}
void load_transposed(uint32_t (&to)[2], const Packs& from, int row, Where where) {
  load<2, true>(to, from.first() + row, where);
}

void copy_async(const Packs& to, int pack, const void* from, int bytes, Where where) {
  assert(bytes >= 0 && bytes <= 16);
  check_waited();
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    fail(format("The asynchronous copy at line {} is not from a multiple of 16 bytes.",
                where.line()));
  }
  uint4 value = {};
  std::memcpy(&value, from, static_cast<size_t>(bytes));
  const int at = to.first() + pack;
  note(kWords * at, 16, where);
  constexpr uint32_t kNanPair = 0x7FFF7FFF;
  write_pack(at, {kNanPair, kNanPair, kNanPair, kNanPair});
  for (int w = 0; w < kWords; ++w) {
    word_at(kWords * at + w).flight = running.block_number;
  }
  Copies& mine = my_copies();
  mine.pending.push_back({at, value, mine.group});
}

void commit_copies() { ++my_copies().group; }

void wait_copies(unsigned pending) {
  Copies& mine = my_copies();
  size_t done = 0;
  while (done < mine.pending.size() && mine.pending[done].group + pending < mine.group) {
    const Copy& copy = mine.pending[done++];
    for (int w = 0; w < kWords; ++w) {
      my_memory().words[static_cast<size_t>(kWords * copy.pack + w)].flight = 0;
    }
    write_pack(copy.pack, copy.value);
  }
  mine.pending.erase(mine.pending.begin(), mine.pending.begin() + static_cast<ptrdiff_t>(done));
}

void multiply_add_f16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                      Where where) {
  const MatrixOperands mine = {sums, a, b};
  warp_together(&multiply_all<__half>, reinterpret_cast<uintptr_t>(&mine), where);
}
void multiply_add_bf16(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       Where where) {
  require_sm_80("bf16", where);
  const MatrixOperands mine = {sums, a, b};
  warp_together(&multiply_all<__nv_bfloat16>, reinterpret_cast<uintptr_t>(&mine), where);
}
void multiply_add_tf32(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       Where where) {
  require_sm_80("TF32", where);
  const MatrixOperands mine = {sums, a, b};
  warp_together(&multiply_all<float>, reinterpret_cast<uintptr_t>(&mine), where);
}

}  // namespace bowline::detail::cuda_emu
