#include "matrices.h"

#include <algorithm>
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

std::vector<float> values_of(const uint32_t* elements, const Matrix& matrix) {
  std::vector<float> values(size_t{matrix.rows} * matrix.columns);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = value_of(elements[i], matrix.element);
  }
  return values;
}

// Sums are in f32 and in the order of k.
Elements multiply(const MatrixProduct& p, const uint32_t* a, const uint32_t* b,
                  const uint32_t* sums) {
  const size_t m = p.a.rows, n = p.b.columns, k = p.a.columns;
  const std::vector<float> left = values_of(a, p.a), right = values_of(b, p.b);
  Elements results(m * n);
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      float sum = std::bit_cast<float>(sums[i * n + j]);
      for (size_t l = 0; l < k; ++l) {
        sum += left[i * k + l] * right[l * n + j];
      }
      results[i * n + j] = std::bit_cast<uint32_t>(sum);
    }
  }
  return results;
}

// Loads or stores the elements of a matrix whose first element is at `first`.
bool move(const MatrixAccess& access, bool writes, char* first, const uint32_t* r,
          uint32_t* elements, const CheckPart& check) {
  constexpr uint32_t kColumnMajor = 1;
  const uint32_t element = access.matrix.element == Element::f32 ? 4 : 2;
  const bool by_columns = r[access.layout] == kColumnMajor;
  const uint64_t stride = uint64_t{r[access.stride]} * access.unit_bytes;
  const uint32_t lines = by_columns ? access.matrix.columns : access.matrix.rows;
  const uint32_t length = by_columns ? access.matrix.rows : access.matrix.columns;
  for (uint32_t line = 0; line < lines; ++line) {
    char* const start = first + line * stride;
    if (!check(start, length * element, writes)) {
      return false;
    }
    for (uint32_t i = 0; i < length; ++i) {
      const uint32_t row = by_columns ? i : line, column = by_columns ? line : i;
      uint32_t& value = elements[row * access.matrix.columns + column];
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

// The registers that must be equal in all lanes, with their number: addresses, strides, and the
// numbers of matrices in the table.
using Equal = std::vector<std::pair<uint32_t, uint32_t>>;

Equal equal_registers(const Module& module, const Operation& o) {
  if (o.code == kMultiplyMatrices) {
    return is_of_workgroup(module, o) ? Equal{{o.a, 1}, {o.b, 1}, {o.c, 1}} : Equal{};
  }
  Equal out = {{o.a, 2}, {module.matrix_accesses[o.b].stride, 1}};
  if (is_of_workgroup(module, o) && o.code == kStoreMatrix) {
    out.emplace_back(o.to, 1);
  }
  return out;
}

bool same(const Lane& a, const Lane& b, uint32_t first, uint32_t count) {
  return std::memcmp(a.registers.data() + first, b.registers.data() + first,
                     count * sizeof(uint32_t)) == 0;
}

}  // namespace

bool is_about_matrices(const Operation& o) {
  return o.code >= kLoadMatrix && o.code <= kMultiplyMatrices;
}

bool is_of_workgroup(const Module& module, const Operation& o) {
  return is_about_matrices(o) &&
         (o.code == kMultiplyMatrices ? module.products[o.count].a.is_of_workgroup
                                      : module.matrix_accesses[o.b].matrix.is_of_workgroup);
}

std::string operate_on_matrices(const Module& module, const Operation& o,
                                std::span<Lane* const> together, std::vector<Elements>* table,
                                const CheckPart& check) {
  Lane& first = *together[0];
  uint32_t* const r = first.registers.data();
  for (const Lane* const lane : together) {
    for (const auto& [at, count] : equal_registers(module, o)) {
      if (!same(first, *lane, at, count)) {
        return format("lanes {} and {} name different matrices", first.moment.lane,
                      lane->moment.lane);
      }
    }
  }
  const bool is_shared = is_of_workgroup(module, o);
  bool is_written = true;
  const auto elements_at = [&](uint32_t at) -> uint32_t* {
    if (!is_shared) {
      return r + at;
    }
    is_written = is_written && r[at] < table->size();
    return is_written ? (*table)[r[at]].data() : nullptr;
  };
  Elements result;
  if (o.code == kMultiplyMatrices) {
    const uint32_t* const a = elements_at(o.a);
    const uint32_t* const b = elements_at(o.b);
    const uint32_t* const sums = elements_at(o.c);
    if (is_written) {
      result = multiply(module.products[o.count], a, b, sums);
    }
  } else {
    const MatrixAccess& access = module.matrix_accesses[o.b];
    char* address = nullptr;
    std::memcpy(&address, r + o.a, sizeof(address));
    const bool writes = o.code == kStoreMatrix;
    result.resize(writes ? 0 : size_t{access.matrix.rows} * access.matrix.columns);
    uint32_t* const elements = writes ? elements_at(o.to) : result.data();
    if (is_written && (!move(access, writes, address, r, elements, check) || writes)) {
      return {};
    }
  }
  if (!is_written) {
    return "a workgroup uses a matrix that nobody wrote";
  }
  if (is_shared) {
    table->push_back(std::move(result));
    result = {static_cast<uint32_t>(table->size() - 1)};
  }
  for (Lane* const lane : together) {
    std::ranges::copy(result, lane->registers.data() + o.to);
  }
  return {};
}

}  // namespace bowline::detail::vulkan::machine
