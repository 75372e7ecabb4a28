// Imports adapters: folders of peft and GGUF files of llama.cpp.
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "base/status.h"
#include "common/flags.h"
#include "common/report.h"
#include "import/flags.h"
#include "verb.h"

namespace bowline::command {

Status import_lora(const ImportFlags& o) {
  BOWLINE_TRY_ASSIGN(Model model, open_model(o.base));
  BOWLINE_TRY_ASSIGN(const AdapterReport report, import_adapter(model, o.model, o.name));
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
