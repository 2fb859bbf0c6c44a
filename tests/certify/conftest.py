"""What tests of certificates and proofs share."""

import pytest

from tests.certify.mutations import particles_once


@pytest.fixture
def shared_particles():
    """A proof is found with the checker's own likelihood, and then checked, often many times: it is worked out once."""
    with particles_once():
        yield
