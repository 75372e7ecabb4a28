#include "import/adapter.h"

#include <filesystem>

#include "base/escape.h"
#include "base/status.h"
#include "common/flags.h"
#include "peft/adapter.h"
#include "peft/gguf_adapter.h"

namespace bowline::command {

Result<AdapterReport> import_adapter(const AdapterImport& o) {
  std::error_code error;
  BOWLINE_REQUIRE_CODE(std::filesystem::exists(o.from, error), Code::bad_file,
                       "\"{}\" does not exist.", escaped(o.from));
  BOWLINE_TRY_ASSIGN(Model model, open_model(o.base));
  const bool is_folder = std::filesystem::is_directory(o.from, error);
  BOWLINE_REQUIRE_CODE(!is_folder || peft::is_folder(o.from), Code::bad_file,
                       "\"{}\" is not a PEFT adapter: it has no adapter_config.json.",
                       escaped(o.from));
  BOWLINE_TRY_ASSIGN(AdapterReport report, is_folder
                                               ? peft::read_adapter(model, o.from, o.name)
                                               : peft::read_gguf_adapter(model, o.from, o.name));
  BOWLINE_TRY(save_adapter(model, o.name, o.out));
  return report;
}

}  // namespace bowline::command
