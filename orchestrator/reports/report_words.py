"""What the words of a report mean, for a reader who has not run a sweep. Pure."""

from __future__ import annotations

from orchestrator.documents.report_document import Block, Facts
from orchestrator.reports.report_part import RunMaterial

Words = tuple[tuple[str, str], ...]
_OF_ALL: Words = (
    ("C=16", "16 requests in flight at any time: load with a fixed concurrency"),
    ("4 req/s", "4 requests a second, sent whether or not earlier ones are answered"),
    ("TTFT", "time to first token: from sending a request to the first token of its answer"),
    ("TPOT", "time per output token after the first; 1000 / TPOT in ms is the speed that a user sees, in tok/s"),
    ("p50, p99", "half, or 99%, of the requests were no slower"),
    ("output throughput", "output tokens of all requests together in a second"),
    ("goodput", "requests a second that kept every limit of the scenario"),
    ("start, trial", "one config on a freshly started server; starts are what is repeated"),
    ("point", "one load level on one start; its warm-up does not count"),
    ("slot", "the GPUs of a host that hold one server at a time"),
)
_OF_DRAFTS: Words = (
    ("accept length", "tokens that one verify pass of the model yields: drafts that were accepted, and one of its own"),
    ("speculation depth", "draft steps before each verify pass (speculative_num_steps); 0 is no speculation"),
)
_OF_SWEEPS: Words = (
    ("± and 95%", "half of the interval that holds the true value with 95% confidence, over starts and hosts"),
    ("gap", "how much worse than the best value of the ranking"),
    ("P(best)", "probability that no other config that keeps every limit is better"),
    ("near-tie", "so close to the best value (near_tie of the objective) that other things may decide"),
    ("repaired", "died as asked, for want of memory, and served with settings computed from its log"),
    ("infeasible", "cannot run by nature, which is a result; failed: broke, and says nothing about the config"),
)
_OF_NIGHTS: Words = (
    ("reference, candidate", "the pinned build, and the one that is tried tonight"),
    ("pair", "one start of each build, one after the other on the same hardware"),
    ("floor", "a difference that is so small that nobody minds it"),
    ("inconclusive", "the pairs differ too much to tell; neither a pass nor a regression"),
)


def word_blocks(run: RunMaterial) -> list[Block]:
    """Those that this kind of run uses."""
    speculates = any(settings.get("speculative_algorithm") for settings in run.ranking.configs.values())
    words = (*_OF_ALL, *(_OF_DRAFTS if speculates else ()), *(_OF_NIGHTS if run.night else _OF_SWEEPS))
    return [Facts("words-facts", words)]
