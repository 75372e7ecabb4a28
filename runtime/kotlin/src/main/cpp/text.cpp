// Tokenizers and text generation.
#include "call.h"

using namespace bowline_jni;

namespace {

// Throws if the library was built without bowline::text. Only functions that make a handle ask.
bool has_text(JNIEnv* env) {
  if (library.text == nullptr) {
    fail(env, BOWLINE_UNSUPPORTED,
         "This library has no tokenizers and no text generation: it was built with "
         "BOWLINE_TEXT=OFF.");
  }
  return library.text != nullptr;
}

}  // namespace

BOWLINE_NATIVE(jlong, tokenizerFrom, jlong model) {
  bowline_tokenizer* out = nullptr;
  if (has_text(env)) {
    call(env, library.text->tokenizer_from, Handle{model}, &out);
  }
  return number_of(out);
}

BOWLINE_NATIVE(jlong, tokenizerOfBytes) {
  bowline_tokenizer* out = nullptr;
  if (has_text(env)) {
    call(env, library.text->tokenizer_of_bytes, &out);
  }
  return number_of(out);
}

BOWLINE_NATIVE(void, tokenizerClose, jlong tokenizer) {
  call(env, library.text->tokenizer_close, Handle{tokenizer});
}

BOWLINE_NATIVE(jintArray, tokenizerEncode, jlong tokenizer, jbyteArray text,
               jboolean special_tokens, jboolean parse_special) {
  auto options = sized<bowline_encode_options>();
  if (!call(env, library.text->encode_options_init, &options)) {
    return nullptr;
  }
  options.special_tokens = special_tokens == JNI_TRUE;
  options.parse_special = parse_special == JNI_TRUE;
  // A text without its zero byte. A token represents at least one byte, or is a special token.
  const Text words(env, text);
  std::vector<bowline_token> tokens(words.size() + 8);
  size_t count = 0;
  for (;;) {
    if (!call(env, library.text->tokenizer_encode, Handle{tokenizer}, words.c_str(),
              words.size() - 1, &options, tokens.data(), tokens.size(), &count)) {
      return nullptr;
    }
    if (count <= tokens.size()) {
      break;
    }
    tokens.resize(count);
  }
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(tokens[i].id);
  }
  return array_of(env, ids);
}

BOWLINE_NATIVE(jbyteArray, tokenizerDecode, jlong tokenizer, jintArray ids, jboolean skip_special) {
  const std::vector<jint> tokens = ints_of(env, ids);
  return buffer_from(env, library.text->tokenizer_decode, Handle{tokenizer}, tokens.data(),
                     tokens.size(), skip_special == JNI_TRUE ? 1 : 0);
}

BOWLINE_NATIVE(jlong, tokenizerSize, jlong tokenizer) {
  size_t out = 0;
  call(env, library.text->tokenizer_size, Handle{tokenizer}, &out);
  return static_cast<jlong>(out);
}

BOWLINE_NATIVE(jlong, tokenizerStream, jlong tokenizer, jboolean skip_special) {
  bowline_decoder* out = nullptr;
  call(env, library.text->tokenizer_stream, Handle{tokenizer}, skip_special == JNI_TRUE ? 1 : 0,
       &out);
  return number_of(out);
}

BOWLINE_NATIVE(jbyteArray, decoderNext, jlong decoder, jint id) {
  return buffer_from(env, library.text->decoder_next, Handle{decoder}, id);
}

BOWLINE_NATIVE(jbyteArray, decoderFlush, jlong decoder) {
  return buffer_from(env, library.text->decoder_flush, Handle{decoder});
}

BOWLINE_NATIVE(void, decoderClose, jlong decoder) {
  call(env, library.text->decoder_close, Handle{decoder});
}

// ------------------------------------------------------------------------------------- generators

BOWLINE_NATIVE(jlong, generatorCreate, jlong model, jlong device, jlong context, jint compute_dtype,
               jfloat temperature, jint top_k, jfloat top_p, jfloat min_p,
               jfloat repetition_penalty, jint repetition_window, jlong seed) {
  auto options = sized<bowline_generator_options>();
  auto sampler = sized<bowline_sampler_options>();
  if (!has_text(env) || !call(env, library.text->generator_options_init, &options)) {
    return 0;
  }
  sampler.temperature = temperature;
  sampler.top_k = top_k;
  sampler.top_p = top_p;
  sampler.min_p = min_p;
  sampler.repetition_penalty = repetition_penalty;
  sampler.repetition_window = repetition_window;
  sampler.seed = static_cast<uint64_t>(seed);
  options.context = context;
  options.sampler = &sampler;
  options.compute_dtype = compute_dtype;
  bowline_generator* out = nullptr;
  call(env, library.text->generator_create, Handle{model}, Handle{device}, &options, &out);
  return number_of(out);
}

BOWLINE_NATIVE(void, generatorClose, jlong generator) {
  call(env, library.text->generator_close, Handle{generator});
}

BOWLINE_NATIVE(void, generatorFeed, jlong generator, jintArray ids) {
  const std::vector<jint> tokens = ints_of(env, ids);
  call(env, library.text->generator_feed, Handle{generator}, tokens.data(), tokens.size());
}

BOWLINE_NATIVE(jint, generatorNext, jlong generator) {
  int32_t out = 0;
  call(env, library.text->generator_next, Handle{generator}, &out);
  return out;
}

BOWLINE_NATIVE(void, generatorRewind, jlong generator, jlong length) {
  call(env, library.text->generator_rewind, Handle{generator}, static_cast<size_t>(length));
}

BOWLINE_NATIVE(jintArray, generatorTokens, jlong generator) {
  size_t count = 0;
  if (!call(env, library.text->generator_tokens, Handle{generator}, nullptr, 0, &count)) {
    return nullptr;
  }
  std::vector<int32_t> ids(count);
  if (!call(env, library.text->generator_tokens, Handle{generator}, ids.data(), ids.size(),
            &count)) {
    return nullptr;
  }
  return array_of(env, ids);
}

BOWLINE_NATIVE(jboolean, generatorHasRoom, jlong generator) {
  int32_t out = 0;
  call(env, library.text->generator_has_room, Handle{generator}, &out);
  return out != 0 ? JNI_TRUE : JNI_FALSE;
}

BOWLINE_NATIVE(jboolean, generatorIsStop, jlong generator, jint id) {
  int32_t out = 0;
  call(env, library.text->generator_is_stop, Handle{generator}, id, &out);
  return out != 0 ? JNI_TRUE : JNI_FALSE;
}

BOWLINE_NATIVE(void, generatorCancel, jlong generator) {
  call(env, library.text->generator_cancel, Handle{generator});
}
