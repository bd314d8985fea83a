"""The report as a browser lays it out; without Chromium these tests are skipped."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from hdl.catalog import CATALOG
from synth.figures import kept_figures
from synth.report import write_report
from synth.results import Record

PROGRAMS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, PROGRAMS)), "")
WAIT = 120
"""Seconds."""

MEASURE = """
<script>
document.querySelectorAll("details").forEach(details => details.open = OPEN);
const faults = [], name = e => e.tagName + " " + (e.textContent || "").trim().slice(0, 40);
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) faults.push("the page is wider than the window");
const seen = e => e.getClientRects().length
    && e.closest("details:not([open]) > :not(summary)") === null;
let elements = 0, words = 0;
for (const e of document.body.querySelectorAll("*")) {
  if (!seen(e) || e.closest("svg")) continue;
  elements++;
  const box = e.getBoundingClientRect(), inside = e.closest(".scroll");
  if ((box.left < -0.5 || box.right > width + 0.5) && (!inside || e === inside))
    faults.push("outside the window: " + name(e));
  if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline"
      && (WIDE || !e.classList.contains("scroll")) && !e.closest("tr"))
    faults.push("wider than its place: " + name(e));
}
for (const svg of document.querySelectorAll("svg")) {
  if (!seen(svg)) continue;
  const sheet = svg.getBoundingClientRect(), what = svg.getAttribute("aria-label") + ": ";
  const texts = [...svg.querySelectorAll("text")]
      .map(text => [text.textContent, text.getBoundingClientRect()]);
  words += texts.length;
  texts.forEach(([text, box], n) => {
    if (box.left < sheet.left || box.right > sheet.right || box.top < sheet.top
        || box.bottom > sheet.bottom) faults.push(what + text + " is outside the picture");
    for (const [other, place] of texts.slice(n + 1))
      if (box.left < place.right - 0.5 && place.left < box.right - 0.5
          && box.top < place.bottom - LEADING && place.top < box.bottom - LEADING)
        faults.push(what + text + " lies on " + other);
  });
}
const found = document.createElement("pre");
found.id = "found";
found.textContent = JSON.stringify({faults, elements, words, width});
document.body.append(found);
</script>
"""
"""Script that lists what does not fit; a line's box has LEADING pixels above and below letters."""

pytestmark = pytest.mark.skipif(
    not BROWSER, reason="there is no Chromium on this machine: nothing was laid out"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    operators = Record(file=Path("operators.json"))
    directory = tmp_path_factory.mktemp("report")
    (file,) = write_report(CATALOG, [], operators, directory, figures=kept_figures(), studies={})
    return file.read_text()


def laid_out(page: str, directory: Path, *, width: int, wide: bool = True, opened: bool = True):
    """Return what the browser finds on a page of a width; `wide` is whether no table may scroll."""
    values = {"WIDE": wide, "OPEN": opened}
    script = MEASURE.replace("LEADING", "3")
    for key, value in values.items():
        script = re.sub(rf"\b{key}\b", json.dumps(value), script)
    file = directory / "page.html"
    file.write_text(page.replace("</body>", script + "</body>"))
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={directory / 'profile'}", f"--window-size={width},2000",
        "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True)
    found = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, flags=re.S)
    assert found, "the page's script did not run to its end"
    return json.loads(unescape(found[1]))


@pytest.mark.parametrize("opened", (False, True))
def test_nothing_overflows_on_a_screen(page: str, tmp_path: Path, opened: bool) -> None:
    found = laid_out(page, tmp_path, width=1280, opened=opened)
    assert found["faults"] == []
    assert found["width"] > 1200 and found["elements"] > 600 and found["words"] > 150


@pytest.mark.parametrize("width", (620, 390))
def test_on_a_narrow_window_only_tables_scroll(page: str, tmp_path: Path, width: int) -> None:
    found = laid_out(page, tmp_path, width=width, wide=False)
    assert found["faults"] == [] and found["width"] <= width


@pytest.mark.parametrize(
    ("there", "instead", "fault"),
    (
        ("<main>", '<main><div style="width:1400px">x</div>', "the page is wider than the window"),
        ('<div class="scroll">', "<div>", "wider than"),
        (">% of the ideal</text>", f">{'wide ' * 40}</text>", "is outside the picture"),
        (">% of the ideal</text>", ' dy="-16">% of the ideal</text>', "lies on"),
    ),
)
def test_each_fault_is_found(
    page: str, tmp_path: Path, there: str, instead: str, fault: str
) -> None:
    assert there in page
    width = 620 if "scroll" in there else 1280
    found = laid_out(page.replace(there, instead), tmp_path, width=width, wide=False)
    assert any(fault in words for words in found["faults"]), found
