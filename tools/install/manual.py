#!/usr/bin/env python3
"""Writes the man pages of the command and its bash completion from the output of --help.

usage: manual.py --command FILE --conform FILE --version TEXT --man DIR --completion FILE
                 [--emulator COMMAND...]
       manual.py --conform FILE --version TEXT --man DIR [--emulator COMMAND...]

The first form writes bowline.1 and bowline-VERB.1 to --man, and all verbs with their flags to
--completion. The verb conform is another program with a page of its own, which the second form
writes. If that program was built, --completion contains its flags.
"""

import argparse
import pathlib
import re
import subprocess
import sys

CONFORM = "conform"
ROW = re.compile(r"^  ([^\s,]+(?:, -[^\s,]+)*)(?: |$)")


class Page:
    """The output of --help of the command or of a verb."""

    def __init__(self, run, words):
        self.words = words
        self.text = run([*words, "--help"])
        rows = {"Subcommands:": [], "Options:": [], "Advanced:": []}
        title = ""
        for line in self.text.splitlines():
            if line.endswith(":") and not line.startswith(" "):
                title = line
            elif not line.strip():
                title = ""
            elif title in rows and (found := ROW.match(line)):
                rows[title] += found[1].split(", ")
        if not rows["Options:"]:
            sys.exit(f"'{' '.join(['bowline', *words])} --help' lists no options; it prints: {self.text[:200]!r}")
        self.flags = rows["Options:"] + rows["Advanced:"]
        self.below = [Page(run, [*words, verb]) for verb in rows["Subcommands:"] if verb != CONFORM]

    def all(self):
        return [self, *(page for below in self.below for page in below.all())]


def roff(text):
    """Escapes a text for roff: backslashes, and a dot or quote at the start of a line."""
    return "\n".join(r"\&" + line if line[:1] in (".", "'") else line for line in text.replace("\\", r"\e").replace("-", r"\-").split("\n"))


def man_page(page, version):
    name = "-".join(["bowline", *page.words])
    about, _, rest = page.text.strip().partition("\n")
    usage, _, rest = rest.partition("\n\n") if rest.startswith("Usage: ") else ("", "", rest)
    others = ", ".join(f"\\fB{'-'.join(['bowline', *p.words])}\\fR(1)" for p in page.below)
    lines = [f'.TH "{name.upper()}" 1 "" "Bowline {version}" "User commands"', ".SH NAME", rf"{roff(name)} \- {roff(about)}",
             ".SH SYNOPSIS", ".nf", roff(usage.removeprefix("Usage: ").strip()), ".fi", ".SH DESCRIPTION", ".nf", roff(rest.strip()), ".fi"]
    if others:
        lines += [".SH SEE ALSO", others]
    return "\n".join([*lines, ""])


def completion(top):
    """Returns the bash completion. Each verb has a case with the words that can follow it."""
    lines = ["# Completion of bash for bowline, made from its --help.", "_bowline() {",
             '  local word=${COMP_WORDS[COMP_CWORD]} verb="" verbs="" flags="" i', "  for ((i = 1; i < COMP_CWORD; ++i)); do",
             '    case "$verb ${COMP_WORDS[i]}" in']
    paths = [" ".join(["", *page.words]) for page in top.all() if page.words]
    known = "|".join(f'"{path}"' for path in paths)
    lines += [f"      {known}) verb+=\" ${{COMP_WORDS[i]}}\" ;;"]
    lines += ["    esac", "  done", '  case "$verb" in']
    for page in top.all():
        verbs = " ".join(below.words[-1] for below in page.below)
        lines.append(f'    "{" ".join(["", *page.words]) if page.words else ""}") verbs="{verbs}" flags="{" ".join(page.flags)}" ;;')
    lines += ["  esac", "  if [[ $word == -* ]]; then", '    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")',
              '  elif [[ $verb == "" ]]; then', '    mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$word")', "  else",
              '    mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$word"; compgen -f -- "$word")', "  fi", "}",
              "complete -o filenames -F _bowline bowline", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--command")
    parser.add_argument("--conform", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--man", type=pathlib.Path, required=True)
    parser.add_argument("--completion", type=pathlib.Path)
    parser.add_argument("--emulator", nargs="*", default=[])
    args = parser.parse_args()

    def run(words):
        program = [args.conform, *words[1:]] if words[0] == CONFORM else [args.command, *words]
        return subprocess.run([*args.emulator, *program], check=True, capture_output=True, text=True).stdout

    top = Page(run, [] if args.command else [CONFORM])
    args.man.mkdir(parents=True, exist_ok=True)
    for page in top.all():
        (args.man / f"{'-'.join(['bowline', *page.words])}.1").write_text(man_page(page, args.version), encoding="utf-8")
    if args.completion:
        if args.conform.is_file():
            top.below.append(Page(run, [CONFORM]))
        args.completion.parent.mkdir(parents=True, exist_ok=True)
        args.completion.write_text(completion(top), encoding="utf-8")


if __name__ == "__main__":
    main()
