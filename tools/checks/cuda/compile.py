"""Finds the tools of CUDA, and compiles single kernel files to machine code."""

import hashlib
import json
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import sysconfig

PACKAGES = ["nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm"]
# Flags that the check replaces, with the number of their arguments.
DROPPED = {"-c": 1, "-o": 1, "-MD": 0, "-MF": 1, "-MT": 1}


def find_tool(name, nvcc, downloads):
    """Returns the program of the toolkit, of the PATH, or of a package of PyPI, or None."""
    beside = pathlib.Path(nvcc).with_name(name)
    if beside.exists():
        return str(beside)
    if found := shutil.which(name):
        return found
    folders = [downloads, pathlib.Path(sysconfig.get_paths()["purelib"])]
    return next((str(path) for folder in folders for path in sorted(folder.glob(f"nvidia/*/bin/{name}"))), None)


def install(downloads):
    """Downloads the disassembler from PyPI into a folder."""
    downloads.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", downloads, *PACKAGES], check=True)
    for wheel in downloads.glob("*.whl"):
        shutil.unpack_archive(wheel, downloads, "zip")
    for program in downloads.glob("nvidia/*/bin/*"):
        program.chmod(0o755)


def nvcc_command(ninja):
    """Returns the command that compiles kernels, without architecture and files, or None."""
    for line in ninja.splitlines():
        if "-gencode=" in line and line.lstrip().startswith("COMMAND = "):
            step = next(part for part in line.split(" && ") if "-gencode=" in part)
            words = iter(shlex.split(step.strip().removeprefix("COMMAND = ")))
            break
    else:
        return None
    kept = []
    for word in words:
        if word in DROPPED:
            for _ in range(DROPPED[word]):
                next(words)
        elif not word.startswith(("-gencode=", "--compress-mode=")) and not word.endswith(".cu"):
            kept.append(word)
    return kept


def built_for(ninja):
    """The codes of the build, as nvcc names them: sm_80 for machine code, compute_75 for PTX."""
    found = re.search(r"COMMAND = .*-gencode=.*", ninja)
    codes = re.findall(r"-gencode=\S*code=(\S+)", found[0]) if found else []
    return [code for item in codes for code in re.findall(r"(?:sm|compute)_\w+", item)]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Compiler:
    """Compiles kernel files for single architectures, and keeps the results in a folder."""

    def __init__(self, command, folder):
        self.command, self.folder = command, folder
        self.version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout
        folder.mkdir(parents=True, exist_ok=True)

    def key(self, sources):
        return {"command": self.command, "version": self.version,
                "sources": {str(path): digest(path) for path in sources if path.exists()}}

    def paths(self, source, architecture):
        cubin = self.folder / f"{source.stem}.{architecture}.cubin"
        return cubin, cubin.with_suffix(".json")

    def kept(self, source, architecture):
        """Returns the cubin of an earlier run, or None if it is missing or out of date."""
        cubin, note = self.paths(source, architecture)
        if not cubin.exists() or not note.exists():
            return None
        old = json.loads(note.read_text())
        return cubin if old == self.key([pathlib.Path(path) for path in old["sources"]]) else None

    def compile(self, source, architecture):
        cubin, note = self.paths(source, architecture)
        listed = cubin.with_suffix(".d")
        note.unlink(missing_ok=True)
        subprocess.run([*self.command, "-cubin", f"-arch=sm_{architecture}", source, "-o", cubin, "-MD", "-MF", listed],
                       check=True)
        names = re.findall(r"\S+", listed.read_text().replace("\\\n", " ").split(":", 1)[1])
        note.write_text(json.dumps(self.key([pathlib.Path(name) for name in names])))
        return cubin
