# SPDX-License-Identifier: Apache-2.0
"""Which Linux for Tegra release this board runs."""

from __future__ import annotations

import re

from jetson_specdec.device.core import Evidence, Observation
from jetson_specdec.device.l4t import from_kernel, normalize_l4t, parse_release_file
from jetson_specdec.errors import DeviceError
from jetson_specdec.findings import Finding
from jetson_specdec.host import Host

__all__ = ["ReleaseDetector"]

RELEASE_FILE = "/etc/nv_tegra_release"
KERNEL_FILES = ("/proc/version", "/proc/sys/kernel/osrelease")
VARIABLE = "L4T_VERSION"
DPKG = ("dpkg-query", "--showformat=${Version}", "--show", "nvidia-l4t-core")
_LIMIT = 64 * 1024


class ReleaseDetector:
    """Reads the release file, then the package database, the kernel's name and the environment, each trusted less.

    A release file that an image build wrote proves nothing; the variable only says what an image was made for.
    """

    name = "release"
    priority = 50

    def detect(self, host: Host) -> Evidence:
        """Return the release, and whether the kernel or the file prove a Jetson."""
        found: list[Observation] = []
        findings: list[Finding] = []
        file = parse_release_file(host.read_text(RELEASE_FILE, limit=_LIMIT) or "")
        if file is not None and file.stub:
            findings.append(Finding.of("JSD132", path=RELEASE_FILE, l4t=file.l4t))
        elif file is not None:
            found.append(Observation(name="l4t", value=file.l4t, source=RELEASE_FILE))
            found.append(Observation(name="is_jetson", value=True, source=RELEASE_FILE, confidence="medium"))

        path, kernel = self._kernel(host)
        in_kernel = from_kernel(kernel)
        if in_kernel is not None or re.search(r"\d-tegra\b", kernel):
            found.append(Observation(name="is_jetson", value=True, source=path, confidence="medium"))
        if in_kernel is None and not any(item.name == "l4t" for item in found) and (found or not host.live):
            found += self._packages(host)
        if in_kernel is not None:
            found.append(Observation(name="l4t", value=in_kernel, source=path, confidence="medium"))

        named = self._environment(host)
        if named is not None:
            found.append(Observation(name="l4t", value=named, source=f"environment ({VARIABLE})", confidence="low"))
            told = next((item for item in found if item.name == "l4t"), None)
            if told is not None and told.value != named:
                findings.append(Finding.of("JSD133", variable=VARIABLE, named=named, l4t=told.value, where=told.source))
            elif file is not None and file.stub and file.l4t != named:
                findings.append(Finding.of("JSD133", variable=VARIABLE, named=named, l4t=file.l4t, where=RELEASE_FILE))
        return Evidence(observations=tuple(found), findings=tuple(findings))

    @staticmethod
    def _kernel(host: Host) -> tuple[str, str]:
        for path in KERNEL_FILES:
            text = host.read_text(path, limit=4096)
            if text and text.strip():
                return path, text
        return KERNEL_FILES[0], ""

    @staticmethod
    def _packages(host: Host) -> list[Observation]:
        done = host.run(DPKG, timeout=3.0)
        if done is None or not done.ok:
            return []
        found = re.match(r"'?(\d{2}\.\d{1,2}\.\d{1,2})-", done.stdout.strip())
        if found is None:
            return []
        source = "dpkg-query nvidia-l4t-core"
        return [Observation(name="l4t", value=normalize_l4t(found[1]), source=source, confidence="medium")]

    @staticmethod
    def _environment(host: Host) -> str | None:
        text = host.environ.get(VARIABLE, "")
        try:
            return normalize_l4t(text) if text.strip() else None
        except DeviceError:
            return None
