#include "export/huggingface.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/escape.h"
#include "base/status.h"
#include "bowline_text.h"
#include "export/json_tokenizer.h"
#include "export/output.h"
#include "peft/head.h"
#include "source/numbers.h"

namespace bowline::command {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kWeights = "model.safetensors";

std::string_view safetensors_name_of(DType dtype) {
  constexpr std::string_view names[kDTypes] = {"F32", "F16", "BF16", "I8",
                                               "U8",  "I32", "I64",  "BOOL"};
  return names[static_cast<size_t>(dtype)];
}

DType written_dtype(const ExportedTensor& tensor, std::optional<DType> dtype) {
  return import::is_float(tensor.dtype) ? dtype.value_or(tensor.dtype) : tensor.dtype;
}

uint64_t written_bytes(const ExportedTensor& tensor, std::optional<DType> dtype) {
  return elements_of(tensor) * size_of(written_dtype(tensor, dtype));
}

Status check_encodings(const ExportedModel& model, std::optional<DType> dtype) {
  const auto encoded = std::ranges::find_if(
      model.tensors, [](const ExportedTensor& t) { return t.encoding != "plain"; });
  BOWLINE_REQUIRE(dtype || encoded == model.tensors.end(),
                  "\"{}\" is stored as {}, which safetensors does not have. Choose another dtype "
                  "with --dtype.",
                  encoded->name, encoded->encoding);
  return {};
}

// A classification model of transformers whose head reads the first token through its own layer.
struct ClassHead {
  std::string_view type;
  std::string_view class_name;
  std::string_view layer;   // prefix of its parameters
  std::string_view prefix;  // of the parameters of the encoder
};
constexpr ClassHead kClassHeads[] = {
    {"bert", "BertForSequenceClassification", "pooler.dense.", "bert."},
    {"roberta", "RobertaForSequenceClassification", "classifier.dense.", "roberta."},
    {"xlm-roberta", "XLMRobertaForSequenceClassification", "classifier.dense.", "roberta."},
    {"camembert", "CamembertForSequenceClassification", "classifier.dense.", "roberta."},
    {"electra", "ElectraForSequenceClassification", "classifier.dense.", "electra."},
    {"albert", "AlbertForSequenceClassification", "pooler.", "albert."},
    {"distilbert", "DistilBertForSequenceClassification", "pre_classifier.", "distilbert."},
    {"modernbert", "ModernBertForSequenceClassification", "head.dense.", ""},
    {"eurobert", "EuroBertForSequenceClassification", "dense.", ""},
    {"gte", "GteForSequenceClassification", "pooler.dense.", "gte."},
    {"nomic_bert", "NomicBertForSequenceClassification", "pooler.dense.", "nomic_bert."},
};

std::string name_in(const ClassHead& head, const std::string& name) {
  if (head.layer == "classifier.dense." && name.starts_with("classifier.") &&
      !name.starts_with(head.layer)) {
    return "classifier.out_proj." + name.substr(std::string_view("classifier.").size());
  }
  const bool outside = name.starts_with("classifier.") || name.starts_with("pre_classifier.");
  return outside ? name : std::string(head.prefix) + name;
}

Status add_labels(const Model& model, json& config) {
  BOWLINE_TRY_ASSIGN(const std::optional<std::string> text, text_asset(model, "labels"));
  if (!text) {
    return {};
  }
  json names = json::object(), numbers = json::object();
  for (size_t at = 0, n = 0; at < text->size(); ++n) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const std::string label = text->substr(at, end - at);
    names[std::to_string(n)] = label;
    numbers[label] = n;
    at = end + 1;
  }
  config["id2label"] = names;
  config["label2id"] = numbers;
  if (model.metadata("task") == "classify") {
    config["problem_type"] = model.metadata("multi_label") == "true"
                                 ? "multi_label_classification"
                                 : "single_label_classification";
  }
  return {};
}

// Decoders without a class for the classification of texts, and without one for tokens.
// Source  transformers 5, models/auto/modeling_auto.py.
constexpr std::string_view kWithoutClasses[] = {"codegen",  "cohere",  "cohere2",
                                                "ernie4_5", "granite", "xglm"};
constexpr std::string_view kWithoutTags[] = {
    "codegen",          "cohere", "cohere2", "ernie4_5", "gemma3_text", "gptj", "granite",
    "hunyuan_v1_dense", "olmo",   "olmo2",   "olmo3",    "opt",         "xglm"};

