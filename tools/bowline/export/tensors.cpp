#include "export/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/escape.h"
#include "base/status.h"
#include "source/json.h"
#include "source/numbers.h"

namespace bowline::command {
namespace {

using nlohmann::json;

// Names of decoders: the head of the language model, and the table of token embeddings.
constexpr std::string_view kHeads[] = {"lm_head.weight", "embed_out.weight"};
constexpr std::string_view kTables[] = {
    "model.embed_tokens.weight", "model.decoder.embed_tokens.weight", "gpt_neox.embed_in.weight",
    "transformer.wte.weight", "transformer.word_embeddings.weight"};

Result<json> config_of(const Model& model) {
  BOWLINE_TRY_ASSIGN(const std::optional<std::string> text, text_asset(model, "config.json"));
  BOWLINE_REQUIRE(text.has_value(),
                  "The model has no asset \"config.json\", which other tools need. Only models "
                  "that 'bowline import' made from Hugging Face or GGUF have it.");
  BOWLINE_TRY_ASSIGN(json config, import::parse_json("The asset \"config.json\"", *text));
  BOWLINE_REQUIRE_CODE(config.is_object(), Code::bad_file,
                       "The asset \"config.json\" is not a JSON object.");
  return config;
}

std::vector<std::byte> converted(std::vector<std::byte> bytes, DType from, DType to) {
  if (from == to || !import::is_float(from)) {
    return bytes;
  }
  std::vector<std::byte> out(bytes.size() / size_of(from) * size_of(to));
  import::convert(bytes, from, out, to);
  return out;
}

// Errors  a finite value would become infinite.
Status check_range(std::span<const std::byte> bytes, const ExportedTensor& tensor, DType to) {
  if (!import::is_float(tensor.dtype) || to == DType::f32 || to == tensor.dtype) {
    return {};
  }
  const size_t size = size_of(tensor.dtype);
  for (; !bytes.empty(); bytes = bytes.subspan(size)) {
    const float x = import::number_at(bytes.data(), tensor.dtype);
    std::byte kept[sizeof(float)];
    import::put_number(x, kept, to);
    BOWLINE_REQUIRE(!std::isfinite(x) || std::isfinite(import::number_at(kept, to)),
                    "\"{}\" has the value {}, which overflows {}. Use --dtype {}.",
                    tensor.parameter, x, name_of(to), to == DType::f16 ? "bf16" : "f32");
  }
  return {};
}

bool is_one_of(const ParameterInfo& p, std::span<const std::string_view> names) {
  return std::ranges::find(names, p.name) != names.end();
}

}  // namespace

const json& value_at(const json& object, std::string_view key) {
  static const json null;
  if (!object.is_object()) {
    return null;
  }
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::string text_at(const json& object, std::string_view key) {
  const json& value = value_at(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

int64_t integer_at(const json& object, std::string_view key, int64_t otherwise) {
  const json& value = value_at(object, key);
  return value.is_number_integer() ? value.get<int64_t>() : otherwise;
}

bool flag_at(const json& object, std::string_view key, bool otherwise) {
  const json& value = value_at(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

Result<std::string> media_type_of(const Model& model, std::string_view name) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  const auto found = std::ranges::find(info.assets, name, &AssetInfo::name);
  return found == info.assets.end() ? std::string() : found->media_type;
}

Result<std::optional<std::string>> text_asset(const Model& model, std::string_view name) {
  BOWLINE_TRY_ASSIGN(const std::string media_type, media_type_of(model, name));
  if (media_type.empty()) {
    return std::optional<std::string>();
  }
  BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, model.asset(name));
  return std::optional(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

namespace {

// Adds a note about ties. The formats store only the tie of the head.
void note_ties(ExportedModel& model) {
  std::map<uint32_t, const ExportedTensor*> first;
  std::string example;
  size_t copies = 0;
  for (const ExportedTensor& t : model.tensors) {
    const auto [at, is_new] = first.emplace(t.tie, &t);
    if (!is_new) {
      ++copies;
      example = example.empty()
                    ? fmt::format("{} and {}", listed_name(at->second->name), listed_name(t.name))
                    : example;
    }
  }
  if (copies > 0) {
    model.notes.push_back(
        fmt::format("{} tensors share the storage of others ({}). The form has no such ties, so "
                    "each is written on its own; import --tie-equal ties them again.",
                    copies, example));
  }
}

}  // namespace

Result<ExportedModel> exported(const Model& model) {
  ExportedModel out;
  BOWLINE_TRY_ASSIGN(out.config, config_of(model));
  const std::vector<std::string> adapters = bowline::adapters(model);
  BOWLINE_REQUIRE(adapters.empty(),
                  "The model has the adapter \"{}\", which the format cannot store. To merge it, "
                  "give its file with --adapter.",
                  adapters.empty() ? "" : adapters[0]);
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  const ParameterInfo* table = nullptr;
  for (const ParameterInfo& p : info.parameters) {
    table = is_one_of(p, kTables) ? &p : table;
  }
  BOWLINE_REQUIRE_CODE(table != nullptr || model.metadata("task") != "generate", Code::internal,
                       "The export does not know the table of token embeddings of this decoder.");
  for (const ParameterInfo& p : info.parameters) {
    const StorageInfo& storage = info.storages[p.tie];
    if (storage.role != StorageRole::weight) {
      continue;
    }
    const bool is_head = is_one_of(p, kHeads);
    const bool tied_head =
        table != nullptr && is_head && p.tie == table->tie && p.view == table->view;
    if (is_head) {
      out.config["tie_word_embeddings"] = tied_head;
    }
    if (tied_head) {
      continue;
    }
    out.tensors.push_back({p.name,
                           p.name,
                           p.tie,
                           p.dtype,
                           {p.shape.begin(), p.shape.end()},
                           storage.encoding,
                           p.view == View{}});
  }
  note_ties(out);
  if (table != nullptr) {
    out.config["vocab_size"] = table->shape[0];
  }
  return out;
}

uint64_t elements_of(const ExportedTensor& tensor) {
  return std::accumulate(
      tensor.shape.begin(), tensor.shape.end(), uint64_t{1},
      [](uint64_t product, int64_t dim) { return product * static_cast<uint64_t>(dim); });
}

Result<std::vector<std::byte>> numbers_of(const Model& model, const ExportedTensor& tensor,
                                          DType dtype) {
  std::vector<std::byte> bytes(elements_of(tensor) * size_of(tensor.dtype));
  BOWLINE_TRY(model.get_value(tensor.parameter,
                              {tensor.parameter, tensor.dtype, tensor.shape, bytes.data()}));
  BOWLINE_TRY(check_range(bytes, tensor, dtype));
  return converted(std::move(bytes), tensor.dtype, dtype);
}

Result<std::vector<float>> floats_of(const Model& model, const ExportedTensor& tensor,
                                     DType dtype) {
  BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, numbers_of(model, tensor, dtype));
  std::vector<float> out(bytes.size() / size_of(dtype));
  import::convert(bytes, dtype, std::as_writable_bytes(std::span(out)), DType::f32);
  return out;
}

std::string_view torch_name_of(DType dtype) {
  return dtype == DType::f16 ? "float16" : dtype == DType::bf16 ? "bfloat16" : "float32";
}

}  // namespace bowline::command
