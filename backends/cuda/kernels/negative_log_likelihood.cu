//! ops(f32, f16, bf16) NegativeLogLikelihood NegativeLogLikelihoodGrad
// Losses of log probabilities with labels, one thread per row (device/labels.cuh).
#include "device/labels.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::negative_log_likelihood_kernels {
namespace {

// -weight x[label] of every row.
template <class X>
__global__ void likelihood_kernel(const X* x, Labels labels, const X* weight, float* losses) {
  begin_kernel();
  const uint64_t row = uint64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (row >= labels.rows) {
    return;
  }
  float loss = 0;
  if (labels.counted(row) && labels.inside(row)) {
    const int32_t label = labels.data[row];
    loss =
        -(weight == nullptr ? 1.0f : read(weight + label)) * read(x + row * labels.classes + label);
  }
  losses[row] = loss;
  labels.report(row);
}

template <class X>
__global__ void likelihood_grad_kernel(Labels labels, const X* weight, Factor factor, X* dx) {
  begin_kernel();
  const uint64_t i = uint64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (i >= labels.rows * labels.classes) {
    return;
  }
  const uint64_t row = i / labels.classes;
  const uint64_t column = i % labels.classes;
  const bool hit = labels.counted(row) && static_cast<int64_t>(column) == labels.data[row];
  write(dx + i, hit ? -(weight == nullptr ? 1.0f : read(weight + column)) * factor.of(row) : 0.0f);
}

template <class X>
void negative_log_likelihood(Launch& l) {
  const Reduction reduction = l.attributes<NegativeLogLikelihoodAttributes>().reduction();
  const Labels labels = labels_of<NegativeLogLikelihoodAttributes>(l);
  l.launch("likelihood", likelihood_kernel<X>, blocks_for(labels.rows, kRowThreads), kRowThreads,
           l.in_as<X>(0), labels, weight_of<X>(l, 2), terms_of(l, reduction));
  add_up(l, labels, reduction, weight_of<X>(l, 2));
}

template <class X>
void negative_log_likelihood_grad(Launch& l) {
  const Labels labels = labels_of<NegativeLogLikelihoodAttributes>(l);
  if (labels.rows == 0) {
    return;
  }
  const X* const weight = weight_of<X>(l, 3);
  const Factor factor = factor_of(
      l, labels, l.attributes<NegativeLogLikelihoodAttributes>().reduction(), l.in(2), weight);
  l.launch("likelihood gradient", likelihood_grad_kernel<X>,
           blocks_for(labels.rows * labels.classes, kRowThreads), kRowThreads, labels, weight,
           factor, l.out_as<X>(0));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(negative_log_likelihood, .run = negative_log_likelihood<T>,
                          .workspace = terms_workspace);
BOWLINE_KERNELS_OF_FLOATS(negative_log_likelihood_grad, .run = negative_log_likelihood_grad<T>,
                          .workspace = grad_workspace);

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE::negative_log_likelihood_kernels
