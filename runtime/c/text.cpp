// Tokenizers, chat templates and text generation.
#ifdef BOWLINE_C_TEXT
#include "bowline_text.h"
#include "c/convert.h"
#include "generated/c_api.h"

namespace bowline::c {

struct GeneratorObject {
  std::shared_ptr<ModelObject> model;
  std::shared_ptr<const Device> device;
  text::Generator generator;
};

template <>
struct HandleType<bowline_tokenizer> : HandleOf<const text::Tokenizer, Kind::tokenizer> {};
template <>
struct HandleType<bowline_decoder> : HandleOf<text::Decoder, Kind::decoder> {};
template <>
struct HandleType<bowline_chat_template> : HandleOf<const text::ChatTemplate, Kind::chat_template> {
};
template <>
struct HandleType<bowline_generator> : HandleOf<GeneratorObject, Kind::generator> {};
template <>
struct HandleType<bowline_stop_strings> : HandleOf<text::StopStrings, Kind::stop_strings> {};

namespace {

// Gives an object to the caller as a handle. One thread at a time may use it if it has a family.
template <class C, class T>
Status put_handle(Result<T> object, C** out, std::shared_ptr<Family> family = nullptr) {
  if (!object.ok()) {
    return std::move(object).status();
  }
  *out = make_handle<C>(std::make_shared<T>(std::move(object).value()), std::move(family));
  return {};
}

bowline_encode_options c_struct(const text::EncodeOptions& from) {
  bowline_encode_options out = {};
  out.special_tokens = from.special_tokens ? 1 : 0;
  out.parse_special = from.parse_special ? 1 : 0;
  out.max_tokens = from.max_tokens;
  return out;
}

Result<text::EncodeOptions> encode_options_of(const bowline_encode_options* from) {
  text::EncodeOptions out;
  BOWLINE_TRY_ASSIGN(const bowline_encode_options o,
                     read(from, c_struct(out), "bowline_encode_options"));
  out.special_tokens = o.special_tokens != 0;
  out.parse_special = o.parse_special != 0;
  out.max_tokens = o.max_tokens;
  return out;
}

bowline_sampler_options c_struct(const text::SamplerOptions& from) {
  bowline_sampler_options out = {};
  out.temperature = from.temperature;
  out.top_k = from.top_k;
  out.top_p = from.top_p;
  out.min_p = from.min_p;
  out.repetition_penalty = from.repetition_penalty;
  out.repetition_window = from.repetition_window;
  out.seed = from.seed;
  return out;
}

Result<text::SamplerOptions> sampler_options_of(const bowline_sampler_options* from) {
  text::SamplerOptions out;
  BOWLINE_TRY_ASSIGN(const bowline_sampler_options o,
                     read(from, c_struct(out), "bowline_sampler_options"));
  out.temperature = o.temperature;
  out.top_k = o.top_k;
  out.top_p = o.top_p;
  out.min_p = o.min_p;
  out.repetition_penalty = o.repetition_penalty;
  out.repetition_window = o.repetition_window;
  out.seed = o.seed;
  return out;
}

bowline_generator_options c_struct(const text::GeneratorOptions& from) {
  bowline_generator_options out = {};
  out.context = from.context;
  out.compute_dtype = BOWLINE_NO_DTYPE;
  return out;
}

Result<text::GeneratorOptions> generator_options_of(const bowline_generator_options* from) {
  text::GeneratorOptions out;
  BOWLINE_TRY_ASSIGN(const bowline_generator_options o,
                     read(from, c_struct(out), "bowline_generator_options"));
  out.context = o.context;
  BOWLINE_TRY_ASSIGN(out.sampler, sampler_options_of(o.sampler));
  if (o.prefill_chunks != nullptr) {
    out.prefill_chunks.assign(o.prefill_chunks, o.prefill_chunks + o.prefill_chunk_count);
  }
  if (o.stop_ids != nullptr) {
    out.stop_ids.emplace(o.stop_ids, o.stop_ids + o.stop_id_count);
  }
  BOWLINE_TRY_ASSIGN(out.compute_dtype, optional_dtype(o.compute_dtype));
  return out;
}

Result<std::vector<text::ChatMessage>> messages_of(const bowline_chat_message* from, size_t count) {
  return read_list(from, count, "bowline_chat_message",
                   [](const bowline_chat_message& m) -> Result<text::ChatMessage> {
                     if (m.json != nullptr && *m.json != '\0') {
                       return text::ChatMessage{"", "", m.json};
                     }
                     BOWLINE_TRY_ASSIGN(const std::string_view role, required(m.role, "role"));
                     BOWLINE_TRY_ASSIGN(const std::string_view content,
                                        required(m.content, "content"));
                     return text::ChatMessage{std::string(role), std::string(content)};
                   });
}

Result<text::ChatInputs> chat_inputs_of(const bowline_chat_inputs* from) {
  text::ChatInputs out;
  if (from == nullptr) {
    return out;
  }
  BOWLINE_TRY_ASSIGN(const bowline_chat_inputs i, read(from, "bowline_chat_inputs"));
  out.add_generation_prompt = i.add_generation_prompt != 0;
  out.tools = text_or(i.tools, "");
  out.variables = text_or(i.variables, "");
  return out;
}

Result<text::SpecialTokens> special_tokens_of(const bowline_special_tokens* from) {
  text::SpecialTokens out;
  if (from == nullptr) {
    return out;
  }
  BOWLINE_TRY_ASSIGN(const bowline_special_tokens s, read(from, "bowline_special_tokens"));
  out.bos = text_or(s.bos, "");
  out.eos = text_or(s.eos, "");
  if (s.has_now != 0) {
    out.now = s.now;
  }
  for (size_t i = 0; i < s.other_count; ++i) {
    BOWLINE_TRY(given(s.others, "others"));
    BOWLINE_TRY_ASSIGN(const std::string_view name, required(s.others[2 * i], "name of a token"));
    BOWLINE_TRY_ASSIGN(const std::string_view token, required(s.others[2 * i + 1], name));
    out.others.emplace_back(name, token);
  }
  return out;
}

// Copies tokens to an array of the caller, and their number.
template <class T>
Status put_tokens(std::span<const T> from, T* out, size_t capacity, size_t* count) {
  BOWLINE_REQUIRE(out != nullptr || capacity == 0, "\"out\" is NULL.");
  std::copy_n(from.begin(), std::min(capacity, from.size()), out);
  return put(Result<size_t>(from.size()), count);
}

}  // namespace

namespace api {

bowline_code encode_options_init(bowline_encode_options* options, bowline_error** error) {
  return call(error, [&] {
    return write(c_struct(text::EncodeOptions{}), options, "bowline_encode_options");
  });
}
bowline_code sampler_options_init(bowline_sampler_options* options, bowline_error** error) {
  return call(error, [&] {
    return write(c_struct(text::SamplerOptions{}), options, "bowline_sampler_options");
  });
}
bowline_code generator_options_init(bowline_generator_options* options, bowline_error** error) {
  return call(error, [&] {
    return write(c_struct(text::GeneratorOptions{}), options, "bowline_generator_options");
  });
}

bowline_code tokenizer_from(bowline_model* model, bowline_tokenizer** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_handle(text::Tokenizer::from(m.model), out);
  });
}

