// Windows over three spatial axes (core/windows.h), in the tables of backends/vulkan/windows.h:
// slowest axis first.
struct WindowAxis {
  uint size;  // of the input
  uint outs;
  uint window;
  uint stride;
  uint dilation;
  uint pad;
  uint pad_end;
};

WindowAxis window_axis(Words table, uint axis) {
  const uint at = 7 * axis;
  return WindowAxis(table.v[at], table.v[at + 1], table.v[at + 2], table.v[at + 3], table.v[at + 4], table.v[at + 5],
                    table.v[at + 6]);
}

#define LOAD_WINDOWS(table)                       \
  const WindowAxis az = window_axis(table, 0);    \
  const WindowAxis ay = window_axis(table, 1);    \
  const WindowAxis ax = window_axis(table, 2);

// The position of element k of the window of output o. Positions before the input wrap to large
// values.
uint input_of(WindowAxis a, uint o, uint k) { return o * a.stride + k * a.dilation - a.pad; }

// The output whose window has element i of the input as its element k, or outs if there is none.
uint output_of(WindowAxis a, uint i, uint k) {
  const uint from = i + a.pad - k * a.dilation;
  const uint o = from / a.stride;
  return o * a.stride == from && o < a.outs ? o : a.outs;
}

// Number of elements of the window of output o inside the input. With `pads`, elements in the pads
// count too.
uint count_of(WindowAxis a, uint o, bool pads) {
  uint n = 0;
  for (uint k = 0; k < a.window; ++k) {
    const uint i = input_of(a, o, k) + (pads ? a.pad : 0);
    n += i < a.size + (pads ? a.pad + a.pad_end : 0) ? 1 : 0;
  }
  return n;
}
