# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from hashlib import sha256
from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.loadgen import read_answer
from jetson_specdec.loadgen.shown import address
from jetson_specdec.loadgen.stream import events


def sse(*chunks, done=True):
    lines = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    return lines + ([b"data: [DONE]\n\n"] if done else [])


def text(words, finish=None, **extra):
    return {"choices": [{"index": 0, "text": words, "finish_reason": finish}], **extra}


def delta(finish=None, **content):
    return {"choices": [{"index": 0, "delta": content, "finish_reason": finish}]}


def usage(prompt, completion, **details):
    return {
        "choices": [],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": details or None,
        },
    }


def timed(pieces, start=0.1, gap=0.02):
    return [(start + gap * index, piece) for index, piece in enumerate(pieces)]


def record(answer, **extra):
    return answer.record(concurrency=1, index=0, start_s=0.0, prompt_id="p", category=None, **extra)


def test_times_are_those_of_vllm_bench():
    """10 tokens in 4 chunks at 0.25, 0.40, 0.50 and 0.70 s: TPOT = (0.70 − 0.25) / 9, not a gap between chunks."""
    pieces = [
        (0.25, sse(text("a"), done=False)[0]),
        (0.40, sse(text("b c d"), done=False)[0]),
        (0.50, sse(text("e f g h"), done=False)[0]),
        (0.70, sse(text("i j", "length"), done=False)[0]),
        (0.71, sse(usage(7, 10))[0]),
        (0.72, b"data: [DONE]\n\n"),
    ]
    seen = record(read_answer(pieces))
    assert (seen.ok, seen.finish_reason, seen.chunks) == (True, "length", 4)
    assert seen.ttft_ms == pytest.approx(250)
    assert seen.e2e_ms == pytest.approx(700)  # the usage chunk carries no token and does not count
    assert seen.tpot_ms == pytest.approx(450 / 9)
    assert (seen.input_tokens, seen.output_tokens) == (7, 10)
    assert seen.chunk_times_ms == pytest.approx((250, 400, 500, 700))
    assert seen.text_sha256 == sha256(b"ab c de f g hi j").hexdigest()


def test_role_only_chunk_is_no_token():
    pieces = timed(
        sse(delta(role="assistant", content=""), delta(content="yes"), delta("stop", content=" no"), usage(3, 2))
    )
    seen = record(read_answer(pieces))
    assert seen.ttft_ms == pytest.approx(120)
    assert seen.chunks == 2


def test_role_with_content_is_a_token():
    seen = record(read_answer(timed(sse(delta(role="assistant", content="hi"), delta("stop", content="")))))
    assert seen.ttft_ms == pytest.approx(100)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_counts_from_its_first_token(key):
    pieces = timed(
        sse(delta(role="assistant", content=""), delta(**{key: "hm"}), delta("stop", content="yes"), usage(3, 9))
    )
    answer = read_answer(pieces)
    seen = record(answer)
    assert answer.text == "hmyes"
    assert seen.ttft_ms == pytest.approx(120)
    assert seen.tpot_ms == pytest.approx(20 / 8)


def test_tool_calls_are_tokens():
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    answer = read_answer(timed(sse(delta(role="assistant", content=""), delta("tool_calls", tool_calls=[call]))))
    assert answer.ok
    assert len(answer.times_s) == 1


def test_one_token_has_no_time_per_token():
    seen = record(read_answer(timed(sse(text("a", "stop"), usage(3, 1)))))
    assert seen.ok
    assert seen.tpot_ms is None
    assert seen.e2e_ms == seen.ttft_ms


def test_without_usage_tokens_are_unknown_and_not_chunks():
    seen = record(read_answer(timed(sse(text("a b"), text(" c d", "length")))))
    assert seen.ok
    assert seen.output_tokens is None
    assert seen.tpot_ms is None
    assert seen.e2e_ms is not None


def test_tokens_counted_elsewhere():
    answer = read_answer(timed(sse(text("a b"), text(" c d", "length"))))
    assert record(answer, output_tokens=5).tpot_ms == pytest.approx(20 / 4)


def test_usage_in_every_chunk_counts_once():
    first = text("a", usage={"prompt_tokens": 4, "completion_tokens": 1})
    second = text("b c", "length", usage={"prompt_tokens": 4, "completion_tokens": 3})
    assert read_answer(timed(sse(first, second))).output_tokens == 3


def test_cached_tokens_and_token_ids():
    chunk = text("a", "stop")
    chunk["choices"][0]["token_ids"] = [5, 6]
    answer = read_answer(timed(sse(chunk, usage(40, 2, cached_tokens=32))))
    assert answer.cached_tokens == 32
    assert answer.token_ids == (5, 6)