bowline_code tokenizer_from_bytes(const char* media_type, const void* bytes, size_t count,
                                  bowline_tokenizer** out, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view type, required(media_type, "media_type"));
    BOWLINE_TRY_ASSIGN(const auto list,
                       list_of(static_cast<const std::byte*>(bytes), count, "bytes"));
    return put_handle(text::Tokenizer::from_bytes(type, list), out);
  });
}

bowline_code tokenizer_of_bytes(bowline_tokenizer** out, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_handle(Result(text::Tokenizer::of_bytes()), out);
  });
}

bowline_code tokenizer_close(bowline_tokenizer* tokenizer, bowline_error** error) {
  return close(tokenizer, error);
}

bowline_code tokenizer_encode(bowline_tokenizer* tokenizer, const char* text, size_t bytes,
                              const bowline_encode_options* options, bowline_token* out,
                              size_t capacity, size_t* count, bowline_error** error) {
  return with(tokenizer, error, [&](const text::Tokenizer& t) -> Status {
    BOWLINE_TRY_ASSIGN(const auto from, list_of(text, bytes, "text"));
    BOWLINE_TRY_ASSIGN(const text::EncodeOptions o, encode_options_of(options));
    BOWLINE_TRY_ASSIGN(const text::Encoding e, t.encode({from.data(), from.size()}, o));
    std::vector<bowline_token> tokens;
    for (size_t i = 0; i < e.ids.size(); ++i) {
      tokens.push_back({e.ids[i], e.offsets[i].begin, e.offsets[i].end, e.special[i]});
    }
    return put_tokens<bowline_token>(tokens, out, capacity, count);
  });
}

