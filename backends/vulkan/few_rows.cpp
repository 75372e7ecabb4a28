#include "few_rows.h"

#include <algorithm>

namespace bowline::detail::vulkan {
namespace {

constexpr size_t kParts = kMostNormProducts;
// Of an invocation of matvec.comp: every row of A costs as many registers.
constexpr int64_t kMostSums = 16;
// More decoders per invocation take long to compile.
constexpr uint32_t kMostCodeColumns = 4;
constexpr uint32_t kPerLoad = 8;  // columns of an invocation of matvec_columns.comp

bool is_aligned(VkDeviceAddress address) { return address % 16 == 0; }

// The constant ALIGNED of few_rows.glsl.
uint32_t aligned_rows(const Launch& l, const FewRowsProduct& p) {
  const bool a_fits = p.k % kPerLoad == 0 && is_aligned(l.in(0) | p.gamma | p.beta);
  const bool b_fits = std::ranges::all_of(p.parts, [&](const WeightPart& part) {
    const bool quantized = l.is_encoded(part.weight);
    const auto width = static_cast<uint64_t>(l.in_shape(part.weight).back());
    const bool columns_fit =
        p.transpose_b || (part.first % kPerLoad == 0 && part.n % kPerLoad == 0);
    return width % kPerLoad == 0 && columns_fit && (quantized || is_aligned(l.in(part.weight)));
  });
  return (a_fits ? 1u : 0u) | (b_fits ? 2u : 0u);
}

uint32_t default_columns(const Launch& l, const FewRowsProduct& p) {
  if (p.transpose_b) {
    return p.m <= 4 ? 4 : 2;
  }
  // Fewer columns occupy more of the device.
  uint64_t groups = 0;
  for (const WeightPart& part : p.parts) {
    groups += part.n / (4 * kPerLoad);
  }
  return groups >= l.physical().many_groups ? 4 * kPerLoad : 2 * kPerLoad;
}

// The table Parts of few_rows.glsl. Sets the number of workgroups.
std::vector<uint32_t> words_of(const Launch& l, const FewRowsProduct& p, uint32_t columns,
                               Grid* grid) {
  std::vector<uint32_t> words;
  const auto add = [&](VkDeviceAddress address) {
    words.push_back(static_cast<uint32_t>(address));
    words.push_back(static_cast<uint32_t>(address >> 32));
  };
  std::vector<WeightPart> parts = p.parts;
  parts.resize(kParts);
  for (const VkDeviceAddress address : {p.gamma, p.beta, p.addend, p.sums}) {
    add(address);
  }
  for (const VkDeviceAddress WeightPart::*member : {&WeightPart::bias, &WeightPart::y}) {
    for (const WeightPart& part : parts) {
      add(part.*member);
    }
  }
  for (const uint32_t WeightPart::*member : {&WeightPart::first, &WeightPart::n}) {
    for (const WeightPart& part : parts) {
      words.push_back(part.*member);
    }
  }
  for (const WeightPart& part : parts) {
    words.push_back(static_cast<uint32_t>(l.in_shape(part.weight).back()));
  }
  const uint32_t each = p.gate ? columns / 2 : columns;
  for (size_t i = 0; i < kParts; ++i) {
    const bool is_alone = p.gate && i > 0;
    words.push_back(is_alone ? 0 : (parts[i].n + each - 1) / each);
    grid->groups += words.back();
  }
  return words;
}

// BlockFormat::number of the weights, or the number that says that the tables have it.
uint32_t format_of(const Launch& l, const FewRowsProduct& p) {
  uint32_t format = l.code_format(p.parts[0].weight);
  for (const WeightPart& part : p.parts) {
    format = l.code_format(p.parts[0].weight, part.weight) == format ? format : 255;
  }
  return format;
}

}  // namespace

std::vector<uint32_t> few_rows_columns(int64_t m, bool transpose_b, bool is_quantized) {
  if (!transpose_b) {
    return {kPerLoad, 2 * kPerLoad, 4 * kPerLoad};
  }
  std::vector<uint32_t> out;
  for (const uint32_t columns : {1u, 2u, 4u, 8u}) {
    if (columns * m <= kMostSums && (columns <= kMostCodeColumns || !is_quantized)) {
      out.push_back(columns);
    }
  }
  return out;
}

void multiply_few_rows(Launch& l, const FewRowsProduct& p, uint32_t columns) {
  const PhysicalDevice& physical = l.physical();
  const bool quantized = l.is_encoded(p.parts[0].weight);
  columns = columns == 0 ? default_columns(l, p) : columns;
  Grid grid;
  const uint32_t local = p.transpose_b ? 128 : 256;
  grid.local =
      physical.uses_cpu_kernels() ? l.lanes() : std::max(l.lanes(), physical.workgroup(local));
  const std::vector<uint32_t> words = words_of(l, p, columns, &grid);
  Push push;
  push.add(l.in(0));
  double weights = 0, bytes = 0;
  for (size_t i = 0; i < kParts; ++i) {
    const WeightPart& part = p.parts[std::min(i, p.parts.size() - 1)];
    quantized ? push.table(l.table(l.code_words(part.weight))) : push.add(l.in(part.weight));
    const double of_part = static_cast<double>(part.n) * p.k;
    weights += i < p.parts.size() ? of_part : 0;
    bytes += i < p.parts.size() ? of_part * l.element_bytes() : 0;
  }
  const bool has_bias = p.parts[0].bias != 0;
  push.table(l.table(words))
      .u32(p.k, p.gate ? 1 : p.parts.size(),
           (has_bias ? 1u : 0u) | (p.addend != 0 ? 2u : 0u) | (p.sums != 0 ? 4u : 0u))
      .f32(p.eps);
  const auto& shaders = p.transpose_b ? (quantized ? shader::matvec_codes : shader::matvec_plain)
                        : quantized   ? shader::matvec_columns_codes
                                      : shader::matvec_columns_plain;
  const uint32_t norm = p.gamma == 0 ? 0 : p.beta == 0 ? 2 : 1;
  l.dispatch(shaders,
             {p.m, p.transpose_b ? columns : columns / kPerLoad, quantized ? format_of(l, p) : 0,
              norm, static_cast<uint32_t>(p.activation), p.gate, aligned_rows(l, p)},
             push, grid, {weights * 2 * p.m, bytes});
}

}  // namespace bowline::detail::vulkan
