/// \file
/// Tokenizers, chat templates and text generation: the C interface of bowline_text.h.
///
/// bowline_c.h has the rules.
#ifndef BOWLINE_C_TEXT_H
#define BOWLINE_C_TEXT_H

#include "api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bowline_tokenizer bowline_tokenizer;          ///< As bowline::text::Tokenizer.
typedef struct bowline_decoder bowline_decoder;              ///< As bowline::text::Decoder.
typedef struct bowline_chat_template bowline_chat_template;  ///< As bowline::text::ChatTemplate.
typedef struct bowline_generator bowline_generator;          ///< As bowline::text::Generator.
typedef struct bowline_stop_strings bowline_stop_strings;    ///< As bowline::text::StopStrings.

/// As bowline::text::EncodeOptions.
typedef struct bowline_encode_options {
  size_t size;
  int32_t special_tokens;
  int32_t parse_special;
  size_t max_tokens;
} bowline_encode_options;

/// A token of an encoded text. As the vectors of bowline::text::Encoding.
typedef struct bowline_token {
  int32_t id;
  uint32_t begin;  ///< The first byte of the text that the token represents.
  uint32_t end;    ///< The byte behind the last one.
  int32_t special;
} bowline_token;

/// As bowline::text::ChatMessage.
typedef struct bowline_chat_message {
  size_t size;
  const char* role;     ///< Not used if `json` is set.
  const char* content;  ///< Not used if `json` is set.
  const char* json;     ///< (optional)
} bowline_chat_message;

/// As bowline::text::ChatInputs. The pointers are optional.
typedef struct bowline_chat_inputs {
  size_t size;
  int32_t add_generation_prompt;
  const char* tools;      ///< A JSON array.
  const char* variables;  ///< A JSON object.
} bowline_chat_inputs;

/// As bowline::text::SpecialTokens. The pointers are optional.
typedef struct bowline_special_tokens {
  size_t size;
  const char* bos;
  const char* eos;
  int32_t has_now;  ///< 0: strftime_now() is undefined.
  int64_t now;      ///< Seconds since 1970.
  /// `other_count` pairs: a name, such as "pad_token", then its token.
  const char* const* others;
  size_t other_count;
} bowline_special_tokens;

/// As bowline::text::SamplerOptions.
typedef struct bowline_sampler_options {
  size_t size;
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  float repetition_penalty;
  int32_t repetition_window;
  uint64_t seed;
} bowline_sampler_options;

/// As bowline::text::GeneratorOptions.
typedef struct bowline_generator_options {
  size_t size;
  int64_t context;
  const bowline_sampler_options* sampler;  ///< (optional)
  const int64_t* prefill_chunks;           ///< NULL: the defaults.
  size_t prefill_chunk_count;
  const int32_t* stop_ids;  ///< NULL: those of the model.
  size_t stop_id_count;
  bowline_dtype compute_dtype;  ///< BOWLINE_F16, BOWLINE_BF16 or BOWLINE_NO_DTYPE.
} bowline_generator_options;

