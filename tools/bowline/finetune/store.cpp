#include "finetune/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/status.h"
#include "common/files.h"
#include "common/trained_values.h"
#include "finetune/recipe.h"

namespace bowline::command {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKept = 2;
constexpr const char* kReplaces = "replaces";

bool is_there(const std::string& path) {
  std::error_code error;
  return !path.empty() && fs::exists(fs::symlink_status(path, error));
}

// Returns the size of the storages that a file will contain.
Result<uint64_t> bytes_of(const Model& model, bool training) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  uint64_t bytes = 0;
  for (const StorageInfo& s : info.storages) {
    const bool left_out = s.role == StorageRole::gradient || (is_training(s.role) && !training);
    bytes += left_out ? 0 : s.bytes;
  }
  return bytes;
}

// True if all f32 values are finite.
bool all_finite(std::span<const std::byte> bytes) {
  for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    if (!std::isfinite(value)) {
      return false;
    }
  }
  return true;
}

}  // namespace

Status Store::open() { return o_.checkpoint.empty() || !o_.is_first ? Status() : lock_folder(); }

Status Store::probe(const Model& model, const Config& saved, uint64_t step) {
  if (!o_.is_first) {
    return {};
  }
  const std::string weights = is_there(o_.out) ? weights_hash(o_.out) : "";
  if (is_ours(weights, saved)) {
    replaced_ = weights;
  }
  replace_out_ = o_.force || !replaced_.empty();
  BOWLINE_TRY(check_out());
  if (!o_.out.empty()) {
    BOWLINE_TRY_ASSIGN(const uint64_t bytes, bytes_of(model, o_.with_training_state));
    BOWLINE_TRY(probe_file(o_.out, bytes));
  }
  if (o_.checkpoint.empty()) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(const uint64_t bytes, bytes_of(model, true));
  const uint64_t next = o_.save_every == 0 ? o_.steps : step - step % o_.save_every + o_.save_every;
  return probe_file(checkpoint_path(o_.checkpoint, std::min(next, o_.steps), 0), bytes);
}

// True if the file can be replaced without loss: its weights are in a checkpoint of this run, or
// were when the checkpoint was written.
bool Store::is_ours(const std::string& weights, const Config& saved) const {
  return !weights.empty() && !last_.empty() &&
         (weights == find_setting(saved, kReplaces) || weights == weights_hash(last_) ||
          weights == weights_hash(best()));
}

void Store::append_to(Config& config) const {
  if (!replaced_.empty()) {
    config.emplace_back(kReplaces, replaced_);
  }
}

Status Store::check_out() const {
  BOWLINE_REQUIRE(!o_.is_first || replace_out_ || !is_there(o_.out),
                  "--out \"{}\" exists already. --force replaces it if the run succeeds.", o_.out);
  return {};
}

Status Store::adopt(const std::string& resumed, const Config& config) {
  if (!lock_) {
    return {};
  }
  bool found = false;
  for (const CheckpointFile& file : list_checkpoints(o_.checkpoint)) {
    const Result<SavedRun> saved = read_run(file.path);
    if (!saved.ok()) {
      continue;  // damaged: not counted as a checkpoint
    }
    BOWLINE_TRY(check_same_run(file.path, saved.value().config, config));
    found = found || same_place(file.path, resumed);
    if (found) {
      mine_.insert(mine_.begin(), file.path);
    }
  }
  return {};
}

void Store::set_saved(uint64_t samples, std::string path) {
  samples_ = samples;
  last_ = std::move(path);
}

Status Store::lock_folder() {
  if (lock_) {
    return {};
  }
  folder_ = o_.checkpoint;
  const std::string beside = (o_.out.empty() ? o_.model : o_.out) + ".checkpoint";
  for (int number = 1; folder_.empty() || (o_.checkpoint.empty() && is_there(folder_)); ++number) {
    folder_ = number == 1 ? beside : fmt::format("{}.{}", beside, number);
  }
  BOWLINE_TRY_ASSIGN(FolderLock lock, lock_checkpoints(folder_));
  lock_.emplace(std::move(lock));
  return {};
}

Result<std::string> Store::find_not_finite(const Model& model) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  for (const StorageInfo& s : info.storages) {
    const bool moment = s.role == StorageRole::moment;
    const StorageInfo& weight = moment && s.owner ? info.storages[*s.owner] : s;
    if (s.empty || !is_trained(weight) || weight.dtype != DType::f32) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, model.storage_bytes(s.tie));
    if (!all_finite(bytes)) {
      return std::ranges::find(info.parameters, weight.tie, &ParameterInfo::tie)->name;
    }
  }
  return std::string();
}

Status Store::save(const Trainer& trainer, const Progress& progress) {
  if (!o_.is_first) {  // the first process writes the file
    BOWLINE_TRY(trainer.save("", progress));
    set_saved(progress.data_cursor,
              checkpoint_path(o_.checkpoint, progress.step, progress.micro_step));
    return {};
  }
  BOWLINE_TRY(lock_folder());
  const std::string path = checkpoint_path(folder_, progress.step, progress.micro_step);
  BOWLINE_TRY(trainer.save(path, progress));
  std::erase(mine_, path);
  mine_.push_back(path);
  while (mine_.size() > kKept) {
    std::error_code ignored;
    fs::remove(mine_.front(), ignored);
    mine_.erase(mine_.begin());
  }
  set_saved(progress.data_cursor, path);
  return {};
}

Status Store::save_best(const Trainer& trainer, const Progress& progress) {
  BOWLINE_TRY(o_.is_first ? lock_folder() : Status());
  return trainer.save(best(), progress);
}

void Store::finish() {
  if (!lock_ || !o_.checkpoint.empty()) {
    return;
  }
  lock_.reset();
  std::error_code ignored;
  fs::remove(best_checkpoint(folder_), ignored);
  fs::remove(last_, ignored);
  fs::remove(folder_, ignored);  // only if it is empty
}

}  // namespace bowline::command
