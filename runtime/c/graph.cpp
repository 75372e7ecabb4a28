// Builders of graphs.
#include "c/convert.h"
#include "generated/c_api.h"

namespace bowline::c {
namespace {

bowline_value c_struct(const Value& from) { return {from.index, from.graph}; }
Value graph_value(bowline_value from) { return {from.index, from.graph}; }

Status put_value(const Value& from, bowline_value* out) {
  if (out != nullptr) {
    *out = c_struct(from);
  }
  return {};
}

std::vector<Value> values_of(const bowline_value* from, size_t count) {
  std::vector<Value> out;
  std::transform(from, from + count, std::back_inserter(out), graph_value);
  return out;
}

Result<Attribute> attribute_of(const bowline_attribute& from) {
  BOWLINE_TRY_ASSIGN(const std::string_view name, required(from.name, "name of an attribute"));
  switch (from.kind) {
    case BOWLINE_ATTRIBUTE_INTEGER:
      return Attribute(name, from.integer);
    case BOWLINE_ATTRIBUTE_REAL:
      return Attribute(name, from.real);
    case BOWLINE_ATTRIBUTE_TEXT: {
      BOWLINE_TRY_ASSIGN(const std::string_view value, required(from.text, name));
      return Attribute(name, value);
    }
    case BOWLINE_ATTRIBUTE_DIMS: {
      BOWLINE_TRY_ASSIGN(std::vector<GraphDim> dims, graph_dims(from.dims, from.count));
      return Attribute(name, std::move(dims));
    }
    case BOWLINE_ATTRIBUTE_REALS: {
      BOWLINE_REQUIRE(from.reals != nullptr || from.count == 0, "\"reals\" is NULL.");
      return Attribute(name, std::vector<double>(from.reals, from.reals + from.count));
    }
    case BOWLINE_ATTRIBUTE_TEXTS: {
      std::vector<std::string> texts;
      for (size_t i = 0; i < from.count; ++i) {
        BOWLINE_TRY(given(from.texts, "texts"));
        BOWLINE_TRY_ASSIGN(const std::string_view value, required(from.texts[i], name));
        texts.emplace_back(value);
      }
      return Attribute(name, std::move(texts));
    }
    default:
      return Status(Code::bad_argument,
                    format("Attribute \"{}\" has the unknown kind {}.", name, from.kind));
  }
}

// Calls the function of the program that builds the body of a Repeat. The handle of the body is
// valid during the call.
Status build_body(const BuilderObject& outer, bowline_body body, void* user, GraphBuilder& inner,
                  const std::vector<Value>& carried, std::vector<Value>* next) {
  std::vector<bowline_value> from(carried.size());
  std::vector<bowline_value> to(carried.size());
  std::ranges::transform(carried, from.begin(), [](const Value& v) { return c_struct(v); });
  auto* const handle = make_handle<bowline_builder>(
      std::make_shared<BuilderObject>(BuilderObject{outer.model, nullptr, &inner}), nullptr);
  const Status status = call_back([&](bowline_error** error) {
    return body(user, handle, from.data(), from.size(), to.data(), error);
  });
  retire(handle_of(handle));
  BOWLINE_TRY(status);
  *next = values_of(to.data(), to.size());
  return {};
}

}  // namespace

namespace api {

bowline_code builder_create(bowline_model* model, const char* name, bowline_builder** out,
                            bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const auto object, object_of(model));
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const Use use, Use::of(handle_of(model)->family));
    auto builder = std::make_unique<GraphBuilder>(object->model, n);
    GraphBuilder* const pointer = builder.get();
    *out = make_handle<bowline_builder>(
        std::make_shared<BuilderObject>(BuilderObject{object, std::move(builder), pointer}),
        handle_of(model)->family);
    return {};
  });
}

bowline_code builder_close(bowline_builder* builder, bowline_error** error) {
  return call(error, [&]() -> Status {
    if (builder != nullptr) {
      BOWLINE_TRY_ASSIGN(const auto object, object_of(builder));
      // builder_repeat() closes it.
      BOWLINE_REQUIRE(object->own != nullptr, "The builder of a body is closed by the library.");
    }
    BOWLINE_TRY(close_handle(builder));
    return {};
  });
}

