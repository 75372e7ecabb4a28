// Arm intrinsics, for files that are compiled only for aarch64, and the attributes of functions
// that use its extensions. compute/arm_extensions.h tells whether they may run.
#pragma once

#include <arm_neon.h>

#include "compute/arm_extensions.h"

// Clang adds a feature to the target of the file. GCC needs the architecture that its header
// demands, unless the file has a newer one. Nothing is added that the file has already.
#if defined(__clang__)
#define BOWLINE_ARM_FEATURE(feature) __attribute__((target(feature)))
#elif defined(__ARM_FEATURE_QRDMX)
#define BOWLINE_ARM_FEATURE(feature) __attribute__((target("+" feature)))
#else
#define BOWLINE_ARM_FEATURE(feature) __attribute__((target("arch=armv8.2-a+" feature)))
#endif

#ifdef __ARM_FEATURE_DOTPROD
#define BOWLINE_DOTPROD
#else
#define BOWLINE_DOTPROD BOWLINE_ARM_FEATURE("dotprod")
#endif
