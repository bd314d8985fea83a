"""How a design reaches the memory outside it: bursts of words, asked for ahead.

What stands behind a port, an AXI adapter or a DRAM controller, is not part of a design; a testbench
has `testbenches.burst_memory`. The rules between the two:

- An address counts words. A burst has consecutive addresses and at least one word; it may cross any
  boundary, and the adapter splits it where its bus asks for that.
- Bursts of one port are served in the order of their requests. Requests may run ahead of the words
  as far as they are taken.
- A word that was handed over for writing is seen by every burst whose request is handed over in a
  later cycle, at the same port or at another of the same memory.
- No stream waits for another but as said: the words of a write may come before, with or after their
  request, and a design that has asked for words takes them in the end.
"""

from typing import Any

from amaranth.hdl import ShapeLike
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, Signature

from hdl.parameters import require_range


class _BurstPort(Signature):
    """What both directions share.

    Parameters
    ----------
    address_bits : int
        Bits of an address, 1 to 64.
    word_shape : ShapeLike
        Shape of a word.
    longest : int
        Words of a burst at most, 1 to 2**20.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def __init__(
        self, *, address_bits: int, word_shape: ShapeLike, longest: int, words: Any
    ) -> None:
        require_range("address_bits", address_bits, 1, 64)
        require_range("longest", longest, 1, 1 << 20)
        self.request_layout = data.StructLayout(
            {"address": address_bits, "length": range(longest + 1)}
        )
        self.word_layout = data.StructLayout({"word": word_shape, "last": 1})
        super().__init__(
            {
                "requests": Out(stream.Signature(self.request_layout)),
                "words": words(stream.Signature(self.word_layout)),
            }
        )


class BurstReadPort(_BurstPort):
    """A port to read from, as the design sees it.

    Parameters as `_BurstPort`'s.

    Members
    -------
    requests : Out(stream)
        The first `address` of a burst and its `length` in words.
    words : In(stream)
        Each `word` of the bursts, in order; `last` with a burst's last.
    """

    def __init__(self, *, address_bits: int, word_shape: ShapeLike, longest: int) -> None:
        super().__init__(
            address_bits=address_bits, word_shape=word_shape, longest=longest, words=In
        )


class BurstWritePort(_BurstPort):
    """A port to write to, as the design sees it.

    Parameters as `_BurstPort`'s.

    Members
    -------
    requests : Out(stream)
        The first `address` of a burst and its `length` in words.
    words : Out(stream)
        Each `word` of the bursts, in order; `last` with a burst's last.
    """

    def __init__(self, *, address_bits: int, word_shape: ShapeLike, longest: int) -> None:
        super().__init__(
            address_bits=address_bits, word_shape=word_shape, longest=longest, words=Out
        )
