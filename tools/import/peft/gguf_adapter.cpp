#include "peft/gguf_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/status.h"
#include "gguf/file.h"
#include "gguf/terms.h"
#include "gguf/values.h"
#include "gguf/write.h"
#include "peft/changes.h"

namespace bowline::peft {
namespace {

using nlohmann::json;

constexpr std::string_view kA = ".lora_a", kB = ".lora_b";

std::string_view text_of(const gguf::File& file, std::string_view key) {
  const gguf::Entry* const entry = file.find(key);
  return entry == nullptr ? std::string_view() : entry->value.text().value_or("");
}

// The base model with its GGUF names.
struct Base {
  const gguf::Terms* terms = nullptr;
  int64_t query_heads = 0;
  int64_t key_heads = 0;
};

Result<Base> base_of(const Model& model) {
  BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, model.asset("config.json"));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const json config = json::parse(text, nullptr, false);
  BOWLINE_REQUIRE_CODE(config.is_object(), Code::bad_file,
                       "The asset \"config.json\" is not a JSON object.");
  const auto type = config.value("model_type", json()),
             heads = config.value("num_attention_heads", json()),
             keys = config.value("num_key_value_heads", heads);
  Base out;
  const std::string name = type.is_string() ? type.get<std::string>() : "";
  out.terms = gguf::find_terms(
      name == "mistral" ? "llama" : name);  // GGUF uses the same architecture for both
  BOWLINE_REQUIRE(out.terms != nullptr,
                  "The architecture {} is not supported in GGUF. Supported: {}.", listed_name(name),
                  gguf::known_architectures());
  out.query_heads = heads.is_number_integer() ? heads.get<int64_t>() : 0;
  out.key_heads = keys.is_number_integer() ? keys.get<int64_t>() : out.query_heads;
  return out;
}

// Reorders the rows of lora_b between GGUF and Hugging Face, if they are the rows of heads.
Result<Factor> reordered(Factor b, const Base& base, gguf::Order order, bool to_gguf) {
  if (order != gguf::Order::query_heads && order != gguf::Order::key_heads) {
    return b;
  }
  const int64_t heads = order == gguf::Order::query_heads ? base.query_heads : base.key_heads;
  const int64_t rows = b.shape[0];
  BOWLINE_REQUIRE_CODE(heads > 0 && heads <= rows / 2 && rows % (2 * heads) == 0, Code::bad_file,
                       "The rows of {} ({}) are not {} heads with an even number of rows.",
                       listed_name(b.name), rows, heads);
  const auto head_dim = static_cast<uint64_t>(rows / heads);
  const size_t row_bytes = b.bytes.size() / static_cast<size_t>(rows);
  const std::vector<std::byte> from = b.bytes;
  for (uint64_t row = 0; row < static_cast<uint64_t>(rows); ++row) {
    const uint64_t source =
        to_gguf ? gguf::hugging_face_row(row, head_dim) : gguf::gguf_row(row, head_dim);
    std::memcpy(b.bytes.data() + row * row_bytes, from.data() + source * row_bytes, row_bytes);
  }
  return b;
}

// ---- reading

struct Factors {
  const gguf::TensorEntry* a = nullptr;
  const gguf::TensorEntry* b = nullptr;
};

Result<std::map<std::string_view, Factors>> parts_of(const gguf::File& file) {
  std::map<std::string_view, Factors> out;
  for (const gguf::TensorEntry& t : file.tensors) {
    const bool is_a = t.name.ends_with(kA);
    BOWLINE_REQUIRE_CODE(is_a || t.name.ends_with(kB), Code::unsupported,
                         "The tensor {} is not a LoRA factor. Other tensors are not supported.",
                         listed_name(t.name));
    Factors& parts = out[t.name.substr(0, t.name.size() - kA.size())];
    (is_a ? parts.a : parts.b) = &t;
  }
  for (const auto& [name, parts] : out) {
    BOWLINE_REQUIRE_CODE(parts.a != nullptr && parts.b != nullptr, Code::bad_file,
                         "The tensor {} has only one of its two factors.", listed_name(name));
  }
  BOWLINE_REQUIRE_CODE(!out.empty(), Code::bad_file, "The file has no tensors.");
  return out;
}

Result<Factor> factor_of(const gguf::TensorEntry& t) {
  BOWLINE_REQUIRE_CODE(t.shape.size() == 2, Code::bad_file, "The tensor {} is not a matrix.",
                       listed_name(t.name));
  BOWLINE_REQUIRE_CODE(t.type->block == 1, Code::unsupported,
                       "The tensor {} is {}. Factors must be F32, F16 or BF16.",
                       listed_name(t.name), t.type->name);
  return Factor{std::string(t.name), t.type->dtype, t.shape, {t.bytes.begin(), t.bytes.end()}};
}

Result<Change> change_of(const Model& model, const ModelInfo& info, const Base& base,
                         std::string_view tensor, const Factors& parts) {
  const gguf::Named named = gguf::to_hugging_face(*base.terms, tensor);
  const bool known =
      !named.name.empty() && std::ranges::count(info.parameters, named.name, &ParameterInfo::name);
  BOWLINE_REQUIRE_CODE(known, Code::bad_file,
                       "The model has no parameter for the tensor {}: the adapter is for another "
                       "model.",
                       listed_name(tensor));
  Change out{named.name, layout_of(model, named.name), {}, {}};
  BOWLINE_TRY_ASSIGN(out.a, factor_of(*parts.a));
  BOWLINE_TRY_ASSIGN(Factor b, factor_of(*parts.b));
  BOWLINE_TRY_ASSIGN(out.b, reordered(std::move(b), base, named.order, false));
  if (out.layout == Layout::embedding) {
    out.a = transposed(out.a);  // embedding tables are stored transposed
  }
  return out;
}

Result<AdapterReport> read_gguf(Model& model, const std::string& path, std::string_view name) {
  BOWLINE_TRY_ASSIGN(const auto file, gguf::File::open(path));
  BOWLINE_TRY_ASSIGN(const Base base, base_of(model));
  const std::string_view kind = text_of(*file, "adapter.type"),
                         architecture = text_of(*file, "general.architecture");
  BOWLINE_REQUIRE_CODE(text_of(*file, "general.type") == "adapter" && kind == "lora",
                       Code::unsupported,
                       "The file is not a LoRA adapter (general.type {}, adapter.type {}).",
                       listed_name(text_of(*file, "general.type")), listed_name(kind));
  BOWLINE_REQUIRE_CODE(file->find("adapter.alora.invocation_tokens") == nullptr, Code::unsupported,
                       "An activated LoRA (adapter.alora.invocation_tokens) is not "
                       "supported.");
  BOWLINE_REQUIRE_CODE(architecture == base.terms->architecture, Code::bad_file,
                       "The adapter is for a model of the architecture {}, but this model is {}.",
                       listed_name(architecture), base.terms->architecture);
  const gguf::Entry* const alpha = file->find("adapter.lora.alpha");
  const std::optional<double> number = alpha == nullptr ? std::nullopt : alpha->value.real();
  BOWLINE_REQUIRE_CODE(number && std::isfinite(*number), Code::bad_file,
                       "The file has no finite adapter.lora.alpha.");
  BOWLINE_TRY_ASSIGN(const auto all, parts_of(*file));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  LowRank from;
  for (const auto& [tensor, parts] : all) {
    BOWLINE_TRY_ASSIGN(from.changes.emplace_back(), change_of(model, info, base, tensor, parts));
  }
  from.rank = from.changes[0].a.shape[0];
  BOWLINE_REQUIRE_CODE(from.rank >= 1, Code::bad_file, "The rank is {}, but must be at least 1.",
                       from.rank);
  // llama.cpp does not scale the factors if alpha is 0.
  from.scaling = *number == 0 ? 1 : *number / static_cast<double>(from.rank);
  return add_changes(model, name, from);
}

// ---- writing

struct Written {
  std::vector<gguf::WrittenTensor> tensors;
  std::vector<Factor> factors;
};

void add(Written& out, std::string name, Factor factor) {
  out.tensors.push_back({std::move(name), gguf::find_tensor_type(type_name(factor.dtype)),
                         factor.shape, factor.bytes.size()});
  out.factors.push_back(std::move(factor));
}

Result<Written> tensors_of(const LowRank& from, const Base& base) {
  Written out;
  for (const Change& c : from.changes) {
    const gguf::Named named = gguf::to_gguf(*base.terms, c.parameter);
    BOWLINE_REQUIRE(!named.name.empty(), "\"{}\" has no tensor name in the GGUF architecture {}.",
                    c.parameter, base.terms->architecture);
    add(out, named.name + std::string(kA), c.layout == Layout::embedding ? transposed(c.a) : c.a);
    BOWLINE_TRY_ASSIGN(Factor b, reordered(c.b, base, named.order, true));
    add(out, named.name + std::string(kB), std::move(b));
  }
  return out;
}

}  // namespace

