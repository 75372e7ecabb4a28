//! variants T=f32,f16,bf16
// y = x / (1 - rate) if the element is kept, else 0; x if not training. Element i is kept if word i
// % 4 of philox({i / 4, stream, iteration, counter}, seed) reaches the threshold. Every device
// gives the same bits.
#include "common.glsl"
#include "random.glsl"
#include "step_dropout.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements y;
  STEP_WORDS
  uint n;
  uint blocks;  // of four elements
  uint per_group;  // blocks per workgroup
  uint stream;
  uint iteration;
  uint threshold;
  float scale;     // 1 / (1 - rate)
} p;

void main() {
  const bool training = step_training != 0;
  const uvec2 key = step_seed;
  const uint counter = step_counter;
  FOR_ELEMENTS(block, p.blocks) {
    const uvec4 words = training ? philox(uvec4(block, p.stream, p.iteration, counter), key) : uvec4(0);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const uint i = 4 * block + j;
      if (i < p.n) {
        const A x = read(p.x, i);
        write(p.y, i, !training ? x : (words[j] >= p.threshold ? x * p.scale : 0));
      }
    }
  }
}
