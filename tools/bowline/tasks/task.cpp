#include "tasks/task.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "common/require.h"
#include "tasks/tokenize.h"

namespace bowline::command {
namespace {

// One of conversations, as mlx_lm has them.
bool is_data_folder(const std::string& path) {
  return std::ranges::any_of(std::array{"train", "valid", "test"}, [&](const char* part) {
    std::error_code error;
    return std::filesystem::exists(path + "/" + part + ".jsonl", error);
  });
}

bool is_json_lines(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

enum class Kind : uint8_t { text, chat, classify };

Kind kind_of(const Model& model, const DataOptions& o) {
  if (model.metadata("task") == "classify") {
    return Kind::classify;
  }
  // In a file a model that reads bytes knows no conversations: these are refused by name.
  const bool rows = !o.as_text && !reads_bytes(model) && is_json_lines(o.data);
  return is_data_folder(o.data) || rows ? Kind::chat : Kind::text;
}

// A flag that says nothing to a task is a mistake.
Status check_flags(Kind kind, const DataOptions& o) {
  struct Flag {
    const char* name;
    bool given;
    bool known;
  };
  const bool classify = kind == Kind::classify;
  const bool chat = kind == Kind::chat;
  const ExampleFields fields;
  const Flag flags[] = {
      {"--max-seq-length", o.max_seq_length != 0, classify || chat},
      {"--in-order", o.in_order, classify || chat},
      {"--pad-to-longest", o.pad_to_longest, classify || chat},
      {"--mask-prompt", o.mask_prompt, chat},
      {"--chat-format", !o.chat_format.empty(), chat},
      {"--text-field", o.fields.text != fields.text, classify},
      {"--label-field", o.fields.label != fields.label, classify},
      {"--labels", !o.labels.empty(), classify},
      {"--class-weights", !o.class_weights.empty(), classify},
  };
  for (const Flag& flag : flags) {
    BOWLINE_REQUIRE(!flag.given || flag.known, "{} says nothing of {}.", flag.name,
                    classify ? "texts with labels"
                    : chat   ? "conversations"
                             : "plain text");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Task>> make_task(const Model& model, const std::string& path,
                                        const DataOptions& o, Purpose purpose) {
  const std::string task = model.metadata("task");
  BOWLINE_REQUIRE_CODE(task.empty() || task == "generate" || task == "classify", Code::bad_file,
                       "Model \"{}\" is for the task \"{}\": there is no data to train it on or to "
                       "evaluate it by.",
                       path, task);
  const Kind kind = kind_of(model, o);
  BOWLINE_TRY(check_flags(kind, o));
  switch (kind) {
    case Kind::classify:
      return make_classify_task(model, o, purpose);
    case Kind::chat:
      return make_chat_task(model, o, purpose);
    case Kind::text:
      break;
  }
  return make_text_task(model, o, purpose);
}

}  // namespace bowline::command
