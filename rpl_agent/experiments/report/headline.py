"""The page's first five sentences, each computed from the rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

from rpl_agent.experiments import suites
from rpl_agent.experiments.store import Row, by_kind, number
from rpl_agent.experiments.tables import share

OURS = ("likelihood", "coupled")
#: as the agent learns by default
AGENT = (*OURS, "certificate")
THEIRS = ("clopper-pearson", "rectangular")


def headline(rows: Sequence[Row]) -> list[str]:
    """What was run, how tight, how sample-efficient, whether it held, and how the agents compare."""
    groups = by_kind(rows)
    sentences = [_what(rows), _tightness(groups["uniform"]), _samples(groups["online"])]
    sentences += [_held(groups["uniform"], groups["online"]), _agents(groups["compare"])]
    return [sentence for sentence in sentences if sentence]


def _of(rows: Sequence[Row], chosen: tuple[str, ...]) -> dict[tuple, Row]:
    return {
        (r["task"]["instance"], r["task"]["seed"], r["task"]["episodes"]): r
        for r in rows
        if suites.set_of(r["task"]) == chosen
    }


def _what(rows: Sequence[Row]) -> str:
    worlds = {row["task"]["instance"] for row in rows if "instance" in row["task"]}
    commits = sorted({(row["run"].get("commit") or "unknown")[:10] for row in rows})
    machines = sorted({f"{row['run']['machine'].get('cpus')} cores" for row in rows})
    return f"{len(rows)} runs on {len(worlds)} worlds, measured on {', '.join(machines)} at {', '.join(commits)}."


def _tightness(rows: Sequence[Row]) -> str:
    ours, theirs = _of(rows, OURS), _of(rows, THEIRS)
    ratios = [
        number(ours[k]["result"]["relative_gap"]) / number(theirs[k]["result"]["relative_gap"])
        for k in ours.keys() & theirs.keys()
    ]
    ratios = [ratio for ratio in ratios if math.isfinite(ratio)]
    if not ratios:
        return ""
    return (
        f"On the same data the certified interval of {suites.set_name(*OURS)} is {median(ratios):.2f} times as wide as "
        f"that of the paper's tightest set in the median of {len(ratios)} instances (from {min(ratios):.2f} to "
        f"{max(ratios):.2f})."
    )


def _samples(rows: Sequence[Row]) -> str:
    shares = {}
    for name in sorted({row["task"]["instance"] for row in rows}):
        some = [row for row in rows if row["task"]["instance"] == name]
        mine, goal = list(_of(some, AGENT).values()), list(_of(some, ("anytime", "rectangular")).values())
        found = share(mine, goal) if mine and goal else None
        if found is not None:
            shares[name] = found
    if not shares:
        return ""
    best, worst = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    return (
        f"Learning online it needs {100 * median(shares.values()):.0f} % of the episodes (median) for the guarantee "
        f"with which the paper's set, made valid online, ends: {100 * shares[best]:.0f} % on {best}, "
        f"{100 * shares[worst]:.0f} % on {worst}."
    )


def _held(uniform: Sequence[Row], online: Sequence[Row]) -> str:
    valid = [row for row in online if row["task"]["confidence"] in ("likelihood", "anytime")]
    broken = sum(not row["result"]["covered"] for row in uniform) + sum(_violated(row) for row in valid)
    total = len(uniform) + len(valid)
    if not total:
        return ""
    held = "every one of them held" if not broken else f"{broken} of them did not hold"
    return f"{total} certified intervals were compared with the true values: {held}."


def _violated(row: Row) -> bool:
    """Whether a guarantee along the run was better than the policy's true value."""
    sign = 1.0 if row["result"]["sense"] == "max" else -1.0
    tolerance = 1e-9 * max(1.0, abs(number(row["result"]["value"])))
    return any(
        sign * number(p["certified"]) > sign * number(p["true"]) + tolerance
        for p in row["result"]["curve"]
        if p["certified"] is not None and p["true"] is not None
    )


def _agents(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    certified = {r["task"]["agent"] for r in rows if r["result"]["curve"][-1]["certified"] is not None}
    agents = {row["task"]["agent"] for row in rows}
    runs = {(row["task"]["instance"], row["task"]["agent"], row["task"]["seed"]) for row in rows}
    seeds = min(Counter((world, agent) for world, agent, _ in runs).values())
    return (
        f"{len(agents)} agents were compared with at least {seeds} seeds each; "
        f"{len(agents - certified)} of them end without any guarantee."
    )
