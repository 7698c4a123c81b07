# SPDX-License-Identifier: Apache-2.0
"""The real engine: start, ready, first completion, stop; and a pair that answers /health and dies at its first request.

Needs the CPU build of vLLM in a virtual environment of its own; name it with JETSON_SPECDEC_REAL_VLLM, or run
`nox -s real_vllm`. Without that variable these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jetson_specdec.errors import StartFailed
from jetson_specdec.logs import diagnose

VENV = os.environ.get("JETSON_SPECDEC_REAL_VLLM")

pytestmark = [
    pytest.mark.real_vllm,
    pytest.mark.skipif(VENV is None, reason="JETSON_SPECDEC_REAL_VLLM does not name a virtual environment with vLLM"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory, data_dir):
    out = tmp_path_factory.mktemp("models")
    subprocess.run([f"{VENV}/bin/python", str(data_dir / "server" / "make_tiny.py"), str(out)], check=True)
    return out


@pytest.fixture
def serve(server, port, models):
    def make(config=None):
        text = (
            f"vllm serve {models / 'target'} --served-model-name tiny --max-model-len 512 --max-num-seqs 4 "
            f"--enforce-eager --dtype float32 --port {port}"
        )
        if config is not None:
            config = {"method": "draft_model", "model": str(models / "draft"), **config}
            text += f" --speculative-config '{json.dumps(config)}'"
        environ = {
            **os.environ,
            "PATH": f"{Path(VENV) / 'bin'}:{os.environ['PATH']}",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        return server(text, environ=environ, start_timeout_s=600, request_timeout_s=120, grace_s=20, settle_s=20)

    return make


def test_start_first_completion_stop(serve, marked):
    one = serve()
    started = one.start()
    sys.stderr.write(f"ready after {started.ready_s:.1f} s, first completion {started.first_completion_s:.2f} s\n")
    assert started.model == "tiny"
    assert started.first_completion_tokens == 16
    assert len(marked(one.run_id)) >= 2  # the API server and its engine
    stopped = one.stop()
    assert stopped.port_free
    assert marked(one.run_id) == []
    assert diagnose(one.log_path.read_text()).started_ok is True


def test_speculation_that_works(serve):
    one = serve({"num_speculative_tokens": 3, "draft_tensor_parallel_size": 1})
    assert one.start().first_completion_tokens == 16
    one.stop()


def test_a_pair_that_answers_health_and_dies_at_its_first_request(serve, marked):
    one = serve({"num_speculative_tokens": 129})  # 128 is the most the verifier takes (vLLM 0.32)
    with pytest.raises(StartFailed) as caught:
        one.start()
    found = caught.value.diagnosis
    assert (found.cause, found.stage, found.remedy) == ("first_request_failed", "first_request", "reduce_k")
    assert "Application startup complete" in one.log_path.read_text()
    assert marked(one.run_id) == []