bowline_code tokenizer_decode(bowline_tokenizer* tokenizer, const int32_t* ids, size_t count,
                              int32_t skip_special, bowline_buffer** out, bowline_error** error) {
  return with(tokenizer, error, [&](const text::Tokenizer& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const auto list, list_of(ids, count, "ids"));
    return put_text(t.decode(list, skip_special != 0), out);
  });
}

bowline_code tokenizer_stream(bowline_tokenizer* tokenizer, int32_t skip_special,
                              bowline_decoder** out, bowline_error** error) {
  return with(tokenizer, error, [&](const text::Tokenizer& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_handle(Result(t.stream(skip_special != 0)), out, std::make_shared<Family>());
  });
}

bowline_code tokenizer_size(bowline_tokenizer* tokenizer, size_t* out, bowline_error** error) {
  return with(tokenizer, error, [&](const text::Tokenizer& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<size_t>(t.size()), out);
  });
}

bowline_code tokenizer_token_to_id(bowline_tokenizer* tokenizer, const char* token, int32_t* out,
                                   bowline_error** error) {
  return with(tokenizer, error, [&](const text::Tokenizer& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view name, required(token, "token"));
    return put(Result<int32_t>(t.token_to_id(name).value_or(-1)), out);
  });
}

bowline_code tokenizer_id_to_token(bowline_tokenizer* tokenizer, int32_t id, bowline_buffer** out,
                                   bowline_error** error) {
  return with(tokenizer, error, [&](const text::Tokenizer& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_bytes(t.id_to_token(id), out);
  });
}

bowline_code tokenizer_is_special(bowline_tokenizer* tokenizer, int32_t id, int32_t* out,
                                  bowline_error** error) {
  return with(tokenizer, error, [&](const text::Tokenizer& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<bool>(t.is_special(id)), out);
  });
}

bowline_code tokenizer_kind(bowline_tokenizer* tokenizer, bowline_buffer** out,
                            bowline_error** error) {
  return with(tokenizer, error, [&](const text::Tokenizer& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_bytes(std::string(t.kind()), out);
  });
}

bowline_code decoder_next(bowline_decoder* decoder, int32_t id, bowline_buffer** out,
                          bowline_error** error) {
  return with(decoder, error, [&](text::Decoder& d) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_text(d.next(id), out);
  });
}

bowline_code decoder_flush(bowline_decoder* decoder, bowline_buffer** out, bowline_error** error) {
  return with(decoder, error, [&](text::Decoder& d) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_bytes(d.flush(), out);
  });
}

bowline_code decoder_close(bowline_decoder* decoder, bowline_error** error) {
  return close(decoder, error);
}

bowline_code chat_template_from(bowline_model* model, bowline_chat_template** out,
                                bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_handle(text::ChatTemplate::from(m.model), out);
  });
}

