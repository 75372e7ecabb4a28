#include "huggingface/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/escape.h"
#include "base/status.h"
#include "huggingface/safetensors.h"
#include "huggingface/text_part.h"
#include "huggingface/tokenizer_config.h"
#include "source/file.h"
#include "source/json.h"
#include "source/keys.h"

namespace bowline::huggingface {
namespace {

using import::Fields;
using import::KeyRule;
using import::KeyUse;
using import::shown;
using import::Source;
using import::SourceTensor;
using nlohmann::json;

constexpr uint64_t kMostJson = uint64_t{64} << 20;
constexpr uint64_t kMostTokenizer = uint64_t{256} << 20;
constexpr size_t kMostShards = 4096;

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string quoted(const std::string& path) { return fmt::format("\"{}\"", escaped(path)); }

// Reads a JSON file of the folder `root`.
Result<json> read_json(const std::string& root, const std::string& path) {
  BOWLINE_TRY(import::check_inside(root, path));
  BOWLINE_TRY_ASSIGN(const std::string text, import::read_whole(path, kMostJson));
  return import::parse_json(quoted(path), text);
}

// Reads the settings of the folder `root` in an object whose keys are supported.
Result<json> read_settings(const std::string& root, const std::string& path,
                           std::span<const KeyRule> keys) {
  BOWLINE_TRY_ASSIGN(json settings, read_json(root, path));
  BOWLINE_TRY(import::check_keys(quoted(path), settings, {keys}));
  return settings;
}

Result<json> read_object(const std::string& root, const std::string& path) {
  BOWLINE_TRY_ASSIGN(json object, read_json(root, path));
  BOWLINE_REQUIRE_CODE(object.is_object(), Code::bad_file, "\"{}\" is not an object.",
                       escaped(path));
  return object;
}

// Checks a name that a file uses for another file or folder beside it.
Status check_beside(const std::string& name, std::string_view what) {
  const bool is_plain = !name.empty() && name != "." && name != ".." &&
                        name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  BOWLINE_REQUIRE_CODE(is_plain, Code::bad_file, "{} names {}, which is not a plain file name.",
                       what, listed_name(name));
  return {};
}

// Returns the tensors of each shard, as the index lists them.
Result<std::map<std::string, std::set<std::string>>> read_index(const std::string& root,
                                                                const std::string& path) {
  BOWLINE_TRY_ASSIGN(const json index, read_json(root, path));
  Fields fields(quoted(path), index);
  const json* map = fields.object("weight_map");
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_REQUIRE_CODE(map != nullptr, Code::bad_file, "\"{}\" has no \"weight_map\".",
                       escaped(path));
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, file] : map->items()) {
    BOWLINE_REQUIRE_CODE(file.is_string(), Code::bad_file,
                         "\"{}\" has {} for tensor {}, not a string.", escaped(path), shown(file),
                         listed_name(tensor));
    const auto& name = file.get_ref<const std::string&>();
    BOWLINE_TRY(check_beside(name, quoted(path)));
    shards[name].insert(tensor);
  }
  BOWLINE_REQUIRE_CODE(shards.size() <= kMostShards, Code::bad_file,
                       "\"{}\" names {} files, more than the limit of {}.", escaped(path),
                       shards.size(), kMostShards);
  return shards;
}

Status read_shards(const std::string& folder, const std::string& index, Source& out) {
  BOWLINE_TRY_ASSIGN(auto shards, read_index(out.path, index));
  uint64_t done = 0;
  for (auto& [file, expected] : shards) {
    BOWLINE_TRY(out.progress.at(ImportProgress::Part::files, done++, shards.size()));
    const std::string path = folder + "/" + file;
    BOWLINE_REQUIRE_CODE(is_there(path), Code::bad_file,
                         "Shard \"{}\" is missing. \"{}\" names it for {} tensors.", escaped(path),
                         escaped(index), expected.size());
    BOWLINE_TRY(import::check_inside(out.path, path));
    BOWLINE_TRY_ASSIGN(Safetensors part, read_safetensors(path));
    for (SourceTensor& t : part.tensors) {
      BOWLINE_REQUIRE_CODE(expected.erase(t.name) == 1, Code::bad_file,
                           "Shard \"{}\" has a tensor {} that \"{}\" does not assign to it.",
                           escaped(path), listed_name(t.name), escaped(index));
      out.tensors.push_back(std::move(t));
    }
    BOWLINE_REQUIRE_CODE(expected.empty(), Code::bad_file,
                         "Shard \"{}\" has no tensor {}, although \"{}\" assigns it to the shard.",
                         escaped(path), listed_name(*expected.begin()), escaped(index));
  }
  return {};
}