def test_own_acceptance_of_a_request():
    figures = {
        "mean_acceptance_length": 2.5,
        "draft_acceptance_rate": 0.5,
        "acceptance_histogram": [1, 1, 1, 1],
        "num_spec_steps": 4,
        "num_accepted_draft_tokens": 6,
        "num_draft_tokens": 12,
        "num_spec_tokens": 3,
    }
    answer = read_answer(timed(sse(text("a", "stop"), {**usage(3, 11), "metrics": {"speculative_decoding": figures}})))
    assert answer.acceptance is not None
    assert answer.acceptance.rate == pytest.approx(0.5)
    assert answer.acceptance.mean_length == pytest.approx(2.5)
    assert answer.acceptance.per_position == pytest.approx((3 / 4, 2 / 4, 1 / 4))


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([], "no token arrived"),
        (sse(usage(3, 0)), "no token arrived"),
        (sse(text("a"), done=False), "the stream ended without a finish reason"),
        ([*sse(text("a"), done=False), b"data: {oops\n\n"], "malformed chunk"),
        ([*sse(text("a"), done=False), b"data: 7\n\n"], "malformed chunk"),
        (sse(text("a"), {"error": {"message": "engine died", "code": 500}}), "engine died"),
        (sse(text("a"), {"error": "engine died"}), "engine died"),
    ],
)
def test_what_is_no_answer(pieces, error):
    answer = read_answer(timed(pieces))
    seen = record(answer)
    assert (answer.ok, answer.error) == (False, error)
    assert (seen.ok, seen.error, seen.tpot_ms, seen.e2e_ms) == (False, error, None, None)


def test_what_the_client_saw_wins():
    answer = read_answer(timed(sse(text("a"), done=False)), failure="ReadError")
    assert answer.error == "ReadError"
    assert record(answer).ttft_ms == pytest.approx(100)  # the first token did arrive


def test_sse_forms():
    stream = [
        (0.1, b": ping\n\ndata: one\r\n\r\nevent: x\ndata:two\nid: 4\n\nda"),
        (0.2, b"ta: three\n"),
        (0.3, b"data: more\n"),
        (0.4, b"\ndata: last"),
    ]
    assert list(events(stream)) == [(0.1, b"one"), (0.1, b"two"), (0.4, b"three\nmore"), (0.4, b"last")]


@given(
    st.lists(st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",)), min_size=1), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.data(),
)
def test_events_do_not_depend_on_how_bytes_were_cut(payloads, newline, data):
    whole = "".join(f"data: {payload}{newline}{newline}" for payload in payloads).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    bounds = [0, *cuts, len(whole)]
    pieces = [(float(index), whole[a:b]) for index, (a, b) in enumerate(pairwise(bounds))]
    found = list(events(pieces))
    assert [event.decode() for _, event in found] == payloads
    # An event is never timed before its last byte: the piece that completes it is the one in which it ends.
    end = 0
    for (at, _), payload in zip(found, payloads, strict=True):
        end += len(f"data: {payload}{newline}{newline}".encode())
        # The \r of a \r\n ends the line already.
        assert bounds[int(at) + 1] >= end - (newline == "\r\n")
        assert bounds[int(at)] < end or bounds[int(at)] == bounds[int(at) + 1]


@given(st.lists(st.tuples(st.floats(0, 10), st.binary(max_size=40)), max_size=6))
def test_any_bytes_are_an_answer_or_an_error(pieces):
    answer = read_answer(pieces)
    assert answer.ok == (answer.error is None)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "usage",
                        "error",
                        "text",
                        "finish_reason",
                        "content",
                        "role",
                        "prompt_tokens_details",
                        "metrics",
                        "token_ids",
                        "completion_tokens",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_chunk_is_an_answer_or_an_error(chunk):
    answer = read_answer([(0.1, b"data: " + json.dumps(chunk).encode() + b"\n\n")])
    assert answer.ok == (answer.error is None)


# --- answers that were none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ({"object": "error", "message": "engine died", "code": 500}, "engine died"),
        ({"type": "error", "error": {"type": "overloaded", "message": "engine died"}}, "engine died"),
        ({"message": "engine died", "code": 500}, "engine died"),
        ({"detail": "engine died"}, "engine died"),
        ({"choices": [{"index": 0, "error": {"message": "engine died"}}]}, "engine died"),
        (text("", "abort"), "finish reason abort"),
        (text("", "error"), "finish reason error"),
        (delta("Cancelled", content=""), "finish reason Cancelled"),
        (text(" b"), "the stream ended without a finish reason"),
    ],
)
def test_an_answer_that_breaks_off_is_no_answer_even_with_done(last, error):
    answer = read_answer(timed(sse(text("a"), last)))
    assert (answer.ok, answer.error) == (False, error)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("body", [b'data: {"error": "engine died"}', b"data: engine died", b'data: "engine died"'])
def test_an_event_named_error_is_one(newline, body):
    pieces = [sse(text("a"))[0], newline.join((b"event: error", body, b"", b"data: [DONE]", b"", b""))]
    answer = read_answer(timed(pieces))
    assert (answer.ok, answer.error) == (False, "engine died")


