// What a backend cannot do, as data with reasons.
//
// A backend with gaps has a file backends/<name>/conformance.cpp, which only the conformance runner
// compiles (the backend's own list of sources leaves it out) and which defines
//
//   const bowline::conformance::Gaps& bowline::conformance::gaps_<name>() {
//     static constexpr Gap never[] = {{"ops", "Fill", "values=nan", "The hardware has no NaN:
//     <fact, link>."}}; static constexpr Gap not_yet[] = {{"ops", "Rope", "interleaved=true", "The
//     kernel knows one layout."}}; static constexpr Gaps gaps{never, not_yet}; return gaps;
//   }
//
// A case of a `never` gap is not run. A case of a `not_yet` gap is run and must fail: a pass fails
// the suite, so that the entry goes when the gap does. A backend without the file has no gaps.
//
// A fused operator (OpDef::is_fused) whose kernel a device lacks needs no entry: its cases count as
// `never`, as a plan there keeps the graph that it stands for.
#pragma once

#include <span>

namespace bowline::conformance {

struct Gap {
  const char* suite;   // "ops", "*"
  const char* op;      // name of an operator, with * and ? as in a shell
  const char* detail;  // a part of the text of the case; "" for all cases of the operator
  const char* reason;  // a sentence
};

struct Gaps {
  std::span<const Gap> never = {};
  std::span<const Gap> not_yet = {};
};

}  // namespace bowline::conformance
