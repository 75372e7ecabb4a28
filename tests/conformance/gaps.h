// The cases that a backend does not support, as data with reasons.
//
// A backend with gaps has a file backends/<name>/conformance.cpp. Only the conformance runner
// compiles it, so the source list of the backend does not contain it. The file defines
//
//   const bowline::conformance::Gaps& bowline::conformance::gaps_<name>() {
//     static constexpr Gap never[] = {
//         {"ops", "Fill", "values=nan", "The hardware has no NaN: <fact, link>."}};
//     static constexpr Gap not_yet[] = {
//         {"ops", "Rope", "interleaved=true", "The kernel supports one layout."}};
//     static constexpr Gaps gaps{never, not_yet};
//     return gaps;
//   }
//
// The runner skips the cases of a `never` gap. If the gap names a refusal, it skips only those that
// the device refuses, and the report counts them with the reason. It runs the cases of a `not_yet`
// gap, which must fail: a case that passes fails the suite, so that the entry is removed with the
// gap. A backend without the file has no gaps.
//
// Cases of a fused operator (OpDef::is_fused) that the device cannot run need no entry. They count
// as `never`, because the plans of this device keep the unfused graph.
#pragma once

#include <span>

namespace bowline::conformance {

struct Gap {
  const char* suite;   // "ops", "*"
  const char* op;      // name of an operator, with * and ? as in a shell
  const char* detail;  // a part of the text of the case; "" for all cases of the operator
  const char* reason;  // one sentence
  // (optional) Of `never`: a part of the message with which a device refuses the cases. Other
  // devices run them.
  const char* refusal = nullptr;
};

struct Gaps {
  std::span<const Gap> never = {};
  std::span<const Gap> not_yet = {};
};

}  // namespace bowline::conformance
