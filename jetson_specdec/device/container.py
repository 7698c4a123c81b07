# SPDX-License-Identifier: Apache-2.0
"""Whether this is seen from inside a container, and what the processor says."""

from __future__ import annotations

import re

from jetson_specdec.device.core import Evidence, Observation
from jetson_specdec.device.device_tree import TREES
from jetson_specdec.host import Host

__all__ = ["ContainerDetector", "ProcessorDetector"]

MARKERS = ("/.dockerenv", "/run/.containerenv")
CGROUP = "/proc/1/cgroup"
CPUINFO = "/proc/cpuinfo"
_OTHER_KERNELS = (
    r"^Linux version \S+[-+_](?:generic|aws|azure|gcp|oracle|raspi|rpi\S*|v8|nvidia|linuxkit|microsoft\S*|cloud\S*)\b"
)
"""Kernels that distributions build for other machines (`-nvidia` is for DGX)."""


class ContainerDetector:
    """Looks for the marker files of Docker and Podman, then at the control group of the first process."""

    name = "container"
    priority = 44

    def detect(self, host: Host) -> Evidence:
        """Return `in_container`."""
        for path in MARKERS:
            if host.kind(path) in ("file", "unreadable"):
                return Evidence(observations=(Observation(name="in_container", value=True, source=path),))
        groups = host.read_text(CGROUP, limit=64 * 1024)
        if groups and re.search(r"/(docker|kubepods|containerd|libpod|lxc|machine\.slice)\b", groups):
            return Evidence(observations=(Observation(name="in_container", value=True, source=CGROUP),))
        if groups:
            found = Observation(name="in_container", value=False, source=CGROUP, confidence="medium")
            return Evidence(observations=(found,))
        return Evidence()


class ProcessorDetector:
    """Tells a machine that cannot be a Jetson: an x86 processor, or no device tree outside a container."""

    name = "processor"
    priority = 70

    def detect(self, host: Host) -> Evidence:
        """Return `is_jetson` False where that is certain, nothing otherwise."""
        text = host.read_text(CPUINFO, limit=16 * 1024) or ""
        if re.search(r"^vendor_id\s*:\s*\S", text, re.MULTILINE):
            return Evidence(observations=(Observation(name="is_jetson", value=False, source=CPUINFO),))
        kernel = host.read_text("/proc/version", limit=4096) or ""
        if re.search(r"\bx86_64-|\bi[3-6]86-", kernel):
            return Evidence(observations=(Observation(name="is_jetson", value=False, source="/proc/version"),))
        if re.search(_OTHER_KERNELS, kernel):
            # Low: somebody may run a distribution's kernel on a Jetson, and then anything else that names one wins.
            found = Observation(name="is_jetson", value=False, source="/proc/version", confidence="low")
            return Evidence(observations=(found,))
        if host.live and text and not any(host.kind(tree) == "directory" for tree in TREES):
            inside = any(host.kind(path) != "absent" for path in MARKERS)
            if not inside and not re.search(r"tegra|-l4t-", kernel):
                source = "no device tree, no tegra kernel"
                found = Observation(name="is_jetson", value=False, source=source, confidence="medium")
                return Evidence(observations=(found,))
        return Evidence()
