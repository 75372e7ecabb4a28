// bowline quantize: quantizes the weights of a model, once per storage, or dequantizes them.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "common/flags.h"
#include "common/report.h"
#include "verb.h"

namespace bowline::command {
namespace {

using nlohmann::json;

struct QuantizeOptions {
  std::string model;
  std::string out;
  std::string encoding;
  std::string pattern = "*";
  std::string format = "text";
  bool force = false;
};

Result<QuantizeReport> apply(const QuantizeOptions& o, Model& model) {
  return o.encoding == "plain" ? decode_weights(model, o.pattern)
                               : quantize(model, o.encoding, o.pattern);
}

void print_report(const QuantizeOptions& o, const QuantizeReport& report) {
  const uint64_t before = std::filesystem::file_size(o.model);
  const uint64_t after = std::filesystem::file_size(o.out);
  if (o.format == "json") {
    print_json({{"file", o.model},
                {"out", o.out},
                {"encoding", o.encoding},
                {"storages", report.storages},
                {"storage_bytes_before", report.bytes_before},
                {"storage_bytes", report.bytes_after},
                {"kept", report.kept},
                {"bytes_before", before},
                {"bytes", after}});
    return;
  }
  print("{}", Lines{report.text()});
  print("{}: {}, input {}\n", o.out, bytes_text(after), bytes_text(before));
}

Result<int> run(const QuantizeOptions& o) {
  BOWLINE_TRY_FLAGS(check_new(o.out, o.force));
  BOWLINE_TRY_ASSIGN(Model model, open_model(o.model));
  const Result<QuantizeReport> report = apply(o, model);
  if (!report.ok()) {
    return fail_flags(report.status());
  }
  BOWLINE_TRY(model.save(o.out));  // without training state
  print_report(o, report.value());
  return kOk;
}

}  // namespace

void add_quantize(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<QuantizeOptions>(
      app, context, run, "quantize", "Quantizes the weights of a model",
      "# 8 bits per value\n"
      "bowline quantize base.bowline --out base8.bowline --encoding int8\n"
      "# About 5 bits per value, as in the files of llama.cpp\n"
      "bowline quantize base.bowline --out base5.bowline --encoding q4_k_m\n"
      "# 4 bits per value, with zero points, only in the blocks\n"
      "bowline quantize base.bowline --out base4.bowline \\\n"
      "    --encoding \"int4 with zero points\" --pattern \"blocks.*\"");
  verb->add_option("model", o->model, "Model file or checkpoint")->required();
  add_text(verb, "--out", o->out, "Model file to write", "FILE")->required();
  add_text(verb, "--encoding", o->encoding, "int8, q4_k_m, ...; plain: dequantize", "ENCODING")
      ->required();
  add_text(verb, "--pattern", o->pattern, "Change only parameters with these names", "PATTERN")
      ->capture_default_str();
  verb->add_flag("--force", o->force, "Replace an existing file");
  add_format(verb, o->format, "Output format of the summary");
}

}  // namespace bowline::command
