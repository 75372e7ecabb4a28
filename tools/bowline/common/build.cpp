#include "common/build.h"

#include "bowline.h"
#include "commit.h"

namespace bowline::command {

std::string build_text() {
  const std::string commit = BOWLINE_COMMIT;
  return std::string(version()) + (commit.empty() ? "" : ", commit ") + commit;
}

}  // namespace bowline::command
