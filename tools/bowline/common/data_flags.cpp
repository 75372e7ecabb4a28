#include "common/data_flags.h"

#include "common/numbers.h"

namespace bowline::command {

void add_data(CLI::App* verb, DataOptions& o) {
  verb->add_option(
          "--data", o.data,
          "Plain text in UTF-8, at most 4 GiB; for a chat model also JSON lines (\"text\", "
          "\"prompt\" and \"completion\", or \"messages\") or a folder with train.jsonl, "
          "valid.jsonl and test.jsonl; for one that classifies .csv, .tsv or .jsonl")
      ->required();
  verb->add_flag("--as-text", o.as_text,
                 "Train on JSON lines or tables as they are, as plain text");
  verb->add_option("--max-seq-length", o.max_seq_length,
                   "Of rows: tokens after which they are cut (default: what the model can take, of "
                   "conversations at most 2048)")
      ->check(whole_number(1, 1 << 20));
  verb->add_flag("--pad-to-longest", o.pad_to_longest,
                 "Of rows: one plan, for batches padded to the longest row (default: plans for "
                 "several lengths, as little is padding then)");
  verb->add_flag("--mask-prompt", o.mask_prompt,
                 "Of conversations: learn only the answers that the template marks with "
                 "{% generation %}; if it marks none, only the last answer");
  verb->add_option("--chat-format", o.chat_format,
                   "Of conversations: the format of messages, by name (default: the template that "
                   "the model has)");
  verb->add_option("--text-field", o.fields.text, "Column or field with the text (default: text)");
  verb->add_option(
      "--label-field", o.fields.label,
      "Column or field with the label (default: label); of a model that gives several, "
      "these stand with | between them, or as an array");
  verb->add_option("--labels", o.labels,
                   "File with a label per line, in the order of the classes (default: those of the "
                   "model, else those of the data in the order of their bytes)");
  o.uses = FlagUses(verb);
  o.uses.add({"--as-text"}, kPlainText);
  o.uses.add({"--max-seq-length", "--pad-to-longest"}, kConversations | kExamples);
  o.uses.add({"--mask-prompt", "--chat-format"}, kConversations);
  o.uses.add({"--text-field", "--label-field", "--labels"}, kExamples);
}

void add_windows(CLI::App* verb, DataOptions& o) {
  verb->add_option("--batch", o.batch, "Windows or rows per batch")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--seq", o.seq, "Of a text: bytes or tokens per window")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  o.uses.add({"--seq"}, kPlainText);
}

}  // namespace bowline::command
