// The attributes of a rotation, which Rope and FusedWriteRows have.
#pragma once

#include "base/status.h"
#include "core/attributes.h"

namespace bowline::detail {

// Checks the attributes for heads of `head_dim` channels.
Status check_rotation(const RopeAttributesT& t, int64_t head_dim);

}  // namespace bowline::detail
