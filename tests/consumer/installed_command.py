"""Installs the command and bowline-conform into an empty folder. Each verb has a man page, and bash
completes its flags.

usage: installed_command.py --build DIR --work DIR [TEST...]
"""

import argparse
import pathlib
import re
import shlex
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
    script = shlex.quote(str(PREFIX / "share/bash-completion/completions/bowline"))
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
            # No text of a page is an unintended roff request.
            said = subprocess.run(["man", "--warnings", "-l", pages / f"bowline-{self.verbs[0]}.1"], capture_output=True, text=True,
                                  check=True, env={"PATH": "/usr/bin:/bin", "MANROFFSEQ": "", "MANWIDTH": "200"})
            self.assertEqual(said.stderr, "")

    def test_completion(self):
        self.assertEqual(completed("bowline", '""'), set(self.verbs))
        verb = next(v for v in self.verbs if v.startswith("ins"))
        self.assertEqual({w for w in completed("bowline", "ins")}, {verb})
        self.assertEqual(completed("bowline", verb, "--dev"), {"--device"})
        self.assertEqual(completed("bowline", "finetune", "--ext"), {"--extend"}, "a flag of the group Advanced")

    def test_notices(self):
        for name in ("command", "conform"):
            notices = PREFIX / f"share/doc/bowline/third-party-notices-{name}.txt"
            self.assertTrue(notices.is_file(), name)
            if shutil.which("dpkg-query"):
                self.assertIn("\nlibcli11-dev ", notices.read_text())
        self.assertTrue((PREFIX / "share/doc/bowline/LICENSE").is_file())

    def test_without_the_other_program_conform_says_how_to_install_it(self):
        alone = shutil.copy(PREFIX / "bin/bowline", args.work)
        done = subprocess.run([alone, "conform", "--suite", "ops"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f'There is no program "{args.work}/bowline-conform"', done.stderr)
        self.assertIn("'cmake --install BUILD --component bowline_conform'", done.stderr)

    def test_the_command_has_nothing_of_the_tests(self):
        """Code that is compiled only for tests is in these namespaces."""
        symbols = {name: subprocess.run(["nm", "-C", PREFIX / "bin" / name], capture_output=True, text=True, check=False).stdout
                   for name in ("bowline", "bowline-conform")}
        for namespace in ("bowline::conformance::", "bowline::test::"):
            self.assertIn(namespace, symbols["bowline-conform"])
            self.assertNotIn(namespace, symbols["bowline"])


shutil.rmtree(args.work, ignore_errors=True)
for component in ("bowline_command", "bowline_conform"):
    run("cmake", "--install", args.build, "--prefix", PREFIX, "--component", component)
unittest.main(argv=[sys.argv[0], *tests], verbosity=2)
