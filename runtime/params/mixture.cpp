#include "params/mixture.h"

#include <algorithm>

namespace bowline::detail::params {
namespace {

constexpr std::string_view kMixture = "q4_k_m";

// What a weight does, by the end of its name in models of Hugging Face.
enum class Use { head, value, down, fused, other };
struct Ending {
  std::string_view text;
  Use use;
};
constexpr Ending kEndings[] = {
    {"lm_head.weight", Use::head},
    {".self_attn.v_proj.weight", Use::value},
    {".attention.self.value.weight", Use::value},
    {".mlp.down_proj.weight", Use::down},
    {".mlp.c_proj.weight", Use::down},
    {".attn.c_attn.weight", Use::fused},
};

struct Place {
  Use use = Use::other;
  int64_t layer = 0;
};

// The number before the ending: "model.layers.3.mlp.down_proj.weight" is in layer 3.
int64_t layer_of(std::string_view before) {
  size_t begin = before.size();
  while (begin > 0 && before[begin - 1] >= '0' && before[begin - 1] <= '9') {
    --begin;
  }
  int64_t layer = 0;
  for (const char digit : before.substr(begin, 9)) {
    layer = 10 * layer + (digit - '0');
  }
  return layer;
}

Place place_of(std::string_view name) {
  for (const Ending& e : kEndings) {
    if (name.ends_with(e.text)) {
      return {e.use, layer_of(name.substr(0, name.size() - e.text.size()))};
    }
  }
  return {};
}

// The number of layers with a weight of this use.
int64_t layers_with(const Table& table, Use use) {
  int64_t layers = 0;
  for (const ParameterRow& p : table.parameters) {
    const Place place = place_of(p.name);
    layers = place.use == use ? std::max(layers, place.layer + 1) : layers;
  }
  return layers;
}

// The first and the last eighth of the layers, and every third layer between.
// Source  llama.cpp, llama-quant.cpp (use_more_bits)
bool gets_more_bits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

std::string_view format_in_mixture(const Table& table, uint32_t tie) {
  std::string_view out = "q4_k";
  for (const uint32_t user : table.users(tie)) {
    const Place place = place_of(table.parameters[user].name);
    const bool in_layers = place.use == Use::value || place.use == Use::down;
    if (place.use == Use::head ||
        (in_layers && gets_more_bits(place.layer, layers_with(table, place.use)))) {
      return "q6_k";
    }
    out = place.use == Use::fused ? "q5_k" : out;
  }
  return out;
}

// The format of rows that are not whole blocks of 256.
std::string_view replacement(std::string_view format) {
  return format == "q6_k" ? "q8_0" : format == "q5_k" ? "q5_1" : "q5_0";
}

}  // namespace

Result<EncodingChoice> EncodingChoice::parse(std::string_view text) {
  EncodingChoice out;
  out.is_mixture_ = text == kMixture;
  if (!out.is_mixture_) {
    BOWLINE_TRY_ASSIGN(out.encoding_, parse_encoding(text));
    BOWLINE_REQUIRE(!out.encoding_.is_plain(),
                    "quantize() cannot quantize to plain values. Use dequantize().");
  }
  return out;
}

Encoding EncodingChoice::of(const Table& table, uint32_t tie) const {
  const Storage& row = table.storages[tie];
  if (!is_mixture_) {
    return encoding_.for_shape(row.shape);
  }
  const std::string_view format = format_in_mixture(table, tie);
  const Encoding wanted = parse_encoding(format).value();
  return wanted.check(row.dtype, row.shape).ok() ? wanted
                                                 : parse_encoding(replacement(format)).value();
}

}  // namespace bowline::detail::params
