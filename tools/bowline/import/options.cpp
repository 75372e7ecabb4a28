// The options of an import, from the flags.
#include <fmt/format.h>

#include <algorithm>

#include "base/escape.h"
#include "base/status.h"
#include "common/flags.h"
#include "common/strings.h"
#include "common/text.h"
#include "data/examples.h"
#include "import/flags.h"

namespace bowline::command {
namespace {

std::optional<DType> float_of(std::string_view name) {
  for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
    if (name_of(t) == name) {
      return t;
    }
  }
  return std::nullopt;
}

// Parses "x=1,3,48,192" into the name and the numbers. If `batch` is not empty, this word stands
// for -1, the dynamic batch.
// Errors  bad_argument: the text has another form.
template <class T>
Result<std::pair<std::string, std::vector<T>>> parse_numbers(const std::string& flag,
                                                             const std::string& text,
                                                             const std::string& batch = "") {
  const size_t equals = text.rfind('=');
  const std::string form =
      fmt::format("{} \"{}\" is not of the form NAME=NUMBER,NUMBER,...", flag, escaped(text));
  BOWLINE_REQUIRE(equals != std::string::npos && equals > 0, "{}", form);
  std::vector<T> numbers;
  for (size_t at = equals + 1; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view entry = std::string_view(text).substr(at, end - at);
    constexpr T kBatch = -1;  // in OnnxImportOptions::shapes
    const bool is_batch = !batch.empty() && entry == batch;
    const std::optional<T> number = is_batch ? kBatch : number_in<T>(entry);
    BOWLINE_REQUIRE(number && (batch.empty() || is_batch || *number != kBatch), "{}", form);
    numbers.push_back(*number);
    at = end + 1;
  }
  return std::pair(text.substr(0, equals), numbers);
}

Result<OnnxImportOptions> onnx_options(const ImportFlags& o) {
  OnnxImportOptions options = o.options.onnx;
  options.tie_equal = o.tie_equal;
  for (const std::string& flag : o.dims) {
    BOWLINE_TRY_ASSIGN(BoundDim dim, parse_dim(flag));
    options.dims.push_back(std::move(dim));
  }
  for (const std::string& flag : o.shapes) {
    BOWLINE_TRY_ASSIGN(auto shape, parse_numbers<int64_t>("--shape", flag, options.batch_dim));
    options.shapes.insert(std::move(shape));
  }
  for (const std::string& flag : o.given) {
    BOWLINE_TRY_ASSIGN(auto values, parse_numbers<double>("--given", flag));
    options.given.insert(std::move(values));
  }
  return options;
}

Result<TextImportOptions> text_options(const ImportFlags& o) {
  TextImportOptions options = o.options.text;
  options.tie_equal = o.tie_equal;
  for (const ImportTask t : kImportTasks) {
    if (name_of(t) == o.task) {
      options.task = t;
    }
  }
  if (!o.labels.empty()) {
    BOWLINE_TRY_ASSIGN(const std::string text, read_text(o.labels, true));
    BOWLINE_TRY_ASSIGN(options.labels, read_labels(text, o.labels));
  }
  options.dtype = float_of(o.dtype);
  options.kv_dtype = o.kv_dtype == "int8" ? DType::i8 : float_of(o.kv_dtype).value_or(DType::f32);
  return options;
}

}  // namespace

Result<ImportOptions> options_of(const ImportFlags& o, ImportFormat kind) {
  ImportOptions out;
  if (kind == ImportFormat::onnx) {
    out.text.skeleton = o.options.text.skeleton;  // import_model() refuses it
    BOWLINE_TRY_ASSIGN(out.onnx, onnx_options(o));
  } else {
    BOWLINE_TRY_ASSIGN(out.text, text_options(o));
  }
  return out;
}

}  // namespace bowline::command
