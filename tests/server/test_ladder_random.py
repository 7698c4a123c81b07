# SPDX-License-Identifier: Apache-2.0
"""The ladder under random sequences of failures: it ends, repeats nothing, and touches only what is asked for."""

from __future__ import annotations

import itertools
import shlex
from functools import lru_cache

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from jetson_specdec import Policy
from jetson_specdec.device import detect
from jetson_specdec.errors import StartFailed
from jetson_specdec.host import LocalHost
from jetson_specdec.logs import Diagnosis, diagnose
from jetson_specdec.logs.causes import REMEDIES, causes
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.planning.gather import Wishes, gather
from jetson_specdec.recipe.shell import parse_shell
from jetson_specdec.server import Started, climb
from jetson_specdec.testing import FakeStartFailed, FakeVllm, Memory

TARGET = "meta-llama/Llama-3.1-8B-Instruct"
GIVEN = '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 4}\''
TEXTS = (
    f"vllm serve {TARGET} --gpu-memory-utilization 0.80 --max-model-len 32768 --max-num-seqs 4\n",
    f"vllm serve {TARGET} --port 8000\n",
    f"vllm serve {TARGET} --gpu-memory-utilization 0.85 --max-num-seqs 16 {GIVEN}\n",
)
BY_HAND = {"upgrade_runtime", "change_image", "predownload", "accept_licence", "free_disk", "free_port"}
# What each kind of change may touch, in vLLM's words.
TOUCHES = {
    "utilization": {"--gpu-memory-utilization"},
    "max_model_len": {"--max-model-len", "--gpu-memory-utilization"},
    "max_num_seqs": {"--max-num-seqs"},
    "k": {"--speculative-config"},
}
# Which remedies a change may answer; the drafter and speculation itself may go for any.
_MEMORY = {"lower_utilization", "raise_utilization", "drop_caches", "reduce_max_model_len", "reduce_max_num_seqs"}
ANSWERS = {
    "utilization": _MEMORY,
    "max_model_len": _MEMORY,
    "max_num_seqs": {"reduce_max_num_seqs"},
    "k": {"reduce_k"},
    "retry": {"retry"},
}


@lru_cache(maxsize=64)
def situation(text, tries, device):
    recipe = parse_shell(text)
    return gather(
        recipe,
        recipe.commands[0],
        device=detect(LocalHost(), named=device, l4t="38.4.0" if "thor" in device else "39.0.0"),
        host=LocalHost(),
        catalog=Catalog.default(),
        wishes=Wishes(vllm_version="0.30.0"),
        policy=Policy(ladder_tries=tries),
    )


values = st.fixed_dictionaries(
    {},
    optional={
        "feasible_utilization": st.integers(0, 99).map(lambda n: n / 100),
        "requested_utilization": st.integers(1, 99).map(lambda n: n / 100),
        "kv_needed_gib": st.floats(0.1, 40),
        "kv_available_gib": st.floats(0.01, 20),
        "total_gib": st.sampled_from([61.4, 122.8]),
        "feasible_max_model_len": st.integers(-10, 60_000),
        "max_model_len": st.integers(1, 131_072),
        "num_seqs": st.integers(1, 1024),
        "inner_cause": st.sampled_from(["oom_warmup", "arch_unsupported"]),
    },
)


@st.composite
def diagnoses(draw):
    cause = draw(st.sampled_from(sorted(set(causes()) - {"none"})))
    usual = causes()[cause]["remedy"]
    return Diagnosis(
        started_ok=False,
        stage=causes()[cause]["stage"],
        cause=cause,
        # Mostly what is usual for the cause, sometimes anything.
        remedy=draw(st.sampled_from([usual, usual, *REMEDIES])),
        speculation_involved=draw(st.sampled_from([True, False, None])),
        values=draw(values),
    )


def up(plan):
    return Started(
        base_url="http://127.0.0.1:8000/v1", root_url="http://127.0.0.1:8000", model="m", run_id="1", log_path="1.log",
        ready_s=1.0, first_completion_s=0.1, first_completion_tokens=16,
    )  # fmt: skip


