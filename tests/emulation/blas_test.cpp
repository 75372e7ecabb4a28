// Products with the emulation's cuBLASLt, which checks how it is used. Results agree with a plain
// product in double precision.
#include "blas.h"

#include <cmath>

#include "core/element_types.h"
#include "emu/runtime.h"
#include "train/tiny_lm.h"

namespace bowline::test {
namespace {

using cuda_emu::Blas;
using cuda_emu::BlasEpilogue;
using cuda_emu::BlasOperands;
using cuda_emu::BlasProduct;

// Elements of any float dtype in device memory: NaN without a seed, else small multiples of 1/8,
// which every dtype holds exactly.
class Matrix {
 public:
  Matrix(DType type, size_t elements, uint32_t seed = 0) : type_(type), elements_(elements) {
    void* memory = nullptr;
    const cuda_emu::cudaError_t error =
        cuda_emu::cudaMalloc(&memory, std::max<size_t>(elements * size_of(type), 1));
    require(error == cuda_emu::cudaSuccess,
            cuda_emu::cudaGetErrorString(cuda_emu::cudaErrorLaunchFailure));
    data_ = static_cast<std::byte*>(memory);
    for (size_t i = 0; i < elements && seed != 0; ++i) {
      const RandomBlock r = philox({static_cast<uint32_t>(i), seed, 0, 0}, {1, 2});
      set(i, static_cast<float>(r[0] % 17) / 8 - 1);
    }
  }
  ~Matrix() { (void)cuda_emu::cudaFree(data_); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  float operator[](size_t i) const {
    float x = 0;
    with_type(type_, [&]<class T>() {
      if constexpr (Float<T>) {
        x = to_f32(reinterpret_cast<const T*>(data_)[i]);
      }
    });
    return x;
  }
  void set(size_t i, float value) {
    with_type(type_, [&]<class T>() {
      if constexpr (Float<T>) {
        reinterpret_cast<T*>(data_)[i] = from_f32<T>(value);
      }
    });
  }
  void* data() const { return data_; }
  size_t size() const { return elements_; }
  double tolerance() const {
    return type_ == DType::f32 ? 1e-5 : type_ == DType::f16 ? 2e-3 : 2e-2;
  }

 private:
  DType type_;
  size_t elements_;
  std::byte* data_ = nullptr;
};

class Products : public testing::Test {
 protected:
  void SetUp() override {
    cuda_emu::restart();
    cuda_emu::machine().has_cublas = true;
    blas_ = Blas::open();
    ASSERT_NE(blas_, nullptr) << Blas::description();
    ASSERT_EQ(cuda_emu::cudaStreamCreateWithFlags(&stream_, 0), cuda_emu::cudaSuccess);
  }
  void TearDown() override {
    (void)cuda_emu::cudaStreamDestroy(stream_);
    cuda_emu::restart();
  }

  // Multiplies in a capture, as a recording does.
  void multiply(const BlasProduct& p, BlasOperands o) {
    const Matrix workspace(DType::f32, blas_->workspace(p) / 4);
    o.workspace = workspace.data();
    o.workspace_bytes = workspace.size() * 4;
    ASSERT_TRUE(blas_->prepare(p, o));
    ASSERT_EQ(cuda_emu::cudaStreamBeginCapture(stream_, cuda_emu::cudaStreamCaptureModeThreadLocal),
              cuda_emu::cudaSuccess);
    ASSERT_TRUE(blas_->multiply(p, o, stream_));
    cuda_emu::cudaGraph_t graph = nullptr;
    ASSERT_EQ(cuda_emu::cudaStreamEndCapture(stream_, &graph), cuda_emu::cudaSuccess);
    cuda_emu::cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cuda_emu::cudaGraphInstantiate(&exec, graph, 0), cuda_emu::cudaSuccess);
    ASSERT_EQ(cuda_emu::cudaGraphLaunch(exec, stream_), cuda_emu::cudaSuccess);
    ASSERT_EQ(cuda_emu::cudaStreamSynchronize(stream_), cuda_emu::cudaSuccess)
        << cuda_emu::cudaGetErrorString(cuda_emu::cudaErrorLaunchFailure);
    (void)cuda_emu::cudaGraphDestroy(graph);
    (void)cuda_emu::cudaGraphExecDestroy(exec);
  }

