"""From counts to a claim: the confidence set, the pipeline, certificates, proofs and their check."""
