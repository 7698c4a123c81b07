# SPDX-License-Identifier: Apache-2.0
"""When a server is ready: `/health` and `/v1/models` answer, and a first completion has come back.

A pair that does not fit can answer `/health` and die at its first request with exit code 0, so only a generated token
counts.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jetson_specdec.errors import ServerError
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.server.address import Address

__all__ = ["FirstAnswer", "NotReady", "first_completion", "probe", "wait_until_up"]

PROMPT = "Count slowly from one to ten: one, two, three,"
TOKENS = 16
"""Enough for several rounds of drafting and verification, not only for the prefill."""


class NotReady(Exception):  # noqa: N818 - it says what is, and is caught in this room
    """The server does not answer yet, or not like this; `reason` says how."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


@frozen(kw_only=True)
class FirstAnswer:
    """The first completion.

    Attributes:
        model: the name it was asked for under.
        completion_tokens: tokens it generated, as the server counts them.
        text: what it said.
    """

    model: str
    completion_tokens: int
    text: str


def _request(address: Address, path: str, *, body: Any = None, timeout: float) -> bytes:
    headers = {"Content-Type": "application/json"}
    if address.api_key is not None:
        headers["Authorization"] = f"Bearer {address.api_key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address.root_url + path, data=data, headers=headers)
    context = None
    if address.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False  # the server is ours and on this machine; its certificate names another host
        context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        *([urllib.request.HTTPSHandler(context=context)] if context is not None else []),
    )
    try:
        with opener.open(request, timeout=timeout) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        with error:
            shown = error.read(500).decode("utf-8", errors="replace")
        raise NotReady(f"{path}: HTTP {error.code} {shown}".strip(), error.code) from None
    except (OSError, ValueError) as error:
        raise NotReady(f"{path}: {getattr(error, 'reason', None) or error}") from None
    except Exception as error:  # http.client's own: a connection that is closed in the middle of an answer
        raise NotReady(f"{path}: {type(error).__name__}") from None


def probe(address: Address, *, timeout: float = 5.0) -> str:
    """Return the name the model is served under.

    Raises:
        NotReady: `/health` or `/v1/models` does not answer, or lists nothing.
    """
    _request(address, "/health", timeout=timeout)
    try:
        listed = [str(item["id"]) for item in json.loads(_request(address, "/v1/models", timeout=timeout))["data"]]
    except (ValueError, KeyError, TypeError):
        raise NotReady("/v1/models: not the answer of an OpenAI-compatible server") from None
    if not listed:
        raise NotReady("/v1/models: no model")
    if address.model is not None and address.model in listed:
        return address.model
    return listed[0]


def wait_until_up(
    address: Address, *, check: Callable[[], None], timeout_s: float, interval_s: float = 0.25
) -> str | None:
    """Wait until the server is up; return the served name, or None when the time is over.

    Args:
        address: where.
        check: called before each try; raises what ends the waiting.
        timeout_s: how long.
        interval_s: seconds between tries.

    Raises:
        ServerError: it answers, but refuses the key of the recipe (JSE934).
    """
    from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

    def attempt() -> str:
        check()
        try:
            return probe(address)
        except NotReady as error:
            if error.status in (401, 403):
                raise ServerError("JSE934", base_url=address.base_url) from None
            raise

    try:
        return Retrying(
            retry=retry_if_exception_type(NotReady), stop=stop_after_delay(timeout_s), wait=wait_fixed(interval_s)
        )(attempt)
    except RetryError:
        return None


def first_completion(address: Address, model: str, *, timeout: float) -> FirstAnswer:
    """Ask for a few tokens, so that drafting and verification run.

    Raises:
        NotReady: no token came back.
    """
    common = {"model": model, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    try:
        raw = _request(address, "/v1/completions", body={**common, "prompt": PROMPT}, timeout=timeout)
    except NotReady as error:
        if error.status not in (404, 405):
            raise
        messages = [{"role": "user", "content": PROMPT}]
        raw = _request(address, "/v1/chat/completions", body={**common, "messages": messages}, timeout=timeout)
    try:
        answer = json.loads(raw)
        choice = answer["choices"][0]
        text = choice.get("text") or (choice.get("message") or {}).get("content") or ""
        tokens = int((answer.get("usage") or {}).get("completion_tokens") or 0)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise NotReady("the first completion was no completion") from None
    if tokens < 1 and not text:
        raise NotReady("the first completion held no token")
    return FirstAnswer(model=model, completion_tokens=tokens, text=text)
