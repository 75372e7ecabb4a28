#!/usr/bin/env python3
"""Tests mistyped verbs, flags, values and devices, --help of every verb, and devices."""

import glob
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

import harness
from harness import BAD_DEVICE, FAILED, OK, USAGE, run


class Usage(harness.Case):
    def test_no_verb(self):
        self.expect(run(), USAGE)

    def test_unknown_verb(self):
        self.expect(run("fintune"), USAGE, "'fintune'", "'finetune'", "--help")
        self.expect(run("bench", "matmull"), USAGE, "'matmull'", "'matmul'")

    def test_unknown_flag(self):
        self.expect(run("finetune", self.model, "--data", self.text, "--lerning-rate", "1"), USAGE,
                    "'--lerning-rate'", "'--learning-rate'", "bowline finetune --help")
        self.expect(run("bench", "matmul", "--layuot", "nt"), USAGE, "'--layuot'", "'--layout'")
        self.expect(run("devices", "-x"), USAGE, "'-x'")

    def test_shortened_flags(self):
        """Suggests flags for the first letters of their words, or for their beginning."""
        train = ("finetune", self.model, "--data", self.text)
        self.expect(run(*train, "--lr", "1"), USAGE, "'--lr'", "Did you mean '--learning-rate' or '--lora-rank'?")
        self.expect(run(*train, "--accum", "2"), USAGE, "Did you mean '--accumulate'?")
        self.expect(run(*train, "--sched", "linear"), USAGE, "Did you mean '--schedule'?")

    def test_bad_value(self):
        self.expect(self.finetune("--batch", "many"), USAGE, "--batch")
        self.expect(self.finetune("--schedule", "square"), USAGE, "square")
        self.expect(self.finetune("--seq", "0"), USAGE, "--seq")
        self.expect(run("bench", "matmul", "--layout", "xx"), USAGE, "xx")

    def test_numbers(self):
        """A number must be a complete word, finite and in range. The message is short, and no file
        is written.
        """
        out = self.folder / "out.bowline"
        whole = ("-1", "", "1e3", "0x10", "1.5", "9223372036854775808", "1" * 400, " 1", "many")
        for flag in ("--steps", "--warmup", "--eval-every", "--eval-batches", "--save-every", "--patience", "--batch"):
            for word in whole:
                self.expect(self.finetune(flag, word, "--out", out), USAGE, flag, f'"{word[:40]}" is not a whole number from')
        real = ("-1", "", "nan", "-nan", "inf", "-inf", "1e39", "0x1p3", "1e", "many")
        for flag in ("--learning-rate", "--weight-decay", "--clip", "--beta2", "--momentum", "--final-fraction"):
            for word in real:
                done = self.expect(self.finetune(flag, word, "--out", out), USAGE, flag, f'"{word}" is not a finite number from')
                self.assertLess(len(done.stderr), 200)
        for flag in ("--beta2", "--momentum"):
            for word in ("1", "0.99999999999"):
                self.expect(self.finetune(flag, word, "--out", out), USAGE, f'"{word}" is not a finite number from 0 on and below 1')
        self.expect(self.finetune("--seed", 2**64 - 1, "--steps", 0), OK)
        self.expect(self.finetune("--seed", 2**64, "--steps", 0), USAGE, "from 0 on")
        self.assertFalse(out.exists())

    def test_bytes(self):
        """Accepts a number of bytes with or without a unit, and refuses numbers beyond 64 bits."""
        words = ("0", "0MiB", "", "-1", "1.5GiB", "512MB", "512 MiB", "MiB", "1e9", "18446744073709551616", "16777216TiB", "many")
        verbs = (["finetune", self.model, "--data", self.text], ["eval", self.model, "--data", self.text], ["run", self.model],
                 ["profile", self.model], ["bench", "matmul"], ["bench", "train", self.model])
        for word in words:
            self.expect(run(*verbs[0], "--memory-budget", word), USAGE, "--memory-budget", f'"{word}" is not a number of bytes above 0')
        for verb in verbs:
            self.expect(run(*verb, "--memory-budget", "1Gib"), USAGE, '"1Gib" is not a number of bytes above 0, such as')

    def test_missing_argument(self):
        self.expect(run("inspect"), USAGE, "model")
        self.expect(run("finetune", self.model), USAGE, "--data")

    def test_unknown_device(self):
        out = self.folder / "out.bowline"
        self.expect(self.finetune("--device", "vulcan:0", "--out", out), BAD_DEVICE, "vulcan:0", "Did you mean")
        self.expect(run("bench", "matmul", "--device", "cpuu"), BAD_DEVICE, "cpuu", "'cpu'")
        self.assertFalse(out.exists())

        self.expect(run("conform", "--device", "nosuch"), BAD_DEVICE, "nosuch")

    def test_a_device_that_is_not_there_has_a_way_out(self):
        """Covers every verb that takes a device."""
        def verbs(*parent):
            listed = re.findall(r"^  ([a-z]+) ", self.expect(run(*parent, "--help"), OK).stdout, re.MULTILINE)
            return [(*parent, verb) for verb in listed if re.search(r"^  .*--device", run(*parent, verb, "--help").stdout, re.MULTILINE)]

        proved, classes = pathlib.Path(__file__).resolve().parents[1] / "golden/1/tied_lm.bowline", self.folder / "classes.bowline"
        self.assertEqual(run(classes, program=os.environ["ENCODER_MODEL"]).returncode, 0)
        small = [self.model, "--dim", "batch=1", "--dim", "seq=8"]
        arguments = {"chat": [self.model], "eval": [self.model, "--data", self.text],
                     "finetune": [self.model, "--data", self.text, "--out", self.folder / "out.bowline"],
                     "generate": [self.model, "a"], "inspect": [self.model, "--batch", 1, "--seq", 8], "predict": [classes, "a"],
                     "profile": small, "run": [self.model, "--input", "tokens=1"], "verify": [proved],
                     "bench train": [self.model], "bench decode": [self.model], "bench run": small}
        for verb in verbs() + verbs("bench"):
            if verb == ("bench",):
                continue
            for device in ("vulkan:99", "cuda:99"):
                with self.subTest(verb=verb, device=device):
                    done = run(*verb, *arguments.get(" ".join(verb), []), "--device", device)
                    self.expect(done, BAD_DEVICE, f'There is no device "{device}"', 'Device "cpu" needs no GPU.\n- ',
                                "--device cpu runs it on the CPU. 'bowline devices' lists all devices")

    def test_gpu(self):
        gpus = [d for d in harness.devices() if d["usable"] and not d["software"] and not d["for_tests"] and d["name"] != "cpu"]
        done = run("bench", "matmul", "--device", "gpu", "--m", 8, "--n", 8, "--k", 8, "--runs", 7, "-o", "json")
        if gpus:
            self.assertEqual(json.loads(self.expect(done, OK).stdout)["device"], gpus[0]["name"])
        else:
            self.expect(done, BAD_DEVICE, "No usable GPU was found.\n- cpu (", "\n- --device cpu runs it on the CPU.")
            self.assertNotIn("Did you mean", done.stderr)

    def test_the_best_device_costs_what_it_is(self):
        """The search for a GPU does not load software drivers."""
        nodes = ("/dev/dri/renderD*", "/dev/nvidia*", "/dev/dxg*", "/dev/kgsl*", "/dev/mali*", "/dev/pvr*")
        if any(glob.glob(pattern) for pattern in nodes):
            self.skipTest("this machine may have a GPU")
        peak = {}
        for device in ("cpu", "best"):
            done = run("bench", "matmul", "--device", device, "--m", 8, "--n", 8, "--k", 8, "--runs", 7, "-o", "json")
            result = json.loads(self.expect(done, OK).stdout)
            self.assertEqual(result["device"], "cpu")
            peak[device] = result["peak_rss_bytes"]
        self.assertLess(abs(peak["best"] - peak["cpu"]), 8 << 20, peak)

    def test_device_without_number(self):
        self.expect(run("bench", "matmul", "--device", "vulkan:99"), BAD_DEVICE, "vulkan:99")

    def test_help(self):
        top = self.expect(run("--help"), OK)
        for code in ("0 ", "1 ", "2 ", "3 ", "4 ", "75 ", "130 "):
            self.assertIn("\n  " + code, top.stdout)
        for verb in ("devices", "inspect", "verify", "finetune", "eval", "bench", "conform", "run", "profile"):
            self.assertIn(verb, top.stdout)
        for verb in self.verbs():
            text = self.expect(run(*verb, "--help"), OK).stdout
            self.assertIn("example: bowline " + verb[0], text)
            flags = text[:text.index("example: ")].splitlines()
            self.assertEqual([line for line in flags if len(line) > 80], [], "one line of 80 columns per flag")
            self.assertEqual(run("help", *verb).stdout, text)
        self.assertEqual(run("help").stdout, top.stdout)
        self.expect(run("help", "inspekt"), USAGE, "'inspekt'", "'inspect'")

    def verbs(self):
        """Returns every verb in --help, and the two verbs of bench."""
        text = run("--help").stdout
        names = re.findall(r"^  (\w+) ", text[text.index("Subcommands:"):text.index("Exit codes")], re.MULTILINE)
        self.assertGreater(len(names), 7)
        return [(n,) for n in names if n != "bench"] + [("bench", "matmul"), ("bench", "train")]

    def test_every_verb_has_json(self):
        for verb in self.verbs():
            self.assertRegex(run(*verb, "--help").stdout, r"--format text\|json", verb)
            self.expect(run(*verb, "-o", "json", "--format", "json"), USAGE, "--format", verb[0])

    def test_o_is_the_form_or_the_file(self):
        """-o means --format before text and json. Otherwise it means --out, if the verb has this
        flag.
        """
        writers = {verb for verb in self.verbs() if " --out " in run(*verb, "--help").stdout}
        self.assertGreater(len(writers), 3)
        for verb in self.verbs():
            if verb not in writers:
                self.expect(run(*verb, "-o", "file"), USAGE, "--format", "file")
                continue
            self.assertRegex(run(*verb, "--help").stdout, r"  -o TEXT +text\|json: as --format; any other value: as --out")
            self.expect(run(*verb, "-o", "a", "--out", "b"), USAGE, '-o "a" sets --out, which is set already.', f"bowline {verb[0]} --help")
            self.expect(run(*verb, "-o", "a", "-o", "b"), USAGE, '-o "b" sets --out, which is set already.')
            self.expect(run(*verb, "-o", "text", "-o", "json"), USAGE, '-o "json" sets --format, which is set already.')

    def test_o_of_what_is_written(self):
        for number, (verb, *call) in enumerate((("export", self.model, "--strip"), ("quantize", self.model, "--encoding", "int8"),
                                                ("import", harness.PEFT / "llama"),
                                                ("finetune", self.model, "--data", self.text, "--steps", 0, "--batch", 2, "--seq", 16))):
            out = self.folder / f"{number}.bowline"
            done = self.expect(run(verb, *call, "-o", out, "-o", "json"), OK)
            self.assertTrue(json.loads(done.stdout))
            self.assertTrue(out.is_file())
            for form in ("text", "json"):  # --out may name any file
                self.expect(run(verb, *call, "--out", form, cwd=self.folder), OK)
                self.assertTrue((self.folder / form).is_file())
                (self.folder / form).unlink()

    def test_json(self):
        small = ("--batch", 2, "--seq", 16, "--device", "cpu")
        for call in (("devices",), ("inspect", self.model), ("inspect", self.model, "--listing", "forward", *small),
                     ("verify", self.model), ("run", self.model, "--input", "tokens=zeros", *small),
                     ("profile", self.model, *small), ("bench", "train", self.model, *small, "--steps", 1, "--no-floor"),
                     ("conform", "--suite", "ops", "--quick", "--filter", "Relu", "--device", "cpu")):
            done = self.expect(run(*call, "-o", "json"), OK)
            self.assertTrue(json.loads(done.stdout), call)
            self.assertEqual(done.stderr, "", call)

    def test_conform_is_another_program(self):
        """The program gets every word, also names of verbs and flags of the command. It replaces
        this process.
        """
        self.expect(run("conform", "--suite", "ops", "--device", "cpu", "--filter", "run"), FAILED, 'No case of the suites matches "run"')
        self.expect(run("conform", "-v"), USAGE, "Flag '-v' of 'bowline conform' is unknown.")
        process = subprocess.Popen([harness.BOWLINE, "conform", "--suite", "random", "--models", "100000", "--device", "cpu"],
                                   stdout=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        link = pathlib.Path(f"/proc/{process.pid}/exe")
        for _ in range(1000 * harness.PATIENCE):
            if link.resolve().name == "bowline-conform":
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60 * harness.PATIENCE), -signal.SIGINT)

    def test_programs_that_write_a_model_for_tests(self):
        """The programs never write a file with the name of a flag."""
        programs = [path for name, path in os.environ.items() if name in ("MAKE_DECODER", "MAKE_MODEL") or name.endswith("_MODEL")]
        self.assertGreater(len(programs), 5)
        for program in programs:
            for words in (["--help"], ["-x"], [], ["out", "unknown=1"]):
                done = run(*words, program=program, cwd=self.folder)
                self.assertEqual((done.returncode, list(self.folder.iterdir())), (2, []), (program, words))
                self.assertRegex(done.stderr, "^usage: ")

    def test_version(self):
        project = (pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt").read_text()
        number = re.search(r"project\(bowline VERSION (\S+)", project)[1]
        self.assertRegex(self.expect(run("--version"), OK).stdout,
                         rf"^bowline {re.escape(number)} \(format 1\)(, commit [0-9a-f]{{12}}(-dirty)?)?\n$")
        self.assertEqual(run("-v").stdout, run("--version").stdout)
        for flag in ("-v", "--version"):
            self.expect(run("finetune", flag), USAGE, f"'{flag}' of 'bowline finetune' is unknown. 'bowline --version' prints the version.")

    def test_what_import_reads_is_no_model(self):
        """Every verb that opens a model says that 'bowline import' converts a folder, a GGUF file
        or an ONNX file, or names its own input.
        """
        folder = self.folder / "source"
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (self.folder / "m.gguf").write_bytes(b"GGUF" + bytes(60))
        (self.folder / "m.onnx").write_bytes(bytes(64))
        (self.folder / "other.bin").write_bytes(bytes(64))
        out = ["--out", self.folder / "out.bowline"]
        for path in (folder, self.folder / "m.gguf", self.folder / "m.onnx", self.folder / "other.bin"):
            for call in (["inspect", path], ["verify", path], ["run", path], ["export", path, "--strip", *out],
                         ["quantize", path, "--encoding", "int8", *out], ["finetune", path, "--data", self.text, *out],
                         ["eval", path, "--data", self.text], ["generate", path, "a"], ["predict", path, "a"]):
                with self.subTest(call=call[0], path=path.name):
                    done = self.expect(run(*call), harness.BAD_FILE)
                    other = path.name == "other.bin"
                    self.assertIn("'bowline import' converts models from Hugging Face, GGUF and ONNX to Bowline files." if other else
                                  f"'bowline import {path} --out MODEL.bowline' converts it to a model file.", done.stderr)
        done = run("eval", self.model, "--data", self.text, "--adapter", folder)
        self.assertNotEqual(done.returncode, OK)
        self.assertIn(f"'bowline import {folder} --base MODEL --out ADAPTER.bowline'", done.stderr)

    def test_devices(self):
        rows = {d["name"]: d for d in harness.devices()}
        self.assertTrue(rows["cpu"]["usable"])
        self.assertTrue(any(d["best"] for d in rows.values()))
        for row in rows.values():
            self.assertEqual(row["usable"], row["reason"] == "")
        shown = json.loads(self.expect(run("devices", "-o", "json"), OK).stdout)
        self.assertEqual([d["name"] for d in shown], [name for name, d in rows.items() if not d["for_tests"]])
        self.assertTrue(any(d["for_tests"] for d in rows.values()))
        self.assertEqual([name for name, d in rows.items() if not d["computes"]], ["null"])
        self.assertNotIn("null", self.expect(run("devices"), OK).stdout)
        self.assertIn("null", self.expect(run("devices", "--all"), OK).stdout)

    def test_instruction_sets(self):
        """BOWLINE_CPU_TARGET selects the instruction set of the CPU kernels. An unknown name is
        refused, and the message lists the valid names.
        """
        def cpu(name):
            shown = run("devices", "-o", "json", env={**os.environ, "BOWLINE_CPU_TARGET": name})
            return next(d for d in json.loads(self.expect(shown, OK).stdout) if d["name"] == "cpu")

        refused = cpu("avx9")
        self.assertFalse(refused["usable"])
        names = re.fullmatch(r"BOWLINE_CPU_TARGET is 'avx9'\. This build on this machine has: (.+), baseline\. Set the variable "
                             r"to one of them, or unset it for the best\.", refused["reason"]).group(1).split(", ")
        for name in names:
            for spelled in (name, name.lower()):
                row = cpu(spelled)
                self.assertEqual((row["usable"], row["description"].split(", ")[-1]), (True, name))
        self.assertIn(f", {names[0]}", cpu("")["description"])
        self.assertIn(f", {names[-1]}", cpu("baseline")["description"])
        wrong = run("inspect", self.model, env={**os.environ, "BOWLINE_CPU_TARGET": "avx9"})
        self.expect(wrong, OK)
        wrong = self.finetune("--steps", 1, "--out", self.folder / "out.bowline", "--device", "cpu",
                              env={**os.environ, "BOWLINE_CPU_TARGET": "avx9"})
        self.expect(wrong, BAD_DEVICE, "Device cpu cannot be used: BOWLINE_CPU_TARGET is 'avx9'")


if __name__ == "__main__":
    unittest.main()