/// The functions of bowline::text. See bowline_c.h for the rules.
typedef struct bowline_text_api {
  size_t size;  ///< Size of the table of this library.

  /// Set all members but `size` to their defaults. The caller sets `size` before.
  bowline_code (*encode_options_init)(bowline_encode_options* options, bowline_error** error);
  bowline_code (*sampler_options_init)(bowline_sampler_options* options, bowline_error** error);
  bowline_code (*generator_options_init)(bowline_generator_options* options, bowline_error** error);

  // Tokenizers. Any thread may use one.
  bowline_code (*tokenizer_from)(bowline_model* model, bowline_tokenizer** out,
                                 bowline_error** error);
  bowline_code (*tokenizer_from_bytes)(const char* media_type, const void* bytes, size_t count,
                                       bowline_tokenizer** out, bowline_error** error);
  bowline_code (*tokenizer_of_bytes)(bowline_tokenizer** out, bowline_error** error);
  bowline_code (*tokenizer_close)(bowline_tokenizer* tokenizer, bowline_error** error);
  /// `text` has `bytes` bytes. Writes at most `capacity` tokens to `out`, and the number of all
  /// tokens to `count`. A call with capacity 0 counts them.
  bowline_code (*tokenizer_encode)(bowline_tokenizer* tokenizer, const char* text, size_t bytes,
                                   const bowline_encode_options* options, bowline_token* out,
                                   size_t capacity, size_t* count, bowline_error** error);
  bowline_code (*tokenizer_decode)(bowline_tokenizer* tokenizer, const int32_t* ids, size_t count,
                                   int32_t skip_special, bowline_buffer** out,
                                   bowline_error** error);
  bowline_code (*tokenizer_stream)(bowline_tokenizer* tokenizer, int32_t skip_special,
                                   bowline_decoder** out, bowline_error** error);
  bowline_code (*tokenizer_size)(bowline_tokenizer* tokenizer, size_t* out, bowline_error** error);
  /// -1 if the vocabulary does not have the token.
  bowline_code (*tokenizer_token_to_id)(bowline_tokenizer* tokenizer, const char* token,
                                        int32_t* out, bowline_error** error);
  bowline_code (*tokenizer_id_to_token)(bowline_tokenizer* tokenizer, int32_t id,
                                        bowline_buffer** out, bowline_error** error);
  bowline_code (*tokenizer_is_special)(bowline_tokenizer* tokenizer, int32_t id, int32_t* out,
                                       bowline_error** error);
  bowline_code (*tokenizer_kind)(bowline_tokenizer* tokenizer, bowline_buffer** out,
                                 bowline_error** error);

  // Decoders. One thread at a time may use one.
  bowline_code (*decoder_next)(bowline_decoder* decoder, int32_t id, bowline_buffer** out,
                               bowline_error** error);
  bowline_code (*decoder_flush)(bowline_decoder* decoder, bowline_buffer** out,
                                bowline_error** error);
  bowline_code (*decoder_close)(bowline_decoder* decoder, bowline_error** error);

  // Chat templates. Any thread may use one. chat_template_names() is JSON: a list of names.
  // `inputs` NULL: the defaults of ChatInputs.
  bowline_code (*chat_template_from)(bowline_model* model, bowline_chat_template** out,
                                     bowline_error** error);
  bowline_code (*chat_template_from_text)(const char* text, bowline_chat_template** out,
                                          bowline_error** error);
  bowline_code (*chat_template_named)(const char* name, bowline_chat_template** out,
                                      bowline_error** error);
  bowline_code (*chat_template_names)(bowline_buffer** out, bowline_error** error);
  bowline_code (*chat_template_close)(bowline_chat_template* chat_template, bowline_error** error);
  bowline_code (*chat_template_render)(bowline_chat_template* chat_template,
                                       const bowline_chat_message* messages, size_t count,
                                       const bowline_chat_inputs* inputs,
                                       const bowline_special_tokens* special, bowline_buffer** out,
                                       bowline_error** error);
  /// JSON: RenderedChat.
  bowline_code (*chat_template_render_marked)(bowline_chat_template* chat_template,
                                              const bowline_chat_message* messages, size_t count,
                                              const bowline_chat_inputs* inputs,
                                              const bowline_special_tokens* special,
                                              bowline_buffer** out, bowline_error** error);
  bowline_code (*chat_template_marks_answers)(bowline_chat_template* chat_template, int32_t* out,
                                              bowline_error** error);
  bowline_code (*chat_template_name)(bowline_chat_template* chat_template, bowline_buffer** out,
                                     bowline_error** error);
  bowline_code (*chat_template_text)(bowline_chat_template* chat_template, bowline_buffer** out,
                                     bowline_error** error);
  /// SpecialTokens::of(), as JSON: SpecialTokens.
  bowline_code (*special_tokens_of)(bowline_model* model, bowline_buffer** out,
                                    bowline_error** error);

  // Generators.
  bowline_code (*generator_create)(bowline_model* model, bowline_device* device,
                                   const bowline_generator_options* options,
                                   bowline_generator** out, bowline_error** error);
  bowline_code (*generator_close)(bowline_generator* generator, bowline_error** error);
  bowline_code (*generator_feed)(bowline_generator* generator, const int32_t* ids, size_t count,
                                 bowline_error** error);
  bowline_code (*generator_next)(bowline_generator* generator, int32_t* out, bowline_error** error);
  bowline_code (*generator_rewind)(bowline_generator* generator, size_t length,
                                   bowline_error** error);
  /// `reused` (may be NULL) receives the number of reused tokens.
  bowline_code (*generator_replace)(bowline_generator* generator, const int32_t* ids, size_t count,
                                    size_t* reused, bowline_error** error);
  /// Writes at most `capacity` tokens to `out`, and the number of all tokens to `count`.
  bowline_code (*generator_tokens)(bowline_generator* generator, int32_t* out, size_t capacity,
                                   size_t* count, bowline_error** error);
  bowline_code (*generator_has_room)(bowline_generator* generator, int32_t* out,
                                     bowline_error** error);
  bowline_code (*generator_is_stop)(bowline_generator* generator, int32_t id, int32_t* out,
                                    bowline_error** error);
  bowline_code (*generator_context)(bowline_generator* generator, int64_t* out,
                                    bowline_error** error);
  bowline_code (*generator_set_sampler)(bowline_generator* generator,
                                        const bowline_sampler_options* options,
                                        bowline_error** error);
  /// Any thread may call it.
  bowline_code (*generator_cancel)(bowline_generator* generator, bowline_error** error);
  bowline_code (*generator_counters)(bowline_generator* generator, bowline_counters* out,
                                     bowline_error** error);
  bowline_code (*generator_memory)(bowline_generator* generator, bowline_memory_report* out,
                                   bowline_error** error);
  bowline_code (*generator_describe)(bowline_generator* generator, bowline_buffer** out,
                                     bowline_error** error);
  bowline_code (*generator_full_logits_count)(bowline_generator* generator, uint64_t* out,
                                              bowline_error** error);

  // Stop strings. One thread at a time may use them.
  bowline_code (*stop_strings_create)(const char* const* stops, size_t count,
                                      bowline_stop_strings** out, bowline_error** error);
  bowline_code (*stop_strings_close)(bowline_stop_strings* strings, bowline_error** error);
  bowline_code (*stop_strings_add)(bowline_stop_strings* strings, const char* text,
                                   bowline_buffer** out, bowline_error** error);
  bowline_code (*stop_strings_flush)(bowline_stop_strings* strings, bowline_buffer** out,
                                     bowline_error** error);
  bowline_code (*stop_strings_stopped)(bowline_stop_strings* strings, int32_t* out,
                                       bowline_error** error);
} bowline_text_api;

/// Returns the table of functions of this version. NULL: the library does not have this version, or
/// was built without bowline::text.
BOWLINE_C_EXPORT const bowline_text_api* bowline_get_text_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif  // BOWLINE_C_TEXT_H
