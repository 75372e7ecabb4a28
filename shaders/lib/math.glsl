// Functions accurate to f32 rounding, because drivers may be inaccurate (exp of a software driver
// is a short polynomial). Coefficients: minimax fits of the stated function on the stated range in
// double, rounded to f32.

#define kInfinity uintBitsToFloat(0x7f800000u)

float power_of_two(int n) { return uintBitsToFloat(uint(n + 127) << 23); }  // -126 <= n <= 127

// x = n ln 2 + r with |r| <= ln 2 / 2: n, and e^r - 1.
float expm1_reduced(float x, out float n) {
  n = roundEven(x * 1.44269504);
  const float r = (x - n * 0.693359375) - n * -2.12194440e-4;  // ln 2 in two parts
  // (e^r - 1 - r) / r^2
  const float p = (((0.00139517174 * r + 0.00836959854) * r + 0.0416661873) * r + 0.166665122) * r + 0.5;
  return p * r * r + r;
}

float exp_f32(float x) {
  if (is_nan(x)) {
    return x;
  }
  if (x > 88.722839) {
    return kInfinity;
  }
  float n;
  const float e = expm1_reduced(max(x, -103.97208), n) + 1.0;
  const int i = int(n);
  const int half_i = i / 2;
  return e * power_of_two(half_i) * power_of_two(i - half_i);
}

// e^x - 1, with a small relative error also near 0.
float expm1_f32(float x) {
  if (is_nan(x)) {
    return x;
  }
  if (x > 80.0) {
    return exp_f32(x);
  }
  float n;
  const float e = expm1_reduced(max(x, -30.0), n);
  const float scale = power_of_two(int(n));
  return scale * e + (scale - 1.0);
}

float log_f32(float x) {
  if (!is_finite(x)) {
    return x < 0.0 ? uintBitsToFloat(0x7fc00000u) : x;
  }
  if (x <= 0.0) {
    return x == 0.0 ? -kInfinity : uintBitsToFloat(0x7fc00000u);
  }
  float n = 0.0;
  if (x < 1.17549435e-38) {
    x *= 16777216.0;
    n = -24.0;
  }
  const uint bits = floatBitsToUint(x);
  // m in [sqrt(1/2), sqrt(2))
  const int exponent = int((bits - 0x3f3504f3u) >> 23) - (bits < 0x3f3504f3u ? 512 : 0);
  const float f = uintBitsToFloat(bits - (uint(exponent) << 23)) - 1.0;
  n += float(exponent);
  // (log(1 + f) - f + f^2 / 2) / f^3
  float p = 0.0691536814;
  p = p * f - 0.117898077;
  p = p * f + 0.118729763;
  p = p * f - 0.123843484;
  p = p * f + 0.142186582;
  p = p * f - 0.16669251;
  p = p * f + 0.200022265;
  p = p * f - 0.249999866;
  p = p * f + 0.333333105;
  const float s = f * f;
  return n * 0.693359375 + (f + (p * f * s - 0.5 * s + n * -2.12194440e-4));
}

float tanh_f32(float x) {
  const float t = abs(x);
  if (t < 0.625) {
    const float s = x * x;
    // (tanh x - x) / x^3
    const float p = (((-0.00567931589 * s + 0.0206181332) * s - 0.0537340045) * s + 0.133313835) * s - 0.333332807;
    return x + x * s * p;
  }
  const float y = t > 10.0 ? 1.0 : 1.0 - 2.0 / (exp_f32(2.0 * t) + 1.0);
  return is_nan(x) ? x : (x < 0.0 ? -y : y);
}

float sigmoid_f32(float x) { return 1.0 / (1.0 + exp_f32(-x)); }

// factor * sigmoid(x). The sigmoid alone may be denormal, which some devices flush to zero.
float times_sigmoid(float factor, float x) {
  // 9.36e-14 = e^-30
  return x < -60.0 ? factor * exp_f32(x + 30.0) * 9.35762297e-14 : factor * sigmoid_f32(x);
}

// erfc for t >= 1, to full relative precision: t^2 is split so that its exponential is exact.
float erfc_tail(float t) {
  if (t > 10.5) {
    return 0.0;
  }
  const float q = (t - 4.0) / (t + 4.0);
  // erfc(t) * exp(t^2) * (1 + 2 t) over q, 1 <= t <= 10.5
  float p = 0.00524336239;
  p = p * q - 0.016545767;
  p = p * q + 0.0370356962;
  p = p * q - 0.0662708208;
  p = p * q + 0.0937554836;
  p = p * q - 0.101043455;
  p = p * q + 0.0680956692;
  p = p * q + 0.0153797753;
  p = p * q - 0.139621094;
  p = p * q + 1.23299515;
  const float high = uintBitsToFloat(floatBitsToUint(t) & 0xfffff000u);
  return p / (1.0 + 2.0 * t) * exp_f32(-high * high) * exp_f32((high - t) * (high + t));
}

float erf_near(float x) {  // |x| <= 1
  const float s = x * x;
  float p = 7.88928592e-05;
  p = p * s - 0.000802089518;
  p = p * s + 0.00518954219;
  p = p * s - 0.026854448;
  p = p * s + 0.112836003;
  p = p * s - 0.37612626;
  p = p * s + 1.12837911;
  return x * p;
}

