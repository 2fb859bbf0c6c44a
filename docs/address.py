"""Say where the project lives: `make address URL=https://HOST/OWNER/rpl_agent`, before the first release.

Writes the address into pyproject.toml ([project.urls]), codemeta.json, CITATION.cff and mkdocs.yml, and makes the
links and images of README.md absolute, so that they work on the page of a package index. Run again with another
address to move. docs/generate.py makes them relative again for the site.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)]+)\)")
#: what stands between the address of a repository and a path in it, for pages and for images
PAGE, IMAGE = "/blob/main/", "/raw/main/"


def absolute(readme: str, url: str) -> str:
    """The README with links from anywhere."""
    return LINK.sub(lambda m: f"{m[1]}[{m[2]}]({url}{IMAGE if m[1] else PAGE}{m[3]})", relative(readme))


def relative(readme: str) -> str:
    """The README with links from its own folder, as it was before an address was known."""
    return re.sub(rf"\]\(https?://[^)\s]+?(?:{PAGE}|{IMAGE})([^)]+)\)", r"](\1)", readme)


def project_urls(pyproject: str, url: str) -> str:
    """pyproject.toml with a table of addresses."""
    table = (
        "[project.urls]\n"
        f'Repository = "{url}"\n'
        f'Documentation = "{url}{PAGE}docs/index.md"\n'
        f'Changelog = "{url}{PAGE}CHANGELOG.md"\n'
        f'Issues = "{url}/issues"\n\n'
    )
    without = re.sub(r"\[project\.urls\]\n(?:[^\[\n].*\n)*\n", "", pyproject)
    return without.replace("[project.scripts]\n", f"{table}[project.scripts]\n", 1)


def one_line(text: str, key: str, url: str) -> str:
    """A file of `key: value` lines with this key, replaced or added at the end."""
    line = f"{key}: {url}\n"
    pattern = re.compile(rf"^{key}: .*\n", re.M)
    return pattern.sub(line, text) if pattern.search(text) else text + line


def main(url: str, root: Path = ROOT) -> None:
    url = url.rstrip("/")
    if not re.fullmatch(r"https://[\w.-]+/[\w.-]+/[\w.-]+", url):
        raise SystemExit(f"{url!r} is not the address of a repository: write https://HOST/OWNER/NAME")
    for name, change in (
        ("README.md", absolute),
        ("pyproject.toml", project_urls),
        ("CITATION.cff", lambda text, address: one_line(text, "repository-code", address)),
        ("mkdocs.yml", lambda text, address: one_line(text, "repo_url", address)),
    ):
        path = root / name
        path.write_text(change(path.read_text(), url))
    meta = json.loads((root / "codemeta.json").read_text())
    meta |= {"codeRepository": url, "issueTracker": f"{url}/issues"}
    (root / "codemeta.json").write_text(json.dumps(meta, indent=2, ensure_ascii=False) + "\n")
    print(f"the project lives at {url}: read the changes (git diff), then commit them")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python docs/address.py https://HOST/OWNER/NAME")
    main(sys.argv[1])
