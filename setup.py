"""What pyproject.toml cannot say: wheels are tagged `py3-none-PLATFORM`, because the core uses no Python.h."""

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    """One wheel for all versions of Python: the library is plain C."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    """A distribution that is not pure Python, although it has no extension module."""

    def has_ext_modules(self) -> bool:
        return True


setup(distclass=BinaryDistribution, cmdclass={"bdist_wheel": PlatformWheel})
