#include "common/data_flags.h"

#include "common/numbers.h"

namespace bowline::command {

void add_data(CLI::App* verb, DataOptions& o) {
  verb->add_option("--data", o.data,
                   "Text file; .jsonl or a folder for chat models; .csv, .tsv, .jsonl with labels")
      ->required();
  verb->add_flag("--as-text", o.as_text, "Read a JSON file or table as plain text");
  verb->add_option("--max-seq-length", o.max_seq_length,
                   "Cut rows after this many tokens [default: limit of the model; chats: 2048]")
      ->check(whole_number(1, 1 << 20));
  verb->add_flag("--pad-to-longest", o.pad_to_longest,
                 "Pad all batches to the longest row [default: plans for several lengths]");
  verb->add_flag("--mask-prompt", o.mask_prompt,
                 "Chats: learn only the answers that the template marks, else the last answer");
  verb->add_option("--chat-format", o.chat_format,
                   "Chats: name of the chat format [default: the template of the model]");
  verb->add_option("--text-field", o.fields.text, "Column or field with the text [default: text]");
  verb->add_option("--label-field", o.fields.label,
                   "Column or field with the label, or labels separated by | [default: label]");
  verb->add_option("--labels", o.labels,
                   "File with one label per line, in the order of the classes");
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
  verb->add_option("--seq", o.seq, "Plain text: tokens (or bytes) per window")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  o.uses.add({"--seq"}, kPlainText);
}

}  // namespace bowline::command
