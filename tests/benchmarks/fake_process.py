# SPDX-License-Identifier: Apache-2.0
"""A `FakeVllm` in a process of its own, so that what it costs is not the client's."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

MODEL = "fake/model"


@contextlib.contextmanager
def fake_server(
    port: int, truth: Mapping[str, Any], *, speculative_config: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Serve `truth` on a port until the block ends; yields the URL."""
    env = {**os.environ, "JETSON_SPECDEC_FAKE": json.dumps(dict(truth))}
    argv = [sys.executable, "-m", "jetson_specdec.testing.fake_vllm", "serve", MODEL, "--port", str(port)]
    argv += ["--max-model-len", "100000", "--disable-log-stats"]
    if speculative_config is not None:
        argv += ["--speculative-config", json.dumps(dict(speculative_config))]
    with subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(200):
                with contextlib.suppress(urllib.error.URLError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                if server.poll() is not None:
                    raise SystemExit(f"the fake server ended with {server.returncode}")
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
