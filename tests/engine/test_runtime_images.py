# SPDX-License-Identifier: Apache-2.0
"""Images built for one L4T or CUDA on a board with another."""

from __future__ import annotations

import pytest

from jetson_specdec.engine.release import release_from_image
from jetson_specdec.engine.runtime import check_runtime


def found(image, l4t):
    findings = check_runtime(family="agx_orin", l4t=l4t, release=release_from_image(image))
    return {(finding.topic, finding.severity.value) for finding in findings}


@pytest.mark.parametrize(
    "image",
    [
        "ghcr.io/nvidia-ai-iot/vllm:0.16.0-g15d76f74e-r38.2-arm64-sbsa-cu130-24.04",
        "ghcr.io/nvidia-ai-iot/vllm:r38.2.arm64-sbsa-cu130-24.04",
        "dustynv/vllm:0.9.0-r38.2-cu130-24.04",
        "vllm/vllm-openai:v0.30.0",
    ],
)
def test_cuda_13_does_not_start_on_l4t_36(image):
    assert ("runtime-mismatch", "blocking") in found(image, "36.4.4")


@pytest.mark.parametrize(
    "image", ["ghcr.io/nvidia-ai-iot/vllm:0.14.0-r36.4-tegra-aarch64-cu126-22.04", "dustynv/vllm:0.6.3-r36.4.0"]
)
def test_images_for_l4t_36_are_no_mismatch_there(image):
    assert ("runtime-mismatch", "blocking") not in found(image, "36.4.4")


@pytest.mark.parametrize(
    "image", ["ghcr.io/nvidia-ai-iot/vllm:r36.4-tegra-aarch64-cu126-22.04", "dustynv/vllm:r36.4.0"]
)
def test_images_for_l4t_36_are_questioned_on_l4t_39(image):
    assert ("runtime-mismatch", "warning") in found(image, "39.2.0")
