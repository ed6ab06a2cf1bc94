"""The cheapest cut of a graph between two nodes (Dinic's algorithm)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


def sink_side(
    edges: Iterable[tuple[int, int, int]], count: int, source: int, sink: int
) -> set[int]:
    """Return the nodes on the sink's side of the cheapest cut, as few as there can be.

    Args:
        edges: (from, to, capacity); count: of nodes, numbered from 0.

    >>> sorted(sink_side([(0, 1, 5), (1, 2, 3), (2, 3, 4)], 4, 0, 3))
    [2, 3]
    """
    network = _Network(count)
    for start, end, capacity in edges:
        network.add(start, end, capacity)
    while network.levels(source, sink):
        while network.push(source, sink):
            pass
    return network.reaching(sink)


class _Network:
    """Edges e and e ^ 1 are each other's opposite; room is what still fits through."""

    def __init__(self, count: int) -> None:
        self.edges: list[list[int]] = [[] for _ in range(count)]
        self.ends: list[int] = []
        self.room: list[int] = []
        self.level = [-1] * count
        self.tried = [0] * count

    def add(self, start: int, end: int, capacity: int) -> None:
        for a, b, room in ((start, end, capacity), (end, start, 0)):
            self.edges[a].append(len(self.ends))
            self.ends.append(b)
            self.room.append(room)

    def levels(self, source: int, sink: int) -> bool:
        """Number the nodes by their distance; False when the sink is out of reach."""
        self.level = [-1] * len(self.edges)
        self.tried = [0] * len(self.edges)
        self.level[source] = 0
        waiting = deque([source])
        while waiting:
            node = waiting.popleft()
            for edge in self.edges[node]:
                end = self.ends[edge]
                if self.room[edge] and self.level[end] < 0:
                    self.level[end] = self.level[node] + 1
                    waiting.append(end)
        return self.level[sink] >= 0

    def push(self, source: int, sink: int) -> bool:
        """Send what fits along one shortest path that was not tried yet."""
        path: list[int] = []
        node = source
        while node != sink:
            edge = self._next(node)
            if edge is not None:
                path.append(edge)
                node = self.ends[edge]
            elif not path:
                return False
            else:
                node = self.ends[path.pop() ^ 1]
                self.tried[node] += 1
        flow = min(self.room[edge] for edge in path)
        for edge in path:
            self.room[edge] -= flow
            self.room[edge ^ 1] += flow
        return True

    def _next(self, node: int) -> int | None:
        edges = self.edges[node]
        while self.tried[node] < len(edges):
            edge = edges[self.tried[node]]
            end = self.ends[edge]
            if self.room[edge] and self.level[end] == self.level[node] + 1:
                return edge
            self.tried[node] += 1
        return None

    def reaching(self, sink: int) -> set[int]:
        """Return the nodes from which more could flow to the sink."""
        found, waiting = {sink}, deque([sink])
        while waiting:
            for edge in self.edges[waiting.popleft()]:
                start = self.ends[edge]
                if self.room[edge ^ 1] and start not in found:
                    found.add(start)
                    waiting.append(start)
        return found
