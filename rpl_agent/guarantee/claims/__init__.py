"""Claims about several values of one region: is a policy better than the one in use, and does it keep limits?

All statements of one claim hold on the event that the region contains the truth, so together they cost one δ.
"""
