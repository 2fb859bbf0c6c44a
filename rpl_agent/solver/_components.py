"""Compiled traversals: strongly connected components, levels, and orders of sweeping."""

from __future__ import annotations

import heapq

import numpy as np

from rpl_agent.jit import Bools, Floats, Ints, int64, njit


@njit(nogil=True, allocates=False)
def numbered_forward(state_ptr: Ints, row_ptr: Ints, successor: Ints, decided: Bools) -> bool:
    """Whether every transition leads to a larger number (loops of states that only loop aside): the numbers are then
    a topological order, as in models built step by step, and no search is needed."""
    for s in range(state_ptr.shape[0] - 1):
        if decided[s]:
            continue
        loops = 0
        first, last = row_ptr[state_ptr[s]], row_ptr[state_ptr[s + 1]]
        for e in range(first, last):
            if successor[e] < s:
                return False
            if successor[e] == s:
                loops += 1
        if loops > 0 and loops < last - first:
            return False
    return True


@njit(nogil=True)
def components(state_ptr: Ints, row_ptr: Ints, successor: Ints, decided: Bools) -> tuple[Ints, Ints, int]:
    """Strongly connected components (Tarjan, iterative); decided states have no edges.

    Returns
    -------
    order : (S,) int64
        States, components consecutive, successors first.
    component : (S,) int64
        Number of each state's component, successors have smaller or equal numbers.
    count : int
    """
    S = state_ptr.shape[0] - 1
    index = np.full(S, -1, np.int64)
    low = np.empty(S, np.int64)
    component = np.full(S, -1, np.int64)
    order = np.empty(S, np.int64)
    stack = np.empty(S, np.int64)
    path = np.empty(S, np.int64)
    edge = np.empty(S, np.int64)
    emitted = 0
    count = 0
    clock = 0
    top = 0
    for root in range(S):
        if index[root] >= 0:
            continue
        depth = 0
        path[0] = root
        edge[root] = row_ptr[state_ptr[root]]
        index[root] = low[root] = clock
        clock += 1
        stack[top] = root
        top += 1
        while depth >= 0:
            s = path[depth]
            end = row_ptr[state_ptr[s + 1]]
            if decided[s]:
                end = 0
            descended = False
            while edge[s] < end:
                t = successor[edge[s]]
                edge[s] += 1
                if index[t] < 0:
                    index[t] = low[t] = clock
                    clock += 1
                    stack[top] = t
                    top += 1
                    edge[t] = row_ptr[state_ptr[t]]
                    depth += 1
                    path[depth] = t
                    descended = True
                    break
                if component[t] < 0 and index[t] < low[s]:
                    low[s] = index[t]
            if descended:
                continue
            if low[s] == index[s]:
                while True:
                    top -= 1
                    t = stack[top]
                    component[t] = count
                    order[emitted] = t
                    emitted += 1
                    if t == s:
                        break
                count += 1
            depth -= 1
            if depth >= 0 and low[s] < low[path[depth]]:
                low[path[depth]] = low[s]
    return order, component, count


TRIVIAL, SINK, CYCLIC = 0, 1, 2


@njit(nogil=True)
def layers(
    state_ptr: Ints, row_ptr: Ints, successor: Ints, decided: Bools, order: Ints, component: Ints, sinks: bool
) -> tuple[Ints, Ints]:
    """Kind of each state and the number of cyclic layers below it.

    Parameters
    ----------
    sinks : bool
        Whether states that only loop are told apart from other cycles.

    Returns
    -------
    kind : (S,) int8
        TRIVIAL (one backward step), SINK (every row only loops) or CYCLIC (needs a fixpoint).
    depth : (S,) int64
        Cyclic components on the longest path strictly below the state's component.
    """
    S = state_ptr.shape[0] - 1
    kind = np.zeros(S, np.int8)
    depth = np.zeros(S, np.int64)
    i = 0
    while i < S:
        j = i
        c = component[order[i]]
        while j < S and component[order[j]] == c:
            j += 1
        below = 0
        loops = j - i > 1
        sink = j - i == 1
        for k in range(i, j):
            s = order[k]
            if decided[s]:
                sink = False
                continue
            for e in range(row_ptr[state_ptr[s]], row_ptr[state_ptr[s + 1]]):
                t = successor[e]
                if component[t] == c:
                    loops = True
                else:
                    sink = False
                    d = depth[t] + (1 if kind[t] == CYCLIC else 0)
                    if d > below:
                        below = d
        for k in range(i, j):
            s = order[k]
            depth[s] = below
            if sink and loops and sinks:
                kind[s] = SINK
            elif loops and not decided[s]:
                kind[s] = CYCLIC
        i = j
    return kind, depth


