/// \file
/// Import of models from other formats: the C interface of bowline_import.h.
///
/// bowline_c.h has the rules. bowline_import.h says which files are refused.
#ifndef BOWLINE_C_IMPORT_H
#define BOWLINE_C_IMPORT_H

#include "api.h"

#ifdef __cplusplus
extern "C" {
#endif

/// As bowline::ImportFormat.
enum { BOWLINE_IMPORT_HUGGING_FACE = 0, BOWLINE_IMPORT_GGUF = 1, BOWLINE_IMPORT_ONNX = 2 };

/// As bowline::ImportTask.
enum {
  BOWLINE_TASK_GENERATE = 0,
  BOWLINE_TASK_CLASSIFY = 1,
  BOWLINE_TASK_EMBED = 2,
  BOWLINE_TASK_TAG = 3
};
/// An optional task that is not set.
#define BOWLINE_NO_TASK (-1)

/// As bowline::ImportProgress::Part.
enum {
  BOWLINE_IMPORT_FILES = 0,
  BOWLINE_IMPORT_BYTES = 1,
  BOWLINE_IMPORT_TENSORS = 2,
  BOWLINE_IMPORT_NODES = 3
};

/// As bowline::TextImportOptions. The pointers are optional.
typedef struct bowline_text_import_options {
  size_t size;
  int32_t task;  ///< BOWLINE_TASK_GENERATE to BOWLINE_TASK_TAG, or BOWLINE_NO_TASK.
  const char* const* labels;
  size_t label_count;
  bowline_dtype dtype;  ///< BOWLINE_F32, BOWLINE_F16, BOWLINE_BF16 or BOWLINE_NO_DTYPE.
  bowline_dtype kv_dtype;
  const char* pooling;
  int32_t multi_label;
  double label_smoothing;
  const char* const* ties;  ///< `tie_count` pairs: a tensor, then the tensor that it is tied to.
  size_t tie_count;
  int32_t tie_equal;
  int32_t dropout;
  uint64_t seed;
  int32_t skeleton;
  const int64_t* matryoshka;  ///< Widths of shortened embeddings.
  size_t matryoshka_count;
} bowline_text_import_options;

/// The shape of an input. As an item of bowline::OnnxImportOptions::shapes.
typedef struct bowline_input_shape {
  size_t size;
  const char* name;
  const int64_t* shape;
  int32_t rank;  ///< Number of dimensions of `shape`.
} bowline_input_shape;

/// The values of an input. As an item of bowline::OnnxImportOptions::given.
typedef struct bowline_input_values {
  size_t size;
  const char* name;
  const double* values;
  size_t count;
} bowline_input_values;

/// As bowline::OnnxImportOptions. The pointers are optional.
typedef struct bowline_onnx_import_options {
  size_t size;
  const char* entry;  ///< NULL: "forward".
  const bowline_bound_dim* dims;
  size_t dim_count;
  const bowline_input_shape* shapes;
  size_t shape_count;
  const char* batch_dim;
  const bowline_input_values* given;
  size_t given_count;
  const char* const* trainable;
  size_t trainable_count;
  const char* const* freeze;
  size_t freeze_count;
  int32_t tie_equal;
} bowline_onnx_import_options;

/// As bowline::ImportProgress.
typedef struct bowline_import_progress {
  size_t size;
  int32_t part;  ///< BOWLINE_IMPORT_FILES to BOWLINE_IMPORT_NODES.
  uint64_t done;
  uint64_t total;
} bowline_import_progress;

/// Tells where import_model() is. A return value other than 0 stops it: import_model() returns
/// BOWLINE_CANCELLED. So does an exception. It is called in the thread of import_model().
typedef int32_t (*bowline_import_callback)(void* user, const bowline_import_progress* progress);

/// As bowline::ImportOptions. The pointers are optional.
typedef struct bowline_import_options {
  size_t size;
  const bowline_text_import_options* text;
  const bowline_onnx_import_options* onnx;
  bowline_import_callback progress;
  void* user;  ///< Passed to `progress`.
} bowline_import_options;

/// The functions of bowline::import. See bowline_c.h for the rules. Any thread may call them.
typedef struct bowline_import_api {
  size_t size;  ///< Size of the table of this library.

  /// name_of(ImportFormat), name_of(ImportTask) and name_of(ImportProgress::Part), for example
  /// "GGUF". An unknown number has the name "unknown".
  const char* (*import_format_name)(int32_t format);
  const char* (*import_task_name)(int32_t task);
  const char* (*import_part_name)(int32_t part);

  /// Set all members but `size` to their defaults. The caller sets `size` before.
  bowline_code (*text_import_options_init)(bowline_text_import_options* options,
                                           bowline_error** error);
  bowline_code (*onnx_import_options_init)(bowline_onnx_import_options* options,
                                           bowline_error** error);
  bowline_code (*import_options_init)(bowline_import_options* options, bowline_error** error);

  /// `out` receives BOWLINE_IMPORT_HUGGING_FACE, BOWLINE_IMPORT_GGUF or BOWLINE_IMPORT_ONNX.
  bowline_code (*import_format)(const char* path, int32_t* out, bowline_error** error);
  /// `out` receives a model as model_open() returns it. `report` (may be NULL) receives JSON:
  /// ImportReport.
  bowline_code (*import_model)(const char* path, const bowline_import_options* options,
                               bowline_model** out, bowline_buffer** report, bowline_error** error);
  /// ImportedModel::not_finite(), as JSON: a list of NotFiniteTensor. Any thread may call it, also
  /// while another thread uses the model. BOWLINE_BAD_ARGUMENT: import_model() did not make this
  /// model. A clone, and a model that was saved and opened, do not count.
  bowline_code (*model_not_finite)(bowline_model* model, bowline_buffer** out,
                                   bowline_error** error);
  /// import_adapter(). `name` NULL: "lora". `report` (may be NULL) receives JSON: AdapterReport.
  /// One thread at a time may use the model.
  bowline_code (*model_import_adapter)(bowline_model* model, const char* path, const char* name,
                                       bowline_buffer** report, bowline_error** error);
} bowline_import_api;

/// Returns the table of functions of this version. NULL: the library does not have this version, or
/// was built without bowline::import.
BOWLINE_C_EXPORT const bowline_import_api* bowline_get_import_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif  // BOWLINE_C_IMPORT_H