  // The sum of the product at (i, j) of a matrix of the batch.
  static double sum(const BlasProduct& p, const Matrix& a, const Matrix& b, int64_t batch,
                    int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t l = 0; l < p.k; ++l) {
      const int64_t at_a = batch * p.stride_a + (p.transpose_a ? l * p.m + i : i * p.k + l);
      const int64_t at_b = batch * p.stride_b + (p.transpose_b ? j * p.k + l : l * p.n + j);
      sum += double{a[static_cast<size_t>(at_a)]} * b[static_cast<size_t>(at_b)];
    }
    return sum;
  }

  // Compares y with f(sum, batch, i, j).
  template <class F>
  void expect(const BlasProduct& p, const Matrix& a, const Matrix& b, const Matrix& y, F&& f) {
    for (int64_t batch = 0; batch < p.batch; ++batch) {
      for (int64_t i = 0; i < p.m; ++i) {
        for (int64_t j = 0; j < p.n; ++j) {
          const double right = f(sum(p, a, b, batch, i, j), j);
          const float got = y[static_cast<size_t>((batch * p.m + i) * p.n + j)];
          ASSERT_NEAR(got, right, y.tolerance() * (1 + std::abs(right))) << i << ", " << j;
        }
      }
    }
  }

  static size_t area(int64_t rows, int64_t columns) { return static_cast<size_t>(rows * columns); }

  std::unique_ptr<Blas> blas_;
  cuda_emu::cudaStream_t stream_ = nullptr;
};

TEST_F(Products, OfEveryDtypeTransposeAndBatch) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (int form = 0; form < 8; ++form) {
      const bool is_batch = (form & 4) != 0;
      BlasProduct p{.m = 5, .n = 7, .k = 3, .batch = is_batch ? 2 : 1};
      p.transpose_a = (form & 1) != 0;
      p.transpose_b = (form & 2) != 0;
      p.stride_a = is_batch ? p.m * p.k : 0;
      p.type = p.y_type = type;
      const Matrix a(type, area(p.m * p.batch, p.k), 1);
      const Matrix b(type, area(p.k, p.n), 2);
      const Matrix y(type, area(p.m * p.batch, p.n));
      multiply(p, {.a = a.data(), .b = b.data(), .y = y.data()});
      expect(p, a, b, y, [](double x, int64_t) { return x; });
    }
  }
}

TEST_F(Products, AddToAGradientOfAnotherDtype) {
  BlasProduct p{.m = 5, .n = 7, .k = 3, .transpose_a = true, .type = DType::bf16, .adds = true};
  const Matrix a(p.type, area(p.k, p.m), 1);
  const Matrix b(p.type, area(p.k, p.n), 2);
  Matrix y(DType::f32, area(p.m, p.n));
  for (size_t i = 0; i < y.size(); ++i) {
    y.set(i, 1);
  }
  multiply(p, {.a = a.data(), .b = b.data(), .y = y.data(), .c = y.data()});
  expect(p, a, b, y, [](double x, int64_t) { return x + 1; });
}

TEST_F(Products, WithABias) {
  for (const DType type : {DType::f32, DType::bf16}) {
    BlasProduct p{.m = 5, .n = 8, .k = 16, .transpose_b = true, .type = type, .y_type = type};
    p.epilogue = BlasEpilogue::bias;
    const Matrix a(type, area(p.m, p.k), 1);
    const Matrix b(type, area(p.n, p.k), 2);
    const Matrix bias(type, area(1, p.n), 3);
    const Matrix y(type, area(p.m, p.n));
    multiply(p, {.a = a.data(), .b = b.data(), .y = y.data(), .bias = bias.data()});
    expect(p, a, b, y, [&](double x, int64_t j) { return x + bias[static_cast<size_t>(j)]; });
  }
}