@njit(nogil=True)
def levels(state_ptr: Ints, row_ptr: Ints, successor: Ints, decided: Bools, order: Ints, component: Ints) -> Ints:
    """(S,) int64 longest path of components below each state's component; states of one level do not see each other,
    unless they share a component."""
    S = state_ptr.shape[0] - 1
    level = np.zeros(S, np.int64)
    i = 0
    while i < S:
        j = i
        c = component[order[i]]
        highest = 0
        while j < S and component[order[j]] == c:
            s = order[j]
            if not decided[s]:
                for e in range(row_ptr[state_ptr[s]], row_ptr[state_ptr[s + 1]]):
                    t = successor[e]
                    if component[t] != c:
                        highest = max(highest, level[t] + 1)
            j += 1
        for k in range(i, j):
            level[order[k]] = highest
        i = j
    return level


@njit(nogil=True)
def retry_costs(
    state_ptr: Ints, row_ptr: Ints, successor: Ints, p: Floats, reward: Floats, exit_values: Floats
) -> tuple[Ints, Floats]:
    """A guess of costs: the cheapest path to an exit, a transition of probability p costing reward / p.

    That is the price of trying a row until the transition happens, if every failure stayed where it is. It tells slow
    ways out from fast ones, which counting steps does not.

    Parameters
    ----------
    p : (T,) float64
        Any distributions of nature.
    exit_values : (m,) float64

    Returns
    -------
    order : (n,) int64
        States by their cost, the cheapest first: the order of sweeps that carries values furthest.
    cost : (n,) float64
        0 where no exit of finite value can be reached.
    """
    n = state_ptr.shape[0] - 1
    m = exit_values.shape[0]
    start = np.zeros(n + m + 1, np.int64)
    for t in range(successor.shape[0]):
        start[successor[t] + 1] += 1
    for j in range(n + m):
        start[j + 1] += start[j]
    place = start[:-1].copy()
    source = np.empty(successor.shape[0], np.int32)
    weight = np.empty(successor.shape[0])
    least = 1e-9
    for row in range(reward.shape[0]):
        least = max(least, 1e-3 * reward[row])  # free rows still take their time
    for s in range(n):
        for row in range(state_ptr[s], state_ptr[s + 1]):
            for t in range(row_ptr[row], row_ptr[row + 1]):
                j = successor[t]
                source[place[j]] = s
                weight[place[j]] = max(reward[row], least) / p[t] if p[t] > 1e-9 else np.inf
                place[j] += 1
    cost = np.full(n + m, np.inf)
    done = np.zeros(n + m, np.bool_)
    order = np.empty(n, np.int64)
    count = 0
    heap = [(0.0, int64(0))]
    heap.pop()
    for k in range(m):
        if exit_values[k] < np.inf:
            cost[n + k] = exit_values[k]
            heapq.heappush(heap, (exit_values[k], int64(n + k)))
    while len(heap) > 0:
        value, node = heapq.heappop(heap)
        if done[node]:
            continue
        done[node] = True
        if node < n:
            order[count] = node
            count += 1
        for e in range(start[node], start[node + 1]):
            s = source[e]
            through = value + weight[e]
            if not done[s] and through < cost[s]:
                cost[s] = through
                heapq.heappush(heap, (through, int64(s)))
    for s in range(n):
        if not done[s]:
            order[count] = s
            count += 1
            cost[s] = 0.0
    return order, cost[:n]
