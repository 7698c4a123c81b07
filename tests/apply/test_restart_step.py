# SPDX-License-Identifier: Apache-2.0
"""The unit that is restarted after a change: a drop-in belongs to another file's unit, a quadlet makes one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jetson_specdec.apply.workflow import restart_step


def prepared(form: str, launcher: str) -> Any:
    deployment = SimpleNamespace(command=SimpleNamespace(launcher=launcher), recipe=SimpleNamespace(form=form))
    return SimpleNamespace(deployment=deployment)


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/etc/systemd/system/vllm.service", "vllm.service"),
        ("/etc/systemd/system/vllm.service.d/override.conf", "vllm.service"),
        ("/etc/systemd/system/vllm@.service.d/10-args.conf", "vllm@.service"),
        ("/etc/containers/systemd/llm.container", "llm.service"),
        ("/etc/containers/systemd/llm.container.d/10-args.conf", "llm.service"),
        ("vllm.conf", "vllm.conf"),
    ],
)
def test_the_unit_that_a_file_belongs_to(path: str, unit: str) -> None:
    step = restart_step(prepared("unit", "podman" if "container" in path else "systemd"), path)
    assert (step.command or "").endswith(f" restart {unit}")