float erf_f32(float x) {
  if (is_nan(x)) {
    return x;
  }
  const float t = abs(x);
  if (t <= 1.0) {
    return erf_near(x);
  }
  return (1.0 - erfc_tail(t)) * sign(x);
}

// The normal distribution function.
float normal_cdf(float x) {
  if (is_nan(x)) {
    return x;
  }
  const float t = abs(x) * 0.707106781;
  if (t <= 1.0) {
    return 0.5 + 0.5 * erf_near(x * 0.707106781);
  }
  const float tail = 0.5 * erfc_tail(t);
  return x < 0.0 ? tail : 1.0 - tail;
}

// Cosine and sine of an angle, given as a fraction of a turn in units of 2^-32.
vec2 cos_sin_turns(uint turns) {
  const uint eighth = (turns + 0x20000000u) >> 30;  // nearest quarter turn
  const float f = float(int(turns - (eighth << 30))) * 2.3283064365386963e-10;  // |f| <= 1/8
  const float s = f * f;
  const float si = f * ((((41.4720726 * s - 76.6978455) * s + 81.6052017) * s - 41.3417015) * s + 6.28318548);
  const float co = (((59.2188721 * s - 85.4428101) * s + 64.9393158) * s - 19.7392082) * s + 1.0;
  switch (eighth & 3u) {
    case 0u: return vec2(co, si);
    case 1u: return vec2(-si, co);
    case 2u: return vec2(-co, -si);
    default: return vec2(si, -co);
  }
}

// The fractional part of x / (2 pi), in units of 2^-32 turns: the 24 bits of x times the relevant
// bits of 1 / (2 pi) (Payne and Hanek, "Radian Reduction for Trigonometric Functions", 1983). For a
// finite x with |x| >= 1/2.
uint turns_of(float x) {
  // 1 / (2 pi) after the point, 192 bits
  const uint digits[6] = uint[6](0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u);
  const uint bits = floatBitsToUint(x);
  const uint fraction = (bits & 0x7fffffu) | 0x800000u;
  const int exponent = int((bits >> 23) & 255u) - 150;  // x = fraction 2^exponent, from -24 on
  // The product needs the 64 digits from `from` on; earlier digits give whole turns.
  const int from = max(exponent, 0);
  const uint word = uint(from) >> 5;
  const uint shift = uint(from) & 31u;
  const uint high = shift == 0u ? digits[word] : digits[word] << shift | digits[word + 1u] >> (32u - shift);
  const uint low = shift == 0u ? digits[word + 1u] : digits[word + 1u] << shift | digits[word + 2u] >> (32u - shift);
  uint carry;
  uint rest;
  umulExtended(fraction, low, carry, rest);
  uint turns = fraction * high + carry;
  if (exponent < 0) {
    // The digits are shifted to the right instead: 24 more bits above the point of the product.
    uint above;
    uint below;
    umulExtended(fraction, high, above, below);
    below += carry;
    above += below < carry ? 1u : 0u;
    const uint by = uint(-exponent);
    turns = by == 0u ? below : below >> by | above << (32u - by);
  }
  return (bits >> 31) != 0u ? 0u - turns : turns;
}

float sin_f32(float x) {
  if (!is_finite(x)) {
    return uintBitsToFloat(0x7fc00000u);
  }
  if (abs(x) < 0.78539816) {
    const float s = x * x;
    return x + x * s * (((2.75573192e-6 * s - 1.98412698e-4) * s + 8.33333333e-3) * s - 0.166666667);
  }
  return cos_sin_turns(turns_of(x)).y;
}

float cos_f32(float x) {
  if (!is_finite(x)) {
    return uintBitsToFloat(0x7fc00000u);
  }
  if (abs(x) < 0.5) {
    const float s = x * x;
    return 1.0 - s * (0.5 - s * (0.0416666667 - s * (1.38888889e-3 - s * 2.48015873e-5)));
  }
  return cos_sin_turns(turns_of(x)).x;
}

// a^b as in C and IEEE 754: a^0 and 1^b are 1 for all a and b. Computed as e^(b log |a|), which
// costs |b log a| roundings.
float pow_f32(float a, float b) {
  if (b == 0.0 || a == 1.0) {
    return 1.0;
  }
  if (is_nan(a) || is_nan(b)) {
    return uintBitsToFloat(0x7fc00000u);
  }
  const bool whole = floor(b) == b;
  const bool odd = whole && abs(b) < 16777216.0 && (int(b) & 1) != 0;
  if (a == -1.0 && is_infinite(b)) {
    return 1.0;
  }
  float magnitude;
  if (is_infinite(b)) {
    magnitude = (abs(a) > 1.0) == (b > 0.0) ? kInfinity : 0.0;
  } else {
    const float exponent = b * log_f32(abs(a));
    magnitude = exponent < -104.0 ? 0.0 : exp_f32(exponent);
  }
  if (floatBitsToInt(a) >= 0) {
    return magnitude;
  }
  // -0 and negative bases
  return odd ? -magnitude : whole || a == 0.0 || is_infinite(a) ? magnitude : uintBitsToFloat(0x7fc00000u);
}
