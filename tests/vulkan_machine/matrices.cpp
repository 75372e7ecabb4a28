#include "matrices.h"

#include <bit>
#include <cstring>

#include "base/float16.h"
#include "base/status.h"

namespace bowline::detail::vulkan::machine {
namespace {

float value_of(uint32_t bits, Element element) {
  switch (element) {
    case Element::f16:
      return to_f32(f16{static_cast<uint16_t>(bits)});
    case Element::bf16:
      return to_f32(bf16{static_cast<uint16_t>(bits)});
    default:
      return std::bit_cast<float>(bits);
  }
}

// Sums are in f32 and in the order of k.
void multiply(const Module& module, const Operation& o, uint32_t* r) {
  const MatrixProduct& p = module.products[o.count];
  const uint32_t m = p.a.rows, n = p.b.columns, k = p.a.columns;
  std::vector<uint32_t> results(size_t{m} * n);
  for (uint32_t i = 0; i < m; ++i) {
    for (uint32_t j = 0; j < n; ++j) {
      float sum = std::bit_cast<float>(r[o.c + i * n + j]);
      for (uint32_t l = 0; l < k; ++l) {
        sum +=
            value_of(r[o.a + i * k + l], p.a.element) * value_of(r[o.b + l * n + j], p.b.element);
      }
      results[size_t{i} * n + j] = std::bit_cast<uint32_t>(sum);
    }
  }
  std::memcpy(r + o.to, results.data(), results.size() * sizeof(uint32_t));
}

// Loads or stores the registers of one lane.
bool move(const MatrixAccess& access, const Operation& o, uint32_t* r, const CheckPart& check) {
  constexpr uint32_t kColumnMajor = 1;
  const bool writes = o.code == kStoreMatrix;
  const uint32_t element = access.matrix.element == Element::f32 ? 4 : 2;
  const bool by_columns = r[access.layout] == kColumnMajor;
  const uint64_t stride = uint64_t{r[access.stride]} * access.unit_bytes;
  const uint32_t lines = by_columns ? access.matrix.columns : access.matrix.rows;
  const uint32_t length = by_columns ? access.matrix.rows : access.matrix.columns;
  char* first = nullptr;
  std::memcpy(&first, r + o.a, sizeof(first));
  for (uint32_t line = 0; line < lines; ++line) {
    char* const start = first + line * stride;
    if (!check(start, length * element, writes)) {
      return false;
    }
    for (uint32_t i = 0; i < length; ++i) {
      const uint32_t row = by_columns ? i : line, column = by_columns ? line : i;
      uint32_t& value = r[o.to + row * access.matrix.columns + column];
      if (writes) {
        std::memcpy(start + size_t{i} * element, &value, element);
      } else {
        value = 0;
        std::memcpy(&value, start + size_t{i} * element, element);
      }
    }
  }
  return true;
}

bool same(const Lane& a, const Lane& b, uint32_t first, uint32_t count) {
  return std::memcmp(a.registers.data() + first, b.registers.data() + first,
                     count * sizeof(uint32_t)) == 0;
}

}  // namespace

std::string operate_on_matrices(const Module& module, const Operation& o,
                                std::span<Lane* const> together, const CheckPart& check) {
  Lane& first = *together[0];
  uint32_t count = 0;
  if (o.code == kMultiplyMatrices) {
    const MatrixProduct& p = module.products[o.count];
    multiply(module, o, first.registers.data());
    count = p.a.rows * p.b.columns;
  } else {
    const MatrixAccess& access = module.matrix_accesses[o.b];
    for (const Lane* const lane : together) {
      if (!same(first, *lane, o.a, 2) || !same(first, *lane, access.stride, 1)) {
        return format("lanes {} and {} give different addresses of one matrix", first.moment.lane,
                      lane->moment.lane);
      }
    }
    if (!move(access, o, first.registers.data(), check) || o.code == kStoreMatrix) {
      return {};
    }
    count = access.matrix.rows * access.matrix.columns;
  }
  for (Lane* const lane : together.subspan(1)) {
    std::memcpy(lane->registers.data() + o.to, first.registers.data() + o.to,
                count * sizeof(uint32_t));
  }
  return {};
}

}  // namespace bowline::detail::vulkan::machine
