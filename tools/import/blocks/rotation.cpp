#include "blocks/rotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/escape.h"
#include "base/projected.h"
#include "base/status.h"
#include "source/keys.h"

namespace bowline::import {
namespace {

constexpr double kMostTheta = 1e9;
constexpr double kMostFactor = 1e6;
constexpr int64_t kMostLength = int64_t{1} << 24;
constexpr const char* kOriginal = "original_max_position_embeddings";
constexpr std::string_view kNestedKey = "rope_parameters";  // may have entries of layer types
constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";

// The object that a kind of rotation is read from.
struct Reading {
  Fields& fields;
  Fields& config;
  int64_t context = 0;

  // The length that the model was trained with before its context was extended. Older configs have
  // the key beside the object.
  int64_t original() const {
    const int64_t beside = config.integer_or(kOriginal, 1, kMostLength, context);
    const int64_t length = fields.integer_or(kOriginal, 1, kMostLength, beside);
    if (config.has(kOriginal) && beside != length) {
      config.fail(fmt::format("{} and {} have different values of \"{}\".", config.what(),
                              fields.what(), kOriginal));
    }
    return length;
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
// config, so that the factor changes nothing there.
void read_dynamic(const Reading& from, Rotation& r) {
  (void)from.fields.number("factor", 1, kMostFactor);
  r.limit = from.context;
}

// Keys of every kind.
constexpr KeyRule kCommonKeys[] = {{"rope_theta rope_type type"}};
constexpr KeyRule kPartialKeys[] = {{"partial_rotary_factor"}};
constexpr KeyRule kWholeKeys[] = {{"partial_rotary_factor", KeyUse::fixed, "[1, null]"}};
// Keys of one kind. transformers ignores the original length of a linear scaling.
constexpr KeyRule kLinearKeys[] = {{"factor"},
                                   {"original_max_position_embeddings", KeyUse::harmless}};
constexpr KeyRule kLlama3Keys[] = {
    {"factor low_freq_factor high_freq_factor original_max_position_embeddings"}};
constexpr KeyRule kDynamicKeys[] = {{"factor", KeyUse::harmless}};  // up to the context length

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
};

Result<const Kind*> kind_of(Fields& fields) {
  const std::string older = fields.text_or("type", "default");
  const std::string name = fields.text_or("rope_type", older);
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_REQUIRE_CODE(!fields.has("type") || older == name, Code::unsupported,
                       "{} has the \"rope_type\" \"{}\", but the \"type\" \"{}\".", fields.what(),
                       escaped(name), escaped(older));
  const auto found = std::ranges::find(kKinds, name, &Kind::name);
  const auto names = projected(kKinds, &Kind::name);
  BOWLINE_REQUIRE_CODE(found != std::end(kKinds), Code::unsupported,
                       "{} has the \"{}\" \"{}\", which is not supported. Supported: {}.",
                       fields.what(), fields.has("rope_type") ? "rope_type" : "type", escaped(name),
                       fmt::format("{}", fmt::join(names, ", ")));
  return &*found;
}

// The part of a head that is rotated.
Result<double> partial_of(Fields& config, Fields& fields, const RotaryForm& form) {
  constexpr const char* key = "partial_rotary_factor";
  if (form.partial == 0) {
    return 1.0;
  }
  const double beside = config.number_or(key, 1e-6, 1, form.partial);
  const double own = fields.number_or(key, 1e-6, 1, beside);
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_REQUIRE_CODE(config.number_or(key, 1e-6, 1, own) == own, Code::unsupported,
                       "{} and {} have different values of \"{}\".", config.what(), fields.what(),
                       key);
  return own;
}

// Reads the rotation of an object with rotary settings.
Result<Rotation> read_rotation(Fields& config, Fields& fields, const nlohmann::json& said,
                               double theta, const RotaryForm& form, const RotarySizes& sizes) {
  BOWLINE_TRY_ASSIGN(const Kind* const kind, kind_of(fields));
  BOWLINE_TRY_ASSIGN(const double partial, partial_of(config, fields, form));
  Rotation r;
  r.kind = kind->name;
  r.interleaved = form.interleaved;
  r.base = fields.number_or("rope_theta", 1, kMostTheta, theta);
  const auto dims = static_cast<int64_t>(static_cast<double>(sizes.head_dim) * partial);
  BOWLINE_REQUIRE_CODE(dims > 0 && dims % 2 == 0, Code::unsupported,
                       "{}: the rotation covers {} of {} channels of a head, not an even number.",
                       config.what(), dims, sizes.head_dim);
  r.dims = dims == sizes.head_dim ? 0 : dims;
  kind->read({fields, config, sizes.context}, r);
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_TRY(Status(config.status()));
  const std::span<const KeyRule> partial_keys =
      form.partial == 0 ? std::span<const KeyRule>(kWholeKeys) : kPartialKeys;
  BOWLINE_TRY(check_keys(fields.what(), said, {kCommonKeys, kind->keys, partial_keys}));
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
  const double theta =
      config.number_or(theta_key, 1, kMostTheta, is_local ? form.local_theta : form.theta);
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
    BOWLINE_REQUIRE_CODE(!config.has(theta_key) || r.base == theta, Code::unsupported,
                         "The config has the \"{}\" {}, but {} has another base ({}). Remove the "
                         "one that is wrong.",
                         theta_key, theta, what, r.base);
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
