// An entry point that runs through the C interface of a libbowline_c.so, for `bowline bench run`.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "bowline.h"

namespace bowline::command {

class CSession {
 public:
  // Loads the library and opens the model in it. `inputs` must outlive the session.
  // Errors  bad_argument: the file is not such a library. Also the errors of opening and planning.
  static Result<CSession> open(const std::string& library, const std::string& model,
                               const std::string& device, const BoundEntryPoint& entry,
                               std::span<const Tensor> inputs);

  ~CSession();
  CSession(CSession&&) noexcept;
  CSession& operator=(CSession&&) noexcept;

  Status run();

 private:
  struct State;
  explicit CSession(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace bowline::command
