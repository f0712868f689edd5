"""Generates docs/metrics.md from the names and formulas of the metrics and the limits of the load client."""

# ruff: noqa: E501 - rows of tables cannot be folded

from __future__ import annotations

from orchestrator.points.metric_names import (
    DISTRIBUTIONS,
    LOW_STATISTICS,
    METRICS,
    SPEED,
    STATISTICS,
    TRIAL_METRICS,
    WORKLOAD_METRICS,
    Metric,
    parts,
)
from orchestrator.points.point_validity import CLIENT_LIMITS

HEAD = """\
# Metrics

Every metric that an [objective](objectives.md), a limit or a tie-breaker may name. This page is generated (`make docs`).

All are computed from the request records of one point (one workload at one load level on one server):

* **Start** of a request: its send in a closed loop (`concurrency`), its due time in an open loop (`rates`), so that a
  queue in the client is not hidden.
* **First token**: the first growth of the server's token count, or the first text, reasoning text or tool call where
  the server gives no count. A chunk with a role only, or without text, is not a token.
* **Settled window**, closed loop: from the send that first has all C slots filled until the first slot that is not
  filled again falls free. Open loop: first to last due time; what is counted in it is counted in the window moved by
  the median time from start to event, since the server is empty when it begins; a loop that was cut short ends one
  median latency before the cut. Warm-up requests count nowhere.
* **Token counts** are the server's. Where it never says, token metrics are absent, not 0.
* **Failed** requests are counted and listed; they are in no latency and no throughput.
* A **chunk** is what the server sends at once. With speculation it carries several tokens: rank on TPOT, not on chunk
  gaps.
* **Accept length** includes the bonus token: 1.0 means that no draft was accepted.
* **Percentiles** need values: p90 and p10 from 29, p95 and p5 from 59, p99 from 299 (then the largest value is, at
  95 %, no less than the true percentile). With fewer they are null, `-` in tables, and a limit or an objective on them says
  how many requests were there and how many are needed.
* **Several kinds of traffic** in a point are also told apart: `by_traffic` in `specsweep load --json`,
  `by_traffic_json` in the `points` table.
* **Within one run**: relative standard errors of throughputs, mean and median latencies from time slices
  ([statistics](statistics.md)), `within_run_json` in the `points` table: by metric, `relative_error` and `df`.

## State of a point

`state` in `specsweep load --json` and in the `points` table; how it is judged is in [statistics](statistics.md).

| state | meaning | what follows |
|---|---|---|
| `settled` | nothing changed over the point but by chance | - |
| `not_settled` | the beginning is not like the rest, and moves a mean by more than 2 % | a warning with the seconds |
| `not_settled` | latency or throughput changed until the end | the point is void |
| `saturated` | an open loop asked for more than the server can serve | TTFT, E2E, queue time, goodput and attainment are null; throughput is the server's capacity and stays |
| `unknown` | fewer than 200 requests or 10 rounds of them (saturation: 100 requests, 10 s), or a load that was not meant to be even | - |

## When a point is void

With the reason, its figures and what to do: no request succeeded; more than 1 % failed; more than 1 % found no port,
file or memory left on the client; sent requests are not all there as records (sent = ok + empty + failed + client limit
+ cut off); the server hung; more than 10 % of the requests found their kept-alive connection closed (each is sent once
more on a new one, and counted); it speculated otherwise than was asked; the point was never settled; or the client was
the bottleneck:

| what of the client | at most | why |
|---|---|---|
{limits}
| sends later than due, p99 (open loop) | 5 % of the median TTFT, at least 5 ms | a client that sends later than this measures itself |
| time that all sends took beyond what was due (open loop) | 5 %, a warning from 1 % | the rate was not offered; requests held back by `max_concurrency` are a warning of their own |

## Formulas

`note` says where a definition comes from, or how others of the same name differ. `{{...}}` are names of their own:
`ttft_p95_ms`, `tok_s_per_user_p5`.

| metric | unit | better | formula | note |
|---|---|---|---|---|
"""

OF_TRIALS = """
## Of a whole trial

One value for each server start, named without a load level; `max_rate_*` are of one workload ([objectives](objectives.md)).

| metric | unit | better | formula | note |
|---|---|---|---|---|
"""


def metrics_page() -> str:
    """docs/metrics.md."""
    limits = "\n".join(f"| {x.what} | {x.most:g} {x.unit} | {x.why} |" for x in CLIENT_LIMITS.values())
    rows = [_row(name, metric) for name, metric in METRICS.items() if parts(name) is None]
    rows.append(_row(f"tok_s_per_user_{{{','.join(LOW_STATISTICS)}}}", SPEED))
    rows += [
        _row(f"{name}_{{{','.join(STATISTICS)}}}_ms", Metric("ms", "min", formula, note))
        for name, (formula, note) in DISTRIBUTIONS.items()
    ]
    of_trials = "\n".join(_row(name, metric) for name, metric in (TRIAL_METRICS | WORKLOAD_METRICS).items())
    return (
        HEAD.replace("{limits}", limits).replace("{{...}}", "{...}")
        + "\n".join(rows)
        + "\n"
        + OF_TRIALS
        + of_trials
        + "\n"
    )


def _row(name: str, metric: Metric) -> str:
    better = {"max": "higher", "min": "lower", "none": "-"}[metric.direction]
    formula, note = (text.replace("|", "\\|") for text in (metric.formula, metric.note))
    return f"| `{name}` | {metric.unit or '-'} | {better} | {formula} | {note or '-'} |"
