#include "tasks/task.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "base/words.h"
#include "data/columns.h"
#include "tasks/tokenize.h"

namespace bowline::command {
namespace {

// True for a folder of conversations in the layout of mlx_lm.
bool is_data_folder(const std::string& path) {
  return std::ranges::any_of(std::array{"train", "valid", "test"}, [&](const char* part) {
    std::error_code error;
    return std::filesystem::exists(path + "/" + part + ".jsonl", error);
  });
}

constexpr InputKind kDataKinds[] = {
    {kPlainText, "plain text"},        {kConversations, "conversations"},
    {kExamples, "texts with labels"},  {kTextGroups, "groups of texts"},
    {kTaggedWords, "words with tags"},
};

DataKind kind_of(const Model& model, const DataOptions& o) {
  if (model.metadata("task") == "classify") {
    return kExamples;
  }
  if (model.metadata("task") == "embed") {
    return kTextGroups;
  }
  if (model.metadata("task") == "tag") {
    return kTaggedWords;
  }
  // A model that reads bytes has no chat format, so JSON lines count as plain text. Reading them as
  // plain text then reports a clear error.
  const bool rows = !o.as_text && !reads_bytes(model) && is_json_lines(o.data);
  return is_data_folder(o.data) || rows ? kConversations : kPlainText;
}

}  // namespace

std::string json_key(std::string unit) {
  std::ranges::replace(unit, ' ', '_');
  return unit;
}

nlohmann::json json_of(const Measure& m, const std::string& unit,
                       std::span<const std::pair<std::string, uint64_t>> sizes) {
  nlohmann::json out = {{json_key(unit), m.loss}};
  for (const auto& [name, value] : sizes) {
    out[name] = value;
  }
  for (const auto& [name, value] : m.more) {
    out[name] = value;
  }
  if (m.perplexity) {
    out["perplexity"] = *m.perplexity;
  }
  if (m.confusion) {
    out["labels"] = m.confusion->labels;
  }
  return out;
}

Status check_data_flags(const Model& model, const DataOptions& o) {
  return o.uses.check(kind_of(model, o), kDataKinds);
}

Result<std::unique_ptr<Task>> make_task(const Model& model, const std::string& path,
                                        const DataOptions& o, Purpose purpose) {
  const std::string task = model.metadata("task");
  BOWLINE_REQUIRE_CODE(task.empty() || is_one_of("generate classify embed tag", task),
                       Code::bad_file,
                       "Model \"{}\" is for the task \"{}\". Only models for the tasks generate, "
                       "classify, embed and "
                       "tag can be trained or evaluated.",
                       path, task);
  switch (kind_of(model, o)) {
    case kExamples:
      return make_classify_task(model, o, purpose);
    case kTextGroups:
      return make_embed_task(model, o, purpose);
    case kTaggedWords:
      return make_tag_task(model, o, purpose);
    case kConversations:
      return make_chat_task(model, o, purpose);
    case kPlainText:
      break;
  }
  return make_text_task(model, o, purpose);
}

}  // namespace bowline::command
