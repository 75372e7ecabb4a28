// Imports models: folders of Hugging Face, skeletons, GGUF and ONNX files.
#include "base/status.h"
#include "import/flags.h"
#include "source/finite.h"

namespace bowline::command {

Status import_source(const ImportFlags& o, ImportFormat kind) {
  BOWLINE_TRY_ASSIGN(const ImportOptions options, options_of(o, kind));
  BOWLINE_TRY_ASSIGN(ImportedModel imported, import_model(o.model, options));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, imported.model.describe());
  BOWLINE_TRY(imported.model.save_compacted(o.out).status());
  if (kind == ImportFormat::onnx) {
    print_onnx_report(o, imported, info);
    return {};
  }
  if (const std::vector<NotFiniteTensor> found = imported.not_finite(); !found.empty()) {
    imported.report.notes.push_back(
        import::note_of(found) + (o.dtype == "f16" ? " f16 holds values up to 65504: --dtype bf16 "
                                                     "or f32 keeps larger ones."
                                                   : ""));
  }
  print_report(o, imported, info);
  return {};
}

}  // namespace bowline::command
