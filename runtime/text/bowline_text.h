/// \file
/// Tokenizers, chat templates and text generation: the optional target bowline::text.
///
/// The rules of bowline.h for errors, threads and globals apply. Tokenizers and chat templates come
/// from files that may be damaged or malicious. Reading an invalid file returns bad_file.
#pragma once

#include "bowline.h"

namespace bowline::text {

// -------------------------------------------------------------------------------------- tokenizers

/// A range of bytes [begin, end) in a text.
struct Offset {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const Offset&) const = default;
};

/// The tokens of a text. All vectors have one entry per token.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> mask;  ///< Attention mask: 1 for every token, since nothing is padded.
  /// The bytes of the text that each token represents. Offsets never split a code point: tokens
  /// that share one have the same offsets. A token that the tokenizer added has [0, 0).
  std::vector<Offset> offsets;
  std::vector<uint8_t> special;  ///< 1: the tokenizer added the token, for example [CLS].
};

/// Options of Tokenizer::encode().
struct EncodeOptions {
  bool special_tokens = true;  ///< Adds the special tokens that the model expects, such as [CLS].
  bool parse_special = true;   ///< A special token that is spelled in the text becomes one token.
  size_t max_tokens = 0;       ///< Truncates to this many tokens, with special tokens. 0: no limit.
};

// Parts of tokenizers, which are not installed.
struct TokenizerData;
struct DecoderState;

/// Decodes tokens to text one by one.
///
/// The texts of next() and flush(), joined, equal the result of Tokenizer::decode(). There is one
/// exception: a run of single-byte tokens that is not valid UTF-8. decode() replaces each byte
/// of the run by U+FFFD. A Decoder returns the valid code points at the start of the run.
///
/// A Decoder can be moved. Threads: one thread at a time.
class Decoder {
 public:
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  /// Adds a token and returns the text that is complete now. It may be empty.
  ///
  /// Errors: bad_argument: the decoder was moved from.
  Result<std::string> next(int32_t id);

  /// Returns the text that is still held back. Incomplete code points become U+FFFD. The next call
  /// of next() starts a new text.
  std::string flush();

 private:
  friend class Tokenizer;
  explicit Decoder(std::unique_ptr<DecoderState> state);
  std::unique_ptr<DecoderState> state_;
};

/// Converts text to tokens and tokens to text.
///
/// Text is UTF-8. Invalid bytes become U+FFFD, as with errors="replace" in Python. Supported kinds
/// are byte-level BPE (GPT-2, Llama 3, Qwen), BPE with byte fallback (Llama 2), WordPiece (BERT),
/// Unigram (T5) and bytes. The results equal those of the Python package `tokenizers`, except
/// for the cases in runtime/text/README.md. The truncation and padding settings of a file are
/// ignored.
///
/// A Tokenizer is immutable. Copies share its data. Threads: any thread.
class Tokenizer {
 public:
  /// The options of encode().
  using Options = EncodeOptions;
  // There is no move, since there is no empty tokenizer.
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;

  /// Returns the tokenizer in the asset "tokenizer" of a model.
  ///
  /// Returns of_bytes() if the metadata entry "tokenizer" of the model is "bytes".
  ///
  /// Errors: as from_bytes().
  /// - bad_argument: the model has no tokenizer.
  static Result<Tokenizer> from(const Model& model);

  /// Reads a tokenizer. `media_type` is one of:
  /// - "application/vnd.huggingface.tokenizer+json": `bytes` is a tokenizer.json.
  /// - "application/vnd.gguf.tokenizer": `bytes` is a GGUF file with the metadata `tokenizer.*`.
  ///
  /// Errors:
  /// - bad_file: the bytes are damaged or exceed a limit.
  /// - unsupported: the media type, or a part of the tokenizer, is not supported. The message names
  ///   it.
  static Result<Tokenizer> from_bytes(std::string_view media_type,
                                      std::span<const std::byte> bytes);

  /// Returns a tokenizer with 256 tokens: the id of a token is its byte.
  static Tokenizer of_bytes();

  /// Converts text to tokens.
  ///
  /// Errors:
  /// - bad_argument: the text has 1 GiB or more, or max_tokens is too small for the special tokens.
  /// - bad_file: a regular expression of the tokenizer exceeds its limits on this text.
  /// - bad_file: the vocabulary has no token for a part of the text, and none for unknown text.
  Result<Encoding> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// Converts tokens to text. Bytes that are not UTF-8 become U+FFFD. Unknown ids are ignored, and
  /// so are special tokens if `skip_special` is true. Errors: bad_file: a decoder exceeds a limit.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special = true) const;

  /// Returns a Decoder for this vocabulary. The Decoder may outlive the Tokenizer.
  Decoder stream(bool skip_special = true) const;

  /// Returns the number of ids: the highest id plus 1. An embedding table needs this many rows.
  size_t size() const;
  /// Returns the id of a token as the vocabulary spells it, for example "##ing".
  std::optional<int32_t> token_to_id(std::string_view token) const;
  /// Returns the token of an id as the vocabulary spells it. It is empty if there is none.
  std::string id_to_token(int32_t id) const;
  /// Returns true if the id is a special token, such as the end of a text.
  bool is_special(int32_t id) const;
  /// Returns "byte-level BPE", "BPE", "WordPiece", "Unigram" or "bytes".
  std::string_view kind() const;

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerData> data) : data_(std::move(data)) {}
  std::shared_ptr<const TokenizerData> data_;
};

