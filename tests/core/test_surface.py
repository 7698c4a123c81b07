# SPDX-License-Identifier: Apache-2.0
"""The public surface, what importing costs in modules, and the catalogue of texts."""

from __future__ import annotations

import json
import re
import string
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import jetson_specdec
from jetson_specdec import messages

PACKAGE = Path(jetson_specdec.__file__).parent
HEAVY = (
    "attrs", "cattrs", "cyclopts", "rich", "numpy", "scipy", "openai", "httpx", "huggingface_hub", "ruamel",
    "tree_sitter", "prometheus_client", "psutil", "tenacity", "importlib.metadata", "re", "json", "asyncio",
)  # fmt: skip


def test_every_public_name_loads_and_is_documented():
    for name in jetson_specdec.__all__:
        value = getattr(jetson_specdec, name)
        if name != "__version__":
            assert (value.__doc__ or "").strip(), name
    assert dir(jetson_specdec) == sorted(jetson_specdec.__all__)
    with pytest.raises(AttributeError):
        _ = jetson_specdec.no_such_name


@pytest.mark.parametrize("room", ["apply", "device", "loadgen", "recipe", "server", "testing", "tune"])
def test_every_name_of_a_lazy_room_loads(room):
    package = import_module(f"jetson_specdec.{room}")
    for name in package.__all__:
        value = getattr(package, name)
        assert getattr(package, name) is value, name
    assert dir(package) == sorted(package.__all__)
    # Importing a module binds it in its package: one called like a public name would hide that name.
    assert not {path.stem for path in (PACKAGE / room).glob("*.py")} & set(package.__all__)
    with pytest.raises(AttributeError, match=f"jetson_specdec.{room}.*no_such_name"):
        _ = package.no_such_name


def test_importing_loads_nothing_heavy():
    code = "import sys, json; import jetson_specdec; sys.stdout.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0]={sys.path!r}; {code}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    loaded = set(json.loads(done.stdout))
    assert not loaded & (set(HEAVY) - {"json", "re"}), loaded & set(HEAVY)
    assert len([name for name in loaded if name.startswith("jetson_specdec")]) == 1


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_plan_of_a_shell_recipe_loads_only_what_it_needs(tmp_path, options):
    recipe = tmp_path / "serve.sh"
    recipe.write_text("docker run vllm/vllm-openai:v0.32.0 --model Qwen/Qwen3-8B --gpu-memory-utilization 0.75\n")
    words = ["plan", str(recipe), "--device", "thor-t5000", "--l4t", "38.4.0", *options]
    code = (
        "import sys; from jetson_specdec.cli import main; code = main(sys.argv[1:]); "
        "sys.stderr.write(' '.join(sys.modules)); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert "jetson_specdec.planner" in loaded
    heavy = set(HEAVY) - {"attrs", "json", "re"} | {"importlib.resources", "subprocess", "email", "hashlib", "base64"}
    assert not loaded & heavy
    others = ("apply", "gate", "loadgen", "logs", "measurements", "server", "testing", "tune")
    assert not loaded & {f"jetson_specdec.{room}" for room in others}
    assert not loaded & {
        f"jetson_specdec.recipe.{form}" for form in ("compose", "embedded", "manifest", "unit", "yaml_tree")
    }
    assert not loaded & {
        f"jetson_specdec.models.{name}" for name in ("config_read", "hub", "safetensors_read", "shape")
    }


def test_values_are_made_the_cheap_way():
    dear = re.compile(r"^from attrs import .*\bfrozen\b|\battrs\.frozen\(|@attrs\.frozen", re.MULTILINE)
    found = [path for path in PACKAGE.rglob("*.py") if dear.search(path.read_text(encoding="utf-8"))]
    assert found == [PACKAGE / "values.py"], "import frozen from jetson_specdec.values"


def _literal_codes():
    for path in PACKAGE.rglob("*.py"):
        for code in re.findall(r"\"(JS[DE]\d{3})\"", path.read_text(encoding="utf-8")):
            yield code, path.name


def test_every_code_in_the_source_has_a_text():
    missing = {(code, name) for code, name in _literal_codes() if messages.template(code) is None}
    assert not missing


def test_every_finding_code_has_topic_severity_and_text():
    codes = messages.all_codes()
    assert codes
    for code, info in codes.items():
        assert re.fullmatch(r"[a-z0-9-]+", info["topic"]), code
        assert info["severity"] in ("info", "warning", "blocking"), code
        assert messages.template(code), code


@pytest.mark.parametrize("area", sorted({*messages.AREAS.values(), "steps"}))
def test_texts_are_well_formed(area):
    texts = json.loads((PACKAGE / "messages" / "en" / f"{area}.json").read_text(encoding="utf-8"))
    for key, entry in texts.items():
        list(string.Formatter().parse(entry["message"]))
        assert messages.render(key, {})  # every value missing still renders
        assert "\n" not in entry["message"], key


def test_rendering_knows_units_and_never_fails():
    render = messages.render
    assert "2.0 GiB" in render("JSD511", {"utilization": 0.9, "outside_bytes": 2**31, "needed_bytes": 2**31})
    assert render("JSD999", {"a": 1}) == "JSD999 (a=1)"
    assert "unknown" in render("JSD510", {})


def test_bytes_are_said_in_one_way():
    assert messages.bytes_text(3 * 2**30 // 2) == "1.50 GiB"
    assert messages.bytes_text(50 * 2**20) == "50 MiB"
    assert messages.bytes_text(3 * 2**29, "gib") == "1.5 GiB"
    assert messages.bytes_text(3 * 2**29, "mib") == "1536 MiB"
    assert messages.bytes_text(-3 * 2**30) == "-3.00 GiB"


def test_every_error_renders_one_line():
    from jetson_specdec.errors import InputError, SpecdecError

    error = InputError("JSE005", path="x", reason="no")
    assert isinstance(error, SpecdecError)
    assert str(error) == "cannot read x: no."
    assert error.exit_code == 2
