#!/usr/bin/env python3
"""Training and evaluation of embeddings: pairs, triplets and scores."""

import json
import math
import pathlib
import random
import shutil
import unittest

import harness
from harness import BAD_FILE, FAILED, OK, USAGE, run

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "import/fixtures"
TOKENS = range(3, 60)


def partner(token):
    return (token * 7) % len(TOKENS) + TOKENS[0]


class EmbedTraining(harness.Case):
    def setUp(self):
        super().setUp()
        self.model, self.data, self.out = (self.folder / name for name in ("model.bowline", "rows.jsonl", "tuned.bowline"))
        self.import_model()
        self.random = random.Random(3)

    def import_model(self, *flags):
        source = self.folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(FIXTURES / "bert_sentences", source)
        # Words are the numbers of the tokens.
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(FIXTURES / "llama" / file, source)
        return self.expect(run("import", source, "--out", self.model, "--force", *flags), OK, "task embed")

    def write(self, rows, path=None):
        (path or self.data).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def triplets(self, count):
        rows = []
        for _ in range(count):
            token, other = self.random.sample(TOKENS, 2)
            rows.append({"anchor": f"{token} {token}", "positive": f"{partner(token)} 5", "negative": f"{partner(other)} 5"})
        return rows

    def pairs(self, count):
        return [{k: v for k, v in row.items() if k != "negative"} for row in self.triplets(count)]

    def scored(self, count):
        return [{"sentence1": f"{a} 4", "sentence2": f"{b}", "score": round(1 - abs(a - b) / 60, 3)}
                for a, b in (self.random.choices(TOKENS, k=2) for _ in range(count))]

    def finetune(self, *flags, code=OK, texts=(), rate=3e-3):
        return self.expect(run("finetune", self.model, "--data", self.data, "--device", "cpu", "--learning-rate", rate, "--out", self.out,
                               "--force", *flags), code, *texts)

    def measure(self, model, data, *flags):
        return json.loads(self.expect(run("eval", model, "--data", data, "--device", "cpu", "-o", "json", *flags), OK).stdout)

    def vectors(self, model, texts, *flags):
        path = self.folder / "texts.txt"
        path.write_text("\n".join(texts) + "\n")
        done = self.expect(run("predict", model, "--file", path, "--device", "cpu", *flags), OK)
        return [json.loads(line)["embedding"] for line in done.stdout.splitlines()]

    def test_pairs_find_their_partners(self):
        self.write(self.pairs(240))
        self.finetune("--steps", 120, "--batch", 16, texts=("16 pairs of texts", "recall_at_1", "nats per pair"))
        held_out = self.folder / "valid.csv"
        held_out.write_text("anchor,positive\n" + "".join(f"{t} {t},{partner(t)} 5\n" for t in TOKENS))
        before, after = (self.measure(m, held_out) for m in (self.model, self.out))
        self.assertGreater(after["recall_at_1"], before["recall_at_1"] + 0.2)
        self.assertLess(after["nats_per_pair"], before["nats_per_pair"])

    def test_repeated_texts_are_reported(self):
        rows = [{"anchor": f"{t}", "positive": f"{t + 1}"} for t in range(3, 23)]
        self.write(rows)
        self.assertNotIn("another row has, too", self.finetune("--steps", 1, "--valid", self.data).stdout)
        self.write(rows + [{"anchor": "40", "positive": "4"}])
        self.finetune("--steps", 1, "--valid", self.data, texts=("2 of 21 rows have a second text that another row has, too.",))

    def test_one_held_out_pair_is_reported(self):
        self.write(self.pairs(9))
        self.finetune("--steps", 1, "--batch", 4, texts=("The held-out data is one pair",))

    def test_measures_of_pairs(self):
        """The loss, the ranks and the recall, computed from the embeddings in another way."""
        rows = self.pairs(20)
        rows[7]["positive"] = rows[2]["positive"]  # a text that belongs to two others
        self.write(rows)
        first, second = (self.vectors(self.model, [row[k] for row in rows]) for k in ("anchor", "positive"))
        table = [[sum(a * b for a, b in zip(x, y)) for y in second] for x in first]
        texts = [row["positive"] for row in rows]
        ranks = [1 + len({texts[j] for j, score in enumerate(line) if score >= line[i] and texts[j] != texts[i]}) for i, line in enumerate(table)]
        nats = sum(math.log(sum(math.exp(20 * (score - line[i])) for score in line)) for i, line in enumerate(table)) / len(rows)
        measured = self.measure(self.model, self.data, "--batch", 20)
        self.assertAlmostEqual(measured["nats_per_pair"], nats, places=4)
        self.assertEqual(measured["pairs"], 20)
        for name, right in (("recall_at_1", [r <= 1 for r in ranks]), ("recall_at_10", [r <= 10 for r in ranks]),
                            ("mrr_at_10", [1 / r if r <= 10 else 0 for r in ranks])):
            self.assertAlmostEqual(measured[name], sum(right) / len(rows), places=6)
        scaled = self.measure(self.model, self.data, "--batch", 20, "--similarity-scale", 2)
        self.assertLess(scaled["nats_per_pair"], measured["nats_per_pair"])

    def test_triplets(self):
        self.write(self.triplets(120))
        rows = [json.loads(line) for line in self.data.read_text().splitlines()]
        a, p, n = (self.vectors(self.model, [row[k] for row in rows]) for k in ("anchor", "positive", "negative"))
        margin = 0.75
        right = sum(max(math.dist(x, y) - math.dist(x, z) + margin, 0) for x, y, z in zip(a, p, n)) / len(rows)
        closer = sum(math.dist(x, y) < math.dist(x, z) for x, y, z in zip(a, p, n)) / len(rows)
        flags = ("--embed-loss", "triplet", "--triplet-margin", margin)
        measured = self.measure(self.model, self.data, *flags)
        self.assertAlmostEqual(measured["distance_per_triplet"], right, places=4)
        self.assertAlmostEqual(measured["accuracy"], closer, places=6)
        self.finetune("--steps", 60, *flags, texts=("distance per triplet",))
        self.assertLess(self.measure(self.out, self.data, *flags)["distance_per_triplet"], right / 2)
        self.finetune("--steps", 60, texts=("nats per triplet",))

    def test_the_first_loss_of_a_training_is_that_of_its_batch(self):
        """In the training, the losses are graphs; in an evaluation, they come from embeddings."""
        for rows, flags in ((self.pairs(8), ()), (self.triplets(8), ()), (self.triplets(8), ("--embed-loss", "triplet")), (self.scored(8), ())):
            for matryoshka in ((), ("--matryoshka", "8,20")):
                self.import_model(*matryoshka)
                self.write(rows)
                log = self.folder / "log.csv"
                self.finetune("--valid", self.data, "--steps", 1, "--batch", 8, "--in-order", "--log", log, *flags, rate=1e-5)
                loss = float(log.read_text().splitlines()[-1].split()[1])
                measured = self.measure(self.model, self.data, "--batch", 8, *flags)
                unit = next(key for key in measured if "_per_" in key)
                self.assertAlmostEqual(loss, measured[unit], delta=2e-4 * max(1, loss), msg=f"{unit} {matryoshka}")

    def test_scores(self):
        rows = self.scored(60)
        self.write(rows)
        first, second = (self.vectors(self.model, [row[k] for row in rows]) for k in ("sentence1", "sentence2"))
        cosines = [sum(a * b for a, b in zip(x, y)) for x, y in zip(first, second)]
        scores = [row["score"] for row in rows]

        def ranks(values):
            return [(sum(w < v for w in values) + sum(w <= v for w in values) - 1) / 2 for v in values]

        def correlation(x, y):
            dx, dy = ([v - sum(of) / len(of) for v in of] for of in (x, y))
            return sum(a * b for a, b in zip(dx, dy)) / math.sqrt(sum(a * a for a in dx) * sum(b * b for b in dy))
        measured = self.measure(self.model, self.data)
        self.assertAlmostEqual(measured["squared_error_per_pair"], sum((c - s) ** 2 for c, s in zip(cosines, scores)) / len(rows), places=5)
        self.assertAlmostEqual(measured["pearson"], correlation(cosines, scores), places=4)
        self.assertAlmostEqual(measured["spearman"], correlation(ranks(cosines), ranks(scores)), places=4)
        self.finetune("--steps", 40, texts=("spearman",))

    def test_a_resumed_training_and_an_adapter(self):
        self.write(self.pairs(60))
        checkpoint = self.folder / "run"
        flags = ("--steps", 20, "--batch", 8, "--checkpoint", checkpoint, "--save-every", 10, "--lora-rank", 4)
        self.finetune(*flags, "--keep", "last")
        whole = self.out.read_bytes()
        for file in sorted(checkpoint.iterdir())[1:]:
            file.unlink()
        self.finetune(*flags, "--resume", "auto", texts=("resumed at step 10",))
        self.assertEqual(self.out.read_bytes(), whole)
        self.finetune(*flags, "--resume", "auto", "--similarity-scale", 10, code=BAD_FILE, texts=("similarity-scale",))

    def test_shorter_embeddings(self):
        whole = self.vectors(self.model, ["3 4 5", "6"])
        for long, short in zip(whole, self.vectors(self.model, ["3 4 5", "6"], "--width", 5)):
            length = math.hypot(*long[:5])
            self.assertEqual(len(short), 5)
            for a, b in zip(long, short):
                self.assertAlmostEqual(a / length, b, places=5)
        self.expect(run("predict", self.model, "3", "--width", 33), FAILED, "--width is 33, but an embedding has 32 values")
        self.expect(run("import", self.folder / "source", "--out", self.out, "--matryoshka", "8,32"), USAGE,
                    "--matryoshka has the width 32, but an embedding has 32 values")
        self.expect(run("import", FIXTURES / "bert_classes", "--out", self.out, "--matryoshka", "8"), USAGE, "--matryoshka has no effect")

    def test_names_of_fields(self):
        self.write([{"left": "3 4", "right": "5", "near": 0.5}, {"left": "6", "right": "7", "near": -1}] * 6)
        self.finetune("--steps", 1, code=BAD_FILE, texts=('has the fields "left", "right", "near"', "--text-field"))
        self.finetune("--steps", 1, "--text-field", "left,right", "--label-field", "near", texts=("squared error per pair",))
        self.finetune("--steps", 1, "--text-field", "left", code=FAILED, texts=("must name two or three fields",))
        self.write([{"question": "3 4", "answer": "5", "label": 1}] * 12)
        self.finetune("--steps", 1, code=BAD_FILE, texts=('a field "label", which would not be used', "--label-field label"))

    def test_wrong_rows(self):
        good = {"anchor": "3", "positive": "4"}
        for row, text in (({"anchor": "3"}, 'rows.jsonl:2: There is no field "positive" (--text-field) with text'),
                          ({"anchor": "3", "positive": " "}, 'rows.jsonl:2: The text in "positive" is empty'),
                          ({"anchor": "3", "positive": 4}, 'rows.jsonl:2: There is no field "positive"')):
            self.write([good, row])
            self.finetune("--steps", 1, code=BAD_FILE, texts=(text,))
        for score, text in ((4.5, "rows.jsonl:2: The score 4.5"), ("high", 'rows.jsonl:2: There is no field "score"')):
            self.write([{"sentence1": "3", "sentence2": "4", "score": s} for s in (1, score)])
            self.finetune("--steps", 1, code=BAD_FILE, texts=(text,))
        self.write([good] * 4)
        self.finetune("--steps", 1, "--batch", 1, code=FAILED, texts=("no other texts to compare with",))
        self.finetune("--steps", 1, "--embed-loss", "triplet", code=FAILED, texts=("needs three texts per row",))
        self.finetune("--steps", 1, "--labels", self.data, code=USAGE, texts=("--labels has no effect on groups of texts",))
        valid = self.folder / "valid.jsonl"
        self.write(self.triplets(4), valid)
        self.finetune("--steps", 1, "--valid", valid, code=BAD_FILE, texts=("anchor, positive, negative",))
        table = self.folder / "rows.csv"
        table.write_text("anchor,positive\n3,4\n3\n")
        self.expect(run("eval", self.model, "--data", table), BAD_FILE, "rows.csv:3: The row has 1 fields, the header 2.")


if __name__ == "__main__":
    unittest.main()
