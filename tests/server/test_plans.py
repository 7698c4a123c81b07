# SPDX-License-Identifier: Apache-2.0
"""Running a plan's text, and climbing with real starts; the owner's files stay as they are."""

from __future__ import annotations

import json

import pytest

from jetson_specdec import Planner
from jetson_specdec.device import detect
from jetson_specdec.errors import LaunchError, StartFailed
from jetson_specdec.host import LocalHost
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.planning.gather import Wishes, gather
from jetson_specdec.recipe.load import load_recipe
from jetson_specdec.server import climb

TARGET = "meta-llama/Llama-3.1-8B-Instruct"


def plan_of(path):
    plan = Planner().plan(path, device="thor-t5000", l4t="38.4.0", vllm_version="0.20.0")
    assert plan.speculative_config is not None
    return plan


def test_a_plan_is_run_without_touching_the_recipe(server, tmp_path, port):
    path = tmp_path / "serve.sh"
    path.write_text(f"vllm serve {TARGET} --gpu-memory-utilization 0.8 --port {port}\n")
    before = path.read_bytes()
    with server(plan_of(path)) as one:
        log = one.log_path.read_text()
        assert "'num_speculative_tokens': 5" in log
        assert "'gpu_memory_utilization': 0.75" in log
    assert path.read_bytes() == before


def test_a_planned_config_file_is_run_from_a_copy(server, tmp_path, port, environ, programs):
    config = tmp_path / "vllm.yaml"
    config.write_text(f"port: {port}\ngpu-memory-utilization: 0.8\n")
    path = tmp_path / "serve.sh"
    path.write_text(f"vllm serve {TARGET} --config vllm.yaml\n")
    plan = plan_of(path)
    assert [change.path for change in plan.files] == [str(config)]
    one = server(plan)
    (copy,) = [target for target in one.launch.files if target.endswith("vllm.yaml")]
    assert one.launch.files[copy] == plan.files[0].after
    assert "gpu-memory-utilization: 0.75" in one.launch.files[copy]
    assert f"--config {copy}" in one.launch.argv[2]
    assert one.address.port == port
    assert config.read_text() == f"port: {port}\ngpu-memory-utilization: 0.8\n"


def test_a_planned_config_file_inside_a_container_has_to_be_written_first(server, tmp_path):
    config = tmp_path / "vllm.yaml"
    config.write_text("gpu-memory-utilization: 0.8\n")
    path = tmp_path / "serve.sh"
    image = "vllm/vllm-openai:v0.20.0"
    path.write_text(f"docker run -v {tmp_path}:/c --network host {image} --model {TARGET} --config /c/vllm.yaml\n")
    plan = plan_of(path)
    assert plan.files
    with pytest.raises(LaunchError) as caught:
        server(plan)
    assert caught.value.code == "JSE911"


def test_climbing_with_real_starts(server, tmp_path, port, fake, host):
    """The engine finds 40 of 61.4 GiB free: 0.75 is too much, 0.65 is what it says would do."""
    fake(memory={"total_gib": 61.4, "free_gib": 40.0})
    path = tmp_path / "serve.sh"
    path.write_text(f"vllm serve {TARGET} --gpu-memory-utilization 0.80 --max-model-len 8192 --port {port}\n")
    recipe = load_recipe(path)
    known = gather(
        recipe,
        recipe.commands[0],
        device=detect(LocalHost(), named="thor-t5000", l4t="38.4.0"),
        host=LocalHost(),
        catalog=Catalog.default(),
        wishes=Wishes(vllm_version="0.20.0"),
    )
    running = []

    def start(plan):
        one = server(plan)
        started = one.start()
        running.append(one)
        return started

    done = climb(known, start)
    assert done.outcome == "started"
    assert [one.setting.utilization for one in done.tries] == [0.75, 0.65]  # 40 / 61.4, rounded down
    assert done.tries[0].diagnosis.cause == "memory_precheck"
    assert "0.65" in running[0].log_path.read_text()
    running[0].stop()
    assert "0.80" in path.read_text()
    json.dumps(done.to_json())


def test_a_failed_start_in_a_with_block_puts_back_what_it_took_down(server, environ, daemon, port, ask, tools):
    image = "vllm/vllm-openai:v0.20.0"
    argv = ["vllm", "serve", "org/old", "--port", str(port)]
    ask(do="run", name="llm", argv=argv, env=environ, image=image, ports=[f"{port}:8000"])
    text = f"docker run --rm --name llm -p {port}:8000 {image} org/m --no-such-flag"
    with pytest.raises(StartFailed), server(text, replace=True):
        pass
    (back,) = ask(do="list")["containers"]
    assert (back["name"], back["running"]) == ("llm", True)