def flags_of(plan):
    """Return flag → value of a plan's own words."""
    words = shlex.split(plan.recipe.after)
    found, at = {}, 0
    while at < len(words):
        has_value = words[at].startswith("--") and at + 1 < len(words) and not words[at + 1].startswith("--")
        found[words[at]] = words[at + 1] if has_value else None
        at += 2 if has_value else 1
    return found


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(diagnoses(), min_size=1, max_size=12),
    st.sampled_from(TEXTS),
    st.integers(1, 9),
    st.sampled_from(["thor-t5000", "agx-orin-64gb"]),
    st.booleans(),
)
def test_any_sequence_of_failures(sequence, text, tries, device, starts_without):
    here = situation(text, tries, device)
    plans = []

    def start(plan):
        plans.append(plan)
        if len(plans) > len(sequence):
            return up(plan)
        found = sequence[len(plans) - 1]
        raise StartFailed("JSE932", diagnosis=found, log_path="x.log", cause=found.cause, remedy=found.remedy)

    done = climb(here, start, starts_without=starts_without)

    # It ends, and in time.
    assert 1 <= len(plans) == len(done.tries) <= tries
    assert (done.outcome == "started") == (done.cause is None)
    assert done.outcome != "stopped" or done.findings
    # Every try is a plan of the owner's recipe, kept with its diagnosis.
    assert {one.plan.recipe.before for one in done.tries} == {text}
    assert [one.diagnosis for one in done.tries if one.started is None] == sequence[
        : len(plans) - (done.started is not None)
    ]
    for before, after in itertools.pairwise(done.tries):
        action, remedy = after.rung.action, before.diagnosis.remedy
        one, other = flags_of(before.plan), flags_of(after.plan)
        changed = {name for name in {*one, *other} if one.get(name) != other.get(name)}
        # A person's part ends it at once.
        assert remedy not in BY_HAND
        # Nothing is changed that was not asked for.
        assert changed <= TOUCHES.get(action, changed), (action, changed)
        assert remedy in ANSWERS.get(action, {remedy}), (action, remedy)
        if action == "retry":
            assert not changed
        if action == "drop_speculation":
            assert after.plan.speculative_config is None
            assert after.setting.utilization in (0.92, 0.80, 0.85)  # as the owner wrote it, or the engine's default
            assert before.setting.speculates
        if action == "utilization":
            up_wanted = remedy in ("raise_utilization", "reduce_max_model_len")
            assert (after.setting.utilization > before.setting.utilization) is up_wanted
    # Nothing is started twice, but once more for what can pass by itself.
    kept = [one.plan.recipe.after for one in done.tries if one.rung is None or one.rung.action != "retry"]
    assert len(set(kept)) == len(kept)
    # Utilisation stays where it may be, wherever it is not the owner's own.
    total = here.device.memory_total_bytes
    for one in done.tries:
        written = flags_of(one.plan).get("--gpu-memory-utilization")
        if written is not None and written != flags_of(done.tries[0].plan).get("--gpu-memory-utilization"):
            assert written in text or 0 < float(written) <= 0.90
            assert total * (1 - float(written)) >= 2 * 2**30


# --- a memory as vLLM accounts for it ---------------------------------------------------------------------------------

LOADS = st.fixed_dictionaries(
    {
        "free": st.integers(15, 97).map(lambda n: n / 100),
        "model_gib": st.floats(8, 40),
        "draft_gib": st.floats(0.5, 6),
        "activations_gib": st.floats(0.5, 4),
        "kv_bytes_per_token": st.sampled_from([65_536, 135_168, 270_000]),
    }
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(LOADS, st.sampled_from([0.3, 0.5, 0.7, 0.8]), st.sampled_from([8192, 32_768, 65_536]))
def test_what_fits_is_found(load, utilization, length):
    total = 122.8
    memory = Memory(total_gib=total, free_gib=load.pop("free") * total, **load)

    def fits(value, tokens, draft):
        """By hand: what is asked for is free, and holds the weights, the activations and one sequence."""
        asked = value * total
        weights = memory.model_gib + draft * memory.draft_gib
        left = asked - weights - memory.activations_gib
        loads = weights <= memory.free_gib
        return asked <= memory.free_gib and loads and left > 0 and tokens * memory.kv_bytes_per_token <= left * 2**30

    assume(fits(utilization, length, draft=False))  # the recipe starts
    room = [n / 100 for n in range(1, 91) if fits(n / 100, 1024, draft=True)]
    text = f"vllm serve {TARGET} --gpu-memory-utilization {utilization} --max-model-len {length} --max-num-seqs 4\n"

    def start(plan):
        fake = FakeVllm(list(plan.serve_args), memory=memory, version="0.20.0")
        try:
            fake.prepare()
        except FakeStartFailed:
            found = diagnose(fake.log.text, exit_code=1)
            raise StartFailed(
                "JSE932", diagnosis=found, log_path="x.log", cause=found.cause, remedy=found.remedy
            ) from None
        return up(plan)

    done = climb(situation(text, 5, "thor-t5000"), start, starts_without=True)
    if not room:
        assert done.outcome != "started"
        return
    # At the edge of the window a hundredth more or less decides, and messages round to hundredths of a GiB.
    assert done.outcome == "started" or len(room) < 3
    if done.started is not None and any(fits(n / 100, length, draft=True) for n in range(1, round(utilization * 100))):
        # What fits inside the owner's own utilisation costs no context.
        assert done.tries[-1].setting.max_model_len == length or done.tries[-1].setting.max_model_len > 0.9 * length
