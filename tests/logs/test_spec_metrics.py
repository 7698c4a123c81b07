# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.logs import ServerCounters, SpecMetrics

MODEL = 'model_name="org/target"'


def page(engines, *, created=None, extra=""):
    """A metrics page; `engines` is a list of (drafts, drafted, accepted, accepted per position)."""
    lines = ["# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts."]
    for index, (drafts, drafted, accepted, positions) in enumerate(engines):
        labels = f'engine="{index}",{MODEL}'
        lines.append(f"vllm:spec_decode_num_drafts_total{{{labels}}} {float(drafts)}")
        if created is not None:
            lines.append(f"vllm:spec_decode_num_drafts_created{{{labels}}} {created}")
        lines.append(f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {float(drafted)}")
        lines.append(f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {float(accepted)}")
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{p}"}} {float(n)}'
            for p, n in enumerate(positions)
        ]
    return "\n".join(lines) + "\n" + extra


def topics(metrics):
    return [finding.topic for finding in metrics.findings]


def line(length, accepted, drafted, rates):
    shown = ", ".join(f"{rate:.3f}" for rate in rates)
    return (
        f"INFO 01-02 03:04:05 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: {length:.2f}, "
        f"Accepted throughput: 1.00 tokens/s, Drafted throughput: 2.00 tokens/s, Accepted: {accepted} tokens, "
        f"Drafted: {drafted} tokens, Per-position acceptance rate: {shown}, "
        f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%\n"
    )


def test_delta_sums_engines_and_subtracts_the_first_scrape():
    before = page([(10, 30, 12, (8, 3, 1)), (5, 15, 5, (3, 2))])
    after = page([(210, 630, 312, (158, 103, 51)), (105, 315, 155, (83, 52, 20))])
    metrics = SpecMetrics.delta(before, after)
    # (200 + 100) drafts, (600 + 300) drafted, (300 + 150) accepted; positions 150+80, 100+50, 50+20.
    assert metrics.state == "active"
    assert metrics.acceptance_rate == pytest.approx(450 / 900)
    assert metrics.mean_acceptance_length == pytest.approx(1 + 450 / 300)
    assert metrics.per_position == pytest.approx((230 / 300, 150 / 300, 70 / 300))
    assert metrics.speculating is True
    assert topics(metrics) == []


def test_delta_without_a_first_scrape_counts_from_the_start():
    metrics = SpecMetrics.delta(None, page([(200, 400, 100, (80, 20))]))
    assert (metrics.acceptance_rate, metrics.mean_acceptance_length) == (0.25, 1.5)


def test_created_samples_and_comments_are_no_counts():
    after = page([(200, 400, 100, (80, 20))], created=1.7e9)
    assert SpecMetrics.delta(page([(0, 0, 0, (0, 0))], created=1.7e9), after).drafts == 200


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (page([(500, 1000, 400, (300, 100))]), page([(200, 400, 100, (80, 20))])),
        # The new engine has overtaken the old counts, but was created later.
        (page([(50, 100, 40, (30, 10))], created=1.7e9), page([(200, 400, 100, (80, 20))], created=1.7e9 + 60)),
    ],
)
def test_restart_gives_the_numbers_since_then(before, after):
    metrics = SpecMetrics.delta(before, after)
    assert metrics.state == "reset"
    assert (metrics.acceptance_rate, metrics.mean_acceptance_length) == (0.25, 1.5)
    assert "counter-reset" in topics(metrics)


def test_idle_is_not_zero_acceptance():
    scrape = page([(7, 21, 3, (2, 1, 0))])
    metrics = SpecMetrics.delta(scrape, scrape)
    assert metrics.state == "idle"
    assert (metrics.acceptance_rate, metrics.mean_acceptance_length, metrics.per_position) == (None, None, None)
    assert metrics.speculating is False
    assert topics(metrics) == []


def test_absent_counters_are_said():
    metrics = SpecMetrics.delta("", "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1.0\n")
    assert metrics.state == "absent"
    assert metrics.speculating is None
    assert topics(metrics) == ["no-counters"]


def test_zero_acceptance_and_too_few_drafts():
    metrics = SpecMetrics.delta(None, page([(40, 80, 0, (0, 0))]))
    assert metrics.acceptance_rate == 0
    assert metrics.mean_acceptance_length == 1
    assert topics(metrics) == ["zero-acceptance", "too-few-drafts"]


