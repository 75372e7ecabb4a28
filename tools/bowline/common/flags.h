// Flags that several verbs have, with one name and one meaning.
#pragma once

#include <CLI/CLI.hpp>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"
#include "common/numbers.h"
#include "verb.h"

namespace bowline::command {

// Makes --help show the default of a flag, unless its description ends with one in brackets.
CLI::Option* with_default(CLI::Option* flag);
// A number from `least` to `most`.
template <std::integral T>
CLI::Option* add_number(CLI::App* verb, const std::string& names, T& to, const std::string& help,
                        uint64_t least, uint64_t most) {
  return with_default(verb->add_option(names, to, help)->check(whole_number(least, most)));
}
template <std::floating_point T>
CLI::Option* add_number(CLI::App* verb, const std::string& names, T& to, const std::string& help,
                        double least, double most) {
  return with_default(verb->add_option(names, to, help)->check(real_number(least, most)));
}
CLI::Option* add_choice(CLI::App* verb, const std::string& names, std::string& to,
                        const std::string& help, const std::vector<std::string>& choices);
// Adds a flag with a text. `type` names the value in --help ("FILE"). The default is not shown.
template <class T>
CLI::Option* add_text(CLI::App* verb, const std::string& names, T& to, const std::string& help,
                      const std::string& type) {
  return verb->add_option(names, to, help)->type_name(type);
}

// --device, with its default.
void add_device(CLI::App* verb, std::string& name);
// --device, --threads, --memory-budget and --matmul-precision. --threads is rejected if the device
// is not the CPU.
void add_device(CLI::App* verb, DeviceFlags& flags);
// --memory-budget in bytes. 0: no limit.
void add_memory_budget(CLI::App* verb, uint64_t& bytes);

// --compute: compute dtype of the operators, for BoundEntryPoint::compute_dtype.
CLI::Option* add_compute(CLI::App* verb, std::string& dtype);
// Returns the dtype of --compute. Empty: f32, the default.
std::optional<DType> compute_of(std::string_view dtype);

// --entry. Empty: "forward", or the only entry point of the model.
void add_entry(CLI::App* verb, std::string& entry);
// Returns the entry point for a value of --entry.
// Errors  bad_argument: the model has no such entry point, or `name` is empty and it has several.
Result<EntryPointInfo> entry_point(const ModelInfo& model, const std::string& name);

// --dim name=number, --batch and --seq.
struct DimFlags {
  std::vector<std::string> dims;
  int64_t batch = 0;
  int64_t seq = 0;
};
void add_dims(CLI::App* verb, DimFlags& flags);
// Errors  bad_argument: the text is not of the form name=number.
Result<BoundDim> parse_dim(const std::string& text);
// Errors  bad_argument: a flag is not of the form name=number, or a dim is given twice, or is not a
//         dim of the model or of `entry`.
Result<std::vector<BoundDim>> dims_of(const DimFlags& flags, const ModelInfo& model,
                                      const EntryPointInfo* entry = nullptr);
// Lists the named dims of the model that `dims` does not bind: "batch, seq".
std::string missing_dims(const ModelInfo& model, std::span<const BoundDim> dims);

// Adds a hint about 'bowline import' to `status`, an error of opening `path`, if `path` is a
// folder, a GGUF or ONNX file, or another file that is not a Bowline file. `more`: flags of the
// suggested command.
Status with_import(Status status, const std::string& path, const std::string& more);
// Opens a model file. Errors  bad_file: it cannot be read or is not a model file.
Result<Model> open_model(const std::string& path);
// The same for measurements of speed: gives a skeleton random values.
Result<Model> open_to_measure(const std::string& path);

// Changes to a model after it is opened: --quantize, and any number of --adapter FILE[=WEIGHT].
struct Changes {
  std::string encoding;  // empty: as in the file
  std::vector<std::string> adapters;
};
void add_quantize_flag(CLI::App* verb, std::string& encoding);
void add_changes(CLI::App* verb, Changes& changes);
// Quantizes the weights of a model. An empty encoding changes nothing.
// Errors  as quantize(); bad_argument: no weight can be quantized.
Status quantize_all(Model& model, const std::string& encoding);
// Dequantizes weights and unfreezes them, so that they can be trained.
// Errors  as dequantize().
Result<QuantizeReport> decode_weights(Model& model, const std::string& pattern);
// Quantizes the model and loads the adapters.
// Errors  as quantize_all(), load_adapter() and set_adapter_weight(). bad_argument: an adapter is
//         given twice.
Status change(Model& model, const Changes& changes);

// Errors  bad_file: the model has no entry point of this name.
Status require_entry_point(const Model& model, const std::string& path, const std::string& name);

// Errors  bad_argument: the file exists and `force` is false.
Status check_new(const std::string& path, bool force);

}  // namespace bowline::command
