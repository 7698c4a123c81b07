# SPDX-License-Identifier: Apache-2.0
"""Hub and registry over HTTP, against servers of this machine."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from jetson_specdec.apply import HttpOnline

DIGEST = "sha256:" + "e" * 64
COMMIT = "3" * 40


class Server:
    """Answers from `routes`: (method, path) → (status, headers, body); remembers every request."""

    def __init__(self):
        self.routes, self.seen = {}, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self):
                path = urlsplit(self.path).path
                outer.seen.append((self.command, self.path, dict(self.headers)))
                answer = outer.routes.get((self.command, path), (404, {}, "{}"))
                status, headers, body = answer(self) if callable(answer) else answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                data = body.encode()
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_HEAD = _answer  # noqa: N815

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.place = f"127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_never-sent-anywhere")
    made = Server()
    yield made
    made.close()


MANIFEST = ("HEAD", "/v2/vllm/vllm-openai/manifests/latest")


def test_an_open_registry_gives_the_digest(server):
    server.routes[MANIFEST] = (200, {"Docker-Content-Digest": DIGEST}, "")
    assert HttpOnline().image_digest(f"{server.place}/vllm/vllm-openai") == DIGEST
    accept = server.seen[0][2]["Accept"]
    assert "image.index" in accept
    assert "manifest.list" in accept


def test_a_registry_that_hands_everybody_a_token(server):
    def manifest(request):
        if request.headers.get("Authorization") == "Bearer for-everybody":
            return 200, {"Docker-Content-Digest": DIGEST}, ""
        realm = f'Bearer realm="http://{server.place}/token",service="registry.test",scope="repository:a/b:pull"'
        return 401, {"WWW-Authenticate": realm}, ""

    server.routes["HEAD", "/v2/a/b/manifests/v1"] = manifest
    server.routes["GET", "/token"] = (200, {}, json.dumps({"token": "for-everybody"}))
    assert HttpOnline().image_digest(f"{server.place}/a/b:v1") == DIGEST
    asked = parse_qs(urlsplit(server.seen[1][1]).query)
    assert asked == {"service": ["registry.test"], "scope": ["repository:a/b:pull"]}
    assert not any("hf_never" in str(headers) for _, _, headers in server.seen)


@pytest.mark.parametrize(
    "answer",
    [
        (404, {}, ""),
        (200, {}, ""),
        (200, {"Docker-Content-Digest": "md5:1"}, ""),
        (500, {}, ""),
        (307, {"Location": "http://127.0.0.1:1/elsewhere"}, ""),
        (401, {}, ""),
        (401, {"WWW-Authenticate": 'Basic realm="login"'}, ""),
        (401, {"WWW-Authenticate": 'Bearer realm="http://example.test/token"'}, ""),
    ],
)
def test_anything_else_is_no_digest(server, answer):
    server.routes[MANIFEST] = answer
    assert HttpOnline().image_digest(f"{server.place}/vllm/vllm-openai:latest") is None


def hub_answer(**more):
    return json.dumps(
        {
            "id": "org/name",
            "modelId": "org/name",
            "sha": COMMIT,
            "private": False,
            "tags": [],
            "downloads": 1,
            "likes": 1,
            "siblings": [
                {"rfilename": "model-1.safetensors", "size": 100},
                {"rfilename": "model-2.safetensors", "size": 23},
                {"rfilename": "README.md", "size": 5},
            ],
            **more,
        }
    )


def test_the_hub_tells_commit_size_licence_and_gate(server):
    body = hub_answer(gated="manual", cardData={"license": "other", "license_name": "llama3.1"})
    server.routes["GET", "/api/models/org/name/revision/main"] = (200, {"Content-Type": "application/json"}, body)
    facts = HttpOnline().hub_facts("org/name", "main", endpoint=f"http://{server.place}")
    assert (facts.commit, facts.bytes, facts.licence, facts.gated, facts.custom_code) == (
        COMMIT,
        123,
        "llama3.1",
        True,
        False,
    )
    assert not any("hf_never" in str(headers) for _, _, headers in server.seen)


def test_sizes_that_are_not_all_known_are_no_size(server):
    files = [{"rfilename": "a.safetensors", "size": 100}, {"rfilename": "b.safetensors"}, {"rfilename": "modeling.py"}]
    body = hub_answer(siblings=files, gated=False)
    server.routes["GET", "/api/models/org/name"] = (200, {"Content-Type": "application/json"}, body)
    facts = HttpOnline().hub_facts("org/name", None, endpoint=f"http://{server.place}")
    assert (facts.bytes, facts.gated, facts.licence, facts.custom_code) == (None, False, None, True)


@pytest.mark.parametrize("answer", [(404, {}, "{}"), (401, {}, "{}"), (200, {}, "no json"), (200, {}, "[]")])
def test_a_hub_that_does_not_tell_is_no_answer(server, answer):
    server.routes["GET", "/api/models/org/name/revision/main"] = answer
    assert HttpOnline().hub_facts("org/name", "main", endpoint=f"http://{server.place}") is None


@pytest.mark.parametrize(("status", "answers"), [(200, True), (401, True), (301, True), (404, True), (502, False)])
def test_any_answer_of_a_place_counts_but_a_broken_gateway(server, status, answers):
    server.routes["GET", "/v2/"] = (status, {}, "")
    reach = HttpOnline().reach(f"http://{server.place}/v2/")
    assert reach.status == status
    assert reach.answers is answers


def test_a_closed_port_is_named_by_its_kind(server):
    server.close()
    reach = HttpOnline(timeout=2).reach(f"http://{server.place}/")
    assert (reach.status, reach.reason, reach.answers) == (None, "ConnectionRefusedError", False)
    assert HttpOnline(timeout=2).image_digest(f"{server.place}/a/b:c") is None
    assert HttpOnline().reach("nonsense").answers is False
