"""What pyproject.toml cannot say: compile the C core, and tag wheels `py3-none-PLATFORM` (no Python.h is used)."""

import runpy
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py


class BuildCore(build_py):
    """Compiles the core beside its sources before the package's files are collected."""

    def run(self) -> None:
        runpy.run_path(str(Path(__file__).parent / "rpl_agent/_core/build.py"))["build"]()
        super().run()


class PlatformWheel(bdist_wheel):
    """One wheel for all versions of Python: the library is plain C."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    """A distribution that is not pure Python, although it has no extension module."""

    def has_ext_modules(self) -> bool:
        return True


setup(distclass=BinaryDistribution, cmdclass={"build_py": BuildCore, "bdist_wheel": PlatformWheel})
