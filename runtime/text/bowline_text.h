// Text for models: tokenizers, chat formats and generation, over bowline.h. The optional target
// bowline::text.
//
// This header is its public interface and its manual. Errors, threads and globals are as bowline.h
// says. What is read comes from outside: a file that is damaged, or made to do harm, gives
// bad_file.
#pragma once

#include "bowline.h"

namespace bowline::text {

// -------------------------------------------------------------------------------------- tokenizers
//
// A tokenizer cuts text into pieces of a vocabulary and gives their numbers, the ids, as the model
// that it belongs to was trained with; and back. Text is UTF-8. Bytes that are not are read as
// U+FFFD, one for each longest begin of a code point (Unicode, chapter 3.9), as Python's
// errors="replace" does; offsets count the bytes that were given.
//
// Kinds: byte-level BPE (GPT-2, Llama 3, Qwen), BPE with byte fallback (Llama 2), WordPiece (BERT),
// Unigram, and one id per byte. What the file says of truncation and padding is not used: the task
// decides.
//
// Source  The behaviour is that of the package `tokenizers` of PyPI; README.md says where it
//         differs.

// The bytes [begin, end) of the text that an id stands for: whole code points, also where several
// ids share one. Of an id that is not in the text both are 0.
struct Offset {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const Offset&) const = default;
};

// One entry per id in each.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> mask;  // 1: attended to; that is all of them, since nothing is padded
  std::vector<Offset> offsets;
  std::vector<uint8_t> special;  // 1: added by the tokenizer, such as the begin of a text
};

struct EncodeOptions {
  bool special_tokens = true;  // adds what the file says: [CLS] and [SEP], the begin of a text
  bool parse_special = true;   // text that spells a special token becomes its id; false: it is text
  // The most ids, what is added included; the end of the text is cut. 0: no limit.
  size_t max_tokens = 0;
};

// What tokenizers are made of; not installed.
struct TokenizerData;
struct DecoderState;

// Makes text of ids, one by one. What next() returned so far and flush() are together what decode()
// returns, with one exception: where byte pieces of a BPE with byte fallback are no UTF-8, decode()
// replaces each of a row of them, the stream only those that it has not given as text. Move-only;
// one thread at a time.
class Decoder {
 public:
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  // The text that is complete now: whole code points, often none. An id without a piece gives none.
  // Errors  bad_argument: the decoder was moved from.
  Result<std::string> next(int32_t id);
  // What is left at the end: bytes of an incomplete code point as U+FFFD. Then the decoder begins
  // anew.
  std::string flush();

 private:
  friend class Tokenizer;
  explicit Decoder(std::unique_ptr<DecoderState> state);
  std::unique_ptr<DecoderState> state_;
};

// Immutable; copies share it. Any thread.
class Tokenizer {
 public:
  using Options = EncodeOptions;
  // No move: there is no empty tokenizer.
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;

  // Of the asset `tokenizer` of a model; with the metadata tokenizer = bytes one id per byte.
  // Errors  bad_argument: the model has neither. Else those of from_bytes().
  static Result<Tokenizer> from(const Model& model);
  // `media_type`: "application/vnd.huggingface.tokenizer+json", the bytes of a tokenizer.json;
  // "application/vnd.gguf.tokenizer", a
  // GGUF file, of which the metadata `tokenizer.*` is read. Errors  bad_file: the bytes are
  // damaged, contradict themselves or exceed
  // a limit. unsupported: a kind, a part or an option that is not known, which is named; another
  // media type.
  static Result<Tokenizer> from_bytes(std::string_view media_type,
                                      std::span<const std::byte> bytes);
  // One id per byte.
  static Tokenizer of_bytes();

  // Errors  bad_argument: the text has 4 GiB or more, max_tokens has no room for what is added.
  //         bad_file: a regular expression of the
  // file exceeds its limits on this text; the vocabulary lacks a piece that the text needs, and has
  // none for unknown ones.
  Result<Encoding> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // An id without a piece gives no text. Bytes that are not UTF-8 are U+FFFD. `skip_special`:
  // without special tokens.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special = true) const;
  Decoder stream(bool skip_special = true) const;

