// Rotation by position * frequency. The angle is a fraction of a turn in 64-bit fixed point, so it
// is equally exact at large and small positions.
#include "math.glsl"

// Cosine and sine of the angle at position `index` + offset. The frequency is the turns per
// position, as a low and a high word.
vec2 rotation(int index, uvec2 offset, uvec2 frequency, bool is_inverse) {
  uint carry;
  const uint position = uaddCarry(uint(index), offset.x, carry);
  const uint position_high = offset.y + uint(index >> 31) + carry;
  uint upper;
  uint lower;
  umulExtended(position, frequency.x, upper, lower);
  const uint turns = upper + position * frequency.y + position_high * frequency.x;
  return cos_sin_turns(is_inverse ? 0u - turns : turns);
}
