"""The version of the package: certificates record it, and the lowest room is imported by every other one."""

__version__ = "0.4.0"
