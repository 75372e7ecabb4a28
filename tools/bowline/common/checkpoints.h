// A folder of checkpoints: step-00000120.bowline, or step-00000120.2.bowline two micro-batches into
// the next step; best.bowline is the one with the best held-out loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bowline.h"
#include "common/folder_lock.h"

namespace bowline::command {

using Config = Settings;

struct CheckpointFile {
  uint64_t step = 0;
  uint64_t micro_step = 0;
  std::string path;
};

// The newest first, without best.bowline; empty where there is no such folder.
std::vector<CheckpointFile> list_checkpoints(const std::string& folder);
std::string best_checkpoint(const std::string& folder);
std::string checkpoint_path(const std::string& folder, uint64_t step, uint64_t micro_step);

// What a checkpoint says of its run.
struct SavedRun {
  Config config;
  uint64_t step = 0;
};
// Errors  bad_file: it is damaged, or no checkpoint.
Result<SavedRun> read_run(const std::string& path);
// Value of a key, or none.
std::optional<std::string> find_setting(const Config& config, std::string_view key);
// Every checksum is right.
bool is_whole(const std::string& path);
// Tells the weights of model files and checkpoints apart, by the names and checksums of their
// parameters; empty if the file cannot be read.
std::string weights_hash(const std::string& path);

// A folder that this process alone writes to.
class CheckpointFolder {
 public:
  // Makes the folder and locks it; removes what a killed process left of a write.
  // Errors  io_error: it cannot be made, or another process writes to it (which one is said).
  static Result<CheckpointFolder> open(const std::string& path);

  const std::string& path() const { return path_; }
  // Files of this run, written before it was resumed; the oldest first. They are pruned as its own.
  void adopt(std::vector<std::string> paths) { mine_ = std::move(paths); }
  // Writes a checkpoint, then removes those of this run but the last two. Returns its path.
  Result<std::string> write(const Trainer& trainer, const Progress& progress);
  Status write_best(const Trainer& trainer, const Progress& progress);

 private:
  CheckpointFolder(std::string path, FolderLock lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  FolderLock lock_;
  std::vector<std::string> mine_;
};

}  // namespace bowline::command
