#include "huggingface/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/bytes.h"
#include "base/escape.h"
#include "base/status.h"
#include "source/json.h"

namespace bowline::huggingface {
namespace {

using import::Fields;
using import::File;
using import::shown;
using import::SourceTensor;
using nlohmann::json;

// The limit of the safetensors library.
constexpr uint64_t kMostHeader = 100'000'000;

struct Kind {
  std::string_view name;
  std::optional<DType> dtype;  // empty: Bowline does not support the dtype
  uint64_t bytes;
};
constexpr std::array kKinds = {
    Kind{"F32", DType::f32, 4},       Kind{"F16", DType::f16, 2},
    Kind{"BF16", DType::bf16, 2},     Kind{"I8", DType::i8, 1},
    Kind{"U8", DType::u8, 1},         Kind{"I32", DType::i32, 4},
    Kind{"I64", DType::i64, 8},       Kind{"BOOL", DType::boolean, 1},
    Kind{"F64", std::nullopt, 8},     Kind{"F8_E4M3", std::nullopt, 1},
    Kind{"F8_E5M2", std::nullopt, 1}, Kind{"I16", std::nullopt, 2},
    Kind{"U16", std::nullopt, 2},     Kind{"U32", std::nullopt, 4},
    Kind{"U64", std::nullopt, 8},
};

Result<const Kind*> kind_of(const std::string& name) {
  const auto found = std::ranges::find(kKinds, name, &Kind::name);
  BOWLINE_REQUIRE_CODE(found != kKinds.end(), Code::bad_file,
                       "The dtype \"{}\" is not a dtype of safetensors.", escaped(name));
  BOWLINE_REQUIRE_CODE(found->dtype, Code::unsupported, "The dtype {} is not supported.", name);
  return &*found;
}

Result<uint64_t> count(const json& value, std::string_view what) {
  const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX;
  BOWLINE_REQUIRE_CODE(fits, Code::bad_file, "{} {} is not an integer up to {}.", what,
                       shown(value), INT64_MAX);
  return value.get<uint64_t>();
}

struct Entry {
  std::string name;
  const Kind* kind = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // offset from the end of the header
  uint64_t end = 0;
};

Result<uint64_t> elements_of(const std::vector<int64_t>& shape) {
  uint64_t n = 1;
  for (const int64_t d : shape) {
    BOWLINE_REQUIRE_CODE(!__builtin_mul_overflow(n, static_cast<uint64_t>(d), &n), Code::bad_file,
                         "The number of elements overflows.");
  }
  return n;
}

Status read_entry(const json& value, uint64_t data_bytes, Entry& entry) {
  Fields fields("The entry", value);
  const std::string dtype = fields.text("dtype");
  BOWLINE_TRY(Status(fields.status()));
  BOWLINE_TRY_ASSIGN(entry.kind, kind_of(dtype));
  const auto shape = value.find("shape");
  BOWLINE_REQUIRE_CODE(shape != value.end() && shape->is_array() && shape->size() <= 8,
                       Code::bad_file, "It has no shape with at most 8 dims.");
  for (const json& d : *shape) {
    BOWLINE_TRY_ASSIGN(const uint64_t dim, count(d, "The dim"));
    entry.shape.push_back(static_cast<int64_t>(dim));
  }
  const auto offsets = value.find("data_offsets");
  BOWLINE_REQUIRE_CODE(offsets != value.end() && offsets->is_array() && offsets->size() == 2,
                       Code::bad_file, "It does not have two data_offsets.");
  BOWLINE_TRY_ASSIGN(entry.begin, count((*offsets)[0], "The start"));
  BOWLINE_TRY_ASSIGN(entry.end, count((*offsets)[1], "The end"));
  BOWLINE_REQUIRE_CODE(entry.begin <= entry.end && entry.end <= data_bytes, Code::bad_file,
                       "The bytes [{}, {}) are outside of the {} bytes that follow the header.",
                       entry.begin, entry.end, data_bytes);
  BOWLINE_TRY_ASSIGN(uint64_t bytes, elements_of(entry.shape));
  BOWLINE_REQUIRE_CODE(
      !__builtin_mul_overflow(bytes, entry.kind->bytes, &bytes) && bytes == entry.end - entry.begin,
      Code::bad_file, "It has {} bytes, which do not match {}{}.", entry.end - entry.begin, dtype,
      shown(*shape));
  return {};
}

// The tensors must cover the bytes after the header without gaps and without overlaps. Two tensors
// may share all of their bytes.
Status check_layout(std::vector<Entry>& entries, uint64_t data_bytes) {
  std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t end = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    const bool shares = i > 0 && e.begin == entries[i - 1].begin && e.end == entries[i - 1].end;
    BOWLINE_REQUIRE_CODE(shares || e.begin >= end, Code::bad_file,
                         "The bytes [{}, {}) of tensor {} overlap those of {}, which end at {}.",
                         e.begin, e.end, listed_name(e.name), listed_name(entries[i - 1].name),
                         end);
    BOWLINE_REQUIRE_CODE(shares || e.begin == end, Code::bad_file,
                         "The bytes [{}, {}) before tensor {} belong to no tensor.", end, e.begin,
                         listed_name(e.name));
    end = e.end;
  }
  BOWLINE_REQUIRE_CODE(end == data_bytes, Code::bad_file,
                       "The tensors end at byte {}, but {} bytes follow the header.", end,
                       data_bytes);
  return {};
}

Result<std::string> read_header(const File& file) {
  std::array<std::byte, 8> raw;
  BOWLINE_REQUIRE_CODE(file.bytes() >= raw.size(), Code::bad_file,
                       "The file has {} bytes, too few for a header length.", file.bytes());
  BOWLINE_TRY(file.read(0, raw));
  const auto length = load<uint64_t>(raw.data());
  BOWLINE_REQUIRE_CODE(length <= kMostHeader, Code::bad_file,
                       "The header has {} bytes, more than the limit of {}.", length, kMostHeader);
  BOWLINE_REQUIRE_CODE(length <= file.bytes() - raw.size(), Code::bad_file,
                       "The header has {} bytes, but only {} follow its length.", length,
                       file.bytes() - raw.size());
  std::string text(length, '\0');
  BOWLINE_TRY(file.read(raw.size(), std::as_writable_bytes(std::span(text))));
  return text;
}

Result<Safetensors> read(const std::shared_ptr<const File>& file) {
  BOWLINE_TRY_ASSIGN(const std::string text, read_header(*file));
  BOWLINE_TRY_ASSIGN(const json header, import::parse_json("The header", text));
  BOWLINE_REQUIRE_CODE(header.is_object(), Code::bad_file, "The header is not an object.");
  const uint64_t data = 8 + text.size();
  const uint64_t data_bytes = file->bytes() - data;
  Safetensors out;
  std::vector<Entry> entries;
  entries.reserve(header.size());
  for (const auto& [name, value] : header.get_ref<const json::object_t&>()) {
    if (name == "__metadata__") {
      BOWLINE_REQUIRE_CODE(value.is_object(), Code::bad_file, "__metadata__ is not an object.");
      for (const auto& [key, entry] : value.items()) {
        BOWLINE_REQUIRE_CODE(entry.is_string(), Code::bad_file, "__metadata__: {} is not a string.",
                             listed_name(key));
        out.metadata.emplace_back(key, entry.get<std::string>());
      }
      continue;
    }
    entries.push_back({.name = name, .shape = {}});
    if (Status read = read_entry(value, data_bytes, entries.back()); !read.ok()) {
      return std::move(read).at(fmt::format("While reading tensor {}.", listed_name(name)));
    }
  }
  BOWLINE_TRY(check_layout(entries, data_bytes));
  out.tensors.reserve(entries.size());
  for (Entry& e : entries) {
    SourceTensor& t = out.tensors.emplace_back();
    t.name = std::move(e.name);
    t.dtype = *e.kind->dtype;
    t.shape = std::move(e.shape);
    t.bytes = e.end - e.begin;
    t.read = import::bytes_of(file, data + e.begin, t.bytes);
    t.stored = std::string(e.kind->name);
    t.place = t.bytes == 0 ? std::string() : import::place_of(*file, data + e.begin);
  }
  return out;
}

}  // namespace

Result<Safetensors> read_safetensors(const std::string& path) {
  BOWLINE_TRY_ASSIGN(const std::shared_ptr<const File> file, File::open(path));
  Result<Safetensors> out = read(file);
  BOWLINE_TRY(Status(out.status()).at(fmt::format("While reading \"{}\".", escaped(path))));
  return out;
}

}  // namespace bowline::huggingface
