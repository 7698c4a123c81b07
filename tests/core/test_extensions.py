# SPDX-License-Identifier: Apache-2.0
"""Plug-ins by entry point: used when good, named and skipped when broken; policy files."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

import jetson_specdec
from jetson_specdec import Finding, Planner, Proposal, RecordedHost, Refusal, detect, extensions
from jetson_specdec.device import Evidence, Observation
from jetson_specdec.errors import PluginError, PolicyError

THOR = {"device": "thor-t5000", "l4t": "38.4.0"}
NO_HEAD = "vllm serve mistralai/Mistral-7B-Instruct-v0.3 --gpu-memory-utilization 0.7\n"
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2}


class Ngram:
    name = "ngram"
    priority = 100

    def propose(self, situation):
        if situation.concurrency > 1:
            return Refusal(strategy=self.name, reason=Finding.of("JSD531", concurrency=2, limit=1))
        return Proposal(strategy=self.name, config=NGRAM)


class NotAStrategy:
    """Has no propose."""


class Entry:
    def __init__(self, name, target):
        self.name, self._target = name, target

    def load(self):
        if isinstance(self._target, Exception):
            raise self._target
        return self._target


@pytest.fixture
def registered(monkeypatch):
    def register(*entries, group=extensions.STRATEGIES):
        wanted = group

        def entry_points(*, group):
            return list(entries) if group == wanted else []

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
        extensions.load_plugins.cache_clear()

    yield register
    extensions.load_plugins.cache_clear()


def test_a_registered_strategy_is_asked_by_priority(registered):
    registered(Entry("ngram", Ngram))
    made = Planner().plan(NO_HEAD, **THOR)
    assert made.outcome == "ngram"
    assert made.speculative_config == NGRAM
    assert made.utilization.after == 0.65
    assert set(made.rejected) == {"eagle3", "draft_model"}
    assert Planner().plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.7\n", **THOR).outcome == "eagle3"


def test_its_refusal_passes_to_the_next(registered):
    registered(Entry("ngram", Ngram))
    made = Planner().plan(NO_HEAD, concurrency=2, **THOR)
    assert made.outcome == "none"
    assert "ngram" in made.rejected


@pytest.mark.parametrize("target", [ImportError("no module named gone"), NotAStrategy, RuntimeError("boom")])
def test_a_broken_plugin_is_named_and_skipped(registered, target):
    registered(Entry("theirs", target), Entry("ngram", Ngram))
    made = Planner().plan(NO_HEAD, **THOR)
    assert made.outcome == "ngram"
    broken = next(finding for finding in made.findings if finding.topic == "plugin-broken")
    assert "theirs" in broken.message


def test_an_answer_of_the_wrong_kind_is_an_error_by_name():
    class Wrong(Ngram):
        def propose(self, situation):
            return {"method": "ngram"}

    with pytest.raises(PluginError, match="'ngram'"):
        Planner(strategies=[Wrong()]).plan(NO_HEAD, **THOR)


def test_a_proposal_the_release_would_reject_is_not_taken():
    class Unknown(Ngram):
        def propose(self, situation):
            return Proposal(strategy=self.name, config={"method": "dspark", "num_speculative_tokens": 3})

    made = Planner(strategies=[Unknown()]).plan(NO_HEAD, vllm_version="0.20.0", **THOR)
    assert made.outcome == "none"
    assert "ngram" in made.rejected
    assert made.recipe.after == made.recipe.before


class Kiosk:
    """A detector for boards that a company marks with a file of its own."""

    name = "kiosk"
    priority = 90

    def detect(self, host):
        found = Observation(name="module", value="thor-t5000", source="/etc/kiosk")
        family = Observation(name="family", value="thor", source="/etc/kiosk")
        return Evidence(observations=(found, family) if host.kind("/etc/kiosk") == "file" else ())


@pytest.fixture
def kiosk(tmp_path):
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "kiosk").touch()
    return RecordedHost(tmp_path)


def test_a_registered_detector_is_asked_beside_the_built_in_ones(registered, kiosk):
    assert detect(kiosk).module is None
    registered(Entry("kiosk", Kiosk), group=extensions.DETECTORS)
    assert detect(kiosk).module == "thor-t5000"
    assert Planner(host=kiosk).plan(NO_HEAD).device.module == "thor-t5000"
    assert detect(kiosk, detectors=()).module is None, "what is named replaces the plug-ins too"


@pytest.mark.parametrize("target", [ImportError("no module named gone"), NotAStrategy])
def test_a_broken_detector_is_named_even_where_there_is_no_jetson(registered, tmp_path, target):
    (tmp_path / "root" / "proc").mkdir(parents=True)
    (tmp_path / "root" / "proc" / "cpuinfo").write_text("vendor_id\t: GenuineIntel\n")
    registered(Entry("theirs", target), group=extensions.DETECTORS)
    device = detect(RecordedHost(tmp_path))
    assert device.is_jetson is False
    assert [finding.values["name"] for finding in device.findings if finding.topic == "plugin-broken"] == ["theirs"]


@pytest.mark.parametrize("text", ["[policy]\nutilization_step = 0.1\n", "utilization_step = 0.1\n"])
def test_a_policy_file_changes_thresholds(tmp_path, text):
    file = tmp_path / "policy.toml"
    file.write_text(text)
    assert extensions.load_policy(file).utilization_step == 0.1
    assert extensions.load_policy(None).utilization_step == 0.05


@pytest.mark.parametrize(
    "text",
    [
        "utilization_step = 7\n",
        "utilisation_step = 0.1\n",
        "start_k_thor = 2.5\n",
        "start_k_thor = true\n",
        "disable_throughput_gain = 0.9\n",
        "policy = 3\n",
        "not toml at all",
    ],
)
def test_bad_policy_files_are_one_clear_error(tmp_path, text):
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(PolicyError) as caught:
        extensions.load_policy(file)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


ASK = """
import json, sys
sys.path[:0] = [sys.argv[1], *sys.argv[2].split("|")]
from jetson_specdec.extensions import STRATEGIES, load_plugins
loaded, skipped = load_plugins(STRATEGIES)
print(json.dumps([[name for name, _ in loaded], len(skipped), "importlib.metadata" in sys.modules]))
"""


def _asked(place):
    source = str(Path(jetson_specdec.__file__).parents[1])
    paths = "|".join([source, str(Path(attrs.__file__).parents[1])])
    done = subprocess.run([sys.executable, "-I", "-S", "-c", ASK, str(place), paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _installed(place, folder, group):
    (place / folder).mkdir(parents=True)
    (place / folder / "entry_points.txt").write_text(f"[{group}]\nngram = theirs:STRATEGY\n")
    (place / folder / ("PKG-INFO" if folder.endswith("egg-info") else "METADATA")).write_text(
        "Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n"
    )
    (place / "theirs.py").write_text("STRATEGY = 'a strategy'\n")


@pytest.mark.parametrize("folder", ["theirs-1.0.dist-info", "theirs.egg-info"])
def test_what_is_installed_is_found(tmp_path, folder):
    _installed(tmp_path, folder, extensions.STRATEGIES)
    assert _asked(tmp_path) == [["ngram"], 0, True]


def test_what_is_in_an_archive_is_found(tmp_path):
    _installed(tmp_path / "in", "theirs-1.0.dist-info", extensions.STRATEGIES)
    archive = shutil.make_archive(str(tmp_path / "theirs"), "zip", tmp_path / "in")
    assert _asked(archive) == [["ngram"], 0, True]


def test_where_nothing_is_registered_nothing_heavy_is_asked(tmp_path):
    _installed(tmp_path, "theirs-1.0.dist-info", "console_scripts")
    (tmp_path / "none-1.0.dist-info").mkdir()
    (tmp_path / "file-1.0.dist-info").touch()
    assert _asked(tmp_path) == [[], 0, False]
