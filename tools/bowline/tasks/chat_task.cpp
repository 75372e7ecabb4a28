// Conversations: JSON lines in one file, or in train.jsonl, valid.jsonl and test.jsonl of a folder.
//
// Source  mlx_lm (mlx_lm/tuner/datasets.py), for what a row may hold. Hugging Face transformers
//         (apply_chat_template with return_assistant_tokens_mask), for the tokens of marked
//         answers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "base/escape.h"
#include "base/status.h"
#include "bowline_text.h"
#include "common/hash.h"
#include "common/text.h"
#include "common/tokenizers.h"
#include "data/chats.h"
#include "tasks/row_task.h"

namespace bowline::command {
namespace {

constexpr int64_t kMostTokens = 2048;  // default limit of a row, as in mlx_lm

// Rows for the entry point "loss": the input tokens, and the label after each token.
struct Rows : TokenRows {
  std::vector<std::vector<int32_t>> labels;
  uint64_t counted = 0;  // labels
  uint64_t silent = 0;   // rows without a counted label
  uint64_t chats = 0;    // rows that are conversations, not texts
};

// The tokens of a conversation, and which of them are trained.
struct Learnt {
  std::vector<int32_t> ids;
  std::vector<uint8_t> counts;
};

// Marks the tokens that overlap one of the byte ranges.
std::vector<uint8_t> tokens_in(std::span<const text::Offset> bytes, const text::Encoding& all) {
  std::vector<uint8_t> out;
  for (const text::Offset& token : all.offsets) {
    out.push_back(std::ranges::any_of(bytes, [&](const text::Offset& answer) {
      return token.begin < answer.end && token.end > answer.begin;
    }));
  }
  return out;
}

// Returns the number of equal tokens at the start of both texts: the same ids from the same bytes.
size_t equal_tokens(const text::Encoding& a, const text::Encoding& b) {
  const size_t most = std::min(a.ids.size(), b.ids.size());
  size_t n = 0;
  while (n < most && a.ids[n] == b.ids[n] && a.offsets[n] == b.offsets[n]) {
    ++n;
  }
  return n;
}

// Turns conversations into rows.
class Renderer {
 public:
  static Result<Renderer> create(const Model& model, const DataOptions& o, LengthLimit limit) {
    BOWLINE_TRY_ASSIGN(text::Tokenizer tokenizer, tokenizer_of(model));
    Renderer r(std::move(tokenizer));
    r.special_ = text::SpecialTokens::of(model);
    r.end_ = end_of_text(model);
    r.train_on_ = o.train_on;
    r.limit_ = static_cast<size_t>(limit.tokens);
    if (!o.chat_format.empty()) {
      BOWLINE_TRY_ASSIGN(r.format_, text::ChatTemplate::named(o.chat_format));
      return r;
    }
    Result<text::ChatTemplate> format = text::ChatTemplate::from(model);
    r.no_format_ = format.status();
    if (format.ok()) {
      r.format_ = std::move(format).value();
    }
    return r;
  }

  // `file` is the path for messages.
  Status add(const Conversation& c, const std::string& file, Rows& rows) const {
    Result<Learnt> row = c.messages.empty() ? of_text(c.text) : of_conversation(c);
    if (!row.ok()) {
      return std::move(row).status().at(fmt::format("While reading {}:{}.", file, c.line));
    }
    append(std::move(row).value(), rows);
    rows.chats += c.messages.empty() ? 0 : 1;
    return {};
  }

