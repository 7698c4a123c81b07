# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.host import LocalHost, RecordedHost
from jetson_specdec.recipe import Arg, Mount, Recipe, ServeCommand, find_config, parse_config


def command(*words, **more):
    return ServeCommand(
        index=0,
        serve_form="vllm_serve",
        args=tuple(Arg(value=word, raw=word, start=0, end=0) for word in words),
        **more,
    )


@pytest.fixture
def board(tmp_path):
    """A board with two config files, and a home."""
    root = tmp_path / "root"
    for path, port in (("srv/arm/conf/v.yaml", 1), ("home/op/recipes/v.yaml", 2), ("home/op/conf/v.yaml", 3)):
        file = root / path
        file.parent.mkdir(parents=True)
        file.write_text(f"port: {port}\n")
    (tmp_path / "env.json").write_text(json.dumps({"HOME": "/home/op"}))
    return RecordedHost(tmp_path)


RECIPE = Recipe(text="", form="shell", path="/home/op/recipes/serve.sh")
CONF = Mount(host="/srv/arm/conf", container="/conf")


@pytest.mark.parametrize(
    ("named", "more", "port", "path"),
    [
        ("/conf/v.yaml", {"launcher": "docker", "mounts": (CONF,)}, 1, "/srv/arm/conf/v.yaml"),
        (
            "/conf/v.yaml",
            {"launcher": "docker", "mounts": (Mount(host="/srv", container="/"), CONF)},
            1,
            "/srv/arm/conf/v.yaml",
        ),
        ("v.yaml", {"launcher": "docker", "mounts": (CONF,), "workdir": "/conf"}, 1, "/srv/arm/conf/v.yaml"),
        (
            "/conf/v.yaml",
            {"launcher": "docker", "mounts": (Mount(host="$HOME/conf", container="/conf"),)},
            3,
            "/home/op/conf/v.yaml",
        ),
        (
            "/conf/v.yaml",
            {"launcher": "docker", "mounts": (Mount(host="../conf", container="/conf/"),)},
            3,
            "/home/op/conf/v.yaml",
        ),
        ("/other/v.yaml", {"launcher": "docker", "mounts": (CONF,)}, 2, "/home/op/recipes/v.yaml"),
        ("/srv/arm/conf/v.yaml", {}, 1, "/srv/arm/conf/v.yaml"),
        ("~/conf/v.yaml", {}, 3, "/home/op/conf/v.yaml"),
        ("v.yaml", {}, 2, "/home/op/recipes/v.yaml"),
        ("v.yaml", {"workdir": "/srv/arm/conf"}, 1, "/srv/arm/conf/v.yaml"),
    ],
)
def test_where_the_file_is(board, named, more, port, path):
    config = find_config(RECIPE, command("a/b", "--config", named, **more), host=board)
    assert config is not None
    assert config.found
    assert config.path == path
    assert config.named == named
    assert config.looked_in[-1] == path
    assert config.entry("port").value == port


def test_a_file_that_is_not_there_says_where_it_was_looked_for(board):
    config = find_config(
        RECIPE, command("a/b", "--config", "/conf/w.yaml", launcher="docker", mounts=(CONF,)), host=board
    )
    assert config is not None
    assert not config.found
    assert config.looked_in == ("/srv/arm/conf/w.yaml", "/home/op/recipes/w.yaml")


def test_a_container_path_is_not_looked_up_on_the_host(board):
    config = find_config(RECIPE, command("--config", "/srv/arm/conf/v.yaml", launcher="docker"), host=board)
    assert config is not None
    assert config.path == "/home/op/recipes/v.yaml"


@pytest.mark.parametrize("words", [("a/b",), ("a/b", "--config=/srv/arm/conf/v.yaml"), ("a/b", "--config")])
def test_no_config_file_is_named(board, words):
    assert find_config(RECIPE, command(*words), host=board) is None


def test_a_relative_recipe_path_starts_at_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.yaml").write_text("port: 4\n")
    recipe = Recipe(text="", form="shell", path="serve.sh")
    config = find_config(recipe, command("a/b", "--config", "v.yaml"), host=LocalHost())
    assert config is not None
    assert config.path == str(tmp_path / "v.yaml")


def test_a_broken_file_is_one_clear_line(board, tmp_path):
    (tmp_path / "root/home/op/recipes/bad.yaml").write_text("port: 1\nport: 2\n")
    with pytest.raises(RecipeSyntaxError) as caught:
        find_config(RECIPE, command("a/b", "--config", "bad.yaml"), host=board)
    assert str(caught.value) == "/home/op/recipes/bad.yaml, line 2: the key port is given twice; keep one."


def test_values_are_those_of_yaml_1_1_with_their_places():
    text = "a: yes\nb: 010\n'c-d': 'x'\ne: [1, 2]\nf:\n  g: 1\nh: 1.50 # n\n"
    config = parse_config(text)
    assert {entry.key: entry.value for entry in config.entries} == {
        "a": True,
        "b": 8,
        "c-d": "x",
        "e": [1, 2],
        "f": {"g": 1},
        "h": 1.5,
    }
    assert {entry.key: text[entry.start : entry.end] for entry in config.entries} == {
        "a": "yes",
        "b": "010",
        "c-d": "'x'",
        "e": "[1, 2]",
        "f": "g: 1",
        "h": "1.50",
    }
    assert [entry.line for entry in config.entries] == [1, 2, 3, 4, 5, 7]


def test_merged_keys_are_read():
    config = parse_config("base: &b {port: 1}\n<<: *b\nmodel: a/b\n")
    assert config.entry("port").value == 1
    assert config.entry("port").start == -1
