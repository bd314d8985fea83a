"""The code digest follows every module that a result depends on, and no other."""

from pathlib import Path

import pytest

from hdl import sources
from hdl.sources import code_digest

TREE = {
    "golden/__init__.py": "",
    "golden/top.py": "from golden.inner import middle\nimport numpy\n",
    "golden/inner/__init__.py": "",
    "golden/inner/middle.py": "def late():\n    from hdl.bottom import value\n    return value\n",
    "golden/inner/apart.py": "value = 1\n",
    "hdl/__init__.py": "",
    "hdl/bottom.py": "import hdl.listed\nvalue = 1\n",
    "hdl/listed.py": "import golden.inner.apart\n",
}
"""A package of which `golden.top` needs all modules, two of them through `hdl.listed`."""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in TREE.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    return tmp_path


def digest(*, without: tuple[str, ...] = ()) -> str:
    code_digest.cache_clear()
    sources._followed.cache_clear()
    sources._syntax_digest.cache_clear()
    return code_digest("golden.top", without=without)


@pytest.mark.parametrize("name", TREE)
def test_digest_changes_with_each_module(tree: Path, name: str) -> None:
    before = digest()
    (tree / name).write_text(TREE[name] + "other = 2\n")
    assert digest() != before
    (tree / name).write_text(TREE[name])
    assert digest() == before


PROSE = (
    '"""A module."""\nimport hdl.listed\nvalue = 1\n',
    'import hdl.listed\n\n# A comment.\nvalue = 1  # another\n"""Documents the value."""\n',
    "import hdl.listed\nvalue = (\n    1\n)\n",
)
CODE = (
    "import hdl.listed\nvalue = 2\n",
    'import hdl.listed\nvalue = "1"\n',
    'import hdl.listed\nvalue = 1\nprint("text")\n',
)


@pytest.mark.parametrize("text", PROSE)
def test_prose_keeps_the_digest(tree: Path, text: str) -> None:
    before = digest()
    (tree / "hdl/bottom.py").write_text(text)
    assert digest() == before


@pytest.mark.parametrize("text", CODE)
def test_code_changes_the_digest(tree: Path, text: str) -> None:
    before = digest()
    (tree / "hdl/bottom.py").write_text(text)
    assert digest() != before


def test_digest_does_not_follow_a_named_module(tree: Path) -> None:
    before = digest(without=("hdl.listed",))
    for name in ("hdl/listed.py", "golden/inner/apart.py"):
        (tree / name).write_text("value = 2\n")
        assert digest(without=("hdl.listed",)) == before
    (tree / "hdl/bottom.py").write_text("value = 2\n")
    assert digest(without=("hdl.listed",)) != before


def test_digest_changes_with_the_version_of_a_package(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest()
    monkeypatch.setattr(sources, "version", lambda package: f"{package} 0")
    assert digest() != before


def test_rejects_a_module_that_does_not_exist() -> None:
    with pytest.raises(ImportError, match="nothing"):
        code_digest("golden.nothing")


@pytest.mark.parametrize(
    ("result", "decisive"),
    [
        ("golden.llm.capture", "golden.llm.model"),
        ("golden.study.losses", "golden.policies.cache"),
        ("golden.study.lad_measured", "golden.lad.piecewise_linear_exp"),
        ("golden.study.p3llm_passes", "golden.p3llm.tensor_formats"),
        ("systola.generation.veda", "testbenches.veda.model_lines"),
        ("systola.generation.kelle", "golden.kelle.low_bits"),
        ("systola.generation.lad", "testbenches.lad.weight_bytes"),
        ("systola.generation.meadow", "testbenches.meadow.memory_images"),
        ("systola.generation.p3llm", "golden.p3llm.quantisers.key_smoothing"),
    ],
)
def test_code_of_a_cached_result_includes(result: str, decisive: str) -> None:
    finder = sources._Finder(("hdl.catalog",))
    finder.import_hook(result)
    assert decisive in finder.modules
