// Tiles of matrix products in shared memory, and the parts of k: how many workgroups a product has.
#pragma once

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "core/products.h"
#include "physical_device.h"

namespace bowline::detail::vulkan::matmul_kernels {

// Tiles of matmul_tile.comp from large to small. An invocation has 64, 64, 32 and 8 results in
// registers; a workgroup has 20, 15, 10 and 5 KiB of shared memory.
struct Tile {
  uint32_t rows;
  uint32_t columns;
  uint32_t local;
};
constexpr Tile kTiles[] = {{128, 128, 256}, {128, 64, 128}, {64, 64, 128}, {32, 32, 128}};

// Bytes of shared memory of matmul_tile.comp: tiles of A and B with a depth of 16, padded.
inline uint32_t shared_bytes(const Tile& tile) { return (tile.rows + tile.columns) * 20 * 4; }

inline bool fits(const PhysicalDevice& physical, const Tile& tile) {
  return (physical.has_large_tiles || &tile == &kTiles[std::size(kTiles) - 1]) &&
         tile.local <= physical.max_invocations && shared_bytes(tile) <= physical.max_shared_bytes;
}

// The number of the largest tile for a kind of device.
inline size_t first_tile(const PhysicalDevice& physical) {
  if (!physical.has_many_registers()) {
    return 2;
  }
  return physical.vendor() != kIntel && fits(physical, kTiles[0]) ? 0 : 1;
}

inline uint64_t tiles_along(int64_t n, uint32_t size) {
  return (static_cast<uint64_t>(n) + size - 1) / size;
}

inline uint64_t groups_of(const Tile& tile, const MatrixProduct& p) {
  return tiles_along(p.m, tile.rows) * tiles_along(p.n, tile.columns) * p.batch.elements();
}

inline bool has_few(const PhysicalDevice& physical, const Tile& tile, const MatrixProduct& p) {
  return groups_of(tile, p) < physical.many_groups;
}

// The k of a product in parts of `size` steps, which workgroups of their own compute.
struct Parts {
  uint64_t count = 1;
  uint64_t size = 0;
};

// At most `count` parts. Their size is a multiple of the depth of all tiles.
inline Parts parts_of(int64_t k, uint32_t count) {
  constexpr uint64_t kStep = 64;
  const auto all = static_cast<uint64_t>(k);
  if (count == 1) {
    return {1, all};
  }
  const uint64_t size = round_up((all + count - 1) / count, kStep);
  return {(all + size - 1) / size, size};
}

inline uint64_t elements_of_c(const MatrixProduct& p) {
  return p.batch.elements() * static_cast<uint64_t>(p.m) * static_cast<uint64_t>(p.n);
}

// Of the results of the parts.
inline uint64_t parts_bytes(const MatrixProduct& p, uint32_t parts) {
  const uint64_t count = parts_of(p.k, parts).count;
  return count == 1 ? 0 : count * elements_of_c(p) * sizeof(float);
}

// The most parts of a product with this tile, a power of two.
inline uint32_t most_parts(const PhysicalDevice& physical, const Tile& tile,
                           const MatrixProduct& p) {
  constexpr uint64_t kMostParts = 16, kMostBytes = uint64_t{8} << 20;
  if (physical.uses_cpu_kernels() || !has_few(physical, tile, p)) {
    return 1;
  }
  const uint64_t most = std::min({static_cast<uint64_t>(p.k) / physical.least_part, kMostParts,
                                  kMostBytes / (elements_of_c(p) * sizeof(float))});
  return std::bit_floor(static_cast<uint32_t>(std::max<uint64_t>(most, 1)));
}

// As many parts as occupy the device twice.
inline uint32_t choose_parts(const PhysicalDevice& physical, const Tile& tile,
                             const MatrixProduct& p) {
  const uint64_t wanted = std::max<uint64_t>(2 * physical.many_groups / groups_of(tile, p), 1);
  return std::min(most_parts(physical, tile, p), std::bit_floor(static_cast<uint32_t>(wanted)));
}

inline const Tile& choose_tile(const PhysicalDevice& physical, const MatrixProduct& p) {
  size_t i = first_tile(physical);
  while (i + 1 < std::size(kTiles) &&
         (!physical.has_large_tiles || has_few(physical, kTiles[i], p))) {
    ++i;
  }
  return kTiles[i];
}

// True if the rows of A (side 0) or B (side 1), and its matrices, are multiples of `per_vector`.
inline bool has_whole_vectors(const MatrixProduct& p, size_t side, int64_t per_vector) {
  const int64_t length = side == 0 ? (p.transpose_a ? p.m : p.k) : (p.transpose_b ? p.k : p.n);
  return length % per_vector == 0 &&
         std::ranges::all_of(p.batch.strides[side],
                             [&](int64_t stride) { return stride % per_vector == 0; });
}

// Tiles of matmul_workgroup.comp from large to small, and their depth. An invocation has 128, 64,
// 64 and 32 results.
constexpr Tile kWorkgroupTiles[] = {
    {128, 256, 256}, {128, 128, 256}, {128, 64, 128}, {64, 64, 128}};
constexpr uint32_t kWorkgroupDepth = 64;

// Rows of a matrix of results: as many as shared memory has room for, on their way to C.
inline uint32_t rows_of_results(const PhysicalDevice& physical, const Tile& tile) {
  constexpr uint32_t kFloats = 4, kVector = 16;
  const uint32_t room = physical.max_shared_bytes -
                        std::min(physical.max_shared_bytes, physical.reserved_shared_bytes);
  uint32_t rows = tile.rows;
  while (rows > 1 && rows * (tile.columns / kFloats + 1) * kVector > room) {
    rows /= 2;
  }
  return rows;
}

// True if the workgroups of the device can run the tile. Rows of results begin at whole vectors of
// a transposed A.
inline bool fits_workgroup(const PhysicalDevice& physical, const Tile& tile, DType type) {
  const WorkgroupUnit* const unit = physical.workgroup_unit(type, tile.local);
  const uint32_t rows = rows_of_results(physical, tile);
  return unit != nullptr && tile.local <= physical.max_invocations && rows % 8 == 0 &&
         rows % unit->multiple.m == 0 && tile.columns % unit->multiple.n == 0 &&
         kWorkgroupDepth % unit->multiple.k == 0 &&
         std::max({rows, tile.columns, kWorkgroupDepth}) <= physical.max_matrix_side;
}

// True if matmul_workgroup.comp can compute the product with this tile, apart from the addresses.
// The matrices of a workgroup must not exceed their operands, and their lines are vectors.
inline bool has_whole_tiles(const Tile& tile, const MatrixProduct& p) {
  return p.m >= tile.rows && p.n >= tile.columns && p.n % 4 == 0 && p.k % kWorkgroupDepth == 0 &&
         has_whole_vectors(p, 0, 8) && has_whole_vectors(p, 1, 8);
}

// The largest tile with which the product occupies the device, or null.
inline const Tile* choose_workgroup_tile(const PhysicalDevice& physical, DType type,
                                         const MatrixProduct& p) {
  const auto* const found = std::ranges::find_if(kWorkgroupTiles, [&](const Tile& tile) {
    return fits_workgroup(physical, tile, type) && has_whole_tiles(tile, p) &&
           !has_few(physical, tile, p);
  });
  return found == std::end(kWorkgroupTiles) ? nullptr : found;
}

}  // namespace bowline::detail::vulkan::matmul_kernels
