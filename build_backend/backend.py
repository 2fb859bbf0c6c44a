"""setuptools as the build back end, and before it the C core: compiled beside its sources, from where it is packed.

The compiler is the machine's; where there is none that works, `ziglang` from PyPI is asked for. The core is compiled
here and not in a command of setuptools, because in editable installs setuptools turns a failed command into a warning.
"""

import runpy
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

_CORE = Path(__file__).resolve().parents[1] / "rpl_agent/core/native/build.py"


def _with_compiler(requirements: list[str]) -> list[str]:
    return requirements if runpy.run_path(str(_CORE))["compiler"]() else [*requirements, "ziglang>=0.13"]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return _with_compiler(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return _with_compiler(build_meta.get_requires_for_build_editable(config_settings))


def _compile() -> None:
    build = runpy.run_path(str(_CORE))
    build["remove_others"](*build["build_core"]())  # whatever lies there is packed


def build_wheel(*arguments: Any, **options: Any) -> str:
    _compile()
    return build_meta.build_wheel(*arguments, **options)


def build_editable(*arguments: Any, **options: Any) -> str:
    _compile()
    return build_meta.build_editable(*arguments, **options)
