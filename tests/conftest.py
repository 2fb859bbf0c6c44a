"""What all tests share."""

import pytest

from rpl_agent.agent import loop


@pytest.fixture(autouse=True, scope="session")
def short_proofs():
    """Runs end with a proof in exact fractions only where it is short: proofs have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "PROVED", 300)
        yield