def test_legacy_page_is_named_and_has_no_length():
    text = (
        f"vllm:spec_decode_draft_acceptance_rate{{{MODEL}}} 0.6\n"
        f"vllm:spec_decode_efficiency{{{MODEL}}} 0.5\n"
        f"vllm:spec_decode_num_accepted_tokens_total{{{MODEL}}} 300.0\n"
        f"vllm:spec_decode_num_draft_tokens_total{{{MODEL}}} 500.0\n"
        f"vllm:spec_decode_num_emitted_tokens_total{{{MODEL}}} 400.0\n"
    )
    metrics = SpecMetrics.delta(None, text)
    assert metrics.state == "legacy"
    assert metrics.acceptance_rate == pytest.approx(0.6)
    assert metrics.mean_acceptance_length is None


def test_legacy_gauge_alone_gives_the_rate():
    metrics = SpecMetrics.delta(None, f"vllm:spec_decode_draft_acceptance_rate{{{MODEL}}} 0.6\n")
    assert (metrics.state, metrics.acceptance_rate) == ("legacy", 0.6)


@pytest.mark.parametrize("rename", [("vllm:", "ray_vllm_"), ("vllm:", "vllm_"), ("_total{", "{")])
def test_other_spellings_of_the_counters(rename):
    metrics = SpecMetrics.delta(None, page([(200, 400, 100, (80, 20))]).replace(*rename))
    assert (metrics.acceptance_rate, metrics.per_position) == (0.25, (0.4, 0.1))


def test_a_page_cut_off_or_with_nan_does_not_break():
    good = page([(200, 400, 100, (80, 20))])
    broken = good + "vllm:spec_decode_num_drafts_total{engine=\nvllm:num_preemptions_total NaN\n"
    assert SpecMetrics.delta(None, broken).drafts == 200


def test_log_pools_counts_instead_of_averaging_percentages():
    # 400/500 and 10/100: the mean of the percentages would be 45 %.
    log = line(1 + 400 / 250, 400, 500, (0.9, 0.7)) + line(1 + 10 / 50, 10, 100, (0.15, 0.05))
    metrics = SpecMetrics.from_log(log)
    assert metrics.acceptance_rate == pytest.approx(410 / 600)
    assert metrics.mean_acceptance_length == pytest.approx(1 + 410 / 300)
    assert metrics.per_position == pytest.approx(((0.9 * 250 + 0.15 * 50) / 300, (0.7 * 250 + 0.05 * 50) / 300))


def test_log_with_nan_only_is_idle():
    text = (
        "SpecDecoding metrics: Mean acceptance length: nan, Accepted throughput: 0.00 tokens/s, Drafted throughput: "
        "0.00 tokens/s, Accepted: 0 tokens, Drafted: 0 tokens, Per-position acceptance rate: nan, nan, "
        "Avg Draft acceptance rate: nan%\n"
    )
    metrics = SpecMetrics.from_log(text)
    assert metrics.state == "idle"
    assert metrics.acceptance_rate is None
    mixed = SpecMetrics.from_log(text + line(1 + 400 / 250, 400, 500, (0.9, 0.7)))
    assert mixed.acceptance_rate == pytest.approx(0.8)


def test_log_without_speculative_lines_is_absent():
    assert SpecMetrics.from_log("INFO: Application startup complete.\n").state == "absent"


def test_length_without_bonus_is_counted_in():
    metrics = SpecMetrics.from_log(line(400 / 250, 400, 500, (0.9, 0.7)))
    assert metrics.mean_acceptance_length == pytest.approx(1 + 400 / 250)
    assert "length-without-bonus" in topics(metrics)


def test_middle_generation_line_puts_the_rate_first():
    text = (
        "SpecDecoding metrics: Draft acceptance rate: 60.0%, Mean acceptance length: 2.20, Accepted: 300 tokens, "
        "Drafted: 500 tokens, Per-position acceptance rate: 0.700, 0.500\n"
    )
    metrics = SpecMetrics.from_log(text)
    assert metrics.acceptance_rate == pytest.approx(0.6)
    assert metrics.mean_acceptance_length == pytest.approx(2.2)


