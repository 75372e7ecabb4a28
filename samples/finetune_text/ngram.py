#!/usr/bin/env python3
"""Byte-level n-gram models, as a baseline for the sample's base model.

Interpolated Witten-Bell smoothing. For a context h that was seen n(h) times and followed by t(h)
different bytes, with h' the context without its oldest byte:

  p(c | h) = (n(h, c) + t(h) * p(c | h')) / (n(h) + t(h))

The recursion ends in the uniform distribution over 256 bytes; an unseen context passes on p(c |
h'). Order k uses contexts of k - 1 bytes. Counts come only from the training part. Nothing is
fitted to the held-out part. Its first bytes have short contexts.

Source: Witten, Bell, "The zero-frequency problem", 1991; interpolated form as in Chen, Goodman, "An
empirical study of smoothing techniques for language modeling", 1998.
"""

import argparse
import collections
import math
import pathlib
import sys

ORDERS = range(3, 8)


def count(text, length):
    """Returns (how often each string of `length` bytes occurs, how often each context is followed
    by a byte, how many different bytes follow it)."""
    grams = collections.Counter(text[i : i + length] for i in range(len(text) - length + 1))
    total, types = collections.Counter(), collections.Counter()
    for gram, n in grams.items():
        total[gram[:-1]] += n
        types[gram[:-1]] += 1
    return grams, total, types


def bits_per_byte(train, heldout):
    """Yields (order, bits per byte of `heldout`) for every order up to the last of ORDERS."""
    probability = [1 / 256] * len(heldout)
    for order in range(1, ORDERS.stop):
        grams, total, types = count(train, order)
        for i in range(order - 1, len(heldout)):
            gram = heldout[i - order + 1 : i + 1]
            context = gram[:-1]
            n = total[context]
            if n:
                t = types[context]
                probability[i] = (grams[gram] + t * probability[i]) / (n + t)
        yield order, -math.fsum(map(math.log2, probability)) / len(heldout)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: samples/finetune_text/jargon_text.py --out build/jargon &&\n"
               "         samples/finetune_text/ngram.py --text build/jargon",
    )
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path("build/jargon"), metavar="DIR",
                        help="folder that jargon_text.py wrote (default: %(default)s)")
    folder = parser.parse_args().text
    try:
        train = (folder / "jargon_train.txt").read_bytes()
        heldout = (folder / "jargon_heldout.txt").read_bytes()
    except OSError as error:
        sys.exit(f"The text cannot be read: {error}. samples/finetune_text/jargon_text.py makes it.")
    if not train or not heldout:
        sys.exit(f"The training or the held-out part in {folder} is empty.")

    print(f"Witten-Bell, trained on {len(train):,} bytes, tested on {len(heldout):,} held-out bytes")
    results = []
    for order, bits in bits_per_byte(train, heldout):
        if order in ORDERS:
            print(f"order {order}  {bits:.4f} bits per byte", flush=True)
            results.append((bits, order))
    bits, order = min(results)
    print(f"best: order {order}, {bits:.4f} bits per byte")


if __name__ == "__main__":
    main()