bowline_code chat_template_from_text(const char* text, bowline_chat_template** out,
                                     bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view source, required(text, "text"));
    return put_handle(text::ChatTemplate::from_text(source), out);
  });
}

bowline_code chat_template_named(const char* name, bowline_chat_template** out,
                                 bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    return put_handle(text::ChatTemplate::named(n), out);
  });
}

bowline_code chat_template_names(bowline_buffer** out, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(Result(text::ChatTemplate::names()), out);
  });
}

bowline_code chat_template_close(bowline_chat_template* chat_template, bowline_error** error) {
  return close(chat_template, error);
}

bowline_code chat_template_render(bowline_chat_template* chat_template,
                                  const bowline_chat_message* messages, size_t count,
                                  const bowline_chat_inputs* inputs,
                                  const bowline_special_tokens* special, bowline_buffer** out,
                                  bowline_error** error) {
  return with(chat_template, error, [&](const text::ChatTemplate& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const auto list, messages_of(messages, count));
    BOWLINE_TRY_ASSIGN(const text::SpecialTokens s, c::special_tokens_of(special));
    BOWLINE_TRY_ASSIGN(const text::ChatInputs i, chat_inputs_of(inputs));
    return put_text(t.render(list, i, s), out);
  });
}

bowline_code chat_template_render_marked(bowline_chat_template* chat_template,
                                         const bowline_chat_message* messages, size_t count,
                                         const bowline_chat_inputs* inputs,
                                         const bowline_special_tokens* special,
                                         bowline_buffer** out, bowline_error** error) {
  return with(chat_template, error, [&](const text::ChatTemplate& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const auto list, messages_of(messages, count));
    BOWLINE_TRY_ASSIGN(const text::SpecialTokens s, c::special_tokens_of(special));
    BOWLINE_TRY_ASSIGN(const text::ChatInputs i, chat_inputs_of(inputs));
    return put_json(t.render_marked(list, i, s), out);
  });
}

bowline_code chat_template_marks_answers(bowline_chat_template* chat_template, int32_t* out,
                                         bowline_error** error) {
  return with(chat_template, error, [&](const text::ChatTemplate& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<bool>(t.marks_answers()), out);
  });
}

bowline_code chat_template_name(bowline_chat_template* chat_template, bowline_buffer** out,
                                bowline_error** error) {
  return with(chat_template, error, [&](const text::ChatTemplate& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_bytes(t.name(), out);
  });
}

bowline_code chat_template_text(bowline_chat_template* chat_template, bowline_buffer** out,
                                bowline_error** error) {
  return with(chat_template, error, [&](const text::ChatTemplate& t) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_bytes(t.text(), out);
  });
}

bowline_code special_tokens_of(bowline_model* model, bowline_buffer** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(Result(text::SpecialTokens::of(m.model)), out);
  });
}

bowline_code generator_create(bowline_model* model, bowline_device* device,
                              const bowline_generator_options* options, bowline_generator** out,
                              bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const auto m, object_of(model));
    BOWLINE_TRY_ASSIGN(const auto d, object_of(device));
    BOWLINE_TRY_ASSIGN(const Use use, Use::of(handle_of(model)->family));
    BOWLINE_TRY_ASSIGN(const text::GeneratorOptions o, generator_options_of(options));
    BOWLINE_TRY_ASSIGN(text::Generator generator, text::Generator::create(m->model, *d, o));
    *out = make_handle<bowline_generator>(
        std::make_shared<GeneratorObject>(GeneratorObject{m, d, std::move(generator)}),
        handle_of(model)->family);
    return {};
  });
}

bowline_code generator_close(bowline_generator* generator, bowline_error** error) {
  return close(generator, error);
}

bowline_code generator_feed(bowline_generator* generator, const int32_t* ids, size_t count,
                            bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) -> Status {
    BOWLINE_TRY_ASSIGN(const auto list, list_of(ids, count, "ids"));
    return g.generator.feed(list);
  });
}

