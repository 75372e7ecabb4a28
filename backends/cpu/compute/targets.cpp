#include "compute/targets.h"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/format.h"
#include "compute/arm_extensions.h"

// targets.h comes before any Highway header.
#include "hwy/targets.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#elif HWY_ARCH_ARM && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif HWY_ARCH_ARM && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace bowline::detail::cpu {
namespace {

#if HWY_ARCH_X86

// Tests bits of a register of a CPUID leaf.
bool has(unsigned leaf, unsigned subleaf, int reg, unsigned bits) {
  unsigned out[4] = {};
  return __get_cpuid_count(leaf, subleaf, &out[0], &out[1], &out[2], &out[3]) != 0 &&
         (out[reg] & bits) == bits;
}

// True if the operating system saves these registers of a thread.
bool kept(unsigned states) {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & states) == states;
}

int64_t vector_sets() {
  constexpr int kB = 1, kC = 2;
  constexpr unsigned kXsave = 1u << 27;
  // PCLMULQDQ, SSSE3, FMA, SSE4.1, SSE4.2, POPCNT, AES, AVX, F16C.
  constexpr unsigned kLeaf1 = 1u << 1 | 1u << 9 | 1u << 12 | 1u << 19 | 1u << 20 | 1u << 23 |
                              1u << 25 | 1u << 28 | 1u << 29;
  constexpr unsigned kAvx2 = 1u << 3 | 1u << 5 | 1u << 8;  // BMI1, AVX2, BMI2
  constexpr unsigned kAvx512 =
      1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;  // F DQ CD BW VL
  constexpr unsigned kLzcnt = 1u << 5;
  constexpr unsigned kYmm = 0x6, kZmm = 0xE6;
  if (!has(1, 0, kC, kXsave) || !kept(kYmm) || !has(1, 0, kC, kLeaf1) || !has(7, 0, kB, kAvx2) ||
      !has(0x80000001, 0, kC, kLzcnt)) {
    return 0;
  }
  return HWY_AVX2 | (kept(kZmm) && has(7, 0, kB, kAvx512) ? HWY_AVX3 : 0);
}

#elif HWY_ARCH_ARM && defined(__linux__) && defined(HWCAP_AES)

int64_t vector_sets() { return (getauxval(AT_HWCAP) & HWCAP_AES) != 0 ? HWY_NEON : 0; }

#else

int64_t vector_sets() { return 0; }

#endif

#ifdef BOWLINE_ARM_EXTENSIONS

// A bit of AT_HWCAP or AT_HWCAP2 of Linux, and the name of the same feature on macOS. Headers of
// older systems lack some bits.
struct Feature {
  unsigned long type;
  unsigned long bit;
  const char* name;
};
constexpr Feature kDotprod{16, 1ul << 20, "hw.optional.arm.FEAT_DotProd"};
constexpr Feature kI8mm{26, 1ul << 13, "hw.optional.arm.FEAT_I8MM"};
constexpr Feature kBf16{26, 1ul << 14, "hw.optional.arm.FEAT_BF16"};

bool has([[maybe_unused]] const Feature& feature) {
#if defined(__linux__)
  return (getauxval(feature.type) & feature.bit) != 0;
#elif defined(__APPLE__)
  int value = 0;
  size_t size = sizeof(value);
  return sysctlbyname(feature.name, &value, &size, nullptr, 0) == 0 && value != 0;
#else
  return false;
#endif
}

#endif

std::atomic<int64_t> sets_for_test{0};
std::atomic<int64_t> disabled_sets{0};
#ifdef BOWLINE_ARM_EXTENSIONS
bool only_baseline = false;
void use_only_baseline(bool baseline) { only_baseline = baseline; }
#else
void use_only_baseline(bool) {}
#endif

// The best target has the lowest bit.
int64_t usable() { return hwy::SupportedTargets() & HWY_TARGETS; }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string restrict_to(const char* wanted) {
  std::string names;
  for (int64_t left = usable(); left != 0; left &= left - 1) {
    const int64_t set = left & -left;
    const bool last = set == left;
    const char* const name = hwy::TargetName(set);
    const bool baseline = last && equal_ignoring_case(wanted, "baseline");
    if (equal_ignoring_case(wanted, name) || baseline) {
      hwy::DisableTargets(~set);
      use_only_baseline(baseline);
      return {};
    }
    names += format("{}, ", name);
  }
  return format(
      "BOWLINE_CPU_TARGET is '{}'. This build on this machine has: {}baseline. Set the variable to "
      "one of them, or unset it for the best.",
      wanted, names);
}

}  // namespace

const std::string& restrict_instruction_set() {
  static const std::string reason = [] {
    const char* const wanted = std::getenv("BOWLINE_CPU_TARGET");
    return wanted == nullptr || *wanted == 0 ? std::string() : restrict_to(wanted);
  }();
  return reason;
}

#if HWY_ARCH_X86
bool has_avx2() { return (usable() & (HWY_AVX3 | HWY_AVX2)) != 0; }
#else
bool has_avx2() { return false; }
#endif
#ifndef BOWLINE_WITHOUT_AVX512
bool has_avx512() { return HWY_ARCH_X86 && (usable() & HWY_AVX3) != 0; }
#endif

#ifdef BOWLINE_ARM_EXTENSIONS

// The extensions belong to NEON. The baseline is plain NEON.
static bool may_extend() { return (usable() & HWY_NEON) != 0 && !only_baseline; }

bool has_dotprod() {
  static const bool there = has(kDotprod);
  return there && may_extend();
}
bool has_i8mm() {
  static const bool there = has(kI8mm);
  return there && may_extend();
}
bool has_arm_bf16() {
  static const bool there = has(kBf16);
  return there && may_extend();
}

std::string instruction_extensions() {
  std::string out;
  out += has_dotprod() ? ", dotprod" : "";
  out += has_i8mm() ? ", i8mm" : "";
  out += has_arm_bf16() ? ", bf16" : "";
  return out;
}

#endif

const char* instruction_set() { return hwy::TargetName(usable() & -usable()); }

}  // namespace bowline::detail::cpu

// The functions of Highway's library that its headers call. They are defined here, in a namespace
// of Bowline (tools/cmake/library.cmake), so that programs need no libhwy.so and keep their own if
// they have one.
namespace hwy {

int64_t SupportedTargets() {
  const int64_t chosen = bowline::detail::cpu::sets_for_test.load();
  if (chosen != 0) {
    return chosen;
  }
  static const int64_t all =
      bowline::detail::cpu::vector_sets() | HWY_ENABLED_BASELINE | HWY_STATIC_TARGET;
  return all & ~bowline::detail::cpu::disabled_sets.load();
}

void DisableTargets(int64_t targets) { bowline::detail::cpu::disabled_sets.store(targets); }

void SetSupportedTargetsForTest(int64_t targets) {
  bowline::detail::cpu::sets_for_test.store(targets);
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

// Called by assertions in debug builds.
void Abort(const char* file, int line, const char* format, ...) {
  std::fprintf(stderr, "%s:%d: ", file, line);
  va_list rest;
  va_start(rest, format);
  std::vfprintf(stderr, format, rest);
  va_end(rest);
  std::abort();
}

}  // namespace hwy