Status read_tensors(const std::string& folder, Source& out) {
  const std::string whole = folder + "/model.safetensors";
  const std::string index = whole + ".index.json";
  if (is_there(whole)) {
    BOWLINE_TRY(out.progress.at(ImportProgress::Part::files, 0, 1));
    BOWLINE_TRY(import::check_inside(out.path, whole));
    BOWLINE_TRY_ASSIGN(Safetensors file, read_safetensors(whole));
    out.tensors = std::move(file.tensors);
    return {};
  }
  BOWLINE_REQUIRE_CODE(is_there(index), Code::bad_file,
                       "\"{}\" has neither model.safetensors nor model.safetensors.index.json.",
                       escaped(folder));
  return read_shards(folder, index, out);
}

Status add_asset(const std::string& path, std::string name, std::string media_type, uint64_t most,
                 Source& out) {
  if (!is_there(path)) {
    return {};
  }
  BOWLINE_TRY(import::check_inside(out.path, path));
  BOWLINE_TRY_ASSIGN(const std::string text, import::read_whole(path, most));
  const auto bytes = std::as_bytes(std::span(text));
  out.assets.push_back({std::move(name), std::move(media_type), {bytes.begin(), bytes.end()}});
  return {};
}

// The template is a text, or a list of named texts; of a list, "default" is used.
std::string template_text(const json& config) {
  const auto at = config.find("chat_template");
  if (at == config.end()) {
    return {};
  }
  if (at->is_string()) {
    return at->get<std::string>();
  }
  for (const json& entry : at->is_array() ? *at : json::array()) {
    if (entry.is_object() && entry.value("name", json()) == "default") {
      const json text = entry.value("template", json());
      return text.is_string() ? text.get<std::string>() : std::string();
    }
  }
  return {};
}

Status read_tokenizer(const std::string& folder, Source& out) {
  BOWLINE_TRY(add_asset(folder + "/tokenizer.json", "tokenizer",
                        "application/vnd.huggingface.tokenizer+json", kMostTokenizer, out));
  const std::string jinja = folder + "/chat_template.jinja";
  BOWLINE_TRY(add_asset(jinja, "chat_template", "text/x-jinja", kMostJson, out));
  const std::string path = folder + "/tokenizer_config.json";
  json config = json::object();
  if (is_there(path)) {
    BOWLINE_TRY_ASSIGN(config, read_object(out.path, path));
  }
  // Older versions write the special tokens to a separate file.
  const std::string tokens = folder + "/special_tokens_map.json";
  if (!config.contains("added_tokens_decoder") && is_there(tokens)) {
    BOWLINE_TRY_ASSIGN(const json map, read_object(out.path, tokens));
    config.update(map);
  }
  if (const std::string text = template_text(config); !text.empty() && !is_there(jinja)) {
    const auto bytes = std::as_bytes(std::span(text));
    out.assets.push_back({"chat_template", "text/x-jinja", {bytes.begin(), bytes.end()}});
  }
  return apply_tokenizer_config(config, out);
}

