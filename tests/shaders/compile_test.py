#!/usr/bin/env python3
"""Compiles the Vulkan kernels with the real compilers of GPU vendors, for GPUs that are not there.

`shader_statistics` creates every pipeline that the operator cases need, and runs nothing. Up to
Mesa 25 the driver of AMD compiles for the GPU that RADV_FORCE_FAMILY names. From Mesa 25 on, a
library of the package mesa-drm-shim pretends that the kernel has found a GPU.

No pipeline may spill registers or use scratch memory. In the variant 'plain' of the device, a
workgroup has at most 128 invocations and 16 KiB of shared memory, as on every Vulkan device.
Registers, shared memory and instructions of a shader may not grow by more than a tenth over the
numbers in statistics.json. It has one GPU per compiler, with the version of the driver.

matmul_units loads the next tiles while it multiplies. So it may not wait for these loads before its
matrix instructions.

    compile_test.py PROGRAM            fewer cases, for every push
    compile_test.py PROGRAM --all      all cases; statistics.json must have these shaders
    compile_test.py PROGRAM --update   writes statistics.json
"""

import argparse
import glob
import json
import os
import pathlib
import re
import subprocess
import sys

# {GPU: (driver, shim, environment)}
GPUS = {
    "gfx9": ("radeon", "", {"RADV_FORCE_FAMILY": "vega10"}),
    "gfx10.3": ("radeon", "", {"RADV_FORCE_FAMILY": "navi21"}),
    "gfx11": ("radeon", "", {"RADV_FORCE_FAMILY": "gfx1100"}),
    "gfx9 (shim)": ("radeon", "amdgpu", {"AMDGPU_GPU_ID": "vega10"}),
    "gfx10.3 (shim)": ("radeon", "amdgpu", {"AMDGPU_GPU_ID": "navi21"}),
    "gfx11 (shim)": ("radeon", "amdgpu", {"AMDGPU_GPU_ID": "navi31"}),
    "gfx12 (shim)": ("radeon", "amdgpu", {"AMDGPU_GPU_ID": "gfx1201"}),
    "adreno 740 (shim)": ("freedreno", "freedreno", {"FD_GPU_ID": "740"}),
    "apple m1 (shim)": ("asahi", "asahi", {}),
}
DATA = pathlib.Path(__file__).with_name("statistics.json")
SPILLS = ["Spilled VGPRs", "Spilled SGPRs", "Scratch size", "Spills", "Fills", "Scratch",
          "STP Count", "LDP Count"]
COUNTED = ["gfx11", "gfx12 (shim)", "adreno 740 (shim)", "apple m1 (shim)"]
COLUMNS = [["VGPRs", "GPRs", "Registers used"], ["LDS size"], ["Instructions", "Instruction Count"]]
# They have the same compiler as GFX11, and it takes as long again for each.
ONLY_WITH_ALL = ["gfx9", "gfx10.3"]
PLAIN_INVOCATIONS, PLAIN_SHARED_MEMORY = 128, 16384
SKIPPED = 77


def environment_of(gpu):
    """Returns the environment in which the GPU seems to be there, or None."""
    driver, shim, chosen = GPUS[gpu]
    manifests = sorted(glob.glob(f"/usr/share/vulkan/icd.d/{driver}_icd*.json"))
    shims = sorted(glob.glob("/usr/lib/*/lib*_noop_drm_shim.so"))
    preload = [path for path in shims if path.endswith(f"/lib{shim}_noop_drm_shim.so")]
    if not manifests or bool(shim) != bool(shims) or (shim and not preload):
        return None
    return {**os.environ, **chosen, "LD_PRELOAD": " ".join(preload), "MESA_SHADER_CACHE_DISABLE": "true",
            "VK_DRIVER_FILES": manifests[0], "VK_ICD_FILENAMES": manifests[0]}


