// Reads JSON lines: one JSON object per line. Blank lines are skipped.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "bowline.h"

namespace bowline::command {

// Calls `take` with each object and its line number, from 1. `name`: the file, for messages.
// Errors  bad_file: a line is not JSON or not an object ("name:line:column: ..."), or `take` fails:
//         its message then follows the place ("name:line: ...").
Status read_json_lines(
    std::string_view text, const std::string& name,
    const std::function<Status(const nlohmann::ordered_json& row, size_t line)>& take);

// Parses JSON. `fits` is set to false if it has too many levels or keys to be handled safely; the
// result is then incomplete. Throws nlohmann::json::exception if the text is not JSON.
nlohmann::ordered_json parse_bounded(std::string_view text, bool& fits);

}  // namespace bowline::command