// Renames the class of a decoder that was imported from a language model.
Status rename_class(ExportedModel& out, std::string_view to) {
  const json& classes = value_at(out.config, "architectures");
  std::string name = classes.is_array() && classes.size() == 1 && classes[0].is_string()
                         ? classes[0].get<std::string>()
                         : "";
  for (const std::string_view end :
       {"ForSequenceClassification", "ForTokenClassification", "ForCausalLM", "LMHeadModel"}) {
    if (name.ends_with(end)) {
      name.replace(name.size() - end.size(), end.size(), to);
      out.config["architectures"] = {name};
      return {};
    }
  }
  return Status(Code::unsupported,
                "The config does not name the class of the decoder in transformers "
                "(\"architectures\").");
}

// Renames the head of a decoder.
Status rename_head(const Model& model, ExportedModel& out,
                   std::span<const std::string_view> without, const char* task,
                   std::string_view class_end) {
  const std::string type = text_at(out.config, "model_type");
  BOWLINE_REQUIRE(std::ranges::find(without, type) == without.end(),
                  "transformers has no class of {} that {}.", listed_name(type), task);
  for (ExportedTensor& t : out.tensors) {
    if (t.name.starts_with("classifier.")) {
      t.name = fmt::format("{}{}", peft::head_module(model), t.name.substr(t.name.find('.')));
    }
  }
  BOWLINE_TRY(rename_class(out, class_end));
  return add_labels(model, out.config);
}

// The head of an encoder that labels tokens.
Status add_tag_head(const Model& model, ExportedModel& out) {
  const std::string type = text_at(out.config, "model_type");
  const auto* const head = std::ranges::find(kClassHeads, type, &ClassHead::type);
  BOWLINE_REQUIRE(head != std::end(kClassHeads), "transformers has no class of {} that tags words.",
                  listed_name(type));
  const bool has_layer = std::ranges::any_of(
      out.tensors, [&](const auto& t) { return t.name.starts_with(head->layer); });
  BOWLINE_REQUIRE(
      type != "modernbert" || has_layer,
      "Its head has no layer of its own; transformers has no class of {} with such a head.",
      listed_name(type));
  std::string name(head->class_name);
  name.replace(name.find("ForSequence"), std::string_view("ForSequence").size(), "ForToken");
  out.config["architectures"] = {name};
  for (ExportedTensor& t : out.tensors) {
    t.name = (t.name.starts_with("classifier.") ? "" : std::string(head->prefix)) + t.name;
  }
  return add_labels(model, out.config);
}

Status add_class_head(const Model& model, ExportedModel& out) {
  const std::string task = model.metadata("task");
  const std::string type = text_at(out.config, "model_type");
  const auto* const head = std::ranges::find(kClassHeads, type, &ClassHead::type);
  const std::string pooling = model.metadata("pooling");
  const bool is_decoder = model.metadata("causal") == "true";
  if (is_decoder && task == "embed") {
    return rename_class(out, "Model");
  }
  if (task == "tag") {
    return is_decoder
               ? rename_head(model, out, kWithoutTags, "tags words", "ForTokenClassification")
               : add_tag_head(model, out);
  }
  if (task != "classify") {
    return {};
  }
  if (is_decoder && pooling == "last") {
    return rename_head(model, out, kWithoutClasses, "classifies texts",
                       "ForSequenceClassification");
  }
  const bool has_layer =
      head != std::end(kClassHeads) && std::ranges::any_of(out.tensors, [&](const auto& t) {
        return t.name.starts_with(head->layer);
      });
  const bool says_pooling = (type == "modernbert" || type == "eurobert") && pooling == "mean";
  BOWLINE_REQUIRE(
      has_layer && (pooling == "cls" || says_pooling),
      "Its head reads the {} of the tokens{}; transformers has no class of {} with such "
      "a head.",
      listed_name(pooling), has_layer ? "" : " without a layer of its own", listed_name(type));
  for (ExportedTensor& t : out.tensors) {
    t.name = name_in(*head, t.name);
  }
  if (type == "modernbert") {
    out.config["classifier_pooling"] = pooling;
  }
  out.config["architectures"] = {head->class_name};
  return add_labels(model, out.config);
}

// Returns the dtype with the most elements.
DType main_dtype(const ExportedModel& model, std::optional<DType> dtype) {
  uint64_t bytes[kDTypes] = {};
  for (const ExportedTensor& t : model.tensors) {
    const DType written = written_dtype(t, dtype);
    bytes[static_cast<size_t>(written)] += written_bytes(t, dtype) / size_of(written);
  }
  return static_cast<DType>(std::ranges::max_element(bytes) - bytes);
}

