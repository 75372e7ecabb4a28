/// \file
/// Import of models from other formats: the optional target bowline::import.
///
/// import_model() reads a Hugging Face folder, a GGUF file or an ONNX file. import_adapter() reads
/// a PEFT folder or a GGUF adapter. The command `bowline import` calls the same two functions.
///
/// **Example.** This function converts a foreign model to a Bowline model file:
///
///     Status convert(const std::string& from, const std::string& to) {
///       BOWLINE_TRY_ASSIGN(ImportedModel imported, import_model(from));
///       for (const std::string& note : imported.report.notes) std::puts(note.c_str());
///       return imported.model.save_compacted(to).status();
///     }
///
/// **Files are untrusted.** A damaged, malicious or unsupported file is refused with a message that
/// says where and why. No code of a file runs. The limits are:
/// - 64 MiB for each JSON file, 256 MiB for tokenizer.json, 1 MiB for adapter_config.json.
/// - 64 levels of nesting in JSON, and in the protobuf messages of ONNX.
/// - 100 MB for the header of a safetensors file, 4096 safetensors files in a folder.
/// - 2 GiB for an ONNX file, without its external data. 2^18 nodes of the imported graph.
/// - After all links are followed, each file of a folder must lie in this folder, or in the blobs
/// of
///   the Hugging Face cache. External data of an ONNX file must lie in the folder of the file.
///
/// **Weights are read on demand.** The model of a Hugging Face folder or a GGUF file reads each
/// weight from its file when it is needed. Do not change these files while the model exists. To
/// open the model often, save it once: the saved file opens faster. The model of an ONNX file has
/// its weights in memory.
///
/// **Messages** name options as flags of the command: `--batch-dim` is
/// OnnxImportOptions::batch_dim, and `--dim` is OnnxImportOptions::dims.
///
/// As in bowline.h, functions return errors, and there is no global state. Threads: any thread may
/// call the functions. An imported model is a Model, with its thread rules.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bowline.h"

#pragma GCC visibility push(default)

