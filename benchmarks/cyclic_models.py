"""Cyclic models as PRISM texts, for `bench_cyclic`; and the public files that it looks for in a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

#: a drone in a cube of N x N x N cells: gusts push it along any axis, pillars break it
DRONE = """
mdp
const int N;
formula broken = mod(x, 4) = 2 & mod(y, 4) = 2 & z < N - 3;
formula home = x = N - 1 & y = N - 1 & z = N - 1;
formula over = broken | home;
module drone
  x : [0..N-1] init 0;
  y : [0..N-1] init 0;
  z : [0..N-1] init 0;
{actions}
  [rest] over -> true;
endmodule
label "home" = home;
label "broken" = broken;
rewards "steps" !over : 1; endrewards
"""
_MOVES = {
    "east": "(x' = min(x + 1, N - 1))",
    "west": "(x' = max(x - 1, 0))",
    "north": "(y' = min(y + 1, N - 1))",
    "south": "(y' = max(y - 1, 0))",
    "up": "(z' = min(z + 1, N - 1))",
    "down": "(z' = max(z - 1, 0))",
}


def _drone() -> str:
    actions = []
    for chosen in _MOVES:
        outcomes = [f"{'0.7' if move == chosen else '0.05'} : {update}" for move, update in _MOVES.items()]
        actions.append(f"  [{chosen}] !over -> {' + '.join(outcomes)} + 0.05 : true;")
    return DRONE.replace("{actions}", "\n".join(actions))


#: a carrier on the floor of a depot, wide x deep cells, empty or loaded: wheels slip on oil and lose grip on ramps
DEPOT = """
mdp
const int wide;
const int deep;
const double slip = 0.1;
const double grip = 0.8;
formula oil = mod(x + 2 * y, 5) = 0;
formula ramp = mod(x, 9) = 4 & mod(y, 7) != 3;
formula done = loaded = 1 & x = 0 & y = 0;
module carrier
  x : [0..wide-1] init 0;
  y : [0..deep-1] init 0;
  loaded : [0..1] init 0;
{actions}
  [rest] done -> true;
