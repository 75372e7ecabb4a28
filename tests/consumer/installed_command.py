"""Installs the command into an empty folder: it runs there, each of its verbs has a man page, and
bash completes its flags.

usage: installed_command.py --build DIR --work DIR [TEST...]
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--work", type=pathlib.Path, required=True)
args, tests = parser.parse_known_args()
PREFIX = args.work / "prefix"
COMPLETE = """source {script}
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_bowline
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


def completed(*words):
    script = PREFIX / "share/bash-completion/completions/bowline"
    return set(run("bash", "-c", COMPLETE.format(script=script, words=" ".join(words))).split())


class Command(unittest.TestCase):
    def setUp(self):
        self.help = run(PREFIX / "bin/bowline", "--help")
        self.verbs = re.findall(r"^  (\w+)  +\S", self.help.split("Subcommands:")[1].split("\n\n")[0], re.MULTILINE)
        self.assertTrue(self.verbs)

    def test_man_pages(self):
        pages = PREFIX / "share/man/man1"
        for verb in self.verbs:
            text = (pages / f"bowline-{verb}.1").read_text()
            self.assertIn(run(PREFIX / "bin/bowline", verb, "--help").splitlines()[0].replace("-", "\\-"), text)
        self.assertTrue((pages / "bowline.1").is_file())
        if shutil.which("man"):
            # Nothing in a page is taken for an instruction by mistake.
            said = subprocess.run(["man", "--warnings", "-l", pages / f"bowline-{self.verbs[0]}.1"], capture_output=True, text=True,
                                  check=True, env={"PATH": "/usr/bin:/bin", "MANROFFSEQ": "", "MANWIDTH": "200"})
            self.assertEqual(said.stderr, "")

    def test_completion(self):
        self.assertEqual(completed("bowline", '""'), set(self.verbs))
        verb = next(v for v in self.verbs if v.startswith("ins"))
        self.assertEqual({w for w in completed("bowline", "ins")}, {verb})
        self.assertEqual(completed("bowline", verb, "--dev"), {"--device"})

    def test_notices(self):
        for name in ("LICENSE", "third-party-notices-command.txt"):
            self.assertTrue((PREFIX / "share/doc/bowline" / name).is_file(), name)
        if shutil.which("dpkg-query"):
            self.assertIn("\nlibcli11-dev ", (PREFIX / "share/doc/bowline/third-party-notices-command.txt").read_text())


shutil.rmtree(args.work, ignore_errors=True)
run("cmake", "--install", args.build, "--prefix", PREFIX, "--component", "bowline_command")
unittest.main(argv=[sys.argv[0], *tests], verbosity=2)
