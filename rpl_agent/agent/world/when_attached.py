"""What an agent has only once an environment is attached: reading it before is an error that says what to do."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast, overload

from rpl_agent.core.errors import ModelError

T = TypeVar("T")


def require(thing: Any) -> Any:
    """Return the value; raise if it is None because no environment is attached."""
    if thing is None:
        raise ModelError("the agent has no environment yet: call learn(env, budget) or set_env(env)")
    return thing


class WhenAttached(Generic[T]):
    """An attribute that exists from the attachment on.

    >>> class Run:
    ...     model = WhenAttached[str]()
    >>> Run().model
    Traceback (most recent call last):
    rpl_agent.core.errors.ModelError: the agent has no environment yet: call learn(env, budget) or set_env(env)
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> WhenAttached[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> WhenAttached[T] | T:
        return self if instance is None else cast(T, require(vars(instance).get(self._name)))

    def __set__(self, instance: object, value: T) -> None:
        vars(instance)[self._name] = value
