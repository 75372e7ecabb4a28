// The parts of matrices that a block multiplies on tensor cores: from global memory to shared
// memory and to registers.
#pragma once

#include "device/codes.cuh"
#include "device/tensor_core.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// A matrix of a product. Its rows are the m rows of a, or the n columns of b. Memory has lines: a
// line is a row, or all rows at one k.
template <class T>
struct PanelSource {
  const T* data;
  Codes codes;   // (optional) the quantized matrix, instead of data
  int64_t line;  // elements between lines
  int rows;
  bool packs;  // lines consist of whole packs at multiples of 16 bytes
};

// kRows rows and kPacks packs along k. A line is along k or across it.
//
// A decoded element has more bits than T. It is stored as a sum of kParts elements, each of which
// rounds what the earlier ones leave. The parts of a panel follow each other.
template <class T, int kRows, int kPacks, bool kAlongK, int kThreads, int kParts>
class Panel {
 public:
  static constexpr int kDepth = kPacks * kPack<T>;                    // elements along k
  static constexpr int kOfPack = kPack<T>;                            // elements
  static constexpr int kLine = (kAlongK ? kDepth : kRows) / kOfPack;  // packs
  static constexpr int kSize = kRows * kDepth / kOfPack;              // packs
  static constexpr int kEach = kSize / kThreads;                      // packs per thread
  static constexpr int kSteps = kPacks / 2;                           // of a matrix instruction
  static constexpr int kLines = kThreads / kLine;  // lines that the threads load at once
  // Fragments of f32 across k are read as words: 4 lines of 8 words at once.
  static constexpr bool kWords = !kAlongK && std::is_same_v<T, float>;
  static_assert(kThreads % kLine == 0 && kLines % (kWords ? 4 : 8) == 0 && kSize % kThreads == 0);

  // The packs of a line are permuted, so that 8 packs in one column of consecutive lines use
  // different banks, as 8 packs of one line do; with kWords, 2 packs of 4 lines.
  __device__ static int place(int line, int column) {
    return line * kLine + (column ^ (kWords ? line % 4 * 2 : kLine >= 8 ? line % 8 : line / 2 % 4));
  }

  // Of the rows from `row` on and the steps [begin, end) of k. `offset` is the first element of the
  // matrix.
  __device__ Panel(const PanelSource<T>& source, int64_t offset, int row, int begin, int end)
      : source_(source),
        row_(row),
        k_(begin),
        end_(end),
        line_(static_cast<int>(threadIdx.x) / kLine),
        column_(static_cast<int>(threadIdx.x) % kLine),
        to_(place(line_, column_)),
        rows_left_(source.rows - row - line_),
        left_(end - begin - (kAlongK ? kOfPack * column_ : line_)) {
    if (source.codes.codes != nullptr) {
      first_line_ = offset / source.line;
      return;
    }
    const int64_t line = line_ + (kAlongK ? row : begin);
    from_ = source.data + offset + line * source.line +
            (kAlongK ? begin + kOfPack * column_ : first_column());
  }

  // Copies a part of the next steps of k to shared memory: part `part` of kOf. The source has
  // packs. What is outside the matrix becomes 0.
  template <int kOf>
  __device__ void copy(const Packs& to, int part) const {
    BOWLINE_UNROLL
    for (int j = 0; j < kEach; ++j) {
      if (j * kOf / kEach == part) {
        copy_async(to, to_ + j * kThreads, at(j), is_inside(j) ? 16 : 0);
      }
    }
  }
  // Continues with the next steps of k.
  __device__ void advance() {
    k_ += kDepth;
    left_ -= kDepth;
    from_ += kAlongK ? kDepth : kDepth * source_.line;
  }

