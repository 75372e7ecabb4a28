#include "common/data_flags.h"

#include "common/flags.h"
#include "common/help.h"

namespace bowline::command {

void add_data(CLI::App* verb, DataOptions& o) {
  add_text(verb, "--data", o.data, "Text, .jsonl, .csv, .conll, or a folder", "FILE")->required();
  add_number(verb, "--max-seq-length", o.max_seq_length,
             "Cut rows to this many tokens [the model's limit]", 1, 1 << 20);
  add_choice(verb, "--train-on", o.train_on, "Counted tokens",
             {"all", "all-answers", "last-answer"});
  add_text(verb, "--chat-format", o.chat_format, "Chat template, such as chatml [the model's]",
           "NAME");
  add_text(verb, "--text-field", o.fields.text, "Column or field with the text [text]", "NAME");
  add_text(verb, "--label-field", o.fields.label, "Column or field with the label or score [label]",
           "NAME");
  add_text(verb, "--labels", o.labels, "One label per line, in class order [the model's]", "FILE");
  add_choice(verb, "--embed-loss", o.embed_loss, "Loss of triplets", {"in-batch", "triplet"});
  const AdvancedFlags advanced(verb);
  add_number(verb, "--similarity-scale", o.similarity_scale,
             "Factor of in-batch cosines [the model's]", 0, 1e6);
  add_number(verb, "--triplet-margin", o.triplet_margin, "Margin of triplets [the model's]", 0,
             1e6);
  verb->add_flag("--as-text", o.as_text, "Read JSON lines and tables as plain text");
  verb->add_flag("--pad-to-longest", o.pad_to_longest,
                 "Pad every batch to the longest row of the data");
  o.uses = FlagUses(verb);
  o.uses.add({"--as-text"}, kPlainText);
  o.uses.add({"--max-seq-length", "--pad-to-longest"},
             kConversations | kExamples | kTextGroups | kTaggedWords);
  o.uses.add({"--train-on", "--chat-format"}, kConversations);
  o.uses.add({"--text-field", "--label-field"}, kExamples | kTextGroups | kTaggedWords);
  o.uses.add({"--labels"}, kExamples | kTaggedWords);
  o.uses.add({"--embed-loss", "--similarity-scale", "--triplet-margin"}, kTextGroups);
}

void add_windows(CLI::App* verb, DataOptions& o) {
  add_number(verb, "--batch", o.batch, "Rows of data, or windows of text, per batch", 1, 1 << 20);
  add_number(verb, "--seq", o.seq, "Tokens per window (bytes if no tokenizer)", 1, 1 << 20);
  o.uses.add({"--seq"}, kPlainText);
}

}  // namespace bowline::command
