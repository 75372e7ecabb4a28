#!/usr/bin/env python3
"""--licences and the bill of materials name every library that the command links. What is compiled
in is checked by tools/install/notices.py, which the tests of `consumer` run.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import harness
from harness import BOWLINE, OK, need_tool, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True  # leaves nothing in the source tree
sys.path.insert(0, str(ROOT / "tools/install"))
from licences import package_of  # noqa: E402


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout


def source_of(package):
    return output("dpkg-query", "-W", "-f", "${source:Package} ", package).split()[0]


class Licences(harness.Case):
    def setUp(self):
        super().setUp()
        self.spdx = json.loads(pathlib.Path(os.environ["SPDX"]).read_text())
        self.packages = {p["name"]: p for p in self.spdx["packages"]}

    def test_what_is_printed(self):
        text = self.expect(run("--licences"), OK).stdout
        self.assertEqual(run("--licenses").stdout, text)
        self.assertIn((ROOT / "LICENSE").read_text().strip(), text)
        rows = re.findall(r"^(\S.*?) {2,}(\S.*?) {2,}(\S.*?) {2,}(\S.*)$", text.split("\n\n")[2], re.M)[1:]
        self.assertEqual({(name, version.replace("-", "") if version == "-" else version, licence) for name, version, licence, _ in rows},
                         {(p["name"], p.get("versionInfo", ""), p["licenseDeclared"]) for p in self.spdx["packages"] if p["name"] != "bowline"})
        for name, version, _, how in rows:
            # Code of the software is in the command, so its licence has to come with it.
            self.assertEqual(how in ("compiled in", "shared library"), f"\n{name} {version}\n====" in text, name)

    def test_every_library_is_named(self):
        need_tool("dpkg-query")
        need_tool("ldd")
        purls = [ref["referenceLocator"] for p in self.spdx["packages"] for ref in p.get("externalRefs", [])]
        sources = {source_of(re.match(r"pkg:deb/debian/([^@]+)@", purl)[1]) for purl in purls}
        needed = re.findall(r"NEEDED.*\[(.+)\]", output("readelf", "-dW", BOWLINE))
        places = dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", BOWLINE), re.M))
        self.assertGreater(len(places), 3)
        for name in needed:
            if name in places:  # all but the dynamic linker
                self.assertIn(source_of(package_of(places[name])), sources, name)

    def test_the_bill_of_materials(self):
        self.assertEqual(self.spdx["spdxVersion"], "SPDX-2.3")
        identifiers = [p["SPDXID"] for p in self.spdx["packages"]]
        self.assertEqual(len(set(identifiers)), len(identifiers))
        related = {r["spdxElementId"] for r in self.spdx["relationships"]} | {r["relatedSpdxElement"] for r in self.spdx["relationships"]}
        self.assertEqual(related, {*identifiers, "SPDXRef-DOCUMENT"})
        self.assertEqual(self.packages["bowline"]["versionInfo"], run("--version").stdout.split()[1])
        if shutil.which("dpkg-query"):
            self.assertTrue(self.packages["FlatBuffers"]["externalRefs"][0]["referenceLocator"].startswith("pkg:deb/debian/libflatbuffers-dev@"))


if __name__ == "__main__":
    unittest.main()
