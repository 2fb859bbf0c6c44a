"""Tables from rows alone: the paper's figures beside ours, as text and CSV.

published.csv has the paper's Tables 2 and 3 (uniform sampling) and 5 (ellipsoids). Instances are named by their true
sizes: the paper's Betting "(150)" is n = 140 in Tables 2 and 3 and n = 135 in Tables 1 and 5; its Glider "(106, 99)" is
69x67 in Tables 2 and 3 and 71x67 in Tables 1 and 5; its Glider "(51, 47)" has a region as target in Tables 2 and 3 and
a cell in Tables 1 and 5. Lines without numbers are time-outs after 2 hours.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from rpl_agent.studies.experiments import suites
from rpl_agent.studies.experiments.runner import Row, by_kind, grouped, number
from rpl_envs import INSTANCES


class Published(NamedTuple):
    """One cell of the paper; None if it timed out or is not given."""

    lower: float | None
    upper: float | None
    gap: float | None
    build: float | None
    solve: float | None
    total: float | None

    @property
    def timed_out(self) -> bool:
        return self.lower is None


def _read(wanted: str) -> dict[tuple[str, str, str], Published]:
    """(instance, confidence, relaxation) -> cell of a table."""
    cells = {}
    lines = files("rpl_agent.studies.experiments").joinpath("published.csv").read_text().splitlines()[1:]
    for table, instance, confidence, relaxation, *texts in csv.reader(lines):
        cell = Published(*(float(text) if text else None for text in texts))
        if cell.build is not None and cell.solve is not None:
            cell = cell._replace(total=cell.build + cell.solve)
        if table == wanted:
            cells[instance, confidence, relaxation] = cell
    return cells


TABLE_2, TABLE_3, TABLE_5 = map(_read, "235")


def published(instance: str, confidence: str, relaxation: str) -> Published | None:
    """The paper's cell for a set on an instance: from the main table if it is there, else from the ellipsoid table."""
    key = (instance, confidence, relaxation)
    return TABLE_2.get(key) or TABLE_5.get(key)


#: An agent has arrived when it is this close to V* (relative) and stays there.
CLOSE = 0.05
BOOTSTRAP_SAMPLES = 2000
LEVEL = 0.95


class Estimate(NamedTuple):
    """A point with a confidence interval over seeds."""

    point: float
    low: float
    high: float


def interquartile_mean(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Mean of the middle half along the last axis; fractional weights at its ends treat every sample size alike.

    An infinite value inside the middle half makes the mean infinite; outside it has no effect.
    """
    ordered = np.sort(np.asarray(values, dtype=float), axis=-1)
    n = ordered.shape[-1]
    if n == 0:
        raise ValueError("no values to average")
    edges = np.arange(n + 1) / n
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    inside = weights > 1e-12
    return (ordered[..., inside] * weights[inside]).sum(axis=-1) / weights[inside].sum()


def without_nan(values: Sequence[float] | np.ndarray) -> np.ndarray:
    return np.asarray([v for v in values if not math.isnan(v)], dtype=float)


def middle_mean(values: Sequence[float] | np.ndarray) -> float:
    """The interquartile mean of the numbers among values, NaN if there is none."""
    data = without_nan(values)
    return float(interquartile_mean(data)) if len(data) else math.nan


def bootstrap(values: Sequence[float]) -> Estimate:
    """Interquartile mean with a percentile bootstrap interval over runs; seeded, so tables are reproducible."""
    data = without_nan(values)
    point = middle_mean(data)
    if len(data) <= 1:
        return Estimate(point, point, point)
    rng = np.random.default_rng(0)
    means = interquartile_mean(data[rng.integers(0, len(data), (BOOTSTRAP_SAMPLES, len(data)))])
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail], method="inverted_cdf")  # no arithmetic between infinities
    return Estimate(point, float(low), float(high))


def is_close(value: float, optimum: float, maximise: bool, tolerance: float = CLOSE) -> bool:
    """Whether a value is at most ``tolerance`` · |V*| worse than V*."""
    loss = optimum - value if maximise else value - optimum
    return bool(loss <= tolerance * abs(optimum))


def arrival(
    episodes: Sequence[int], values: Sequence[float | None], optimum: float, maximise: bool, tolerance: float = CLOSE
) -> float:
    """First measured number of episodes from which the curve stays close to the optimum; inf if it never does."""
    arrived = math.inf
    for n, value in zip(reversed(episodes), reversed(values)):
        if value is None or not is_close(float(value), optimum, maximise, tolerance):
            break
        arrived = float(n)
    return arrived


#: A solver bracket wider than this share of V* is noted: part of the gap is then numerical.
WIDE_SLACK = 1e-3


@dataclass(frozen=True)
class Table:
    """Cells are strings; ``note`` explains them."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def without(self, left_out: Iterable[str]) -> Table:
        """The table without some of its columns."""
        kept = [i for i, column in enumerate(self.columns) if column not in left_out]
        rows = [[row[i] for i in kept] for row in self.rows]
        return replace(self, columns=[self.columns[i] for i in kept], rows=rows)

    def to_markdown(self) -> str:
        lines = ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in self.rows]
        return f"### {self.title}\n\n" + (f"{self.note}\n\n" if self.note else "") + "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return buffer.getvalue()


