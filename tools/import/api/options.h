// Checks options, and finds options that have no effect. The messages name them as flags.
#pragma once

#include "bowline_import.h"

namespace bowline::import {

// Checks the values that do not depend on the source.
// Errors  bad_argument: a value is out of range.
Status check_values(const ImportOptions& options);

// Checks that all options have an effect on the format. `path` is the source.
// Errors  bad_argument: an option is for another format, or `skeleton` is not for a folder.
Status check_format(const ImportOptions& options, ImportFormat kind, const std::string& path);

// Checks that all options have an effect on a model for the task.
// Errors  bad_argument: an option is for another task, or for a model with new weights.
Status check_task(const TextImportOptions& options, ImportTask task, bool has_new_weights);

}  // namespace bowline::import
