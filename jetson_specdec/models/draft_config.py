# SPDX-License-Identifier: Apache-2.0
"""What a drafter's own `config.json` says about the target it belongs to (EAGLE-3 and relatives, both layouts)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_specdec.models.config_values import first_text
from jetson_specdec.values import frozen

__all__ = ["DraftConfig", "read_draft_config"]


@frozen(kw_only=True)
class DraftConfig:
    """A head, as its config describes it; None is "not said".

    Attributes:
        method: `eagle3`, `eagle`, `dflash`, … where the config tells.
        format: `speculators` or `eagle`.
        draft_vocab_size: size of its own output vocabulary.
        target_hidden_size: hidden size of the states it reads.
        aux_layers: target layers whose states it reads (vLLM falls back to 2, L/2, L−3 when they are not said).
        verifier: repository id or path of the target it was trained for (`speculators` layout only).
        native_k: `num_speculative_tokens` stored in it.
    """

    method: str | None = None
    format: str | None = None
    draft_vocab_size: int | None = None
    target_hidden_size: int | None = None
    aux_layers: tuple[int, ...] | None = None
    verifier: str | None = None
    native_k: int | None = None


def read_draft_config(config: Mapping[str, Any]) -> DraftConfig | None:
    """Read a head's config; None when this is an ordinary model."""
    speculators = config.get("speculators_model_type")
    architecture = first_text(config.get("architectures")) or ""
    lowered = architecture.lower()
    is_head = any(word in lowered for word in ("eagle", "dflash", "dspark", "speculator", "medusa"))
    if speculators is None and not is_head and "draft_vocab_size" not in config:
        return None
    nested = config.get("eagle_config")
    eagle: Mapping[str, Any] = nested if isinstance(nested, Mapping) else {}
    layers = config.get("eagle_aux_hidden_state_layer_ids") or eagle.get("eagle_aux_hidden_state_layer_ids")
    aux = tuple(item for item in layers if isinstance(item, int)) if isinstance(layers, (list, tuple)) else ()
    recipe = config.get("speculators_config")
    spec: Mapping[str, Any] = recipe if isinstance(recipe, Mapping) else {}
    verifier = spec.get("verifier")
    proposals = spec.get("proposal_methods")
    listed = proposals if isinstance(proposals, (list, tuple)) else ()
    first = next((item for item in listed if isinstance(item, Mapping)), {})
    return DraftConfig(
        method=str(speculators) if speculators else _method(lowered, config),
        format="speculators" if speculators else "eagle",
        draft_vocab_size=_whole(config.get("draft_vocab_size")),
        target_hidden_size=_whole(config.get("target_hidden_size")),
        aux_layers=aux or None,
        verifier=_text(verifier.get("name_or_path")) if isinstance(verifier, Mapping) else None,
        native_k=_whole(first.get("speculative_tokens")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _method(architecture: str, config: Mapping[str, Any]) -> str | None:
    for word in ("eagle3", "dflash", "dspark", "medusa", "eagle"):
        if word in architecture:
            return word
    # Only EAGLE-3 heads have a vocabulary of their own.
    return "eagle3" if "draft_vocab_size" in config else None
