"""One self-contained HTML page: of a sweep's rows (`sweep.report`) or of a single run (`run.report_run`).

Charts are interactive (Plotly's script is part of the page, nothing is fetched), tables sort and filter, and the raw
data can be downloaded from the page itself. For a sweep, PNG and CSV files are written beside it.
"""
