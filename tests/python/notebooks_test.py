"""Runs the code of the notebooks in samples/notebooks, each in a process of its own.

usage: notebooks_test.py [NAME...], with the packages bowline and NumPy on the path
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "samples/notebooks"


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


class Notebooks(unittest.TestCase):
    def run_notebook(self, path):
        code = ["".join(cell["source"]) for cell in cells_of(path) if cell["cell_type"] == "code"]
        done = subprocess.run([sys.executable, "-c", "\n\n".join(code)], cwd=FOLDER, capture_output=True, text=True,
                              env=os.environ | {"PYTHONWARNINGS": "error"})
        self.assertEqual(done.returncode, 0, f"{path.name}\n{done.stdout}\n{done.stderr}")

    def test_no_outputs_are_stored(self):
        for path in FOLDER.glob("*.ipynb"):
            for cell in cells_of(path):
                self.assertFalse(cell.get("outputs") or cell.get("execution_count"), path.name)


def add(path):
    setattr(Notebooks, f"test_{path.stem}", lambda self: self.run_notebook(path))


names = sys.argv[1:] or sorted(p.stem for p in FOLDER.glob("*.ipynb"))
for name in names:
    add(FOLDER / f"{name}.ipynb")

if __name__ == "__main__":
    assert names, f"There are no notebooks in {FOLDER}."
    unittest.main(verbosity=2, argv=sys.argv[:1])
