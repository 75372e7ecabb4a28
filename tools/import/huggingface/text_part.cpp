#include "huggingface/text_part.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/escape.h"
#include "base/projected.h"
#include "base/status.h"
#include "source/json.h"
#include "source/keys.h"

namespace bowline::huggingface {
namespace {

using import::Fields;
using import::KeyRule;
using import::KeyUse;
using import::Source;
using nlohmann::json;

// A text model that a model of texts and images can have.
struct TextModel {
  std::string_view type;
  std::string_view class_name;  // in transformers
  // Values of keys that a config may leave out, as a JSON object.
  const char* defaults;
};
// A kind of model of texts and images. Its images become rows of embeddings between those of the
// tokens, and so do not change what the text model computes.
// Source  transformers, configuration_gemma3.py and configuration_mistral3.py.
struct Composite {
  std::string_view type;
  std::vector<TextModel> texts;  // the first one is the default
};
const std::vector<Composite>& composites() {
  static const std::vector<Composite> all = {
      {"gemma3",
       {{"gemma3_text", "Gemma3ForCausalLM",
         R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
             "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
             "head_dim": 256, "max_position_embeddings": 131072})"}}},
      {"mistral3",
       {{"mistral", "MistralForCausalLM", "{}"}, {"ministral3", "Ministral3ForCausalLM", "{}"}}},
  };
  return all;
}

constexpr KeyRule kCompositeKeys[] = {
    {"model_type text_config tie_word_embeddings dtype torch_dtype bos_token_id eos_token_id "
     "pad_token_id"},
    // Of images, and of how they are joined with texts.
    {"vision_config image_token_index image_token_id boi_token_index boi_token_id eoi_token_index "
     "eoi_token_id mm_tokens_per_image projector_hidden_act vision_feature_layer "
     "multimodal_projector_bias spatial_merge_size",
     KeyUse::harmless},
    {"architectures transformers_version initializer_range name_or_path use_cache",
     KeyUse::harmless},
};

// Prefixes of the names of tensors. Newer versions of transformers write the second one.
constexpr std::string_view kOlder = "language_model.", kNewer = "model.language_model.";

}  // namespace

Status take_text_config(Source& source) {
  const json whole = source.config;
  const auto type = whole.find("model_type");
  const auto kind = std::ranges::find_if(
      composites(), [&](const Composite& c) { return type != whole.end() && *type == c.type; });
  if (kind == composites().end()) {
    return {};
  }
  Fields config("The config", whole);
  const json* const text = config.object("text_config");
  BOWLINE_TRY(Status(config.status()));
  BOWLINE_REQUIRE_CODE(text != nullptr, Code::bad_file, "The config has no \"text_config\".");
  BOWLINE_TRY(import::check_keys("The config", whole, {kCompositeKeys}));
  Fields inner("The \"text_config\"", *text);
  const std::string name = inner.text_or("model_type", std::string(kind->texts.front().type));
  BOWLINE_TRY(Status(inner.status()));
  const auto found = std::ranges::find(kind->texts, name, &TextModel::type);
  const auto names = projected(kind->texts, &TextModel::type);
  BOWLINE_REQUIRE_CODE(found != kind->texts.end(), Code::unsupported,
                       "The text model of \"{}\" is \"{}\", which is not supported. Supported: {}.",
                       kind->type, escaped(name), fmt::format("{}", fmt::join(names, ", ")));
  source.config = json::parse(found->defaults);
  source.config.update(*text);
  source.config["model_type"] = name;
  source.config["architectures"] = json::array({found->class_name});
  // Of the keys that both have, those of the whole model count.
  for (const char* const key : {"tie_word_embeddings", "dtype", "torch_dtype", "bos_token_id",
                                "eos_token_id", "pad_token_id"}) {
    if (const auto at = whole.find(key); at != whole.end() && !at->is_null()) {
      source.config[key] = *at;
    }
  }
  source.other_parts = {"vision_tower.*", "multi_modal_projector.*", "model.vision_tower.*",
                        "model.multi_modal_projector.*"};
  source.notes.push_back(
      fmt::format("The source is a model of texts and images (\"{}\"). Only its text model is "
                  "imported.",
                  kind->type));
  return {};
}

void name_text_tensors(Source& source) {
  if (source.other_parts.empty()) {
    return;
  }
  for (import::SourceTensor& t : source.tensors) {
    if (t.name.starts_with(kOlder)) {
      t.name.erase(0, kOlder.size());
    } else if (t.name.starts_with(kNewer)) {
      t.name.replace(0, kNewer.size(), "model.");
    }
  }
}

}  // namespace bowline::huggingface
