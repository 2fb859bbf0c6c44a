"""Bounds as texts are bounds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import rpl_envs
from rpl_agent import Counts, certify
from rpl_agent.core.printed import ceil_text, chance_text, floor_text
from rpl_agent.guarantee.open_world.certificate import OpenCertificate


@pytest.mark.parametrize("digits", [3, 4, 6])
def test_texts_are_on_the_safe_side_and_close(digits):
    rng = np.random.default_rng(0)
    for value in (rng.normal(size=300) * 10.0 ** rng.integers(-9, 9, size=300)).tolist():
        low, high = floor_text(value, digits), ceil_text(value, digits)
        stored = Fraction(repr(value))
        assert Fraction(low) <= stored <= Fraction(high)
        assert Fraction(high) - Fraction(low) <= abs(stored) * Fraction(10) ** (1 - digits)


def test_short_numbers_stay_as_they_are():
    for text in ("0.1", "0.3", "-0.7", "20", "0", "1e-07", "inf", "-inf"):
        assert floor_text(float(text)) == ceil_text(float(text)) == text


@pytest.mark.parametrize("delta", [0.3, 0.05, 1e-3, 0.12345678, 1e-6, 4e-7, 1.5e-9, 2e-16, 1e-300])
def test_probabilities_are_rounded_down_and_never_1(delta):
    """ "with probability ≥ 1" was printed at δ = 1e-7."""
    text = chance_text(delta)
    assert Fraction(text) <= 1 - Fraction(repr(delta)) < 1
    assert 1 - Fraction(text) <= Fraction(repr(delta)) * Fraction(11, 10) + Fraction(1, 10**15)


def test_no_certificate_is_certain():
    world = rpl_envs.benchmark("Betting-25")
    found = certify(world.pmdp, Counts(world.pmdp), world.objective, delta=1e-9)
    assert "with probability ≥ 0.999999999:" in str(found)
    assert "≥ 0.9999999:" in str(OpenCertificate(0.1, 0.2, 1e-7, "lake", "R max", ()))


def test_no_certificate_claims_more_in_words_than_in_numbers():
    """ "achieves at least 10.8855" was printed of a lower bound of 10.885493."""
    world = rpl_envs.benchmark("Betting-25")
    found = replace(
        certify(world.pmdp, Counts(world.pmdp), world.objective), lower=10.885493, upper=11.630653, regret=0.0166832
    )
    assert "[10.8854, 11.6307]" in str(found)
    assert "achieves at least 10.8854 and is within 0.01669 of the best possible" in found.sentence
    text = str(OpenCertificate(0.67377948, 0.890836004, 1e-3, "lake", "R max", ()))
    assert "at least 0.673779 " in text and "more than 0.890837" in text
