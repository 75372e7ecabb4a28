#include "variant.h"

#include "device/variants.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {
namespace {

using Variant = device::KernelVariant<Traits>;

template <int kCode>
void use_code(Traits& t) {
  t.wanted_code = kCode;
}
template <int kColumns>
void use_tile(Traits& t) {
  t.tile_columns = kColumns;
}
template <Parts kParts>
void use_parts(Traits& t) {
  t.parts = kParts;
}
template <AttentionKernel kKernel>
void use_attention(Traits& t) {
  t.attention = kKernel;
}

constexpr Variant kVariants[] = {
    // Bowline's own products instead of those of cuBLASLt.
    {"own", [](Traits& t) { t.has_library = false; }},
    // Products of cuBLASLt go through scratch memory at every size, a few lines at a time.
    {"staged", [](Traits& t) { t.stages_products = true; }},
    // Kernels for this architecture. cuda-emu then is such a GPU.
    {"sm_75", use_code<75>},
    {"sm_80", use_code<80>},
    {"no_async_copies", [](Traits& t) { t.has_async_copies = false; }},
    // Recurrent layers take a launch per step.
    {"no_cooperative_launch", [](Traits& t) { t.has_cooperative_launch = false; }},
    // No launch starts before the launch before it has ended.
    {"no_early_launch", [](Traits& t) { t.has_early_launch = false; }},
    // Products of few rows use the kernels of larger products.
    {"no_few_rows", [](Traits& t) { t.has_few_rows = false; }},
    // The tile of products. A kernel without this tile uses the next smaller one.
    {"tile_128x256", use_tile<256>},
    {"tile_128x128", use_tile<128>},
    {"tile_64x64", use_tile<64>},
    {"tile_32x32", use_tile<32>},
    // The parts of k of a product, and of the keys of attention.
    {"one_part", use_parts<Parts::one>},
    {"many_parts", use_parts<Parts::many>},
    {"attention_few", use_attention<AttentionKernel::few_rows>},
    {"attention_mma", use_attention<AttentionKernel::mma>},
    {"attention_tiles", use_attention<AttentionKernel::tiles>},
};

}  // namespace

std::string apply_variants(Traits* traits) {
  constexpr const char* kVariable = "BOWLINE_CUDA_VARIANT";
  const char* const variants = std::getenv(kVariable);
  traits->variants = variants == nullptr ? "" : variants;
  std::string problem = device::apply_variants<Traits>(kVariable, kVariants, traits);
  const int wanted = traits->wanted_code;
  if (!problem.empty() || wanted == 0) {
    return problem;
  }
#ifdef BOWLINE_CUDA_EMULATED
  machine().major = wanted / 10;
  machine().minor = wanted % 10;
#else
  // Code for sm_80 and newer lacks the kernels of sm_75.
  if (wanted > traits->code || (wanted < 80 && traits->code >= 80)) {
    return format("{} names sm_{}, but the GPU runs code for sm_{}.", kVariable, wanted,
                  traits->code);
  }
#endif
  traits->code = wanted;
  return {};
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
