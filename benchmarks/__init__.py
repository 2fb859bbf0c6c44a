"""Speed and tightness, as ratios taken in one run; never as timed tests."""
