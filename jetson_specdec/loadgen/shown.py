# SPDX-License-Identifier: Apache-2.0
"""What of addresses and servers' own words may be shown: secrets masked."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl, urlsplit, urlunsplit

__all__ = ["address", "said", "secrets_in"]

_MASK = "***"
_LONGEST = 1000


def said(text: str, secrets: Iterable[str | None] = ()) -> str:
    """Return a server's words with secrets masked; very long ones end early.

    Args:
        text: such as the message of an error.
        secrets: known ones, masked wherever they stand; None and empty ones are ignored.
    """
    from jetson_specdec.recipe.masking import redact

    known = [secret for secret in secrets if secret]
    for secret in known:
        text = text.replace(secret, _MASK)
    return redact(text[:_LONGEST], known)[0]


def address(url: str) -> str:
    """Return a URL without the name, password and keys in it."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        user, at, host = parts.netloc.rpartition("@")
    except ValueError:
        user, at, host, parts = "", "", "", None
    shown = url
    if at and parts is not None:
        shown = urlunsplit((parts.scheme, f"{_MASK}@{host}", parts.path, parts.query, parts.fragment))
        shown = shown if "://" in url else shown.removeprefix("//")
    return said(shown, [user, *secrets_in(url)])


def secrets_in(url: str) -> tuple[str, ...]:
    """Return the password and the keys that stand in a URL."""
    from jetson_specdec.recipe.masking import is_secret_name

    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        password = parts.password
        query = parse_qsl(parts.query)
    except ValueError:
        return ()
    return tuple(value for value in (password, *(v for name, v in query if is_secret_name(name))) if value)
