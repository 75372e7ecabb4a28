#!/usr/bin/env python3
"""bowline import: what it says of a file that is none, and a model that runs afterwards."""

import json
import pathlib
import shutil
import unittest

import harness
from harness import BAD_FILE, OK, USAGE, run


def field(number, content):
    """A field of protobuf: text and messages as bytes, numbers as a varint."""
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
    """y = relu(x), x of [batch, 3]."""
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
        self.expect(run("run", self.out, "--device", "cpu", "--input", "x=random:1"), OK, "y f32[2,3]  least 0")

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
        self.expect(self.call(), BAD_FILE, 'dim 0 ("batch") has no number', 'input "x"', "m.onnx")
        self.expect(self.call("--dim", "batch"), USAGE, "name=number")
        self.onnx.write_bytes(relu()[:-3])
        self.expect(self.call("--dim", "batch=2"), BAD_FILE, "reading ends at byte", "m.onnx")
        self.onnx.write_bytes(relu("Sing"))
        self.expect(self.call("--dim", "batch=2"), BAD_FILE, '"Sing" is not read', "node 0 (Sing)")
        self.onnx.write_bytes(relu(opset=99))
        self.expect(self.call("--dim", "batch=2"), BAD_FILE, "version 99. Versions 1 to 28 are read")
        self.onnx.unlink()
        self.expect(self.call("--dim", "batch=2"), BAD_FILE, "cannot be read")
        self.assertFalse(self.out.exists())


FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "import" / "fixtures"


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
        self.expect(made, OK, "llama from Hugging Face, task generate", "20 tensors: 20 taken, 0 tied, 0 dropped",
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
        (self.folder / "labels.txt").write_bytes(b"admin\r\nlibs\n\n")
        made = self.call("bert_sentences", "--task", "classify", "--labels", self.folder / "labels.txt", "--dtype", "bf16")
        self.expect(made, OK, "task classify", "The head of 2 classes is new", "pooling = mean")
        (self.folder / "labels.txt").write_text("admin\nadmin\n")
        self.expect(self.call("bert_sentences", "--task", "classify", "--labels", self.folder / "labels.txt", "--force"), USAGE,
                    "label admin stands twice")

    def edit(self, name, **keys):
        path = self.source / name
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | keys))

    def again(self, *arguments):
        """Imports the source as it is now."""
        return run("import", self.source, "--out", self.out, "--force", *arguments)

    def test_classes_of_any_number(self):
        """The config says that a head judges each class alone; an export and its import keep that."""
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
        """An encoder of sentence-transformers that knows four words."""
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
        """They stay codes in the file and where tokens are made: 4 rows of one head of 8."""
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
        self.expect(self.call("llama", "--task", "embed"), BAD_FILE, "A decoder generates")
        self.expect(self.call("llama", "--task", "sing"), USAGE, "sing")
        (self.source / "model.safetensors").write_bytes(b"12345")
        self.expect(run("import", self.source, "--out", self.out), BAD_FILE, "too few for the length of a header")
        self.expect(run("import", self.folder / "none", "--out", self.out), BAD_FILE, "none")
        self.assertFalse(self.out.exists())

    def test_a_file_of_gguf_is_known_by_its_begin(self):
        (self.folder / "m.bin").write_bytes(b"GGUF")
        self.expect(run("import", self.folder / "m.bin", "--out", self.out), BAD_FILE, "m.bin")


if __name__ == "__main__":
    unittest.main()