Result<bool> is_gguf_adapter(const std::string& path) {
  BOWLINE_TRY_ASSIGN(const auto file, gguf::File::open(path));
  return text_of(*file, "general.type") == "adapter";
}

Result<AdapterReport> read_gguf_adapter(Model& model, const std::string& path,
                                        std::string_view name) {
  Result<AdapterReport> out = read_gguf(model, path, name);
  BOWLINE_TRY(
      Status(out.status()).at(fmt::format("While reading the adapter \"{}\".", escaped(path))));
  return out;
}

Result<WrittenAdapter> write_gguf_adapter(const Model& model, std::string_view name,
                                          const std::string& path) {
  BOWLINE_TRY_ASSIGN(const Base base, base_of(model));
  BOWLINE_TRY_ASSIGN(const LowRank from, changes_of(model, name));
  BOWLINE_TRY(require_low_rank(from));
  BOWLINE_TRY_ASSIGN(const Written written, tensors_of(from, base));
  gguf::Metadata metadata;
  metadata.text("general.architecture", base.terms->architecture);
  metadata.text("general.type", "adapter");
  metadata.text("adapter.type", "lora");
  metadata.number("adapter.lora.alpha",
                  static_cast<float>(from.scaling * static_cast<double>(from.rank)));
  const std::vector<std::byte> header = gguf::header_of(metadata, written.tensors);
  const std::vector<std::byte> zeros(gguf::kAlignment);
  std::vector<std::span<const std::byte>> pieces = {header};
  WrittenAdapter out;
  for (const Factor& f : written.factors) {
    pieces.emplace_back(f.bytes);
    pieces.push_back(std::span(zeros).first(gguf::padding_behind(f.bytes.size())));
    ++out.tensors;
    out.bytes += f.bytes.size();
  }
  BOWLINE_TRY(write_file(path, pieces));
  return out;
}

}  // namespace bowline::peft
