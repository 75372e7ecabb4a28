// import_model(): reads a source of any format, builds its model and checks the result.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "api/formats.h"
#include "api/guard.h"
#include "api/options.h"
#include "architectures/architecture.h"
#include "base/escape.h"
#include "base/pattern.h"
#include "base/status.h"
#include "bowline_text.h"
#include "gguf/read.h"
#include "huggingface/read.h"
#include "onnx/import.h"
#include "peft/adapter.h"

namespace bowline {
namespace import {
namespace {

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

// True if a trained parameter does not have the values of a tensor of the source.
Result<bool> has_new_weights(const Built& built) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, built.model.describe());
  return std::ranges::any_of(info.parameters, [&](const ParameterInfo& p) {
    return p.trainable && std::ranges::find(built.tensors, p.name, &ImportedTensor::parameter) ==
                              built.tensors.end();
  });
}

Result<ImportedModel> import_text(const std::string& path, ImportFormat kind,
                                  const TextImportOptions& options, const Progress& progress) {
  BOWLINE_REQUIRE_CODE(kind == ImportFormat::gguf || huggingface::is_folder(path), Code::bad_file,
                       "\"{}\" has no config.json{}.", escaped(path),
                       peft::is_folder(path)
                           ? ": it is a PEFT adapter. Import it for its model, with --base or "
                             "import_adapter()"
                           : "");
  BOWLINE_TRY_ASSIGN(const Source source, options.skeleton ? huggingface::read_config(path)
                                          : kind == ImportFormat::gguf
                                              ? gguf::read(path, progress)
                                              : huggingface::read(path, progress));
  const std::string context = fmt::format("While importing \"{}\".", escaped(path));
  BOWLINE_TRY_ASSIGN(Built built, in_context(build_model(source, options), context));
  BOWLINE_TRY_ASSIGN(const bool is_new, has_new_weights(built));
  BOWLINE_TRY(check_task(options, built.task, is_new));
  BOWLINE_TRY(check_tokenizer(built).at(context));
  ImportedModel out;
  out.model = std::move(built.model);
  out.report = {kind, built.task, std::move(built.tensors), std::move(built.notes)};
  out.not_finite = [finite = std::move(built.finite)] { return finite.found(); };
  return out;
}

Result<onnx::ImportOptions> graph_options(const OnnxImportOptions& options) {
  onnx::ImportOptions out;
  out.entry_point = options.entry;
  out.dims = options.dims;
  out.shapes = options.shapes;
  out.batch_dim = options.batch_dim;
  out.fixed = options.given;
  out.tie_equal = options.tie_equal;
  if (!options.trainable.empty()) {
    std::vector<std::string> patterns;
    for (const std::string& pattern : options.trainable) {
      BOWLINE_TRY_ASSIGN(const std::vector<std::string> some, alternatives(pattern));
      patterns.insert(patterns.end(), some.begin(), some.end());
    }
    out.trains = [patterns](const std::string& name) { return matches_any(patterns, name); };
  }
  return out;
}

// Freezes the parameters that match --freeze.
// Errors  bad_argument: a pattern of --freeze or --trainable matches no trainable parameter.
Status choose_trained(Model& model, const OnnxImportOptions& options) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  using Names = std::vector<std::string>;
  const auto matched = [&](const char* flag, const std::string& pattern) -> Result<Names> {
    BOWLINE_TRY_ASSIGN(const Names patterns, alternatives(pattern));
    Names names;
    for (const ParameterInfo& p : info.parameters) {
      if (p.trainable && matches_any(patterns, p.name)) {
        names.push_back(p.name);
      }
    }
    BOWLINE_REQUIRE(!names.empty(), "{} \"{}\" matches no parameter that can be trained.", flag,
                    escaped(pattern));
    return names;
  };
  for (const std::string& pattern : options.trainable) {
    BOWLINE_TRY(matched("--trainable", pattern).status());
  }
  for (const std::string& pattern : options.freeze) {
    BOWLINE_TRY_ASSIGN(const Names names, matched("--freeze", pattern));
    for (const std::string& name : names) {
      BOWLINE_TRY(model.freeze(name));
    }
  }
  return {};
}

Result<ImportedModel> import_onnx(const std::string& path, const OnnxImportOptions& options,
                                  const Progress& progress) {
  BOWLINE_TRY_ASSIGN(onnx::ImportOptions of_graph, graph_options(options));
  of_graph.progress = progress;
  BOWLINE_TRY_ASSIGN(onnx::Imported graph, onnx::import_file(path, of_graph));
  BOWLINE_TRY(choose_trained(graph.model, options));
  if (!graph.not_finite.empty()) {
    graph.notes.push_back(note_of(graph.not_finite) +
                          " They are treated as masks and not trained. --trainable trains them.");
  }
  ImportedModel out;
  out.model = std::move(graph.model);
  out.report = {ImportFormat::onnx, std::nullopt, {}, std::move(graph.notes)};
  out.not_finite = [found = std::move(graph.not_finite)] { return found; };
  return out;
}

}  // namespace
}  // namespace import

Result<ImportedModel> import_model(const std::string& path, const ImportOptions& options) {
  return import::guarded_import([&]() -> Result<ImportedModel> {
    BOWLINE_TRY_ASSIGN(const ImportFormat kind, import_format(path));
    BOWLINE_TRY(import::check_format(options, kind, path));
    BOWLINE_TRY(import::check_values(options));
    const import::Progress progress(options.progress);
    return kind == ImportFormat::onnx ? import::import_onnx(path, options.onnx, progress)
                                      : import::import_text(path, kind, options.text, progress);
  });
}

}  // namespace bowline
