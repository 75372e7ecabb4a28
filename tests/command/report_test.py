#!/usr/bin/env python3
"""Tests the HTML pages: the page of a run agrees with its log, no page needs or allows network
access, and no name acts as code.
"""

import json
import math
import os
import signal
import time
import unittest
from xml.etree import ElementTree

import harness
from harness import FAILED, INTERRUPTED, OK, USAGE, run
from pages import Page


def nine(value):
    """Rounds a number like the log."""
    return float("nan") if value is None else float(f"{value:.9g}")


class Report(harness.Case):
    def setUp(self):
        super().setUp()
        self.page, self.log = self.folder / "page.html", self.folder / "log"

    def train(self, steps, *more, **options):
        return self.finetune("--steps", steps, "--schedule", "constant", "--out", self.folder / "out.bowline", "--report",
                             self.page, "--log", self.log, *more, **options)

    def rows(self):
        return [[float(word) for word in line.split("\t")[:4]] for line in self.log.read_text().splitlines()[1:]]

    def read(self, path=None):
        page = Page(path or self.page)
        self.assertEqual(page.problems(), [])
        return page

    def expect_log(self, page):
        """Expects every step of the log with its values."""
        rows, series = self.rows(), page.data["series"]
        for column, name in ((1, "loss"), (2, "gradient_norm"), (3, "learning_rate")):
            self.assertEqual([(step, nine(value)) for step, value in series[name]], [(row[0], row[column]) for row in rows], name)

    def test_the_page_says_what_the_log_says(self):
        done = self.expect(self.train(70, "--eval-every", 20, "-o", "json"), OK)
        result, page = json.loads(done.stdout), self.read()
        self.expect_log(page)
        series, data = page.data["series"], page.data
        self.assertEqual([step for step, _ in series["held_out"]], [0, 20, 40, 60, 70])
        self.assertEqual(series["held_out"][0][1], result["bits_per_byte_before"])
        self.assertEqual(series["held_out"][-1][1], result["bits_per_byte_after"])
        self.assertEqual(len(series["tokens_per_second"]), 70)
        self.assertTrue(all(value > 0 for _, value in series["tokens_per_second"]))
        self.assertEqual((data["state"], data["step"], data["steps"]), ("finished", 70, 70))
        self.assertEqual((data["predicted_bytes"], data["counted_bytes"]), (result["predicted_bytes"], result["counted_bytes"]))
        self.assertEqual(page.refresh(), [])
        text = page.text()
        for words in ("step 70", "Gradient norm", "Learning rate", "Tokens per second", "Peak: ", "live bytes of the arena", "SHA-256", "XXH3",
                      f"of {data['steps']}", f"{series['loss'][-1][1]:.4f}"):
            self.assertIn(words, text)
        # The keyboard reaches the last point of the loss with its values.
        stops = [g.get("aria-label") for g in page.root.iter("g") if g.get("tabindex") == "0"]
        self.assertTrue(any(s.startswith("step 70;") and f"{self.rows()[-1][1]:.4f}" in s for s in stops), stops)

    def test_a_long_run_is_thinned(self):
        self.expect(self.train(5000, "--batch", 1, "--seq", 4, "--learning-rate", 0.01), OK)
        rows, series = self.rows(), self.read().data["series"]
        of_log = {row[0]: row[1] for row in rows}
        self.assertLessEqual(len(series["loss"]), 4096)
        steps = [step for step, _ in series["loss"]]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertTrue(all(of_log[step] == nine(value) for step, value in series["loss"]), "only points of the log")
        kept = [nine(value) for _, value in series["loss"]]
        self.assertEqual((series["loss"][0][0], series["loss"][-1][0]), (1, 5000))
        self.assertEqual((min(kept), max(kept)), (min(of_log.values()), max(of_log.values())))
        self.assertLess(self.page.stat().st_size, 2 << 20)

    def test_live(self):
        process = self.start("--steps", 10**7, "--out", self.folder / "out.bowline", "--report", self.page, "--log", self.log,
                             "--checkpoint", self.folder / "c")
        for _ in range(6000 * harness.PATIENCE):
            if self.page.exists() and self.log.exists() and len(self.log.read_bytes().splitlines()) > 3:
                break
            time.sleep(0.01)
        page = self.read()
        self.assertEqual((page.data["state"], page.refresh()), ("running", ["5"]))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, INTERRUPTED)
        page = self.read()
        self.assertEqual((page.data["state"], page.refresh()), ("interrupted", []))
        self.assertIn("Interrupted after step", page.text())
        self.assertEqual([page.data["series"]["loss"][-1][0], nine(page.data["series"]["loss"][-1][1])], self.rows()[-1][:2])

    def test_resume_goes_on_with_the_page(self):
        checkpoint = ("--checkpoint", self.folder / "c")
        self.expect(self.train(10, *checkpoint), OK)
        first, lines = self.page.read_bytes(), self.log.read_bytes()
        (self.folder / "out.bowline").unlink()
        self.log.unlink()
        self.expect(self.train(10), USAGE, "page.html", "--force")
        self.assertEqual(self.page.read_bytes(), first)
        self.log.write_bytes(lines)
        self.expect(self.train(15, *checkpoint, "--resume", "auto", "--extend", "--eval-every", 5), OK)
        page = self.read()
        self.expect_log(page)
        self.assertEqual([step for step, _ in page.data["series"]["held_out"]], [0, 10, 15])
        # Resumes from an older checkpoint. The run repeats the steps after it.
        older = self.folder / "c" / "step-00000010.bowline"
        self.assertTrue(older.exists())
        self.expect(self.finetune("--steps", 12, "--schedule", "constant", "--out", self.folder / "third.bowline", "--report",
                                  self.page, "--log", self.log, "--resume", older, "--extend"), OK)
        self.expect_log(self.read())
        self.assertEqual(self.read().data["step"], 12)

    def test_no_file_is_replaced_unasked(self):
        self.page.write_text("mine")
        for more in ([], ["--checkpoint", self.folder / "c", "--resume", "auto"]):
            self.expect(self.train(1, *more), USAGE, "page.html\" exists already; --force replaces it.")
            self.assertEqual(self.page.read_text(), "mine")
        self.expect(self.train(1, "--force"), OK)
        self.read()
        calls = (("eval", self.model, "--data", self.text, "--seq", 16, "--device", "cpu", "--report", self.page),
                 ("inspect", self.model, "--html", self.page))
        for call in calls:
            self.page.write_text("mine")
            self.expect(run(*call), USAGE, "page.html\" exists already; --force replaces it.")
            self.assertEqual(self.page.read_text(), "mine")
            self.expect(run(*call, "--force"), OK)
            self.read()

    def test_a_place_that_cannot_be_written_is_said_before(self):
        missing = self.folder / "none" / "page.html"
        self.expect(self.finetune("--steps", 1, "--out", self.folder / "o", "--report", missing), USAGE, "The folder of --report")
        done = self.finetune("--steps", 1, "--out", self.folder / "o", "--report", self.text)
        self.expect(done, USAGE, "--report and --data are the same file")
        self.page.mkdir()
        for call in (("eval", self.model, "--data", self.text, "--seq", 16, "--device", "cpu", "--force", "--report", self.page),
                     ("inspect", self.model, "--force", "--html", self.page)):
            self.expect(run(*call), FAILED, "page.html")
        self.expect(self.train(1, "--force"), FAILED, "page.html")
        self.assertFalse((self.folder / "out.bowline").exists(), "no step was made")
        self.assertEqual(self.rows(), [])

    def test_a_loss_that_is_not_finite(self):
        done = self.train(6, "--learning-rate", "1e6", "--checkpoint", self.folder / "c")
        self.expect(done, FAILED, "not finite")
        page = self.read()
        self.assertEqual((page.data["state"], page.refresh()), ("failed", []))
        last, row = page.data["series"]["loss"][-1], self.rows()[-1]
        self.assertEqual(last[0], row[0])
        self.assertTrue(math.isnan(nine(last[1])) == (not math.isfinite(row[1])) or nine(last[1]) == row[1], (last, row))

    def test_eval(self):
        done = run("eval", self.model, "--data", self.text, "--batch", 2, "--seq", 16, "--device", "cpu", "--report", self.page,
                   "-o", "json")
        result, page = json.loads(self.expect(done, OK).stdout), self.read()
        self.assertEqual(page.data["bits_per_byte"], result["bits_per_byte"])
        losses = [value for _, value in page.data["series"]["loss"]]
        # All batches except the last are full, so the mean of the batches is close to the mean of
        # the rows.
        self.assertAlmostEqual(sum(losses) / len(losses), result["bits_per_byte"], places=2)
        self.assertIn(f"{result['bits_per_byte']:.4f}", page.text())
        self.assertIn("Peak: ", page.text())

    def test_inspect(self):
        self.expect(run("inspect", self.model, "--batch", 2, "--seq", 16, "--html", self.page), OK, "memory plan on cpu")
        page, info = self.read(), json.loads(run("inspect", self.model, "-o", "json").stdout)
        self.assertEqual(page.data["ties"], info["ties"])
        self.assertEqual(page.data["saved_bytes"], info["saved_bytes"])
        # One row per tie and one per storage, with their names.
        rows = {e.get("id"): [c.text for c in e.iter("code")] for e in page.root.iter("tr") if e.get("id")}
        self.assertEqual({key: names for key, names in rows.items() if key.startswith("t")},
                         {f"t{tie['tie']}": tie["parameters"] for tie in info["ties"]})
        self.assertEqual(sorted(name for key, names in rows.items() if key.startswith("s") for name in names),
                         sorted(p["name"] for p in info["parameters"]))
        for p in info["parameters"]:
            self.assertIn(p["name"], rows[f"s{p['tie']}"])
        # The Repeat is one box around its body, and each node links to its inputs.
        repeats = [e for e in page.root.iter("li") if e.get("class") == "repeat"]
        self.assertEqual(len(repeats), len(info["entry_points"]))
        self.assertIn("Repeat 2 times", "".join(repeats[0].itertext()))
        self.assertGreater(len(list(repeats[0].iter("li"))), 10)
        links = {a.get("href") for a in repeats[0].iter("a")}
        self.assertTrue(any(link.startswith("#s") for link in links), "parameters")
        self.assertTrue(any(a.get("href", "").startswith("#t") for a in page.root.iter("a")), "ties")
        # The live bytes at the peak equal the lower bound of the planner if no two nodes run
        # concurrently.
        memory = page.data["memory"]
        self.assertEqual(sorted(memory), ["forward", "loss", "training"])
        for name in ("loss", "training"):
            self.assertEqual(memory[name]["peak_bytes"], memory[name]["lower_bound_bytes"], name)
        for row in memory.values():
            self.assertLessEqual(row["peak_bytes"], row["arena_bytes"])
            self.assertIn(row["peak_node"], page.text())

    def test_names_that_would_act(self):
        strange = self.folder / "<i>&\"'\u202e\x1b.bowline"
        self.assertEqual(run(strange, program=os.environ["STRANGE_MODEL"]).returncode, 0)
        self.expect(run("inspect", strange, "--html", self.page), OK)
        page = self.read()
        for words in ("<i>&\"'\\u{202e}\\x1b.bowline", "w\\u{9b}31m\\u{202e}", "en\\u{2066}try", "<img src=x>",
                      "</script><script>alert(1)</script><!--", "<svg onload=\"alert('&amp;')\">", "x\\u{200b}"):
            self.assertIn(words, page.text())
        tiny = self.folder / "<u>\u2066.bowline"
        tiny.write_bytes(self.model.read_bytes())
        self.expect(run("finetune", tiny, "--data", self.text, "--batch", 2, "--seq", 16, "--device", "cpu", "--steps", 1, "--out",
                        self.folder / "o", "--report", self.page, "--force"), OK)
        self.assertIn("Fine-tuning <u>\\u{2066}.bowline", self.read().text())
        self.expect(run("eval", tiny, "--data", self.text, "--seq", 16, "--device", "cpu", "--report", self.page, "--force"), OK)
        self.assertIn("Evaluation of <u>\\u{2066}.bowline", self.read().text())

    def test_a_classifier(self):
        """The page has the same confusion matrix as the command, in training and in evaluation, and
        the most confident mistakes.
        """
        encoder, rows = self.folder / "encoder.bowline", self.folder / "rows.csv"
        self.assertEqual(run(encoder, program=os.environ["ENCODER_MODEL"]).returncode, 0)
        labels = ["knots", "ropes", "<sails>"]
        rows.write_text("text,label\n" + "".join(f"{labels[i % 3]} {harness.WORDS[i % 5]},{labels[i % 3]}\n" for i in range(60)))
        out = self.folder / "out.bowline"
        self.expect(run("finetune", encoder, "--data", rows, "--batch", 8, "--steps", 8, "--learning-rate", "0.01", "--device", "cpu",
                        "--out", out, "--report", self.page, "--log", self.log), OK)
        page = self.read()
        self.expect_log(page)
        self.assertIn("<sails>", page.text())
        self.assertEqual(len([t for t in page.root.iter("table") if t.get("class") == "confusion"]), 1)
        done = run("eval", encoder, "--data", rows, "--device", "cpu", "--report", self.page, "--force", "-o", "json")
        result, page = json.loads(self.expect(done, OK).stdout), self.read()
        matrix = next(t for t in page.root.iter("table") if t.get("class") == "confusion")
        counts = [[int(td.text or 0) for td in row.iter("td")] for row in matrix.find("tbody").iter("tr")]
        self.assertEqual(counts, result["confusion"])
        self.assertEqual([th.text for th in matrix.find("thead").iter("th")][1:], result["labels"])
        self.assertLess(result["accuracy"], 1, "some are mistaken")
        mistakes = next(t for t in page.root.iter("table") if t.find("caption").text == "Confused examples")
        probabilities = [float(row.findall("td")[2].find("span").text.split()[0]) for row in mistakes.find("tbody").iter("tr")]
        self.assertEqual(probabilities, sorted(probabilities, reverse=True))

    def test_what_classifiers_show(self):
        def parts(what):
            return ElementTree.fromstring(f"<div>{run(what, program=os.environ['CONFUSION_PAGE']).stdout}</div>")

        three = parts("three")
        matrix = next(t for t in three.iter("table") if t.get("class") == "confusion")
        names = ["maps", "<b>&\"'\\u{202e}", "net"]
        self.assertEqual([th.text for th in matrix.find("thead").iter("th")][1:], names)
        cells = [[td.text for td in row.iter("td")] for row in matrix.find("tbody").iter("tr")]
        self.assertEqual(cells, [["8", "1", None], ["2", "5", "3"], [None, None, "9"]])
        shares = [td.get("style") for td in matrix.iter("td")]
        self.assertEqual(shares[3:6], ["--share:0.200", "--share:0.500", "--share:0.300"])
        text = "".join(three.itertext())
        self.assertIn("draws <script>maps\n</script>\\x1b[2J", text)
        pairs, classes = [[[td.text for td in row.iter("td")] for row in t.iter("tr")][1:] for t in three.iter("table")
                          if t.get("class") is None][:2]
        self.assertEqual(pairs[0], [names[1], "net", "3", "30.0 %"])
        self.assertEqual(classes[0], ["maps", "9", "0.8000", "0.8889", "0.8421"])
        many = parts("many")
        self.assertIn("Of 60 classes these 40 have the most mistakes.", "".join(many.itertext()))
        heads = [th.text for th in many.iter("th") if th.get("scope") == "row"]
        self.assertEqual(len(heads), 40)
        self.assertTrue({"class 57", "class 59"} <= set(heads))


if __name__ == "__main__":
    unittest.main()
