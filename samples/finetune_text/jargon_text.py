#!/usr/bin/env python3
"""Makes the text for the base model: the Jargon File, split into a training and a held-out part.

The Jargon File (version 4.4.7, public domain) is in the Debian and Ubuntu package dict-jargon. An
installed package is used. Otherwise the package is fetched with `apt-get download` and read without
being installed. So no root is needed, and the dictionary server is not started.

Written into the folder OUT:
  jargon.txt          the whole text, byte for byte as in the package
  jargon_train.txt    its first 90 percent, up to the end of a line
  jargon_heldout.txt  the rest, without the lines that share 48 consecutive bytes with the training
                      part
"""

import argparse
import gzip
import hashlib
import pathlib
import subprocess
import sys
import tarfile
import tempfile

INSTALLED = pathlib.Path("/usr/share/dictd/jargon.dict.dz")
# dict-jargon 4.4.7-3.1
KNOWN_SHA256 = "6c8118c277d0b00736d406d4941b77b69932d6ab125f7179ff88fe12939cc19e"
MATCH_BYTES = 48


def fetch():
    """Downloads the package with apt and returns the compressed dictionary."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", "dict-jargon"],
            cwd=folder, check=True, stdout=subprocess.DEVNULL,
        )
        package = next(pathlib.Path(folder).glob("dict-jargon_*.deb"))
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE
        ) as unpack, tarfile.open(fileobj=unpack.stdout, mode="r|") as files:
            for entry in files:
                if entry.name.lstrip(".") == str(INSTALLED):
                    return files.extractfile(entry).read()
    raise FileNotFoundError(f"Package dict-jargon has no file {INSTALLED}.")


def split(text):
    """Returns (training part, held-out part, number of held-out lines dropped)."""
    cut = text.index(b"\n", len(text) * 9 // 10) + 1
    train, rest = text[:cut], text[cut:].splitlines(keepends=True)

    lines_of = {}  # 48 bytes -> the held-out lines that contain them
    for number, line in enumerate(rest):
        for i in range(len(line) - MATCH_BYTES + 1):
            lines_of.setdefault(line[i : i + MATCH_BYTES], []).append(number)
    dropped = set()
    for i in range(len(train) - MATCH_BYTES + 1):
        dropped.update(lines_of.get(train[i : i + MATCH_BYTES], ()))
    kept = b"".join(line for number, line in enumerate(rest) if number not in dropped)
    return train, kept, len(dropped)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: samples/finetune_text/jargon_text.py --out build/jargon",
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/jargon"),
                        help="folder for the three files (default: %(default)s)")
    parser.add_argument("--dict", type=pathlib.Path, metavar="FILE",
                        help="jargon.dict.dz to read instead of the package")
    arguments = parser.parse_args()

    try:
        if arguments.dict:
            packed = arguments.dict.read_bytes()
        elif INSTALLED.exists():
            packed = INSTALLED.read_bytes()
        else:
            packed = fetch()
        text = gzip.decompress(packed)
        train, heldout, dropped = split(text)
        arguments.out.mkdir(parents=True, exist_ok=True)
        for name, part in (("jargon.txt", text), ("jargon_train.txt", train),
                           ("jargon_heldout.txt", heldout)):
            (arguments.out / name).write_bytes(part)
            print(f"{name:20} {len(part):9,} bytes  sha256 {hashlib.sha256(part).hexdigest()}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"Package dict-jargon cannot be fetched: {' '.join(error.cmd)} ended with "
                 f"{error.returncode}. `sudo apt-get update` refreshes the list of packages.")
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        sys.exit(f"The Jargon File cannot be read or written: {error}")
    print(f"{dropped} held-out lines dropped: {MATCH_BYTES} consecutive bytes are in the training part")
    if hashlib.sha256(text).hexdigest() != KNOWN_SHA256:
        print("note: this is not the text of dict-jargon 4.4.7-3.1, from which the committed base "
              "model was made; its figures do not apply.", file=sys.stderr)


if __name__ == "__main__":
    main()