def test_earliest_line_of_the_present_engine_has_counts_only():
    metrics = SpecMetrics.from_log(
        "SpecDecoding metrics: Draft acceptance rate: 40.0%, Accepted: 40 tokens, Drafted: 100 tokens\n"
    )
    assert metrics.state == "active"
    assert metrics.acceptance_rate == pytest.approx(0.4)
    assert (metrics.mean_acceptance_length, metrics.per_position) == (None, None)


def test_batch_schedule_has_fewer_tokens_a_draft_than_positions():
    # 100 drafts of one token each, five positions printed: the printed length tells.
    metrics = SpecMetrics.from_log(line(1.55, 55, 100, (0.55, 0.0, 0.0, 0.0, 0.0)))
    assert metrics.drafts == pytest.approx(100, rel=0.01)
    assert metrics.mean_acceptance_length == pytest.approx(1.55, abs=0.01)
    assert "length-without-bonus" not in topics(metrics)


def test_legacy_log_is_cumulative_and_its_length_follows_from_emitted_tokens():
    def legacy(accepted, drafted, emitted):
        return (
            "INFO metrics.py:477] Speculative metrics: Draft acceptance rate: 0.5, System efficiency: 0.4, Number of "
            f"speculative tokens: 4, Number of accepted tokens: {accepted}, Number of draft tokens: {drafted}, Number "
            f"of emitted tokens: {emitted}.\n"
        )

    metrics = SpecMetrics.from_log(legacy(100, 400, 180) + legacy(500, 1200, 690))
    assert metrics.state == "legacy"
    assert metrics.acceptance_rate == pytest.approx(500 / 1200)
    assert metrics.mean_acceptance_length == pytest.approx(690 / 300)


def test_acceptance_of_one_response():
    body = {
        "id": "x",
        "metrics": {
            "speculative_decoding": {
                # 2 steps with none accepted, 3 with one, 1 with two.
                "acceptance_histogram": [2, 3, 1],
                "num_spec_steps": 6,
                "num_accepted_draft_tokens": 5,
                "num_draft_tokens": 12,
                "mean_acceptance_length": 1.8333,
                "num_spec_tokens": 2,
            }
        },
    }
    metrics = SpecMetrics.from_response(body)
    assert metrics is not None
    assert metrics.acceptance_rate == pytest.approx(5 / 12)
    assert metrics.mean_acceptance_length == pytest.approx(1 + 5 / 6)
    assert metrics.per_position == pytest.approx((4 / 6, 1 / 6))
    assert metrics.findings == ()


@pytest.mark.parametrize("body", [None, {}, {"metrics": None}, {"metrics": {"speculative_decoding": None}}, [1]])
def test_response_without_figures(body):
    assert SpecMetrics.from_response(body) is None


def test_server_counters():
    before = f"vllm:num_preemptions_total{{{MODEL}}} 2.0\nvllm:prefix_cache_hits_total{{{MODEL}}} 10.0\n"
    after = f"vllm:num_preemptions_total{{{MODEL}}} 9.0\nvllm:prefix_cache_hits_total{{{MODEL}}} 10.0\n"
    counters = ServerCounters.delta(before, after)
    assert (counters.preemptions, counters.prefix_cache_hits, counters.generation_tokens) == (7.0, 0.0, None)
    assert counters.restarted is False
    again = ServerCounters.delta(after, before)
    assert (again.preemptions, again.restarted) == (2.0, True)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(1, 8), st.integers(0, 10**6)).map(
            lambda drawn: (drawn[0], drawn[0] * drawn[1], min(drawn[2], drawn[0] * drawn[1]))
        ),
        min_size=1,
        max_size=4,
    )
)
def test_delta_from_zero_equals_plain_arithmetic(engines):
    zero = page([(0, 0, 0, ())] * len(engines))
    metrics = SpecMetrics.delta(zero, page([(*counts, ()) for counts in engines]))
    drafts, drafted, accepted = (sum(column) for column in zip(*engines, strict=True))
    if drafted == 0:
        assert metrics.state == "idle"
    else:
        assert math.isclose(metrics.acceptance_rate, accepted / drafted)
        assert math.isclose(metrics.mean_acceptance_length, 1 + accepted / drafts)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=400))
