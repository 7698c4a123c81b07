# SPDX-License-Identifier: Apache-2.0
"""What is published for a target, for a person."""

from __future__ import annotations

from typing import Any

from jetson_specdec.messages import render
from jetson_specdec.render import terminal

__all__ = ["print_target", "print_targets"]


def print_targets(found: dict[str, Any]) -> None:
    """Print the known targets with how much is published for each."""
    rows = [
        [row["target"], str(row["heads_proven"]), str(row["heads"]), str(row["drafts"])] for row in found["targets"]
    ]
    terminal.table(["target", "heads known to load", "heads published", "drafts"], rows, right=(1, 2, 3))


def print_target(found: dict[str, Any]) -> None:
    """Print heads and drafts for one target, best first."""
    base, target = found["base"], found["target"]
    terminal.headline(base if base == target else render("label-copy", {"target": target, "base": base}))
    terminal.section("EAGLE-3 heads")
    if found["heads"]:
        terminal.table(
            ["head", "loads in vLLM", "from", "licence", "resident", "mean length"],
            [_head_row(head) for head in found["heads"]],
        )
    else:
        terminal.line("  " + render("label-none-known"))
    if found["other_methods"]:
        terminal.section(render("label-other-methods"))
        terminal.table(
            ["drafter", "method", "from", "licence"],
            [[head["id"], head["method"], head["min_vllm"], head["licence"]] for head in found["other_methods"]],
        )
    _print_drafts(found)
    if "fit" in found:
        _print_fit(found)


def _print_drafts(found: dict[str, Any]) -> None:
    terminal.section("Draft models of the family")
    if found["drafts"]:
        terminal.table(
            ["draft", "usable", "from", "vocabulary", "weight ratio", "size"],
            [_pair_row(pair) for pair in found["drafts"]],
        )
    else:
        terminal.line("  " + render("label-none-known"))


def _print_fit(found: dict[str, Any]) -> None:
    module = found["device"]["module"] or found["device"]["family"] or "this board"
    terminal.section(render("label-fit", {"module": module, "k": found["k"]}))
    if not found["fit"]:
        terminal.line("  " + render("label-fit-nothing"))
        return
    terminal.table(
        ["drafter", "fits", "utilisation", "tokens of context", "lost", "must yield", "for the gate", "estimate"],
        [_fit_row(row) for row in found["fit"]],
        right=(2, 3, 4),
    )
    terminal.line("  " + render("label-fit-legend"))
    terminal.line("  " + render("label-fit-legend-more"))


def _fit_row(row: dict[str, Any]) -> list[str | None]:
    at_k = next((each for each in row["speed"]["break_even"]["rows"] if each["k"] == row["k"]), None)
    return [
        row["drafter"],
        terminal.yes_no(row["fits"]),
        None if row["utilization"] is None else f"{row['utilization']:.2f}",
        None if row["kv_tokens"] is None else f"{row['kv_tokens']:,}",
        None if row["tokens_lost"] is None else f"{row['tokens_lost']:,}",
        _span(at_k and at_k["tokens_to_break_even"]),
        _span(at_k and at_k["tokens_for_threshold"]),
        _span(row["speed"]["speedup"], " ×"),
    ]


def _span(span: dict[str, float] | None, unit: str = "") -> str | None:
    return None if not span else f"{span['low']:.2f}-{span['high']:.2f}{unit}"


def _head_row(head: dict[str, Any]) -> list[str | None]:
    lengths = [
        f"{each['mean_length']:.2f} at k={each['num_speculative_tokens']}"
        if each["num_speculative_tokens"] is not None
        else f"{each['mean_length']:.2f}"
        for each in head["acceptance"]
        if each["mean_length"] is not None
    ]
    return [
        head["id"],
        head["loads_in_vllm"],
        head["min_vllm"],
        head["licence"],
        terminal.bytes_text(head["resident_bytes"]),
        lengths[0] if lengths else None,
    ]


def _pair_row(pair: dict[str, Any]) -> list[str | None]:
    vocabulary = f"{pair['draft_vocab_size']} / {pair['target_vocab_size']}" if pair["target_vocab_size"] else None
    ratio = pair["weight_ratio"]
    return [
        pair["draft"],
        "yes" if pair["usable"] else render("label-unusable", {"why": pair["why_not"]}),
        pair["min_vllm"],
        vocabulary,
        None if ratio is None else f"{ratio:.2f}",
        terminal.bytes_text(pair["resident_bytes"]),
    ]
