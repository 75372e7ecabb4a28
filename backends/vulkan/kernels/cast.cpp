//! ops(any) Cast
#include "convert.h"

namespace bowline::detail::vulkan::cast_kernels {
namespace {

void cast(Launch& l) {
  convert(l, l.in(0), l.in_type(0), l.out(0), l.out_type(0),
          static_cast<uint64_t>(l.out_shape(0).elements()));
}

}  // namespace

BOWLINE_KERNEL(cast, .launch = cast);

}  // namespace bowline::detail::vulkan::cast_kernels
