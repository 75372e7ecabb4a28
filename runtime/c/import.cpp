// Models and adapters of other formats.
#ifdef BOWLINE_C_IMPORT
#include "bowline_import.h"
#include "c/convert.h"
#include "generated/c_api.h"

namespace bowline::c {
namespace {

static_assert(same(ImportFormat::gguf, BOWLINE_IMPORT_GGUF) &&
              same(ImportFormat::onnx, BOWLINE_IMPORT_ONNX));
static_assert(same(ImportTask::classify, BOWLINE_TASK_CLASSIFY) &&
              same(ImportTask::embed, BOWLINE_TASK_EMBED) &&
              same(ImportTask::tag, BOWLINE_TASK_TAG));
static_assert(same(ImportProgress::Part::bytes, BOWLINE_IMPORT_BYTES) &&
              same(ImportProgress::Part::tensors, BOWLINE_IMPORT_TENSORS) &&
              same(ImportProgress::Part::nodes, BOWLINE_IMPORT_NODES));

// The name of a value of an enum whose values are numbered from 0 to `last`.
template <class E>
const char* name_or_unknown(int32_t value, E last) {
  const Result<E> known = enum_of(value, last, "");
  return known.ok() ? bowline::name_of(known.value()).data() : "unknown";
}

bowline_text_import_options c_struct(const TextImportOptions& from) {
  bowline_text_import_options out = {};
  out.task = BOWLINE_NO_TASK;
  out.dtype = BOWLINE_NO_DTYPE;
  out.kv_dtype = static_cast<bowline_dtype>(from.kv_dtype);
  out.multi_label = from.multi_label ? 1 : 0;
  out.label_smoothing = from.label_smoothing;
  out.tie_equal = from.tie_equal ? 1 : 0;
  out.dropout = from.dropout ? 1 : 0;
  out.seed = from.seed;
  out.skeleton = from.skeleton ? 1 : 0;
  return out;
}

bowline_onnx_import_options c_struct(const OnnxImportOptions& from) {
  bowline_onnx_import_options out = {};
  out.tie_equal = from.tie_equal ? 1 : 0;
  return out;
}

Result<std::vector<std::string>> texts_of(const char* const* from, size_t count,
                                          std::string_view name) {
  BOWLINE_TRY_ASSIGN(const auto list, list_of(from, count, name));
  std::vector<std::string> out;
  for (const char* item : list) {
    BOWLINE_TRY_ASSIGN(const std::string_view text, required(item, name));
    out.emplace_back(text);
  }
  return out;
}

Result<TextImportOptions> text_options_of(const bowline_text_import_options* from) {
  TextImportOptions out;
  BOWLINE_TRY_ASSIGN(const bowline_text_import_options o,
                     read(from, c_struct(out), "bowline_text_import_options"));
  if (o.task != BOWLINE_NO_TASK) {
    BOWLINE_TRY_ASSIGN(out.task, enum_of(o.task, ImportTask::tag, "The task of an import"));
  }
  BOWLINE_TRY_ASSIGN(out.labels, texts_of(o.labels, o.label_count, "labels"));
  BOWLINE_TRY_ASSIGN(out.dtype, optional_dtype(o.dtype));
  BOWLINE_TRY_ASSIGN(out.kv_dtype, dtype_of(o.kv_dtype));
  out.pooling = text_or(o.pooling, "");
  out.multi_label = o.multi_label != 0;
  out.label_smoothing = o.label_smoothing;
  BOWLINE_TRY_ASSIGN(const auto widths, list_of(o.matryoshka, o.matryoshka_count, "matryoshka"));
  out.matryoshka.assign(widths.begin(), widths.end());
  BOWLINE_REQUIRE(o.tie_count <= SIZE_MAX / 2, "There are {} ties.", o.tie_count);
  BOWLINE_TRY_ASSIGN(std::vector<std::string> tied, texts_of(o.ties, 2 * o.tie_count, "ties"));
  for (size_t i = 0; i < tied.size(); i += 2) {
    out.ties.emplace_back(std::move(tied[i]), std::move(tied[i + 1]));
  }
  out.tie_equal = o.tie_equal != 0;
  out.dropout = o.dropout != 0;
  out.seed = o.seed;
  out.skeleton = o.skeleton != 0;
  return out;
}

// Puts the items of a list with names into a map.
// Errors  bad_argument: a name is there twice.
template <class T>
Result<std::map<std::string, T>> map_of(std::vector<std::pair<std::string, T>> items,
                                        std::string_view name) {
  std::map<std::string, T> out;
  for (auto& [key, value] : items) {
    BOWLINE_REQUIRE(out.find(key) == out.end(), "\"{}\" has the input \"{}\" twice.", name, key);
    out.emplace(std::move(key), std::move(value));
  }
  return out;
}

using Shape = std::pair<std::string, std::vector<int64_t>>;
Result<Shape> input_shape_of(const bowline_input_shape& from) {
  BOWLINE_TRY_ASSIGN(const std::string_view name, required(from.name, "name of a shape"));
  BOWLINE_REQUIRE(from.rank >= 0, "The shape of the input \"{}\" has {} dimensions.", name,
                  from.rank);
  BOWLINE_TRY_ASSIGN(const auto sizes,
                     list_of(from.shape, static_cast<size_t>(from.rank), "shape"));
  return Shape(name, std::vector<int64_t>(sizes.begin(), sizes.end()));
}

using Values = std::pair<std::string, std::vector<double>>;
Result<Values> input_values_of(const bowline_input_values& from) {
  BOWLINE_TRY_ASSIGN(const std::string_view name, required(from.name, "name of an input"));
  BOWLINE_TRY_ASSIGN(const auto values, list_of(from.values, from.count, "values"));
  return Values(name, std::vector<double>(values.begin(), values.end()));
}

Result<OnnxImportOptions> onnx_options_of(const bowline_onnx_import_options* from) {
  OnnxImportOptions out;
  BOWLINE_TRY_ASSIGN(const bowline_onnx_import_options o,
                     read(from, c_struct(out), "bowline_onnx_import_options"));
  out.entry = text_or(o.entry, out.entry);
  BOWLINE_TRY_ASSIGN(out.dims, bound_dims(o.dims, o.dim_count));
  BOWLINE_TRY_ASSIGN(auto shapes,
                     read_list(o.shapes, o.shape_count, "bowline_input_shape", input_shape_of));
  BOWLINE_TRY_ASSIGN(out.shapes, map_of(std::move(shapes), "shapes"));
  out.batch_dim = text_or(o.batch_dim, "");
  BOWLINE_TRY_ASSIGN(auto given_values,
                     read_list(o.given, o.given_count, "bowline_input_values", input_values_of));
  BOWLINE_TRY_ASSIGN(out.given, map_of(std::move(given_values), "given"));
  BOWLINE_TRY_ASSIGN(out.trainable, texts_of(o.trainable, o.trainable_count, "trainable"));
  BOWLINE_TRY_ASSIGN(out.freeze, texts_of(o.freeze, o.freeze_count, "freeze"));
  out.tie_equal = o.tie_equal != 0;
  return out;
}

// Calls the program. Returns false if it stops the import.
bool goes_on(const bowline_import_options& options, const ImportProgress& at) {
  bowline_import_progress where = {};
  where.size = sizeof(where);
  where.part = static_cast<int32_t>(at.part);
  where.done = at.done;
  where.total = at.total;
  return options.progress(options.user, &where) == 0;
}

Result<ImportOptions> import_options_of(const bowline_import_options* from) {
  BOWLINE_TRY_ASSIGN(const bowline_import_options o,
                     read(from, bowline_import_options{}, "bowline_import_options"));
  ImportOptions out;
  BOWLINE_TRY_ASSIGN(out.text, text_options_of(o.text));
  BOWLINE_TRY_ASSIGN(out.onnx, onnx_options_of(o.onnx));
  if (o.progress != nullptr) {
    out.progress = [o](const ImportProgress& at) { return goes_on(o, at); };
  }
  return out;
}

}  // namespace

namespace api {

const char* import_format_name(int32_t format) {
  return name_or_unknown(format, ImportFormat::onnx);
}
const char* import_task_name(int32_t task) { return name_or_unknown(task, ImportTask::tag); }
const char* import_part_name(int32_t part) {
  return name_or_unknown(part, ImportProgress::Part::nodes);
}

bowline_code text_import_options_init(bowline_text_import_options* options, bowline_error** error) {
  return call(error, [&] {
    return write(c_struct(TextImportOptions{}), options, "bowline_text_import_options");
  });
}
bowline_code onnx_import_options_init(bowline_onnx_import_options* options, bowline_error** error) {
  return call(error, [&] {
    return write(c_struct(OnnxImportOptions{}), options, "bowline_onnx_import_options");
  });
}
bowline_code import_options_init(bowline_import_options* options, bowline_error** error) {
  return call(error,
              [&] { return write(bowline_import_options{}, options, "bowline_import_options"); });
}

bowline_code import_format(const char* path, int32_t* out, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view from, required(path, "path"));
    return put(bowline::import_format(std::string(from)), out);
  });
}

