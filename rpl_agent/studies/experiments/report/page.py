"""The skeleton of every HTML page: sections and charts in, one self-contained text out."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from rpl_agent.core.errors import ModelError
from rpl_agent.studies.experiments.report.charts import ReportChart
from rpl_agent.studies.experiments.tables import Table


@dataclass(frozen=True)
class Section:
    """A part of the page with an entry in its list of links."""

    anchor: str
    title: str
    body: str
    kind: str = ""

    def __str__(self) -> str:
        kind = f" class='{self.kind}'" if self.kind else ""
        return f"<section{kind} id='{self.anchor}'><h2>{html.escape(self.title)}</h2>{self.body}</section>"


def page(title: str, headline: str, sections: Sequence[Section], charts: Sequence[ReportChart]) -> str:
    """The whole text; ``headline`` is HTML, ``charts`` are the data of the chart sections among ``sections``."""
    folder = files("rpl_agent.studies.experiments.report")
    parts = [{"id": chart.id, "panels": chart.panels, "kinds": list(chart.kinds)} for chart in charts]
    data = json.dumps(parts, allow_nan=False).replace("</", "<\\/")
    return Template(folder.joinpath("page.html").read_text()).substitute(
        title=html.escape(title),
        style=folder.joinpath("page.css").read_text(),
        script=folder.joinpath("page.js").read_text(),
        plotly=plotly_script(),
        headline=headline,
        links=" ".join(f"<a href='#{s.anchor}'>{html.escape(s.title)}</a>" for s in sections),
        sections="".join(map(str, sections)),
        charts=data,
    )


def counted(number: int, thing: str) -> str:
    """
    >>> counted(1, "world"), counted(1234, "table")
    ('1 world', '1,234 tables')
    """
    return f"{number:,} {thing}{'s' if number != 1 else ''}"


def plotly_script() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ModelError("the report needs plotly, which the extra `report` brings: pip install plotly") from None
    return get_plotlyjs()


def chart_section(chart: ReportChart) -> Section:
    body = (
        f"<p class='note'>{html.escape(chart.note)}</p><div class='controls'></div><div class='chart'></div>"
        "<p class='note panel-note'></p>"
    )
    return Section(chart.id, chart.title, body, "figure")


def table_section(table: Table) -> Section:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in table.rows)
    note = f"<p class='note'>{html.escape(table.note)}</p>" if table.note else ""
    field = "<div class='controls'><input type='search' placeholder='filter rows' aria-label='filter rows'></div>"
    shown = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return Section(table.name, table.title, f"{note}{field}<div class='wide'>{shown}</div>", "table")


def picture(caption: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    text = html.escape(caption)
    return f"<figure><img alt='{text}' src='data:image/png;base64,{data}'><figcaption>{text}</figcaption></figure>"


def data_section(downloads: Sequence[tuple[str, str]], settings: Any) -> Section:
    """Raw data as files embedded in the page, and the settings behind them."""
    links = " ".join(
        f"<a download='{html.escape(name)}.gz' href='data:application/gzip;base64,"
        f"{base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()}'>{html.escape(name)}.gz</a>"
        for name, text in downloads
    )
    shown = html.escape(json.dumps(settings, indent=1))
    details = f"<details><summary>settings and versions</summary><pre>{shown}</pre></details>"
    return Section("data", "Raw data", f"<p>Download {links}</p>{details}")
