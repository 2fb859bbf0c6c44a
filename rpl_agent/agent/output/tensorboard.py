"""TensorBoard content beside the curves: the guarantee as text, the region, the policy on its world, the settings.

Pictures need matplotlib, which is optional.
"""

from __future__ import annotations

import math
import time
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rpl_agent.agent.callbacks import BaseCallback
from rpl_agent.agent.output.plotting import policy_map
from rpl_agent.agent.output.plotting.region import region_figure
from rpl_agent.agent.session import Session
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.printed import chance_text

if TYPE_CHECKING:
    from rpl_agent.guarantee.certificate import Certificate

#: Runs that last this many seconds end with pictures: with the import of matplotlib drawing takes three seconds, which
#: are at most 5 % of them. `rpl report` and `rpl plot-region` draw for shorter runs, and while a run goes on.
PICTURE_SECONDS = 60.0


class TensorBoardCallback(BaseCallback):
    """Texts, pictures and settings of a run; does nothing without a TensorBoard folder."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()

    def _on_certificate(self, certificate: Certificate) -> bool:
        writer = self.agent.logger.tensorboard
        if writer is not None:
            writer.text("guarantee", _guarantee_text(certificate, self.agent.session.assumed), self.agent.num_episodes)
        return True

    def _try_to_draw(self, writer: Any, certificate: Certificate) -> None:
        """Draw at the end of a run that was not short; a picture that fails does not end the run."""
        if time.monotonic() - self._began < PICTURE_SECONDS or find_spec("matplotlib") is None:
            return
        try:
            self._draw(writer, certificate)
        except Exception as error:
            warnings.warn(f"a picture for TensorBoard is left out: {error!r}", RPLWarning, stacklevel=2)

    def _draw(self, writer: Any, certificate: Certificate) -> None:
        """``region/outline``, one or two parameters of the confidence region, and ``policy/map``."""
        agent, session = self.agent, self.agent.session
        found = session.planner.uncertainty if isinstance(session, Session) else None
        if found is None:
            return
        if found.region is not None and not found.empty:
            parameters = range(min(2, agent.pmdp.num_parameters))
            writer.figure("region/outline", region_figure(found.region, agent.pmdp, parameters), agent.num_episodes)
        if found.estimate is not None:
            shown = policy_map.policy_map(agent.pmdp.instantiate(found.estimate), certificate.policy)
            if shown is not None:
                title = f"the certified policy after {agent.num_episodes:,} episodes"
                writer.figure("policy/map", policy_map.draw(shown, title), agent.num_episodes)

    def _on_training_end(self) -> None:
        writer, certificate, agent = self.agent.logger.tensorboard, self.agent.certificate, self.agent
        if writer is None or certificate is None:
            return
        self._try_to_draw(writer, certificate)
        settings, names = agent.session.hyperparameters(agent), ("gap", "regret", "lower", "upper")
        metrics = [f"guarantee/{name}" for name in names if math.isfinite(getattr(certificate, name))]
        writer.hyperparameters(settings, metrics)


def _guarantee_text(certificate: Any, assumed: str) -> str:
    """The guarantee for the TEXT tab: the exact numbers, δ, and the assumptions."""
    delta = certificate.delta
    return (
        f"**With probability ≥ {chance_text(delta)} (δ = {delta:g}) {certificate.sentence}.**\n\n"
        f"Exact numbers (curves are smoothed and single precision): lower {certificate.lower!r}, upper "
        f"{certificate.upper!r}, gap {certificate.gap!r}, "
        f"regret {certificate.regret!r}.\n\n```\n{certificate}\n```\n\n{assumed}"
    )