// ---------------------------------------------------------------------------------- chat templates

/// A message of a conversation.
struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant", or another role that the template knows.
  std::string content;
  /// (optional) The whole message as a JSON object, to give the template more than a role and a
  /// content, for example "tool_calls". Then `role` and `content` are not used.
  std::string json = {};
};

/// What a chat template gets in addition to the messages.
struct ChatInputs {
  /// The text ends where the answer of the assistant starts.
  bool add_generation_prompt = false;
  /// (optional) The descriptions of the tools that the model can call: a JSON array. It is the
  /// variable `tools` of the template.
  std::string tools = {};
  /// (optional) Other variables of the template: a JSON object, for example
  /// {"enable_thinking": false}.
  std::string variables = {};
};

/// The special tokens that a chat template can use, and the time.
struct SpecialTokens {
  std::string bos;  ///< Start of a text (bos_token).
  std::string eos;  ///< End of a text (eos_token).
  /// (optional) Seconds since 1970. strftime_now() shows this time in UTC. If it is not set,
  /// strftime_now() is undefined.
  std::optional<int64_t> now = {};
  /// (optional) Pairs of a name and a token. The names are unk_token, pad_token, sep_token,
  /// cls_token and mask_token. In the template, a name without a token is undefined.
  std::vector<std::pair<std::string, std::string>> others = {};

  /// Reads the special tokens from the metadata entries bos_token, eos_token, unk_token etc.
  static SpecialTokens of(const Model& model);
};

/// A conversation as one text.
struct RenderedChat {
  std::string text;
  /// The answers of the assistant in `text`, in order: the parts between {% generation %} and {%
  /// endgeneration %} of the template. Empty if the template does not mark them.
  std::vector<Offset> answers;
};

/// Renders a conversation as one text.
///
/// The template language is a subset of Jinja2. The result is the same as with Hugging Face
/// transformers. Parsing fails for a template with an unknown tag. Rendering fails if it reaches
/// another unsupported part.
///
/// A ChatTemplate is immutable. Copies share its data. Threads: any thread.
class ChatTemplate {
 public:
  /// Returns the template in the asset "chat_template" of a model.
  ///
  /// Errors:
  /// - bad_argument: the model has no template.
  /// - bad_file: the template is invalid or not supported.
  static Result<ChatTemplate> from(const Model& model);

  /// Parses a template.
  ///
  /// Errors: bad_file: the template is invalid or not supported. The message names the line.
  static Result<ChatTemplate> from_text(std::string_view text);

  /// Returns a template of the library by its name, for example "chatml".
  ///
  /// Errors: bad_argument: there is no such template. The message lists the names.
  static Result<ChatTemplate> named(std::string_view name);
  /// Returns the names of the templates of the library.
  static std::vector<std::string> names();

  /// Renders a conversation.
  ///
  /// The text contains the special tokens. So encode it with EncodeOptions::special_tokens = false.
  ///
  /// Errors:
  /// - bad_argument: the template refuses the conversation. The message is from the template.
  /// - bad_argument: a message is not valid UTF-8, or JSON is not valid or of the wrong type.
  /// - bad_argument: ChatInputs::variables has a variable that the other parameters define.
  /// - bad_file: rendering takes more than 10,000,000 steps, 256 MiB of values or 16 MiB of text.
  /// - bad_file: rendering reaches an operation that is unsupported or invalid.
  Result<std::string> render(std::span<const ChatMessage> messages, const ChatInputs& inputs,
                             const SpecialTokens& special) const;

  /// Renders a conversation, with the offsets of the answers. Errors: as render().
  Result<RenderedChat> render_marked(std::span<const ChatMessage> messages,
                                     const ChatInputs& inputs, const SpecialTokens& special) const;

  /// Returns true if the template marks answers with {% generation %}.
  bool marks_answers() const;
  /// Returns the name, if the template is one of the library. Else it is empty.
  const std::string& name() const;
  /// Returns the source of the template.
  const std::string& text() const;

 private:
  struct Template;
  explicit ChatTemplate(std::shared_ptr<const Template> parsed) : template_(std::move(parsed)) {}
  std::shared_ptr<const Template> template_;
};

// -------------------------------------------------------------------------------------- generation

/// How the next token is chosen from the logits.
///
/// The steps are the same as in llama.cpp: repetition penalty, top_k, top_p, min_p, temperature.
struct SamplerOptions {
  /// 0: the token with the largest logit after the repetition penalty. If several are equal, the
  /// one with the lowest id.
  float temperature = 0;
  int32_t top_k = 0;  ///< Keeps the tokens with the top_k largest logits. 0: all.
  float top_p = 1;    ///< Keeps the most probable tokens that together reach this probability.
  float min_p = 0;    ///< Keeps tokens with at least min_p times the largest probability.
  /// Positive logits of recent tokens are divided by this value, others multiplied by it. 1
  /// disables the penalty.
  float repetition_penalty = 1;
  int32_t repetition_window = 64;  ///< Number of recent tokens, including tokens of the prompt.
  /// The choice of a token depends only on this seed, its position and the logits.
  uint64_t seed = 0;
};

