# SPDX-License-Identifier: Apache-2.0
"""From what should change (a utilisation, a speculative configuration) to the text that does it.

A value is changed where it is in force: in place on the command line, else in the `--config` file, else appended to
the command line, which beats the file. A recipe that is itself a config file is changed there. What was written is
read back before it is handed out, so a plan never says something that its text does not do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import field

from jetson_specdec.errors import UneditableError
from jetson_specdec.findings import Finding
from jetson_specdec.recipe.core import (
    AppendArgs,
    ArgEdit,
    Recipe,
    RemoveArgs,
    ReplaceArg,
    ServeCommand,
    reader_of,
)
from jetson_specdec.recipe.flags import ServeFlags
from jetson_specdec.recipe.numbers import human_int, parse_float
from jetson_specdec.recipe.spec_sources import DEPENDENT_FLAGS, speculative_occurrences
from jetson_specdec.recipe.spec_text import spec_json
from jetson_specdec.recipe.speculation import Speculation, read_speculation
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.recipe.config_file import ConfigFile
    from jetson_specdec.recipe.occurrences import Occurrence

__all__ = ["EditPlan", "FileEdit", "plan_edit"]


@frozen(kw_only=True)
class FileEdit:
    """A change in another file than the recipe."""

    path: str
    before: str
    after: str


@frozen(kw_only=True)
class EditPlan:
    """The changed texts. Nothing is written yet.

    Attributes:
        text_before, text_after: the recipe.
        files: other files that change (a `--config` YAML).
        added_args: the words that are new on the command line (for a config file: what its new keys amount to).
        serve_args_after: the full argument list after `serve`, after the change.
        flags_after: the flags after the change.
        findings: what to know about the change.
    """

    text_before: str
    text_after: str
    files: tuple[FileEdit, ...] = ()
    added_args: tuple[str, ...] = ()
    serve_args_after: tuple[str, ...] = ()
    flags_after: ServeFlags = field(repr=False)
    findings: tuple[Finding, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any text changes."""
        return self.text_after != self.text_before or any(file.before != file.after for file in self.files)


class _Changes:
    """What is to be done, gathered step by step."""

    def __init__(self, recipe: Recipe, command: ServeCommand, flags: ServeFlags) -> None:
        self.recipe, self.command, self.flags = recipe, command, flags
        self.yaml_only = recipe.form == "config_file"
        self.edits: list[ArgEdit] = []
        self.appended: list[str] = []
        self.set_values: dict[str, str] = {}
        self.add: dict[str, Any] = {}
        self.remove: list[str] = []
        self.findings: list[Finding] = []

    def append(self, name: str, value: str, data: Any = None) -> None:
        """Add a flag that is not there (or cannot be changed where it is)."""
        self.appended += [f"--{name}", value]
        if self.yaml_only and data is not None:
            self.add[name] = data
        elif self.yaml_only:
            self.set_values[name] = value

    def replace(self, found: Occurrence, value: str, data: Any = None) -> None:
        """Give a flag another value where it stands."""
        if self.yaml_only or found.origin == "config":
            if data is not None:
                self.add[found.name] = data
            else:
                self.set_values[found.name] = value
            return
        if found.optional or found.splices:
            # What stands behind `${X:+…}` or in an array may be absent at run time; the last word wins.
            self.append(found.name, value)
            return
        index = found.first if found.inline else found.last
        arg = self.command.args[index]
        if sum((arg.start, arg.end) == (one.start, one.end) for one in self.command.args) > 1:
            # One of several words that one variable becomes: its place is theirs too.
            self.append(found.name, value)
            return
        if arg.unresolved or arg.resolved_from:
            names = list(arg.unresolved or arg.resolved_from)
            self.findings.append(Finding.of("JSD285", flag=f"--{found.name}", names=names, value=value))
        self.edits.append(ReplaceArg(index=index, value=f"{found.spelled}={value}" if found.inline else value))

    def take_out(self, found: Occurrence) -> None:
        """Remove a flag with its values."""
        if found.origin == "config" or self.yaml_only:
            self.remove.append(found.spelled if found.origin == "config" else found.spelled.removeprefix("--"))
            return
        # A value such as an unquoted `$SPEC` goes with its flag; a flag that comes out of a variable cannot.
        if found.optional or self.command.args[found.first].splices:
            raise UneditableError("JSE234", line=self.command.line, flag=found.spelled)
        self.edits.append(RemoveArgs(first=found.first, last=found.last))


