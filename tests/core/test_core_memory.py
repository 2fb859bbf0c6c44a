"""What reading a model needed for a while is given back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc, os
from rpl_agent.formats import prism

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

TEXT = '''mdp
const int N;
const double p;
module walk
  x : [0..N] init 0;
  y : [0..N] init 0;
  [a] true -> p : (x' = min(x + 1, N)) + 1 - p : (y' = min(y + 1, N));
  [b] true -> 1/3 : (x' = max(x - 1, 0)) + 1/3 : (y' = max(y - 1, 0)) + 1/3 : (x' = 0) & (y' = 0);
endmodule
'''
prism.loads(TEXT, {"N": 3})
before = resident()
model = prism.loads(TEXT, {"N": 300})
gc.collect()
print((resident() - before) / (model.pmdp.num_transitions / 1e6))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.skipif("sanitize" in os.environ.get("RPL_CORE_FLAGS", ""), reason="sanitizers keep freed memory")
def test_a_model_that_was_read_needs_at_most_50_mb_per_million_transitions():
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert float(found.stdout) <= 50.0
