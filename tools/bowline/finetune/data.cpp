#include "finetune/data.h"

#include "common/require.h"
#include "common/text.h"

namespace bowline::command {

Result<TrainingData> TrainingData::read(const FinetuneOptions& o) {
  TrainingData data;
  BOWLINE_ASSIGN(data.data_, read_text(o.data, o.as_text));
  data.train_bytes_ = data.data_.size();
  if (o.valid.empty()) {
    data.train_bytes_ = held_out_begin(data.data_);
  } else {
    BOWLINE_ASSIGN(data.valid_, read_text(o.valid, o.as_text));
  }
  BOWLINE_REQUIRE_CODE(Windows::fits(data.train_bytes_, o.seq), Code::bad_file,
                       "The training part of text \"{}\" has {} bytes; a window has {}.", o.data,
                       data.train_bytes_, o.seq + 1);
  BOWLINE_REQUIRE_CODE(data.held_out().size() >= 2, Code::bad_file,
                       "The held-out part of text \"{}\" has {} bytes.",
                       o.valid.empty() ? o.data : o.valid, data.held_out().size());
  return data;
}

}  // namespace bowline::command