// Wider dtypes come first, so that each tensor is aligned to the size of its elements.
std::string safetensors_header(ExportedModel& model, std::optional<DType> dtype, uint64_t& bytes) {
  std::ranges::stable_sort(model.tensors, std::ranges::greater(), [&](const ExportedTensor& t) {
    return size_of(written_dtype(t, dtype));
  });
  ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  bytes = 0;
  for (const ExportedTensor& t : model.tensors) {
    const uint64_t end = bytes + written_bytes(t, dtype);
    header[t.name] = {{"dtype", safetensors_name_of(written_dtype(t, dtype))},
                      {"shape", t.shape},
                      {"data_offsets", {bytes, end}}};
    bytes = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

Status write_weights(const Model& model, const ExportedModel& exported, std::string_view header,
                     std::optional<DType> dtype, Output& out) {
  BOWLINE_TRY(out.open(std::string(kWeights)));
  BOWLINE_TRY(out.write(std::as_bytes(std::span(header))));
  for (const ExportedTensor& t : exported.tensors) {
    BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes,
                       numbers_of(model, t, written_dtype(t, dtype)));
    BOWLINE_TRY(out.write(bytes));
  }
  return out.close();
}

// Converts GGUF keys to tokenizer.json and tokenizer_config.json.
Status convert_tokenizer(const Model& model, Output& out, std::vector<std::string>& notes) {
  BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, model.asset("tokenizer"));
  const Status usable = text::Tokenizer::from(model).status();
  const Result<TokenizerFiles> files =
      usable.ok() ? tokenizer_files(bytes) : Result<TokenizerFiles>(usable);
  if (!files.ok()) {
    notes.push_back(fmt::format("The tokenizer is one of GGUF, and is not written: {}",
                                files.status().message()));
    return {};
  }
  BOWLINE_TRY(out.add("tokenizer.json", files.value().tokenizer));
  return out.add("tokenizer_config.json", files.value().config);
}

Status write_tokenizer(const Model& model, Output& out, std::vector<std::string>& notes) {
  BOWLINE_TRY_ASSIGN(const std::string kind, media_type_of(model, "tokenizer"));
  if (kind.empty()) {
    notes.emplace_back("The model has no tokenizer, and none is written.");
    return {};
  }
  if (kind != "application/vnd.huggingface.tokenizer+json") {
    return convert_tokenizer(model, out, notes);
  }
  BOWLINE_TRY_ASSIGN(const std::optional<std::string> text, text_asset(model, "tokenizer"));
  return out.add("tokenizer.json", *text);
}

Status write_assets(const Model& model, Output& out, std::vector<std::string>& notes) {
  for (const char* const name : {"tokenizer_config.json", "generation_config.json"}) {
    BOWLINE_TRY_ASSIGN(const std::optional<std::string> text, text_asset(model, name));
    BOWLINE_TRY(text ? out.add(name, *text) : Status());
  }
  BOWLINE_TRY_ASSIGN(const std::optional<std::string> chat, text_asset(model, "chat_template"));
  BOWLINE_TRY(chat ? out.add("chat_template.jinja", *chat) : Status());
  return write_tokenizer(model, out, notes);
}

}  // namespace

Result<ExportReport> export_huggingface(const Model& model, const std::string& folder,
                                        std::optional<DType> dtype, bool replace) {
  BOWLINE_TRY_ASSIGN(ExportedModel out, exported(model));
  BOWLINE_TRY(check_encodings(out, dtype));
  BOWLINE_TRY(add_class_head(model, out));
  const char* const key = out.config.contains("dtype") ? "dtype" : "torch_dtype";
  out.config[key] = torch_name_of(main_dtype(out, dtype));
  ExportReport report{out.tensors.size(), 0, std::move(out.notes)};
  const std::string header = safetensors_header(out, dtype, report.bytes);
  BOWLINE_TRY_ASSIGN(Output files,
                     Output::begin(folder, kWeights, replace, header.size() + report.bytes));
  BOWLINE_TRY(write_weights(model, out, header, dtype, files));
  BOWLINE_TRY(files.add("config.json", out.config.dump(2) + "\n"));
  BOWLINE_TRY(write_assets(model, files, report.notes));
  BOWLINE_TRY(files.commit());
  return report;
}

}  // namespace bowline::command
