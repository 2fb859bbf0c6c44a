"""`python -m rpl_agent.cli`."""

import sys

from rpl_agent.cli import main

sys.exit(main())
