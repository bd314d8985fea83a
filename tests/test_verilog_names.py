"""Names of modules: identifiers that no Verilog tool takes for a keyword."""

import pytest
from pygments.lexers.hdl import SystemVerilogLexer
from pygments.token import Name

from hdl.emit import Emission
from hdl.verilog_names import KEYWORDS, SYSTEMVERILOG, VERILOG_2005, require_module_name
from tests.test_emit import Inner


@pytest.mark.parametrize(
    "name", ["my unit", "module", "logic", "checker", "", "3d", "a-b", "a.b", "a$b", "ä", "a\n"]
)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a module's name must be"):
        Emission(top=Inner(width=8), name=name)


@pytest.mark.parametrize("name", ["Module", "_module", "module_1", "MODULE", "x"])
def test_a_name_like_a_keyword_is_accepted(name: str) -> None:
    require_module_name(name)


def test_no_word_is_listed_twice() -> None:
    assert not VERILOG_2005 & SYSTEMVERILOG
    assert (len(VERILOG_2005), len(KEYWORDS)) == (124, 248)


def test_an_independent_reader_takes_every_keyword_for_one() -> None:
    lexer = SystemVerilogLexer()
    kinds = {word: next(lexer.get_tokens(f"{word} a"))[0] for word in [*KEYWORDS, "systola"]}
    assert [word for word, kind in kinds.items() if kind is Name] == ["systola"]
