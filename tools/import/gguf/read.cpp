#include "gguf/read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/escape.h"
#include "base/status.h"
#include "gguf/metadata.h"
#include "gguf/terms.h"
#include "gguf/values.h"
#include "gguf/write.h"
#include "source/numbers.h"

namespace bowline::gguf {
namespace {

using import::Source;
using import::SourceTensor;

constexpr std::string_view kFrequencies = "rope_freqs.weight";  // read by config_of()

// Formats ascending integers, for example "0-3,7".
std::string ranges_of(const std::vector<uint64_t>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    out += fmt::format("{}{}{}", out.empty() ? "" : ",", numbers[i],
                       last > i ? fmt::format("-{}", numbers[last]) : "");
    i = last + 1;
  }
  return out;
}

// Merges names that differ only in the layer index.
class Names {
 public:
  void add(const std::string& name) {
    const size_t begin = name.find_first_of("0123456789");
    const size_t end = std::min(name.find_first_not_of("0123456789", begin), name.size());
    if (begin == std::string::npos || end - begin > 9) {
      layers_[{name, ""}];
    } else {
      layers_[{name.substr(0, begin), name.substr(end)}].push_back(
          std::stoull(name.substr(begin, end - begin)));
    }
  }
  std::string text() const {
    std::vector<std::string> out;
    for (const auto& [around, numbers] : layers_) {
      std::vector<uint64_t> sorted = numbers;
      std::ranges::sort(sorted);
      out.push_back(
          numbers.empty() ? around.first
          : numbers.size() == 1
              ? fmt::format("{}{}{}", around.first, numbers[0], around.second)
              : fmt::format("{}{{{}}}{}", around.first, ranges_of(sorted), around.second));
    }
    return fmt::format("{}", fmt::join(out, ", "));
  }

 private:
  std::map<std::pair<std::string, std::string>, std::vector<uint64_t>> layers_;
};

// The 16-bit dtype of all matrices. Empty: their types differ, or they are f32.
std::optional<DType> short_dtype(const File& file) {
  std::optional<DType> out;
  for (const TensorEntry& t : file.tensors) {
    if (t.shape.size() < 2) {
      continue;
    }
    if (t.type->bytes != 2 || (out && *out != t.type->dtype)) {
      return std::nullopt;
    }
    out = t.type->dtype;
  }
  return out;
}

// True if the dtype `to` represents all values of the f32 tensor exactly.
Result<bool> fits(const SourceTensor& tensor, DType to) {
  std::vector<std::byte> all(tensor.bytes), back(tensor.bytes), narrow(tensor.bytes / 2);
  BOWLINE_TRY(tensor.read(0, all));
  import::convert(all, DType::f32, narrow, to);
  import::convert(narrow, to, back, DType::f32);
  return all == back;
}

class Reading {
 public:
  Reading(std::shared_ptr<const File> file, std::string path) : file_(std::move(file)) {
    out_.path = std::move(path);
    out_.format = "GGUF";
  }

  Result<Source> run() {
    BOWLINE_TRY(find_architecture());
    BOWLINE_TRY(check_file_keys(*file_, *terms_));
    BOWLINE_TRY_ASSIGN(out_.config, config_of(*file_, *terms_));
    short_ = short_dtype(*file_);
    for (const TensorEntry& tensor : file_->tensors) {
      if (tensor.name != kFrequencies) {
        BOWLINE_TRY(add_tensor(tensor));
      }
    }
    tie_head();
    add_notes();
    BOWLINE_TRY(add_assets());
    BOWLINE_TRY(add_special_tokens());
    BOWLINE_TRY(add_pooling());
    return std::move(out_);
  }

 private:
  Status find_architecture() {
    const Entry* const entry = file_->find("general.architecture");
    const auto name = entry == nullptr ? std::nullopt : entry->value.text();
    BOWLINE_REQUIRE_CODE(name.has_value(), Code::bad_file,
                         "The file has no key \"general.architecture\" with a text.");
    terms_ = find_terms(*name);
    BOWLINE_REQUIRE_CODE(terms_ != nullptr, Code::unsupported,
                         "The architecture \"{}\" is not supported. Supported: {}.", escaped(*name),
                         known_architectures());
    return {};
  }

