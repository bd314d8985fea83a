"""The ports of a memory that several AXI4 masters share, served beat by beat."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from hdl.parameters import require_power_of_two, require_range
from hdl.shell.axi import AxiReadSignature, AxiWriteSignature, Response
from hdl.unit import Unit


class AxiMemory(Unit):
    """A memory from address 0 on, which serves one burst at a time of each port.

    The ports are granted beat by beat, in round-robin order: an accelerator may accept no data at
    one of its ports until it has received data at another one. The masters send incrementing bursts
    of whole beats that cross no page, as those of `hdl.shell` do. A burst outside the memory is
    answered with DECERR; its beats write nothing.

    A subclass connects the sources of beats to its memory.

    Parameters
    ----------
    memory_bytes : int
        Bytes of the memory, a power of two from 4096 on.
    address_bits, data_bytes : int
        Dimensions of the AXI4 ports, as in `hdl.shell.axi`.
    readers, writers : int
        Number of masters that read, and that write.
    members : dict[str, Any], optional
        Further members of a subclass.

    Members
    -------
    reads : In(AxiReadSignature).array(readers)
        The ports of reads.
    writes : In(AxiWriteSignature).array(writers)
        The ports of writes.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    def __init__(
        self,
        *,
        memory_bytes: int,
        address_bits: int,
        data_bytes: int,
        readers: int,
        writers: int,
        members: dict[str, Any] | None = None,
    ) -> None:
        require_range("address_bits", address_bits, 12, 64)
        require_power_of_two("memory_bytes", memory_bytes, 4096, 1 << address_bits)
        self.depth, self.data_bytes = memory_bytes // data_bytes, data_bytes
        self.address_bits, self.size_bits = address_bits, exact_log2(memory_bytes)
        self.readers, self.writers = readers, writers
        port = {"address_bits": address_bits, "data_bytes": data_bytes}
        super().__init__(
            {
                "reads": In(AxiReadSignature(**port)).array(readers),
                "writes": In(AxiWriteSignature(**port)).array(writers),
                **(members or {}),
            }
        )

    def _accepted(self, m: Module, port: Any, prefix: str, accepts: Value) -> tuple[Any, Signal]:
        """Accept a burst of a port; return the burst, whose `beat` advances, and its state."""
        layout = data.StructLayout({"beat": range(self.depth), "more": 8, "id": 1, "inside": 1})
        burst, active = Signal(layout), Signal()
        address = getattr(port, f"{prefix}addr")
        m.d.comb += getattr(port, f"{prefix}ready").eq(accepts & ~active)
        with m.If(getattr(port, f"{prefix}valid") & accepts & ~active):
            m.d.sync += [
                active.eq(1),
                burst.beat.eq(address[exact_log2(self.data_bytes) : self.size_bits]),
                burst.more.eq(getattr(port, f"{prefix}len")),
                burst.id.eq(getattr(port, f"{prefix}id")),
                # The memory has whole pages, and a burst is within one.
                burst.inside.eq(address[self.size_bits :] == 0),
            ]
        return burst, active

    def _serve_reader(
        self, m: Module, port: Any, source: Any, *, waiting: Value, arrives: Value, word: Value
    ) -> tuple[Any, Signal]:
        """Answer the bursts of a port with the words that arrive.

        The caller drives `source`, by which it requests the words.

        Parameters
        ----------
        m : Module
            The module of the memory.
        port : Any
            The port.
        source : Any
            The stream of requested beats.
        waiting : Value
            A word is requested and is not in the data register of the port.
        arrives, word : Value
            Store the word in the data register, which is empty or accepted in this cycle.

        Returns
        -------
        tuple[Any, Signal]
            The burst in progress, and whether there is one.
        """
        # The answer of a burst is complete before the next one is accepted.
        last = Signal()
        burst, active = self._accepted(m, port, "ar", ~waiting & ~port.rvalid)
        m.d.comb += [
            port.rid.eq(burst.id),
            Value.cast(port.rresp).eq(self._response(burst.inside)),
        ]
        with m.If(port.rready):
            m.d.sync += port.rvalid.eq(0)
        with m.If(arrives):
            m.d.sync += [port.rvalid.eq(1), port.rdata.eq(word), port.rlast.eq(last)]
        with m.If(source.valid & source.ready):
            m.d.sync += [
                last.eq(burst.more == 0),
                burst.beat.eq(burst.beat + 1),
                burst.more.eq(burst.more - 1),
                active.eq(burst.more != 0),
            ]
        return burst, active

    def _serve_writer(self, m: Module, port: Any, source: Any) -> None:
        """Send the beats of a port's bursts with `address`, `data` and `strobe`; answer bursts."""
        item = source.payload["item"]
        burst, active = self._accepted(m, port, "aw", ~port.bvalid)
        m.d.comb += [
            source.valid.eq(active & port.wvalid),
            item.address.eq(burst.beat),
            item.data.eq(port.wdata),
            item.strobe.eq(Mux(burst.inside, port.wstrb, 0)),
            port.wready.eq(source.ready & active),
            port.bid.eq(burst.id),
            Value.cast(port.bresp).eq(self._response(burst.inside)),
        ]
        with m.If(port.bready):
            m.d.sync += port.bvalid.eq(0)
        with m.If(source.valid & source.ready):
            m.d.sync += burst.beat.eq(burst.beat + 1)
            with m.If(port.wlast):
                m.d.sync += [active.eq(0), port.bvalid.eq(1)]

    @staticmethod
    def _response(inside: Value) -> Value:
        """Return the code of a response."""
        return Mux(inside, Response.OKAY.value, Response.DECERR.value)
