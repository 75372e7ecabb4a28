// What the model of times (bench/modelled.h) knows about hardware: peak rates of device classes,
// and the share of a peak that each kernel reaches.
#pragma once

#include <span>
#include <string_view>

namespace bowline::command {

// The units that multiply: f32 arithmetic, or matrix units with 16-bit operands.
enum class Unit : unsigned char { f32, matrix };

struct DeviceClass {
  std::string_view name;  // of --device-class
  std::string_view description;
  std::string_view planning;  // the device that makes the plan
  double f32 = 0;             // operations per second; a multiply-add counts as two
  double matrix = 0;          // the same, dense, with f16 or bf16 operands and f32 sums
  double bandwidth = 0;       // bytes per second that a copy reads and writes
  // Seconds of a launch in which nothing is computed or moved at these rates: until it starts,
  // until its first loads arrive, and until its last blocks end.
  double launch_gap = 0;
  // The same for a launch that may start while the kernel before still runs. 0: none may.
  double early_gap = 0;
  std::string_view source;  // of the rates
};
std::span<const DeviceClass> device_classes();

// The rate of a kernel that multiplies.
struct KernelRate {
  std::string_view kernel;  // as in RecordInfo::kernels; "": kernels that are not known
  Unit unit = Unit::f32;
  // The share of the peak rate of the unit, measured where the list says so. With a budget, the
  // budget guarantees that instructions do not limit it to less:
  //   f32     0.85 of the share of instructions that multiply. An SM issues no instruction in the
  //           other cycles.
  //   matrix  0.85 of `needed` times the rate of mma.sync, which on Hopper is 0.77 of the peak.
  //           The budget allows so few other instructions that they do not limit the loop.
  double share = 0;
  // The pattern of the line of backends/cuda/code_budgets.txt with the limit of `math`, or of
  // `others` for matrix units. Empty: the share is an assumption.
  std::string_view budget;
  // The share of the products of matrix units that the operator counts. The rest are second parts
  // of weights, scores that are computed again, and hidden halves of tiles on the diagonal (for
  // causal attention over 1,024 keys).
  double needed = 1;
  // The kernels are the variants of a shader of Vulkan, whose names begin with `kernel`.
  bool is_shader = false;
};
std::span<const KernelRate> kernel_rates();

// The share of the bandwidth that kernels reach which only move memory: an assumption.
inline constexpr double kBandwidthShare = 0.9;

}  // namespace bowline::command
