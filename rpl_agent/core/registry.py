"""`Registry`: objects that users choose by name, ours and those of other packages.

Other packages offer theirs as entry points. These are looked up only if a name is not known: a program that uses the
common names never reads the metadata of installed packages. Rarely used objects of this package are entry points too
(pyproject.toml), so that they are loaded only on request.
"""

from __future__ import annotations

import warnings
from difflib import get_close_matches
from typing import Generic, Protocol, TypeVar

from rpl_agent.core.errors import ModelError, RPLWarning


class Named(Protocol):
    @property
    def name(self) -> str: ...


Kind = TypeVar("Kind", bound=Named)


class Registry(Generic[Kind]):
    """Objects by name.

    what : the kind of the objects, for messages
    group : entry points that name further objects, or functions without arguments that make them
    """

    def __init__(self, what: str, group: str) -> None:
        self.what, self.group = what, group
        self._known: dict[str, Kind] = {}
        self._looked = False

    def register(self, kind: Kind) -> None:
        """Add an object under its name; ModelError if the name is taken.

        An object whose class was defined again replaces the old one: the file of an environment is run whenever one
        is made, and a cell of a notebook again and again.
        """
        if not isinstance(getattr(kind, "name", None), str) or isinstance(kind, type):
            raise ModelError(f"{kind!r} is not a {self.what}: pass an object with a name, not a class")
        if kind.name in self._known and not _is_redefined(type(kind), type(self._known[kind.name])):
            raise ModelError(f"the {self.what} {kind.name!r} exists already")
        self._known[kind.name] = kind

    def copy(self) -> Registry[Kind]:
        """An independent registry of the same objects."""
        other: Registry[Kind] = Registry(self.what, self.group)
        other._known, other._looked = dict(self._known), self._looked
        return other

    def get(self, name: str) -> Kind:
        """The object with that name."""
        if not isinstance(name, str):
            raise ModelError(f"{self.what} {name!r} is not a name: write one of {self.names()}")
        if name not in self._known:
            self._look()
        if name not in self._known:
            near = get_close_matches(name, self._known, 1)
            raise ModelError(
                f"{self.what} {name!r} is not one of {tuple(self._known)}"
                + (f"; the nearest is {near[0]}" if near else "; register your own before it is used")
            )
        return self._known[name]

    def names(self) -> tuple[str, ...]:
        """All names, ours first."""
        self._look()
        return tuple(self._known)

    def _look(self) -> None:
        if self._looked:
            return
        self._looked = True
        from importlib.metadata import entry_points  # which imports `email` and `socket`

        for point in entry_points(group=self.group):
            if point.name not in self._known:
                try:
                    found = point.load()
                    self.register(found() if isinstance(found, type) or not hasattr(found, "name") else found)
                except Exception as error:  # whatever code of other packages raises must not hide the names of ours
                    warnings.warn(
                        f"the {self.what} {point.name!r} of an installed package cannot be used: {error}",
                        RPLWarning,
                        stacklevel=4,
                    )


def _is_redefined(new: type, old: type) -> bool:
    """Whether a class is a redefinition of an older one."""
    return new is not old and (new.__module__, new.__qualname__) == (old.__module__, old.__qualname__)
