#!/usr/bin/env python3
"""SIGKILL and resume on the CPU."""

import unittest

import kill


class KillCpu(kill.Kill):
    device = "cpu"


del kill.Kill
if __name__ == "__main__":
    unittest.main()