def plan_edit(
    recipe: Recipe,
    command: ServeCommand,
    flags: ServeFlags,
    *,
    speculation: Speculation | None = None,
    set_flags: Mapping[str, str] | None = None,
    speculative_config: Mapping[str, Any] | None = None,
    remove_speculation: bool = False,
    environ: Mapping[str, str] | None = None,
) -> EditPlan:
    """Work out the texts that make a change.

    Args:
        recipe: the recipe.
        command: which of its commands.
        flags: that command's flags; their `config` is the `--config` file that may have to change.
        speculation: its speculation, where the caller has it already.
        set_flags: flag (dashes, no leading ones) → value.
        speculative_config: the configuration to be in force afterwards.
        remove_speculation: take speculation out, whatever its form.
        environ: what the recipe was parsed with, if anything.

    Raises:
        UneditableError: the change cannot be made safely; the error says what to type.
    """
    speculation = read_speculation(flags) if speculation is None else speculation
    changes = _Changes(recipe, command, flags)
    if remove_speculation and speculative_config is None:
        _remove(changes, speculation)
    for name, value in (set_flags or {}).items():
        _set(changes, name, value)
    if speculative_config is not None:
        _speculate(changes, speculation, dict(speculative_config))
    text, files = _carry_out(changes, environ)
    after = _read_back(changes, text, files, environ)
    plan = EditPlan(
        text_before=recipe.text,
        text_after=text,
        files=files,
        added_args=tuple(changes.appended),
        serve_args_after=tuple(after.serve_args()),
        flags_after=after,
        findings=tuple(changes.findings),
    )
    _check(changes, after, speculative_config, set_flags or {}, remove_speculation)
    return plan


def _set(changes: _Changes, name: str, value: str) -> None:
    reading = changes.flags.get(name)
    if reading.occurrence is None:
        changes.append(name, value)
    elif reading.state != "value" or not _same(reading.text, value):
        changes.replace(reading.occurrence, value)


def _same(one: str | None, other: str) -> bool:
    if one is None:
        return False
    if one == other:
        return True
    numbers = parse_float(one), parse_float(other)
    return (None not in numbers and numbers[0] == numbers[1]) or human_int(one) == human_int(other) is not None


def _remove(changes: _Changes, speculation: Speculation) -> None:
    if speculation.state == "broken":
        raise UneditableError("JSE236", line=changes.command.line)
    for found in speculative_occurrences(changes.flags):
        changes.take_out(found)
    for name in DEPENDENT_FLAGS:
        for found in changes.flags.all(name):
            changes.take_out(found)
    if speculation.state == "implicit":
        _serve_verifier(changes, speculation)


def _serve_verifier(changes: _Changes, speculation: Speculation) -> None:
    if speculation.target is None:
        raise UneditableError("JSE237", line=changes.command.line, model=speculation.model)
    reading = changes.flags.model_reading
    if reading.occurrence is not None:
        changes.replace(reading.occurrence, speculation.target)
    elif changes.flags.model_index is not None:
        changes.edits.append(ReplaceArg(index=changes.flags.model_index, value=speculation.target))


def _speculate(changes: _Changes, speculation: Speculation, config: dict[str, Any]) -> None:
    if speculation.state == "broken":
        raise UneditableError("JSE236", line=changes.command.line)
    occurrences = speculative_occurrences(changes.flags)
    if speculation.state == "present" and speculation.config == config:
        return
    single = occurrences[0] if len(occurrences) == 1 else None
    fixed = single is not None and not single.optional and not single.splices
    if single is not None and fixed and single.name == "speculative-config" and single.key is None:
        changes.replace(single, spec_json(config), config)
        return
    for found in occurrences:
        changes.take_out(found)
    changes.append("speculative-config", spec_json(config), config)


