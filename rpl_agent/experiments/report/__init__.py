"""One self-contained HTML page: of a sweep's rows (`write_report`) or of a single run (`write_run_report`).

Charts are interactive (Plotly's script is part of the page, nothing is fetched), tables sort and filter, and the raw
data can be downloaded from the page itself. For a sweep, PNG and CSV files are written beside it.
"""

from rpl_agent.experiments.report.page import write_report, write_run_report, write_tables
