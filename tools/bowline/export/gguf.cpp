#include "export/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/escape.h"
#include "base/status.h"
#include "export/gguf_metadata.h"
#include "export/output.h"
#include "gguf/values.h"

namespace bowline::command {
namespace {

// The name of the file inside the temporary folder.
constexpr std::string_view kFile = "model.safetensors";

struct Part {
  ExportedTensor from;
  gguf::Order order = gguf::Order::same;
  int64_t heads = 1;
  bool codes = false;  // copies the quantized bytes of the storage
};

std::string_view type_name_of(DType dtype) {
  return dtype == DType::f16 ? "F16" : dtype == DType::bf16 ? "BF16" : "F32";
}

class GgufExport {
 public:
  GgufExport(const Model& model, std::optional<DType> dtype) : model_(model), dtype_(dtype) {}

  Result<ExportReport> run(const std::string& path, bool replace) {
    BOWLINE_TRY_ASSIGN(out_, exported(model_));
    BOWLINE_TRY(find_architecture());
    for (const ExportedTensor& tensor : out_.tensors) {
      BOWLINE_TRY(add_part(tensor));
    }
    BOWLINE_TRY_ASSIGN(divisors_, rope_divisors(out_.config));
    if (!divisors_.empty()) {
      written_.push_back({"rope_freqs.weight",
                          gguf::find_tensor_type("F32"),
                          {static_cast<int64_t>(divisors_.size())},
                          divisors_.size() * sizeof(float)});
    }
    BOWLINE_TRY_ASSIGN(const gguf::Metadata metadata, make_metadata());
    return write(gguf::header_of(metadata, written_), path, replace);
  }

 private:
  Status find_architecture() {
    const std::string type = text_at(out_.config, "model_type");
    // GGUF uses the same architecture for both.
    terms_ = gguf::find_terms(type == "mistral" ? "llama" : type);
    BOWLINE_REQUIRE(terms_ != nullptr && !terms_->head.empty(),
                    "The architecture {} cannot be exported to GGUF.", listed_name(type));
    return {};
  }

  Status add_part(const ExportedTensor& tensor) {
    const gguf::Named named = gguf::to_gguf(*terms_, tensor.name);
    BOWLINE_REQUIRE(!named.name.empty(), "\"{}\" has no name in {} of GGUF.", escaped(tensor.name),
                    terms_->architecture);
    Part part{tensor, named.order};
    if (named.order == gguf::Order::query_heads || named.order == gguf::Order::key_heads) {
      part.heads = integer_at(out_.config, "num_attention_heads", 0);
      if (named.order == gguf::Order::key_heads) {
        part.heads = integer_at(out_.config, "num_key_value_heads", part.heads);
      }
      BOWLINE_REQUIRE(
          !tensor.shape.empty() && part.heads > 0 && part.heads <= tensor.shape[0] / 2 &&
              tensor.shape[0] % (2 * part.heads) == 0,
          "The rows of \"{}\" cannot be split into {} heads with an even number of rows.",
          escaped(tensor.name), part.heads);
    }
    BOWLINE_TRY_ASSIGN(const gguf::TensorType* const type, choose_type(part));
    gguf::WrittenTensor& w = written_.emplace_back();
    w = {named.name, type, tensor.shape, elements_of(tensor) * type->bytes / type->block};
    if (named.order == gguf::Order::transposed) {
      std::ranges::reverse(w.shape);
    }
    parts_.push_back(std::move(part));
    return {};
  }

  Result<const gguf::TensorType*> choose_type(Part& part) const {
    const ExportedTensor& t = part.from;
    if (t.shape.size() < 2) {
      return gguf::find_tensor_type("F32");
    }
    if (dtype_ || t.encoding == "plain") {
      return gguf::find_tensor_type(type_name_of(dtype_.value_or(t.dtype)));
    }
    const gguf::TensorType* const type = gguf::find_type_of_encoding(t.encoding);
    BOWLINE_REQUIRE(type != nullptr && t.whole && part.order != gguf::Order::transposed,
                    "\"{}\" is stored as {}{}, which GGUF does not have. Choose another "
                    "dtype with --dtype.",
                    escaped(t.name), t.encoding,
                    part.order == gguf::Order::transposed ? " along its other axis" : "");
    part.codes = true;
    return type;
  }

  Result<gguf::Metadata> make_metadata() {
    gguf::Metadata out;
    BOWLINE_TRY(add_settings(out_.config, *terms_, out));
    BOWLINE_TRY(add_pooling(out));
    out.number("general.quantization_version", uint32_t{2});
    out.number("general.file_type", file_type());
    BOWLINE_TRY(add_tokenizer(model_, integer_at(out_.config, "vocab_size", 0), out, out_.notes));
    return out;
  }

