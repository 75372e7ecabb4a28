#include <fmt/format.h>

#include <algorithm>

#include "architectures/architecture.h"
#include "base/escape.h"
#include "base/projected.h"
#include "base/status.h"
#include "source/json.h"

namespace bowline::import {
namespace {

// Returns "2,32000" for an id or a list of ids. Empty: there is no id.
Result<std::string> ids_text(const nlohmann::json& config, const char* key) {
  const auto at = config.find(key);
  if (at == config.end() || at->is_null()) {
    return std::string();
  }
  const nlohmann::json ids = at->is_array() ? *at : nlohmann::json::array({*at});
  std::string text;
  for (const nlohmann::json& id : ids) {
    const bool is_id =
        id.is_number_integer() && (!id.is_number_unsigned() || id.get<uint64_t>() <= INT32_MAX);
    BOWLINE_REQUIRE_CODE(is_id, Code::bad_file, "The config: \"{}\" is {}, not a token id.", key,
                         shown(*at));
    if (id.get<int64_t>() >= 0) {  // -1 means no token
      text += fmt::format("{}{}", text.empty() ? "" : ",", id.get<int64_t>());
    }
  }
  return text;
}

// Keys of every config. Older versions of transformers also store settings of generation and
// training here. Keys of generation do not change logits.
// Source  transformers, configuration_utils.py (PreTrainedConfig), versions 2 to 5.
constexpr KeyRule kConfigKeys[] = {
    {"model_type architectures dtype torch_dtype bos_token_id eos_token_id pad_token_id vocab_size "
     "id2label problem_type"},
    {"transformers_version transformers.js_config name_or_path return_dict output_hidden_states "
     "output_attentions output_past use_cache label2id",
     KeyUse::harmless},
    {"num_labels", KeyUse::harmless},               // same as the rows of the head
    {"chunk_size_feed_forward", KeyUse::harmless},  // splits rows without changing the result
    {"initializer_range initializer_factor gradient_checkpointing finetuning_task "
     "task_specific_params torchscript use_bfloat16",
     KeyUse::harmless},
    {"auto_map", KeyUse::harmless},  // names code that runs only on request
    {"attn_implementation unsloth_version unsloth_fixed sep_token_id cls_token_id mask_token_id "
     "unk_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id "
     "begin_suppress_tokens suppress_tokens bad_words_ids max_length min_length max_new_tokens "
     "do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p "
     "typical_p repetition_penalty length_penalty no_repeat_ngram_size "
     "encoder_no_repeat_ngram_size num_return_sequences output_scores return_dict_in_generate "
     "remove_invalid_values exponential_decay_length_penalty prefix tokenizer_class",
     KeyUse::harmless},
    {"max_sequence_length", KeyUse::harmless},  // of the training; "max_position_embeddings" counts
    {"model_max_length", KeyUse::harmless},
    {"is_encoder_decoder add_cross_attention", KeyUse::fixed, "[false, null]"},
    {"cross_attention_hidden_size", KeyUse::fixed, "[null]"},
    {"tie_encoder_decoder", KeyUse::fixed, "[false, null]"},
    {"pruned_heads", KeyUse::fixed, "[{}, null]"},
    {"quantization_config", KeyUse::fixed, "[null]"},
};

Status add_metadata(const Source& source, std::string_view type, Built& built) {
  Model& model = built.model;
  BOWLINE_TRY(model.set_metadata("task", name_of(built.task)));
  BOWLINE_TRY(model.set_metadata("architecture", type));
  for (const auto& [key, from] : {std::pair("bos_token_id", "bos_token_id"),
                                  {"eos_token_ids", "eos_token_id"},
                                  {"pad_token_id", "pad_token_id"}}) {
    BOWLINE_TRY_ASSIGN(const std::string ids, ids_text(source.config, from));
    if (!ids.empty()) {
      BOWLINE_TRY(model.set_metadata(key, ids));
    }
  }
  for (const auto& [key, value] : source.metadata) {
    if (model.metadata(key).empty()) {  // the architecture may have set a better value
      BOWLINE_TRY(model.set_metadata(key, value));
    }
  }
  return {};
}

}  // namespace

Result<Built> build_model(const Source& source, const TextImportOptions& options) {
  Fields config("The config", source.config);
  const std::string type = config.text("model_type");
  BOWLINE_TRY(Status(config.status()));
  const std::vector<Architecture> known = architectures();
  const auto found = std::ranges::find(known, type, &Architecture::type);
  const auto names = projected(known, &Architecture::type);
  BOWLINE_REQUIRE_CODE(
      found != known.end(), Code::unsupported,
      "The architecture \"{}\" is not supported. Supported: {}. Other models can be exported to "
      "ONNX (torch.onnx.export) and imported from there.",
      escaped(type), fmt::format("{}", fmt::join(names, ", ")));
  BOWLINE_TRY(
      check_keys(config.what(), source.config, {found->keys[0], found->keys[1], kConfigKeys}));
  BOWLINE_TRY_ASSIGN(Built built, found->build(source, options));
  built.notes.insert(built.notes.begin(), source.notes.begin(), source.notes.end());
  BOWLINE_TRY(add_metadata(source, type, built));
  for (const SourceAsset& a : source.assets) {
    BOWLINE_TRY(built.model.set_asset(a.name, a.media_type, a.bytes));
  }
  return built;
}

}  // namespace bowline::import