  // The largest id and one: ids are less. What a model's embedding needs.
  size_t size() const;
  // Of a piece as the vocabulary spells it, such as "Ġthe" or "##ing".
  std::optional<int32_t> token_to_id(std::string_view piece) const;
  // Empty: there is none of this id.
  std::string id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;
  // "byte-level BPE", "BPE", "WordPiece", "Unigram", "bytes".
  std::string_view kind() const;

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerData> data) : data_(std::move(data)) {}
  std::shared_ptr<const TokenizerData> data_;
};

// ------------------------------------------------------------------------------------ chat formats
//
// A chat format makes one text of the messages of a conversation. It is a template in a subset of
// Jinja2, as model files carry it in the asset "chat_template", and gives byte for byte what Jinja2
// gives with the settings of Hugging Face transformers. A template that says more than the subset
// is refused by name: an unknown tag when it is read, all else when it is rendered.

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"; a template may know others
  std::string content;
};

// What a template asks for besides the messages.
struct SpecialTokens {
  std::string bos;  // bos_token
  std::string eos;  // eos_token
  // (optional) Seconds since 1970, which strftime_now() shows in UTC. Without them it is not
  // defined, and what a template says instead is the same every day.
  std::optional<int64_t> now = {};
  // (optional) Further special tokens, each with its name in templates: unk_token, pad_token,
  // sep_token, cls_token, mask_token. A token of these names that is not listed is undefined, as in
  // Jinja2.
  std::vector<std::pair<std::string, std::string>> others = {};

  // Reads the special tokens from the metadata, where each has its name in templates.
  static SpecialTokens of(const Model& model);
};

// A conversation as one text.
struct RenderedChat {
  std::string text;
  // The bytes of `text` that the template marks as answers of the assistant with
  // {% generation %} ... {% endgeneration %}, in their order. Empty if it marks none.
  std::vector<Offset> answers;
};

// Immutable. Copies share it; any thread.
class ChatTemplate {
 public:
  // Of the asset "chat_template". Errors  bad_argument: the model has none. bad_file: the template
  // is not valid, or says what is not
  // known here. Both messages name --chat-format and the names that named() knows.
  static Result<ChatTemplate> from(const Model& model);
  // Of the text of a template. Errors  bad_file: as above; the line is named.
  static Result<ChatTemplate> from_text(std::string_view text);
  // One that the library has. Errors  bad_argument: there is none of this name; those that are are
  // named.
  static Result<ChatTemplate> named(std::string_view name);
  // "chatml", "gemma", ...
  static std::vector<std::string> names();

  // The conversation as one text, with the special tokens as text: encode() it without adding
  // special tokens. With `add_generation_prompt` it ends where the assistant's answer begins.
  // Errors  bad_argument: the template refuses the conversation; the message is the template's.
  //         bad_file: it takes more than 10,000,000
  // steps or 16 MiB of text, or computes with values that do not go together.
  Result<std::string> render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                             const SpecialTokens& special) const;

  // Renders as render() does, and returns what the template marks as answers beside the text.
  // Errors  as render().
  Result<RenderedChat> render_marked(std::span<const ChatMessage> messages,
                                     bool add_generation_prompt,
                                     const SpecialTokens& special) const;
  // Whether the template marks answers: it has a tag {% generation %}.
  bool marks_answers() const;

  // The name of the format of named() whose template this is; empty: of none.
  const std::string& name() const;
  // The template.
  const std::string& text() const;

 private:
  struct Template;
  explicit ChatTemplate(std::shared_ptr<const Template> parsed) : template_(std::move(parsed)) {}
  std::shared_ptr<const Template> template_;
};

// -------------------------------------------------------------------------------------- generation

// How a token is drawn from the logits, in the order of llama.cpp: what stands in the window is
// penalised; of the rest top_k stay, of these top_p, of these min_p; what stays is drawn from at
// the temperature.
struct SamplerOptions {
  float temperature =
      0;  // 0: the token of the largest logit (of equal ones the lower id), after the penalty
  int32_t top_k = 0;  // the so many largest logits; 0: all
  float top_p = 1;    // the fewest of the most probable that have this probability together
  float min_p = 0;    // those of at least this part of the largest probability
  // Positive logits of tokens in the window are divided by it, others multiplied with it, once
  // each. 1: none.
  float repetition_penalty = 1;
  int32_t repetition_window = 64;  // tokens at the end of the text, the prompt too
  // Of Philox4x32-10, whose counter is the position of the token: what is drawn there follows from
  // the logits and the seed.
  uint64_t seed = 0;
};

