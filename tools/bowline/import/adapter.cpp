// Imports adapters: folders of peft and GGUF files of llama.cpp.
#include "peft/adapter.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/status.h"
#include "common/flags.h"
#include "common/report.h"
#include "import/flags.h"
#include "peft/gguf_adapter.h"
#include "verb.h"

namespace bowline::command {

Status import_adapter(const ImportFlags& o) {
  std::error_code error;
  BOWLINE_REQUIRE_CODE(std::filesystem::exists(o.model, error), Code::bad_file,
                       "\"{}\" does not exist.", escaped(o.model));
  BOWLINE_TRY_ASSIGN(Model model, open_model(o.base));
  const bool is_folder = std::filesystem::is_directory(o.model, error);
  BOWLINE_REQUIRE_CODE(!is_folder || peft::is_folder(o.model), Code::bad_file,
                       "\"{}\" is not a PEFT adapter: it has no adapter_config.json.",
                       escaped(o.model));
  const auto read = is_folder ? peft::read_adapter : peft::read_gguf_adapter;
  BOWLINE_TRY_ASSIGN(const AdapterReport report, read(model, o.model, o.name));
  BOWLINE_TRY(save_adapter(model, o.name, o.out));
  if (o.format == "json") {
    print_json({{"file", o.model},
                {"base", o.base},
                {"out", o.out},
                {"name", o.name},
                {"targets", report.targets},
                {"bytes", report.bytes}});
  } else {
    print("{}: adapter {} of {}, {} parameters, {}\n", o.out, listed_name(o.name), o.base,
          report.targets.size(), bytes_text(report.bytes));
  }
  return {};
}

}  // namespace bowline::command
