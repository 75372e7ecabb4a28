// Convolutions as products on emulated GPUs, compared with the reference implementation: every tile
// in each of the three directions.
#include "emulated_gpus.h"

namespace bowline::conformance {
namespace {

class Convolutions : public OnEmulatedGpus {};

TEST_F(Convolutions, Forward) {
  compare_all(kSmallAmpere, Op::Conv, R"(
| [2,9,8,9] [120,9,3,3] [120] | pads=[1,1,1,1]
| [3,5,17,6] [56,5,3,2] | strides=[2,1] dilations=[1,2] pads=[1,0,2,1]
| [2,7,11,13] [20,7,2,2] [20] | | dtype=f32,f16,bf16
| [2,68,5,6] [66,34,3,3] | groups=2 pads=[1,1,1,1]
| [1,3,5,6,7] [33,3,2,3,2] | strides=[2,1,2] pads=[1,1,0,0,1,1]
| [2,3,300] [40,3,9] [40] | strides=[3]
)");
  // Planes of a batch that end inside a tile; parts of the steps.
  compare_all(kAmpere, Op::Conv, R"(
| [3,130,3,3] [40,130,3,3] [40] | pads=[1,1,1,1]
| [2,600,3,5] [17,600,1,1] | | dtype=f32,bf16
)");
}

// With a stride, the taps of a position depend on its phase, and some phases have none.
TEST_F(Convolutions, Back) {
  compare_all(kSmallAmpere, Op::ConvInputGrad, R"(
| [24,70,3,3] [2,24,8,9] | dims=[2,70,8,9] pads=[1,1,1,1]
| [24,33,3,3] [2,24,6,7] | dims=[2,33,12,13] pads=[1,1,1,1] strides=[2,2]
| [24,33,2,2] [2,24,4,5] | dims=[2,33,12,16] strides=[3,3] | dtype=f32,f16
| [24,33,4,3] [2,24,5,3] | dims=[2,33,14,12] strides=[2,3] dilations=[2,2] pads=[1,0,0,1]
| [24,33,3,3] [2,24,4,4] | dims=[2,33,10,10] strides=[2,2] dilations=[2,1] pads=[1,1,1,1]
| [24,33,4] [3,24,19] | dims=[3,33,40] strides=[2] dilations=[3] pads=[4,4]
| [8,33,2,2,2] [1,8,3,4,5] | dims=[1,33,6,8,10] strides=[2,2,2]
| [48,20,3,3] [2,48,8,9] | dims=[2,40,8,9] groups=2 pads=[1,1,1,1] | dtype=f32,bf16
)");
  compare_all(kSmallAmpere, Op::ConvTranspose, R"(
| [2,24,6,7] [24,33,3,3] [33] | pads=[1,1,1,1] strides=[2,2] output_padding=[1,1]
| [2,24,6,7] [24,120,4,4] [120] | pads=[1,1,1,1] strides=[2,2]
)");
  compare_all(kAmpere, Op::ConvInputGrad,
              "| [700,20,3,3] [1,700,3,4] | dims=[1,20,3,4] pads=[1,1,1,1]");
}

// An infinite weight reaches only the results of which it is a term, also where tiles multiply it
// with the zeros outside of dy.
TEST_F(Convolutions, BackOfWeightsThatAreNotFinite) {
  compare_all(kSmallAmpere, Op::ConvInputGrad, R"(
| [24,33,3,3] [2,24,6,7] | dims=[2,33,6,7] pads=[1,1,1,1] | values=nan seeds=3
| [24,33,3,3] [2,24,6,7] | dims=[2,33,12,13] pads=[1,1,1,1] strides=[2,2] | values=nan seeds=3
)");
}

TEST_F(Convolutions, Weights) {
  compare_all(kSmallAmpere, Op::ConvWeightGrad, R"(
| [2,14,8,9] [2,120,8,9] | dims=[120,14,3,3] pads=[1,1,1,1]
| [2,7,8,9] [2,56,4,5] | dims=[56,7,3,3] strides=[2,2] pads=[1,1,1,1] | dtype=f32,f16,bf16
| [3,12,6,7] [3,40,5,5] | dims=[40,6,2,3] groups=2
| [1,3,5,6,7] [1,33,3,6,4] | dims=[33,3,2,3,2] strides=[2,1,2] pads=[1,1,0,0,1,1]
)");
  compare_all(kAmpere, Op::ConvWeightGrad, R"(
| [3,5,16,17] [3,20,16,17] | dims=[20,5,3,3] pads=[1,1,1,1]
| [4,40,40,41] [4,40,40,41] | dims=[40,40,1,1] | dtype=f32,f16
)");
}

}  // namespace
}  // namespace bowline::conformance