// Generation settings with an equivalent in `generate` and `chat`.
// Source  transformers, generation/configuration_utils.py (GenerationConfig).
struct GenerationKey {
  std::string_view key;
  std::string_view neutral;  // a JSON list
  std::string_view flag;     // of `generate`
};
constexpr GenerationKey kGenerationKeys[] = {
    {"do_sample", "[false]", "--temp"},
    {"temperature", "[1]", "--temp"},
    {"top_k", "[0, 50]", "--top-k"},
    {"top_p", "[1]", "--top-p"},
    {"min_p", "[0]", "--min-p"},
    {"repetition_penalty", "[1]", "--repetition-penalty"},
    {"max_new_tokens", "[]", "--max-tokens"},
    {"stop_strings", "[[]]", "--stop"},
};
// Keys that do not change tokens. A note names all other keys.
constexpr KeyRule kOtherGenerationKeys[] = {
    {"eos_token_id"},
    {"bos_token_id pad_token_id decoder_start_token_id transformers_version use_cache "
     "cache_implementation cache_config return_legacy_cache output_attentions output_hidden_states "
     "output_scores output_logits return_dict_in_generate max_length max_time low_memory "
     "disable_compile num_return_sequences",
     KeyUse::harmless},
    {"early_stopping", KeyUse::harmless},  // of beam search
    {"length_penalty", KeyUse::harmless},  // of beam search
    {"num_beams num_beam_groups typical_p encoder_repetition_penalty guidance_scale", KeyUse::fixed,
     "[1]"},
    {"token_healing", KeyUse::fixed, "[false]"},
    {"assistant_confidence_threshold", KeyUse::harmless},  // of a draft model
    {"assistant_early_exit assistant_lookbehind target_lookbehind num_assistant_tokens "
     "num_assistant_tokens_schedule prompt_lookup_num_tokens max_matching_ngram_size is_assistant "
     "prefill_chunk_size",
     KeyUse::harmless},
};

void note_generation(const json& config, Source& out) {
  std::string flags, others;
  const auto add = [](std::string& list, std::string text) {
    list += (list.empty() ? "" : ", ") + std::move(text);
  };
  for (const auto& [key, value] : config.items()) {
    const std::string text = fmt::format("\"{}\": {}", escaped(key), shown(value));
    const auto* const flag = std::ranges::find(kGenerationKeys, key, &GenerationKey::key);
    if (flag != std::end(kGenerationKeys)) {
      const json neutral = json::parse(flag->neutral);
      if (!value.is_null() && std::ranges::find(neutral, value) == neutral.end()) {
        add(flags, fmt::format("{} ({})", text, flag->flag));
      }
    } else if (!import::check_key("", key, value, {kOtherGenerationKeys}).ok()) {
      add(others, text);
    }
  }
  if (!flags.empty()) {
    out.notes.push_back(
        fmt::format("generation_config.json has {}. `generate` and `chat` ignore these "
                    "settings: pass the flags in brackets.",
                    flags));
  }
  if (!others.empty()) {
    out.notes.push_back(
        fmt::format("generation_config.json has {}, which `generate` and `chat` do not "
                    "support. Their answers differ from those of transformers.",
                    others));
  }
}

// The tokens that end an answer come from generation_config.json, if it has any.
Status read_generation(const std::string& folder, Source& out) {
  const std::string path = folder + "/generation_config.json";
  if (!is_there(path)) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(const json config, read_object(out.path, path));
  if (const auto ids = config.find("eos_token_id"); ids != config.end() && !ids->is_null()) {
    out.config["eos_token_id"] = *ids;
  }
  note_generation(config, out);
  return {};
}

// ---- sentence-transformers
// Source  sentence_transformers, base/model.py, base/modules/transformer.py,
//         sentence_transformer/modules/pooling.py, and models/ of older versions.

constexpr KeyRule kModuleKeys[] = {
    {"type path"},
    {"idx name", KeyUse::harmless},
    {"kwargs", KeyUse::harmless},  // names of optional arguments of the module
};
constexpr KeyRule kPoolingKeys[] = {
    {"pooling_mode pooling_mode_cls_token pooling_mode_max_tokens pooling_mode_mean_tokens "
     "pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens pooling_mode_lasttoken "
     "include_prompt"},
    {"word_embedding_dimension", KeyUse::harmless},  // width of the rows
    {"embedding_dimension", KeyUse::harmless},
};
constexpr KeyRule kNormalizeKeys[] = {
    {"module_input_name", KeyUse::fixed, R"(["sentence_embedding"])"},
    {"module_output_name", KeyUse::fixed, R"(["sentence_embedding", null])"},
};
constexpr std::string_view kAsksNothing = "[null, {}]";
constexpr KeyRule kTransformerKeys[] = {
    {"max_seq_length do_lower_case"},
    {"transformer_task", KeyUse::fixed, R"(["feature-extraction"])"},
    {"modality_config", KeyUse::fixed,
     R"([{"text": {"method": "forward", "method_output_name": "last_hidden_state"}}])"},
    {"module_output_name", KeyUse::fixed, R"(["token_embeddings"])"},
    {"processing_kwargs model_args model_kwargs tokenizer_args processor_kwargs config_args "
     "config_kwargs",
     KeyUse::fixed, kAsksNothing},
    {"tokenizer_name_or_path query_length document_length query_expansion", KeyUse::fixed,
     "[null]"},
    {"unpad_inputs", KeyUse::harmless},  // memory layout of a batch
    {"cache_dir backend", KeyUse::harmless},
};
constexpr KeyRule kSentenceKeys[] = {
    {"prompts default_prompt_name"},
    {"__version__ requirements", KeyUse::harmless},
    {"similarity_fn_name", KeyUse::harmless},  // similarity function for the caller
    {"model_type", KeyUse::fixed, R"(["SentenceTransformer", null])"},
    {"truncate_dim", KeyUse::fixed, "[null]"},
};

