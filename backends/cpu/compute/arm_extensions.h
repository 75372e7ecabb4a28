// The extensions of NEON that kernels use: dot products of bytes (FEAT_DotProd), matrix products of
// bytes (FEAT_I8MM) and products of bf16 (FEAT_BF16).
#pragma once

#include <string>

// Clang has their intrinsics in files for plain aarch64 from version 16 on.
#if defined(__aarch64__) && !defined(__AARCH64EB__) && \
    (!defined(__clang__) || __clang_major__ >= 16)
#define BOWLINE_ARM_EXTENSIONS
#endif

namespace bowline::detail::cpu {

#ifdef BOWLINE_ARM_EXTENSIONS
// Whether the kernels may use the extension.
bool has_dotprod();
bool has_i8mm();
bool has_arm_bf16();
// The extensions that the kernels use: ", dotprod, i8mm, bf16".
std::string instruction_extensions();
#else
constexpr const char* instruction_extensions() { return ""; }
#endif

}  // namespace bowline::detail::cpu
