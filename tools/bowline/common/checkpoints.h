// A folder of checkpoints: step-00000120.bowline, or step-00000120.2.bowline two micro-batches into
// the next step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::command {

struct CheckpointFile {
  uint64_t step = 0;
  uint64_t micro_step = 0;
  std::string path;
};

// The newest first; empty where there is no such folder.
std::vector<CheckpointFile> list_checkpoints(const std::string& folder);
// Writes one, then removes all but the newest two. Makes the folder.
Status write_checkpoint(const Trainer& trainer, const std::string& folder,
                        const Progress& progress);

}  // namespace bowline::command