def test_a_server_that_counts_but_never_says_why_it_ended_has_answered():
    assert read_answer(timed(sse(text("a"), usage(3, 1)))).ok
    assert not read_answer(timed(sse(text("a"), usage(3, 1), done=False))).ok


@pytest.mark.parametrize("told", [-5, 10**9, 0, 81, "many", 1.5, True])
def test_a_count_that_cannot_be_is_unknown_and_noted(told):
    answer = read_answer(timed(sse(text("a"), text("b", "length"), usage(3, 1) | {
        "usage": {"prompt_tokens": -7, "completion_tokens": told},
    })), max_tokens=64)  # fmt: skip
    seen = record(answer)
    assert (seen.ok, seen.output_tokens, seen.tpot_ms, seen.input_tokens) == (True, None, None, None)
    assert str(told) in seen.error


@pytest.mark.parametrize("told", [1, 64, 66])
def test_a_count_near_what_was_asked_for_is_believed(told):
    answer = read_answer(timed(sse(text("a"), text("b", "length"), usage(3, told))), max_tokens=64)
    assert (answer.output_tokens, record(answer).error) == (told, None)


def test_a_carriage_return_alone_ends_a_line():
    stream = b"\xef\xbb\xbfdata: one\r\rdata: two\rdata: more\r\r: comment\r\r"
    assert [data for _, data in events([(0.1, stream)])] == [b"one", b"two\nmore"]
    one_by_one = [(float(index), stream[index : index + 1]) for index in range(len(stream))]
    found = list(events(one_by_one))
    assert [data for _, data in found] == [b"one", b"two\nmore"]
    assert found[0][0] == stream.index(b"\r\r") + 1


def test_a_lone_surrogate_in_the_text_is_text():
    assert record(
        read_answer([(0.1, b'data: {"choices":[{"text":"\\ud800","finish_reason":"stop"}]}\n\n')])
    ).text_sha256


# --- secrets ---------------------------------------------------------------------------------------------------------

KEY = "sk-proj-aVeryLongKey0123456789abcdef"


@pytest.mark.parametrize(
    "chunk",
    [
        {"error": {"message": f"invalid header Authorization: Bearer {KEY}"}},
        {"object": "error", "message": f"bad key {KEY}"},
        {"error": {"headers": {"authorization": f"Bearer {KEY}"}}},
        {"detail": f"http://user:{KEY}@upstream/v1 is down"},
    ],
)
def test_a_key_in_an_error_is_not_shown(chunk):
    for known in ((KEY,), ()):
        seen = record(read_answer(timed(sse(text("a"), chunk)), secrets=known))
        assert not seen.ok
        assert KEY not in seen.error
    assert "a-local-word" not in read_answer([], failure="bad a-local-word", secrets=["a-local-word"]).error


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:pass-w0rd@host:8000/v1", "http://***@host:8000/v1"),
        ("http://pass-w0rd@host/v1", "http://***@host/v1"),
        ("user:pass-w0rd@host:8000", "***@host:8000"),
        ("http://host/v1?api_key=pass-w0rd", "http://host/v1?api_key=***"),
        ("http://host/v1?a=b&token=pass-w0rd", "http://host/v1?a=b&token=***"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://[::1", "http://[::1"),
    ],
)
def test_addresses_are_shown_without_their_secrets(url, shown):
    assert address(url) == shown


# --- the short way ---------------------------------------------------------------------------------------------------

odd = st.one_of(st.none(), st.just("w"), st.just(""), st.just(0), st.just({}), st.just([1]), st.just("error"))


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("content", "role", "reasoning", "tool_calls"), odd)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("finish_reason", "token_ids", "error", "text"), odd)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("usage", "object", "type", "error", "message"), odd)),
    st.booleans(),
)
def test_plain_chunks_are_read_as_all_others_are(inside, choice, outside, chat):
    """`metrics` sends a chunk the long way and says nothing in itself."""
    chunk = {"choices": [{**({"delta": inside} if chat else {}), **choice}], **outside}
    end = text("z", "length")
    short, long = (read_answer(timed(sse(part, end))) for part in (chunk, {**chunk, "metrics": {}}))
    assert (short.error is None) == (long.error is None)  # an error may quote the chunk
    assert evolve(short, error=None) == evolve(long, error=None)


@given(st.lists(st.sampled_from(["data: a", "data:b", "data: ", ": ping", "event: x", "id: 1", ""]), max_size=9))
def test_whole_pieces_are_taken_apart_as_all_others_are(lines):
    whole = "\n".join(["data: first", *lines, "", ""]).encode()
    assert list(events([(1.0, whole)])) == [
        (1.0, data) for _, data in events([(1.0, b": \n"[:2]), (1.0, b"\n" + whole)])
    ]