// Returns the pooling mode that the file enables.
Result<std::string> read_pooling(const std::string& root, const std::string& path,
                                 bool has_prompt) {
  BOWLINE_TRY_ASSIGN(const json config, read_settings(root, path, kPoolingKeys));
  Fields fields(quoted(path), config);
  const bool pools_prompt = fields.boolean_or("include_prompt", true);
  BOWLINE_REQUIRE_CODE(pools_prompt || !has_prompt, Code::unsupported,
                       "\"{}\" has \"include_prompt\": false, but each text has a prompt. "
                       "Pooling without the prompt tokens is not supported.",
                       escaped(path));
  std::vector<std::string> modes;
  if (fields.has("pooling_mode")) {
    modes.push_back(fields.text("pooling_mode"));
  }
  BOWLINE_TRY(Status(fields.status()));
  constexpr std::string_view kPrefix = "pooling_mode_";
  if (modes.empty()) {
    for (const auto& [key, value] : config.items()) {
      if (key.starts_with(kPrefix) && value == true) {
        modes.push_back(key.substr(kPrefix.size()));
      }
    }
  }
  const std::map<std::string, std::string> known = {
      {"cls_token", "cls"},  {"cls", "cls"}, {"mean_tokens", "mean"}, {"mean", "mean"},
      {"max_tokens", "max"}, {"max", "max"}, {"lasttoken", "last"}};
  BOWLINE_REQUIRE_CODE(modes.size() == 1, Code::bad_file,
                       "\"{}\" enables {} pooling modes, not one.", escaped(path), modes.size());
  const auto found = known.find(modes[0]);
  BOWLINE_REQUIRE_CODE(found != known.end(), Code::unsupported,
                       "\"{}\" has the pooling mode \"{}\", which is not supported. Supported: "
                       "cls, lasttoken, mean, max.",
                       escaped(path), escaped(modes[0]));
  return found->second;
}

// Reads the default prompt that sentence-transformers prepends to a text.
Status read_prompt(const std::string& folder, Source& out) {
  const std::string path = folder + "/config_sentence_transformers.json";
  if (!is_there(path)) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(const json config, read_settings(folder, path, kSentenceKeys));
  Fields fields(quoted(path), config);
  const std::string name = fields.text_or("default_prompt_name", "");
  const json* const prompts = fields.object("prompts");
  BOWLINE_TRY(Status(fields.status()));
  if (name.empty()) {
    return {};
  }
  BOWLINE_REQUIRE_CODE(
      prompts != nullptr && prompts->contains(name) && (*prompts)[name].is_string(), Code::bad_file,
      "\"{}\" has \"default_prompt_name\": \"{}\", but \"prompts\" has no text of that name.",
      escaped(path), escaped(name));
  const auto prompt = (*prompts)[name].get<std::string>();
  if (!prompt.empty()) {
    out.metadata.emplace_back("prompt", prompt);
  }
  return {};
}