bowline_code builder_input(bowline_builder* builder, const char* name, bowline_dtype dtype,
                           const bowline_graph_dim* dims, size_t rank, bowline_value* out,
                           bowline_error** error) {
  return with(builder, error, [&](BuilderObject& b) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const DType type, dtype_of(dtype));
    BOWLINE_TRY_ASSIGN(const std::vector<GraphDim> shape, graph_dims(dims, rank));
    return put_value(b.builder->input(n, type, shape), out);
  });
}

bowline_code builder_parameter(bowline_builder* builder, bowline_parameter parameter,
                               bowline_value* out, bowline_error** error) {
  return with(builder, error, [&](BuilderObject& b) {
    return put_value(b.builder->parameter(Parameter{parameter.index, parameter.model}), out);
  });
}

bowline_code builder_parameter_list(bowline_builder* builder, const bowline_parameter* items,
                                    size_t count, bowline_value* out, bowline_error** error) {
  return with(builder, error, [&](BuilderObject& b) -> Status {
    BOWLINE_REQUIRE(items != nullptr || count == 0, "\"items\" is NULL.");
    ParameterList list;
    std::transform(items, items + count, std::back_inserter(list.items),
                   [](const bowline_parameter& p) {
                     return Parameter{p.index, p.model};
                   });
    return put_value(b.builder->parameter(list), out);
  });
}

bowline_code builder_op(bowline_builder* builder, const char* name, const bowline_value* inputs,
                        size_t input_count, const bowline_attribute* attributes,
                        size_t attribute_count, bowline_value* out, bowline_error** error) {
  return with(builder, error, [&](BuilderObject& b) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_REQUIRE(inputs != nullptr || input_count == 0, "\"inputs\" is NULL.");
    BOWLINE_TRY_ASSIGN(const std::vector<Attribute> list,
                       read_list(attributes, attribute_count, "bowline_attribute", attribute_of));
    return put_value(b.builder->op(n, values_of(inputs, input_count), list), out);
  });
}

bowline_code builder_last_outputs(bowline_builder* builder, bowline_value* out, size_t capacity,
                                  size_t* count, bowline_error** error) {
  return with(builder, error, [&](BuilderObject& b) -> Status {
    BOWLINE_REQUIRE(out != nullptr || capacity == 0, "\"out\" is NULL.");
    const std::vector<Value> values = b.builder->last_outputs();
    for (size_t i = 0; i < std::min(capacity, values.size()); ++i) {
      out[i] = c_struct(values[i]);
    }
    return put(Result<size_t>(values.size()), count);
  });
}

bowline_code builder_repeat(bowline_builder* builder, int32_t count, const bowline_value* carried,
                            size_t carried_count, bowline_body body, void* user, bowline_value* out,
                            bowline_error** error) {
  return with(builder, error, [&](BuilderObject& b) -> Status {
    BOWLINE_REQUIRE(carried != nullptr || carried_count == 0, "\"carried\" is NULL.");
    BOWLINE_REQUIRE(out != nullptr || carried_count == 0, "\"out\" is NULL.");
    BOWLINE_REQUIRE(body != nullptr, "\"body\" is NULL.");
    Status status;
    const std::vector<Value> values =
        b.builder->repeat(count, values_of(carried, carried_count),
                          [&](GraphBuilder& inner, const std::vector<Value>& from) {
                            std::vector<Value> next;
                            status = build_body(b, body, user, inner, from, &next);
                            return next;
                          });
    BOWLINE_TRY(status);
    for (size_t i = 0; i < std::min(carried_count, values.size()); ++i) {
      out[i] = c_struct(values[i]);
    }
    return {};
  });
}

bowline_code builder_capture(bowline_builder* builder, bowline_value outer, bowline_value* out,
                             bowline_error** error) {
  return with(builder, error, [&](BuilderObject& b) {
    return put_value(b.builder->capture(graph_value(outer)), out);
  });
}

bowline_code builder_named(bowline_builder* builder, const char* name, bowline_error** error) {
  return with(builder, error, [&](BuilderObject& b) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    b.builder->named(n);
    return {};
  });
}

bowline_code builder_output(bowline_builder* builder, const char* name, bowline_value value,
                            bowline_error** error) {
  return with(builder, error, [&](BuilderObject& b) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    b.builder->output(n, graph_value(value));
    return {};
  });
}

bowline_code builder_finish(bowline_builder* builder, bowline_error** error) {
  return with(builder, error, [&](BuilderObject& b) { return b.builder->finish(); });
}

}  // namespace api
}  // namespace bowline::c