def short(value: float | None, digits: int = 3) -> str:
    """Three significant digits, as the paper prints them."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


def interval(lower: float | None, upper: float | None, digits: int = 3) -> str:
    return "–" if lower is None else f"[{short(lower, digits)}, {short(upper, digits)}]"


def _by(rows: Iterable[Row], *fields: str) -> dict[tuple, list[Row]]:
    return grouped(rows, lambda row: tuple(row["task"][field] for field in fields))


def ordered_instances(names: Iterable[str]) -> list[str]:
    """In the order of the registry."""
    known = list(INSTANCES)
    return sorted(set(names), key=lambda n: (known.index(n) if n in known else len(known), n))


def _mean(rows: Sequence[Row], field: str, part: str = "result") -> float:
    values = [number(row[part].get(field)) for row in rows]
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else max(values, key=abs)


# ---------------------------------------------------------------------- Table 1
def sizes_table(rows: Sequence[Row]) -> Table:
    found = {row["task"]["instance"]: row for row in rows}
    lines = []
    for name in ordered_instances(found):
        result, known = found[name]["result"], INSTANCES[name].counts if name in INSTANCES else None
        ours = (result["states"], result["transitions"], result["expressions"])
        agrees = "–" if known is None else ("yes" if ours == tuple(known) else f"no: {known}")
        lines.append(
            [
                name,
                *(f"{n:,}" for n in ours),
                str(result["parameters"]),
                str(result["rank"]),
                result["objective"],
                short(number(result["value"]), 6),
                agrees,
                short(number(found[name]["timing"].get("build"))),
            ]
        )
    columns = ("instance", "|S|", "|T|", "|Λ|", "parameters", "rank", "objective", "V*", "as published", "build [s]")
    note = "|Λ| counts the constant 1; “parameters” are the free ones (the paper also counts size constants)."
    return Table("table1_sizes", "Table 1 and 4: the models", columns, lines, note)


# ---------------------------------------------------------------------- Tables 2, 3, 5
def uniform_table(rows: Sequence[Row]) -> Table:
    """One line per instance and set, ours beside the paper's."""
    groups = _by(rows, "instance", "confidence", "relaxation")
    order = {s: i for i, s in enumerate(suites.UNIFORM_SETS)}
    lines = []
    for name in ordered_instances(n for n, _, _ in groups):
        sets = sorted(((c, r) for n, c, r in groups if n == name), key=lambda s: order.get(s, len(order)))
        for confidence, relaxation in sets:
            some = groups[name, confidence, relaxation]
            paper = published(name, confidence, relaxation)
            build, solve = _mean(some, "build", "timing"), _mean(some, "solve", "timing")
            theirs = ["–", "–", "–"]
            if paper is not None:
                theirs = (
                    ["–", "–", "time-out"]
                    if paper.timed_out
                    else [interval(paper.lower, paper.upper), short(paper.gap), short(paper.total)]
                )
            lines.append(
                [
                    name,
                    suites.set_name(confidence, relaxation),
                    interval(_mean(some, "lower"), _mean(some, "upper")),
                    short(_mean(some, "relative_gap")),
                    short(build),
                    short(solve),
                    *theirs,
                    short(_mean(some, "value"), 6),
                    remark(some),
                ]
            )
    columns = (
        "instance",
        "set",
        "[V low, V up]",
        "rel. gap",
        "build [s]",
        "solve [s]",
        "paper [V low, V up]",
        "paper gap",
        "paper [s]",
        "V*",
        "remark",
    )
    episodes = sorted({row["task"]["episodes"] for row in rows})
    note = (
        f"Bounds on the value of the true-optimal policy after {', '.join(f'{n:,}' for n in episodes)} uniform "
        "trajectories, δ = 0.001. The paper's column is Table 2 where it has the row, else Table 5."
    )
    return Table("table2_uniform", "Tables 2, 3 and 5: uniform sampling", columns, lines, note)


