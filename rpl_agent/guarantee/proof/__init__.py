"""Proofs of certificates, for `rpl_agent.guarantee.checker`: self-contained in one file."""

from rpl_agent.guarantee.proof.content import data_to_json
from rpl_agent.guarantee.proof.stated import stated
from rpl_agent.guarantee.proof.statement import belongs
from rpl_agent.guarantee.proof.write import proof_path, prove, read_proof, write_proof

__all__ = [
    "belongs",
    "data_to_json",
    "proof_path",
    "prove",
    "read_proof",
    "stated",
    "write_proof",
]