  // The same through registers, for every source. Quantized elements are decoded when they are
  // stored: the code for several packs at once would be many times as long.
  template <bool kCodes>
  __device__ void load() {
    if (!kCodes || source_.codes.codes == nullptr) {
      elements_ = kAlongK ? end_ - k_ - kOfPack * column_ : source_.rows - row_ - kOfPack * column_;
      BOWLINE_UNROLL
      for (int j = 0; j < kEach; ++j) {
        load_around(j);
      }
      advance();
    }
  }
  __device__ int parts() const { return source_.codes.codes != nullptr ? kParts : 1; }
  template <bool kCodes>
  __device__ void store(const Packs& to) {
    if (kCodes && source_.codes.codes != nullptr) {
      BOWLINE_ROLL
      for (int j = 0; j < kEach; ++j) {
        float rest[8];
        decode(j, rest);
        BOWLINE_UNROLL
        for (int part = 0; part < kParts; ++part) {
          to.store(part * kSize + to_ + j * kThreads, take_part(rest));
        }
      }
      advance();
      return;
    }
    if (source_.packs) {
      BOWLINE_UNROLL
      for (int j = 0; j < kEach; ++j) {
        to.store(to_ + j * kThreads, around_[j][0]);
      }
      return;
    }
    BOWLINE_UNROLL
    for (int j = 0; j < kEach; ++j) {
      to.store(to_ + j * kThreads, inside(j));
    }
  }

 private:
  // The first element of the pack along a line across k. If the source has packs, the last pack
  // stands for those outside the matrix.
  __device__ int first_column() const {
    const int column = row_ + kOfPack * column_;
    return source_.packs && column >= source_.rows ? source_.rows - kOfPack : column;
  }
  __device__ const T* at(int j) const { return from_ + j * kLines * source_.line; }
  __device__ bool is_inside(int j) const {
    return kAlongK ? j * kLines < rows_left_ && left_ > 0 : j * kLines < left_;
  }
  // The packs of global memory that hold the elements of a pack, which may begin at any element.
  // Nothing waits for them until inside() is called.
  __device__ void load_around(int j) {
    const int before = source_.packs ? 0 : elements_before();
    const auto* const packs = reinterpret_cast<const uint4*>(at(j) - before);
    const bool needs_next = before + min(elements_, kOfPack) > kOfPack;
    around_[j][0] = is_inside(j) && elements_ > 0 ? packs[0] : uint4{0, 0, 0, 0};
    around_[j][1] = is_inside(j) && needs_next ? packs[1] : uint4{0, 0, 0, 0};
  }
  // Elements between a multiple of 16 bytes and a pack. All packs of the thread have the same,
  // because their distances are multiples of 8 lines or elements.
  __device__ int elements_before() const {
    return static_cast<int>(reinterpret_cast<uintptr_t>(from_) % 16 / sizeof(T));
  }
  // The elements of a pack from what load_around() has loaded. Those outside the matrix are 0.
  __device__ uint4 inside(int j) const {
    const uint4& a = around_[j][0];
    const uint4& b = around_[j][1];
    const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    const int before = elements_before();
    uint32_t by_four[6];
    BOWLINE_UNROLL
    for (int i = 0; i < 6; ++i) {
      by_four[i] = (before & 4) != 0 ? words[i + 2] : words[i];
    }
    uint32_t by_two[5];
    BOWLINE_UNROLL
    for (int i = 0; i < 5; ++i) {
      by_two[i] = (before & 2) != 0 ? by_four[i + 1] : by_four[i];
    }
    uint32_t pack[4];
    BOWLINE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = (before & 1) != 0 ? by_two[i] >> 16 | by_two[i + 1] << 16 : by_two[i];
      pack[i] = elements_ > 2 * i + 1 ? pair : elements_ > 2 * i ? pair & 0xFFFF : 0;
    }
    return {pack[0], pack[1], pack[2], pack[3]};
  }
  __device__ void decode(int j, float (&v)[8]) const {
    const int line = line_ + j * kLines;
    const int row = row_ + line;
    const int64_t at_line = kAlongK ? (row < source_.rows ? row : source_.rows - 1) : k_ + line;
    const int first = kAlongK ? k_ + kOfPack * column_ : row_ + kOfPack * column_;
    const int end = kAlongK ? end_ : is_inside(j) ? source_.rows : 0;
    float low[4] = {};
    float high[4] = {};
    BOWLINE_ROLL
    for (int q = 1; q >= 0; --q) {
      BOWLINE_UNROLL
      for (int e = 0; e < 4; ++e) {
        high[e] = low[e];
      }
      decode4(source_.codes, first_line_ + at_line, static_cast<uint32_t>(first + 4 * q),
              static_cast<uint32_t>(end), low);
    }
    BOWLINE_UNROLL
    for (int e = 0; e < 4; ++e) {
      v[e] = low[e];
      v[4 + e] = high[e];
    }
  }
  // Rounds the values, and subtracts the rounded ones.
  __device__ static uint4 take_part(float (&rest)[8]) {
    const uint4 pack = pack_of<T>(rest);
    const uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
    BOWLINE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float2 taken = floats_of<T>(words[i]);
      rest[2 * i] -= taken.x;
      rest[2 * i + 1] -= taken.y;
    }
    return pack;
  }

  const PanelSource<T>& source_;
  int row_;
  int k_;
  int end_;
  int line_;    // of this thread
  int column_;  // pack in the line
  int to_;
  int rows_left_;           // from the first line of this thread on, if lines are along k
  int left_;                // steps of k from its first element on
  int64_t first_line_ = 0;  // of a quantized matrix
  const T* from_ = nullptr;
  int elements_ = 0;  // along the line, from the first element of the loaded packs on
  uint4 around_[kEach][2];
};

