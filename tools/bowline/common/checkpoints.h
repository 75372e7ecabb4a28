// A folder of checkpoints:
//
//   step-00000120.bowline    after step 120
//   step-00000120.2.bowline  after two micro-batches of the next step
//   best.bowline             the checkpoint with the best held-out loss
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

// Lists checkpoints, the newest first, without best.bowline. Empty if the folder does not exist.
std::vector<CheckpointFile> list_checkpoints(const std::string& folder);
std::string best_checkpoint(const std::string& folder);
std::string checkpoint_path(const std::string& folder, uint64_t step, uint64_t micro_step);

// The run that a checkpoint belongs to.
struct SavedRun {
  Config config;
  uint64_t step = 0;
};
// Errors  bad_file: the file is damaged or is not a checkpoint.
Result<SavedRun> read_run(const std::string& path);
// Returns the value of a key. Empty: there is no such key.
std::optional<std::string> find_setting(const Config& config, std::string_view key);
// True if all checksums of the file are right.
bool is_whole(const std::string& path);
// Returns a hash of the parameter names and checksums in a model file or checkpoint. Equal weights
// have equal hashes. Empty if the file cannot be read.
std::string weights_hash(const std::string& path);

// Creates the folder if needed and locks it, so that no other process writes to it. Removes
// temporary files of killed processes.
// Errors  io_error: the folder cannot be created, or another process writes to it; the message
//         names the process.
Result<FolderLock> lock_checkpoints(const std::string& folder);

}  // namespace bowline::command
