// JSON lines: one JSON object per line; lines without characters are left out.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "bowline.h"

namespace bowline::command {

// Gives each object with the number of its line, from 1 on. `name` is that of the file, for
// messages.
// Errors  bad_file: a line is not JSON ("name:line:column: ..."), or no object; what `take`
//         returns.
Status read_json_lines(std::string_view text, const std::string& name,
                       const std::function<Status(const nlohmann::json& row, size_t line)>& take);

}  // namespace bowline::command
