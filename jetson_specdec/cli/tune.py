# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec tune`: prove it on this board, and put the old server back."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jetson_specdec.cli.common import board, catalog_of, note, print_json, quieten
from jetson_specdec.errors import DeclinedError, OptionError

if TYPE_CHECKING:
    from cyclopts import Parameter

    from jetson_specdec.tune.core import Offer, TuneResult, TuneSettings


def tune(
    recipe: Path | None = None,
    /,
    *,
    concurrency: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    num_prompts: int | None = None,
    output_len: int = 128,
    prompts: str | None = None,
    api: Literal["chat", "completions"] = "chat",
    ignore_eos: Annotated[bool, Parameter(negative="")] = False,
    seed: int = 0,
    max_time: str | None = None,
    pin_kv: Annotated[bool, Parameter(negative="")] = False,
    leave: Literal["original", "result", "stopped"] = "original",
    replace: Annotated[bool, Parameter(negative="")] = False,
    allow_sudo: Annotated[bool, Parameter(negative="")] = False,
    start_timeout: float = 1800.0,
    evidence: Path | None = None,
    resume: Path | None = None,
    restore: Annotated[bool, Parameter(negative="")] = False,
    rejudge: Path | None = None,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
    device: str | None = None,
    l4t: str | None = None,
    command: int | None = None,
    target: str | None = None,
    head: str | None = None,
    draft: str | None = None,
    vllm_version: str | None = None,
    audit: Path | None = None,
    policy: Path | None = None,
    catalog: list[Path] | None = None,
    state_dir: Path | None = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Start the recipe without and with speculation in turns, find k, judge, and put the old server back.

    The exit code is the verdict: 0 enable, 10 disable, 11 marginal, 12 inconclusive or incomplete, 13 invalid,
    14 enable_limited; 15 a server could not be started, 20 or 21 the plan has nothing to prove, 130 interrupted.

    Parameters
    ----------
    recipe:
        File with the serve command. It is never written; the result lies beside it.
    concurrency:
        Requests in flight, one run each (default 1,8).
    num_prompts:
        Requests a run.
    output_len:
        Most tokens of an answer.
    prompts:
        Your own prompts (file), or random.
    api:
        chat or completions.
    ignore_eos:
        Let answers run to --output-len.
    seed:
        Of the order of prompts.
    max_time:
        Start nothing that would not be over by then: 90m, 2h, or seconds.
    pin_kv:
        Give both arms the same KV cache.
    leave:
        What runs afterwards: original (if it ran before), result (where it is faster), or stopped.
    replace:
        Take down what is in the way even where it is not this recipe's server.
    allow_sudo:
        Let sudo in the recipe run.
    start_timeout:
        Longest start, seconds.
    evidence:
        Folder for the evidence; by default one beside the recipe.
    resume:
        Evidence folder of a tune that did not end: go on from there.
    restore:
        End what a killed tune left running and bring the old server back; measures nothing.
    rejudge:
        Evidence folder: judge it again with --policy; needs no board.
    yes:
        Do not ask.
    device:
        Module to plan for, where this machine is not recognised.
    l4t:
        L4T release of that module.
    command:
        Which serve command of the text, counted from 0, where it holds several.
    target:
        Model that is served (ORG/MODEL), where the recipe does not tell.
    head:
        EAGLE-3 head to use instead of the one that would be chosen.
    draft:
        Draft model to use.
    vllm_version:
        vLLM release, where the recipe does not tell.
    audit:
        JSON of jetson-memory-audit or jetson-diagnostic, as the board.
    policy:
        TOML file with other thresholds.
    catalog:
        Your own catalogue entries (TOML or JSON); may be given several times.
    state_dir:
        Where started servers are written down; by default below $XDG_STATE_HOME.
    json:
        Print the result as JSON; asks nothing, so it needs --yes.
    """
    from jetson_specdec.extensions import load_policy

    rules = load_policy(policy)
    if restore:
        return _restore(state_dir, json=json)
    if rejudge is not None:
        return _rejudge(rejudge, rules if policy is not None else None, json=json)
    if recipe is None:
        raise OptionError("JSE955", option="RECIPE", value="", reason="the recipe's file is missing")
    from jetson_specdec.tune.blocks import Tools
    from jetson_specdec.tune.core import TuneSettings
    from jetson_specdec.tune.run import tune as prove

    settings = TuneSettings(
        concurrency=_numbers(concurrency),
        num_prompts=num_prompts,
        output_len=output_len,
        prompts=prompts,
        api=api,
        ignore_eos=ignore_eos,
        seed=seed,
        max_time_s=seconds_of(max_time),
        pin_kv=pin_kv,
        leave=leave,
        replace=replace,
        allow_sudo=allow_sudo,
        start_timeout_s=start_timeout,
    )
    host, found = board(device=device, l4t=l4t, audit=audit, recorded=None)
    with _interruptible():
        result = prove(
            recipe,
            settings=settings,
            policy=rules,
            device=found,
            command=command,
            target=target,
            head=head,
            draft=draft,
            vllm_version=vllm_version,
            catalog=catalog_of(catalog),
            evidence=evidence,
            resume=resume,
            agree=lambda offer: _agree(offer, settings, yes=yes, json=json),
            tell=_tell,
            tools=Tools(host=host, state_dir=state_dir),
        )
    return _show(result, json=json)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Take a polite kill and a closed terminal as Ctrl-C: the old server has to come back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def seconds_of(text: str | None) -> float | None:
    """Return a span of time in seconds: `90`, `45m`, `2h`, `1h30m`.

    Raises:
        OptionError: it is none.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if match is None or not any(match.groups()):
        raise OptionError("JSE955", option="--max-time", value=text, reason="not a time such as 90m, 2h or 3600")
    hours, minutes, seconds = (float(group or 0) for group in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _numbers(values: list[str] | None) -> tuple[int, ...]:
    words = [word.strip() for value in values or ["1,8"] for word in value.split(",") if word.strip()]
    try:
        numbers = tuple(int(word) for word in words)
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        value = ",".join(words)
        raise OptionError("JSE955", option="--concurrency", value=value, reason="whole numbers from 1, such as 1,8")
    return numbers


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _tell(kind: str, values: Mapping[str, Any]) -> None:
    from jetson_specdec.messages import render

    note("jetson-specdec: " + render(kind, values))


def _agree(offer: Offer, settings: TuneSettings, *, yes: bool, json: bool) -> bool:
    """Show what will happen, and ask."""
    from jetson_specdec.messages import render

    if not json:
        from jetson_specdec.render.tune import print_offer

        print_offer(offer)
    else:
        for finding in (offer.downtime.finding, *offer.findings):
            note(f"jetson-specdec: {finding.message}")
    if yes:
        return True
    if json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise DeclinedError("JSE958")
    sys.stdout.write("\n" + render("tune-question"))
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show(result: TuneResult, *, json: bool) -> int:
    with _somebody_reads():
        if json:
            print_json(result.to_json())
        else:
            from jetson_specdec.render.tune import print_result

            print_result(result)
    return result.exit_code


@contextmanager
def _somebody_reads() -> Iterator[None]:
    """Print an answer; where nobody is there to read it (a closed pipe or terminal), the exit code still tells."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        quieten(sys.stdout)


def _restore(state_dir: Path | None, *, json: bool) -> int:
    from attrs import asdict

    from jetson_specdec.tune.putback import findings_of, restore, unfinished

    steps = unfinished(state_dir)
    done = restore(state_dir)
    found = findings_of(done)
    with _somebody_reads():
        if json:
            shown = {"findings": [each.to_json() for each in found], "next_steps": [each.to_json() for each in steps]}
            print_json({"schema_version": 1, "restored": [asdict(each) for each in done], **shown})
        else:
            from jetson_specdec.render.tune import print_restored

            print_restored(done, found, steps)
    return 15 if any(each.failed or each.unreadable for each in done) else 0


def _rejudge(folder: Path, rules: Any, *, json: bool) -> int:
    from jetson_specdec.tune.evidence import rejudge

    verdict = rejudge(folder, policy=rules)
    if json:
        print_json(verdict.to_json())
    else:
        from jetson_specdec.render.gate import print_verdict

        print_verdict(verdict)
    return verdict.exit_code
