"""An explanation in sentences, for the terminal. Pure."""

from __future__ import annotations

from orchestrator.rankings.depth_curve import DepthCurve
from orchestrator.rankings.explanation import Alternative, Batch, Explanation, Rival
from orchestrator.supported_digits import plain
from orchestrator.trial import LoadLevel

# Configs without memory that are named.
MOST_DIED = 3


def explanation_lines(e: Explanation) -> list[str]:
    """One thought a line, most telling first."""
    lines = [_rival(e, rival) for rival in e.rivals if rival.better]
    lines += _curve(e)
    lines += _batches(e)
    lines += [_depths(e, curve) for curve in e.depths]
    lines += _headroom(e)
    if e.repaired:
        lines.append(f"It died as it was asked and served after a repair: {e.repaired}.")
    changes = [_alternative(e, alternative) for alternative in e.alternatives if alternative.kind != "memory"]
    died = [_alternative(e, alternative) for alternative in e.alternatives if alternative.kind == "memory"]
    changes += died[:MOST_DIED]
    changes += [f"and {len(died) - MOST_DIED} more that memory held back"] if len(died) > MOST_DIED else []
    lines += [f"What would change the pick: {'; '.join(changes)}."] if changes else []
    return lines


def _rival(e: Explanation, rival: Rival) -> str:
    """`depth 5 (runner-up) is 1.8% better at C=1 (282 against 277 tok/s), but 29.9% worse at C=16 (...)`"""
    told: list[str] = []
    before, turned = False, False
    for level, value, own, share in rival.better:
        is_better = share > 0
        link = "" if not told else ", but " if not turned and before != is_better else ", "
        turned = turned or (bool(told) and before != is_better)
        before = is_better
        how = "equal" if abs(share) < 0.0005 else f"{abs(share):.1%} {'better' if is_better else 'worse'}"
        told.append(f"{link}{how} at {level} ({_number(value)} against {_amount(e, own)})")
    return f"{_called(e, rival.config_id)} ({rival.why}) is {''.join(told)}."


def _curve(e: Explanation) -> list[str]:
    if len(e.curve) < 2:
        return []
    best = [str(gap.level) for gap in e.curve if gap.given_up == 0]
    given = [
        f"{gap.given_up:.1%} at {gap.level} ({_number(gap.value)} against {_amount(e, gap.best)} of "
        f"{_called(e, gap.best_id)})"
        for gap in e.curve
        if gap.given_up > 0
    ]
    first = (
        f"It is the best in {e.metric} at {', '.join(best)}" if best else f"It is the best in {e.metric} at no level"
    )
    return [f"{first}; given up elsewhere: {'; '.join(given)}." if given else f"{first}: nothing is given up."]


def _batches(e: Explanation) -> list[str]:
    lines = []
    for level in dict.fromkeys(batch.level for batch in e.batches):
        here = [batch for batch in e.batches if batch.level == level]
        whole = next((batch for batch in here if batch.most >= batch.asked), None)
        lines += [_capped(e, batch, whole) for batch in here if batch.most < batch.asked]
    return lines


def _capped(e: Explanation, batch: Batch, whole: Batch | None) -> str:
    text = f"At {batch.level} {_called(e, batch.config_id)} ran at most {batch.most:g} of {batch.asked} requests"
    limit = f"its limit is {batch.limit}" if batch.limit is not None and batch.limit < batch.asked else ""
    why = ", ".join(filter(None, (limit, batch.why)))
    text += f" ({why})" if why else ""
    if whole is None:
        return f"{text}; the others waited."
    text += f", {_called(e, whole.config_id)} ran {whole.most:g}"
    own, other = e.servers.get(batch.config_id), e.servers.get(whole.config_id)
    if own and other and own.kv_tokens and other.kv_tokens and own.kv_tokens < other.kv_tokens:
        tokens = f"{own.kv_tokens:,} tokens against {other.kv_tokens:,}"
        text += f": drafting and verifying take memory from the KV cache ({tokens})"
    return f"{text}."