def statistics(program, environment, arguments):
    """Returns the line of the device, and those of the pipelines. Without pipelines, the device is
    not usable.
    """
    done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        return {"driver": done.stderr.splitlines()[-1]}, []
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}. {done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[0], lines[1:]


def spilled(pipeline):
    """Returns what the pipeline keeps outside of registers, or None."""
    spills = [f"{column} is {pipeline[column]}" for column in SPILLS if pipeline.get(column, 0) != 0]
    return f"{pipeline['shader']} with constants {pipeline['constants']}: {', '.join(spills)}" if spills else None


def too_large(pipeline):
    """Returns why a plain device cannot run the pipeline, or None."""
    invocations, shared = pipeline["constants"][0], pipeline.get("LDS size", 0)
    if invocations <= PLAIN_INVOCATIONS and shared <= PLAIN_SHARED_MEMORY:
        return None
    return f"plain variant, {pipeline['shader']}: {invocations} invocations, {shared} bytes of shared memory"


LOAD = "global_load_b128"
# These wait until at most so many loads are on their way.
WAITS = [(re.compile(r"vmcnt\((\d+)\)"), 10, 0), (re.compile(r"s_wait_loadcnt 0x([0-9a-f]+)"), 16, 0),
         (re.compile(r"s_wait_loadcnt_dscnt 0x([0-9a-f]+)"), 16, 8)]
DEPTH, VECTOR = 32, 8  # of the tiles of matmul_units.comp, and of its loads, in elements
ALIGNED = 3            # bits of its constant LAYOUT


def multiplies_aligned(pipeline):
    """Returns whether waits_early() can check the pipeline."""
    return "v_wmma" in pipeline.get("code", "") and pipeline["constants"][3] & ALIGNED == ALIGNED


def waits_early(pipeline):
    """Returns the sentence that fewer loads than those of the next tiles are on their way when the
    pipeline begins to multiply, or None.
    """
    if not multiplies_aligned(pipeline):
        return None
    lines = pipeline["code"].splitlines()
    first = next(i for i, line in enumerate(lines) if "v_wmma" in line)
    loading = 0
    for line in lines[:first]:
        loading += LOAD in line
        for pattern, base, shift in WAITS:
            if found := pattern.search(line):
                loading = min(loading, int(found[1], base) >> shift)
    invocations, *sides = pipeline["constants"][:3]
    wanted = sum(max(side * DEPTH // VECTOR // invocations, 1) for side in sides)
    return None if loading >= wanted else (f"{pipeline['shader']} with constants {pipeline['constants']}: {loading} of {wanted} "
                                           "loads are on their way when it multiplies")


def largest(pipelines):
    """Returns {shader: [most registers, bytes of shared memory, instructions]}."""
    rows = {}
    for pipeline in pipelines:
        now = [max(pipeline.get(name, 0) for name in names) for names in COLUMNS]
        rows[pipeline["shader"]] = list(map(max, now, rows.get(pipeline["shader"], now)))
    return rows


def grown(rows, known):
    for shader, row in rows.items():
        for names, now, before in zip(COLUMNS, row, known.get(shader, row)):
            if now > before + before // 10 + 8:
                yield f"{shader}: {names[0]} grew from {before} to {now}"


def write(data):
    gpus = []
    for gpu, rows in sorted(data.items()):
        lines = ",\n".join(f"  {json.dumps(shader)}: {row}" for shader, row in sorted(rows.items()))
        gpus.append(f"{json.dumps(gpu)}: {{\n{lines}\n}}")
    DATA.write_text("{\n" + ",\n".join(gpus) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    wanted = [gpu for gpu in GPUS if args.all or gpu not in ONLY_WITH_ALL]
    gpus = {gpu: environment for gpu in wanted if (environment := environment_of(gpu)) is not None}
    if not gpus:
        print("Mesa's driver RADV is not installed (tools/setup).")
        return 1 if os.environ.get("BOWLINE_STRICT") == "1" else SKIPPED
    data = json.loads(DATA.read_text()) if DATA.exists() else {}
    problems = []
    for gpu, environment in gpus.items():
        device, pipelines = statistics(args.program, environment, ["*", "quick"])
        if not pipelines:
            print(f"{gpu}: not usable. {device['driver']}")
            continue
        rows = largest(pipelines)
        more = []
        if args.all or gpu in COUNTED:
            more = statistics(args.program, environment, ["*" if args.all else "Attention*"])[1]
        large = {**environment, "BOWLINE_VULKAN_VARIANT": "large_tiles"}
        shows_code = gpu.startswith(("gfx11", "gfx12"))
        products = statistics(args.program, large, ["MatMul", "quick", *(["code"] if shows_code else [])])[1]
        on_units = [p for p in products if p["shader"].startswith("matmul_units")]
        if shows_code and on_units and not any(multiplies_aligned(p) for p in on_units):
            problems.append(f"{gpu}: the driver shows no machine code of a product on matrix units")
        problems += [f"{gpu}: {p}" for p in sorted({waits_early(p) for p in products} - {None})]
        more += products
        problems += [f"{gpu}: {p}" for p in sorted({spilled(p) for p in pipelines + more} - {None})]
        if gpu == next(iter(gpus)):
            plain = statistics(args.program, {**environment, "BOWLINE_VULKAN_VARIANT": "plain"}, ["*", "quick"])[1]
            problems += sorted({too_large(p) for p in plain} - {None})
        key = f"{gpu}: {device['driver']}"
        if args.update and gpu in COUNTED:
            data[key] = rows
        problems += [f"{gpu}: {p}" for p in grown(rows, data.get(key, {}))]
        if args.all and key in data and rows.keys() != data[key].keys():
            problems.append(f"{gpu}: statistics.json has other shaders. Run: {sys.argv[0]} {args.program} --update")
        print(f"{gpu}: {len(rows)} shaders, {len(pipelines) + len(more)} pipelines, {device['driver']}")
    if args.update:
        write(data)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
