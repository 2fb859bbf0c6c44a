"""setuptools as the build back end, plus a C compiler from PyPI (`ziglang`) on machines that have none."""

import runpy
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

_CORE = Path(__file__).resolve().parents[1] / "rpl_agent/_core/build.py"


def _with_compiler(requirements: list[str]) -> list[str]:
    return requirements if runpy.run_path(str(_CORE))["compiler"]() else [*requirements, "ziglang>=0.13"]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return _with_compiler(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return _with_compiler(build_meta.get_requires_for_build_editable(config_settings))
