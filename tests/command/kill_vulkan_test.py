#!/usr/bin/env python3
"""Tests SIGKILL and resume on a Vulkan device."""

import sys
import unittest

import harness
import kill


class KillVulkan(kill.Kill):
    device = harness.vulkan_device()


del kill.Kill
if __name__ == "__main__":
    if KillVulkan.device is None:
        print("skipped: no Vulkan device is usable here")
        sys.exit(77)
    unittest.main()
