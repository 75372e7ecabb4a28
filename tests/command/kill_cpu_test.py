#!/usr/bin/env python3
"""Tests SIGKILL and resume on the CPU."""

import unittest

import kill


class KillCpu(kill.Kill):
    device = "cpu"


del kill.Kill
if __name__ == "__main__":
    unittest.main()
