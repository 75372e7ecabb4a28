#include "common/tokenizers.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/status.h"
#include "common/files.h"
#include "common/flags.h"

namespace bowline::command {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;
// The metadata of a GGUF file precedes its tensors.
constexpr size_t kMostMetadata = size_t{256} << 20;

// Reads at most `most` bytes from the start of a regular file.
Result<std::string> read_begin(const std::string& path, size_t most) {
  std::string out;
  const Status status =
      read_regular("Tokenizer", path, UINT64_MAX, [&](std::string_view piece) -> Status {
        out += piece.substr(0, most - out.size());
        return out.size() == most ? Status(Code::cancelled, "") : Status();
      });
  return status.ok() || status.code() == Code::cancelled ? Result<std::string>(std::move(out))
                                                         : Result<std::string>(status);
}

// Adds the path to an error, and returns the error as bad_file.
Result<text::Tokenizer> of_file(Result<text::Tokenizer> made, const std::string& path) {
  if (made.ok()) {
    return made;
  }
  return std::move(made).status().as(Code::bad_file).at(fmt::format("In \"{}\".", path));
}

Result<text::Tokenizer> open_bytes(std::string_view media_type, const std::string& path,
                                   size_t most) {
  BOWLINE_TRY_ASSIGN(const std::string bytes, read_begin(path, most));
  return of_file(text::Tokenizer::from_bytes(media_type, std::as_bytes(std::span(bytes))), path);
}

}  // namespace

Result<text::Tokenizer> open_tokenizer(const std::string& path) {
  std::error_code error;
  const std::string file =
      std::filesystem::is_directory(path, error) ? path + "/tokenizer.json" : path;
  BOWLINE_TRY_ASSIGN(const std::string begin, read_begin(file, 64));
  const size_t first = begin.find_first_not_of(" \t\r\n");
  if (begin.starts_with("GGUF")) {
    return open_bytes("application/vnd.gguf.tokenizer", file, kMostMetadata);
  }
  if (first != std::string::npos && begin[first] == '{') {
    return open_bytes("application/vnd.huggingface.tokenizer+json", file, kMostBytes);
  }
  BOWLINE_TRY_ASSIGN(const Model model, open_model(file));
  return of_file(text::Tokenizer::from(model), file);
}

Result<text::Tokenizer> tokenizer_of(const Model& model) {
  Result<text::Tokenizer> made = text::Tokenizer::from(model);
  return made.ok() ? std::move(made)
                   : Result<text::Tokenizer>(std::move(made).status().as(Code::bad_file));
}

Result<std::string> read_any(const std::string& path) {
  if (path == "-") {
    Result<std::string> text = read_stdin(kMostBytes);
    return text.ok() ? std::move(text)
                     : Result<std::string>(std::move(text).status().as(Code::bad_file));
  }
  return read_file("Text", path, kMostBytes);
}

}  // namespace bowline::command
