"""Draw a policy on its world: its actions in the states it visits, over two of the model's variables.

If several states share a cell (they differ in other variables), the cell shows the action played there most
often when the policy starts in the initial state.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.core.model import MDP, ParametricMDP, Policy
from rpl_agent.core.model.simulate import absorbing_states, row_visits

#: preferred pairs of variables for the axes, best first (horizontal, vertical)
FAVOURITES = (("x", "y"), ("step", "money"), ("money1", "money2"), ("col", "row"), ("column", "row"))
#: steps to follow from the initial state
STEPS = 400
#: cells visited less often than this (expected visits per play) are left empty
RARE = 1e-6
#: most marks on an axis
MARKS = 12
#: an action has no direction if it moves less than this share of the strongest
FAINT = 0.25
#: vertical axes that count from the top, as the lines of a map
DOWNWARD = ("row",)
#: arrows of actions on such maps, by their names
COMPASS = {"up": "↑", "north": "↑", "down": "↓", "south": "↓", "left": "←", "west": "←", "right": "→", "east": "→"}
ARROWS = {(1, 0): "→", (-1, 0): "←", (0, 1): "↑", (0, -1): "↓", (1, 1): "↗", (-1, 1): "↖", (1, -1): "↘", (-1, -1): "↙"}


@dataclass(frozen=True, eq=False)
class PolicyMap:
    """Cells over two variables; arrays are (height, width)."""

    axes: tuple[str, str]
    xs: np.ndarray
    ys: np.ndarray
    action: np.ndarray  # id of the action played most often in a cell, −1 where plays are over or (almost) never come
    visits: np.ndarray  # expected number of visits per play
    symbols: np.ndarray  # an arrow (where the axes are coordinates), a short label of the action, or of how plays end
    action_names: tuple[str, ...]
    ends: dict[str, str]  # symbol: label of the states in which plays are over

    @property
    def downward(self) -> bool:
        """Whether the vertical axis counts from the top."""
        return self.axes[1] in DOWNWARD

    @property
    def legend(self) -> list[str]:
        """The name of each action, with its symbol if it is shown."""
        symbol = {int(a): str(s) for a, s in zip(self.action.ravel(), self.symbols.ravel()) if a >= 0}
        return [f"{symbol[a]} {name}" if a in symbol else name for a, name in enumerate(self.action_names)]


def policy_map(mdp: MDP, policy: Policy, steps: int = STEPS) -> PolicyMap | None:
    """The map of a policy in a model with probabilities; None if the model lacks two variables to draw."""
    pmdp = mdp.pmdp
    axes = drawing_axes(pmdp)
    if axes is None:
        return None
    over = absorbing_states(pmdp)
    visits = row_visits(mdp, policy, steps, over)
    column = [np.asarray(pmdp.variables[name]) for name in axes]
    (xs, across), (ys, up) = (np.unique(values, return_inverse=True) for values in column)
    cells = np.zeros((len(ys), len(xs), pmdp.num_actions))
    silent = np.zeros(pmdp.num_states, dtype=bool) if pmdp.silent is None else pmdp.silent
    played = np.where((over | silent)[pmdp.row_state], 0.0, visits)  # rows in which an action is chosen
    np.add.at(cells, (up[pmdp.row_state], across[pmdp.row_state], pmdp.action), played)
    total = cells.sum(axis=2)
    action = np.where(total > RARE, cells.argmax(axis=2), -1)
    arrows = axes == ("x", "y") and all(values.dtype.kind in "iuf" for values in column)
    symbols = _symbols(mdp, played, column, (up, across), action, arrows)
    if axes[1] in DOWNWARD:
        _point(symbols, action, pmdp.action_names)
    ends = _mark_ends(symbols, pmdp, over, over | silent, (up, across), action)
    return PolicyMap(axes, xs, ys, action, total, symbols, pmdp.action_names, ends)


def _point(symbols: np.ndarray, action: np.ndarray, names: Sequence[str]) -> None:
    """Arrows for the actions that are named after directions."""
    for a, name in enumerate(names):
        if name.lower() in COMPASS:
            symbols[action == a] = COMPASS[name.lower()]


def _mark_ends(
    symbols: np.ndarray,
    pmdp: ParametricMDP,
    over: np.ndarray,
    idle: np.ndarray,
    cell: tuple[np.ndarray, np.ndarray],
    action: np.ndarray,
) -> dict[str, str]:
    """Mark cells in which every play is over by a capital letter; return what each letter means.

    Of several labels of a cell's states, the rarest says most: "hole" and not "over".

    over, idle : (S,) bool, states where plays are over, and states in which no action is chosen
    """
    closed = np.ones(action.shape, dtype=bool)
    closed[tuple(index[~idle] for index in cell)] = False
    closed &= action < 0
    meaning: dict[str, str] = {}
    for name, holds in sorted(pmdp.labels.items(), key=lambda item: -np.count_nonzero(item[1])):
        places = np.zeros(action.shape, dtype=bool)
        places[tuple(index[holds & over] for index in cell)] = True
        letter = next((name[:k].upper() for k in range(1, len(name) + 1) if name[:k].upper() not in meaning), name)
        if (places & closed).any():
            symbols[places & closed] = letter
            meaning[letter] = name
    return {letter: name for letter, name in meaning.items() if (symbols == letter).any()}


def drawing_axes(pmdp: ParametricMDP) -> tuple[str, str] | None:
    """The two variables to draw over: columns of single numbers or texts, no vectors."""
    columns = {name: np.asarray(values) for name, values in pmdp.variables.items()}
    varying = {name: len(np.unique(c)) for name, c in columns.items() if c.ndim == 1 and c.dtype.kind in "biufUS"}
    names = [name for name, count in varying.items() if count > 1]
    for pair in FAVOURITES:
        if set(pair) <= set(names):
            return pair
    ranked = sorted(names, key=lambda name: -varying[name])
    return (ranked[0], ranked[1]) if len(ranked) > 1 else None


def _symbols(
    mdp: MDP,
    visits: np.ndarray,
    column: Iterable[np.ndarray],
    cell: tuple[np.ndarray, np.ndarray],
    action: np.ndarray,
    arrows: bool,
) -> np.ndarray:
    """A label per cell, one per action: the direction in which it moves, or its number or initial."""
    pmdp = mdp.pmdp
    labels = np.array([*(re.findall(r"\d*$", name)[0] or name[:1] for name in pmdp.action_names), ""], dtype=object)
    symbols = labels[action]
    if not arrows:
        return symbols
    up, across = (index[pmdp.row_state] for index in cell)
    shown = (action[up, across] == pmdp.action) & (visits > 0)
    moves = np.zeros((2, pmdp.num_actions))  # mean change of x and y by each action where it is shown
    played = np.bincount(pmdp.action[shown], visits[shown], pmdp.num_actions)
    for mean, values in zip(moves, column):
        change = (values[pmdp.successor] - values[pmdp.row_state[pmdp.transition_row]]) * mdp.probability
        drift = np.add.reduceat(change, pmdp.row_ptr[:-1])
        if _depends_on_action(pmdp, drift):
            mean += np.bincount(pmdp.action[shown], (drift * visits)[shown], pmdp.num_actions)
    moves /= np.maximum(played, RARE)
    strongest = np.abs(moves).max(axis=0)
    arrow = {}
    for a in np.flatnonzero(strongest > FAINT * strongest.max(initial=0.0)):
        right, above = (int(np.sign(m)) if abs(m) > 0.5 * strongest[a] else 0 for m in moves[:, a])
        arrow[int(a)] = ARROWS[right, above]
    for moving, symbol in arrow.items():
        if list(arrow.values()).count(symbol) == 1:  # two actions never share an arrow
            symbols[action == moving] = symbol
    return symbols


def _depends_on_action(pmdp: ParametricMDP, drift: np.ndarray) -> bool:
    """Whether some state's actions move differently along an axis (not so for a plane that always flies on)."""
    starts = pmdp.state_ptr[:-1]
    return bool((np.maximum.reduceat(drift, starts) - np.minimum.reduceat(drift, starts) > 1e-9).any())


