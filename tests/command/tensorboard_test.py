#!/usr/bin/env python3
"""Reads the event files of TensorBoard with an independent reader: frames, checksums, steps and
values.
"""

import struct
import time
import unittest

import harness
from harness import FAILED, OK


def crc32c(data):
    """Returns the CRC-32 of Castagnoli, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """Yields the records of a TFRecord file and checks every checksum."""
    while data:
        (length,) = struct.unpack_from("<Q", data)
        assert struct.unpack_from("<I", data, 8)[0] == masked(data[:8]), "checksum of a length"
        body = data[12 : 12 + length]
        assert struct.unpack_from("<I", data, 12 + length)[0] == masked(body), "checksum of a record"
        yield body
        data = data[16 + length :]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """Returns {number: value} of a protocol buffer."""
    out, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif key & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        out[key >> 3] = value
    return out


class TensorBoard(harness.Case):
    def setUp(self):
        super().setUp()
        self.events, self.log = self.folder / "events", self.folder / "log"

    def train(self, steps, *more):
        return self.finetune("--steps", steps, "--schedule", "constant", "--out", self.folder / "out.bowline", "--tensorboard",
                             self.events, "--log", self.log, "--checkpoint", self.folder / "c", *more)

    def read(self, path):
        """Returns the first two events, and {tag: {step: value}} of the others."""
        first, start, *rest = [fields(r) for r in records(path.read_bytes())]
        points = {}
        for event in rest:
            self.assertLess(abs(event[1] - time.time()), 600)
            point = fields(fields(event[5])[1])
            points.setdefault(point[1].decode(), {})[event[2]] = point[2]
        return first, start, points

    def test_reader(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)  # the check value of the polynomial

    def test_points(self):
        self.expect(self.train(6, "--eval-every", 2), OK)
        (path,) = self.events.iterdir()
        self.assertRegex(path.name, r"^events\.out\.tfevents\.\d{10}\.")
        first, start, points = self.read(path)
        self.assertEqual(first[3], b"brain.Event:2")
        self.assertEqual((start[2], fields(start[7])), (1, {1: 1}))
        rows = [line.split("\t") for line in self.log.read_text().splitlines()[1:]]
        for column, tag in ((1, "loss/training"), (2, "gradient_norm"), (3, "learning_rate")):
            self.assertEqual(sorted(points[tag]), [1, 2, 3, 4, 5, 6])
            for row in rows:
                self.assertAlmostEqual(points[tag][int(row[0])], float(row[column]), delta=1e-6 * float(row[column]))
        self.assertEqual(sorted(points["loss/held_out"]), [0, 2, 4, 6])
        self.assertEqual(sorted(points["tokens_per_second"]), [1, 2, 3, 4, 5, 6])

    def test_going_on(self):
        self.expect(self.train(3), OK)
        (first,) = self.events.iterdir()
        kept = first.read_bytes()
        self.expect(self.train(5, "--resume", "auto"), OK)
        (second,) = [f for f in self.events.iterdir() if f != first]
        self.assertEqual(first.read_bytes(), kept)
        _, start, points = self.read(second)
        self.assertEqual((start[2], fields(start[7])), (4, {1: 1}), "hides what an earlier run drew from step 4 on")
        self.assertEqual(sorted(points["loss/training"]), [4, 5])

    def test_going_back(self):
        self.expect(self.train(20, "--optimizer", "sgd", "--learning-rate", "1e6", "--weight-decay", "1e6", "--save-every", 1,
                               "--on-nonfinite", "rollback"), FAILED, "Step 4: ", "non-finite step 5 in a row")
        (path,) = self.events.iterdir()
        starts = [event for event in map(fields, records(path.read_bytes())) if 7 in event]
        self.assertEqual([event[2] for event in starts], [1, 4, 4, 4, 4], "hides what was drawn of the step that is made again")

    def test_a_folder_that_cannot_be_made(self):
        self.events.write_text("mine")
        self.expect(self.train(2), FAILED, "events", "cannot be created")
        self.assertEqual(self.events.read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
