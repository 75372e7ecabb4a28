#!/usr/bin/env python3
"""Follows a page of Markdown as a reader does, in an empty folder, and compares what the commands
print with what the page shows.

usage: run_page.py PAGE --prefix DIR    DIR: where Bowline is installed
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import page

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRICT = os.environ.get("BOWLINE_STRICT") == "1"
MARK = "--- end of the command, exit code "


class Shell:
    """One bash for a whole page, so that variables and the folder last from command to command."""

    def __init__(self, folder, environment):
        self.script = folder.parent / "command"
        self.code = 0
        self.bash = subprocess.Popen(["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     text=True, cwd=folder, env=environment)

    def run(self, command):
        """The lines that the command prints; its exit code is in `code`."""
        self.script.write_text(f"(exit {self.code})\n{command}\n")
        self.bash.stdin.write(f"source {self.script} </dev/null; printf '\\n{MARK}%d\\n' $?\n")
        self.bash.stdin.flush()
        lines = []
        for line in self.bash.stdout:
            if line.startswith(MARK):
                self.code = int(line[len(MARK):])
                if lines[-1] == "":
                    lines.pop()
                return lines
            lines.append(line.removesuffix("\n"))
        raise AssertionError("The command ended the shell.\n" + "\n".join(lines))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.bash.communicate()


def environment_of(prefix, repository):
    def path(name, *folders):
        return {name: os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get(name)])])}

    library = next(prefix.glob("lib*/**/pkgconfig")).parent
    return {**os.environ, "LP_NUM_THREADS": "0", "REPOSITORY": str(repository), **path("PATH", prefix / "bin"),
            **path("PKG_CONFIG_PATH", library / "pkgconfig"), **path("LD_LIBRARY_PATH", library), **path("CMAKE_PREFIX_PATH", prefix)}


def missing(needs):
    """The programs and Python modules ("module:NAME") of the list that this machine lacks."""
    modules = [name.removeprefix("module:") for name in needs if name.startswith("module:")]
    programs = [name for name in needs if not name.startswith("module:")]
    lacking = [f"the program {name}" for name in programs if not shutil.which(name)]
    if STRICT and lacking:
        raise AssertionError(f"This machine lacks {', '.join(lacking)} (tools/setup installs it).")
    return lacking + [f"the Python module {name}" for name in modules if not has_module(name)]


def has_module(name):
    """Asks the python3 that the commands of a page get, which need not be this one."""
    search = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run(["python3", "-c", search], check=False).returncode == 0


def follow(steps, folder, environment):
    """Returns the number of commands that ran."""
    with Shell(folder, environment) as shell:
        return follow_with(shell, steps, folder)


def follow_with(shell, steps, folder):
    started, count = set(), 0
    for step in steps:
        if isinstance(step, page.Skipped):
            print(f"line {step.line}: not run: {step.reason}")
        elif isinstance(step, page.File):
            path = folder / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a" if step.name in started else "w") as file:
                file.write(step.text)
            started.add(step.name)
        elif lacking := missing(step.needs):
            print(f"line {step.line}: not run: This machine lacks {', '.join(lacking)}.")
        else:
            printed = shell.run(step.text)
            count += 1
            if shell.code != 0 and not step.may_fail:
                raise AssertionError(f"line {step.line}: exit code {shell.code}: {step.text}\n" + "\n".join(printed))
            if step.output and not page.matches(step.output, printed, step.numbers_vary):
                raise AssertionError("\n".join([f"line {step.line}: {step.text}", "--- the page shows", *step.output,
                                                "--- the command prints", *printed]))
    return count


def check_links(path, text):
    for target in re.findall(r"\]\(([^)#]*)[^)]*\)", text):
        if target and not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
            raise AssertionError(f"{path}: The link to {target} leads nowhere.")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--prefix", type=pathlib.Path, required=True)
    args = parser.parse_args()
    text = args.page.read_text()
    with tempfile.TemporaryDirectory(prefix="bowline_guide_") as work:
        folder = pathlib.Path(work) / "empty"
        folder.mkdir()
        (folder / "samples").symlink_to(ROOT / "samples")
        # The shell splits paths of these folders at spaces: $(pkg-config --cflags bowline).
        prefix, repository = pathlib.Path(work) / "prefix", pathlib.Path(work) / "repository"
        prefix.symlink_to(args.prefix.resolve())
        repository.symlink_to(ROOT)
        try:
            check_links(args.page, text)
            count = follow(page.read(text), folder, environment_of(prefix, repository))
        except (AssertionError, page.BadPage) as failure:
            sys.exit(f"{args.page}: {failure}")
    print(f"{args.page.name}: {count} commands")


if __name__ == "__main__":
    main()
