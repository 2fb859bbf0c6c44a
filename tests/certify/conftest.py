"""What tests of certificates and proofs share."""

import pytest

from tests.certify.mutations import particles_once


@pytest.fixture(scope="module")
def shared_particles():
    """A proof is found with the checker's own likelihood and bets, and then checked, often many times, and many proofs
    of a module are of the same data: they are worked out once."""
    with particles_once():
        yield
