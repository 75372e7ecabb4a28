"""Reads a page of Markdown as steps that a reader takes, in order. tests/guides/README.md has the
notation.
"""

import dataclasses
import re

# languages of blocks that a page may show without running them
SHOWN = {"text", "cmake", "json", "csv"}
NUMBER = r"[-+]?[0-9]+(?:[.,:][0-9]+)*(?:e[-+]?[0-9]+)?"
UNIT = r"(?:ms|us|s|KiB|MiB|GiB|bytes)\b"


class BadPage(Exception):
    """The page breaks a rule of the notation."""


@dataclasses.dataclass
class File:
    """A block that the reader saves as a file; a second block of the same name continues the
    file.
    """
    line: int
    name: str
    text: str


@dataclasses.dataclass
class Command:
    line: int
    text: str
    output: list[str]  # as shown; empty: not compared
    may_fail: bool  # the next command shows the exit code
    numbers_vary: bool
    needs: list[str]


@dataclasses.dataclass
class Skipped:
    line: int
    reason: str


def read(text):
    """The steps of the page: File, Command, Skipped."""
    steps, notes = [], {}
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        if comment := re.fullmatch(r"<!-- (.*) -->", line):
            name, _, value = comment[1].partition(":")
            if name not in ("file", "run", "needs", "not run", "numbers vary"):
                raise BadPage(f"line {number}: A comment of a page is a note to the test; '{name}' is unknown.")
            if name == "run":
                steps.append(Command(number, value.strip(), [], False, False, notes.pop("needs", "").split()))
            else:
                notes[name] = value.strip()
        elif line.lstrip().startswith("```"):
            block = []
            for _, inside in lines:
                if inside.startswith("```"):
                    break
                block.append(inside)
            else:
                raise BadPage(f"line {number}: The block has no end.")
            steps += steps_of_block(number, line[3:], block, notes)
            notes = {}
        elif notes and line.strip():
            raise BadPage(f"line {number}: The note '{next(iter(notes))}' has no block below it.")
    return steps


def steps_of_block(number, language, block, notes):
    if "not run" in notes:
        return [Skipped(number, notes["not run"])]
    if "file" in notes:
        return [File(number, notes["file"], "\n".join(block) + "\n")]
    if language == "console":
        return commands(number, block, "numbers vary" in notes, notes.get("needs", "").split())
    if language in SHOWN:
        return []
    raise BadPage(f"line {number}: A block of '{language}' needs the note 'file: NAME' or 'not run: REASON'.")


def commands(number, block, numbers_vary, needs):
    found = []
    unfinished = False
    for line, text in enumerate(block, start=number + 1):
        if unfinished:
            found[-1].text += "\n" + text
        elif text.startswith("$ "):
            found.append(Command(line, text[2:], [], False, numbers_vary, needs))
        elif found:
            found[-1].output.append(text)
        else:
            raise BadPage(f"line {line}: A console block begins with a command: '$ ...'.")
        unfinished = text.endswith("\\") and (unfinished or text.startswith("$ "))
    for command, after in zip(found, found[1:]):
        command.may_fail = after.text == "echo $?"
    return found


def matches(shown, printed, numbers_vary):
    """Whether a program printed the lines that a page shows."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else line_pattern(line, numbers_vary) + r" *\n" for line in shown)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def line_pattern(line, numbers_vary):
    if not numbers_vary:
        return ".*".join(map(re.escape, line.rstrip().split("...")))
    pattern = ""
    for part in re.findall(rf"\.\.\.|{NUMBER}(?: ?{UNIT})?| +|[A-Za-z_]+|.", line.rstrip()):
        if part == "...":
            pattern += ".*"
        elif re.fullmatch(rf"{NUMBER} ?{UNIT}", part):
            pattern += rf"{NUMBER} ?{UNIT}"
        elif re.fullmatch(NUMBER, part):
            pattern += NUMBER
        else:
            pattern += " +" if part.isspace() else re.escape(part)
    return pattern
