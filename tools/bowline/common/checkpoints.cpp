#include "common/checkpoints.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/status.h"
#include "common/files.h"
#include "common/hash.h"
#include "common/strings.h"

namespace bowline::command {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".bowline";

std::optional<CheckpointFile> parsed(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
      name.size() <= kPrefix.size() + kSuffix.size()) {
    return {};
  }
  const std::string middle =
      name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  const size_t dot = middle.find('.');
  const std::optional<uint64_t> step = number_in<uint64_t>(middle.substr(0, dot));
  const std::optional<uint64_t> micro =
      dot == std::string::npos ? 0 : number_in<uint64_t>(middle.substr(dot + 1));
  if (!step || !micro) {
    return {};
  }
  return CheckpointFile{*step, *micro, path.string()};
}

// Removes the temporary files of killed processes. A file that is being written is locked and
// stays.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string target = target_of_temporary(it->path().string());
    if (target.empty() || (!parsed(target) && target != best_checkpoint(folder))) {
      continue;
    }
    const Result<Descriptor> file =
        open_regular("Temporary file", it->path().string(), O_RDWR | O_NOFOLLOW);
    if (file.ok() && flock(file.value().get(), LOCK_EX | LOCK_NB) == 0) {
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
    if (std::optional<CheckpointFile> file = parsed(it->path())) {
      found.push_back(std::move(*file));
    }
  }
  std::ranges::sort(found, [](const CheckpointFile& a, const CheckpointFile& b) {
    return std::pair(a.step, a.micro_step) > std::pair(b.step, b.micro_step);
  });
  return found;
}

std::string best_checkpoint(const std::string& folder) { return folder + "/best.bowline"; }

std::string checkpoint_path(const std::string& folder, uint64_t step, uint64_t micro_step) {
  const std::string micro = micro_step == 0 ? "" : fmt::format(".{}", micro_step);
  return fmt::format("{}/{}{:08}{}{}", folder, kPrefix, step, micro, kSuffix);
}

Result<SavedRun> read_run(const std::string& path) {
  Result<Model> model = Model::open(path);
  if (!model.ok()) {
    return std::move(model).status().as(Code::bad_file);
  }
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.value().describe());
  BOWLINE_REQUIRE_CODE(info.training.has_value(), Code::bad_file,
                       "\"{}\" is a model without a training state, not a checkpoint.", path);
  return SavedRun{info.training->config, info.training->step};
}

std::optional<std::string> find_setting(const Config& config, std::string_view key) {
  const auto found = std::ranges::find(config, key, &Config::value_type::first);
  return found == config.end() ? std::nullopt : std::optional(found->second);
}

bool is_whole(const std::string& path) { return Model::verify(path).ok(); }

std::string weights_hash(const std::string& path) {
  const Result<Model> model = Model::open(path);
  const Result<ModelInfo> info = model.ok() ? model.value().describe() : model.status();
  if (!info.ok()) {
    return "";
  }
  std::string text;
  for (const ParameterInfo& row : info.value().parameters) {
    const StorageInfo& storage = info.value().storages[row.tie];
    if (storage.file_checksum) {
      text += fmt::format("{}\n{} {:x}\n", row.name, storage.bytes, *storage.file_checksum);
    }
  }
  return hash_text(text);
}

Result<FolderLock> lock_checkpoints(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  BOWLINE_REQUIRE_CODE(!error, Code::io_error, "Folder \"{}\" cannot be created: {}.", folder,
                       error.message());
  BOWLINE_TRY_ASSIGN(FolderLock lock, FolderLock::take(folder));
  remove_leftovers(folder);
  return lock;
}

}  // namespace bowline::command
