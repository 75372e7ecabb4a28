//! variants PART=forward,back,weights T=f32,f16,bf16
// Convolutions in groups of channels. With i = o * stride + k * dilation - pad:
//   forward  y[n, m, o] = bias[m] + sum over c, k of x[n, c, i] * w[m, c, k]
//            one invocation per output
//   back     x[n, c, i] = bias[c] + sum over m, o, k of y[n, m, o] * w[m, c, k]
//            one invocation per element of x
//   weights  w[m, c, k] = sum over n, o of y[n, m, o] * x[n, c, i]
//            one subgroup per weight, whose lanes are outputs of a row
#include "common.glsl"
#include "windows.glsl"

layout(push_constant, scalar) uniform Push {
  Elements x;
  Elements w;
  Elements y;
  Elements bias;
  Words windows;
  uint n;  // number of results
  uint per_group;
  uint has_bias;
  uint batch;
  uint groups;
  uint inputs;  // channels of x per group
  uint outputs;  // channels of y per group
} p;

#if defined(PART_forward)
A channel(WindowAxis az, WindowAxis ay, WindowAxis ax, uint x, uint w, uint oz, uint oy, uint ox) {
  A sum = 0;
  for (uint kz = 0; kz < az.window; ++kz) {
    const uint iz = input_of(az, oz, kz);
    for (uint ky = 0; ky < ay.window; ++ky) {
      const uint iy = input_of(ay, oy, ky);
      const bool is_row = iz < az.size && iy < ay.size;
      const uint row = x + (iz * ay.size + iy) * ax.size;
      const uint weights = w + (kz * ay.window + ky) * ax.window;
      for (uint kx = 0; kx < ax.window; ++kx) {
        const uint ix = input_of(ax, ox, kx);
        A element = 0;
        if (is_row && ix < ax.size) {
          element = read(p.x, row + ix);
        }
        sum += element * read(p.w, weights + kx);
      }
    }
  }
  return sum;
}

void main() {
  LOAD_WINDOWS(p.windows)
  const uint plane = az.size * ay.size * ax.size;
  const uint window = az.window * ay.window * ax.window;
  FOR_ELEMENTS(i, p.n) {
    const uint ox = i % ax.outs;
    const uint oy = i / ax.outs % ay.outs;
    const uint oz = i / (ax.outs * ay.outs) % az.outs;
    const uint map = i / (ax.outs * ay.outs * az.outs);
    const uint m = map % (p.groups * p.outputs);
    const uint x = (map / p.outputs) * p.inputs * plane;
    A sum = p.has_bias != 0 ? read(p.bias, m) : 0;
    for (uint c = 0; c < p.inputs; ++c) {
      sum += channel(az, ay, ax, x + c * plane, (m * p.inputs + c) * window, oz, oy, ox);
    }
    write(p.y, i, sum);
  }
}
#elif defined(PART_back)
void main() {
  LOAD_WINDOWS(p.windows)
  const uint plane = az.outs * ay.outs * ax.outs;
  const uint window = az.window * ay.window * ax.window;
  FOR_ELEMENTS(i, p.n) {
    const uint ix = i % ax.size;
    const uint iy = i / ax.size % ay.size;
    const uint iz = i / (ax.size * ay.size) % az.size;
    const uint map = i / (ax.size * ay.size * az.size);
    const uint c = map % (p.groups * p.inputs);
    const uint group = c / p.inputs;
    const uint y = map / p.inputs * p.outputs * plane;
    const uint w = (group * p.outputs * p.inputs + c % p.inputs) * window;
    A sum = p.has_bias != 0 ? read(p.bias, c) : 0;
    for (uint kz = 0; kz < az.window; ++kz) {
      const uint oz = output_of(az, iz, kz);
      for (uint ky = 0; ky < ay.window && oz < az.outs; ++ky) {
        const uint oy = output_of(ay, iy, ky);
        for (uint kx = 0; kx < ax.window && oy < ay.outs; ++kx) {
          const uint ox = output_of(ax, ix, kx);
          A part = 0;
          for (uint m = 0; m < p.outputs && ox < ax.outs; ++m) {
            part += read(p.y, y + m * plane + (oz * ay.outs + oy) * ax.outs + ox) *
                    read(p.w, w + m * p.inputs * window + (kz * ay.window + ky) * ax.window + kx);
          }
          sum += part;
        }
      }
    }
    write(p.x, i, sum);
  }
}
#else
void main() {
  LOAD_WINDOWS(p.windows)
  ROW_OF_SUBGROUP(i, p.n)
  const uint kx = i % ax.window;
  const uint ky = i / ax.window % ay.window;
  const uint kz = i / (ax.window * ay.window) % az.window;
  const uint map = i / (ax.window * ay.window * az.window);
  const uint c = map % p.inputs;
  const uint m = map / p.inputs;
  const uint in_plane = az.size * ay.size * ax.size;
  const uint out_plane = az.outs * ay.outs * ax.outs;
  A sum = 0;
  for (uint n = 0; n < p.batch; ++n) {
    const uint x = ((n * p.groups + m / p.outputs) * p.inputs + c) * in_plane;
    const uint y = (n * p.groups * p.outputs + m) * out_plane;
    A part = 0;
    for (uint oz = 0; oz < az.outs; ++oz) {
      const uint iz = input_of(az, oz, kz);
      for (uint oy = 0; oy < ay.outs; ++oy) {
        const uint iy = input_of(ay, oy, ky);
        const bool is_row = iz < az.size && iy < ay.size;
        for (uint ox = gl_SubgroupInvocationID; ox < ax.outs; ox += gl_SubgroupSize) {
          const uint ix = input_of(ax, ox, kx);
          A element = 0;
          if (is_row && ix < ax.size) {
            element = read(p.x, x + (iz * ay.size + iy) * ax.size + ix);
          }
          part += element * read(p.y, y + (oz * ay.outs + oy) * ax.outs + ox);
        }
      }
    }
    sum += part;
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) {
    write(p.w, i, sum);
  }
}
#endif