  Status add_tensor(const TensorEntry& tensor) {
    const Named named = to_hugging_face(*terms_, tensor.name);
    BOWLINE_REQUIRE_CODE(!named.name.empty(), Code::unsupported,
                         "Tensor \"{}\" is not a tensor of the architecture {}.",
                         escaped(tensor.name), terms_->architecture);
    Laid laid{&tensor, named.order};
    if (named.order == Order::query_heads || named.order == Order::key_heads) {
      laid.heads = out_.config[named.order == Order::query_heads ? "num_attention_heads"
                                                                 : "num_key_value_heads"];
    }
    BOWLINE_TRY(check_laid(laid));
    SourceTensor& t = out_.tensors.emplace_back();
    t.name = named.name;
    t.dtype = tensor.type->dtype;
    t.shape = tensor.shape;
    if (named.order == Order::transposed) {
      std::ranges::reverse(t.shape);
    }
    t.bytes = value_bytes(laid);
    t.read = values_of(file_, laid);
    t.stored = tensor.type->name;
    const bool numbers = named.order == Order::one_less;
    if (numbers) {
      t.dtype = DType::f32;
    } else if (!stays_encoded(laid)) {
      dequantized_[t.stored].add(t.name);
    } else {
      t.encoding = tensor.type->encoding;
    }
    BOWLINE_TRY(shorten(tensor, t));
    t.place = fmt::format("{}:{}:{}:{}", out_.path, tensor.bytes.data() - file_->bytes.data(),
                          static_cast<int>(laid.order), laid.heads);
    return {};
  }

  // Files in f16 and bf16 keep vectors in f32, because llama.cpp needs them so. Most come from
  // 16-bit values and convert back exactly.
  Status shorten(const TensorEntry& tensor, SourceTensor& t) {
    if (!short_ || tensor.shape.size() != 1 || tensor.type->name != "F32") {
      return {};
    }
    BOWLINE_TRY_ASSIGN(const bool fitting, fits(t, *short_));
    if (fitting) {
      t.dtype = *short_;
      t.read = import::converted(std::move(t.read), DType::f32, *short_, t.bytes / sizeof(float));
      t.bytes /= 2;
      shortened_.add(t.name);
    } else {
      too_fine_.add(t.name);
    }
    return {};
  }

  void tie_head() {
    if (!terms_->head.empty()) {
      const bool own =
          std::ranges::find(out_.tensors, terms_->head, &SourceTensor::name) != out_.tensors.end();
      out_.config["tie_word_embeddings"] = !own;
      if (!own) {
        out_.notes.push_back(fmt::format("The file has no \"output.weight\", so {} is tied to {}.",
                                         terms_->head, terms_->table));
      }
    }
  }

  void add_notes() {
    for (const auto& [type, names] : dequantized_) {
      out_.notes.push_back(fmt::format(
          "The model reads blocks of {} along the other axis or as a table of positions, so these "
          "tensors are dequantized to f32: {}.",
          type, names.text()));
    }
    if (short_ && !shortened_.text().empty()) {
      out_.notes.push_back(
          fmt::format("f32 vectors that {} represents exactly are converted to it: {}.",
                      name_of(*short_), shortened_.text()));
    }
    if (short_ && !too_fine_.text().empty()) {
      out_.notes.push_back(fmt::format("Vectors that {} cannot represent exactly stay f32: {}.",
                                       name_of(*short_), too_fine_.text()));
    }
  }

  void add_asset(std::string name, std::string media_type, std::span<const std::byte> bytes) {
    out_.assets.push_back({std::move(name), std::move(media_type), {bytes.begin(), bytes.end()}});
  }

