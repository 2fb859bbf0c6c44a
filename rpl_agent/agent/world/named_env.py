"""The user's own environments by name: ``module:Id`` or ``path/to/file.py:factory``.

``module:Id`` is Gymnasium's way: the module is imported, then the id is made (or, if Gymnasium has no such id, the
module's function or class of that name is called). ``path/to/file.py:factory`` runs the file and calls the
function or class. A factory returns the environment, which carries its model as attributes ``pmdp`` and ``objective``,
or a pair: the environment and a dictionary of keywords for `RPLAgent`, e.g. ``{"pmdp": …, "objective": …}``. The
keyword ``theta`` is the truth of a simulator, if it is known: it is for measuring, and no agent gets it.

Only code named on the command line is run: a run folder never names code.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from rpl_agent.agent.world.observations import make_registered
from rpl_agent.core.errors import ModelError

#: Keywords that a factory may return in place of a model.
FACTS = ("returns", "rewards", "discount", "deterministic", "successors")
#: Keywords that a factory may return beside the environment.
KEYWORDS = (
    *("pmdp", "objective", "observation_to_state", "action_to_env", "horizon", "check_rewards", "end"),
    *FACTS,
)


def names_code(text: str) -> bool:
    """Whether this is module:name or file.py:name. A file alone is refused here: every caller asks this first."""
    if text.endswith(".py"):
        raise ModelError(f"{text}: name what makes the environment: {_choices(Path(text))}")
    return ":" in text and not text.startswith("rpl_envs:") and not text.endswith(":")


def absolute(text: str) -> str:
    """The same name, valid from every folder."""
    place, _, name = text.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else text


#: The keyword for the true parameters.
TRUTH = "theta"


def make_named(text: str, render_mode: str | None = None) -> tuple[Any, dict[str, Any]]:
    """The environment named by ``text``, and keywords for the agent."""
    env, options, _ = named_world(text, render_mode)
    return env, options


def named_world(text: str, render_mode: str | None = None) -> tuple[Any, dict[str, Any], Any]:
    """The environment named by ``text``, keywords for the agent, and the true parameters or None."""
    place, _, name = text.rpartition(":")
    module = _from_file(Path(place)) if place.endswith(".py") else _imported(place)
    made = _made(module, name, text, render_mode)
    env, options = made if isinstance(made, tuple) and len(made) == 2 else (made, {})
    if not (hasattr(env, "step") and hasattr(env, "reset")):
        raise ModelError(f"{text} made {type(env).__name__}, which is not a Gymnasium environment")
    unknown = sorted(set(options) - set(KEYWORDS) - {TRUTH})
    if unknown:
        known = ", ".join((*KEYWORDS, TRUTH))
        raise ModelError(f"{text} returned the keyword {unknown[0]!r} for the agent; known are {known}")
    return env, {name: value for name, value in options.items() if name != TRUTH}, options.get(TRUTH)


def attach_keywords(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same keywords for `attach`, which has another name for one of them."""
    return {"state_of" if name == "observation_to_state" else name: value for name, value in options.items()}


def load_named(text: str) -> Any:
    """The object that ``module:name`` or ``path/to/file.py:name`` names, for a policy."""
    place, _, name = text.rpartition(":")
    module = _from_file(Path(place)) if place.endswith(".py") else _imported(place)
    if not hasattr(module, name):
        raise ModelError(f"{text}: {module.__name__} has no {name!r}")
    return getattr(module, name)


def named_or_registered(text: str) -> tuple[Any, dict[str, Any]]:
    """`make_named`, also for registered ids."""
    if names_code(text):
        return make_named(text)
    env = make_registered(text)
    if env is None:
        raise not_registered(text)
    return env, {}


def not_registered(text: str) -> ModelError:
    """The error for an id that no environment has; it names the nearest, such as another version."""
    import gymnasium as gym

    near = get_close_matches(text, list(gym.registry), 1, cutoff=0.8)
    hint = f"the nearest is {near[0]}" if near else "give its id, module:Id or path/to/file.py:factory"
    return ModelError(f"no environment {text!r} is registered: {hint}")


def _choices(path: Path) -> str:
    """The functions and classes of a file as arguments, found without running it."""
    if not path.is_file():
        return f"{path}:FACTORY; but there is no such file"
    try:
        body = ast.parse(path.read_text()).body
    except (SyntaxError, UnicodeDecodeError) as error:
        return f"{path}:FACTORY; but the file is not Python: {error}"
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    public = [f"{path}:{name}" for name in names if not name.startswith("_")]
    return " or ".join(public) if public else f"{path}:FACTORY; but it defines no function or class"


def _made(module: ModuleType, name: str, text: str, render_mode: str | None) -> Any:
    import gymnasium as gym

    mode: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    if name in gym.registry:
        return gym.make(name, **mode)
    factory = getattr(module, name, None)
    if not callable(factory):
        has = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        own = [n for n in has if getattr(getattr(module, n), "__module__", None) == module.__name__]
        raise ModelError(
            f"{text}: {module.__name__} has no function or class {name!r} and registers no such id"
            + (f"; it has {', '.join(own[:6])}" if own else "")
        )
    try:
        accepted = dict(inspect.signature(factory).parameters)
    except ValueError:
        accepted = {}
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [n for n, p in accepted.items() if p.default is p.empty and p.kind not in variable and n != "render_mode"]
    if needed:
        raise ModelError(f"{text}: {name} needs {', '.join(needed)}; name a function or class that needs no argument")
    takes_mode = "render_mode" in accepted or any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    return factory(**mode if takes_mode else {})


class _SourceOnly(SourceFileLoader):
    """Compiles a file as it is now: stored bytecode would hide an edit of equal length within the same second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModelError(f"there is no file {str(path)!r} to take an environment from")
    _allow_imports_from(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=_SourceOnly(path.stem, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # so that stored or copied objects find their classes
    spec.loader.exec_module(module)
    return module


def _imported(name: str) -> ModuleType:
    _allow_imports_from(Path(os.getcwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise ModelError(f"there is no module {name!r} (the current folder was searched too)") from None
        raise


def _allow_imports_from(folder: Path) -> None:
    """Allow imports from a folder, as `python -m` does for the current one; the command `rpl` does not."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