bowline_code generator_next(bowline_generator* generator, int32_t* out, bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(g.generator.next(), out);
  });
}

bowline_code generator_rewind(bowline_generator* generator, size_t length, bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) { return g.generator.rewind(length); });
}

bowline_code generator_replace(bowline_generator* generator, const int32_t* ids, size_t count,
                               size_t* reused, bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) -> Status {
    BOWLINE_TRY_ASSIGN(const auto list, list_of(ids, count, "ids"));
    return put(g.generator.replace(list), reused);
  });
}

bowline_code generator_tokens(bowline_generator* generator, int32_t* out, size_t capacity,
                              size_t* count, bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) {
    return put_tokens(g.generator.tokens(), out, capacity, count);
  });
}

bowline_code generator_has_room(bowline_generator* generator, int32_t* out, bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<bool>(g.generator.has_room()), out);
  });
}

bowline_code generator_is_stop(bowline_generator* generator, int32_t id, int32_t* out,
                               bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<bool>(g.generator.is_stop(id)), out);
  });
}

bowline_code generator_context(bowline_generator* generator, int64_t* out, bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<int64_t>(g.generator.context()), out);
  });
}

bowline_code generator_set_sampler(bowline_generator* generator,
                                   const bowline_sampler_options* options, bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) -> Status {
    BOWLINE_TRY_ASSIGN(const text::SamplerOptions o, sampler_options_of(options));
    return g.generator.set_sampler(o);
  });
}

bowline_code generator_cancel(bowline_generator* generator, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY_ASSIGN(const auto g, object_of(generator));
    g->generator.cancel();
    return {};
  });
}

bowline_code generator_counters(bowline_generator* generator, bowline_counters* out,
                                bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) {
    return write(c_struct(g.generator.counters()), out, "bowline_counters");
  });
}

bowline_code generator_memory(bowline_generator* generator, bowline_memory_report* out,
                              bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) {
    return write(c_struct(g.generator.memory()), out, "bowline_memory_report");
  });
}

bowline_code generator_describe(bowline_generator* generator, bowline_buffer** out,
                                bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(g.generator.describe(), out);
  });
}

bowline_code generator_full_logits_count(bowline_generator* generator, uint64_t* out,
                                         bowline_error** error) {
  return with(generator, error, [&](GeneratorObject& g) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<uint64_t>(g.generator.full_logits_count()), out);
  });
}

bowline_code stop_strings_create(const char* const* stops, size_t count, bowline_stop_strings** out,
                                 bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    std::vector<std::string> list;
    for (size_t i = 0; i < count; ++i) {
      BOWLINE_TRY(given(stops, "stops"));
      BOWLINE_TRY_ASSIGN(const std::string_view stop, required(stops[i], "stop string"));
      list.emplace_back(stop);
    }
    return put_handle(Result(text::StopStrings(std::move(list))), out, std::make_shared<Family>());
  });
}

bowline_code stop_strings_close(bowline_stop_strings* strings, bowline_error** error) {
  return close(strings, error);
}

bowline_code stop_strings_add(bowline_stop_strings* strings, const char* text, bowline_buffer** out,
                              bowline_error** error) {
  return with(strings, error, [&](text::StopStrings& s) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view added, required(text, "text"));
    return put_bytes(s.add(added), out);
  });
}

bowline_code stop_strings_flush(bowline_stop_strings* strings, bowline_buffer** out,
                                bowline_error** error) {
  return with(strings, error, [&](text::StopStrings& s) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_bytes(s.flush(), out);
  });
}

bowline_code stop_strings_stopped(bowline_stop_strings* strings, int32_t* out,
                                  bowline_error** error) {
  return with(strings, error, [&](text::StopStrings& s) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put(Result<bool>(s.stopped()), out);
  });
}

}  // namespace api
}  // namespace bowline::c
#endif  // BOWLINE_C_TEXT