// Loads the fragments of 16 kTiles rows and two packs of k, a step, from a panel. kIsA: as operand
// a, 16 rows in four registers; else as operand b, 8 rows in two registers and the next 8 rows in
// two more.
template <class P, bool kAlongK, bool kIsA, int kTiles>
class Fragments {
 public:
  // The first row is a multiple of 16; with P::kWords, of 32.
  __device__ explicit Fragments(int row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int matrix = lane / 8;
    const int of_rows = kIsA ? matrix % 2 : matrix / 2;
    const int of_k = kIsA ? matrix / 2 : matrix % 2;
    BOWLINE_UNROLL
    for (int i = 0; i < kPlaces; ++i) {
      if constexpr (P::kWords) {
        at_[i] = 4 * P::place(lane % 4, row / 4 + 2 * i + lane / 16) + lane / 4 % 4;
      } else {
        at_[i] = kAlongK ? P::place(row + 8 * of_rows + lane % 8, 2 * i + of_k)
                         : P::place(8 * of_k + lane % 8, row / 8 + 2 * i + of_rows);
      }
    }
  }
  // Loads those of 16 rows: tile i.
  __device__ void load(uint32_t (&to)[4], const Packs& from, int step, int i) const {
    if constexpr (P::kWords) {
      load_words(to, from, i, step);
    } else if constexpr (kAlongK) {
      load_matrices(to, from, at_[step] + i * 16 * P::kLine);
    } else {
      load_transposed(to, from, at_[i] + step * 16 * P::kLine);
    }
  }

 private:
  // ldmatrix transposes 16-bit elements only.
  __device__ void load_words(uint32_t (&to)[4], const Packs& from, int tile, int step) const {
    BOWLINE_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int of_rows = kIsA ? e % 2 : e / 2;
      const int of_k = kIsA ? e / 2 : e % 2;
      const int packs = tile / 2 * 8 + (8 * step + 4 * of_k) * P::kLine;
      to[e] = from.load_word(at_[tile % 2 * 2 + of_rows] + 4 * packs);
    }
  }

  static constexpr int kPlaces = P::kWords ? 4 : kAlongK ? P::kSteps : kTiles;
  int at_[kPlaces];
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
