// Parts of norms over channels: sums over a run of f32 elements, and linear functions of a run.
//
// Numerics  sums in f32 with a fixed order; the sums of the planes of a channel are added in
// double.
#pragma once

#include <cstddef>
#include <span>

namespace bowline::detail::cpu {

// The planes of a channel: `size` elements each, `step` elements apart.
struct ChannelPlanes {
  size_t count, step, size;
};
struct PlaneSums {
  double dy, products;
};
double sum_of(const ChannelPlanes& c, const float* x);
// sum of (x - mean)^2
double squares_of(const ChannelPlanes& c, const float* x, float mean);
// sums of dy and of dy * (x - mean)
PlaneSums gradient_sums_of(const ChannelPlanes& c, const float* x, const float* dy, float mean);
// y = (x - mean) * scale + bias. y may be x.
void scale_planes_of(const ChannelPlanes& c, const float* x, float mean, float scale, float bias,
                     float* y);
// dx = dy * a + (x - mean) * b + add. dx may be x or dy.
void mix_planes_of(const ChannelPlanes& c, const float* x, const float* dy, float mean, float a,
                   float b, float add, float* dx);

// The same for one run of n elements, summed in f32.
float sum_of(size_t n, const float* x);
// sum of (x - mean)^2
float squares_of(size_t n, const float* x, float mean);
// sum of dy * (x - mean)
float products_of(size_t n, const float* x, const float* dy, float mean);
// y = (x - mean) * inverse * scale + bias for consecutive planes of n elements, each with its own
// parameters. y may be x.
void scale_each_plane(size_t planes, size_t n, const float* x, const float* mean,
                      const float* inverse, const float* scale, const float* bias, float* y);
// y[i] = the largest of row[i] over all rows, and of the old y[i] unless `first` is set. NaN counts
// as the largest value. Without rows the result is -infinity.
void largest_of_rows(std::span<const float* const> rows, size_t n, bool first, float* y);
// y[i] = (old y[i], unless `first` is set, + row[i] of each row) / divisor
void mean_of_rows(std::span<const float* const> rows, size_t n, bool first, float divisor,
                  float* y);

}  // namespace bowline::detail::cpu
