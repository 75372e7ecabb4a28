// import_adapter(): adapters of PEFT, and of llama.cpp.
#include <filesystem>

#include "api/formats.h"
#include "api/guard.h"
#include "base/escape.h"
#include "base/status.h"
#include "peft/adapter.h"
#include "peft/gguf_adapter.h"

namespace bowline {

Result<AdapterReport> import_adapter(Model& model, const std::string& path, std::string_view name) {
  return import::guarded_import([&]() -> Result<AdapterReport> {
    BOWLINE_TRY(import::check_path(path));
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      return peft::read_gguf_adapter(model, path, name);
    }
    BOWLINE_REQUIRE_CODE(peft::is_folder(path), Code::bad_file,
                         "\"{}\" is not a PEFT adapter: it has no adapter_config.json.",
                         escaped(path));
    return peft::read_adapter(model, path, name);
  });
}

}  // namespace bowline
