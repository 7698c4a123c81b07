# SPDX-License-Identifier: Apache-2.0
"""One server, reached through the `openai` client: sends a request, notes what arrives when, and nothing else.

The client's raw streaming response is used, received as `receiving` says: parsing chunks into objects costs several
times as much, on a board that shares its processor with the server that is being measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from attrs import define, field

from jetson_specdec.errors import EndpointError
from jetson_specdec.loadgen.connection import Connection
from jetson_specdec.loadgen.prompts import Prompt
from jetson_specdec.loadgen.receiving import ARRIVALS, Arrivals
from jetson_specdec.loadgen.shown import address, said, secrets_in
from jetson_specdec.loadgen.stream import Piece
from jetson_specdec.values import frozen

__all__ = ["Api", "Client", "Reception", "normal_url"]

Api = Literal["chat", "completions"]


def normal_url(url: str) -> tuple[str, str]:
    """Return the base URL for an OpenAI client (ending in `/v1` where no path is given) and the server's root.

    Raises:
        EndpointError: it is not an http or https URL.
    """
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise EndpointError("JSE661", url=address(url))
    path = parts.path.rstrip("/")
    for tail in ("/chat/completions", "/completions", "/models"):
        path = path.removesuffix(tail)
    path = path or "/v1"
    base = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    return base, urlunsplit((parts.scheme, parts.netloc, path.removesuffix("/v1"), "", ""))


@frozen(kw_only=True)
class Reception:
    """What came back for one request.

    Attributes:
        sent: when it was sent, on the connection's clock, seconds.
        ended: when its last byte came, or when it failed, on the same clock.
        pieces: bytes and their arrival since then.
        failure: what went wrong on the way, without secrets; None if nothing did.
        status: of an HTTP error.
    """

    sent: float
    ended: float
    pieces: list[Piece] = field(repr=False)
    failure: str | None = None
    status: int | None = None


@define(kw_only=True)
class Client:
    """The requests of one benchmark.

    Attributes:
        base_url: as given.
        connection: the way to it.
        api: which endpoint to ask.
        api_key: sent as a bearer token; never shown.
        verify: whether to check the certificate, or a file with the authority that signed it.
        timeout_s: without a byte.
        temperature, seed, ignore_eos, extra_body: go into each request.
        include_usage: ask the server to count tokens.
    """

    base_url: str
    connection: Connection
    api: Api = "chat"
    api_key: str | None = field(default=None, repr=False)
    verify: bool | str = True
    timeout_s: float = 600.0
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = False
    extra_body: Mapping[str, Any] = field(factory=dict)
    include_usage: bool = True
    model: str | None = None
    _root: str = field(init=False, default="")
    _openai: Any = field(init=False, default=None, repr=False)
    _http: Any = field(init=False, default=None, repr=False)

    async def open(self) -> None:
        """Make the HTTP client, in the running loop.

        Raises:
            EndpointError: the URL is none, or the certificate authority cannot be read.
        """
        import ssl

        from openai import AsyncOpenAI

        base, self._root = normal_url(self.base_url)
        verify: Any = self.verify
        if isinstance(verify, str):
            try:
                verify = ssl.create_default_context(cafile=verify)
            except (OSError, ssl.SSLError) as error:
                raise EndpointError("JSE662", path=self.verify, reason=str(error)) from error
        self._http = self.connection.http_client(verify=verify, timeout=self.timeout_s)
        # The client insists on a key; servers without one ignore it. Its own retries would hide failures.
        self._openai = AsyncOpenAI(
            base_url=base, api_key=self.api_key or "none", http_client=self._http, max_retries=0, timeout=self.timeout_s
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._openai is not None:
            await self._openai.close()

    async def find_model(self) -> str:
        """Return the name of the model to ask for; the server's first where none was given.

        Raises:
            EndpointError: the server cannot be reached, refuses the key, or serves something else.
        """
        import openai

        try:
            page = await self._openai.models.list()
            served = [str(model.id) for model in page.data]
        except openai.APIStatusError as error:
            if error.status_code == 404 and self.model:
                return self.model  # a server without a list of models
            raise EndpointError("JSE664", url=address(self.base_url), status=error.status_code) from error
        except (ValueError, TypeError, AttributeError) as error:  # not the JSON of a list of models
            raise EndpointError("JSE677", url=address(self.base_url), reason=self._say(error)) from error
        except openai.OpenAIError as error:
            raise EndpointError(
                "JSE663", url=address(self.base_url), reason=self._say(error.__cause__ or error)
            ) from error
        if self.model is None and served:
            self.model = served[0]
        if self.model is None or (served and self.model not in served):
            raise EndpointError("JSE665", model=self.model, served=served)
        return self.model

    async def send(self, prompt: Prompt, max_tokens: int) -> Reception:
        """Send one request and note every piece of the answer; whatever goes wrong is in the result."""
        import openai

        now = self.connection.now
        create = (
            self._openai.chat.completions if self.api == "chat" else self._openai.completions
        ).with_streaming_response.create
        body = self._body(prompt, max_tokens)
        pieces: list[Piece] = []
        sent = now()
        failure: str | None = None
        status: int | None = None
        arrivals: Arrivals | None = None
        try:
            async with create(**body) as response:
                arrivals = response.http_response.extensions.get(ARRIVALS)
                async for piece in response.iter_bytes():
                    pieces.append((now() - sent, piece))  # noqa: PERF401 - what came before a break must be kept
        except openai.APIStatusError as error:
            status = error.status_code
            failure = f"HTTP {status}: {self._say(error.body or error)}"
        except Exception as error:  # the HTTP library's own errors reach here while streaming
            failure = self._say(error.__cause__ if isinstance(error, openai.APIConnectionError) else error, error)
        if arrivals is not None:  # the times at which the bytes arrived, rather than when this loop saw them
            sent, pieces = arrivals.sent, arrivals.pieces
        # What was done with the bytes since then is not the server's time.
        ended = sent + pieces[-1][0] if pieces and failure is None else now()
        return Reception(sent=sent, ended=ended, pieces=pieces, failure=failure, status=status)

    def _body(self, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "temperature": self.temperature,
            "stream": True,
            "extra_body": {**({"ignore_eos": True} if self.ignore_eos else {}), **self.extra_body},
        }
        if self.seed is not None:
            body["seed"] = self.seed
        if self.include_usage:
            body["stream_options"] = {"include_usage": True}
        if self.api == "chat":
            body["messages"] = [dict(message) for message in prompt.messages]
            body["max_completion_tokens"] = max_tokens
        else:
            body["prompt"] = list(prompt.token_ids) if prompt.token_ids is not None else prompt.text
            body["max_tokens"] = max_tokens
        return body

    async def get_text(self, path: str) -> str | None:
        """Return what the server says at a path below its root, or None."""
        reply = await self._root_request("GET", path)
        return None if reply is None else str(reply.text)

    async def get_json(self, path: str) -> Any:
        """Return the JSON at a path below the server's root, or None."""
        reply = await self._root_request("GET", path)
        return _json_of(reply)

    async def count_tokens(self, text: str) -> int | None:
        """Ask the server's `/tokenize` how many tokens a text has; None where it has none."""
        reply = await self._root_request(
            "POST", "/tokenize", {"model": self.model, "prompt": text, "add_special_tokens": False}
        )
        count = (_json_of(reply) or {}).get("count")
        return count if isinstance(count, int) else None

    async def reset_prefix_cache(self) -> bool:
        """Ask the server to forget its prefix cache (vLLM in development mode); whether it did."""
        return await self._root_request("POST", "/reset_prefix_cache", {}) is not None

    async def _root_request(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        try:
            reply = await self._http.request(
                method, self._root + path, headers=headers, json=body, timeout=min(self.timeout_s, 30.0)
            )
        except Exception:  # an extra that a server may lack
            return None
        return reply if reply.status_code == 200 else None

    def _say(self, error: Any, otherwise: Any = None) -> str:
        error = error if error is not None else otherwise
        if isinstance(error, dict):
            text = str(error.get("message") or error)
        elif isinstance(error, BaseException):
            text = f"{type(error).__name__}: {error}".removesuffix(": ")
        else:
            text = str(error)
        return said(text, (self.api_key, *secrets_in(self.base_url)))


def _json_of(reply: Any) -> Any:
    if reply is None:
        return None
    try:
        return reply.json()
    except ValueError:
        return None
