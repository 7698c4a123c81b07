# SPDX-License-Identifier: Apache-2.0
"""Every cause of a failed start, with processes of the stand-ins: its name, how far the start came, what to do."""

from __future__ import annotations

import pytest

from jetson_specdec.errors import StartFailed
from jetson_specdec.host import CommandResult
from jetson_specdec.logs.causes import REMEDIES, STAGES, causes

SPEC = """--speculative-config '{"method": "eagle3", "model": "org/m-eagle3", "num_speculative_tokens": 3}'"""
IMAGE = "vllm/vllm-openai:v0.30.0"

# Written by hand from the table of causes: failure → stage, first remedy, whether speculation is involved (None where
# the log does not tell).
ENGINE = {
    "spec_config_quoting": ("arguments", "fix_quoting", True),
    "spec_config_unknown_key": ("config", "fix_config", True),
    "spec_config_invalid_value": ("config", "fix_config", True),
    "flag_unrecognized": ("arguments", "fix_config", False),
    "flag_invalid_value": ("config", "fix_config", False),
    "method_unsupported:no_layers": ("config", "drop_speculation", True),
    "target_unsupported": ("config", "drop_speculation", True),
    "draft_load_failed": ("load", "drop_speculation", True),
    "target_load_failed": ("load", "upgrade_runtime", False),
    "vocab_mismatch": ("config", "other_draft", True),
    "memory_precheck": ("load", "lower_utilization", False),
    "kv_cache_none": ("kv_cache", "raise_utilization", True),
    "kv_cache_too_small": ("kv_cache", "reduce_max_model_len", True),
    "does_not_fit": ("kv_cache", "drop_speculation", True),
    "oom_load:draft": ("load", "drop_speculation", True),
    "oom_warmup": ("warmup", "lower_utilization", True),
    "driver_oom:kernel": ("kv_cache", "lower_utilization", True),
    "host_oom_killed": ("load", "lower_utilization", None),
    "watchdog_stopped": ("load", "lower_utilization", True),
    "memory_profiling_race": ("kv_cache", "retry", False),
    "hub_unreachable": ("download", "predownload", None),
    "hub_gated": ("download", "accept_licence", False),
    "hub_missing": ("download", "drop_speculation", True),
    "arch_unsupported": ("kv_cache", "upgrade_runtime", False),
    "model_arch_unsupported:draft": ("config", "drop_speculation", True),
    "runtime_mismatch": ("load", "change_image", False),
    "package_missing": ("config", "change_image", True),
    "start_timeout": ("load", "set_environment", None),
    "first_request_failed": ("first_request", "drop_speculation", True),
    "engine_failed": ("kv_cache", "drop_speculation", None),
}
DOCKER = {
    "container_runtime": ("container", "none", False),
    "container_name_taken": ("container", "fix_config", False),
    "image_missing": ("container", "change_image", False),
    "port_in_use": ("container", "free_port", False),
    "disk_full": ("container", "free_disk", False),
}


def cause_of(name):
    return name.partition(":")[0]


def test_every_cause_is_here():
    assert sorted([*map(cause_of, [*ENGINE, *DOCKER]), "none"]) == sorted(causes())
    assert {row[0] for row in (*ENGINE.values(), *DOCKER.values())} <= set(STAGES)
    assert {row[1] for row in (*ENGINE.values(), *DOCKER.values())} <= set(REMEDIES)


@pytest.fixture
def board(tools, tmp_path, fake):
    """A machine whose memory and kernel log are what the fake server makes of them; and the fake's description."""

    class Board(tools["MemoryHost"]):
        def read_text(self, path, *, limit=1 << 20):
            if path == "/proc/meminfo" and (tmp_path / "meminfo").exists():
                return (tmp_path / "meminfo").read_text()
            return super().read_text(path, limit=limit)

        def run(self, argv, *, timeout=10.0):
            if list(argv) != ["dmesg"]:
                return None
            told = "[    1.000000] Linux version 6.8\n" + (
                (tmp_path / "kernel.log").read_text() if (tmp_path / "kernel.log").exists() else ""
            )
            return CommandResult(argv=tuple(argv), stdout=told, exit_code=0)

    def describe(name, **more):
        files = {"kernel_log": str(tmp_path / "kernel.log"), "meminfo": str(tmp_path / "meminfo")}
        fake(start_failure=name, **files, **more)
        return Board()

    return describe