  // Source  llama.cpp, llama.h (llama_pooling_type).
  Status add_pooling(gguf::Metadata& to) const {
    if (model_.metadata("task") != "embed") {
      return {};
    }
    constexpr std::string_view kModes[] = {"none", "mean", "cls", "last"};
    const std::string pooling = model_.metadata("pooling");
    const auto* const mode = std::ranges::find(kModes, pooling);
    BOWLINE_REQUIRE(mode != std::end(kModes), "The pooling {} cannot be exported to GGUF.",
                    listed_name(pooling));
    to.number(fmt::format("{}.pooling_type", terms_->architecture),
              static_cast<uint32_t>(mode - std::begin(kModes)));
    return {};
  }

  // Returns the llama.cpp number for the type of the largest tensor.
  uint32_t file_type() const {
    const auto largest = std::ranges::max_element(written_, {}, &gguf::WrittenTensor::bytes);
    return largest == written_.end() ? 0 : largest->type->file_type;
  }

  Result<ExportReport> write(std::span<const std::byte> header, const std::string& path,
                             bool replace) {
    ExportReport report{written_.size(), 0, std::move(out_.notes)};
    for (const gguf::WrittenTensor& w : written_) {
      report.bytes += w.bytes;
    }
    BOWLINE_TRY_ASSIGN(Output file,
                       Output::begin(path, kFile, replace, header.size() + report.bytes));
    BOWLINE_TRY(file.open(std::string(kFile)));
    BOWLINE_TRY(file.write(header));
    for (size_t i = 0; i < parts_.size(); ++i) {
      BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes,
                         bytes_of(parts_[i], *written_[i].type));
      BOWLINE_TRY(write_padded(file, bytes));
    }
    BOWLINE_TRY(write_padded(file, std::as_bytes(std::span(divisors_))));
    BOWLINE_TRY(file.close());
    BOWLINE_TRY(file.commit_file(std::string(kFile)));
    return report;
  }

  static Status write_padded(Output& file, std::span<const std::byte> bytes) {
    constexpr std::array<std::byte, gguf::kAlignment> kZeros{};
    BOWLINE_TRY(file.write(bytes));
    return file.write(std::span(kZeros).first(gguf::padding_behind(bytes.size())));
  }

  Result<std::vector<std::byte>> bytes_of(const Part& part, const gguf::TensorType& type) const {
    std::vector<std::byte> bytes;
    if (part.codes) {
      BOWLINE_TRY_ASSIGN(bytes, model_.storage_bytes(part.from.tie));
    } else {
      BOWLINE_TRY_ASSIGN(bytes, numbers_of(model_, part.from, type.dtype));
    }
    switch (part.order) {
      case gguf::Order::same:
      case gguf::Order::numbers:
        return bytes;
      case gguf::Order::transposed:
        return transposed(bytes, part.from, type);
      case gguf::Order::one_less:
        add_one(bytes);
        return bytes;
      case gguf::Order::query_heads:
      case gguf::Order::key_heads:
        break;
    }
    return reordered(bytes, part);
  }

  // Adds 1 to f32 values. Vectors are written as f32.
  static void add_one(std::span<std::byte> bytes) {
    for (; !bytes.empty(); bytes = bytes.subspan(sizeof(float))) {
      float x = 0;
      std::memcpy(&x, bytes.data(), sizeof x);
      x += 1;
      std::memcpy(bytes.data(), &x, sizeof x);
    }
  }

  // Row g of GGUF is row hugging_face_row(g) of Hugging Face, also for quantized rows.
  static std::vector<std::byte> reordered(std::span<const std::byte> from, const Part& part) {
    const auto rows = static_cast<uint64_t>(part.from.shape[0]);
    const uint64_t row_bytes = from.size() / rows;
    const uint64_t head_dim = rows / static_cast<uint64_t>(part.heads);
    std::vector<std::byte> out(from.size());
    for (uint64_t row = 0; row < rows; ++row) {
      const auto source =
          from.subspan(gguf::hugging_face_row(row, head_dim) * row_bytes, row_bytes);
      std::memcpy(out.data() + row * row_bytes, source.data(), row_bytes);
    }
    return out;
  }

  static std::vector<std::byte> transposed(std::span<const std::byte> from,
                                           const ExportedTensor& tensor,
                                           const gguf::TensorType& type) {
    const auto rows = static_cast<uint64_t>(tensor.shape[0]);
    const auto columns = static_cast<uint64_t>(tensor.shape[1]);
    std::vector<std::byte> out(from.size());
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint64_t c = 0; c < columns; ++c) {
        std::memcpy(out.data() + (c * rows + r) * type.bytes,
                    from.data() + (r * columns + c) * type.bytes, type.bytes);
      }
    }
    return out;
  }

  const Model& model_;
  std::optional<DType> dtype_;
  ExportedModel out_;
  const gguf::Terms* terms_ = nullptr;
  std::vector<Part> parts_;
  std::vector<gguf::WrittenTensor> written_;
  std::vector<float> divisors_;
};

}  // namespace

Result<ExportReport> export_gguf(const Model& model, const std::string& path,
                                 std::optional<DType> dtype, bool replace) {
  return GgufExport(model, dtype).run(path, replace);
}

}  // namespace bowline::command
