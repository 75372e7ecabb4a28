#include "api/options.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <span>

#include "base/escape.h"
#include "base/status.h"
#include "source/numbers.h"

namespace bowline::import {
namespace {

// Sets of tasks are bit masks.
constexpr unsigned bit_of(ImportTask task) { return 1u << static_cast<unsigned>(task); }
constexpr unsigned kGenerates = bit_of(ImportTask::generate);
constexpr unsigned kClassifies = bit_of(ImportTask::classify);
constexpr unsigned kEmbeds = bit_of(ImportTask::embed);
constexpr unsigned kTags = bit_of(ImportTask::tag);
constexpr unsigned kLabels = kClassifies | kTags;
constexpr unsigned kAll = kGenerates | kLabels | kEmbeds;

struct Use {
  std::string_view flag;
  bool is_set;
  unsigned tasks;    // on which it has an effect
  bool of_skeleton;  // whether it has an effect on a skeleton
};

std::array<Use, 12> uses_of(const TextImportOptions& o) {
  return {{{"--task", o.task.has_value(), kAll, true},
           {"--labels", !o.labels.empty(), kLabels, false},
           {"--dtype", o.dtype.has_value(), kAll, true},
           {"--kv-dtype", o.kv_dtype != DType::f32, kGenerates, true},
           {"--pooling", !o.pooling.empty(), kClassifies | kEmbeds, false},
           {"--multi-label", o.multi_label, kClassifies, false},
           {"--label-smoothing", o.label_smoothing != 0, kLabels, false},
           {"--matryoshka", !o.matryoshka.empty(), kEmbeds, false},
           {"--tie", !o.ties.empty(), kAll, false},
           {"--tie-equal", o.tie_equal, kAll, false},
           {"--dropout", o.dropout, kAll, true},
           {"--seed", o.seed != 0, kLabels, false}}};
}

std::array<Use, 8> uses_of(const OnnxImportOptions& o) {
  return {{{"--entry", o.entry != OnnxImportOptions().entry, kAll, false},
           {"--dim", !o.dims.empty(), kAll, false},
           {"--shape", !o.shapes.empty(), kAll, false},
           {"--batch-dim", !o.batch_dim.empty(), kAll, false},
           {"--given", !o.given.empty(), kAll, false},
           {"--trainable", !o.trainable.empty(), kAll, false},
           {"--freeze", !o.freeze.empty(), kAll, false},
           {"--tie-equal", o.tie_equal, kAll, false}}};
}

std::string tasks_text(unsigned tasks) {
  std::string out;
  for (const ImportTask task : kImportTasks) {
    if ((tasks & bit_of(task)) != 0) {
      out += format("{}a model for the task {}", out.empty() ? "" : ", ", name_of(task));
    }
  }
  return out;
}

Status refuse_all(std::span<const Use> uses, std::string_view on, std::string_view it_is_for) {
  const auto set = std::ranges::find(uses, true, &Use::is_set);
  BOWLINE_REQUIRE(set == uses.end(), "{} has no effect on {}; it is for {}.", set->flag, on,
                  it_is_for);
  return {};
}

}  // namespace

Status check_values(const ImportOptions& options) {
  const TextImportOptions& text = options.text;
  BOWLINE_REQUIRE(!text.dtype || is_float(*text.dtype), "--dtype is {}, not f32, f16 or bf16.",
                  name_of(*text.dtype));
  BOWLINE_REQUIRE(is_float(text.kv_dtype) || text.kv_dtype == DType::i8,
                  "--kv-dtype is {}, not f32, f16, bf16 or i8.", name_of(text.kv_dtype));
  constexpr std::string_view kModes[] = {"", "mean", "cls", "last", "max"};
  BOWLINE_REQUIRE(std::ranges::find(kModes, text.pooling) != std::end(kModes),
                  "--pooling is {}, not mean, cls, last or max.", listed_name(text.pooling));
  BOWLINE_REQUIRE(text.label_smoothing >= 0 && text.label_smoothing < 1,
                  "--label-smoothing is {}, but must be at least 0 and below 1.",
                  text.label_smoothing);
  for (const BoundDim& dim : options.onnx.dims) {
    BOWLINE_REQUIRE(dim.value >= 1, "--dim {}={} is below 1.", listed_name(dim.name), dim.value);
  }
  for (const auto& [name, shape] : options.onnx.shapes) {
    const bool legal = std::ranges::all_of(
        shape, [&](int64_t d) { return d > 0 || (d == -1 && !options.onnx.batch_dim.empty()); });
    BOWLINE_REQUIRE(legal, "--shape of the input {} has a dimension below 1.", listed_name(name));
  }
  return {};
}

Status check_format(const ImportOptions& options, ImportFormat kind, const std::string& path) {
  BOWLINE_REQUIRE(!options.text.skeleton || kind == ImportFormat::hugging_face,
                  "--skeleton reads config.json in a folder, but \"{}\" is not a folder.",
                  escaped(path));
  constexpr std::string_view kTextModels = "a folder of Hugging Face, a GGUF file";
  if (kind == ImportFormat::onnx) {
    return refuse_all(uses_of(options.text), "an ONNX file", kTextModels);
  }
  BOWLINE_TRY(refuse_all(uses_of(options.onnx),
                         kind == ImportFormat::gguf ? "a GGUF file" : "a folder of Hugging Face",
                         "an ONNX file"));
  if (options.text.skeleton) {
    for (const Use& use : uses_of(options.text)) {
      BOWLINE_REQUIRE(!use.is_set || use.of_skeleton,
                      "{} has no effect on a skeleton; it is for {}.", use.flag, kTextModels);
    }
  }
  return {};
}

Status check_task(const TextImportOptions& options, ImportTask task, bool has_new_weights) {
  for (const Use& use : uses_of(options)) {
    BOWLINE_REQUIRE(!use.is_set || (use.tasks & bit_of(task)) != 0,
                    "{} has no effect on {}; it is for {}.", use.flag, tasks_text(bit_of(task)),
                    tasks_text(use.tasks));
  }
  BOWLINE_REQUIRE(options.seed == 0 || has_new_weights,
                  "--seed has no effect: the source has the values of all weights.");
  return {};
}

}  // namespace bowline::import
