"""The online agent: sampling with optimism, certificates, callbacks, logs, checkpoints, runs."""

from rpl_agent.agent.callbacks import (
    BaseCallback,
    CallbackList,
    CertificateLog,
    CheckpointCallback,
    EvalCallback,
    OracleCallback,
    StopOnGap,
    StopOnRegret,
)
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.agent.schedule import Doubling, EveryN, Limits, Never, Progress, Schedule