// Reads the settings of the encoder module. In older versions the file name has the architecture.
Status read_transformer(const std::string& encoder, Source& out, bool& lowercases) {
  for (const char* kind : {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta"}) {
    const std::string path = fmt::format("{}/sentence_{}_config.json", encoder, kind);
    if (!is_there(path)) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(const json config, read_settings(out.path, path, kTransformerKeys));
    Fields fields(quoted(path), config);
    if (fields.has("max_seq_length")) {
      out.metadata.emplace_back(
          "max_tokens", std::to_string(fields.integer("max_seq_length", 1, int64_t{1} << 24)));
    }
    lowercases = fields.boolean_or("do_lower_case", false);
    return Status(fields.status());
  }
  return {};
}

// Reads modules.json: the encoder, the pooling and the normalization. Returns the folder of the
// encoder. `lowercases`: text is lowercased first.
Result<std::string> read_modules(const std::string& folder, Source& out, bool& lowercases) {
  const std::string path = folder + "/modules.json";
  if (!is_there(path)) {
    return folder;
  }
  BOWLINE_TRY_ASSIGN(const json modules, read_json(folder, path));
  BOWLINE_REQUIRE_CODE(modules.is_array(), Code::bad_file, "\"{}\" is not a list.", escaped(path));
  BOWLINE_TRY(read_prompt(folder, out));
  const bool has_prompt =
      std::ranges::find(out.metadata, "prompt", &Settings::value_type::first) != out.metadata.end();
  std::string encoder = folder;
  bool normalize = false;
  for (const json& module : modules) {
    Fields fields(fmt::format("A module of \"{}\"", escaped(path)), module);
    BOWLINE_TRY(import::check_keys(fields.what(), module, {kModuleKeys}));
    const std::string type = fields.text("type");
    const std::string name = type.substr(type.rfind('.') + 1);
    const std::string at = fields.text_or("path", "");
    BOWLINE_TRY(Status(fields.status()));
    if (!at.empty()) {
      BOWLINE_TRY(check_beside(at, fields.what()));
    }
    const std::string place = at.empty() ? folder : folder + "/" + at;
    if (name == "Transformer") {
      encoder = place;
    } else if (name == "Pooling") {
      BOWLINE_TRY_ASSIGN(std::string pooling,
                         read_pooling(folder, place + "/config.json", has_prompt));
      out.metadata.emplace_back("pooling", std::move(pooling));
    } else if (name == "Normalize") {
      normalize = true;
      if (const std::string settings = place + "/config.json"; !at.empty() && is_there(settings)) {
        BOWLINE_TRY(read_settings(folder, settings, kNormalizeKeys).status());
      }
    } else {
      return Status(Code::unsupported,
                    fmt::format("\"{}\" has a module of the type \"{}\", which is not supported.",
                                escaped(path), escaped(type)));
    }
  }
  out.metadata.emplace_back("normalize", normalize ? "true" : "false");
  BOWLINE_TRY(read_transformer(encoder, out, lowercases));
  return encoder;
}

}  // namespace

bool is_folder(const std::string& path) {
  return is_there(path + "/config.json") || is_there(path + "/modules.json");
}

namespace {

// Sets `encoder` to the folder of the encoder, which sentence-transformers may put in a subfolder.
Result<Source> read_texts(const std::string& folder, std::string& encoder) {
  Source out;
  out.path = folder;
  out.format = "Hugging Face";
  bool lowercases = false;
  BOWLINE_TRY_ASSIGN(encoder, read_modules(folder, out, lowercases));
  const std::string path = encoder + "/config.json";
  BOWLINE_TRY_ASSIGN(out.config, read_object(folder, path));
  BOWLINE_TRY(take_text_config(out));
  for (const char* name : {"config.json", "tokenizer_config.json", "generation_config.json"}) {
    BOWLINE_TRY(add_asset(encoder + "/" + name, name, "application/json", kMostJson, out));
  }
  if (!out.other_parts.empty()) {  // an export writes the text model alone
    const std::string text = out.config.dump(2) + "\n";
    const auto bytes = std::as_bytes(std::span(text));
    out.assets.front().bytes.assign(bytes.begin(), bytes.end());
  }
  BOWLINE_TRY(read_tokenizer(encoder, out));
  BOWLINE_TRY(read_generation(encoder, out));
  if (lowercases) {
    BOWLINE_TRY(lowercase_text(out));
  }
  return out;
}

}  // namespace

Result<Source> read(const std::string& folder, const import::Progress& progress) {
  std::string encoder;
  BOWLINE_TRY_ASSIGN(Source out, read_texts(folder, encoder));
  out.progress = progress;
  BOWLINE_TRY(read_tensors(encoder, out));
  name_text_tensors(out);
  return out;
}

Result<Source> read_config(const std::string& folder) {
  std::string encoder;
  return read_texts(folder, encoder);
}

}  // namespace bowline::huggingface
