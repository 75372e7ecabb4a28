#include "export/adapter.h"

#include <algorithm>

#include "common/require.h"
#include "peft/adapter.h"
#include "peft/gguf_adapter.h"

namespace bowline::command {
namespace {

constexpr std::string_view kForms[] = {"peft", "gguf-lora"};

}  // namespace

std::span<const std::string_view> adapter_forms() { return kForms; }

bool is_adapter_form(std::string_view form) {
  return std::ranges::find(kForms, form) != std::end(kForms);
}

Result<ExportReport> export_adapter(const Model& model, std::string_view form,
                                    const std::string& path, bool replace) {
  const std::vector<std::string> names = model.adapters();
  BOWLINE_REQUIRE(names.size() == 1, "--to {} writes one adapter, and --adapter names {}.", form,
                  names.size());
  BOWLINE_ASSIGN(const peft::WrittenAdapter written,
                 form == "peft" ? peft::write_adapter(model, names[0], path, replace)
                                : peft::write_gguf_adapter(model, names[0], path));
  return ExportReport{written.tensors, written.bytes, {}};
}

}  // namespace bowline::command
