"""Certificates use one BLAS thread, and leave the setting as it was."""

from __future__ import annotations

from typing import Any

import pytest
import scipy.linalg  # noqa: F401, its BLAS must be there to be watched
from threadpoolctl import threadpool_info, threadpool_limits

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.native.blas import one_blas_thread
from rpl_agent.guarantee import pipeline
from rpl_agent.guarantee.claims.limits import certify
from rpl_envs.benchmark import benchmark


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_one_thread_inside_and_as_before_outside():
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread:
            with one_blas_thread:
                pass
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_an_error_inside_restores_the_setting():
    @one_blas_thread
    def fail() -> None:
        raise ValueError

    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(ValueError):
            fail()
        assert blas_threads() == {2}


def test_a_certificate_is_computed_in_one_thread(monkeypatch):
    world, seen, solve = benchmark("Betting-25"), [], pipeline.checked_solutions

    def watched(*arguments: Any, **options: Any) -> Any:
        seen.append(blas_threads())
        return solve(*arguments, **options)

    monkeypatch.setattr(pipeline, "checked_solutions", watched)
    with threadpool_limits(2, user_api="blas"):
        certify(world.pmdp, Counts(world.pmdp), world.objective)
    assert seen and all(threads == {1} for threads in seen)
