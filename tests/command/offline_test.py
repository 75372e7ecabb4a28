#!/usr/bin/env python3
"""The command opens no socket, needs no network, and reads and writes only files that its caller
names, files of the system and drivers, and its documented cache.

Each verb runs under strace, in a network namespace of its own that has no network.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import harness
from harness import BOWLINE, OK, need, need_tool, run

TESTS = pathlib.Path(__file__).resolve().parents[1]
# All that takes the name of a file, and all of the network. io_uring could do both unseen.
TRACED = "%file,%network,io_uring_setup"
NETWORK = re.compile(r"socket|socketpair|bind|connect|listen|accept4?|send\w+|recv\w+|get(sock|peer)\w+|setsockopt|shutdown|io_uring_setup")
# They look at a file without its content.
LOOKS = re.compile(r"access|faccessat2?|\w*stat\w*|readlink(at)?|chdir|getcwd")
OPENS = re.compile(r"open|openat2?|creat")
WRITE_FLAGS = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)")
# Read by the C library, the dynamic linker and drivers. Read-only.
SYSTEM = ["/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/ld.so.preload",
          "/etc/localtime", "/usr/share/zoneinfo", "/usr/share/locale", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat",
          "/proc/sys/kernel", "/proc/sys/vm", "/sys/class/drm", "/sys/devices", "/sys/dev/char", "/sys/bus/pci", "/sys/fs/cgroup", "/dev/urandom"]
# Where the loader of Vulkan looks for drivers and layers, and Mesa for its settings; also below the
# home folder. Read-only.
DRIVERS = [f"{place}/{kind}" for place in ("/etc", "/etc/xdg", "/usr/share", "/usr/local/share", "~/.config", "~/.local/share")
           for kind in ("vulkan", "drirc.d", "drirc")] + ["~/.drirc"]
# Device nodes.
NODES = ["/dev/null", "/dev/dri"]
CACHE = "~/.cache/bowline"


def within(path, folders):
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


class Judge:
    """Judges the system calls of a run that may read `reads` and write `writes`."""

    def __init__(self, home, program, reads, writes):
        def placed(paths):
            return [str(path).replace("~", str(home), 1) for path in paths]

        # A file is written under a temporary name beside its place.
        beside = [p.with_name(f".{p.name}.{end}") for p in writes for end in ("bowline-write", "bowline_export")]
        self.writes = placed([CACHE, *writes, *beside])
        self.programs = [str(program), f"{program}-conform"]
        self.reads = placed([*SYSTEM, *DRIVERS, *reads, *self.programs]) + self.writes
        self.process = None
        self.calls = 0
        self.wrong = []

    def line(self, text):
        number, text = re.match(r"(\d+) +(.*)", text).groups()
        self.process = self.process or number
        # A file that is open already was judged when it was opened.
        if re.match(r"<\.\.\. \w+ resumed>|--- SIG|\+\+\+ exited|\w+\(\d+<[^>]*>, \"\",", text):
            return
        found = re.match(r"(\w+)\((.*)$", text)
        if found is None or not self.right(found[1], found[2]):
            self.wrong.append(text)
        self.calls += 1

    def right(self, call, arguments):
        if NETWORK.fullmatch(call):
            return False
        paths = self.paths(call, arguments)
        if call == "execve":
            return paths[0] in self.programs
        if call == "getcwd":
            return True
        return bool(paths) and all(self.may(call, arguments, path) for path in paths)

    def paths(self, call, arguments):
        """Returns the absolute paths among the arguments as strace -y prints them."""
        found = re.findall(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"', arguments)
        if not re.match("rename|link|symlink", call):
            found = found[:1]
        absolute = [os.path.normpath(os.path.join(folder or "/no-folder", path)) for folder, path in found]
        return [re.sub(f"^/proc/{self.process}(?=/|$)", "/proc/self", path) for path in absolute]

    def may(self, call, arguments, path):
        if within(path, NODES):
            return True
        if LOOKS.fullmatch(call):
            # Whoever opens a file may look at the folders above it.
            return within(path, self.reads) or any(read.startswith(path.rstrip("/") + "/") for read in self.reads)
        if OPENS.fullmatch(call) and not WRITE_FLAGS.search(arguments.rsplit('"', 1)[1].split(")")[0]):
            folders = [os.path.dirname(path) for path in self.writes] if "O_DIRECTORY" in arguments else []
            return within(path, self.reads) or path in folders or path == "/dev"
        # Folders above the cache are made.
        return within(path, self.writes) or (call.startswith("mkdir") and self.writes[0].startswith(path + "/"))


def namespace():
    """Returns the words that run a command without a network."""
    tried = [["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]]
    reason = ""
    for words in tried:
        done = subprocess.run([*words, "true"], capture_output=True, text=True)
        if done.returncode == 0:
            return words
        reason = done.stderr.strip()
    need(False, f"No network namespace can be made here: {reason}.")
    return None


class Offline(harness.AdapterCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if harness.SANITIZED:
            raise unittest.SkipTest("the leak sanitizer does not work under strace")
        need_tool("strace")
        need_tool("unshare")
        cls.namespace = namespace()
        traced = subprocess.run(["strace", "--seccomp-bpf", "-f", "true"], capture_output=True, text=True)
        need(traced.returncode == 0, f"strace cannot trace a program here: {traced.stderr.strip()}")
        cls.classes, cls.decoder = cls.shared / "classes.bowline", cls.shared / "decoder.bowline"
        for program, arguments in (("ENCODER_MODEL", [cls.classes]), ("MAKE_DECODER", [cls.decoder, "vocabulary=256", "tokenizer=bytes"])):
            made = run(*arguments, program=os.environ[program])
            if made.returncode != 0:
                raise AssertionError(made.stderr)

    def setUp(self):
        super().setUp()
        self.home, self.place, self.temporary = (self.folder / name for name in ("home", "place", "tmp"))
        for folder in (self.home, self.place, self.temporary):
            folder.mkdir()

    def trace(self, program, *arguments, writes=(), **options):
        """Runs a program. Returns the finished process, and the judge of its system calls. It may
        read the arguments that are paths, and write `writes`.
        """
        log = self.folder / "trace"
        # A driver could connect to a display.
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.temporary), "LP_NUM_THREADS": "0",
                       "DISPLAY": ":77", "WAYLAND_DISPLAY": "wayland-77", "XDG_RUNTIME_DIR": str(self.temporary)}
        done = subprocess.run([*self.namespace, "strace", "--seccomp-bpf", "-f", "-y", "-qq", "-e", f"trace={TRACED}", "-e", "signal=none",
                               "-o", log, program, *map(str, arguments)],
                              cwd=self.place, env=environment, capture_output=True, text=True, timeout=120, **options)
        judge = Judge(self.home, program, [p for p in arguments if isinstance(p, pathlib.Path)], writes)
        for line in log.read_text().splitlines():
            judge.line(line)
        self.assertGreater(judge.calls, 10, done.stderr)
        return done, judge

    def check(self, *arguments, writes=(), **options):
        with self.subTest(" ".join(map(str, arguments))):
            self.verbs.add(arguments[0])
            done, judge = self.trace(BOWLINE, *arguments, writes=writes, **options)
            self.expect(done, OK)
            self.assertEqual(judge.wrong, [], "\n".join(judge.wrong))
            self.assertEqual([str(path) for path in writes if not path.exists()], [])
            left = sorted(str(p.relative_to(self.folder)) for p in (*self.home.glob("*"), *self.home.glob(".cache/*"), *self.temporary.iterdir()))
            self.assertIn(left, ([], ["home/.cache", "home/.cache/bowline"]))
            self.assertEqual(sorted(self.place.iterdir()), sorted({self.place / p.relative_to(self.place).parts[0] for p in writes}))
        shutil.rmtree(self.place)
        self.place.mkdir()

    def test_every_verb(self):
        self.verbs = set()
        out = self.place / "out"
        train = ("--data", self.text, "--batch", 2, "--seq", 16, "--steps", 2)
        self.check("--version")
        self.check("devices")
        self.check("help", "finetune")
        self.check("import", TESTS / "import/fixtures/llama", "--out", out, writes=[out])
        self.check("import", TESTS / "gguf/data/llama_q8_0.gguf", "--out", out, writes=[out])
        self.check("import", self.peft_folder(), "--base", self.base, "--out", out, writes=[out])
        self.check("inspect", self.model)
        self.check("verify", self.model)
        self.check("tokenize", self.decoder, "--file", self.text, "--max-tokens", 5)
        self.check("chat", self.decoder, "--chat-format", "chatml", "--max-tokens", 2, "--device", "cpu", input="rope\n")
        self.check("predict", self.classes, "cat dog", "--device", "cpu")
        self.check("quantize", self.model, "--encoding", "int8", "--out", out, writes=[out])
        for to in ("hf", "gguf"):
            self.check("export", self.base, "--adapter", self.adapter, "--to", to, "--out", out, writes=[out])
        self.check("conform", "--suite", "ops", "--filter", "Relu")
        self.check("bench", "matmul", "--m", 16, "--n", 16, "--k", 16, "--device", "cpu")
        for device in harness.real_devices():
            of = ("--device", device)
            log, html, checkpoints = (self.place / name for name in ("log", "report.html", "checkpoints"))
            self.check("finetune", self.model, *train, *of, "--out", out, "--log", log, "--report", html, "--checkpoint", checkpoints,
                       writes=[out, log, html, checkpoints])
            self.check("generate", self.decoder, "rope", "-n", 2, *of)
            self.check("eval", self.model, "--data", self.text, "--seq", 16, *of)
            self.check("run", self.model, "--input", "tokens=1,2,3", *of)
            self.check("profile", self.model, "--batch", 1, "--seq", 8, "--steps", 1, *of)
            if device != "cpu":
                self.check("tune", self.model, "--batch", 1, "--seq", 8, "--rounds", 1, *of)
        listed = re.findall(r"^  (\w+)  ", run("--help").stdout.partition("Subcommands:")[2].partition("\n\n")[0], re.M)
        # The purpose of serve is a network.
        self.assertEqual(set(listed) - self.verbs - {"serve", "tune"}, set(), "a verb is not tested")

    def test_calls_that_another_thread_interrupts(self):
        judge = Judge(self.home, BOWLINE, [], [])
        for line in ('7 newfstatat(1<pipe:[3]>, "",  <unfinished ...>', "7 <... newfstatat resumed>{st_mode=S_IFIFO}, AT_EMPTY_PATH) = 0",
                     f'8 openat(AT_FDCWD</>, "{self.home}/.cache/bowline/x", O_RDWR|O_CREAT <unfinished ...>', "8 <... openat resumed>, 0644) = 3"):
            judge.line(line)
        self.assertEqual(judge.wrong, [])
        judge.line(f'8 openat(AT_FDCWD</>, "{self.home}/x", O_RDONLY <unfinished ...>')
        judge.line('8 openat(AT_FDCWD</>, "etc/ld.so.cache", O_RDWR <unfinished ...>')
        self.assertEqual(len(judge.wrong), 2)

    def test_the_trace_notices(self):
        """Programs that do what the command must not do."""
        other, mine = self.folder / "other", self.place / "mine"
        other.write_text("text")
        for code, call in ((f"open({str(other)!r})", "openat"), (f"open({str(other)!r}, 'w')", "openat"), ("import os; os.mkdir('folder')", "mkdir"),
                           (f"import os; os.rename({str(mine)!r}, {str(mine)!r} + '2')", "rename"), (f"import os; os.remove({str(mine)!r})", "unlink"),
                           (f"import os; os.stat({str(other)!r})", "newfstatat"), ("import socket; socket.socket()", "socket"),
                           ("import socket; socket.socketpair()", "socketpair"), ("import subprocess; subprocess.run(['true'])", "execve")):
            with self.subTest(code):
                mine.write_text("text")
                done, judge = self.trace(sys.executable, "-I", "-S", "-c", code)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(any(line.startswith(f"{call}(") for line in judge.wrong), judge.wrong)


if __name__ == "__main__":
    unittest.main()