bowline_code import_model(const char* path, const bowline_import_options* options,
                          bowline_model** out, bowline_buffer** report, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view from, required(path, "path"));
    BOWLINE_TRY_ASSIGN(const ImportOptions o, import_options_of(options));
    BOWLINE_TRY_ASSIGN(ImportedModel imported, bowline::import_model(std::string(from), o));
    auto text = std::make_unique<bowline_buffer>(bowline_buffer{text_of(json_of(imported.report))});
    std::function<std::string()> not_finite = [found = std::move(imported.not_finite)] {
      return text_of(json_of(found()));
    };
    *out = make_handle<bowline_model>(std::make_shared<ModelObject>(ModelObject{
                                          std::move(imported.model), std::move(not_finite)}),
                                      std::make_shared<Family>());
    if (report != nullptr) {
      *report = text.release();
    }
    return {};
  });
}

// The thread of the caller does not use the family: another one may read the weights meanwhile.
bowline_code model_not_finite(bowline_model* model, bowline_buffer** out, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY_ASSIGN(const auto object, object_of(model));
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_REQUIRE(object->not_finite != nullptr,
                    "The model was not made by import_model(), so nothing counted its values that "
                    "are not finite.");
    return put_bytes(object->not_finite(), out);
  });
}

bowline_code model_import_adapter(bowline_model* model, const char* path, const char* name,
                                  bowline_buffer** report, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view from, required(path, "path"));
    return put_json(bowline::import_adapter(m.model, std::string(from), text_or(name, "lora")),
                    report);
  });
}

}  // namespace api
}  // namespace bowline::c
#endif  // BOWLINE_C_IMPORT
