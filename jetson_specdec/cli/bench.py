# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec bench`: how fast is this server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from attrs import evolve

from jetson_specdec.cli.common import board, print_json, read_stdin, tell
from jetson_specdec.errors import OptionError, OutputError

if TYPE_CHECKING:
    from cyclopts import Parameter

    from jetson_specdec.loadgen.progress import Progress
    from jetson_specdec.loadgen.prompts import PromptSet
    from jetson_specdec.loadgen.served import Served
    from jetson_specdec.measurements import BenchReport

DEFAULT_URL = "http://127.0.0.1:8000"


def bench(
    url: str | None = None,
    /,
    *,
    base_url: str | None = None,
    concurrency: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    model: str | None = None,
    prompts: str | None = None,
    category: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    num_prompts: int | None = None,
    output_len: int = 128,
    input_len: int = 1024,
    api: Literal["chat", "completions"] = "chat",
    temperature: float = 0.0,
    seed: int = 0,
    ignore_eos: Annotated[bool, Parameter(negative="")] = False,
    warmup: int | None = None,
    retries: int = 0,
    timeout: float = 600.0,
    salt: str | None = None,
    reuse: Annotated[bool, Parameter(negative="")] = False,
    reset_prefix_cache: Annotated[bool, Parameter(negative="")] = False,
    api_key_env: str | None = None,
    ca: Path | None = None,
    insecure: Annotated[bool, Parameter(negative="")] = False,
    recipe: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    command: int | None = None,
    local: Annotated[bool | None, Parameter(negative="--no-local")] = None,
    device: str | None = None,
    l4t: str | None = None,
    recorded: Path | None = None,
    fake: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
    force: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Measure an OpenAI-compatible server: speed, latencies, acceptance, and the board's conditions meanwhile.

    An API key is read from OPENAI_API_KEY (or the variable that --api-key-env names), never from the command line.

    Parameters
    ----------
    url:
        Where the server is; http://127.0.0.1:8000 by default.
    base_url:
        The same, as an option.
    concurrency:
        Requests in flight, one run each: 1,8 by default.
    model:
        Served name; by default the first that the server lists.
    prompts:
        Prompt file (JSON Lines, ShareGPT, Spec-Bench), folder of SPEED-Bench, or random; by default the own set.
    category:
        Only prompts of these kinds, such as code,chat.
    num_prompts:
        Requests in each run; by default up to 50.
    output_len:
        Most tokens of an answer.
    input_len:
        Tokens of a random prompt.
    api:
        Endpoint to ask.
    temperature:
        Sent with every request.
    seed:
        Of the order of prompts; give both arms the same.
    ignore_eos:
        Let answers run to their full length (unnatural endings inflate acceptance).
    warmup:
        Requests before each run that are not measured.
    retries:
        How often a failed request is tried again; every failure stays on record.
    timeout:
        Longest silence of the server, seconds.
    salt:
        Makes all prompts new to the server's prefix cache; give both arms the same.
    reuse:
        Use prompts again where there are too few.
    reset_prefix_cache:
        Ask the server to forget its prefix cache before each run (vLLM in development mode).
    api_key_env:
        Environment variable with the API key.
    ca:
        File with the authority that signed the server's certificate.
    insecure:
        Do not check the server's certificate.
    recipe:
        The recipe the server was started with (- for stdin): its capacity and speculative configuration go on record.
    command:
        Which serve command of that recipe, counted from 0.
    local:
        The server is on this machine, so look at temperatures and clocks; by default the address tells.
    device:
        Module of the server's board, where it is not this machine.
    l4t:
        L4T release of that module.
    recorded:
        Folder made by `detect --record`, read instead of this machine.
    fake:
        Measure a simulated server instead (labelled so); JETSON_SPECDEC_FAKE says what it is.
    out:
        Save the report to this file.
    force:
        Let --out replace an existing file.
    json:
        Print the report as JSON.
    """
    from jetson_specdec.loadgen import Benchmark

    address = _address(url, base_url, fake=fake)
    _writable(out, force=force)
    served = _served(recipe, command)
    options: dict[str, Any] = {
        "concurrency": _numbers(concurrency),
        "model": model,
        "prompts": _prompts(prompts, _words(category)),
        "num_prompts": num_prompts,
        "output_len": output_len,
        "input_len": input_len,
        "api": api,
        "temperature": temperature,
        "seed": seed,
        "ignore_eos": ignore_eos,
        "warmup": warmup,
        "retries": retries,
        "timeout_s": timeout,
        "salt": salt,
        "allow_reuse": reuse,
        "reset_prefix_cache": reset_prefix_cache,
        "api_key": _key(api_key_env),
        "verify": _verify(ca, insecure=insecure),
        "known": served.conditions if served is not None else None,
        "progress": _progress(),
    }
    if fake:
        report = _simulate(served, options)
    else:
        here, seen = _board(address, local=local, device=device, l4t=l4t, recorded=recorded)
        report = _of_recipe(Benchmark(address, **options, **seen).run(), served)
        if not here:
            from jetson_specdec.findings import Finding

            report = report.with_findings(Finding.of("JSD698"))
    _save(report, out, force=force)
    if json:
        print_json(report.to_json())
    else:
        from jetson_specdec.render.bench import print_report

        print_report(report, saved=None if out is None else str(out))
    return 0


def _address(url: str | None, base_url: str | None, *, fake: bool) -> str:
    if url is not None and base_url is not None:
        raise OptionError("JSE693")
    address = url if url is not None else base_url
    if fake and address is not None:
        raise OptionError("JSE694")
    address = DEFAULT_URL if address is None else address
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        secret = parts.username is not None or parts.password is not None
    except ValueError:
        secret = False  # no address at all: the benchmark says so
    if secret:
        raise OptionError("JSE692")
    return address


def _writable(out: Path | None, *, force: bool) -> None:
    """Find out before the measurement, which takes minutes, whether its report could be saved."""
    if out is None:
        return
    if out.is_dir():
        raise OptionError("JSE695", path=str(out))
    if out.exists() and not force:
        raise OptionError("JSE696", path=str(out))
    if not os.access(out.absolute().parent, os.W_OK):
        raise OptionError("JSE697", path=str(out))


def _served(recipe: str | None, command: int | None) -> Served | None:
    from jetson_specdec.loadgen.served import served_by
    from jetson_specdec.recipe.load import load_recipe

    if recipe is None:
        if command is not None:
            raise OptionError("JSE698", index=command)
        return None
    loaded = load_recipe("-", text=read_stdin()) if recipe == "-" else load_recipe(Path(recipe))
    return served_by(loaded, command=command)


def _words(values: list[str] | None) -> list[str]:
    """Split what was given as `a,b` or as several words."""
    return [word.strip() for value in values or [] for word in value.split(",") if word.strip()]


def _numbers(values: list[str] | None) -> tuple[int, ...]:
    if values is None:
        return (1, 8)
    try:
        return tuple(int(word) for word in _words(values))
    except ValueError as error:
        raise OptionError("JSE699", value=",".join(values)) from error


def _prompts(source: str | None, categories: list[str]) -> PromptSet | str:
    from jetson_specdec.loadgen.prompts import load_prompts, own_prompts

    if source == "random":
        if categories:
            raise OptionError("JSE640", category=categories[0])
        return source
    found = own_prompts() if source is None else load_prompts(Path(source))
    for category in categories:
        if category not in found.categories:
            raise OptionError("JSE671", path=found.name, category=category, known=sorted(map(str, found.categories)))
    return found.only(categories) if categories else found


def _key(name: str | None) -> str | None:
    if name is None:
        return None  # the benchmark looks at OPENAI_API_KEY
    value = os.environ.get(name)
    if not value:
        raise OptionError("JSE690", name=name)
    return value


def _verify(ca: Path | None, *, insecure: bool) -> bool | str:
    if insecure and ca is not None:
        raise OptionError("JSE641")
    return str(ca) if ca is not None else not insecure


def _progress() -> Callable[[Progress], None] | None:
    """Return None on a terminal, where the benchmark keeps a line up to date; else one line for each finished run."""
    if sys.stderr.isatty():
        return None

    def report(progress: Progress) -> None:
        if progress.done == progress.total:
            from attrs import asdict

            tell("bench-progress", **asdict(progress))

    return report


def _board(
    address: str, *, local: bool | None, device: str | None, l4t: str | None, recorded: Path | None
) -> tuple[bool, dict[str, Any]]:
    """Return whether the server's board can be looked at, and what the benchmark needs for it."""
    from jetson_specdec.loadgen.nearby import on_this_machine

    here = recorded is not None or (on_this_machine(address) if local is None else local)
    if not here and device is None and l4t is None:
        return False, {"sample_conditions": False}
    host, found = board(device=device, l4t=l4t, audit=None, recorded=recorded)
    return here, {"device": found, "host": host, "sample_conditions": here}


def _simulate(served: Served | None, options: dict[str, Any]) -> BenchReport:
    from jetson_specdec.loadgen import Benchmark
    from jetson_specdec.testing.demo import demo_truth
    from jetson_specdec.testing.simulated import embedded_server, simulated

    server = embedded_server(served.serve_args if served is not None else (), truth=demo_truth())
    asked = {**options, "api_key": options["api_key"] or server.settings.api_key}
    benchmark = Benchmark("http://simulated", **asked, sample_conditions=False, connection=server.connection())
    return simulated(_of_recipe(benchmark.run(), served))


def _of_recipe(report: BenchReport, served: Served | None) -> BenchReport:
    if served is None:
        return report
    return evolve(report, container=served.container, benchmark_mode=served.benchmark_mode)


def _save(report: BenchReport, out: Path | None, *, force: bool) -> None:
    """Save the report; where that fails it goes to stdout, for minutes of a board are not thrown away."""
    from jetson_specdec.files import write_atomic

    if out is None:
        return
    try:
        write_atomic(out, dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n", overwrite=force)
    except OutputError:
        print_json(report.to_json())
        raise
    tell("label-wrote", path=str(out))
