"""`python -m tests.mutants`: small changes of the code that certificates rest on, each of which a test must notice.

What no test notices survives. Survivors that cannot make a bound false are accepted by name, with a reason
(tests/mutants/accepted.py); any other one makes the command fail, and so does an accepted name that belongs to no
mutant any more.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from tests.mutants import accepted
from tests.mutants.campaign import OPTIONS, Campaign
from tests.mutants.changes import ROOT, Mutant, changed_since, mutants_of, tests_of


@dataclass
class Result:
    """What became of the mutants so far."""

    total: int
    done: int = 0
    survivors: list[Mutant] = field(default_factory=list)

    def tell(self, mutant: Mutant, noticed: str, seconds: float) -> None:
        self.done += 1
        self.survivors += [] if noticed else [mutant]
        word = f"noticed by {noticed.rpartition('/')[2]}" if noticed else "SURVIVES"
        print(f"{self.done}/{self.total} {seconds:.1f} s {shown(mutant)}: {word}", flush=True)


def shown(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.lines[0]}: {mutant.name.partition(' ')[2]}"


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--only", metavar="FILE", help="mutants of files whose path contains this")
    found.add_argument("--place", metavar="NAME", help="mutants of functions whose name contains this")
    found.add_argument("--changed", metavar="COMMIT", help="mutants of lines that differ from this commit of git")
    found.add_argument("--from", metavar="FILE", dest="again", help="only the survivors in a summary of --json")
    found.add_argument("--sample", type=int, metavar="N", help="this many of them, drawn at random")
    found.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    found.add_argument("--minutes", type=float, help="start none after this time")
    found.add_argument("--slowest", type=float, default=float("inf"), metavar="S",
                       help="leave out tests that take more processor seconds than this")  # fmt: skip
    found.add_argument("--tests", nargs="+", metavar="FILE", help="run these tests in place of the nearest ones")
    found.add_argument("--accepted", action="store_true", help="run the accepted ones, too")
    found.add_argument("--list", action="store_true", help="print the mutants and run none")
    found.add_argument("--json", metavar="FILE", help="write a summary")
    return found


def chosen(arguments: argparse.Namespace, known: list[Mutant]) -> list[Mutant]:
    """The mutants that are asked for."""
    mutants = [m for m in known if arguments.place is None or arguments.place in m.place]
    if arguments.changed is not None:
        mutants = changed_since(arguments.changed, mutants)
    if arguments.again is not None:
        names = {survivor["name"] for survivor in json.loads(Path(arguments.again).read_text())["survivors"]}
        mutants = [m for m in mutants if m.name in names]
    if arguments.sample is not None:
        mutants = random.Random(arguments.seed).sample(mutants, min(arguments.sample, len(mutants)))
    return mutants


def main() -> None:
    arguments = parser().parse_args()
    known = mutants_of(arguments.only)
    mutants = chosen(arguments, known)
    if arguments.list:
        print("\n".join(map(shown, mutants)))
        return
    open_ones = [m for m in mutants if arguments.accepted or accepted.reason(m) is None]
    open_ones.sort(key=lambda m: m.is_of_module)  # last: every test may read them
    result = Result(len(open_ones))
    if open_ones:
        campaign = Campaign(open_ones, result.tell, arguments.slowest, arguments.minutes)
        tests = arguments.tests or dict.fromkeys(test for m in open_ones for test in tests_of(m.path))
        if pytest.main([*OPTIONS, "--rootdir", str(ROOT), *tests], plugins=[campaign]) not in (0, 5):
            raise SystemExit("the tests did not run")
    finish(arguments, result, len(mutants) - len(open_ones), accepted.stale(known))


def finish(arguments: argparse.Namespace, result: Result, skipped: int, stale: list[str]) -> None:
    """Print and store the summary; fail if something survives that is not accepted, or an accepted name is stale."""
    survivors = [m for m in result.survivors if accepted.reason(m) is None]
    summary = {
        "tried": result.done,
        "of": result.total,
        "noticed": result.done - len(result.survivors),
        "accepted": skipped + len(result.survivors) - len(survivors),
        "survive": len(survivors),
    }
    print(", ".join(f"{number} {name}" for name, number in summary.items()))
    if arguments.json:
        found = [asdict(m) | {"name": m.name} for m in survivors]
        Path(arguments.json).write_text(json.dumps(summary | {"survivors": found}, indent=1))
    lines = [f"SURVIVES {shown(m)}" for m in survivors] + [f"accepted, but no mutant has the name: {n}" for n in stale]
    raise SystemExit("\n".join(lines) or 0)


if __name__ == "__main__":
    main()