def draw(shown: PolicyMap, title: str) -> Any:
    """A matplotlib figure of a policy map (for TensorBoard)."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    height, width = shown.action.shape
    figure = Figure(figsize=(6.4, 4.8), dpi=100)
    axes = figure.add_axes((0.1, 0.11, 0.62, 0.81))  # automatic layout draws everything twice
    colours = colormaps["tab10"]
    image = np.ones((height, width, 4))
    for k in range(len(shown.action_names)):
        image[shown.action == k] = colours(k % 10, alpha=0.55)
    axes.imshow(image, origin="lower", aspect="auto", extent=(-0.5, width - 0.5, -0.5, height - 0.5))
    if shown.downward:
        axes.invert_yaxis()
    if height * width <= 600:
        for y, x in np.argwhere(shown.symbols != ""):
            axes.text(x, y, shown.symbols[y, x], ha="center", va="center", fontsize=8)
    for axis, values in ((axes.xaxis, shown.xs), (axes.yaxis, shown.ys)):
        places = np.arange(0, len(values), -(-len(values) // MARKS))
        axis.set_ticks(places, [str(v) for v in values[places]])
    axes.set_xlabel(shown.axes[0])
    axes.set_ylabel(shown.axes[1])
    axes.set_title(title)
    used = np.unique(shown.action[shown.action >= 0])
    patches = [Patch(color=colours(k % 10, alpha=0.55), label=textwrap.fill(shown.legend[k], 22)) for k in used]
    patches += [Patch(color="none", label=f"{letter}: {name}") for letter, name in shown.ends.items()]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    return figure