def _depths(e: Explanation, curve: DepthCurve) -> str:
    """`Depth at C=1: 1: 123 tok/s; 3: 234 tok/s (+37.9% a step); ...`, and where it ends to pay."""
    told = []
    for point in curve.points:
        notes = [] if point.gain_per_step is None else [f"{point.gain_per_step:+z.1%} a step"]
        notes += [] if point.accept_length is None else [f"accepts {point.accept_length:.2f}"]
        told.append(f"{point.depth}: {_amount(e, point.value)}" + (f" ({', '.join(notes)})" if notes else ""))
    deepest = curve.points[-1].depth
    if curve.best == 0:
        end = "speculation gains nothing here"
    elif curve.enough < curve.best:
        end = f"more than {curve.enough} adds less than {e.near_tie:.1%}"
    elif curve.best < deepest and curve.is_flat_after:
        end = f"more than {curve.best} adds nothing"
    elif curve.best < deepest:
        end = f"it peaks at {curve.best} and falls after it"
    else:
        end = f"it rises up to {deepest}, the deepest that was measured"
    return f"Depth at {curve.level}: {'; '.join(told)}; {end}."


def _headroom(e: Explanation) -> list[str]:
    facts = e.servers.get(e.config_id)
    if facts is None:
        return []
    told = [] if facts.kv_tokens is None else [f"a KV cache of {facts.kv_tokens:,} tokens"]
    if told and e.kv_used is not None:
        told[0] += f", of which at most {e.kv_used:.1%} were in use"
    told += [] if facts.free_gib is None else [f"{facts.free_gib:.1f} GiB free on a GPU after graph capture"]
    told += [] if facts.running_limit is None else [f"at most {facts.running_limit} requests at once"]
    return [f"Headroom: {'; '.join(told)}."] if told else []


def _alternative(e: Explanation, alternative: Alternative) -> str:
    called = _called(e, alternative.config_id) if alternative.config_id else ""
    share = alternative.share or 0.0
    match alternative.kind:
        case "objective":
            return f"the objective {alternative.what} picks {called}"
        case "level":
            return f"at {alternative.what} {called} is {share:.1%} better"
        case "margin":
            return f"a near_tie below {share:.1%} picks {called}"
        case "limit":
            return f"without its limit {called} is better, which fails {alternative.what}"
        case _:
            did = f"served only after a repair, as {called}" if called else "did not fit"
            return f"with more memory {alternative.what}, which {did}"


def _called(e: Explanation, config_id: str) -> str:
    return e.labels.get(config_id, config_id)


def _amount(e: Explanation, value: float) -> str:
    return f"{_number(value)} {e.unit}".rstrip()


def _number(value: float) -> str:
    return plain(value)


def level_json(level: LoadLevel) -> dict[str, float]:
    """A load level as `ranking.json` tells it."""
    return {level.kind: level.value}


def explanation_json(e: Explanation) -> dict[str, object]:
    """The documented form for machines (docs/explain.md)."""
    second = e.runner_up
    return {
        "config_id": e.config_id,
        "metric": e.metric,
        "runner_up": None if second is None else {
            "config_id": second.config_id, "value": second.value, "gap_to_best": second.gap_to_best,
            "gap_interval": [second.gap_low, second.gap_high], "p_best": second.p_best},
        "curve": [
            {"at": level_json(g.level), "value": g.value, "best": g.best, "best_config": g.best_id,
             "given_up": g.given_up} for g in e.curve],
        "rivals": [
            {"config_id": r.config_id, "why": r.why, "levels": [
                {"at": level_json(level), "value": value, "winner": own, "better": share}
                for level, value, own, share in r.better]} for r in e.rivals],
        "batches": [
            {"config_id": b.config_id, "at": level_json(b.level), "asked": b.asked, "ran": b.most, "limit": b.limit,
             "why": b.why} for b in e.batches],
        "servers": {config_id: facts.as_json() for config_id, facts in e.servers.items()},
        "kv_used_share": e.kv_used,
        "depths": [
            {"at": level_json(c.level), "best": c.best, "enough": c.enough, "points": [
                {"depth": p.depth, "config_id": p.config_id, "value": p.value, "accept_length": p.accept_length,
                 "gain_per_step": p.gain_per_step} for p in c.points]} for c in e.depths],
        "alternatives": [
            {"kind": a.kind, "config_id": a.config_id, "what": a.what, "share": a.share} for a in e.alternatives],
        "repaired": e.repaired,
        "text": explanation_lines(e),
    }  # fmt: skip
