#include "common/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

namespace bowline::command {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKept = 2;
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".bowline";

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

std::optional<CheckpointFile> parse(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
      name.size() <= kPrefix.size() + kSuffix.size()) {
    return {};
  }
  const std::string middle =
      name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  const size_t dot = middle.find('.');
  const std::optional<uint64_t> step = number(middle.substr(0, dot));
  const std::optional<uint64_t> micro =
      dot == std::string::npos ? 0 : number(middle.substr(dot + 1));
  if (!step || !micro) {
    return {};
  }
  return CheckpointFile{*step, *micro, path.string()};
}

// What a killed process left of a write.
void remove_partial(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(".partial")) {
      std::error_code ignored;
      fs::remove(it->path(), ignored);
    }
  }
}

}  // namespace

std::vector<CheckpointFile> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointFile> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (std::optional<CheckpointFile> file = parse(it->path())) {
      found.push_back(std::move(*file));
    }
  }
  std::ranges::sort(found, [](const CheckpointFile& a, const CheckpointFile& b) {
    return std::pair(a.step, a.micro_step) > std::pair(b.step, b.micro_step);
  });
  return found;
}

Status write_checkpoint(const Trainer& trainer, const std::string& folder,
                        const Progress& progress) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return Status(Code::io_error,
                  fmt::format("Folder \"{}\" cannot be made: {}.", folder, error.message()));
  }
  const std::string micro = progress.micro_step == 0 ? "" : fmt::format(".{}", progress.micro_step);
  const std::string path =
      fmt::format("{}/{}{:08}{}{}", folder, kPrefix, progress.step, micro, kSuffix);
  if (Status s = trainer.save(path, progress); !s.ok()) {
    return s;
  }
  remove_partial(folder);
  const std::vector<CheckpointFile> files = list_checkpoints(folder);
  for (size_t i = kKept; i < files.size(); ++i) {
    fs::remove(files[i].path, error);
  }
  return {};
}

}  // namespace bowline::command