struct GeneratorOptions {
  // Tokens that a text may have; 0: metadata context_length of the model. Above context_length the
  // text gets worse. If the model has learned positions, a context above metadata position_rows is
  // refused.
  int64_t context = 0;
  SamplerOptions sampler = {};
  // Rows of the plans that read prompts: a piece of n tokens costs as much as the plan that takes
  // it.
  std::vector<int64_t> prefill_chunks = {16, 64, 256};
  std::optional<std::vector<int32_t>> stop_ids = {};  // none: metadata eos_token_ids of the model
  std::optional<DType> compute_dtype = {};            // as BoundEntryPoint::compute_dtype
};

class GeneratorState;

// A text of tokens that grows: prompts are fed, answers are drawn one by one. Keys and values of
// what was read stay in the storages "cache.*" of the model, so a Model has one Generator at a
// time, and other parts of the program do not run its entry points `prefill` and `decode`. The
// plans are made by create(), and again only when a verb changes what they read. What a Trainer of
// the same model does to the weights, the next token sees; what is in the cache was read with the
// weights of its time, until rewind(0) and feed() read it again.
//
// A model with neither of these two, but with the entry point `forward` (tokens i32 [batch, seq] to
// logits f32 [batch, seq, n], causal), generates without a cache: each token reads the whole text
// again. Such a text has at most 1,024 tokens unless the options or the model say otherwise.
//
// A token goes through `decode` when the next one is drawn, those before it through `prefill` when
// they are fed. Where the options of the sampler allow it, no more than the 256 largest logits
// leave the device, and the token is the same.
//
// Threads   cancel() may be called from any; for the rest it counts as a Session of the model.
//           Move-only.
// Lifetime  the Model outlives it and is not moved.
class Generator {
 public:
  // Gives the cache as many rows as the context has. Errors  bad_argument: an option is out of its
  // range; the model has no entry
  // points as generation needs them, or logits that depend on later tokens. Those of
  // Model::resize() and Session::create(): the model lies on the device, plans and cache fit.
  static Result<Generator> create(Model& model, const Device& device,
                                  const GeneratorOptions& options = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  // Appends tokens to the text. Errors  bad_argument: with them it is longer than the context.
  // index_out_of_range: an id is none of
  // the vocabulary. cancelled. Those of Session::run(). The text is as before then.
  Status feed(std::span<const int32_t> ids);
  // Draws the token behind the text and appends it. Errors  bad_argument: there is no text, or it
  // is longer than the context by the
  // token that was drawn last. non_finite: the logits are. As feed().
  Result<int32_t> next();
  // The first `length` tokens stay, and what the cache has of them. Errors  bad_argument: the text
  // has not so many.
  Status rewind(size_t length);
  // Makes the text these tokens; what the cache has of the tokens that both begin with stays.
  // Returns their number. Errors  as feed().
  Result<size_t> replace(std::span<const int32_t> ids);

  std::span<const int32_t> tokens() const;
  // Whether the text takes another next().
  bool has_room() const;
  // Ends a text, by GeneratorOptions::stop_ids.
  bool is_stop(int32_t id) const;
  int64_t context() const;
  // Of the next tokens. Errors  bad_argument: an option is out of its range.
  Status set_sampler(const SamplerOptions& options);
  // Lets the running or next feed() or next() return `cancelled` before its next submission. Any
  // thread.
  void cancel();

  Counters counters() const;
  MemoryReport memory() const;
  // As Session::describe(), of `decode` and the plans of `prefill`.
  Result<PlanInfo> describe() const;
  // Tokens for which all logits left the device.
  uint64_t whole_logits() const;

 private:
  explicit Generator(std::unique_ptr<GeneratorState> state);
  std::unique_ptr<GeneratorState> state_;
};

// Ends a streamed text in front of the first of some strings, and keeps back what may be the begin
// of one.
class StopStrings {
 public:
  // Empty ones stop nothing.
  explicit StopStrings(std::vector<std::string> stops);
  // What can be shown of the text so far and was not. Nothing once stopped() is true.
  std::string add(std::string_view text);
  // What was kept back, when no text follows.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string kept_;
  bool stopped_ = false;
};

}  // namespace bowline::text