  Status add_assets() {
    constexpr std::string_view kTemplate = "tokenizer.chat_template";
    const Entry* const kind = file_->find("tokenizer.ggml.model");
    if (kind != nullptr && kind->value.text() != "none" && kind->value.text() != "no_vocab") {
      add_asset("tokenizer", "application/vnd.gguf.tokenizer",
                excerpt(*file_, "tokenizer.", kTemplate));
    }
    if (const Entry* const entry = file_->find(kTemplate)) {
      BOWLINE_REQUIRE_CODE(entry->value.text().has_value(), Code::bad_file,
                           "The key \"{}\" is not a text.", kTemplate);
      add_asset("chat_template", "text/x-jinja", entry->value.bytes);
    }
    const std::string config = out_.config.dump(2) + "\n";
    add_asset("config.json", "application/json", std::as_bytes(std::span(config)));
    return {};
  }

  // The pooling mode of an encoder, or of a decoder that embeds texts.
  // Source  llama.cpp, llama.h (llama_pooling_type).
  Status add_pooling() {
    const Entry* const entry = file_->find(fmt::format("{}.pooling_type", terms_->architecture));
    if (entry == nullptr) {
      return {};
    }
    constexpr std::string_view kModes[] = {"", "mean", "cls", "last"};
    const int64_t mode = entry->value.integer().value_or(-1);
    BOWLINE_REQUIRE_CODE(
        mode >= 0 && mode < std::ssize(kModes), Code::unsupported,
        "The key \"{}\" is {}, a pooling mode that is not supported. Supported: 0 (none), 1 "
        "(mean), 2 (cls), 3 (last).",
        escaped(std::string(entry->key)), mode);
    if (mode != 0) {
      out_.metadata.emplace_back("pooling", std::string(kModes[mode]));
    }
    return {};
  }

  // Adds the texts of special tokens, for chat templates.
  Status add_special_tokens() {
    const Entry* const pieces = file_->find("tokenizer.ggml.tokens");
    const std::vector<std::string_view> texts =
        pieces == nullptr ? std::vector<std::string_view>() : pieces->value.texts();
    for (const import::SpecialToken& token : import::kSpecialTokens) {
      const std::string key = fmt::format("tokenizer.ggml.{}_token_id", token.gguf_part);
      const Entry* const entry = file_->find(key);
      if (entry == nullptr || texts.empty()) {
        continue;
      }
      const std::optional<int64_t> id = entry->value.integer();
      BOWLINE_REQUIRE_CODE(
          id && *id >= 0 && *id < std::ssize(texts), Code::bad_file,
          "The key \"{}\" is {}, which is out of range for a vocabulary of {} tokens.", key,
          id ? std::to_string(*id) : "not an integer", texts.size());
      out_.metadata.emplace_back(token.name, std::string(texts[static_cast<size_t>(*id)]));
    }
    return {};
  }

  std::shared_ptr<const File> file_;
  const Terms* terms_ = nullptr;
  std::optional<DType> short_;
  std::map<std::string, Names> dequantized_;
  Names shortened_;
  Names too_fine_;
  Source out_;
};

Result<Source> read(std::shared_ptr<const File> file, const std::string& path) {
  Result<Source> out = Reading(std::move(file), path).run();
  BOWLINE_TRY(Status(out.status()).at(fmt::format("While reading \"{}\" as GGUF.", path)));
  return out;
}

}  // namespace

Result<Source> read(const std::string& path, const import::Progress& progress) {
  BOWLINE_TRY(progress.at(ImportProgress::Part::files, 0, 1));
  BOWLINE_TRY_ASSIGN(std::shared_ptr<const File> file, File::open(path));
  BOWLINE_TRY_ASSIGN(Source out, read(std::move(file), path));
  out.progress = progress;
  return out;
}

Result<Source> read(std::span<const std::byte> bytes, const std::string& path) {
  BOWLINE_TRY_ASSIGN(File file, File::parse(bytes));
  return read(std::make_shared<const File>(std::move(file)), path);
}

}  // namespace bowline::gguf
