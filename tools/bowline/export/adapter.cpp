#include "export/adapter.h"

#include <algorithm>

#include "base/status.h"
#include "export/output.h"
#include "peft/adapter.h"
#include "peft/gguf_adapter.h"

namespace bowline::command {
namespace {

constexpr std::string_view kForms[] = {"peft", "gguf-lora"};

Result<ExportReport> write_folder(const Model& model, std::string_view name,
                                  const std::string& path, bool replace) {
  BOWLINE_TRY_ASSIGN(const peft::AdapterFolder folder, peft::adapter_folder(model, name));
  uint64_t bytes = 0;
  for (const peft::FolderFile& file : folder.files) {
    for (const auto& piece : file.pieces) {
      bytes += piece.size();
    }
  }
  BOWLINE_TRY_ASSIGN(Output out, Output::begin(path, peft::kWeightsFile, replace, bytes));
  for (const peft::FolderFile& file : folder.files) {
    BOWLINE_TRY(out.open(file.name));
    for (const auto& piece : file.pieces) {
      BOWLINE_TRY(out.write(piece));
    }
    BOWLINE_TRY(out.close());
  }
  BOWLINE_TRY(out.commit());
  return ExportReport{folder.tensors, folder.bytes, folder.notes};
}

}  // namespace

std::span<const std::string_view> adapter_forms() { return kForms; }

bool is_adapter_form(std::string_view form) {
  return std::ranges::find(kForms, form) != std::end(kForms);
}

Result<ExportReport> export_adapter(const Model& model, std::string_view form,
                                    const std::string& path, bool replace) {
  const std::vector<std::string> names = adapters(model);
  BOWLINE_REQUIRE(names.size() == 1, "--to {} writes one adapter, and --adapter names {}.", form,
                  names.size());
  if (form == "peft") {
    return write_folder(model, names[0], path, replace);
  }
  BOWLINE_TRY_ASSIGN(const peft::WrittenAdapter written,
                     peft::write_gguf_adapter(model, names[0], path));
  return ExportReport{written.tensors, written.bytes, {}};
}

}  // namespace bowline::command
