// Imports text models: folders of Hugging Face, GGUF files and skeletons.
#include <fmt/format.h>

#include <algorithm>

#include "base/escape.h"
#include "base/status.h"
#include "bowline_text.h"
#include "common/text.h"
#include "data/examples.h"
#include "import/flags.h"

namespace bowline::command {
namespace {

using import::Built;
using import::TensorReport;

std::optional<DType> float_of(std::string_view name) {
  for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
    if (name_of(t) == name) {
      return t;
    }
  }
  return std::nullopt;
}

Result<import::BuildOptions> build_options(const ImportFlags& o) {
  import::BuildOptions options = o.build;
  for (const import::Task t :
       {import::Task::generate, import::Task::classify, import::Task::embed}) {
    if (name_of(t) == o.task) {
      options.task = t;
    }
  }
  if (!o.labels.empty()) {
    BOWLINE_TRY_ASSIGN(const std::string text, read_text(o.labels, true));
    BOWLINE_TRY_ASSIGN(options.labels, read_labels(text, o.labels));
  }
  options.dtype = float_of(o.dtype);
  options.kv_dtype = o.kv_dtype == "int8" ? DType::i8 : float_of(o.kv_dtype).value_or(DType::f32);
  return options;
}

// Rejects a tokenizer with ids that the model does not have. An unusable tokenizer only adds a
// note, because the model also works without a tokenizer.
Status check_tokenizer(Built& built) {
  if (!built.model.asset("tokenizer").ok()) {
    built.notes.push_back("The source has no tokenizer: the model takes ids alone.");
    return {};
  }
  const Result<text::Tokenizer> tokenizer = text::Tokenizer::from(built.model);
  if (!tokenizer.ok()) {
    built.notes.push_back(
        fmt::format("The tokenizer cannot be used: {}", tokenizer.status().message()));
    return {};
  }
  const auto rows = static_cast<size_t>(std::stoull(built.model.metadata("vocabulary")));
  BOWLINE_REQUIRE_CODE(tokenizer.value().size() <= rows, Code::bad_file,
                       "The tokenizer has ids up to {}, the embedding has {} rows.",
                       tokenizer.value().size() - 1, rows);
  built.notes.push_back(fmt::format("The tokenizer is {} with {} ids.", tokenizer.value().kind(),
                                    tokenizer.value().size()));
  return {};
}

// Errors  bad_argument: --seed was given, and the source has the values of all weights.
Status check_seed(const ImportFlags& o, const Built& built, const ModelInfo& info) {
  const bool drawn = std::ranges::any_of(info.parameters, [&](const ParameterInfo& p) {
    return p.trainable && std::ranges::find(built.tensors, p.name, &TensorReport::parameter) ==
                              built.tensors.end();
  });
  return o.uses.check("--seed", drawn, "the source has the values of all weights");
}

}  // namespace

Status import_text_model(const ImportFlags& o, const import::Source& source) {
  BOWLINE_TRY_ASSIGN(const import::BuildOptions options, build_options(o));
  const std::string context = fmt::format("While importing \"{}\".", escaped(o.model));
  Result<Built> made = build_model(source, options);
  BOWLINE_TRY(Status(made.status()).at(context));
  Built& built = made.value();
  BOWLINE_TRY(o.task_uses.check(bit_of(built.task), kTasks));
  BOWLINE_TRY(check_tokenizer(built).at(context));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, built.model.describe());
  BOWLINE_TRY(check_seed(o, built, info));
  BOWLINE_TRY(built.model.save_compacted(o.out).status());
  if (const std::vector<import::NotFinite> found = built.finite.found(); !found.empty()) {
    built.notes.push_back(import::note_of(found) +
                          (o.dtype == "f16" ? " f16 holds values up to 65504: --dtype bf16 or f32 "
                                              "keeps larger ones."
                                            : ""));
  }
  print_report(o, source, built, info);
  return {};
}

}  // namespace bowline::command