 private:
  explicit Renderer(text::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  Result<Learnt> of_text(const std::string& text) const {
    BOWLINE_TRY_ASSIGN(text::Encoding all, tokenizer_.encode(text));
    if (end_ && (all.ids.empty() || all.ids.back() != *end_)) {
      all.ids.push_back(*end_);
    }
    return whole(std::move(all.ids));
  }

  static Learnt whole(std::vector<int32_t> ids) {
    std::vector<uint8_t> counts(ids.size(), 1);
    return {std::move(ids), std::move(counts)};
  }

  Result<Learnt> of_conversation(const Conversation& c) const {
    BOWLINE_TRY(format_ ? Status() : Status(no_format_));
    std::vector<text::ChatMessage> messages;
    for (const Message& m : c.messages) {
      messages.push_back({m.role, m.content, m.json});
    }
    BOWLINE_TRY(check_keys(c));
    const text::ChatInputs inputs = {false, c.tools, c.variables};
    BOWLINE_TRY_ASSIGN(text::RenderedChat chat, format_->render_marked(messages, inputs, special_));
    BOWLINE_TRY_ASSIGN(text::Encoding all, encode(chat.text));
    if (train_on_ == "all") {
      return whole(std::move(all.ids));
    }
    std::vector<uint8_t> counts;
    if (format_->marks_answers()) {
      const bool last = train_on_ == "last-answer" && !chat.answers.empty();
      counts = tokens_in(std::span(chat.answers).last(last ? 1 : chat.answers.size()), all);
    } else {
      counts.resize(all.ids.size());
      const auto is_answer = [](const text::ChatMessage& m) { return m.role == "assistant"; };
      bool found = false;
      for (size_t i = messages.size(); i-- > 0 && !(found && train_on_ == "last-answer");) {
        if (is_answer(messages[i])) {
          BOWLINE_TRY(mark_answer(messages, i, inputs, chat.text, all, counts));
          found = true;
        }
      }
    }
    return Learnt{std::move(all.ids), std::move(counts)};
  }

  // A template ignores what it does not read, and the training would, too.
  Status check_keys(const Conversation& c) const {
    const auto check = [&](const std::string& key, bool is_there) -> Status {
      BOWLINE_REQUIRE_CODE(
          !is_there || format_->text().find(key) != std::string::npos, Code::bad_file,
          "The chat template does not read \"{}\". Leave it out, or choose another "
          "template with --chat-format.",
          escaped(key));
      return {};
    };
    for (const std::string& key : c.keys) {
      BOWLINE_TRY(check(key, true));
    }
    return check("tools", !c.tools.empty());
  }

  Result<text::Encoding> encode(std::string_view text) const {
    return tokenizer_.encode(text, {.special_tokens = false});
  }

  // Marks the tokens of message `i`, an answer, for a template that marks none. They begin at the
  // first token that differs from the tokens of the prompt alone: the template may end a prompt
  // differently than it begins an answer, and a token may cross the border.
  Status mark_answer(std::span<const text::ChatMessage> messages, size_t i,
                     const text::ChatInputs& inputs, const std::string& text,
                     const text::Encoding& all, std::vector<uint8_t>& counts) const {
    text::ChatInputs with_prompt = inputs;
    with_prompt.add_generation_prompt = true;
    BOWLINE_TRY_ASSIGN(const std::string prompt,
                       format_->render(messages.first(i), with_prompt, special_));
    BOWLINE_TRY_ASSIGN(const text::Encoding before, encode(prompt));
    size_t end = text.size();
    if (i + 1 < messages.size()) {
      // Otherwise tokens of other messages could count.
      for (const size_t first : {i, i + 1}) {
        BOWLINE_TRY_ASSIGN(const std::string part,
                           first == 0 ? Result<std::string>(std::string())
                                      : format_->render(messages.first(first), inputs, special_));
        BOWLINE_REQUIRE_CODE(
            text.starts_with(part), Code::bad_file,
            "The chat template changes the first {} messages if more follow, so the tokens of "
            "message {} are not known. Use --train-on last-answer, or a template that marks the "
            "answers with {% generation %}.",
            first, i + 1);
        end = part.size();
      }
    }
    for (size_t t = equal_tokens(before, all); t < all.ids.size(); ++t) {
      counts[t] |= all.offsets[t].begin < end ? 1 : 0;
    }
    return {};
  }

  void append(Learnt row, Rows& rows) const {
    std::vector<int32_t>& ids = row.ids;
    rows.cut += ids.size() > limit_ ? 1 : 0;
    ids.resize(std::min(ids.size(), limit_));
    std::vector<int32_t> labels;
    uint64_t counted = 0;
    for (size_t i = 1; i < ids.size(); ++i) {
      labels.push_back(row.counts[i] != 0 ? ids[i] : kIgnored);
      counted += row.counts[i];
    }
    rows.counted += counted;
    rows.silent += counted == 0 ? 1 : 0;
    if (ids.size() < 2) {
      ids.resize(1);  // one token, without a label
      labels = {kIgnored};
    } else {
      ids.pop_back();
    }
    rows.ids.push_back(std::move(ids));
    rows.labels.push_back(std::move(labels));
  }

  text::Tokenizer tokenizer_;
  text::SpecialTokens special_;
  std::optional<text::ChatTemplate> format_;
  Status no_format_;
  std::optional<int32_t> end_;
  std::string train_on_;
  size_t limit_ = 0;
};

class ChatTask final : public RowTask<Rows> {
 public:
  ChatTask(const DataOptions& o, Rows train, Rows held_out, const LengthLimit& limit,
           int32_t padding)
      : RowTask(o, std::move(train), std::move(held_out), limit, padding) {
    const auto size = [](const Rows& rows) {
      return fmt::format("{} rows, {} tokens to predict", rows.ids.size(), rows.counted);
    };
    info_.unit = "nats per token";
    info_.step = fmt::format("rows of at most {} tokens", longest_);
    info_.data = {{"training data", size(train_)}, {"held out", size(held_out_)}};
    info_.sizes = {{"rows", held_out_.ids.size()}, {"tokens", held_out_.counted}};
    info_.notes = {"rows " + cut_note_};
    if (const uint64_t silent = train_.silent + held_out_.silent; silent > 0) {
      info_.notes.push_back(fmt::format("{} rows have no token to predict", silent));
    }
    append_if(o_.train_on != "all", info_.settings, "train-on", o_.train_on);
    append_if(!o_.chat_format.empty(), info_.settings, "chat-format", o_.chat_format);
    append_if(o_.in_order, info_.settings, "in-order", "");
    info_.evaluation_key =
        hash_text(fmt::format("{} {} {} {} {} {}", held_out_.hash, limit_, o_.train_on,
                              o_.chat_format, o_.batch, o_.eval_batches));
  }

