"""Reads the pages of the command like a browser, and their data like a user."""

import json
import re
from xml.etree import ElementTree

URL = re.compile(r"""\b[a-z]+://|(?:src|href|action|data|srcset)\s*=\s*["'](?!#)|url\(|@import""")


class Page:
    """A page is also well-formed XML, which a browser reads in the same way as HTML."""

    def __init__(self, path):
        self.source = path.read_text(encoding="utf-8")
        self.root = ElementTree.fromstring(self.source.removeprefix("<!DOCTYPE html>\n"))
        self.ids = [e.get("id") for e in self.root.iter() if e.get("id")]
        data = [e for e in self.root.iter("script")]
        assert [e.get("type") for e in data] == ["application/json"], "one block of data and no program"
        self.data = json.loads(data[0].text)

    def text(self):
        """Returns the visible text without the style and the data."""
        return "".join(self.root.find("body/header").itertext()) + "".join(self.root.find("body/main").itertext())

    def refresh(self):
        return [m.get("content") for m in self.root.iter("meta") if m.get("http-equiv") == "refresh"]

    def problems(self):
        """Returns the errors of the page as sentences."""
        without_data = re.sub(r"<script type=.application/json.*?</script>", "", self.source, flags=re.DOTALL)
        found = [f"refers to something outside: {m[0]}" for m in URL.finditer(without_data)]
        found += [f"id {i} stands there twice" for i in set(self.ids) if self.ids.count(i) > 1]
        found += [f"a link leads to {a.get('href')}, which is not there" for a in self.root.iter("a")
                  if a.get("href").removeprefix("#") not in self.ids]
        found += [f"attribute {key} runs something" for e in self.root.iter() for key in e.keys() if key.startswith("on")]
        for svg in self.root.iter("svg"):
            if svg.get("aria-hidden") != "true" and not svg.get("aria-label"):
                found.append("a picture has no name")
        for e in self.root.iter():
            if e.get("tabindex") is not None and not e.get("aria-label"):
                found.append(f"{e.tag} can be focused and has no name")
        heads = [int(e.tag[1]) for e in self.root.iter() if re.fullmatch("h[1-6]", e.tag)]
        if heads[0] != 1 or heads.count(1) != 1 or any(b > a + 1 for a, b in zip(heads, heads[1:])):
            found.append(f"the headings are {heads}")
        for figure in self.root.iter("figure"):
            if figure.find("svg[@class='chart']") is not None and next(figure.iter("table"), None) is None:
                found.append("a chart has no table")
        policy = [m.get("content") for m in self.root.iter("meta") if m.get("http-equiv") == "Content-Security-Policy"]
        if not policy or "default-src 'none'" not in policy[0]:
            found.append("nothing forbids requests")
        return found
