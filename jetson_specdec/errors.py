# SPDX-License-Identifier: Apache-2.0
"""Everything that can go wrong, in one tree.

```
SpecdecError                    the root: catch this to catch all of them
├── InputError                  what the caller handed over cannot be used; the command line exits with 2
│   ├── RecipeError             the recipe text
│   │   ├── RecipeSyntaxError   it is not what its form requires, or holds no serve command
│   │   ├── CommandChoiceError  it holds several serve commands and none (or a missing one) was chosen
│   │   └── UneditableError     it was understood, but cannot be changed safely
│   ├── DeviceError             an unknown module name, or a recording that cannot be read
│   ├── CatalogueError          a catalogue file, or an id that is not in it
│   ├── ModelError              a model's files, or a hub that does not give them
│   ├── ReleaseError            a vLLM version text that is none
│   ├── PolicyError             a policy file or value
│   ├── ReportError             a benchmark report
│   ├── EndpointError           a server that cannot be reached, refuses the key, or serves something else
│   ├── ApplyError              files are not as an apply or undo needs them; none was changed
│   └── OptionError             options that contradict each other
├── DeclinedError               a change was not agreed to, or nobody could be asked; the command line exits with 3
├── OutputError                 a file could not be written; the one that was there is untouched
├── ServerError                 a server could not be started, stopped or put back
│   ├── LaunchError             this recipe cannot be started from here; nothing was started
│   ├── InTheWayError           a server that was not started here stands where this one belongs; it was not touched
│   └── StartFailed             the server did not come up; carries the diagnosis of its log
└── PluginError                 a plug-in could not be loaded or broke its protocol
```

Every error carries a `code` (`JSE` and three digits) and `values`; its text is rendered from the message catalogue and
says what is wrong, where, and what to do. `exit_code` is what the command line returns for it.
"""

from __future__ import annotations

from typing import Any, ClassVar


class SpecdecError(Exception):
    """The root of all errors this package raises on purpose.

    Args:
        code: `JSE` and three digits, a key of the message catalogue.
        **values: what the text is rendered from; JSON values, never secrets.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, **values: Any) -> None:
        super().__init__(code, values)
        self.code = code
        self.values = values

    def __str__(self) -> str:
        from jetson_specdec.messages import render

        return render(self.code, self.values)


class InputError(SpecdecError):
    """What the caller handed over cannot be used; nothing was written."""

    exit_code = 2


class RecipeError(InputError):
    """The recipe cannot be used."""


class RecipeSyntaxError(RecipeError):
    """The recipe is not what its form requires, or holds no serve command."""


class CommandChoiceError(RecipeError):
    """The recipe holds several serve commands and the choice among them is missing or out of range."""


class UneditableError(RecipeError):
    """The recipe was understood but cannot be changed safely; the text says what to type instead."""


class DeviceError(InputError):
    """An unknown module name, or a recorded board that cannot be read."""


class CatalogueError(InputError):
    """A catalogue file is malformed, or an id is not in the catalogue."""


class ModelError(InputError):
    """A model's files cannot be read or are not what vLLM serves, or the hub does not give them."""


class ReleaseError(InputError):
    """A text that should name a vLLM release does not."""


class PolicyError(InputError):
    """A policy file or value is out of range."""


class ReportError(InputError):
    """A benchmark report cannot be read or lacks what it must have."""


class EndpointError(InputError):
    """A server that was named cannot be reached, refuses the key, serves something else, or answers no request."""


class ApplyError(InputError):
    """Files are not as an apply or undo needs them (changed since, locked, a backup damaged); none was changed."""


class OptionError(InputError):
    """Options contradict each other."""


class DeclinedError(SpecdecError):
    """A change was shown and not agreed to, or there was nobody to ask; nothing was written."""

    exit_code = 3


class OutputError(SpecdecError):
    """A file could not be written; what stood there before is untouched."""

    exit_code = 2


class ServerError(SpecdecError):
    """A server could not be started, stopped or put back."""

    exit_code = 15


class LaunchError(ServerError):
    """This recipe cannot be started from here (its form, an unresolved value, `sudo`); nothing was started."""

    exit_code = 2


class InTheWayError(ServerError):
    """A server that was not started here holds the port or the container's name; it was not touched.

    Attributes:
        occupants: `server.Occupant` values, who is in the way.
    """

    def __init__(self, code: str, *, occupants: tuple[Any, ...] = (), **values: Any) -> None:
        super().__init__(code, **values)
        self.occupants = occupants


class StartFailed(ServerError):  # noqa: N818 - what happened, not what is wrong with the caller
    """The server did not come up, or died at its first request; everything it started is gone again.

    Attributes:
        diagnosis: `logs.Diagnosis` of its log.
        log_path: where its log is.
    """

    def __init__(self, code: str, *, diagnosis: Any, log_path: str, **values: Any) -> None:
        super().__init__(code, log_path=log_path, **values)
        self.diagnosis = diagnosis
        self.log_path = log_path


class PluginError(SpecdecError):
    """A plug-in could not be loaded, or broke the protocol it registered for."""