def remark(rows: Sequence[Row]) -> str:
    """Remarks that a reader of a cell needs."""
    remarks = []
    if any(row["result"].get("fallback") for row in rows):
        remarks.append("fallback to untied intervals")
    if any(number(row["result"]["slack"]) > WIDE_SLACK * abs(number(row["result"]["value"])) for row in rows):
        remarks.append("solver's bracket wide")
    missed = sum(not row["result"]["covered"] for row in rows)
    if missed:
        remarks.append(f"V* outside in {missed} of {len(rows)}")
    return "; ".join(remarks)


def _compared_with_paper(
    rows: Sequence[Row], ours: Callable[[Sequence[Row]], float], theirs: Callable[[Published], float | None]
) -> tuple[list[str], list[list[str]], list[float]]:
    """(columns, lines, totals) in the layout of Table 2: one line per instance, ours / the paper's for every set."""
    groups = _by(rows, "instance", "confidence", "relaxation")
    sets = [s for s in suites.UNIFORM_SETS if any((c, r) == s for _, c, r in groups)]
    lines, totals = [], [0.0] * len(sets)
    for name in ordered_instances(n for n, _, _ in groups):
        line = [name]
        for i, chosen in enumerate(sets):
            some = groups.get((name, *chosen))
            mine = math.nan if some is None else ours(some)
            totals[i] += 0.0 if math.isnan(mine) else mine
            paper = published(name, *chosen)
            beside = "" if paper is None else " / TO" if paper.timed_out else f" / {short(theirs(paper))}"
            line.append(short(mine) + beside)
        lines.append(line)
    return ["instance", *(suites.set_name(*s) for s in sets)], lines, totals


def gaps_table(rows: Sequence[Row]) -> Table:
    columns, lines, _ = _compared_with_paper(rows, lambda some: _mean(some, "relative_gap"), lambda paper: paper.gap)
    return Table("table2_gaps", "Relative gaps, ours / the paper's", columns, lines, "TO: time-out after 2 hours.")


def times_table(rows: Sequence[Row]) -> Table:
    columns, lines, totals = _compared_with_paper(
        rows, lambda some: _mean(some, "build", "timing") + _mean(some, "solve", "timing"), lambda paper: paper.total
    )
    lines.append(["all", *(short(t) for t in totals)])
    note = "Seconds to build and solve, ours / the paper's (another machine; TO: time-out after 7200 s)."
    return Table("table3_seconds", "Runtimes", columns, lines, note)


# ---------------------------------------------------------------------- Figures 2 and 4, in numbers
def online_table(rows: Sequence[Row]) -> Table:
    """Final guarantees, and the share of episodes with which a set reaches P_R(U)'s final guarantee."""
    groups = grouped(rows, lambda row: (row["task"]["instance"], suites.set_of(row["task"])))
    order = {s: i for i, s in enumerate(suites.ONLINE_SETS)}
    lines = []
    for name in ordered_instances(n for n, _ in groups):
        goals = [groups.get((name, (confidence, "rectangular"))) for confidence in ("clopper-pearson", "anytime")]
        for chosen in sorted((s for n, s in groups if n == name), key=lambda s: order.get(s, len(order))):
            some = groups[name, chosen]
            lines.append(
                [
                    name,
                    suites.set_name(*chosen),
                    str(len(some)),
                    f"{some[0]['task']['episodes']:,}",
                    short(number(some[0]["result"]["value"]), 5),
                    short(_final(some, "true"), 5),
                    short(_final(some, "certified"), 5),
                    *(share_for(some, goal) for goal in goals),
                    short(math.fsum(number(row["result"]["curve"][-1]["updates"]) for row in some) / len(some)),
                    short(_mean(some, "learning", "timing")),
                ]
            )
    columns = (
        "instance",
        "set",
        "seeds",
        "episodes",
        "V*",
        "true value",
        "guarantee",
        "share for P_R(U)",
        "share for anytime P_R",
        "updates",
        "seconds",
    )
    note = (
        "Interquartile means over seeds. A share is the part of the episodes after which the mean guarantee is at "
        "least as good as the one that set ends with. P_R(U) is not valid online; anytime P_R is that set made valid."
    )
    return Table("figure4_online", "Figures 2 and 4 in numbers: online learning", columns, lines, note)


