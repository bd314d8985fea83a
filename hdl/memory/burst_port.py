"""Ports to an external memory with bursts of words and early requests.

The adapter on the other side of a port, such as an AXI adapter or a DRAM controller, is not part of
a design; testbenches use `testbenches.burst_memory`. Both sides follow these rules:

- An address counts words. A burst has consecutive addresses and at least one word. It may cross any
  boundary; the adapter splits it if its bus requires that.
- Bursts of one port are served in the order of their requests. The adapter may accept requests
  ahead of the words.
- A word that was transferred for writing is visible to every burst whose request is transferred in
  a later cycle, at the same port or at another port of the same memory.
- No stream waits for another, except that words read follow their request. The words of a write may
  precede, accompany or follow their request. A design must eventually accept all words that it has
  requested.
"""

from amaranth.hdl import ShapeLike
from amaranth.lib import data, stream
from amaranth.lib.wiring import Flow, In, Out, Signature

from hdl.parameters import require_range


class _BurstPort(Signature):
    """Streams of both directions of a burst port.

    Parameters
    ----------
    address_bits : int
        Bits of an address, 1 to 64.
    word_shape : ShapeLike
        Shape of a word.
    longest : int
        Maximum length of a burst in words, 1 to 2**20.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    def __init__(
        self, *, address_bits: int, word_shape: ShapeLike, longest: int, words: Flow
    ) -> None:
        require_range("address_bits", address_bits, 1, 64)
        require_range("longest", longest, 1, 1 << 20)
        self.address_bits, self.longest = address_bits, longest
        self.writes = words is Out
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
    """A read port, with directions as seen by the design.

    The parameters are those of `_BurstPort`.

    Members
    -------
    requests : Out(stream)
        The first `address` of a burst and its `length` in words.
    words : In(stream)
        The words of the bursts, in order: each `word`; `last` with the last word of a burst.
    """

    def __init__(self, *, address_bits: int, word_shape: ShapeLike, longest: int) -> None:
        super().__init__(
            address_bits=address_bits, word_shape=word_shape, longest=longest, words=In
        )


class BurstWritePort(_BurstPort):
    """A write port, with directions as seen by the design.

    The parameters are those of `_BurstPort`.

    Members
    -------
    requests : Out(stream)
        The first `address` of a burst and its `length` in words.
    words : Out(stream)
        The words of the bursts, in order: each `word`; `last` with the last word of a burst.
    """

    def __init__(self, *, address_bits: int, word_shape: ShapeLike, longest: int) -> None:
        super().__init__(
            address_bits=address_bits, word_shape=word_shape, longest=longest, words=Out
        )