def failed(server, text, host, **options):
    one = server(text, host=host, settle_s=0.3, **options)
    with pytest.raises(StartFailed) as caught:
        one.start()
    assert not one.running
    found = caught.value.diagnosis
    assert found.started_ok is False
    assert found.cause in str(caught.value)
    assert found.findings[0].message
    return one, found


@pytest.mark.parametrize("name", ENGINE)
def test_an_engine_that_fails(server, port, board, marked, name):
    host = board(name, version="0.32.0")
    patience = {"start_timeout_s": 1.0} if name == "start_timeout" else {}
    one, found = failed(server, f"vllm serve org/m --port {port} --max-model-len 8192 {SPEC}\n", host, **patience)
    assert (found.cause, found.stage, found.remedy, found.speculation_involved) == (cause_of(name), *ENGINE[name])
    assert found.evidence
    assert found.next_steps
    assert not marked(one.run_id)
    if name == "watchdog_stopped":  # what it saw is told; the fake leaves 64 MiB
        assert (found.values["available_bytes"], found.values["floor_bytes"]) == (64 * 2**20, 2**30)
    elif name == "host_oom_killed":
        assert any("Killed process" in proof.text for proof in found.evidence)
    elif name == "start_timeout":  # it was our patience that ended
        assert [(step.kind, step.values) for step in found.next_steps] == [("start-longer", {"seconds": 1.0})]


@pytest.mark.parametrize("name", DOCKER)
def test_a_container_that_docker_refuses(server, port, board, name):
    host = board(name)
    text = f"docker run --rm --name llm -p {port}:8000 {IMAGE} --model org/m {SPEC}\n"
    _, found = failed(server, text, host)
    assert (found.cause, found.stage, found.remedy, found.speculation_involved) == (name, *DOCKER[name])
    assert found.evidence
    assert found.next_steps


def test_what_docker_refuses_can_be_the_engines_too(server, port, board):
    _, found = failed(server, f"vllm serve org/m --port {port}\n", board("disk_full"))
    assert (found.cause, found.stage, found.remedy) == ("disk_full", "download", "free_disk")
    assert found.speculation_involved is False


def test_a_failure_inside_a_container(server, daemon, port, board, ask):
    text = f"docker run --rm --name llm -p {port}:8000 vllm/vllm-openai:v0.12.0 --model org/m {SPEC}\n"
    # SIGKILL inside is exit code 137 outside, and nothing in the log.
    one, found = failed(server, text, board("host_oom_killed"))
    assert (found.cause, found.remedy) == ("host_oom_killed", "lower_utilization")
    # The release of the tag is the one that runs.
    assert "(EngineCore_DP0 pid=" in one.log_path.read_text()
    assert ask(do="list")["containers"] == []


def test_a_failure_of_a_unit(server, daemon, port, board, programs, tmp_path):
    (daemon / "units").mkdir()
    unit = daemon / "units" / "llm.service"
    unit.write_text(f"[Service]\nExecStart={programs}/vllm serve org/m --port {port} {SPEC}\nRestart=on-failure\n")
    _, found = failed(server, unit, board("kv_cache_none"))
    assert (found.cause, found.stage, found.remedy) == ("kv_cache_none", "kv_cache", "raise_utilization")


def test_a_first_request_tells_its_inner_cause(server, port, board):
    _, found = failed(server, f"vllm serve org/m --port {port} {SPEC}\n", board("first_request_failed:memory"))
    assert (found.cause, found.remedy) == ("first_request_failed", "lower_utilization")
    assert found.values["inner_cause"] == "oom_warmup"


def test_a_failure_only_with_speculation(server, port, board):
    host = board("kv_cache_none", fails_when="speculating")
    with server(f"vllm serve org/m --port {port}\n", host=host) as one:
        assert one.running
    _, found = failed(server, f"vllm serve org/m --port {port} {SPEC}\n", host)
    assert found.cause == "kv_cache_none"
