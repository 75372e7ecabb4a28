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

// Flags of one form. --help shows their defaults, unless `help` ends with the default in brackets.
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
// `type` names the value, as FILE. The default is not shown.
template <class T>
CLI::Option* add_text(CLI::App* verb, const std::string& names, T& to, const std::string& help,
                      const std::string& type) {
  return verb->add_option(names, to, help)->type_name(type);
}

// --device, with its default.
void add_device(CLI::App* verb, std::string& name);
// --device, --threads and --memory-budget. --threads is refused for a --device that is no CPU.
void add_device(CLI::App* verb, DeviceFlags& flags);
// --memory-budget, bytes; 0: not limited.
void add_memory_budget(CLI::App* verb, uint64_t& bytes);

// --compute: what operators compute in, as BoundEntryPoint::compute_dtype.
CLI::Option* add_compute(CLI::App* verb, std::string& dtype);
// None for f32.
std::optional<DType> compute_of(std::string_view dtype);

// --entry. Empty stands for "forward", or for the only entry point of the model.
void add_entry(CLI::App* verb, std::string& entry);
// Errors  bad_argument: there is none of this name.
Result<EntryPointInfo> entry_point(const ModelInfo& model, const std::string& name);
// Null: there is none.
const EntryPointInfo* find_entry_point(const ModelInfo& model, std::string_view name);

// --dim name=number, --batch and --seq.
struct DimFlags {
  std::vector<std::string> dims;
  int64_t batch = 0;
  int64_t seq = 0;
};
void add_dims(CLI::App* verb, DimFlags& flags);
// Errors  bad_argument: not of the form name=number.
Result<BoundDim> parse_dim(const std::string& text);
// Errors  bad_argument: not of the form name=number, given twice, or not a dim of the model or of
//         `entry`.
Result<std::vector<BoundDim>> dims_of(const DimFlags& flags, const ModelInfo& model,
                                      const EntryPointInfo* entry = nullptr);
// "batch, seq": the named dims of the model that `dims` does not bind; empty: none.
std::string missing_dims(const ModelInfo& model, std::span<const BoundDim> dims);

// Where `path` is no Bowline file, as `status` says, tells what 'bowline import' makes of it: it is
// a folder, a GGUF or an ONNX file, or something else. `more`: flags of the call.
Status with_import(Status status, const std::string& path, const std::string& more);
// A model file that the command was given. Errors  bad_file, also where it cannot be read.
Result<Model> open_model(const std::string& path);

// What a model that is read is changed by: --quantize, and --adapter FILE[=WEIGHT], any number of
// them.
struct Changes {
  std::string encoding;  // empty: as the file has it
  std::vector<std::string> adapters;
};
void add_quantize_flag(CLI::App* verb, std::string& encoding);
void add_changes(CLI::App* verb, Changes& changes);
// Errors  those of quantize(); bad_argument: there is nothing to quantize.
Status quantize_all(Model& model, const std::string& encoding);
// Decodes quantized weights. Quantized weights are frozen; plain ones can be trained again. Errors
//         those of dequantize().
Result<QuantizeReport> decode_weights(Model& model, const std::string& pattern);
// Errors  those of quantize_all() and load_adapter().
Status change(Model& model, const Changes& changes);

// The entry point that is trained. Errors  bad_file: the model has none of this name.
Status require_entry_point(const Model& model, const std::string& path, const std::string& name);

// Refuses to replace a file. Errors  bad_argument: there is one, and not `force`.
Status check_new(const std::string& path, bool force);

}  // namespace bowline::command