def _carry_out(changes: _Changes, environ: Mapping[str, str] | None) -> tuple[str, tuple[FileEdit, ...]]:
    """Return the recipe's text and the other files' changes."""
    from jetson_specdec.recipe.config_edit import edit_config
    from jetson_specdec.recipe.config_file import parse_config

    recipe, command, config = changes.recipe, changes.command, changes.flags.config
    in_yaml = bool(changes.set_values or changes.add or changes.remove)
    if changes.yaml_only:
        if not in_yaml:
            return recipe.text, ()
        own = parse_config(recipe.text, path=recipe.path)
        return edit_config(own, set_values=changes.set_values, add=changes.add, remove=changes.remove), ()
    files: tuple[FileEdit, ...] = ()
    if in_yaml and config is not None and config.in_recipe:
        recipe = _where_written(changes, config, environ)
    elif in_yaml and config is not None:
        after = edit_config(config, set_values=changes.set_values, add=changes.add, remove=changes.remove)
        files = (FileEdit(path=config.path or config.named, before=config.text, after=after),)
    edits = list(changes.edits)
    if changes.appended:
        if changes.flags.separator is not None:
            raise UneditableError("JSE235", line=command.line, words=" ".join(_quoted(changes.appended)))
        # Words of the outside keep the last word; the model has to stay in front.
        edits.append(AppendArgs(values=tuple(changes.appended), before=changes.flags.opaque_from or None))
    if not edits:
        return recipe.text, files
    if command.engine != "vllm":
        raise UneditableError("JSE238", line=command.line, engine=command.engine)
    if command.blocked is not None:
        raise UneditableError("JSE230", line=command.line, reason=command.blocked.message)
    from jetson_specdec.recipe.forms_embedded import EMBEDDED, edit_embedded

    if recipe.form in EMBEDDED:
        return edit_embedded(recipe, command.index, edits), files
    if recipe.form != "shell":
        raise UneditableError("JSE239", form=recipe.form)
    from jetson_specdec.recipe.shell import edit_shell

    return edit_shell(recipe, command.index, edits, environ=environ), files


def _where_written(changes: _Changes, config: ConfigFile, environ: Mapping[str, str] | None) -> Recipe:
    """Change a config file where the recipe writes it; where that is not safe, add what wins over it to the command.

    Raises:
        UneditableError: a key has to go and cannot.
    """
    from jetson_specdec.recipe.config_edit import edit_config
    from jetson_specdec.recipe.shell_rewrite import edit_written

    assert config.written is not None
    try:
        after = edit_config(config, set_values=changes.set_values, add=changes.add, remove=changes.remove)
        return edit_written(changes.recipe, changes.command.index, config.written, after, environ)
    except UneditableError:
        if changes.remove:
            raise
    for name, value in changes.set_values.items():
        changes.appended += [f"--{name}", value]
    for name, data in changes.add.items():
        changes.appended += [f"--{name}", spec_json(data)]
    return changes.recipe


def _quoted(words: list[str]) -> list[str]:
    import shlex

    return [shlex.quote(word) for word in words]


def _read_back(
    changes: _Changes, text: str, files: tuple[FileEdit, ...], environ: Mapping[str, str] | None
) -> ServeFlags:
    from jetson_specdec.recipe.config_file import read_again

    flags, recipe, command = changes.flags, changes.recipe, changes.command
    planned = {file.path: file.after for file in files}
    if text == recipe.text and not planned:
        return flags
    if changes.yaml_only:
        from jetson_specdec.recipe.load import config_recipe

        again = config_recipe(text, path=recipe.path)
    elif recipe.form != "shell":
        from jetson_specdec.recipe.forms_embedded import reparse

        again = reparse(recipe, text)
    else:
        from jetson_specdec.recipe.shell import parse_shell

        again = parse_shell(text, path=recipe.path, environ=environ, read=reader_of(recipe))
    if len(again.commands) != len(recipe.commands):
        raise UneditableError("JSE232", line=command.line, words=" ".join(_quoted(changes.appended)))
    after = again.commands[command.index]
    config = read_again(flags.config, after, planned) if flags.config is not None else None
    return ServeFlags.read(after, flags.release, config)


def _check(
    changes: _Changes,
    after: ServeFlags,
    config: Mapping[str, Any] | None,
    set_flags: Mapping[str, str],
    removed: bool,
) -> None:
    """Raise where the new texts, read again, do not say what was asked for."""
    wrong = [name for name, value in set_flags.items() if not _same(after.get(name).text, value)]
    speculation = read_speculation(after)
    if config is not None and (speculation.config is None or dict(speculation.config) != dict(config)):
        wrong.append("speculative-config")
    if removed and config is None and speculation.state != "none":
        wrong.append("speculative-config")
    if wrong:
        raise UneditableError(
            "JSE232", line=changes.command.line, words=" ".join(_quoted(changes.appended)) or wrong[0]
        )
