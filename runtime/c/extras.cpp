// Quantization, weight formats and adapters.
#include <functional>

#include "c/convert.h"
#include "generated/c_api.h"

namespace bowline::c {
namespace {

bowline_adapter_options c_struct(const AdapterOptions& from) {
  bowline_adapter_options out = {};
  out.rank = from.rank;
  out.alpha = from.alpha;
  out.dropout = from.dropout;
  out.per_parameter = from.per_parameter ? 1 : 0;
  out.freeze_others = from.freeze_others ? 1 : 0;
  out.seed = from.seed;
  return out;
}

Result<AdapterOptions> adapter_options_of(const bowline_adapter_options* from) {
  AdapterOptions out;
  BOWLINE_TRY_ASSIGN(const bowline_adapter_options o,
                     read(from, c_struct(out), "bowline_adapter_options"));
  out.rank = o.rank;
  out.alpha = o.alpha;
  out.dropout = o.dropout;
  out.target = text_or(o.target, out.target);
  out.per_parameter = o.per_parameter != 0;
  out.freeze_others = o.freeze_others != 0;
  out.seed = o.seed;
  return out;
}

// Calls the layout of the program for a group of storages.
Result<FormatLayout> layout_by(const bowline_weight_format& format,
                               std::span<const StorageInfo> storages) {
  const std::string description = text_of(json_of(storages));
  FormatLayout out;
  out.offsets.resize(storages.size());
  BOWLINE_TRY(call_back([&](bowline_error** error) {
    return format.layout(format.user, description.c_str(), storages.size(), &out.bytes,
                         out.offsets.data(), error);
  }));
  return out;
}

Result<WeightFormat> weight_format_of(const bowline_weight_format* from) {
  BOWLINE_TRY_ASSIGN(const bowline_weight_format f, read(from, "bowline_weight_format"));
  WeightFormat out;
  BOWLINE_TRY_ASSIGN(const std::string_view name, required(f.name, "name of a weight format"));
  out.name = name;
  for (size_t i = 0; i < f.op_count; ++i) {
    BOWLINE_TRY(given(f.ops, "ops"));
    BOWLINE_TRY_ASSIGN(const std::string_view op, required(f.ops[i], "name of an operator"));
    out.ops.emplace_back(op);
  }
  out.device = text_or(f.device, out.device);
  out.about = text_or(f.about, "");
  BOWLINE_REQUIRE(f.layout != nullptr, "\"layout\" is NULL.");
  out.layout = [f](std::span<const StorageInfo> storages) { return layout_by(f, storages); };
  return out;
}

}  // namespace

namespace api {

bowline_code model_quantize(bowline_model* model, const char* encoding, const char* pattern,
                            bowline_buffer** report, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view to, required(encoding, "encoding"));
    return put_json(bowline::quantize(m.model, to, text_or(pattern, "*")), report);
  });
}

bowline_code model_dequantize(bowline_model* model, const char* pattern, bowline_dtype to,
                              bowline_buffer** report, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const DType type, dtype_of(to));
    return put_json(bowline::dequantize(m.model, text_or(pattern, "*"), type), report);
  });
}

bowline_code model_set_weight_format(bowline_model* model, const char* format, const char* pattern,
                                     bowline_buffer** report, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view f, required(format, "format"));
    return put_json(bowline::set_weight_format(m.model, f, text_or(pattern, "*")), report);
  });
}

bowline_code model_restore_weight_format(bowline_model* model, const char* pattern,
                                         uint32_t* dissolved, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) {
    return put(bowline::restore_weight_format(m.model, text_or(pattern, "*")), dissolved);
  });
}

bowline_code model_register_weight_format(bowline_model* model, const bowline_weight_format* format,
                                          bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(WeightFormat f, weight_format_of(format));
    return bowline::register_weight_format(m.model, std::move(f));
  });
}

bowline_code model_weight_formats(bowline_model* model, bowline_buffer** out,
                                  bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(Result(bowline::weight_formats(m.model)), out);
  });
}

bowline_code adapter_options_init(bowline_adapter_options* options, bowline_error** error) {
  return call(
      error, [&] { return write(c_struct(AdapterOptions{}), options, "bowline_adapter_options"); });
}

bowline_code model_add_adapter(bowline_model* model, const char* name,
                               const bowline_adapter_options* options, bowline_buffer** report,
                               bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const AdapterOptions o, adapter_options_of(options));
    return put_json(bowline::add_adapter(m.model, n, o), report);
  });
}

bowline_code model_adapters(bowline_model* model, bowline_buffer** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(Result(bowline::adapters(m.model)), out);
  });
}

bowline_code model_set_adapter_weight(bowline_model* model, const char* name, float weight,
                                      bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    return bowline::set_adapter_weight(m.model, n, weight);
  });
}

bowline_code model_adapter_weight(bowline_model* model, const char* name, float* out,
                                  bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY(given(out, "out"));
    return put(bowline::adapter_weight(m.model, n), out);
  });
}

bowline_code model_remove_adapter(bowline_model* model, const char* name, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    return bowline::remove_adapter(m.model, n);
  });
}

bowline_code model_merge_adapter(bowline_model* model, const char* name, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    return bowline::merge_adapter(m.model, n);
  });
}

bowline_code model_save_adapter(bowline_model* model, const char* name, const char* path,
                                bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const std::string_view to, required(path, "path"));
    return bowline::save_adapter(m.model, n, std::string(to));
  });
}

bowline_code model_load_adapter(bowline_model* model, const char* path, const char* name,
                                bowline_buffer** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view from, required(path, "path"));
    return put_text(bowline::load_adapter(m.model, std::string(from), text_or(name, "")), out);
  });
}

bowline_code model_copy_values_from(bowline_model* model, bowline_model* other,
                                    bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY_ASSIGN(const auto to, object_of(model));
    BOWLINE_TRY_ASSIGN(const auto from, object_of(other));
    std::shared_ptr<Family> first = handle_of(model)->family;
    std::shared_ptr<Family> second = handle_of(other)->family;
    if (first == second) {
      BOWLINE_TRY_ASSIGN(const Use use, Use::wait_for(first));
      return to->model.copy_values_from(from->model);
    }
    // In the order of addresses, so that two threads that copy in both directions do not block.
    if (std::less<>()(second.get(), first.get())) {
      std::swap(first, second);
    }
    // Before it waits for one model: another thread may hold that model and wait for this thread.
    BOWLINE_TRY(Use::check_callback(*first));
    BOWLINE_TRY(Use::check_callback(*second));
    BOWLINE_TRY_ASSIGN(const Use one, Use::wait_for(first));
    BOWLINE_TRY_ASSIGN(const Use two, Use::wait_for(second));
    return to->model.copy_values_from(from->model);
  });
}

}  // namespace api
}  // namespace bowline::c