def test_any_text_is_answered(text):
    assert SpecMetrics.from_log(text).state in ("absent", "active", "idle", "legacy")
    assert SpecMetrics.delta(text, text).state in ("absent", "active", "idle", "legacy")


# --- several engines, and counts that cannot be -----------------------------------------------------------------------


def test_one_engine_of_several_restarts():
    before = page([(1000, 3000, 1500, (800, 500, 200)), (1000, 3000, 1500, (800, 500, 200))])
    after = page([(1100, 3300, 1650, (880, 550, 220)), (50, 150, 15, (10, 5, 0))])
    metrics = SpecMetrics.delta(before, after)
    # The first one's difference, the second one's counts since its restart: 100 + 50 drafts, 150 + 15 accepted.
    assert (metrics.state, metrics.drafts, metrics.drafted_tokens, metrics.accepted_tokens) == ("reset", 150, 450, 165)
    assert metrics.per_position == pytest.approx((90 / 150, 55 / 150, 20 / 150))
    lines = [f'vllm:generation_tokens_total{{engine="{n}",{MODEL}}}' for n in (0, 1)]
    counters = ServerCounters.delta(
        f"{lines[0]} 900.0\n{lines[1]} 900.0\n", f"{lines[0]} 1000.0\n{lines[1]} 7.0\n"
    )  # fmt: skip
    assert (counters.restarted, counters.generation_tokens) == (True, 107)


def test_an_engine_that_went_away_leaves_the_others_difference():
    before = page([(1000, 3000, 1500, (800, 500, 200)), (1000, 3000, 1500, (800, 500, 200))])
    metrics = SpecMetrics.delta(before, page([(1100, 3300, 1650, (880, 550, 220))]))
    assert (metrics.state, metrics.drafts, metrics.acceptance_rate) == ("reset", 100, 0.5)


@pytest.mark.parametrize(
    "counts",
    [
        (100, 300, 301, (100, 100, 100)),  # more accepted than drafted
        (10, 30, 300, (8, 5, 2)),
        (100, 300, 150, (20, 50, 80)),  # rising
        (100, 300, 150, (130, 15, 5)),  # above one
        (-10, -30, -15, (-8, -5, -2)),
        (100, 300, -1, (0, 0, 0)),
    ],
)
def test_counts_that_cannot_be_are_never_silently_active(counts):
    metrics = SpecMetrics.delta(None, page([counts]))
    assert (metrics.state, metrics.acceptance_rate, metrics.mean_acceptance_length) == ("reset", None, None)
    assert metrics.per_position is None
    assert "JSD680" in [finding.code for finding in metrics.findings]


def test_accepted_of_a_log_line_beyond_drafted_cannot_be():
    metrics = SpecMetrics.from_log(line(2.5, 400, 300, (0.8, 0.5, 0.2)))
    assert (metrics.state, metrics.acceptance_rate) == ("reset", None)


def test_positions_of_one_engine_are_not_those_of_all():
    text = page([(100, 300, 150, (80, 50, 20)), (100, 300, 150, ())])
    metrics = SpecMetrics.delta(None, text)
    assert (metrics.state, metrics.acceptance_rate, metrics.per_position) == ("active", 0.5, None)


def test_missing_positions_are_said_and_left_out():
    metrics = SpecMetrics.delta(None, page([(100, 300, 150, (80,))]))
    assert (metrics.acceptance_rate, metrics.per_position) == (0.5, None)
    assert "JSD680" in [finding.code for finding in metrics.findings]


@pytest.mark.parametrize("before", ["\ufeff", "  ", "\t"])
def test_marks_before_a_line_do_not_hide_it(before):
    text = page([(100, 300, 150, (80, 50, 20))]).split("\n", 1)[1]
    assert SpecMetrics.delta(None, before + text) == SpecMetrics.delta(None, text)


@pytest.mark.parametrize(
    "flood",
    [
        "Speculative metrics: " * 100_000,
        "SpecDecoding metrics: " * 100_000,
        "SpecDecoding metrics: Accepted: 1 tokens, Drafted: 2 tokens, Per-position acceptance rate: " + "0.5" * 500_000,
    ],
)
def test_hostile_logs_are_read_in_passing(flood):
    assert SpecMetrics.from_log(flood).per_position is None
