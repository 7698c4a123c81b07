# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec schema`: the JSON Schema of every document that leaves the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from jetson_specdec.cli.common import print_json
from jetson_specdec.errors import OptionError

if TYPE_CHECKING:
    from cyclopts import Parameter


def schema(
    name: str | None = None,
    /,
    *,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Print the JSON Schema of a document; without a name, list the documents.

    Parameters
    ----------
    name:
        Such as plan, device, catalog-entries or policy.
    json:
        Print the list as JSON (a schema always is).
    """
    from jetson_specdec import schemas

    if name is not None:
        if name not in schemas.NAMES:
            raise OptionError("JSE512", name=name, known=sorted(schemas.NAMES))
        print_json(schemas.load(name))
        return 0
    if json:
        print_json({"schema_version": 1, "schemas": schemas.NAMES})
        return 0
    from jetson_specdec.render.terminal import table

    table(["document", "what it is"], [[each, about] for each, about in schemas.NAMES.items()])
    return 0
