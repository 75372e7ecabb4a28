#!/usr/bin/env python3
"""Checks that the modelled times of GPT-2 124M on GPUs do not grow.

  tools/checks/model_time.py [--program FILE] [--update]

  --program FILE  the command [build/release/bin/bowline]
  --update        write the times of this build to tools/checks/model_time.json

`bowline bench model-time` computes the times from the plan of the model, without a GPU. A time that
is more than 2 percent above the committed one is a regression: a record moves more bytes, a launch
was added, or a kernel became slower. If the change is meant, --update accepts it.

Exit codes: 0 no time grew, 1 a time grew, 77 the command or a backend is not built.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMES = pathlib.Path(__file__).with_suffix(".json")
BUDGETS = ROOT / "backends/cuda/code_budgets.txt"
MOST = 1.02
# On Hopper, mma.sync reaches 0.62 of the rate of wgmma, and so 0.77 of the rate of a product by
# cuBLAS. One instruction of 16 x 8 x 16 then takes 4 / 0.62 cycles, in which a scheduler issues as
# many others.
SYNC_SHARE = 0.77
MMA_CYCLES = 6.4
CLASSES = ["h200", "h100", "rtx4070", "rtx4070_vulkan", "rx7800xt", "arc770", "adreno740"]
# name: (flags, the part of the output)
CASES = {
    "step 32 x 1024": (["--batch", "32", "--seq", "1024"], "step"),
    "step 32 x 1024, own products": (["--library", "none"], "step"),
    "step 1 x 256": (["--batch", "1", "--seq", "256"], "step"),
    "token bf16": ([], "token"),
    "token q4_0": (["--quantize", "q4_0"], "token"),
}


def times_of(program):
    """{class: {case: milliseconds}} and the rates of the kernels. If the command has no times, a
    sentence that says why, and None.
    """
    times, outputs = {}, {}
    for name in CLASSES:
        times[name] = {}
        for case, (flags, part) in CASES.items():
            if "--library" in flags and "+" not in planning:
                continue  # the class has no library
            key = (name, *flags)
            if key not in outputs:
                done = subprocess.run([program, "bench", "model-time", "--device-class", name, *flags, "-o", "json"],
                                      capture_output=True, text=True)
                if done.returncode != 0:
                    return done.stderr.strip(), None
                outputs[key] = json.loads(done.stdout)
            planning = outputs[key]["planning"]
            modelled = outputs[key][part]
            if "refusal" not in modelled:
                times[name][case] = float(f"{modelled['ms']:.4g}")
    return times, outputs[key]["kernel_rates"]


def growth(committed, times):
    """Yields a sentence per time that grew, that is not committed, or that is only committed."""
    for name, cases in committed.items():
        for case in cases.keys() - times.get(name, {}).keys():
            yield f"{case} on {name} has a committed time, but no time now."
    for name, cases in times.items():
        for case, ms in cases.items():
            old = committed.get(name, {}).get(case)
            if old is None:
                yield f"{case} on {name} has no committed time (modelled: {ms} ms)."
            elif ms > MOST * old:
                yield (f"{case} on {name} takes {ms} ms (modelled), {100 * (ms / old - 1):.1f} percent more than the "
                       f"committed {old} ms. --update accepts it.")


def limits_of(figure, budgets):
    """{pattern: limit} of the lines of the budgets with a limit of the figure, such as "math>="."""
    lines = [line.split("#")[0].split() for line in budgets.splitlines()]
    return {words[0]: float(w.removeprefix(figure)) for words in lines for w in words if w.startswith(figure)}


def proven_percent(rate, budgets):
    """The percent of the peak that the budget of a kernel guarantees (KernelRate in C++)."""
    if rate["unit"] == "f32":
        return limits_of("math>=", budgets).get(rate["budget"], 0)
    others = limits_of("others<=", budgets).get(rate["budget"], float("inf"))
    return 85 * rate["needed"] * SYNC_SHARE * min(1, MMA_CYCLES / (1 + others))


def unproven(rates, budgets):
    """Yields a sentence per kernel whose rate is above the limit of its budget."""
    for rate in rates:
        percent = proven_percent(rate, budgets) if rate["budget"] else 100
        if 100 * rate["share"] > percent:
            yield (f"Kernel '{rate['kernel']}' computes with {100 * rate['share']:.0f} percent of the peak, but "
                   f"{BUDGETS.name} guarantees {percent:.0f} percent for {rate['budget']}.")


def self_test():
    committed = {"a": {"x": 100.0, "y": 100.0, "w": 1.0}}
    grown = [*growth(committed, {"a": {"x": 102.1, "y": 101.9, "z": 1.0}})]
    rates = [{"kernel": "k", "unit": "f32", "share": share, "budget": "a.k"} for share in (0.5, 0.6)]
    rates += [{"kernel": "m", "unit": "matrix", "share": share, "needed": 0.5, "budget": "a.m"} for share in (0.3, 0.33)]
    found = [[*unproven(rates, f"a.k 80 math>=55\na.m 80 others<={others}")] for others in (4, 9)]
    if [len(sentences) for sentences in found] != [2, 3]:
        sys.exit("model_time.py compares rates wrongly.")
    expected = ["no time now", "2.1 percent", "no committed time"]
    if len(grown) != 3 or any(words not in sentence for words, sentence in zip(expected, grown)):
        sys.exit(f"model_time.py compares wrongly: {grown}.")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip(), add_help=False)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/bin/bowline")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    self_test()
    if not options.program.exists():
        print(f"NOT RUN: {options.program} is not built.")
        sys.exit(77)
    times, rates = times_of(options.program)
    if isinstance(times, str) and "has no backend" in times:
        print(f"NOT RUN: {times}")
        sys.exit(77)
    if isinstance(times, str):
        sys.exit(times)
    if options.update:
        TIMES.write_text(json.dumps(times, indent=2) + "\n", encoding="utf-8")
    wrong = [*growth(json.loads(TIMES.read_text(encoding="utf-8")), times),
             *unproven(rates, BUDGETS.read_text(encoding="utf-8"))]
    print("\n".join(wrong) or f"{sum(map(len, times.values()))} modelled times did not grow.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
