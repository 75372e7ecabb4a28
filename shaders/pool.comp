//! variants PART=max,max_grad,average,average_grad T=f32,f16,bf16
// Pools over planes of [N, C, spatial...]; one invocation per result.
//   max           y[o] = the largest x of its window; NaN counts as the largest value; -inf if
//                 empty
//   max_grad      dx[i] = sum of dy over the windows whose first element equal to y is x[i]
//   average       y[o] = sum of x over its window / count
//   average_grad  dx[i] = sum of dy / count over the windows that contain element i
#include "common.glsl"
#include "order.glsl"
#include "windows.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements y;
  Elements dy;
  Elements dx;
  Words windows;
  uint n;  // number of results
  uint per_group;
  uint count_pads;
} p;

// NaN counts as the largest value.
int order_of(A value) { return order_of_bits(floatBitsToUint(value), kNanLast); }
bool is_largest(A x, A y) { return order_of(x) == order_of(y); }

#if defined(PART_max) || defined(PART_average)
void main() {
  LOAD_WINDOWS(p.windows)
  FOR_ELEMENTS(i, p.n) {
    const uint ox = i % ax.outs;
    const uint oy = i / ax.outs % ay.outs;
    const uint oz = i / (ax.outs * ay.outs) % az.outs;
    const uint x = i / (ax.outs * ay.outs * az.outs) * az.size * ay.size * ax.size;
#if defined(PART_max)
    A result = uintBitsToFloat(0xFF800000u);
#else
    A result = 0;
#endif
    for (uint kz = 0; kz < az.window; ++kz) {
      const uint iz = input_of(az, oz, kz);
      for (uint ky = 0; ky < ay.window && iz < az.size; ++ky) {
        const uint iy = input_of(ay, oy, ky);
        for (uint kx = 0; kx < ax.window && iy < ay.size; ++kx) {
          const uint ix = input_of(ax, ox, kx);
          if (ix < ax.size) {
            const A v = read(p.x, x + (iz * ay.size + iy) * ax.size + ix);
#if defined(PART_max)
            result = order_of(v) > order_of(result) ? v : result;
#else
            result += v;
#endif
          }
        }
      }
    }
#if defined(PART_average)
    const bool pads = p.count_pads != 0;
    result /= A(max(count_of(az, oz, pads) * count_of(ay, oy, pads) * count_of(ax, ox, pads), 1u));
#endif
    write(p.y, i, result);
  }
}
#else
#if defined(PART_max_grad)
// True if no element of the window before k equals y.
bool is_first(WindowAxis az, WindowAxis ay, WindowAxis ax, uint x, A y, uvec3 o, uvec3 k) {
  for (uint kz = 0; kz <= k.z; ++kz) {
    const uint iz = input_of(az, o.z, kz);
    const uint last_y = kz == k.z ? k.y + 1 : ay.window;
    for (uint ky = 0; ky < last_y && iz < az.size; ++ky) {
      const uint iy = input_of(ay, o.y, ky);
      const uint last_x = kz == k.z && ky == k.y ? k.x : ax.window;
      for (uint kx = 0; kx < last_x && iy < ay.size; ++kx) {
        const uint ix = input_of(ax, o.x, kx);
        if (ix < ax.size && is_largest(read(p.x, x + (iz * ay.size + iy) * ax.size + ix), y)) {
          return false;
        }
      }
    }
  }
  return true;
}
#endif

void main() {
  LOAD_WINDOWS(p.windows)
  const bool pads = p.count_pads != 0;
  FOR_ELEMENTS(i, p.n) {
    const uint ix = i % ax.size;
    const uint iy = i / ax.size % ay.size;
    const uint iz = i / (ax.size * ay.size) % az.size;
    const uint map = i / (ax.size * ay.size * az.size);
    const uint x = map * az.size * ay.size * ax.size;
    const uint y = map * az.outs * ay.outs * ax.outs;
    A sum = 0;
    for (uint kz = 0; kz < az.window; ++kz) {
      const uint oz = output_of(az, iz, kz);
      for (uint ky = 0; ky < ay.window && oz < az.outs; ++ky) {
        const uint oy = output_of(ay, iy, ky);
        for (uint kx = 0; kx < ax.window && oy < ay.outs; ++kx) {
          const uint ox = output_of(ax, ix, kx);
          if (ox < ax.outs) {
            const uint o = y + (oz * ay.outs + oy) * ax.outs + ox;
#if defined(PART_max_grad)
            const A top = read(p.y, o);
            if (is_largest(read(p.x, i), top) &&
                is_first(az, ay, ax, x, top, uvec3(ox, oy, oz), uvec3(kx, ky, kz))) {
              sum += read(p.dy, o);
            }
#else
            sum += read(p.dy, o) /
                   A(max(count_of(az, oz, pads) * count_of(ay, oy, pads) * count_of(ax, ox, pads), 1u));
#endif
          }
        }
      }
    }
    write(p.dx, i, sum);
  }
}
#endif
