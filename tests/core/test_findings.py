# SPDX-License-Identifier: Apache-2.0
"""Findings, steps and the catalogue their texts come from."""

from __future__ import annotations

import pytest

from jetson_specdec import Finding, Severity, Step, messages
from jetson_specdec.findings import blocking, most_severe_first, worst

NOTE = Finding.of("JSD576", severity=Severity.INFO, repo="a/note")
WARNING = Finding.of("JSD576", severity=Severity.WARNING, repo="a/warning")
OBSTACLE = Finding.of("JSD576", severity=Severity.BLOCKING, repo="an/obstacle")


def test_a_finding_takes_topic_severity_and_source_from_the_catalogue():
    info = messages.code_info("JSD510")
    found = Finding.of("JSD510", utilization=0.95)
    assert (found.topic, found.severity, found.source) == (info["topic"], info["severity"], info["source"])
    given = Finding.of("JSD510", severity=Severity.INFO, source="here")
    assert (given.severity, given.source) == (Severity.INFO, "here")


def test_a_code_that_nobody_catalogued_is_an_error():
    with pytest.raises(KeyError):
        Finding.of("JSD999")


@pytest.mark.parametrize("found", [(NOTE, WARNING, OBSTACLE), (OBSTACLE, NOTE, WARNING)])
def test_obstacles_come_first_and_decide(found):
    assert most_severe_first(found) == (OBSTACLE, WARNING, NOTE)
    assert worst(found) is Severity.BLOCKING
    assert blocking(found)


def test_equal_findings_keep_their_order_and_nothing_is_not_an_obstacle():
    other = Finding.of("JSD576", severity=Severity.INFO, repo="another/note")
    assert most_severe_first((other, NOTE)) == (other, NOTE)
    assert worst(()) is None
    assert not blocking((NOTE, WARNING))


def test_the_json_of_a_finding_and_of_a_step_says_everything():
    assert OBSTACLE.to_json() == {
        "code": "JSD576",
        "topic": OBSTACLE.topic,
        "severity": "blocking",
        "message": OBSTACLE.message,
        "values": {"repo": "an/obstacle"},
        "source": OBSTACLE.source,
    }
    step = Step.of("pin-image", command="docker pull x", image="x")
    assert step.to_json() == {
        "kind": "pin-image",
        "text": step.text,
        "values": {"image": "x"},
        "command": "docker pull x",
    }
    assert "x" in step.text


@pytest.fixture
def catalogue(monkeypatch):
    """A catalogue that holds one template, under `said`."""

    def with_template(text):
        monkeypatch.setattr(messages, "_entry", lambda key, lang: {"message": text} if key == "said" else {})

    return with_template


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("{x:gib}", 3 * 2**29, "1.5 GiB"),
        ("{x:mib}", 3 * 2**20, "3 MiB"),
        ("{x:pct}", 0.125, "12.5 %"),
        ("{x:list}", ["a", "b"], "a, b"),
        ("{x:list}", [], "none"),
        ("{x:or}", ["a", "b", "c"], "a, b or c"),
        ("{x:or}", ["a"], "a"),
        ("{x:n start}", 1, "1 start"),
        ("{x:n start}", 0, "0 starts"),
        ("{x:n launch|launches}", 1, "1 launch"),
        ("{x:n launch|launches}", 3, "3 launches"),
        ("{x:n start}", None, "unknown"),
        ("{x:.2f}", 1.005, "1.00"),
        ("{x}", None, "unknown"),
        ("{x:gib}", None, "unknown"),
        ("{x!r}", "a", "'a'"),
    ],
)
def test_values_are_shown_in_their_units(catalogue, template, value, text):
    catalogue(template)
    assert messages.render("said", {"x": value}) == text


def test_a_value_that_is_missing_is_unknown_and_a_text_that_is_missing_loses_nothing(catalogue):
    catalogue("{x}, {y}")
    assert messages.render("said", {"x": 1}) == "1, unknown"
    assert messages.render("nobody-said", {"x": 1}) == "nobody-said (x=1)"
    assert messages.render("nobody-said") == "nobody-said"


def test_a_language_that_lacks_a_text_falls_back_to_english():
    assert messages.render("JSD505", lang="xx") == messages.render("JSD505")
