#include "bench/device_classes.h"

namespace bowline::command {
namespace {

// Measured on an H100: a token of 80 launches takes 0.49 ms, of which moving takes 0.10.
constexpr double kCudaLaunch = 4.9e-6;
// Measured on an H200: 77 launches that start early shorten such a token from 0.468 to 0.429 ms.
constexpr double kEarlyLaunch = 4.5e-6;

// Datasheet peaks of bandwidth count with 0.9, which the copy on an H200 reached (4.3 of 4.8 TB/s).
constexpr DeviceClass kClasses[] = {
    {"h200", "NVIDIA H200 SXM, CUDA", "planning:cuda@90x132+cublaslt", 67e12, 790e12, 4.3e12,
     kCudaLaunch, kEarlyLaunch,
     "matrix rate and bandwidth measured on an H200 (bf16 product of 8192 cubed, copy); f32: "
     "NVIDIA H200 datasheet"},
    {"h100", "NVIDIA H100 SXM, CUDA", "planning:cuda@90x132+cublaslt", 67e12, 790e12, 3.0e12,
     kCudaLaunch, kEarlyLaunch,
     "NVIDIA H100 datasheet (f32, 3.35 TB/s); matrix rate measured on an H200, which has the same "
     "multiprocessors"},
    {"rtx4070", "NVIDIA GeForce RTX 4070, CUDA", "planning:cuda@80x46+cublaslt", 29.1e12, 58.3e12,
     454e9, kCudaLaunch, 0,
     "NVIDIA Ada architecture white paper: 46 multiprocessors at 2.475 GHz, 128 f32 and 256 matrix "
     "multiply-adds each; 504 GB/s"},
    {"rtx4070_vulkan", "NVIDIA GeForce RTX 4070, Vulkan", "planning:vulkan@rtx4070", 29.1e12,
     58.3e12, 454e9, 2e-6, 0, "as rtx4070"},
    {"rx7800xt", "AMD Radeon RX 7800 XT, Vulkan", "planning:vulkan@rx7800xt", 37.3e12, 74.6e12,
     562e9, 2e-6, 0, "AMD product page: f32, f16 matrix, 624 GB/s"},
    {"arc770", "Intel Arc A770, Vulkan", "planning:vulkan@arc770", 17.2e12, 137.6e12, 504e9, 3e-6,
     0,
     "Intel Xe-HPG white paper: 32 cores at 2.1 GHz, 128 f32 and 1024 matrix multiply-adds each; "
     "560 GB/s"},
    {"adreno740", "Qualcomm Adreno 740, Vulkan", "planning:vulkan@adreno740", 2.1e12, 2.1e12, 60e9,
     10e-6, 0,
     "Qualcomm publishes no rates; 1,536 multiply-adds at 680 MHz and LPDDR5X of 67 GB/s, from "
     "reviews; matrix units: none"},
};

constexpr KernelRate shader_rate(std::string_view shader, Unit unit, double share) {
  return {.kernel = shader, .unit = unit, .share = share, .budget = "", .is_shader = true};
}

constexpr KernelRate kRates[] = {
    {"product", Unit::f32, 0.62, "matmul.product_kernel<float,128,8,1,false>"},
    // Measured on an H200, in products of GPT-2 124M with 32 x 1024 tokens that were fused with
    // Gelu or its gradient: 0.36 and 0.33. Afterwards the steps that follow a product became
    // shorter, so this is a lower bound.
    {"tensor product", Unit::matrix, 0.36, "tensor_product.tile_kernel<*Tile<128,*Way)0,*>"},
    // Modelled from the machine code: a warp takes 1,270 cycles for 32 steps of k, or 0.24 of the
    // peak, and the rate is 0.85 of that. A step of 32 x 1024 tokens with these kernels alone took
    // 162 ms on an H200, of which products took 135. With the rate above, that leaves 0.09 for the
    // two products that read 50,257 logits per row. But that loop waited for each pack of elements.
    {"tensor product, unaligned rows", Unit::matrix, 0.2, ""},
    // Measured on an H100, in products of GPT-2 124M with 32 x 1024 tokens: 0.75 where k is 768,
    // 0.89 where it is 3,072, and 0.12 to 0.19 for 50,257 logits.
    {"cublasLtMatmul", Unit::matrix, 0.75, ""},
    {"cublasLtMatmul, unaligned rows", Unit::matrix, 0.15, ""},
    {"cublasLtMatmul, f32", Unit::f32, 0.75, ""},
    {"few rows", Unit::f32, 0.25, ""},
    {"few quantized rows", Unit::f32, 0.07, ""},
    {"few columns", Unit::f32, 0.25, ""},
    {"few quantized columns", Unit::f32, 0.07, ""},
    // Two products, of which one has weights of two parts: 2 / 3. Tiles of 32 x 64 scores: 0.94.
    // The budget allows 0.41; an H200 reached 0.21.
    {"tensor attention", Unit::matrix, 0.21, "attention.mma_kernel<__nv_bfloat16,64,2,true>",
     0.627},
    // Both passes compute the scores and their gradient, and three of the five products have
    // weights of two parts: 5 / 10. Tiles of 32 x 32 scores: 0.97. The budget allows 0.31; an H200
    // reached 0.17.
    {"tensor attention_grad queries", Unit::matrix, 0.17,
     "attention_grad.mma_queries_kernel<__nv_bfloat16,64,2,true>", 0.485},
    {"tensor attention_grad keys", Unit::matrix, 0.17,
     "attention_grad.mma_keys_kernel<__nv_bfloat16,64,2,true>", 0.485},
    // The time of one block, not of the matrix units. An H200 reached 0.011 forward and 0.008
    // backward, with 12 heads of 256 tokens. Then both passes got one launch, and blocks a loop
    // without branches. Modelled from the machine code: 0.9 and 0.45 of these times.
    {"tensor attention of few blocks", Unit::matrix, 0.012, ""},
    {"tensor attention_grad of few blocks", Unit::matrix, 0.018, ""},
    {"general tensor attention", Unit::matrix, 0.15, ""},
    {"general tensor attention_grad queries", Unit::matrix, 0.1, ""},
    {"general tensor attention_grad keys", Unit::matrix, 0.1, ""},
    {"attention", Unit::f32, 0.65, ""},
    {"attention decode", Unit::f32, 0.1, ""},
    {"attention_grad queries", Unit::f32, 0.6, ""},
    {"attention_grad keys", Unit::f32, 0.6, ""},
    // Shaders. No GPU has run them for this table.
    // Modelled from the machine code of the largest tile, which Mesa 26.1 makes for GFX11. In 32
    // steps of k, a subgroup has 16 matrix instructions of 32 cycles each, because a compute unit
    // of two SIMDs computes 512 operations per cycle. At most 86 other vector instructions take 104
    // cycles of the same SIMD: 0.83. The two SIMDs then use their shared memory in at most 416 of
    // 616 cycles. The loads of the next tiles are on their way for at least eight matrix
    // instructions, and a SIMD has registers for eight subgroups. The start of a tile and its
    // results take 1,290 instructions, which leaves 0.77 where k is 768. With 0.85 of that: 0.65.
    // The smaller tiles, for products with few of them, would reach 0.58 and 0.4.
    shader_rate("matmul_units", Unit::matrix, 0.65),
    // No tool counts the instructions of the other loops, so their shares are assumptions.
    // Loads and stores of shared memory take an issue slot per 8 multiply-adds.
    shader_rate("matmul_tile", Unit::f32, 0.5),
    // Widening 16-bit weights takes as many instructions as multiplying them.
    shader_rate("matvec", Unit::f32, 0.25),
    // Softmax, masks and shared memory take more slots than the products.
    shader_rate("attention_few", Unit::f32, 0.1),
    shader_rate("attention_tile", Unit::f32, 0.3),
    shader_rate("attention_grad_tile", Unit::f32, 0.3),
    {"", Unit::f32, 0.4, ""},
};

}  // namespace

std::span<const DeviceClass> device_classes() { return kClasses; }
std::span<const KernelRate> kernel_rates() { return kRates; }

}  // namespace bowline::command
