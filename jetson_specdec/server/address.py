# SPDX-License-Identifier: Apache-2.0
"""Where a started recipe answers: worked out from its flags and the ports its container publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import field

from jetson_specdec.errors import LaunchError
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import ServeCommand
    from jetson_specdec.recipe.flags import ServeFlags

__all__ = ["DEFAULT_PORT", "Address", "address_of"]

DEFAULT_PORT = 8000
"""vLLM's own (0.32 `entrypoints/openai/cli_args.py`)."""

_EVERYWHERE = ("0.0.0.0", "::", "*", "")


@frozen(kw_only=True)
class Address:
    """Where the API is.

    Attributes:
        host, port: to connect to from this machine.
        scheme: `http`, or `https` where the recipe names a certificate.
        model: name the API serves the model under; None where the recipe does not tell (then the first one listed).
        api_key: the key it asks for, or None.
    """

    port: int
    host: str = "127.0.0.1"
    scheme: str = "http"
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def root_url(self) -> str:
        """Where `/health` and `/metrics` are."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return self.root_url + "/v1"


def address_of(command: ServeCommand, flags: ServeFlags, *, in_container: bool, published: bool = True) -> Address:
    """Return where the server of a command will answer.

    Args:
        command: the command.
        flags: its flags.
        in_container: whether a port inside may be another one outside.
        published: False with `--network host`, where the ports of `-p` mean nothing.

    Raises:
        LaunchError: the port cannot be known beforehand (JSE904), or it listens on a socket file (JSE905).
    """
    if flags.get("uds").state != "absent":
        raise LaunchError("JSE905", line=command.line)
    reading = flags.number("port")
    if reading.state in ("unresolved", "invalid"):
        raise LaunchError("JSE904", line=command.line, value=reading.text)
    inside = reading.value if isinstance(reading.value, int) else DEFAULT_PORT
    host, port = (flags.host or "", inside)
    if in_container:
        host, port = _published(command, inside) if published and command.ports else ("", inside)
    return Address(
        host="127.0.0.1" if host in _EVERYWHERE else host,
        port=port,
        scheme="https" if flags.get("ssl-certfile").state != "absent" else "http",
        model=flags.served_model_name or flags.model,
        api_key=_key(command, flags),
    )


def _published(command: ServeCommand, inside: int) -> tuple[str, int]:
    """Return the outer address of a container's port (`8500:8000`, `127.0.0.1:8500:8000`, `8500:8000/tcp`)."""
    for spec in command.ports:
        words = spec.partition("/")[0].rsplit(":", 2)
        if len(words) < 2 or not words[-1].isdigit() or int(words[-1]) != inside:
            continue
        if not words[-2].isdigit():
            raise LaunchError("JSE904", line=command.line, value=spec)
        return (words[0].strip("[]") if len(words) == 3 else ""), int(words[-2])
    raise LaunchError("JSE906", line=command.line, port=inside, published=list(command.ports))


def _key(command: ServeCommand, flags: ServeFlags) -> str | None:
    for found in reversed(flags.all("api-key")):
        values = [value for value in found.values if value]
        if values:
            return values[0]
    return command.env.get("VLLM_API_KEY")