/// Options of Generator::create().
struct GeneratorOptions {
  /// The largest number of tokens in the text. 0: the metadata "context_length" of the model.
  ///
  /// A larger context than context_length makes the text worse. A model with learned positions
  /// cannot have a larger context than its metadata "position_rows".
  int64_t context = 0;
  SamplerOptions sampler = {};
  /// Chunk sizes for reading a prompt, in tokens, ascending. Each size has its own plan. A chunk
  /// that is shorter than its plan takes as long as a full one.
  std::vector<int64_t> prefill_chunks = {16, 64, 256};
  /// Tokens that end a text. Not set: the metadata "eos_token_ids" of the model.
  std::optional<std::vector<int32_t>> stop_ids = {};
  std::optional<DType> compute_dtype = {};  ///< As BoundEntryPoint::compute_dtype.
};

class GeneratorState;

/// Generates text token by token.
///
/// feed() adds a prompt, and next() adds one token at a time. The Generator uses the entry points
/// "prefill" and "decode" of the model. It keeps keys and values of earlier tokens in the storages
/// "cache.*" of the model. A model can have only one Generator at a time. Meanwhile, no Session may
/// run these two entry points.
///
/// If the model has only an entry point "forward", the Generator works without a cache. It then
/// reads the whole text again for each token. "forward" maps tokens i32 [batch, seq] to logits f32
/// [batch, seq, vocabulary] and must be causal. The context is 1,024 tokens unless the options or
/// the model set another one.
///
/// If the weights change, for example by a Trainer, the next token is computed with the new
/// weights. The cache keeps the results of the old weights. To renew them, call rewind(0) and then
/// feed() with the whole text.
///
/// The Generator uses the model by reference: the Model must outlive it and must not be moved.
/// Threads: any thread may call cancel(). For other functions, the rules for a Session apply.
class Generator {
 public:
  /// Creates a generator, makes its plans, and resizes the cache to the context.
  ///
  /// Errors: as Model::resize() and Session::create().
  /// - bad_argument: an option is out of range.
  /// - bad_argument: the model has no suitable entry points, or its logits depend on later tokens.
  static Result<Generator> create(Model& model, const Device& device,
                                  const GeneratorOptions& options = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  /// Appends tokens to the text. If the call fails, the text does not change.
  ///
  /// Errors: as Session::run().
  /// - bad_argument: the text would be longer than the context.
  /// - index_out_of_range: an id is not in the vocabulary.
  /// - cancelled: cancel() was called.
  Status feed(std::span<const int32_t> ids);

  /// Chooses the next token, appends it to the text and returns it.
  ///
  /// Errors: as feed().
  /// - bad_argument: the text is empty, or the context is full.
  /// - non_finite: a logit is infinite or NaN.
  Result<int32_t> next();

  /// Truncates the text to `length` tokens. Their keys and values stay in the cache.
  ///
  /// Errors: bad_argument: the text is shorter.
  Status rewind(size_t length);

  /// Replaces the text by `ids`.
  ///
  /// For tokens at the start that do not change, the cache is reused. Returns the number of reused
  /// tokens.
  ///
  /// Errors: as feed().
  Result<size_t> replace(std::span<const int32_t> ids);

  /// Returns the text. The span is valid until the text changes.
  std::span<const int32_t> tokens() const;
  /// Returns true if next() has room for one more token.
  bool has_room() const;
  /// Returns true if a token ends a text; see GeneratorOptions::stop_ids.
  bool is_stop(int32_t id) const;
  /// Returns the size of the context in tokens.
  int64_t context() const;

  /// Sets the options for the next tokens. Errors: bad_argument: an option is out of range.
  Status set_sampler(const SamplerOptions& options);

  /// Cancels the running feed() or next(), or else the next one. Threads: any thread.
  void cancel();

  Counters counters() const;
  MemoryReport memory() const;
  /// As Session::describe(), with the plans of "decode" and "prefill".
  Result<PlanInfo> describe() const;
  /// Returns how many times all logits were copied from the device. For the other tokens, only the
  /// 256 largest logits were copied. They decide most tokens, also at a temperature without top_k,
  /// top_p and min_p. The tokens are the same in both cases.
  uint64_t full_logits_count() const;

 private:
  explicit Generator(std::unique_ptr<GeneratorState> state);
  std::unique_ptr<GeneratorState> state_;
};

/// Ends a streamed text before the first of several stop strings.
///
/// Text that may be the start of a stop string is held back.
class StopStrings {
 public:
  /// Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);
  /// Adds text and returns the text to show now. Calls after a stop string return an empty text.
  std::string add(std::string_view text);
  /// Returns the text that was held back. Call it at the end of the text.
  std::string flush();
  /// Returns true if a stop string was found.
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string kept_;
  bool stopped_ = false;
};

}  // namespace bowline::text
