#!/usr/bin/env python3
"""Tests bowline import: the messages for files that are no models, and a model that runs after the
import.
"""

import json
import pathlib
import re
import shutil
import struct
import unittest

import harness
from forms import Gguf, read_safetensors, write_safetensors
from harness import BAD_FILE, OK, USAGE, run


def field(number, content):
    """Returns a field of protobuf: text and messages as bytes, numbers as a varint."""
    def varint(value):
        out = bytearray()
        while True:
            out.append(value & 0x7F | (0x80 if value > 0x7F else 0))
            value >>= 7
            if not value:
                return bytes(out)
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def value_info(name, *dims):
    shape = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def relu(op="Relu", opset=13):
    """Returns the model y = relu(x) with x of shape [batch, 3]."""
    node = field(1, "x") + field(2, "y") + field(4, op)
    graph = field(1, node) + field(11, value_info("x", "batch", 3)) + field(12, value_info("y", "batch", 3))
    return field(1, 8) + field(8, field(2, opset)) + field(7, graph)


class Import(harness.Case):
    def setUp(self):
        super().setUp()
        self.onnx, self.out = self.folder / "m.onnx", self.folder / "m.bowline"
        self.onnx.write_bytes(relu())
        absent = run("import", self.onnx, "--out", self.out, "--dim", "batch=2")
        harness.need("has no reader of ONNX" not in absent.stderr, absent.stderr)
        self.out.unlink(missing_ok=True)

    def call(self, *arguments):
        return run("import", self.onnx, "--out", self.out, *arguments)

    def test_a_model_is_made_and_runs(self):
        self.expect(self.call("--dim", "batch=2"), OK, "entry point forward with 1 nodes and 0 parameters", "input x f32[2,3]",
                    "output y f32")
        self.expect(run("run", self.out, "--device", "cpu", "--input", "x=random:1"), OK, "y f32[2,3]  min 0")

    def test_a_dynamic_batch(self):
        self.expect(self.call("--batch-dim", "batch"), OK, "input x f32[batch,3]")
        for rows in (1, 4):
            self.expect(run("run", self.out, "--device", "cpu", "--input", "x=random:1", "--dim", f"batch={rows}"), OK, f"y f32[{rows},3]")
        self.expect(self.call("--shape", "x=rows,3", "--batch-dim", "rows", "--force"), OK, "input x f32[rows,3]")
        self.expect(self.call("--shape", "x=2,3", "--batch-dim", "rows", "--force"), BAD_FILE, "No input has an axis for the batch")
        self.expect(self.call("--shape", "x=rows,3", "--force"), USAGE, "NAME=NUMBER,NUMBER")
        self.expect(self.call("--dim", "batch=2", "--batch-dim", "batch", "--force"), USAGE, "dynamic batch")
        self.onnx.write_bytes(relu("Softmax"))  # along axis 1
        self.expect(self.call("--batch-dim", "batch", "--force"), OK)

    def test_json(self):
        made = self.call("--dim", "batch=2", "-o", "json", "--entry", "main")
        self.expect(made, OK)
        entry = json.loads(made.stdout)["entry"]
        self.assertEqual((entry["name"], entry["inputs"][0]["shape"]), ("main", [2, 3]))

    def test_a_file_that_is_there_is_kept(self):
        self.out.write_bytes(b"mine")
        self.expect(self.call("--dim", "batch=2"), USAGE, "m.bowline", "--force")
        self.assertEqual(self.out.read_bytes(), b"mine")
        self.expect(self.call("--dim", "batch=2", "--force"), OK)

    def test_what_is_missing_or_wrong_is_named(self):
        self.expect(self.call(), BAD_FILE, 'Dim 0 ("batch") has no size', 'input "x"', "m.onnx")
        self.expect(self.call("--dim", "batch"), USAGE, "name=number")
        self.onnx.write_bytes(relu()[:-3])
        self.expect(self.call("--dim", "batch=2"), BAD_FILE, "parsing ends at byte", "m.onnx")
        self.onnx.write_bytes(relu("Sing"))
        self.expect(self.call("--dim", "batch=2"), BAD_FILE, '"Sing" is not supported', "node 0 (Sing)")
        self.onnx.write_bytes(relu(opset=99))
        self.expect(self.call("--dim", "batch=2"), BAD_FILE, "version 99. Versions 1 to 28 are supported")
        self.onnx.unlink()
        self.expect(self.call("--dim", "batch=2"), BAD_FILE, "cannot be read")
        self.assertFalse(self.out.exists())


    def test_shapes_and_values_of_inputs(self):
        """A dimension without a name, one name for two sizes, and an input with constant values."""
        def model(*dims):
            node = field(1, "x") + field(2, "y") + field(4, "Relu")
            graph = field(1, node) + field(11, value_info("x", *dims)) + field(12, value_info("y", *dims))
            return field(1, 8) + field(8, field(2, 21)) + field(7, graph)

        for dims in (("", 3, ""), ("?", 3, "?"), ((1 << 64) - 1, 3, "size")):
            self.onnx.write_bytes(model(*dims))
            self.expect(self.call("--shape", "x=2,3,5", "--force"), OK, "input x f32[2,3,5]")
            self.expect(self.call("--shape", "x=2,4,5", "--force"), BAD_FILE, "Shape [2,4,5] does not match")
            self.expect(self.call("--force"), BAD_FILE, "Dim 0", "--shape x=N,3,N")
        self.expect(self.call("--shape", "z=2", "--force"), USAGE, 'no input "z"', "x")
        self.expect(self.call("--shape", "x=2,,5", "--force"), USAGE, "NAME=NUMBER,NUMBER")
        self.expect(self.call("--dim", "other=2", "--force"), USAGE, 'dim "other"', "size")
        # y = x + x, but x is always 3 and is no input of the model.
        node = field(1, "x") + field(1, "z") + field(2, "y") + field(4, "Add")
        graph = field(1, node) + b"".join(field(11, value_info(n, 2)) for n in "xz") + field(12, value_info("y", 2))
        self.onnx.write_bytes(field(1, 8) + field(8, field(2, 21)) + field(7, graph))
        made = self.call("--given", "x=3", "--force")
        self.expect(made, OK, "input z f32[2]")
        self.assertNotIn("input x", made.stdout)
        self.expect(run("run", self.out, "--device", "cpu", "--input", "z=zeros"), OK, "y f32[2]  min 3")
        self.expect(self.call("--given", "x=1,2,3", "--force"), BAD_FILE, "3 values were given, but the shape [2]")
        self.expect(self.call("--given", "q=1", "--force"), USAGE, 'no input "q"')

    def test_values_that_are_not_finite_are_noted(self):
        """Notes weights that are not finite. Infinities beside zeros are a mask, and a single one
        is a bound.
        """
        nan, inf = float("nan"), float("inf")
        tensors = {"w": [1, nan, inf, 2], "mask": [0, -inf, -inf, 0], "bound": [inf], "fine": [1, 2, 3, 4]}
        nodes, last = b"", "x"
        for name in tensors:
            nodes += field(1, field(1, last) + field(1, name) + field(2, f"x{name}") + field(4, "Add"))
            last = f"x{name}"
        graph = nodes + b"".join(
            field(5, field(1, len(v)) + field(2, 1) + field(8, name) + field(9, struct.pack(f"<{len(v)}f", *v))) for name, v in tensors.items())
        graph += field(11, value_info("x", 4)) + field(12, value_info(last, 4))
        self.onnx.write_bytes(field(1, 8) + field(8, field(2, 21)) + field(7, graph))
        self.expect(self.call(), OK, "Non-finite weights (NaN or infinity): 2 of the 4 values of w. ", "--trainable", "4 of 13 values are trained")
        report = json.loads(self.expect(self.call("-o", "json", "--force"), OK).stdout)
        self.assertEqual(report["not_finite"], [{"tensor": "w", "values": 2, "elements": 4}])
        self.assertIn("2 of the 4 values of w", " ".join(report["notes"]))

    def test_what_trains_is_chosen_and_counted(self):
        def tensor(name, count):
            return field(5, field(1, count) + field(2, 1) + field(8, name) + field(9, struct.pack(f"<{count}f", *range(count))))

        nodes = b"".join(field(1, field(1, a) + field(1, b) + field(2, c) + field(4, "Add"))
                         for a, b, c in (("x", "body.w", "h"), ("h", "head.w", "y")))
        graph = nodes + tensor("body.w", 3) + tensor("head.w", 3) + field(11, value_info("x", 3)) + field(12, value_info("y", 3))
        self.onnx.write_bytes(field(1, 8) + field(8, field(2, 21)) + field(7, graph))
        self.expect(self.call(), OK, "6 of 6 values are trained")
        self.expect(self.call("--freeze", "body.*", "--force"), OK, "3 of 6 values are trained")
        frozen = self.expect(run("inspect", self.out, "--parameters"), OK, "body.w", "head.w").stdout.splitlines()
        self.assertEqual(["frozen" in line for line in sorted(frozen)], [True, False])
        self.expect(self.call("--freeze", "{nose,body}.*", "--force"), OK, "3 of 6 values are trained")
        self.expect(self.call("--freeze", "nose.*", "--force"), USAGE, "--freeze", "matches no parameter")
        self.expect(self.call("--freeze", "{nose", "--force"), USAGE, "has an unmatched brace")
        self.expect(self.call("--trainable", "nose.*", "--force"), USAGE, "--trainable", "matches no parameter")

    def test_a_model_of_bowline_is_not_imported_again(self):
        self.expect(self.call("--dim", "batch=2"), OK)
        self.expect(run("import", self.out, "--out", self.folder / "again.bowline"), BAD_FILE, "already a Bowline model file",
                    "bowline inspect")


FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "import" / "fixtures"
DATA = FIXTURES.parents[1] / "gguf" / "data"


class ImportOfHuggingFace(harness.Case):
    def setUp(self):
        super().setUp()
        self.source, self.out = self.folder / "source", self.folder / "m.bowline"

    def call(self, name, *arguments):
        shutil.rmtree(self.source, ignore_errors=True)
        shutil.copytree(FIXTURES / name, self.source)
        return run("import", self.source, "--out", self.out, *arguments)

    def test_every_tensor_is_in_the_report(self):
        made = self.call("llama3")
        self.expect(made, OK, "llama from Hugging Face, task generate", "20 tensors in the source: 20 taken, 0 tied to another, 0 dropped",
                    "taken   model.layers.{0..1}.mlp.up_proj.weight (2)  F32[48,32]", "model.embed_tokens.weight, lm_head.weight",
                    "entry point decode", "context_length = 320")
        self.expect(run("inspect", self.out), OK, "lm_head.weight")

    def test_json(self):
        made = self.call("bert_classes", "-o", "json")
        self.expect(made, OK)
        report = json.loads(made.stdout)
        self.assertEqual((report["task"], report["metadata"]["pooling"]), ("classify", "cls"))
        self.assertEqual({t["use"] for t in report["tensors"]}, {"taken"})
        self.assertEqual([e["name"] for e in report["entries"]], ["forward", "classify", "loss"])

    def test_classes_of_a_file(self):
        (self.folder / "labels.txt").write_bytes(b"\xef\xbb\xbfadmin\r\nlibs\n\n")
        made = self.call("bert_sentences", "--task", "classify", "--labels", self.folder / "labels.txt", "--dtype", "bf16")
        self.expect(made, OK, "task classify", "The classification head of 2 classes is new", "pooling = mean")
        (self.folder / "labels.txt").write_text("admin\nadmin\n")
        self.expect(self.call("bert_sentences", "--task", "classify", "--labels", self.folder / "labels.txt", "--force"), BAD_FILE,
                    ':2: Label "admin" is already in line 1')

    def test_dropout_of_a_head(self):
        """Dropout of the embeddings, of a layer and of the head. RoBERTa also has one before the
        projection of its head.
        """
        for name, count in (("bert_classes", 1 + 2 + 1), ("distilbert_classes", 1 + 1 + 1), ("roberta_classes", 1 + 2 + 2)):
            with self.subTest(name):
                self.call(name)
                rates = self.dropouts(dict.fromkeys(("hidden_dropout_prob", "dropout", "seq_classif_dropout"), 0.3))
                self.assertEqual(len(rates), count)

    def test_dropout_of_decoders(self):
        """Dropout of the embeddings, and of both parts of a layer."""
        for name, embedding, residual in (("gpt2", "embd_pdrop", "resid_pdrop"), ("phi", "embd_pdrop", "resid_pdrop"),
                                          ("starcoder2", "embedding_dropout", "residual_dropout"), ("phi3", None, "resid_pdrop"),
                                          ("seed_oss", None, "residual_dropout"), ("opt", None, "dropout"),
                                          ("gptj", "embd_pdrop", "resid_pdrop"), ("gpt_neo", "embed_dropout", "resid_dropout")):
            with self.subTest(name):
                self.call(name)
                rates = self.dropouts({embedding: 0.25, residual: 0.5}, "--dim", "rows=1", "--dim", "kv_length=1")
                layers = 3 if name == "gpt_neo" else 1  # in the body of the Repeat
                self.assertEqual(rates, ["0.25"] * (embedding is not None) + ["0.5", "0.5"] * layers)

    def dropouts(self, rates, *dims):
        """Imports the source with these rates for keys that it has, and returns the rates of a
        training. The body of a Repeat counts once.
        """
        config = json.loads((self.source / "config.json").read_text())
        config.update({key: rate for key, rate in rates.items() if key in config})
        (self.source / "config.json").write_text(json.dumps(config))
        self.expect(run("import", self.source, "--out", self.out, "--force", "--dropout"), OK)
        plan = self.expect(run("inspect", self.out, "--listing", "forward", "--batch", 2, "--seq", 8, *dims), OK).stdout
        return re.findall(r" Dropout\(.*? rate=(\S+)", plan)

    def test_classes_of_a_head_keep_their_order(self):
        labels = self.folder / "labels.txt"
        for text, code, message in (("admin\nlibs\nnet\n", OK, "task classify"), ("first\nsecond\nthird\n", OK, "task classify"),
                                    ("libs\nadmin\nnet\n", USAGE, "class 0 libs, which is the name of class 1"),
                                    ("first\nsecond\nadmin\n", USAGE, "class 2 admin, which is the name of class 0"),
                                    ("admin\n", USAGE, "1 labels, but the head has 3 classes")):
            with self.subTest(text):
                labels.write_text(text)
                self.expect(self.call("bert_classes", "--labels", labels, "--force"), code, message)

    def make_layers_equal(self, path):
        """Copies the values of the first layer to the second. The norms are ones, as before a
        training.
        """
        tensors = read_safetensors(path)
        for name in tensors:
            dtype, shape, data = tensors[name.replace(".layers.1.", ".layers.0.")]
            if ".layers." in name and "norm" in name:
                data = struct.pack("<f", 1) * (len(data) // 4)
            tensors[name] = (dtype, shape, data)
        write_safetensors(path, {name: (shape, struct.unpack(f"<{len(data) // 4}f", data)) for name, (_, shape, data) in tensors.items()})

    def not_finite(self, *command):
        """Returns the note and its content in JSON as (tensor, values, elements)."""
        done = self.expect(run("import", *command, "--out", self.out, "--force"), OK)
        notes = [line for line in done.stdout.splitlines() if "Non-finite weights" in line]
        report = json.loads(self.expect(run("import", *command, "--out", self.out, "--force", "-o", "json"), OK).stdout)
        self.assertEqual(notes, [f"  note: {note}" for note in report["notes"] if "Non-finite weights" in note])
        found = [(t["tensor"], t["values"], t["elements"]) for t in report["not_finite"]]
        self.assertEqual(len(notes), 1 if found else 0)
        for tensor, values, elements in found[:8]:
            self.assertIn(f"{values} of the {elements} values of {tensor}", notes[0])
        return found, "".join(notes)

    def test_values_that_are_not_finite_are_noted(self):
        self.expect(self.call("llama"), OK)
        self.assertEqual(self.not_finite(self.source), ([], ""))
        path = self.source / "model.safetensors"
        tensors = {name: (shape, list(struct.unpack(f"<{len(data) // 4}f", data))) for name, (_, shape, data) in read_safetensors(path).items()}
        wrong = sorted(tensors)[:9]
        for at, name in enumerate(wrong):
            values = tensors[name][1]
            for i in range(at + 1):
                values[-1 - i] = [float("nan"), float("inf"), float("-inf")][i % 3]
        write_safetensors(path, tensors)
        found, note = self.not_finite(self.source)
        self.assertEqual(sorted(found), [(name, at + 1, len(tensors[name][1])) for at, name in enumerate(wrong)])
        self.assertRegex(note, r", \d values of 1 more tensors\.")
        self.assertEqual(sorted(self.not_finite(self.source, "--dtype", "bf16")[0]), sorted(found))
        # Values that f16 cannot represent.
        for name in wrong:
            tensors[name] = (tensors[name][0], [1.0] * len(tensors[name][1]))
        tensors[wrong[0]][1][3], tensors[wrong[0]][1][4] = 65504.0, -65536.0
        write_safetensors(path, tensors)
        self.assertEqual(self.not_finite(self.source), ([], ""))
        found, note = self.not_finite(self.source, "--dtype", "f16")
        self.assertEqual(found, [(wrong[0], 1, len(tensors[wrong[0]][1]))])
        self.assertIn("--dtype bf16 or f32", note)

    def test_values_of_gguf_that_are_not_finite_are_noted(self):
        """In a float tensor each value counts. In a quantized tensor all values of a block with
        such a scale count.
        """
        for form, wrong, per_block in (("f32", struct.pack("<f", float("-inf")), 1), ("f16", b"\0\x7e", 1), ("bf16", b"\x80\x7f", 1),
                                       ("q8_0", b"\0\x7c", 32), ("q4_0", b"\1\xfc", 32)):
            with self.subTest(form):
                file = Gguf(DATA / f"llama_{form}.gguf")
                path = self.folder / "m.gguf"
                path.write_bytes(file.content)
                self.assertEqual(self.not_finite(path), ([], ""))
                name = "blk.1.ffn_down.weight"
                _, shape, data = file.tensors[name]
                at = file.content.index(data)
                step = len(data) // (shape[0] * shape[1]) if per_block == 1 else {"q8_0": 34, "q4_0": 18}[form]
                content = bytearray(file.content)
                for i in (0, 3):
                    content[at + i * step:at + i * step + len(wrong)] = wrong
                path.write_bytes(content)
                self.assertEqual(self.not_finite(path)[0], [("model.layers.1.mlp.down_proj.weight", 2 * per_block, shape[0] * shape[1])])

    def ties(self):
        report = json.loads(self.expect(run("inspect", self.out, "-o", "json"), OK).stdout)
        return sorted(sorted(p["name"] for p in report["parameters"] if p["tie"] == tie and "layers" in p["name"])
                      for tie in {p["tie"] for p in report["parameters"] if "layers" in p["name"]})

    def logits(self):
        (self.folder / "x.npy").write_bytes(harness.npy("<i4", (1, 4), struct.pack("<4i", 3, 9, 27, 17)))
        self.expect(run("run", self.out, "--entry", "forward", "--input", f"tokens=@{self.folder / 'x.npy'}", "--output",
                        f"logits=@{self.folder / 'y.npy'}", "--force", "--device", "cpu"), OK)
        return harness.read_npy(self.folder / "y.npy")

    def test_equal_layers_become_one(self):
        self.expect(self.call("llama"), OK)
        self.make_layers_equal(self.source / "model.safetensors")
        self.expect(self.again(), OK, "--tie-equal")
        apart, logits = self.ties(), self.logits()
        self.assertEqual({len(names) for names in apart}, {1})
        self.expect(self.again("--tie-equal"), OK)
        tied = self.ties()
        self.assertEqual({len(names) for names in tied}, {2})
        self.assertTrue(all(a.replace(".0.", ".1.") == b for a, b in tied), tied)
        self.assertEqual(self.logits(), logits)
        for form in ("hf", "gguf"):
            with self.subTest(form):
                written = self.folder / f"written.{form}"
                note = "share the storage of others"
                self.expect(run("export", self.out, "--to", form, "--out", written), OK, note)
                model = self.folder / "back.bowline"
                self.expect(run("import", written, "--out", model, "--tie-equal", "--force"), OK)
                names = [p["name"] for p in json.loads(run("inspect", model, "-o", "json").stdout)["parameters"]]
                report = json.loads(run("inspect", model, "-o", "json").stdout)["parameters"]
                self.assertEqual(len({p["tie"] for p in report if "layers" in p["name"]}), sum("layers" in name for name in names) // 2)

    def test_tensors_of_gguf_at_one_place_are_tied(self):
        path = self.folder / "m.gguf"
        path.write_bytes(Gguf(DATA / "llama_f32.gguf").with_places(lambda name: name.replace("blk.1.", "blk.0.")))
        self.expect(run("import", path, "--out", self.out), OK, "both have the same bytes of the file")
        self.assertEqual({len(names) for names in self.ties()}, {2})

    def test_links_lead_to_no_file_outside(self):
        """A folder from another machine must not make the reader open a file outside of the folder.
        """
        self.expect(self.call("bert_sentences"), OK)
        for name in ("config.json", "model.safetensors", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"):
            with self.subTest(name):
                path, outside = self.source / name, self.folder / "outside"
                path.rename(outside)
                path.symlink_to(outside)
                self.expect(self.again(), BAD_FILE, path.name, "outside of the folder", "replace the link with a copy")
                path.unlink()
                inside = path.with_suffix(".copy")
                outside.rename(inside)
                path.symlink_to(inside.name)
                self.expect(self.again(), OK)
        # The cache of Hugging Face has its files in blobs/.
        cache = self.folder / "models--x"
        (cache / "snapshots").mkdir(parents=True)
        (cache / "blobs").mkdir()
        self.source.rename(cache / "snapshots/1")
        (cache / "snapshots/1/config.copy").rename(cache / "blobs/2")
        (cache / "snapshots/1/config.json").unlink()
        (cache / "snapshots/1/config.json").symlink_to("../../blobs/2")
        self.expect(run("import", cache / "snapshots/1", "--out", self.out, "--force"), OK)

    def test_a_classifier_over_a_decoder_is_named(self):
        self.expect(self.call("llama"), OK)
        tensors = {name: (shape, struct.unpack(f"<{len(data) // 4}f", data))
                   for name, (_, shape, data) in read_safetensors(self.source / "model.safetensors").items()}
        tensors["score.weight"] = tensors.pop("lm_head.weight")
        write_safetensors(self.source / "model.safetensors", tensors)
        labels = self.folder / "labels.txt"
        labels.write_text("a\nb\n")
        self.expect(self.again(), BAD_FILE, "a head (score.weight) for another task", "bowline import DECODER --task embed --out MODEL")
        self.expect(self.again("--task", "generate"), BAD_FILE, "score.weight", "cannot generate text")
        # The command in the message works.
        self.expect(self.again("--task", "embed", "--force"), OK, "dropped score.weight")
        self.expect(self.again("--task", "classify", "--labels", labels, "--force"), OK, "The classification head of 2 classes is new")

    def edit(self, name, **keys):
        path = self.source / name
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | keys))

    def again(self, *arguments):
        """Imports the current source."""
        return run("import", self.source, "--out", self.out, "--force", *arguments)

    def test_classes_of_any_number(self):
        """The config says that a head judges each class by itself. Export and import keep this."""
        self.expect(self.call("bert_classes"), OK)
        for _ in range(2):
            self.edit("config.json", problem_type="multi_label_classification")
            report = json.loads(self.expect(self.again("-o", "json"), OK).stdout)
            self.assertEqual(report["metadata"]["multi_label"], "true")
            self.assertIn("targets", [i["name"] for i in report["entries"][2]["inputs"]])
            shutil.rmtree(self.source)
            self.expect(run("export", self.out, "--to", "hf", "--out", self.source), OK)
            self.assertEqual(json.loads((self.source / "config.json").read_text())["problem_type"], "multi_label_classification")
        self.expect(self.again("--label-smoothing", "0.1"), USAGE, "exclusive classes")
        self.edit("config.json", problem_type="regression")
        self.expect(self.again(), BAD_FILE, "regression", "--task embed")
        self.expect(self.again("--task", "embed"), OK)

    def sentences(self):
        """Makes an encoder of sentence-transformers with a vocabulary of four words."""
        self.expect(self.call("bert_sentences"), OK)
        vocabulary = {"[UNK]": 0, "hallo": 1, "query": 2, "world": 3}
        self.edit("tokenizer.json", version="1.0", truncation=None, padding=None, added_tokens=[], normalizer=None,
                  pre_tokenizer={"type": "Whitespace"}, post_processor=None, decoder=None,
                  model={"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"})
        self.expect(self.again(), OK)

    def embedded(self, text):
        return json.loads(self.expect(run("predict", self.out, text, "--embed", "--device", "cpu"), OK).stdout)["embedding"]

    def test_text_is_lowercased_as_the_folder_says(self):
        self.sentences()
        lower, upper = self.embedded("hallo world"), self.embedded("HALLO World")
        self.assertNotEqual(lower, upper)
        self.edit("sentence_bert_config.json", do_lower_case=True)
        self.expect(self.again(), OK, "Text is lowercased first")
        self.assertEqual(self.embedded("HALLO World"), lower)
        (self.source / "tokenizer.json").unlink()
        self.expect(self.again(), BAD_FILE, "do_lower_case")

    def test_a_prompt_stands_in_front_of_each_text(self):
        self.sentences()
        plain, asked = self.embedded("world"), self.embedded("query world")
        self.assertNotEqual(plain, asked)
        for name, expected in (("", plain), ("query", asked)):
            self.edit("config_sentence_transformers.json", prompts={"query": "query ", "document": ""}, default_prompt_name=name)
            self.expect(self.again(), OK)
            self.assertEqual(self.embedded("world"), expected, name)
        self.edit("1_Pooling/config.json", include_prompt=False)
        self.expect(self.again(), BAD_FILE, "include_prompt")
        self.edit("config_sentence_transformers.json", default_prompt_name="answer")
        self.expect(self.again(), BAD_FILE, "default_prompt_name", "answer")

    def test_caches_of_codes(self):
        """The KV cache stays quantized in the file and during generation: 4 rows of one head of 8.
        """
        self.expect(self.call("llama3", "--kv-dtype", "int8"), OK)
        storages = json.loads(self.expect(run("inspect", self.out, "-o", "json"), OK).stdout)["storages"]
        caches = [s for s in storages if s["role"] == "kv_cache"]
        self.assertEqual({s["encoding"] for s in caches}, {"int8 block 8 axis -1 scale f32"})
        self.assertEqual({s["bytes"] for s in caches}, {4 * (8 + 4)})
        self.expect(run("verify", self.out), OK)
        profiled = run("profile", self.out, "--entry", "decode", "--dim", "kv_length=16", "--steps", 1, "--device", "cpu", "--input",
                       "tokens=zeros")
        self.expect(profiled, OK, "WriteRows")
        self.expect(self.call("llama3", "--kv-dtype", "int4", "--force"), USAGE, "int4")

    def test_what_is_wrong_leaves_no_file(self):
        self.expect(self.call("llama", "--tie", "model.norm.weight", "lm_head.weight"), USAGE, "values differ")
        self.expect(self.call("bert", "--task", "generate"), BAD_FILE, "not generate text")
        self.expect(self.call("llama", "--task", "classify"), USAGE, "--labels")
        self.expect(self.call("llama", "--task", "sing"), USAGE, "sing")
        (self.source / "model.safetensors").write_bytes(b"12345")
        self.expect(run("import", self.source, "--out", self.out), BAD_FILE, "too few for a header length")
        self.expect(run("import", self.folder / "none", "--out", self.out), BAD_FILE, "none")
        self.assertFalse(self.out.exists())

    def test_a_file_of_gguf_is_known_by_its_begin_or_name(self):
        (self.folder / "m.bin").write_bytes(b"GGUF")
        self.expect(run("import", self.folder / "m.bin", "--out", self.out), BAD_FILE, "m.bin")
        (self.folder / "page.gguf").write_text("<!DOCTYPE html>")
        self.expect(run("import", self.folder / "page.gguf", "--out", self.out), BAD_FILE, 'does not begin with "GGUF"')


# Each flag with a value, and the kinds of input on which it has an effect.
FLAGS = {
    "--entry": (["main"], "onnx"),
    "--dim": (["batch=2"], "onnx"),
    "--shape": (["x=2,3"], "onnx"),
    "--batch-dim": (["rows"], "onnx"),
    "--given": (["x=1"], "onnx"),
    "--trainable": (["*"], "onnx"),
    "--freeze": (["*"], "onnx"),
    "--name": (["mine"], "adapter"),
    "--task": (["classify"], "folder gguf skeleton"),
    "--labels": (["labels.txt"], "folder gguf"),
    "--dtype": (["bf16"], "folder gguf skeleton"),
    "--kv-dtype": (["f16"], "folder gguf skeleton"),
    "--pooling": (["cls"], "folder gguf"),
    "--tie": (["a", "b"], "folder gguf"),
    "--multi-label": ([], "folder gguf"),
    "--label-smoothing": (["0.1"], "folder gguf"),
    "--matryoshka": (["8"], "folder gguf"),
    "--tie-equal": ([], "folder gguf onnx"),
    "--dropout": ([], "folder gguf skeleton"),
    "--seed": (["7"], "folder gguf"),
}
# Flags that have an effect on all kinds, or that describe the input.
GENERAL = {"--help", "--out", "--force", "--format", "--base", "--skeleton"}


class Flags(harness.Case):
    def inputs(self):
        (self.folder / "m.onnx").write_bytes(relu())
        (self.folder / "m.gguf").write_bytes(b"GGUF")
        return {"onnx": [self.folder / "m.onnx"], "gguf": [self.folder / "m.gguf"], "folder": [FIXTURES / "bert_classes"],
                "skeleton": [FIXTURES / "llama", "--skeleton"], "adapter": [FIXTURES / "llama", "--base", self.folder / "m.bowline"]}

    def test_every_flag_is_known_here(self):
        listed = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", self.expect(run("import", "--help"), OK).stdout, re.MULTILINE))
        self.assertEqual(listed, set(FLAGS) | GENERAL)

    def test_a_flag_without_effect_is_refused(self):
        for kind, arguments in self.inputs().items():
            for flag, (values, kinds) in FLAGS.items():
                if flag == "--name" and kind != "adapter":
                    continue  # the flag needs --base
                with self.subTest(kind=kind, flag=flag):
                    made = run("import", *arguments, "--out", self.folder / "out.bowline", "--force", flag, *values)
                    if kind in kinds.split():
                        self.assertNotRegex(made.stderr, "has no effect on an? (folder|skeleton|GGUF|ONNX|adapter)")
                    else:
                        self.expect(made, USAGE, f"{flag} has no effect on", "; it is for")

    def test_a_flag_without_effect_on_the_task_is_refused(self):
        out = ["--out", self.folder / "out.bowline", "--force"]
        (self.folder / "labels.txt").write_text("a\nb\n")
        for flag, value in (("--pooling", "cls"), ("--labels", self.folder / "labels.txt"), ("--label-smoothing", "0.1"), ("--seed", "1")):
            self.expect(run("import", FIXTURES / "llama", *out, flag, value), USAGE, f"{flag} has no effect", "task generate")
        self.expect(run("import", FIXTURES / "bert", *out, "--kv-dtype", "f16"), USAGE, "--kv-dtype has no effect", "task embed")
        self.expect(run("import", FIXTURES / "bert_classes", *out, "--seed", "1"), USAGE, "--seed has no effect", "all weights")


if __name__ == "__main__":
    unittest.main()
