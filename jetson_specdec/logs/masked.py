# SPDX-License-Identifier: Apache-2.0
"""Secrets out of a line of a log: what recipes can hold, and how engines and shells print it.

vLLM prints its keys as a list among the arguments; a misspelt flag comes back with its value; quoting that went wrong
leaves a JSON without quotes.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["masked"]

_MASK = "***"


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], ...]:
    name = r"(?:api_?keys?|hf_?token|auth_?token|access_?token|password|passwd|secret)"
    return (
        # 'api_key': ['a', 'b'], api_key=['a'], "hf_token": "x"
        re.compile(rf"(?i)(\b{name}\b['\"]?\s*[:=]\s*)(?!None\b|\*\*\*)(?:\[[^\]\n]*\]?|'[^'\n]*'?|\"[^\"\n]*\"?)"),
        # {{token:x,hf_token:y}}
        re.compile(rf"(?i)([{{,\s](?:{name}|token)\s*[:=]\s*)(?!None\b|\*\*\*|['\"\[{{]|\d+\b)([^\s,}}\])'\"]+)"),
        # --api-keys x, --hf-tokn=x: a flag that nearly is one of these
        re.compile(r"(?i)(--[\w-]*(?:key|tok|secret|passw)[\w-]*[ =])(?!-|\*\*\*)(\S+)"),
    )


def masked(text: str) -> str:
    """Return a text with its secrets as `***`."""
    from jetson_specdec.recipe.masking import redact

    for pattern in _patterns():
        text = pattern.sub(rf"\g<1>{_MASK}", text)
    return redact(text)[0]
