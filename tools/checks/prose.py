#!/usr/bin/env python3
"""Checks the English that a machine can check: comments, pages, public headers, help, messages.

Comments are at most 100 columns wide. Sentences of pages and public headers are short. Users read
the words of the field, and none of the phrases that are wrong in every context. The description of
a flag fits on one line. The title of a commit starts with a verb.
"""

import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize

FOLDERS = ("runtime", "backends", "shaders", "schemas", "tools", "tests", "samples")
FROZEN = "schemas/released/"
QUOTES = "tools/checks/"  # names wrong phrases
MESSAGES = ("runtime/", "backends/", "tools/")
PUBLIC = re.compile(r"runtime/bowline(?:/\w+)?\.h|runtime/text/bowline_text\.h")
C_LIKE = (".h", ".cpp", ".cu", ".cuh", ".comp", ".glsl", ".fbs")
WIDTH = 100
HELP_WIDTH = 80
# The most words of a sentence, by folder; the longest path counts.
MOST_WORDS = {"": 25, "samples/guides/": 22}

# Wrong in messages, pages and public headers, whatever the context.
PHRASES = {
    r"(?<!there )\bis none\b": "say what is missing",
    r"(?<!there )\bis no (?!longer|more|less|better|worse)": "write 'is not a'",
    r"\bof what\b": "name the thing",
    r"\bthe so many\b": "write 'the n-th' or 'the n'",
    r"\b(?:is|are) (?:that|those) of\b": "repeat the noun",
    r"\b(?:the|at) begin\b": "write 'the start'",
    r"\bas (?:it|they) lies?\b": "write 'memory-mapped' or 'in place'",
    r"\bstands twice\b": "write 'appears twice'",
    r"\bgo(?:es)? on with\b": "write 'continue'",
    r"\bgoes on\b": "write 'continues'",
    r"\banew\b": "write 'again'",
    r"\bhas not[,.:;]": "write 'does not have'",
    r"\btaken for what\b": "write 'confusion'",
    r"\b(?:is|are) asked of\b": "say who needs what",
    r"\bcounted dim": "write 'dynamic dimension'",
    r"\bstep words?\b": "write 'per-step scalar'",
    r"\b(?:head|heads|loss) of classes\b": "write 'classification head' or 'loss'",
    r"(?<!exit )(?<!error )(?<!status )\bcodes\b": "write 'quantized values'",
    r"\bpieces?\b": "write 'token'",
    r"\boracles?\b": "write 'reference implementation'",
    r"\bcomputed? again\b": "write 'recompute'",
}
WRONG = re.compile("|".join(f"({phrase})" for phrase in PHRASES), re.IGNORECASE)

# What is no imperative: the closed classes of words, numbers, and the endings of other forms.
NO_VERB = re.compile(
    r"an?|the|this|that|these|those|each|every|all|any|some|no|none|not|both|one|two|three|four"
    r"|many|more|most|less|few|other|such|same|it|its|they|their|he|she|we|our|you|your|i|my|who"
    r"|whose|what|which|when|where|why|how|if|whether|while|because|as|so|than|and|or|but|nor|of"
    r"|in|on|at|by|for|from|to|into|with|within|without|over|under|after|before|between|through"
    r"|is|are|was|were|has|have|had|does|did|can|could|may|might|must|shall|should|will|would"
    r"|there|here|now|then|also|only|new|old|better|faster|\w*[^aious]s|\w{3,}ing|\w+[^e]ed")

TOKENS = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/)|R"(?P<mark>\w*)\((?P<raw>.*?)\)(?P=mark)"'
    r'|"(?P<text>(?:\\.|[^"\\\n])*)"|\'(?:\\.|[^\'\\\n])+\'|(?P<code>[^\s"\'/]+|\S)', re.DOTALL)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def is_python(path, text):
    return path.endswith(".py") or text.startswith("#!/usr/bin/env python")


