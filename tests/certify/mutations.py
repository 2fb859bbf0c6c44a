"""Proofs changed towards a stronger claim, one number at a time: the checker must refuse each of them.

`python -m tests.certify.mutations --count 1000` draws that many from proofs of six worlds and prints what was accepted.
Changed are the claim itself, δ, and everything that the proof brings with it. Model and data are what a proof is about:
another model makes another statement, which may be true; `rpl certify --verify` compares them with the reader's own.
"""

from __future__ import annotations

import argparse
import collections
import copy
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from rpl_agent import checker


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers stand."""
    if isinstance(part, dict | list):
        for key, inner in part.items() if isinstance(part, dict) else enumerate(part):
            yield from places(inner, (*path, key))
    elif isinstance(part, int | float) and not isinstance(part, bool):
        yield path


def changed(proof: dict[str, Any], path: tuple[Any, ...], factor: float, shift: float) -> dict[str, Any]:
    """The proof with one number changed."""
    found = {**proof, path[0]: copy.deepcopy(proof[path[0]])}
    part: Any = found
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = part[path[-1]] * factor + shift
    return found


def sharpest(proof: dict[str, Any]) -> dict[str, Any]:
    """The proof with all that it proves as its claim: a certificate may say less."""
    found = checker.check(proof)
    claim = {}
    for side, way in (("lower", -math.inf), ("upper", math.inf)):
        bound = found[f"{side} proved"]
        if bound is None:
            claim[side] = None
            continue
        number = float(bound)
        claim[side] = (
            number if (Fraction(number) - bound) * int(math.copysign(1, way)) >= 0 else math.nextafter(number, way)
        )
    checker.check(proof | {"claim": claim})
    return proof | {"claim": claim}


def stronger(proof: dict[str, Any], draw: random.Random) -> tuple[str, dict[str, Any]]:
    """(what was changed, the proof with a claim that is stronger, by one part in 10^9 or by much)."""
    size = draw.choice([1e-9, 1e-6, 1e-2, 1.0])
    kind = draw.choice(["claim", "delta", "values", "region", "values and claim"])
    side, sign = draw.choice([(s, w) for s, w in (("lower", 1.0), ("upper", -1.0)) if proof["claim"][s] is not None])
    claim = proof["claim"][side]
    raised = {**proof["claim"], side: claim + sign * size * max(abs(claim), 1e-3)}
    if kind == "claim":
        return f"claim {side}", {**proof, "claim": raised}
    if kind == "delta":  # the same bounds with more confidence
        return "delta", {**proof, "delta": proof["delta"] * (1 - max(size, 1e-2) / 2)}
    # a changed witness with a claim that needs it
    if kind == "region":
        all_places = [("regions", *path) for path in places(proof["regions"])]
    else:
        all_places = [(side, *path) for path in places(proof[side] or {})] or [("claim", side)]
    path = draw.choice(all_places)
    change = draw.choice([1 - size, 1 + size, -1.0])
    found = changed(proof, path, change, draw.choice([0.0, sign * size]))
    return f"{path[0]} {path[1]} and claim", {**found, "claim": raised}


def mutated(
    proof: dict[str, Any], count: int, draw: random.Random, truth: tuple[float, float]
) -> tuple[int, list[str]]:
    """(how many were tried, what was accepted and should not have been).

    With other value functions or another ball a stronger claim may be proved, where the first proof had room: that is
    no fault as long as the claim is true. ``truth`` are the values that the two bounds are bounds of.
    """
    proof = sharpest(proof)
    accepted = []
    for _ in range(count):
        what, found = stronger(proof, draw)
        try:
            checker.check(found)
        except (checker.Refused, *checker.MALFORMED):
            continue
        claim = found["claim"]
        low, high = (math.nan if claim[side] is None else claim[side] for side in ("lower", "upper"))
        is_true = not low > truth[0] + 1e-9 and not high < truth[1] - 1e-9
        if not (what.endswith("and claim") and is_true):
            accepted.append(what)
    return count, accepted


def main() -> None:
    import numpy as np

    import rpl_envs
    from rpl_agent.evidence.sampling import uniform_counts
    from rpl_agent.pipeline import certify
    from rpl_agent.proof import prove
    from tests.certify.test_checker import WORLDS, optimum

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw, total = random.Random(arguments.seed), collections.Counter[str]()
    for name, episodes in WORLDS.items():
        world = rpl_envs.benchmark(name)
        counts = uniform_counts(
            world.pmdp, world.objective, np.asarray(world.theta), episodes, world.max_episode_steps, arguments.seed
        )
        certificate = certify(world.pmdp, counts, world.objective)
        proof = prove(world.pmdp, counts, certificate)
        best = optimum(world.pmdp, np.asarray(world.theta), certificate)
        tried, accepted = mutated(proof, -(-arguments.count // len(WORLDS)), draw, best)
        total["tried"] += tried
        total["accepted"] += len(accepted)
        print(f"{name}: {tried} tried, {len(accepted)} accepted {sorted(set(accepted))}", flush=True)
    print(dict(total))


if __name__ == "__main__":
    main()
