# SPDX-License-Identifier: Apache-2.0
import json
import re
from importlib import resources

import pytest

from jetson_specdec import messages

PACKAGE = resources.files("jetson_specdec")


def texts():
    return json.loads(PACKAGE.joinpath("messages/en/measure.json").read_text(encoding="utf-8"))


def used(kind):
    rooms = [PACKAGE.joinpath(room) for room in ("measurements", "measurements/readers", "gate")]
    files = [file for room in rooms for file in room.iterdir() if file.name.endswith(".py")]
    files.append(PACKAGE.joinpath("logs/metrics.py"))
    found = set()
    for file in files:
        found |= set(re.findall(kind, file.read_text(encoding="utf-8")))
    return found


def test_every_code_that_is_used_has_a_text_and_an_explanation():
    codes = used(r"\bJSD6\d\d\b")
    assert codes
    for code in codes:
        assert messages.code_info(code)["topic"]
        assert texts()[code]["message"]
        assert texts()[code]["explain"]
    assert used(r"\bJSE6\d\d\b") <= set(texts())


def test_every_step_has_a_text():
    kinds = used(r'Step\.of\("([a-z-]+)"')
    assert kinds
    steps = json.loads(PACKAGE.joinpath("messages/en/steps.json").read_text(encoding="utf-8"))
    assert kinds <= set(steps)


@pytest.mark.parametrize("code", sorted(texts()))
def test_texts_render_in_one_line_even_without_values(code):
    text = messages.render(code, {})
    assert text
    assert "\n" not in text