  std::span<const Tensor> batch(uint64_t first) override {
    return fill(train_, order_.batch(first));
  }

  Result<Measure> evaluate(const Forward& forward) override {
    double nats = 0;
    uint64_t total = 0;
    BOWLINE_TRY(for_batches([&](std::span<const size_t> rows) -> Status {
      float mean = 0;
      const Tensor output{"loss", DType::f32, {}, &mean};
      BOWLINE_TRY(forward(fill(held_out_, rows), {&output, 1}));
      const auto counted = static_cast<uint64_t>(
          std::ranges::count_if(labels_, [](int32_t label) { return label != kIgnored; }));
      nats += static_cast<double>(mean) * static_cast<double>(counted);
      total += counted;
      return {};
    }));
    const double loss = nats / static_cast<double>(total);
    return Measure{loss, std::exp(loss)};
  }

 private:
  std::span<const Tensor> fill(const Rows& of, std::span<const size_t> rows) {
    const Tensor tokens = batch_.fill(of.ids, rows)[0];
    fill_tokens(of.labels, rows, o_.batch, tokens.shape[1], kIgnored, labels_);
    tensors_ = {tokens, {"labels", DType::i32, tokens.shape, labels_.data()}};
    return tensors_;
  }

  std::vector<int32_t> labels_;
  std::array<Tensor, 2> tensors_;
};

// Returns the file in the folder, or the only file.
std::string file_of(const std::string& data, const char* name) {
  std::error_code error;
  return std::filesystem::is_directory(data, error) ? data + "/" + name : data;
}

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

Status read_rows(const std::string& file, const Renderer& renderer,
                 const std::function<Rows*(size_t row, size_t count)>& into) {
  BOWLINE_TRY_ASSIGN(const std::string bytes, read_text(file, true));
  BOWLINE_TRY_ASSIGN(const std::vector<Conversation> rows, read_conversations(bytes, file));
  const std::string hash = hash_text(bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    Rows& out = *into(i, rows.size());
    out.hash = hash;
    BOWLINE_TRY(renderer.add(rows[i], file, out));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Task>> make_chat_task(const Model& model, const DataOptions& o,
                                             Purpose purpose) {
  const LengthLimit limit = length_limit(model, o.max_seq_length, kMostTokens);
  BOWLINE_TRY_ASSIGN(const Renderer renderer, Renderer::create(model, o, limit));
  Rows train;
  Rows held_out;
  const auto all_into = [](Rows& rows) { return [&rows](size_t, size_t) { return &rows; }; };
  if (purpose == Purpose::evaluation) {
    const std::string test = file_of(o.data, "test.jsonl");
    BOWLINE_TRY(read_rows(is_there(test) ? test : file_of(o.data, "valid.jsonl"), renderer,
                          all_into(held_out)));
  } else {
    const std::string in_folder = file_of(o.data, "valid.jsonl");
    const std::string valid = !o.valid.empty()                             ? o.valid
                              : in_folder != o.data && is_there(in_folder) ? in_folder
                                                                           : "";
    if (!valid.empty()) {
      BOWLINE_TRY(read_rows(valid, renderer, all_into(held_out)));
    }
    const auto split = [&](size_t row, size_t count) {
      return valid.empty() && held_out_row(row, count) ? &held_out : &train;
    };
    BOWLINE_TRY(read_rows(file_of(o.data, "train.jsonl"), renderer, split));
    BOWLINE_REQUIRE_CODE(train.counted > 0, Code::bad_file,
                         "The training part of \"{}\" has no token to predict.", o.data);
  }
  for (const char* flag : {"--train-on", "--chat-format"}) {
    BOWLINE_TRY(o.uses.check(flag, train.chats + held_out.chats > 0,
                             "all rows of the data are texts, and none is a conversation"));
  }
  BOWLINE_REQUIRE_CODE(held_out.counted > 0, Code::bad_file,
                       "The held-out part of \"{}\" has no token to predict.",
                       o.valid.empty() ? o.data : o.valid);
  return std::unique_ptr<Task>(std::make_unique<ChatTask>(o, std::move(train), std::move(held_out),
                                                          limit, padding_of(model)));
}

}  // namespace bowline::command
