#include "blocks/rotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/escape.h"
#include "base/projected.h"
#include "base/status.h"
#include "base/words.h"
#include "source/keys.h"

namespace bowline::import {
namespace {

constexpr double kMostTheta = 1e9;
constexpr double kMostFactor = 1e6;
constexpr int64_t kMostLength = int64_t{1} << 24;
constexpr int64_t kMostPairs = 1024;  // of Rope
constexpr const char* kOriginal = "original_max_position_embeddings";
constexpr std::string_view kNestedKey = "rope_parameters";  // may have entries of layer types
constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";

// The object that a kind of rotation is read from.
struct Reading {
  Fields& fields;
  Fields& config;
  int64_t head_dim = 0;
  int64_t dims = 0;  // rotated channels
  int64_t context = 0;
  double partial = 1;
  int64_t otherwise = 0;  // default of original()
  bool has_alpha = false;

  // The length that the model was trained with before its context was extended. Older configs have
  // the key beside the object.
  int64_t original() const {
    const int64_t beside = config.integer_or(kOriginal, 1, kMostLength, otherwise);
    const int64_t length = fields.integer_or(kOriginal, 1, kMostLength, beside);
    if (config.has(kOriginal) && beside != length) {
      config.fail(fmt::format("{} and {} have different values of \"{}\".", config.what(),
                              fields.what(), kOriginal));
    }
    return length;
  }
  double frequency(int64_t pair, double base, int64_t of) const {
    return std::pow(base, -2 * static_cast<double>(pair) / static_cast<double>(of));
  }
};

void read_default(const Reading&, Rotation&) {}

// Every pair is scaled: the whole range lies below low_frequency_factor.
void read_linear(const Reading& from, Rotation& r) {
  r.factor = from.fields.number("factor", 1, kMostFactor);
  r.low_frequency_factor = static_cast<double>(r.original_length);
  r.high_frequency_factor = 2 * r.low_frequency_factor;
}

void read_llama3(const Reading& from, Rotation& r) {
  r.factor = from.fields.number("factor", 1, kMostFactor);
  r.low_frequency_factor = from.fields.number("low_freq_factor", 1e-6, kMostFactor);
  r.high_frequency_factor = from.fields.number("high_freq_factor", 1e-6, kMostFactor);
  r.original_length = from.original();
}

// The base grows with texts longer than the context. Up to the context it is the base of the
// config, so that the factor changes nothing there. With "alpha" the base is larger, and does not
// depend on the text. Source: transformers, modeling_hunyuan_v1_dense.py.
void read_dynamic(const Reading& from, Rotation& r) {
  const double alpha = from.has_alpha ? from.fields.number_or("alpha", 0, 1e9, 0) : 0;
  if (alpha != 0) {
    const auto dims = static_cast<double>(from.dims);
    const double base = r.base * std::pow(alpha, dims / (dims - 2));
    for (int64_t j = 0; j < from.dims / 2; ++j) {
      r.frequencies.push_back(from.frequency(j, base, from.dims));
    }
    return;
  }
  (void)from.fields.number("factor", 1, kMostFactor);
  r.limit = from.context;
}

// The pair that turns `turns` times over the training length, as a real number.
double pair_of(double turns, const Reading& from, double base, int64_t length) {
  return static_cast<double>(from.dims) *
         std::log(static_cast<double>(length) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(base));
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Source  Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023.
void read_yarn(const Reading& from, Rotation& r) {
  Fields& f = from.fields;
  const int64_t length = from.original();
  const double extended = static_cast<double>(from.context) / static_cast<double>(length);
  const double factor = f.number_or("factor", 1, kMostFactor, std::max(extended, 1.0));
  const double fast = f.number_or("beta_fast", 1e-6, kMostFactor, 32);
  const double slow = f.number_or("beta_slow", 1e-6, kMostFactor, 1);
  const double mscale = f.number_or("mscale", 0, kMostFactor, 0);
  const double mscale_all = f.number_or("mscale_all_dim", 0, kMostFactor, 0);
  const double scale = mscale != 0 && mscale_all != 0
                           ? yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all)
                           : yarn_scale(factor, 1);
  r.attention_factor = f.number_or("attention_factor", 1e-6, kMostFactor, scale);
  const bool whole = f.boolean_or("truncate", true);
  double low = pair_of(fast, from, r.base, length);
  double high = pair_of(slow, from, r.base, length);
  low = std::max(whole ? std::floor(low) : low, 0.0);
  high = std::min(whole ? std::ceil(high) : high, static_cast<double>(from.dims - 1));
  high = high == low ? high + 0.001 : high;
  for (int64_t j = 0; j < from.dims / 2; ++j) {
    const double divided = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    r.frequencies.push_back(from.frequency(j, r.base, from.dims) *
                            (divided / factor + (1 - divided)));
  }
}

// The short list of divisors is for texts up to the original length, the long one for longer texts.
// A graph has the short one. Source: Ding et al., "LongRoPE", 2024.
void read_longrope(const Reading& from, Rotation& r) {
  Fields& f = from.fields;
  const int64_t length = from.original();
  const std::vector<double> divisors = f.numbers("short_factor", 1, kMostFactor);
  const std::vector<double> others = f.numbers("long_factor", 1, kMostFactor);
  for (const auto& [key, list] :
       {std::pair("short_factor", &divisors), std::pair("long_factor", &others)}) {
    if (std::ssize(*list) != from.dims / 2) {
      f.fail(fmt::format("{}: \"{}\" has {} factors, but {} pairs of channels are rotated.",
                         f.what(), key, list->size(), from.dims / 2));
      return;
    }
  }
  const double extended = f.number_or(
      "factor", 1e-6, kMostFactor, static_cast<double>(from.context) / static_cast<double>(length));
  const double scale =
      extended <= 1 ? 1 : std::sqrt(1 + std::log(extended) / std::log(static_cast<double>(length)));
  r.attention_factor = f.number_or("attention_factor", 1e-6, kMostFactor, scale);
  for (int64_t j = 0; j < from.dims / 2; ++j) {
    r.frequencies.push_back(from.frequency(j, r.base, from.dims) /
                            divisors[static_cast<size_t>(j)]);
  }
  r.limit = length;
}

// The frequencies are those of the whole head, and the last pairs do not rotate.
void read_proportional(const Reading& from, Rotation& r) {
  const double factor = from.fields.number_or("factor", 1, kMostFactor, 1);
  const int64_t pairs = from.head_dim / 2;
  const auto rotated = static_cast<int64_t>(from.partial * static_cast<double>(from.head_dim) / 2);
  for (int64_t j = 0; j < pairs; ++j) {
    r.frequencies.push_back(j < rotated ? from.frequency(j, r.base, from.head_dim) / factor : 0);
  }
  r.dims = 0;
}

// Keys of every kind.
constexpr KeyRule kCommonKeys[] = {{"rope_theta rope_type type"}};
constexpr KeyRule kPartialKeys[] = {{"partial_rotary_factor"}};
constexpr KeyRule kLateKeys[] = {{"llama_4_scaling_beta"},
                                 {"max_position_embeddings", KeyUse::harmless}};  // of the config
constexpr KeyRule kWholeKeys[] = {{"partial_rotary_factor", KeyUse::fixed, "[1, null]"}};
// Keys of one kind. transformers ignores the original length of a linear scaling.
constexpr KeyRule kLinearKeys[] = {{"factor"},
                                   {"original_max_position_embeddings", KeyUse::harmless}};
constexpr KeyRule kLlama3Keys[] = {
    {"factor low_freq_factor high_freq_factor original_max_position_embeddings"}};
constexpr KeyRule kDynamicKeys[] = {{"factor", KeyUse::harmless}};  // up to the context length
constexpr KeyRule kAlphaKeys[] = {{"alpha"},
                                  {"beta_fast beta_slow mscale mscale_all_dim", KeyUse::harmless}};
constexpr KeyRule kYarnKeys[] = {
    {"factor original_max_position_embeddings attention_factor beta_fast beta_slow mscale "
     "mscale_all_dim truncate"}};
constexpr KeyRule kLongropeKeys[] = {
    {"short_factor original_max_position_embeddings attention_factor factor"},
    {"long_factor", KeyUse::harmless}};  // of longer texts than the model supports
constexpr KeyRule kProportionalKeys[] = {{"factor partial_rotary_factor"}};

struct Kind {
  std::string_view name;
  std::span<const KeyRule> keys;
  void (*read)(const Reading& from, Rotation& to);
};

// Source  transformers, modeling_rope_utils.py, 4 and 5.
constexpr Kind kKinds[] = {
    {"default", {}, read_default},
    {"dynamic", kDynamicKeys, read_dynamic},
    {"linear", kLinearKeys, read_linear},
    {"llama3", kLlama3Keys, read_llama3},
    {"longrope", kLongropeKeys, read_longrope},
    {"proportional", kProportionalKeys, read_proportional},
    {"yarn", kYarnKeys, read_yarn},
};

Result<const Kind*> kind_of(Fields& fields, const RotaryForm& form) {
  const std::string older = fields.text_or("type", "default");
  std::string name = fields.text_or("rope_type", older);
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_REQUIRE_CODE(!fields.has("type") || older == name, Code::unsupported,
                       "{} has the \"rope_type\" \"{}\", but the \"type\" \"{}\".", fields.what(),
                       escaped(name), escaped(older));
  if (!name.empty() && is_one_of(form.longrope_names, name)) {
    name = "longrope";
  }
  const auto found = std::ranges::find(kKinds, name, &Kind::name);
  const auto names = projected(kKinds, &Kind::name);
  BOWLINE_REQUIRE_CODE(found != std::end(kKinds), Code::unsupported,
                       "{} has the \"{}\" \"{}\", which is not supported. Supported: {}.",
                       fields.what(), fields.has("rope_type") ? "rope_type" : "type", escaped(name),
                       fmt::format("{}", fmt::join(names, ", ")));
  return &*found;
}

// Limits and default of a number.
struct Range {
  double least = 0;
  double most = 0;
  double otherwise = 0;
};

// Reads a key of the config that has an older name, or none ("").
Result<double> either(Fields& config, std::string_view key, std::string_view older,
                      const Range& range) {
  const double own = config.number_or(key, range.least, range.most, range.otherwise);
  if (older.empty() || !config.has(older)) {
    return own;
  }
  const double other = config.number_or(older, range.least, range.most, own);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(
      !config.has(key) || own == other, Code::unsupported,
      "{} has different values of \"{}\" and \"{}\". Remove the one that is wrong.", config.what(),
      key, older);
  return other;
}

// The part of a head that is rotated.
Result<double> partial_of(Fields& config, Fields& fields, const RotaryForm& form, bool is_own) {
  constexpr std::string_view key = "partial_rotary_factor";
  if (form.partial == 0 && !is_own) {
    return 1.0;
  }
  const Range range = {1e-6, 1, form.partial == 0 ? 1 : form.partial};
  BOWLINE_TRY_ASSIGN(const double beside, either(config, key, form.older_partial_key, range));
  const double own = fields.number_or(key, range.least, range.most, beside);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_TRY(Status(fields.status()));
  const bool is_said = config.has(key) || config.has(form.older_partial_key);
  BOWLINE_REQUIRE_CODE(!is_said || own == beside, Code::unsupported,
                       "{} and {} have different values of \"{}\".", config.what(), fields.what(),
                       key);
  return own;
}

// Reads the rotation of an object with rotary settings.
Result<Rotation> read_rotation(Fields& config, Fields& fields, const nlohmann::json& said,
                               double theta, const RotaryForm& form, const RotarySizes& sizes) {
  BOWLINE_TRY_ASSIGN(const Kind* const kind, kind_of(fields, form));
  const bool is_proportional = kind->read == read_proportional;
  BOWLINE_TRY_ASSIGN(const double partial, partial_of(config, fields, form, is_proportional));
  Rotation r;
  r.kind = kind->name;
  r.interleaved = form.interleaved;
  r.base = fields.number_or("rope_theta", 1, kMostTheta, theta);
  const auto dims = form.dims != 0
                        ? form.dims
                        : static_cast<int64_t>(static_cast<double>(sizes.head_dim) * partial);
  BOWLINE_REQUIRE_CODE(
      dims > 0 && dims % 2 == 0 && dims <= sizes.head_dim && sizes.head_dim / 2 <= kMostPairs,
      Code::unsupported,
      "{}: the rotation covers {} of {} channels of a head. It must cover an even "
      "number, of at most {} channels.",
      config.what(), dims, sizes.head_dim, 2 * kMostPairs);
  r.dims = dims == sizes.head_dim ? 0 : dims;
  const int64_t original = form.original == 0 ? sizes.context : form.original;
  const Reading from = {fields,        config,  sizes.head_dim, dims,
                        sizes.context, partial, original,       form.has_alpha};
  kind->read(from, r);
  if (form.scales_late_queries && fields.number("llama_4_scaling_beta", 0, kMostFactor) != 0) {
    r.limit = from.original();
  }
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_TRY(Status(config.status()));
  const std::span<const KeyRule> partial_keys =
      form.partial == 0 ? std::span<const KeyRule>(kWholeKeys) : kPartialKeys;
  const std::span<const KeyRule> late_keys =
      form.scales_late_queries ? std::span<const KeyRule>(kLateKeys) : std::span<const KeyRule>();
  const std::span<const KeyRule> alpha_keys = form.has_alpha && kind->read == read_dynamic
                                                  ? std::span<const KeyRule>(kAlphaKeys)
                                                  : std::span<const KeyRule>();
  BOWLINE_TRY(check_keys(fields.what(), said,
                         {kCommonKeys, kind->keys, partial_keys, late_keys, alpha_keys}));
  return r;
}

// True if the object has an entry per layer type.
bool is_nested(const nlohmann::json& said) {
  return said.contains(kFull) || said.contains(kSliding) ||
         std::any_of(said.begin(), said.end(), [](const auto& value) { return value.is_object(); });
}

Status check_types(std::string_view what, const nlohmann::json& said) {
  for (const auto& [key, value] : said.items()) {
    const bool is_type = (key == kFull || key == kSliding) && value.is_object();
    BOWLINE_REQUIRE_CODE(is_type || !asks(value), Code::unsupported,
                         "{} has \"{}\": {}, which is not supported beside entries of layer types. "
                         "Supported: objects with the names {} and {}.",
                         what, escaped(key), shown(value), kFull, kSliding);
  }
  return {};
}

}  // namespace

Result<Rotation> rotation_of(Fields& config, const RotaryForm& form, const RotarySizes& sizes,
                             std::string_view layer_type) {
  const bool is_local = layer_type == kSliding && !form.local_theta_key.empty();
  const std::string_view theta_key = is_local ? form.local_theta_key : "rope_theta";
  const std::string_view older_key = is_local ? std::string_view() : form.older_theta_key;
  const Range range = {1, kMostTheta, is_local ? form.local_theta : form.theta};
  BOWLINE_TRY_ASSIGN(const double theta, either(config, theta_key, older_key, range));
  const bool is_said = config.has(theta_key) || config.has(older_key);
  std::optional<Rotation> first;
  for (const std::string_view key : {kNestedKey, std::string_view("rope_scaling")}) {
    const nlohmann::json* said = config.object(key);
    BOWLINE_TRY(Status(config.status()));
    if (said == nullptr) {
      continue;
    }
    std::string what = fmt::format("\"{}\" of the config", key);
    if (is_nested(*said)) {
      BOWLINE_TRY(check_types(what, *said));
      const auto own = said->find(layer_type);
      const bool is_there = own != said->end() && own->is_object();
      BOWLINE_REQUIRE_CODE(is_there || !form.local_theta_key.empty(), Code::bad_file,
                           "{} has no \"{}\".", what, layer_type);
      if (!is_there) {
        continue;
      }
      said = &*own;
      what = fmt::format("\"{}\" in {}", layer_type, what);
    } else {
      BOWLINE_REQUIRE_CODE(key != kNestedKey || form.local_theta_key.empty() || !asks(*said),
                           Code::unsupported,
                           "{} has no entries of layer types, which this architecture needs ({}, "
                           "{}).",
                           what, kFull, kSliding);
      if (is_local) {
        continue;
      }
    }
    Fields fields(what, *said);
    BOWLINE_TRY_ASSIGN(const Rotation r, read_rotation(config, fields, *said,
                                                       first ? first->base : theta, form, sizes));
    BOWLINE_REQUIRE_CODE(!is_said || r.base == theta, Code::unsupported,
                         "The config has the \"{}\" {}, but {} has another base ({}). Remove the "
                         "one that is wrong.",
                         config.has(theta_key) ? theta_key : older_key, theta, what, r.base);
    BOWLINE_REQUIRE_CODE(!first || *first == r, Code::unsupported,
                         "\"rope_parameters\" and \"rope_scaling\" of {} define different "
                         "rotations. Remove the one that is wrong.",
                         config.what());
    first = r;
  }
  if (!first) {
    const nlohmann::json none = nlohmann::json::object();
    Fields fields(config.what(), none);
    BOWLINE_TRY_ASSIGN(first, read_rotation(config, fields, none, theta, form, sizes));
  }
  return *first;
}

}  // namespace bowline::import