def python_strings(text):
    """Yields (node, is a docstring) of each text of a script."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    heads = [n.body[0].value for n in ast.walk(tree) if isinstance(n, documented) and n.body and
             isinstance(n.body[0], ast.Expr) and ast.get_docstring(n) is not None]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node, node in heads


def comment_lines(path, text):
    """Yields the numbers of the lines that hold a comment or a docstring."""
    if path.endswith(C_LIKE):
        for found in TOKENS.finditer(text):
            if found["comment"]:
                yield from range(line_of(text, found.start()), line_of(text, found.end()) + 1)
    elif is_python(path, text):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0]
        for node, is_docstring in python_strings(text):
            if is_docstring:
                yield from range(node.lineno, node.end_lineno + 1)
    elif path.endswith((".txt", ".cmake")) or text.startswith("#!"):
        for number, line in enumerate(text.split("\n"), 1):
            if line.lstrip().startswith("#"):
                yield number


def check_width(path, text):
    lines = text.split("\n")
    for number in sorted(set(comment_lines(path, text))):
        if len(lines[number - 1]) > WIDTH and "://" not in lines[number - 1]:
            yield number, f"The comment is {len(lines[number - 1])} columns wide, more than {WIDTH}."


def literals(text):
    """Yields (offset, text) of the string literals of C++; neighbours are one text."""
    start, joined = 0, ""
    for found in TOKENS.finditer(text):
        part = found["text"] if found["text"] is not None else found["raw"]
        if part is not None:
            start, joined = (start, joined + part) if joined else (found.start(), part)
        elif not found["comment"]:
            if joined:
                yield start, joined
            joined = ""


def page_paragraphs(text):
    """Yields (line, text) of the paragraphs, items and cells of a page, without code."""
    paragraph, start, fenced = [], 0, False
    for number, line in enumerate(text.split("\n") + [""], 1):
        content = line.strip()
        fence = content.startswith("```")
        fenced ^= fence
        note = content.startswith("<!--")
        new = not content or fence or fenced or note or re.match(r"[-*#|>]|\d+\.\s", content)
        if new and paragraph:
            yield start, " ".join(paragraph)
            paragraph = []
        if fenced or fence or note or not content:
            continue
        if content.startswith("|"):
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", content) if cell.strip())
            continue
        start = start if paragraph else number
        paragraph.append(re.sub(r"^(?:[-*#>]+|\d+\.)\s+", "", content))


def comment_paragraphs(text):
    """Yields (line, text) of the paragraphs of the comments of a header, without code."""
    paragraph, start, last, column = [], 0, 0, 0
    for number, line in enumerate(text.split("\n") + [""], 1):
        found = re.match(r"(.*?)///?<?(.*)", line)
        is_code = found and found[2].startswith(" " * 5)
        content = found[2].strip() if found and not is_code else ""
        # A label, such as "Errors", begins a paragraph; so does a comment behind code.
        labelled = re.match(r"[\\@]\w+|[A-Z][\w()]*[.:]?\s\s+|[-*]\s|-{9,}", content)
        apart = found is not None and (found[1].strip() or len(found[1]) != column)
        if paragraph and (not content or labelled or apart or last != number - 1):
            yield start, " ".join(paragraph)
            paragraph = []
        if content:
            start = start if paragraph else number
            paragraph.append(re.sub(r"^-{9,}|^[-*]\s|^[\\@](?:param\s+)?\w+", "", content))
            last, column = number, len(found[1])


def read_by_users(path, text):
    """Yields (line, text) of what users read in a file: pages, public headers, messages."""
    if path.endswith(".md"):
        yield from page_paragraphs(text)
    elif path.startswith(MESSAGES) and not path.startswith(QUOTES):
        if PUBLIC.fullmatch(path):
            yield from comment_paragraphs(text)
        if path.endswith(C_LIKE):
            yield from ((line_of(text, at), joined) for at, joined in literals(text))
        elif is_python(path, text):
            yield from ((node.lineno, node.value) for node, is_docstring in python_strings(text)
                        if not is_docstring)
        elif text.startswith("#!"):
            yield from ((number, line) for number, line in enumerate(text.split("\n"), 1)
                        if not line.lstrip().startswith("#"))


def check_phrases(path, text):
    for number, sentence in read_by_users(path, text):
        sentence = re.sub(r"\s+", " ", re.sub(r"`[^`]*`", "", sentence)).strip()
        for found in WRONG.finditer(sentence) if " " in sentence else ():
            advice = list(PHRASES.values())[found.lastindex - 1]
            yield number, f"'{found[0]}': {advice}."


def check_sentences(path, text):
    folder = max((f for f in MOST_WORDS if path.startswith(f)), key=len)
    paragraphs = (page_paragraphs(text) if path.endswith(".md") else
                  comment_paragraphs(text) if PUBLIC.fullmatch(path) else ())
    for number, paragraph in paragraphs:
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", paragraph))
        for sentence in re.split(r"(?<=[.!?])[\")*]*\s+", plain):
            words = re.findall(r"[^\W_][\w'.-]*", sentence)
            if len(words) > MOST_WORDS[folder]:
                yield number, (f"A sentence has {len(words)} words, more than {MOST_WORDS[folder]}: "
                               f"\"{' '.join(sentence.split()[:8])} ...\"")


def check_help(path, text):
    """A call add_...(verb, ..., description): the last text between its brackets."""
    if not path.startswith("tools/bowline/"):
        return
    for call in re.finditer(r"\badd_(?!verb\b)\w+\s*\(", text):
        depth, description, at = 1, "", call.end()
        for found in TOKENS.finditer(text, call.end()):
            at = found.start()
            if found["text"] is not None:
                description += found["text"]
            elif found["code"]:
                depth += found[0].count("(") - found[0].count(")")
                if depth <= 0:
                    break
                description = "" if "," in found[0] and depth == 1 else description
        description = re.sub(r"\\(.)", r"\1", description)
        if " " in description and len(description) > HELP_WIDTH:
            yield line_of(text, at), (f"The description of a flag has {len(description)} characters, "
                                      f"more than {HELP_WIDTH}.")


def check_title(title):
    first = re.split(r"\s", re.sub(r"^[^:]*: ", "", title))[0]
    if not re.fullmatch(r"[A-Z][a-z]+(-[a-z]+)?", first) or NO_VERB.fullmatch(first.lower()):
        yield f"The commit title \"{title}\" does not start with a verb: '{first}'."


CHECKS = (check_width, check_phrases, check_sentences, check_help)


def check_text(path, text):
    for check in CHECKS:
        yield from (f"{path}:{number}: {sentence}" for number, sentence in check(path, text))


def files(root):
    """Yields (path, text) of pages, sources and scripts."""
    for path in (*sorted(root.glob("*.md")), root / "CMakeLists.txt"):
        yield path.name, path.read_text()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            written = path.suffix in (*C_LIKE, ".py", ".md", ".cmake", "") or path.name == "CMakeLists.txt"
            if written and path.is_file() and not name.startswith(FROZEN):
                content = path.read_bytes()
                if path.suffix or content.startswith(b"#!"):
                    yield name, content.decode()


def titles(root):
    """The titles of the commits that the branch adds, none where that is not known."""
    git = ["git", "-C", str(root)]
    for base in ("@{upstream}", "origin/main", "main"):
        done = subprocess.run([*git, "log", "--no-merges", "--format=%s", f"{base}..HEAD"],
                              capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.splitlines()
    return []


LONG = "word " * 25
SEEDED = [  # path, text, how the refusal begins; none where the text is right
    ("runtime/a.cpp", f"// {LONG[:97]}\nint a;", None),
    ("runtime/a.cpp", f"int a;\n// {LONG[:98]}", "runtime/a.cpp:2: The comment is 101 columns"),
    ("runtime/a.cpp", f'const char* a = "{LONG}";', None),
    ("shaders/a.comp", f"/* a\n{LONG}*/", "shaders/a.comp:2: The comment is 127 columns"),
    ("tools/a.py", f'def a():\n    """A.\n\n    {LONG}"""', "tools/a.py:4: The comment"),
    ("tools/a.py", f'a = 1  # {LONG}', "tools/a.py:1: The comment"),
    ("tools/a", f"#!/usr/bin/env bash\n  # {LONG}", "tools/a:2: The comment"),
    ("tests/CMakeLists.txt", f"# {LONG}", "tests/CMakeLists.txt:1: The comment"),
    ("a.md", f"One. {LONG}.\n\n{LONG}`code` `and code`.", "a.md:3: A sentence has 27 words"),
    ("samples/guides/a.md", LONG + ".", "samples/guides/a.md:1: A sentence has 25 words"),
    ("a.md", f"```\n{LONG}{LONG}\n```\n- {LONG}\n- {LONG}\n| {LONG} | {LONG} |", None),
    ("runtime/bowline.h", f"// {LONG[:60]}\n// {LONG[:60]}\n// {LONG[:60]}",
     "runtime/bowline.h:1: A sentence has 36 words"),
    ("runtime/bowline/a.h", f"/// {LONG[:75]}\nint a;  ///< {LONG[:75]}\n/// {LONG[:75]}", None),
    ("runtime/bowline/a.h", f"///     {LONG[:85]}\n///     {LONG[:85]}", None),
    ("runtime/a.h", f"// {LONG[:75]}\n// {LONG[:75]}\n// {LONG[:75]}", None),
    ("runtime/a.cpp", 'f("It is "\n  "none of {}.");', "runtime/a.cpp:1: 'is none': say what"),
    ("runtime/a.cpp", '// It is none.\nf("There is none.", "is", "none");', None),
    ("tests/a.cpp", 'f("It is none.");', None),
    ("tools/a.py", 'print(f"Of {a} it\\nis none.")', "tools/a.py:1: 'is none': say what"),
    ("tools/a", '#!/usr/bin/env bash\n# It is none.\necho "It is none."', "tools/a:3: 'is none': say what"),
    ("a.md", "A weight\nof codes, `of codes`.", "a.md:1: 'codes': write 'quantized values'"),
    ("a.md", "Its exit codes.", None),
    ("tools/bowline/a.cpp", f'verb->add_flag("--a", o.a, "{LONG[:60]}"\n "{LONG[:60]}");',
     "tools/bowline/a.cpp:2: The description of a flag has 120 characters"),
    ("tools/bowline/a.cpp", f'verb->add_flag("--a", f(o.a, "{LONG}"), "{LONG[:75]}");', None),
    ("title", "ops: Add Gelu", None),
    ("title", "text, import: Let a head be read", None),
    ("title", "Address two findings", None),
    ("title", "import: A field that nothing reads goes", "The commit title"),
    ("title", "cpu: Packing codes fetches the rows", "The commit title"),
    ("title", "samples: Refused models", "The commit title"),
    ("title", "tests: Files of two tests", "The commit title"),
    ("title", "GGUF files", "The commit title"),
]


def check_seeded():
    for path, text, expected in SEEDED:
        got = list(check_title(text) if path == "title" else check_text(path, text))
        if len(got) != (expected is not None) or got and not got[0].startswith(expected):
            yield f"The check says {got} of {path} with {text!r} instead of {expected!r}."


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    wrong = [*check_seeded(), *(sentence for title in titles(root) for sentence in check_title(title))]
    found = dict(files(root))
    for path, text in found.items():
        wrong += check_text(path, text)
    print("\n".join(wrong) or f"{len(found)} files are in plain English, as far as a machine can see.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
