"""The site in a browser without a network, on screens of 1280 and 390 pixels."""

import functools
import http.server
import json
import re
import subprocess
import threading
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner

from systola import site
from systola.cli import main
from tests.synth.test_page_in_browser import BROWSER

WAIT = 900
"""Seconds, for all pages."""

DRIVER = """<!doctype html><body style="margin: 0"><script>
(async () => {
  const found = {}, frame = document.createElement("iframe");
  frame.style = "width: WIDTHpx; height: 2000px; border: 0";
  document.body.append(frame);
  for (const page of PAGES) {
    await new Promise(done => { frame.onload = done; frame.src = page; });
    const inside = frame.contentDocument, width = inside.documentElement.clientWidth;
    const faults = found[page] = [];
    for (const one of frame.contentWindow.performance.getEntriesByType("resource"))
      if (new URL(one.name).host !== location.host) faults.push("needs " + one.name);
    for (const e of inside.querySelectorAll(".mermaid"))
      faults.push("no picture " + e.textContent.trim().slice(0, 40));
    const scrolls = e => e && e !== inside.body && (scrolls(e.parentElement) ||
        ["auto", "scroll", "hidden"].includes(frame.contentWindow.getComputedStyle(e).overflowX));
    if (inside.documentElement.scrollWidth > width) faults.push("the page is wider");
    for (const e of inside.querySelectorAll(".md-content *")) {
      if (!e.getClientRects().length || e.closest("svg") || scrolls(e.parentElement)) continue;
      const box = e.getBoundingClientRect();
      if (box.right > width + 0.5 || box.left < -0.5)
        faults.push(e.tagName + " " + e.textContent.trim().slice(0, 40));
    }
    for (const e of inside.querySelectorAll("img"))
      if (e.complete && !e.naturalWidth) faults.push("no picture " + e.src);
    for (const e of inside.querySelectorAll("svg[role=img] text, svg[role=img] tspan")) {
      const own = e.closest("svg"), scale = own.getBoundingClientRect().width
          / own.viewBox.baseVal.width;
      const size = parseFloat(frame.contentWindow.getComputedStyle(e).fontSize) * scale;
      if (size < 8.9) faults.push("letters of " + size + " pixels: " + e.textContent);
    }
  }
  const shown = document.createElement("pre");
  shown.id = "found";
  shown.textContent = JSON.stringify(found);
  document.body.append(shown);
})();
</script></body>"""

pytestmark = [
    pytest.mark.skipif(not BROWSER, reason="there is no Chromium on this machine"),
    pytest.mark.full,
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site without its API reference."""
    home = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "SITE", home)
        result = CliRunner().invoke(main, ["docs", "--reference", "0"])
    assert result.exit_code == 0, result.output
    return home


def laid_out(folder: Path, pages: list[str], width: int, profile: Path) -> dict[str, list[str]]:
    """Return the faults of each page in a frame of a width."""
    driver = DRIVER.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(width))
    (folder / "driver.html").write_text(driver)
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={profile}", f"--window-size={width + 40},2100",
            f"--virtual-time-budget={WAIT * 1000}", "--dump-dom",
            f"http://127.0.0.1:{server.server_port}/driver.html",
        ]  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True)
        server.shutdown()
    found = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, flags=re.S)
    assert found, "the script did not run to its end"
    return json.loads(unescape(found[1]))


@pytest.mark.parametrize("width", (1280, 390))
def test_no_page_is_wider_than_the_screen(folder: Path, width: int, tmp_path: Path) -> None:
    pages = sorted(f"/{file.parent.relative_to(folder)}/" for file in folder.rglob("index.html"))
    found = laid_out(folder, pages, width, tmp_path / "profile")
    assert len(found) > 100
    assert {page: faults for page, faults in found.items() if faults} == {}


def test_each_fault_is_found(folder: Path, tmp_path: Path) -> None:
    """Break copies of a page, each differently."""
    text = (folder / "perplexity/index.html").read_text()
    faults = {
        "wide": '<div style="width: 2000px">x</div>',
        "picture": '<img src="no.svg">',
        "small": '<svg role="img" viewBox="0 0 99 9" width="99"><text font-size="5">x</text></svg>',
        "network": '<script src="https://example.org/library.js"></script>',
        "flowchart": '<pre class="mermaid"><code>flowchart LR</code></pre>',
    }
    for name, part in faults.items():
        page = folder / "perplexity" / f"{name}.html"
        page.write_text(text.replace("</h1>", f"</h1>{part}", 1))
    pages = [f"/perplexity/{name}.html" for name in faults]
    found = laid_out(folder, pages, 390, tmp_path / "profile")
    assert found.keys() == set(pages) and all(found.values()), found
    for name in faults:
        (folder / "perplexity" / f"{name}.html").unlink()
