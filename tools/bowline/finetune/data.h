// The text of a run: what is trained on, and what is held out.
#pragma once

#include <string>
#include <string_view>

#include "finetune/options.h"

namespace bowline::command {

class TrainingData {
 public:
  // Errors  bad_file: a text cannot be used (see read_text), or is too short for a window.
  static Result<TrainingData> read(const FinetuneOptions& options);

  std::string_view train() const { return std::string_view(data_).substr(0, train_bytes_); }
  std::string_view held_out() const {
    return valid_.empty() ? std::string_view(data_).substr(train_bytes_) : std::string_view(valid_);
  }

 private:
  std::string data_;
  std::string valid_;
  size_t train_bytes_ = 0;
};

}  // namespace bowline::command
