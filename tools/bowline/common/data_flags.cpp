#include "common/data_flags.h"

#include "common/help.h"
#include "common/numbers.h"

namespace bowline::command {

void add_data(CLI::App* verb, DataOptions& o) {
  verb->add_option("--data", o.data, "Text, .jsonl, .csv, .tsv, or a folder")
      ->type_name("FILE")
      ->required();
  verb->add_flag("--as-text", o.as_text, "Read JSON lines and tables as plain text")
      ->group(kAdvanced);
  verb->add_option("--max-seq-length", o.max_seq_length,
                   "Cut rows to this many tokens [the model's limit]")
      ->check(whole_number(1, 1 << 20));
  verb->add_flag("--pad-to-longest", o.pad_to_longest,
                 "Pad every batch to the longest row of the data")
      ->group(kAdvanced);
  verb->add_flag("--mask-prompt", o.mask_prompt,
                 "Compute the loss only on answers of conversations");
  verb->add_option("--chat-format", o.chat_format, "Chat template, such as chatml [the model's]")
      ->type_name("NAME");
  verb->add_option("--text-field", o.fields.text, "Column or field with the text [text]")
      ->type_name("NAME");
  verb->add_option("--label-field", o.fields.label, "Column or field with the label [label]")
      ->type_name("NAME");
  verb->add_option("--labels", o.labels, "One label per line, in class order [the model's]")
      ->type_name("FILE");
  o.uses = FlagUses(verb);
  o.uses.add({"--as-text"}, kPlainText);
  o.uses.add({"--max-seq-length", "--pad-to-longest"}, kConversations | kExamples);
  o.uses.add({"--mask-prompt", "--chat-format"}, kConversations);
  o.uses.add({"--text-field", "--label-field", "--labels"}, kExamples);
}

void add_windows(CLI::App* verb, DataOptions& o) {
  verb->add_option("--batch", o.batch, "Rows of data, or windows of text, per batch")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--seq", o.seq, "Tokens per window; bytes without a tokenizer")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  o.uses.add({"--seq"}, kPlainText);
}

}  // namespace bowline::command