def _final(rows: Sequence[Row], field: str) -> float:
    return bootstrap([number(row["result"]["curve"][-1][field]) for row in rows]).point


def share_for(rows: Sequence[Row], reference: Sequence[Row] | None) -> str:
    """`share` as text."""
    found = None if reference is None else share(rows, reference)
    return "–" if reference is None else "not reached" if found is None else f"{100 * found:.3g} %"


def share(rows: Sequence[Row], reference: Sequence[Row]) -> float | None:
    """The share of episodes after which the mean guarantee of ``rows`` is as good as the last one of ``reference``."""
    goal, episodes = _final(reference, "certified"), rows[0]["task"]["episodes"]
    maximise = rows[0]["result"]["sense"] == "max"
    for points in zip(*(row["result"]["curve"] for row in rows)):
        value = middle_mean([number(point["certified"]) for point in points])
        if value >= goal if maximise else value <= goal:
            return points[0]["episodes"] / episodes
    return None


# ---------------------------------------------------------------------- compare
def compare_table(rows: Sequence[Row]) -> Table:
    """Agents side by side."""
    groups = _by(rows, "instance", "agent", "episodes")
    lines = []
    for name in ordered_instances(n for n, _, _ in groups):
        agents = suites.agent_order(a for n, a, _ in groups if n == name)
        budgets = sorted({b for n, _, b in groups if n == name})
        for agent, budget in itertools.product(agents, budgets):
            some = groups.get((name, agent, budget))
            if not some:
                continue
            value, maximise = number(some[0]["result"]["value"]), some[0]["result"]["sense"] == "max"
            cells = []
            for field in ("true", "certified"):
                curves = [[p[field] for p in row["result"]["curve"]] for row in some]
                if all(v is None for curve in curves for v in curve):
                    cells.append(("–", "–"))
                    continue
                final = bootstrap([number(curve[-1]) for curve in curves])
                episodes = [[p["episodes"] for p in row["result"]["curve"]] for row in some]
                arrived = bootstrap(
                    [
                        arrival(n, [None if v is None else number(v) for v in c], value, maximise)
                        for n, c in zip(episodes, curves)
                    ]
                )
                when = f"{arrived.point:.0f} {interval(arrived.low, arrived.high)}"
                when = "–" if math.isnan(value) else "never" if math.isinf(arrived.point) else when
                cells.append((f"{short(final.point, 4)} {interval(final.low, final.high, 4)}", when))
            (true, true_arrival), (certified, certified_arrival) = cells
            lines.append(
                [
                    name,
                    agent,
                    str(len(some)),
                    f"{budget:,}",
                    short(value, 5),
                    true,
                    certified,
                    true_arrival,
                    certified_arrival,
                    short(_mean(some, "learning", "timing")),
                ]
            )
    columns = (
        "world",
        "agent",
        "seeds",
        "episodes",
        "V*",
        "true value",
        "certified value",
        "episodes to 5 % (true)",
        "episodes to 5 % (certified)",
        "seconds",
    )
    note = (
        "Interquartile means with 95 % bootstrap intervals over seeds. “Episodes to 5 %”: from there on the value "
        "stays within 5 % of V*."
    )
    sampled = sorted({row["result"]["measured"] for row in rows if "measured" in row["result"]})
    if sampled:
        counts = ", ".join(f"{n:,}" for n in sampled)
        note += f" Where V* is –, the truth is not known: “true value” is then the mean of {counts} further episodes, "
        note += f"each of at most {suites.MEASURED_STEPS:,} steps where the environment has no time limit."
    return Table("compare", "Comparison of agents", columns, lines, note)


def tables(rows: Sequence[Row]) -> list[Table]:
    """Every table that the rows allow."""
    groups = by_kind(rows)
    found: list[Table] = []
    if groups["sizes"]:
        found.append(sizes_table(groups["sizes"]))
    for episodes in sorted({row["task"]["episodes"] for row in groups["uniform"]}, reverse=True):
        some = [row for row in groups["uniform"] if row["task"]["episodes"] == episodes]
        made = [gaps_table(some), times_table(some), uniform_table(some)]
        if any(table.name == made[0].name for table in found):
            made = [replace(t, name=f"{t.name}_{episodes}", title=f"{t.title} ({episodes:,} episodes)") for t in made]
        found += made
    if groups["online"]:
        found.append(online_table(groups["online"]))
    if groups["compare"]:
        found.append(compare_table(groups["compare"]))
    return found