endmodule
label "done" = done;
rewards "steps" !done : 1; endrewards
"""


def _depot() -> str:
    moves = {
        "east": ("(x' = min(x + 1, wide - 1))", "(y' = min(y + 1, deep - 1))", "(y' = max(y - 1, 0))"),
        "west": ("(x' = max(x - 1, 0))", "(y' = min(y + 1, deep - 1))", "(y' = max(y - 1, 0))"),
        "north": ("(y' = min(y + 1, deep - 1))", "(x' = min(x + 1, wide - 1))", "(x' = max(x - 1, 0))"),
        "south": ("(y' = max(y - 1, 0))", "(x' = min(x + 1, wide - 1))", "(x' = max(x - 1, 0))"),
    }
    actions = []
    for name, (ahead, left, right) in moves.items():
        actions += [
            f"  [{name}] !done & oil -> 1 - 2 * slip : {ahead} + slip : {left} + slip : {right};",
            f"  [{name}] !done & !oil & ramp -> grip : {ahead} + 1 - grip : true;",
            f"  [{name}] !done & !oil & !ramp -> 0.96 : {ahead} + 0.02 : {left} + 0.02 : {right};",
        ]
    actions.append("  [load] loaded = 0 & x = wide - 1 & y = deep - 1 -> 0.9 : (loaded' = 1) + 0.1 : true;")
    return DEPOT.replace("{actions}", "\n".join(actions))


DEPOT_TEXT = _depot()


def depot_actions(wide: int, deep: int) -> Callable[[tuple[int, int, int]], dict[str, dict[tuple[int, int, int], str]]]:
    """The same floor as a function for `build`: state (x, y, loaded) -> {action: {successor: expression}}."""

    def moves(state: tuple[int, int, int]) -> dict[str, dict[tuple[int, int, int], str]]:
        x, y, loaded = state
        if state == (0, 0, 1):
            return {"rest": {state: "1"}}
        east, west = (min(x + 1, wide - 1), y, loaded), (max(x - 1, 0), y, loaded)
        north, south = (x, min(y + 1, deep - 1), loaded), (x, max(y - 1, 0), loaded)
        found: dict[str, dict[tuple[int, int, int], str]] = {}
        for name, ahead, sides in (
            ("east", east, (north, south)),
            ("west", west, (north, south)),
            ("north", north, (east, west)),
            ("south", south, (east, west)),
        ):
            if (x + 2 * y) % 5 == 0:
                outcomes = [(ahead, "1 - 2*slip"), *((side, "slip") for side in sides)]
            elif x % 9 == 4 and y % 7 != 3:
                outcomes = [(ahead, "grip"), (state, "1 - grip")]
            else:
                outcomes = [(ahead, "0.96"), *((side, "0.02") for side in sides)]
            row: dict[tuple[int, int, int], str] = {}
            for successor, chance in outcomes:  # at walls outcomes coincide
                row[successor] = f"{row[successor]} + {chance}" if successor in row else chance
            found[name] = row
        if loaded == 0 and x == wide - 1 and y == deep - 1:
            found["load"] = {(x, y, 1): "0.9", state: "0.1"}
        return found

    return moves


#: a fugitive and two guards take turns on N x N cells; guards wander, and turn towards the fugitive half of the time
PURSUIT = """
mdp
const int N;
formula caught = (x = a & y = b) | (x = c & y = d);
formula free = !caught & x = N - 1 & y = N - 1;
formula over = caught | free;
formula near = a < x ? min(a + 1, N - 1) : (a > x ? max(a - 1, 0) : a);
formula level = d < y ? min(d + 1, N - 1) : (d > y ? max(d - 1, 0) : d);
module players
  turn : [0..2] init 0;
  x : [0..N-1] init 0;
  y : [0..N-1] init 0;
  a : [0..N-1] init N - 1;
  b : [0..N-1] init 0;
  c : [0..N-1] init 0;
  d : [0..N-1] init N - 1;
  [east] !over & turn = 0 -> (x' = min(x + 1, N - 1)) & (turn' = 1);
  [west] !over & turn = 0 -> (x' = max(x - 1, 0)) & (turn' = 1);
  [north] !over & turn = 0 -> (y' = min(y + 1, N - 1)) & (turn' = 1);
  [south] !over & turn = 0 -> (y' = max(y - 1, 0)) & (turn' = 1);
  [wait] !over & turn = 0 -> (turn' = 1);
  [first] !over & turn = 1 -> 1/2 : (a' = near) & (turn' = 2) + 1/8 : (a' = min(a + 1, N - 1)) & (turn' = 2)
    + 1/8 : (a' = max(a - 1, 0)) & (turn' = 2) + 1/8 : (b' = min(b + 1, N - 1)) & (turn' = 2)
    + 1/8 : (b' = max(b - 1, 0)) & (turn' = 2);
  [second] !over & turn = 2 -> 1/2 : (d' = level) & (turn' = 0) + 1/8 : (c' = min(c + 1, N - 1)) & (turn' = 0)
    + 1/8 : (c' = max(c - 1, 0)) & (turn' = 0) + 1/8 : (d' = min(d + 1, N - 1)) & (turn' = 0)
    + 1/8 : (d' = max(d - 1, 0)) & (turn' = 0);
  [rest] over -> true;
endmodule
label "free" = free;
label "caught" = caught;
label "over" = over;
rewards "steps" !over & turn = 0 : 1; endrewards
"""

#: processes that want the only key toss for it whenever they are scheduled; who has it works, and gives it back
_PROCESS = """
module process{k}
  s{k} : [0..3] init 0;
  [] s{k} = 0 -> (s{k}' = 1);
  [] s{k} = 1 & !taken -> 1/4 : (s{k}' = 2) + 3/4 : (s{k}' = 1);
  [] s{k} = 1 & taken -> 1/2 : (s{k}' = 1) + 1/2 : (s{k}' = 0);
  [] s{k} = 2 -> 9/10 : (s{k}' = 3) + 1/10 : (s{k}' = 2);
  [] s{k} = 3 -> (s{k}' = 0);
endmodule
"""


def _key(processes: int) -> str:
    taken = " | ".join(f"s{k} >= 2" for k in range(processes))
    every = "\n".join(_PROCESS.replace("{k}", str(k)) for k in range(processes))
    everyone = " & ".join(f"s{k} = 1" for k in range(processes))
    return (
        f'mdp\nformula taken = {taken};\n{every}\nlabel "works" = s0 = 3;\nlabel "wanted" = {everyone};\n'
        'rewards "moves" true : 1; endrewards\n'
    )


#: a fair game on a line of N cells, played for small or large stakes: plays take N^2 steps
WALK = """
mdp
const int N;
module walker
  x : [0..N] init floor(N / 2);
  [calm] x > 0 & x < N -> 1/2 : (x' = x + 1) + 1/2 : (x' = x - 1);
  [bold] x > 0 & x < N -> 0.45 : (x' = min(x + 2, N)) + 0.55 : (x' = max(x - 2, 0));
  [rest] x = 0 | x = N -> true;
endmodule
label "won" = x = N;
label "over" = x = 0 | x = N;
rewards "steps" x > 0 & x < N : 1; endrewards
"""


#: a hall of N x N cells in which a walker slips and waits at will, with doors of different luck
HALL = """
mdp
const int N;
formula door = mod(7 * x + 3 * y, 11) = 0;
formula luck = (x / N) * (1 + mod(x + y, 5)) / 6;
module walker
  x : [0..N-1] init 0;
  y : [0..N-1] init 0;
  gone : [0..2] init 0;
  [east] gone = 0 -> 0.9 : (x' = min(x + 1, N - 1)) + 0.1 : (y' = min(y + 1, N - 1));
  [west] gone = 0 -> 0.9 : (x' = max(x - 1, 0)) + 0.1 : (y' = max(y - 1, 0));
  [north] gone = 0 -> 0.9 : (y' = min(y + 1, N - 1)) + 0.1 : (x' = max(x - 1, 0));
  [south] gone = 0 -> 0.9 : (y' = max(y - 1, 0)) + 0.1 : (x' = min(x + 1, N - 1));
  [leave] gone = 0 & door -> luck : (gone' = 1) + 0.95 - luck : (gone' = 2) + 0.05 : (x' = 0);
  [rest] gone > 0 -> true;
endmodule
label "out" = gone = 1;
label "over" = gone > 0;
rewards "toll" [leave] true : 1 + mod(x, 3); endrewards
"""


@dataclass(frozen=True)
class Case:
    """A model, constants and properties to answer: a text, or a public file by the end of its path."""

    name: str
    properties: tuple[str, ...]
    text: str = ""
    file: str = ""
    constants: dict[str, str] = field(default_factory=dict)


def drone(size: int) -> Case:
    return Case(f"drone, N = {size}", HOME, _drone(), "", {"N": str(size)})


def depot(wide: int, deep: int) -> Case:
    return Case(f"depot, {wide} x {deep}", STEPS, DEPOT_TEXT, "", {"wide": str(wide), "deep": str(deep)})


def pursuit(size: int) -> Case:
    return Case(f"pursuit, N = {size}", CHASE, PURSUIT, "", {"N": str(size)})


def walk(cells: int) -> Case:
    return Case(f"walk, {cells:,} cells", GAME, WALK, "", {"N": str(cells)})


def hall(size: int) -> Case:
    return Case(f"hall, N = {size}", DOORS, HALL, "", {"N": str(size)})


def key(processes: int) -> Case:
    return Case(f"key, {processes} processes", WORK, _key(processes))


def public(name: str, file: str, properties: tuple[str, ...], **constants: str) -> Case:
    return Case(name, properties, "", file, constants)


HOME = ('Pmax=? [ F "home" ]', 'Pmin=? [ F "broken" ]')
STEPS = ('R{"steps"}min=? [ F "done" ]',)
CHASE = ('Pmax=? [ F "free" ]', 'Pmin=? [ F "caught" ]', 'R{"steps"}max=? [ F "over" ]')
DOORS = ('Pmax=? [ F "out" ]', 'R{"toll"}min=? [ F "over" ]')
GAME = ('Pmax=? [ F "won" ]', 'Pmin=? [ F "won" ]', 'R{"steps"}max=? [ F "over" ]', 'R{"steps"}min=? [ F "over" ]')
WORK = ('Pmax=? [ F "works" ]', 'Pmin=? [ F "works" ]', 'R{"moves"}min=? [ F "works" ]')

SMOKE = (drone(4), depot(8, 6), pursuit(2), key(3), walk(40), hall(6))
USUAL = (
    drone(12),
    drone(20),
    drone(30),
    depot(72, 78),
    depot(240, 232),
    pursuit(3),
    pursuit(4),
    key(6),
    key(7),
    walk(500),
    hall(30),
    hall(150),
)
LARGE = (depot(470, 455),)

COIN = (
    'Pmin=? [ F "finished" & "all_coins_equal_1" ]',
    'Pmax=? [ F "finished" & !"agree" ]',
    'R{"steps"}max=? [ F "finished" ]',
)
SENT = (
    'Pmin=? [ !"collision_max_backoff" U "all_delivered" ]',
    'R{"time"}min=? [ F "all_delivered" ]',
    'R{"time"}max=? [ F "all_delivered" ]',
)
LED = "(s1=8 & s2=7) | (s1=7 & s2=8)"
LEADER = (f"Pmin=? [ F {LED} ]", f'R{{"time"}}min=? [ F {LED} ]', f'R{{"time_sending"}}max=? [ F {LED} ]')
ROOT = ("Pmin=? [ F s=9 ]", 'R{"time"}min=? [ F s=9 ]', 'R{"rounds"}max=? [ F s=9 ]')
ADDRESS = ("Pmin=? [ F l=4 & ip=1 ]", "Pmax=? [ F l=4 & ip=1 ]", "Rmin=? [ F l=4 ]", "Rmax=? [ F l=4 ]")
SEND = (
    "Pmin=? [ F s1=12 & s2=12 ]",
    "Pmax=? [ F bc1=2 | bc2=2 ]",
    'R{"time"}max=? [ F s1=12 & s2=12 ]',
    'R{"cost"}max=? [ F s1=12 | s2=12 ]',
)
ENTER = ('Pmax=? [ F "some_14" ]', 'Pmin=? [ F "some_14" ]')
CRITICAL = ('Pmax=? [ F "one_critical" ]', 'Pmin=? [ F "one_critical" ]')
EVADE = ('Pmax=? [ "notbad" U "goal" ]', 'Pmin=? [ F "traps" ]', 'Pmax=? [ F "traps" ]')
REFUEL = ('Pmax=? [ "notbad" U "goal" ]', 'R{"steps"}min=? [ F "goal" ]')
PUBLIC = (
    public("consensus 2, K = 8", "consensus/coin2.nm", COIN, K="8"),
    public("consensus 4, K = 2", "consensus/coin4.nm", COIN, K="2"),
    public("csma 2-4", "csma/csma2_4.nm", SENT),
    public("csma 3-2", "csma/csma3_2.nm", SENT),
    public("firewire abst", "firewire/abst/firewire.nm", ROOT, delay="36", fast="0.5"),
    public("firewire impl", "firewire/impl/firewire.nm", LEADER, delay="3", fast="0.5"),
    public("zeroconf", "zeroconf/zeroconf.nm", ADDRESS, N="1000", K="4", err="0.1", reset="true"),
    public("wlan 0", "wlan/wlan0.nm", SEND, TRANS_TIME_MAX="10"),
    public("wlan 2", "wlan/wlan2.nm", SEND, TRANS_TIME_MAX="10"),
    public("mutual 3", "mutual/mutual3.nm", ENTER),
    public("mutual 4", "mutual/mutual4.nm", ENTER),
    public("rabin 3", "rabin/rabin3.nm", CRITICAL),
    public("evade two, N = 4", "evade-two-mdp.nm", EVADE, N="4", slippery="0.1"),
    public("evade two, N = 6", "evade-two-mdp.nm", EVADE, N="6", slippery="0.1"),
    public("refuel, N = 8", "refuel-mdp.nm", REFUEL, N="8", ENERGY="8"),
)