// The library would round the product before it adds the bias.
TEST_F(Products, RefuseABiasWhereTheLibraryRoundsTwice) {
  BlasProduct p{.m = 5, .n = 8, .k = 16, .transpose_b = true, .type = DType::bf16};
  p.y_type = p.type;
  p.epilogue = BlasEpilogue::bias;
  const Matrix all(p.type, 256);
  BlasOperands o{.a = all.data(), .b = all.data(), .y = all.data(), .bias = all.data()};
  EXPECT_TRUE(blas_->prepare(p, o));
  EXPECT_TRUE(blas_->supports(p));
  o.bias = static_cast<std::byte*>(o.bias) + 2;
  EXPECT_FALSE(blas_->prepare(p, o));
  EXPECT_FALSE(blas_->multiply(p, o, stream_));
  for (int64_t BlasProduct::*const size : {&BlasProduct::n, &BlasProduct::k}) {
    BlasProduct other = p;
    other.*size -= 1;
    EXPECT_FALSE(blas_->supports(other));
    other.epilogue = BlasEpilogue::none;
    EXPECT_TRUE(blas_->supports(other));
  }
}

TEST_F(Products, SumAnOperandForTheGradientOfABias) {
  for (const BlasEpilogue epilogue : {BlasEpilogue::sums_a, BlasEpilogue::sums_b}) {
    BlasProduct p{.m = 5, .n = 7, .k = 3, .transpose_a = true, .type = DType::f16};
    p.epilogue = epilogue;
    const bool of_a = epilogue == BlasEpilogue::sums_a;
    const Matrix a(p.type, area(p.k, p.m), 1);
    const Matrix b(p.type, area(p.k, p.n), 2);
    const Matrix y(DType::f32, area(p.m, p.n));
    const int64_t columns = of_a ? p.m : p.n;
    const Matrix sums(DType::f32, area(1, columns));
    multiply(p, {.a = a.data(), .b = b.data(), .y = y.data(), .bias = sums.data()});
    expect(p, a, b, y, [](double x, int64_t) { return x; });
    for (int64_t j = 0; j < columns; ++j) {
      float right = 0;
      for (int64_t l = 0; l < p.k; ++l) {
        right += (of_a ? a : b)[static_cast<size_t>(l * columns + j)];
      }
      EXPECT_EQ(sums[static_cast<size_t>(j)], right);
    }
  }
}

TEST_F(Products, OfUnalignedAddressesUseAnotherAlgorithm) {
  BlasProduct p{.m = 5, .n = 7, .k = 3};
  const Matrix a(p.type, 1 + area(p.m, p.k), 1);
  const Matrix b(p.type, area(p.k, p.n), 2);
  const Matrix y(p.type, area(p.m, p.n));
  multiply(p, {.a = static_cast<std::byte*>(a.data()) + 4, .b = b.data(), .y = y.data()});
}

// The plans of a training call the library outside captures only, and gradients that were never
// written are not read.
TEST_F(Products, TrainAModelLikeTheOwnProducts) {
  std::vector<float> losses[2];
  for (const bool with_library : {true, false}) {
    cuda_emu::machine().has_cublas = with_library;
    const Device device = must(Device::open("cuda-emu:0"));
    TinyLm lm = tiny_lm();
    ASSERT_OK(lm.model.to(device));
    TrainOptions o = adamw(lm);
    o.accumulation = 2;
    Trainer t = must(Trainer::create(lm.model, device, o));
    for (uint32_t i = 0; i < 3; ++i) {
      losses[with_library].push_back(must(train_step(t, lm, 2 * i, 2)).loss);
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(losses[0][i], losses[1][i], 1e-4f * losses[0][i]);
  }
}

}  // namespace
}  // namespace bowline::test
