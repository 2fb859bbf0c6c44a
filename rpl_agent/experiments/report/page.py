"""Putting a page together: sections in, one HTML text out."""

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

from rpl_agent.errors import ModelError
from rpl_agent.experiments.report.charts import ReportChart
from rpl_agent.experiments.tables import Table


@dataclass(frozen=True)
class Section:
    """A part of the page with a place in its list of links."""

    anchor: str
    title: str
    body: str


def page(title: str, headline: Sequence[str], sections: Sequence[Section], charts: Sequence[ReportChart]) -> str:
    """The whole text; ``charts`` are the data of the chart sections among ``sections``."""
    folder = files("rpl_agent.experiments.report")
    data = json.dumps([chart.to_dict() for chart in charts], allow_nan=False).replace("</", "<\\/")
    return Template(folder.joinpath("page.html").read_text()).substitute(
        title=html.escape(title),
        style=folder.joinpath("page.css").read_text(),
        script=folder.joinpath("page.js").read_text(),
        plotly=plotly_script(),
        headline="".join(f"<p>{html.escape(sentence)}</p>" for sentence in headline),
        links=" ".join(f"<a href='#{s.anchor}'>{html.escape(s.title)}</a>" for s in sections),
        sections="".join(s.body for s in sections),
        charts=data,
    )


def plotly_script() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ModelError("the report needs plotly: pip install plotly") from None
    return get_plotlyjs()


def chart_section(chart: ReportChart) -> Section:
    body = (
        f"<section class='figure' id='{chart.id}'><h2>{html.escape(chart.title)}</h2>"
        f"<p class='note'>{html.escape(chart.note)}</p><div class='controls'></div><div class='chart'></div>"
        "<p class='note panel-note'></p></section>"
    )
    return Section(chart.id, chart.title, body)


def table_section(table: Table) -> Section:
    field = "<div class='controls'><input type='search' placeholder='filter rows' aria-label='filter rows'></div>"
    head, body = table.to_html().split("<div class='wide'>", 1)
    text = f"<section class='table' id='{table.name}'>{head}{field}<div class='wide'>{body}</section>"
    return Section(table.name, table.title, text)


def pictures_section(anchor: str, title: str, pictures: Sequence[tuple[str, Path]]) -> Section:
    body = "".join(_picture(caption, path) for caption, path in pictures)
    return Section(
        anchor, title, f"<section id='{anchor}'><h2>{html.escape(title)}</h2><div class='worlds'>{body}</div></section>"
    )


def _picture(caption: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    text = html.escape(caption)
    return f"<figure><img alt='{text}' src='data:image/png;base64,{data}'><figcaption>{text}</figcaption></figure>"


def data_section(downloads: Sequence[tuple[str, str]], settings: Any) -> Section:
    """Raw data as files that the page itself contains, and the settings behind them."""
    links = " ".join(
        f"<a download='{html.escape(name)}.gz' href='data:application/gzip;base64,"
        f"{base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()}'>{html.escape(name)}.gz</a>"
        for name, text in downloads
    )
    shown = html.escape(json.dumps(settings, indent=1))
    body = (
        f"<section id='data'><h2>Raw data</h2><p>Download {links}</p>"
        f"<details><summary>settings and versions</summary><pre>{shown}</pre></details></section>"
    )
    return Section("data", "Raw data", body)