namespace bowline {

// ----------------------------------------------------------------------------------------- formats

/// The formats of models.
enum class ImportFormat : uint8_t {
  hugging_face,  ///< A folder with config.json and safetensors, or of sentence-transformers.
  gguf,          ///< A GGUF file.
  onnx,          ///< An ONNX file.
};

/// Returns the name of a format: "Hugging Face", "GGUF" or "ONNX".
std::string_view name_of(ImportFormat format);

/// Returns the format of a file or folder. Reads at most 8 bytes.
///
/// Every folder counts as hugging_face. A file that begins with "GGUF", or whose name ends in
/// .gguf, is gguf. Every other file is onnx, because ONNX files begin with no mark; import_model()
/// checks their content.
///
/// Errors:
/// - bad_argument: the path is empty or contains a NUL character.
/// - bad_file: the path does not exist, or it is a Bowline model file. Model::open() opens those.
Result<ImportFormat> import_format(const std::string& path);

// ----------------------------------------------------------------------------------------- options

/// The task of a text model, which determines its entry points.
enum class ImportTask : uint8_t {
  generate,  ///< A decoder that predicts the next token.
  classify,  ///< An encoder or decoder with a classification head.
  embed,     ///< An encoder or decoder whose output is one vector per text.
  tag,       ///< An encoder or decoder that gives each token a label, for example of an entity.
};

/// All tasks.
constexpr ImportTask kImportTasks[] = {ImportTask::generate, ImportTask::classify,
                                       ImportTask::embed, ImportTask::tag};

/// Returns the name of a task, for example "generate".
std::string_view name_of(ImportTask task);

/// Options for Hugging Face folders and GGUF files.
struct TextImportOptions {
  /// The task. Empty: the task of the source. `classify` and `tag` give a model without such a head
  /// a new one.
  std::optional<ImportTask> task = {};
  /// Names of the classes, in order. Empty: the labels of the source. For `classify` and `tag`.
  std::vector<std::string> labels = {};
  /// Dtype of the weights and of the activations: f32, f16 or bf16. Quantized weights stay
  /// quantized. Empty: each weight keeps its dtype, and activations have the dtype of most weights.
  std::optional<DType> dtype = {};
  /// Dtype of the KV cache: f32, f16, bf16, or i8 with one scale per row of a head. For `generate`.
  DType kv_dtype = DType::f32;
  /// Pooling of the tokens of a text: "mean", "cls" (the first), "last" or "max". Empty: that of
  /// the source; if it has none, "mean" for an encoder and "last" for a decoder.
  std::string pooling = {};
  bool multi_label = false;    ///< A text can have several labels. For `classify`.
  double label_smoothing = 0;  ///< Of the classification loss, at least 0 and below 1.
  /// Widths of shortened embeddings, each below that of the whole embedding. The losses of pairs
  /// and triplets also train the first values of an embedding, of each of these numbers. For
  /// `embed`. Source: Kusupati et al., "Matryoshka Representation Learning", 2022.
  std::vector<int64_t> matryoshka = {};
  /// Pairs of tensors of the source to tie. Their values must be equal.
  std::vector<std::pair<std::string, std::string>> ties = {};
  /// Ties all tensors with equal values. A tensor whose elements are all equal, such as a bias of
  /// zeros, is tied only if all other tensors of its layer are tied to the same other layer.
  bool tie_equal = false;
  /// The loss uses the dropout rates of the config, except the rate of attention weights.
  bool dropout = false;
  uint64_t seed = 0;  ///< Random seed of weights that the source lacks.
  /// Reads only config.json of a folder. The parameters of the model have shapes but no values.
  bool skeleton = false;
};

/// Options for ONNX files.
struct OnnxImportOptions {
  std::string entry = "forward";  ///< Name of the entry point.
  /// Sizes of dimensions that have a name in the file.
  std::vector<BoundDim> dims = {};
  /// Whole shapes of inputs, by input name, for dimensions without a name. -1 marks the axis of the
  /// batch (see batch_dim). Where the file states a size, the size must be the same.
  std::map<std::string, std::vector<int64_t>> shapes = {};
  /// Name of the dimension whose size each run chooses (the batch). Empty: all sizes are fixed. The
  /// batch is every dimension of this name, and the first axis of an input if the size of this axis
  /// is 1 or not given.
  std::string batch_dim = {};
  /// Values of inputs that become constants, by input name. One value fills any shape.
  std::map<std::string, std::vector<double>> given = {};
  /// Patterns (see model.h) of tensors to train although they look like constants. Scalars, and
  /// masks with infinite values, look like constants.
  std::vector<std::string> trainable = {};
  /// Patterns of parameters that are frozen.
  std::vector<std::string> freeze = {};
  /// Ties trained matrices with equal values, and merges layers of the same structure into one
  /// Repeat (graph.h).
  bool tie_equal = false;
};

/// Where import_model() is.
struct ImportProgress {
  /// What it reads.
  enum class Part : uint8_t {
    files,    ///< The files of a Hugging Face folder that have tensors, or a GGUF file.
    bytes,    ///< The bytes of an ONNX file.
    tensors,  ///< Tensors: it compares them (text models), or stores their values (ONNX).
    nodes,    ///< The nodes of an ONNX graph. With a batch dimension, it reads the graph twice.
  };
  Part part = Part::files;
  uint64_t done = 0;
  uint64_t total = 0;
};

/// Returns the name of a part, for example "tensors".
std::string_view name_of(ImportProgress::Part part);

/// Options of import_model(). Each format uses one of the two groups. The other group must have its
/// defaults.
struct ImportOptions {
  TextImportOptions text = {};
  OnnxImportOptions onnx = {};
  /// (optional) Called often, in the thread of the call. false, or an exception: import_model()
  /// stops, and returns `cancelled`. Between two calls, it reads at most one tensor of an ONNX
  /// file, or 1 MiB of other tensors. It does not call while it parses the text of a file.
  std::function<bool(const ImportProgress& progress)> progress = {};
};

// ------------------------------------------------------------------------------------------ models

/// How the import used a tensor of a Hugging Face folder or a GGUF file.
struct ImportedTensor {
  /// The use.
  enum class Use : uint8_t {
    unexpected,  ///< The model has no place for it. Then import_model() fails, so no report has it.
    taken,       ///< It is the value of `parameter`.
    tied,        ///< `parameter` is tied to another one; `reason` says to which and why.
    dropped,     ///< The model does not need it; `reason` says why.
  };
  std::string name;            ///< The Hugging Face name, also for GGUF.
  std::string stored;          ///< The type in the file, for example "F16" or "Q4_K".
  std::vector<int64_t> shape;  ///< Row-major.
  Use use = Use::unexpected;
  std::string parameter;  ///< The parameter that has the values. Empty if dropped.
  std::string reason;
};

/// Returns the name of a use, for example "taken".
std::string_view name_of(ImportedTensor::Use use);

/// A weight with values that are NaN or infinite.
struct NotFiniteTensor {
  std::string tensor;     ///< Its name.
  uint64_t values = 0;    ///< Number of values that are NaN or infinite.
  uint64_t elements = 0;  ///< Number of all values.
};

/// What import_model() did.
struct ImportReport {
  ImportFormat format = ImportFormat::hugging_face;
  std::optional<ImportTask> task;  ///< Empty for ONNX.
  /// All tensors of the source. Empty for ONNX and for a skeleton.
  std::vector<ImportedTensor> tensors;
  /// Sentences for the user, for example about parts of the source that were left out.
  std::vector<std::string> notes;
};

/// The result of import_model().
struct ImportedModel {
  /// The model. Its assets contain the tokenizer, the chat template and the config of the source.
  Model model;
  ImportReport report;
  /// Returns the weights with values that are NaN or infinite. It knows only weights that were read
  /// from the first to the last byte. Model::save_compacted() reads all of them. Threads: any
  /// thread.
  std::function<std::vector<NotFiniteTensor>()> not_finite;
};

/// Reads a model of another format. Recognizes the format as import_format() does.
///
/// \param path A Hugging Face folder, a GGUF file or an ONNX file.
///
/// For Hugging Face and GGUF, time and memory depend on the list of tensors and on the tokenizer,
/// not on the weights. For ONNX, they also depend on the weights.
///
/// Errors: as import_format().
/// - bad_file: a file is missing, damaged, over a limit, or contradicts another file. The message
///   names the file and the place.
/// - unsupported: the architecture, a setting, an operator or a dtype is not supported. The message
///   names it. A build without protobuf does not support ONNX.
/// - bad_argument: an option is set that this format or task does not use.
/// - bad_argument: a value of an option is not allowed, or a name or pattern matches nothing.
/// - io_error: a file cannot be read.
/// - cancelled: ImportOptions::progress stopped it.
Result<ImportedModel> import_model(const std::string& path, const ImportOptions& options = {});

// ---------------------------------------------------------------------------------------- adapters

/// Adds a LoRA adapter of another format to a model. The report (adapters.h) has the names of the
/// weights that it changes.
///
/// \param model A model that import_model() made, or the same model, saved and opened again.
/// \param path A PEFT folder with adapter_config.json and adapter_model.safetensors, or a GGUF
///   file with general.type "adapter".
/// \param name The name of the new adapter.
///
/// The factors are copied. If the call fails, the model is unchanged. Use save_adapter() to save
/// the adapter as a Bowline file.
///
/// Errors:
/// - bad_argument: the path is empty or contains a NUL character, or the name is taken.
/// - bad_file: the path does not exist, is no adapter, is damaged, or belongs to another model.
/// - unsupported: a setting is not supported, such as DoRA or a rank per module.
/// - io_error: a file cannot be read.
Result<AdapterReport> import_adapter(Model& model, const std::string& path,
                                     std::string_view name = "lora");

}  // namespace bowline

#pragma GCC visibility pop
