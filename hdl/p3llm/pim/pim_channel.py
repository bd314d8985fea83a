"""P3-LLM's PIM channel: eight PCUs on sixteen banks, controlled by HBM-like commands.

Section V-C, Figure 6 (c). The DRAM arrays of the banks are outside the RTL.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum
from amaranth.lib.wiring import In, Out

from hdl.arith.delay_line import delay_line
from hdl.p3llm.pim.bank_timing import (
    PS_TIMES_MHZ,
    VIOLATIONS,
    BankTiming,
    BankTimingParameters,
    RowOperation,
    bank_bits,
)
from hdl.p3llm.pim.pim_compute_unit import PimComputeUnit, PimComputeUnitParameters
from hdl.parameters import Parameters, parameter_object, require
from hdl.unit import Unit

ROW_BITS = 15
"""Bits of a row index."""

COLUMN_BITS = 5
"""Bits of a column index."""


class ColumnOperation(enum.Enum, shape=3):
    """Operation of a column command.

    Members
    -------
    MULTIPLY, WRITE_INPUT, WRITE_METADATA, FILL_METADATA, READ_RESULT
        As `Operation`. `MULTIPLY` and `FILL_METADATA` address all units, `READ_RESULT` one unit,
        writes one or all units.
    READ, WRITE
        Read or write a column of one bank.
    FILL_SCALES
        As `Operation`; addresses all units.
    """

    MULTIPLY = 0
    WRITE_INPUT = 1
    WRITE_METADATA = 2
    FILL_METADATA = 3
    READ_RESULT = 4
    READ = 5
    WRITE = 6
    FILL_SCALES = 7


STATUS = data.StructLayout(
    {**{name: 1 for name, _field in VIOLATIONS}, "phase": 1, "busy": 1, "nan": 1}
)
"""Sticky violations: those of `VIOLATIONS`; ``phase``: a `MULTIPLY` in an odd cycle, or one that
completes sums before the units can scale them; ``busy``: a read of a result that was not complete;
``nan``: an input was a NaN."""


@parameter_object
class PimChannelParameters(Parameters):
    """Compute units and banks of a pseudo-channel.

    Parameters
    ----------
    unit : PimComputeUnitParameters
        Parameters of a compute unit; two banks share each unit.
    timing : BankTimingParameters
        Number of banks and their times.
    """

    unit: PimComputeUnitParameters = PimComputeUnitParameters()
    timing: BankTimingParameters = BankTimingParameters()

    def __post_init__(self) -> None:
        """Check that tCCD_L covers one cycle per pump."""
        super().__post_init__()
        timing, pumps = self.timing, self.unit.pumps
        # A column is multiplied by one pump per cycle, before the next one of its bank group.
        slowest = (pumps - 1) * PS_TIMES_MHZ // timing.ccd_l_ps
        rule = f"timing.clock_mhz must be above {slowest} for {pumps} pumps in ccd_l_ps"
        require(timing.ccd_l >= pumps, f"{rule}={timing.ccd_l_ps}", timing.clock_mhz)

    @property
    def units(self) -> int:
        """Number of compute units."""
        return self.timing.banks // 2

    @property
    def column_cycles(self) -> int:
        """Minimum cycles between columns that all units multiply: tCCD_L, and one per pump."""
        # A unit starts a column in cycles that are multiples of its pumps.
        pumps = self.unit.pumps
        return -(-self.timing.ccd_l // pumps) * pumps

    @property
    def row_command_layout(self) -> data.StructLayout:
        """A row command; ``all`` addresses all banks with the parity of ``bank``.

        `REFRESH_BANK` addresses one bank, whatever ``all`` is.
        """
        return data.StructLayout(
            {
                "valid": 1,
                "operation": RowOperation,
                "bank": bank_bits(self.timing),
                "all": 1,
                "row": ROW_BITS,
            }
        )

    @property
    def column_command_layout(self) -> data.StructLayout:
        """A column command; fields of the units as in `PimComputeUnitParameters.command_layout`.

        ``bank`` addresses a bank or, shifted right by one, a unit. For `MULTIPLY` and the fill
        operations its lowest bit selects the bank of each unit. ``all`` makes all units accept a
        write, with ``half`` the ``upper`` or the lower half of them; ``mask`` has a bit for each
        byte that `WRITE` changes.
        """
        unit = {name: field.shape for name, field in self.unit.command_layout}
        del unit["operation"]
        return data.StructLayout(
            {
                "valid": 1,
                "operation": ColumnOperation,
                "bank": bank_bits(self.timing),
                "all": 1,
                "half": 1,
                "column": COLUMN_BITS,
                "mask": self.unit.column_bits // 8,
                **unit,
            }
        )

    @property
    def bank_command_layout(self) -> data.StructLayout:
        """Commands for the DRAM arrays.

        ``activate``, ``precharge``, ``refresh``, ``read`` and ``write`` are masks of banks.
        ``refresh`` has all banks, or one.
        """
        banks = self.timing.banks
        return data.StructLayout(
            {
                "activate": banks,
                "precharge": banks,
                "refresh": banks,
                "row": ROW_BITS,
                "read": banks,
                "write": banks,
                "column": COLUMN_BITS,
                "mask": self.unit.column_bits // 8,
                "data": data.ArrayLayout(8, self.unit.column_bits // 8),
            }
        )


@dataclass(frozen=True)
class UnitOutputs:
    """What all compute units output.

    Members
    -------
    ready : Value
        All units can execute the command.
    valid, data : Signal
        A result, of the addressed unit.
    nan : Value
        An input was a NaN.
    """

    ready: Value
    valid: Signal
    data: Signal
    nan: Value


class PimChannel(Unit):
    """Execute row and column commands on banks and their compute units.

    Row and column commands have separate buses, as in HBM, without backpressure. A command that
    violates a rule is not executed and is recorded in `status`.

    **Latency** 2 cycles from a read to `result`. **Throughput** one row and one column command per
    cycle; one `MULTIPLY` every `pumps` cycles, in cycles that are a multiple of `pumps` after a
    reset. **Numerics** see `PimProcessingElement`.

    Parameters
    ----------
    parameters : PimChannelParameters
        Compute units and banks of a pseudo-channel.

    Members
    -------
    row_command, column_command : In(struct)
        See `PimChannelParameters`.
    bank_command : Out(struct)
        The legal commands, for the DRAM arrays.
    bank_data : In(ArrayLayout)
        For each unit, the column that one of its banks was commanded to read in the previous cycle.
    result : Out(struct)
        `valid` and `data` of `READ` and `READ_RESULT`.
    status : Out(struct)
        Sticky violations, see `STATUS`.
    clear_status : In(1)
        Clear `status`, except for violations of the same cycle.

    Raises
    ------
    ValueError
        If `PimChannelParameters` rejects a value.
    """

    def __init__(self, *, parameters: PimChannelParameters) -> None:
        self.parameters = p = parameters
        bits = p.unit.column_bits
        super().__init__(
            {
                "row_command": In(p.row_command_layout),
                "column_command": In(p.column_command_layout),
                "bank_command": Out(p.bank_command_layout),
                "bank_data": In(data.ArrayLayout(bits, p.units)),
                "result": Out(data.StructLayout({"valid": 1, "data": bits})),
                "status": Out(STATUS),
                "clear_status": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Check both commands, then issue them to arrays and units."""
        m = Module()
        p = self.parameters
        m.submodules.timing = timing = BankTiming(parameters=p.timing)
        row, column = self.row_command, self.column_command
        parity_of_row, parity = (
            Cat(bank % 2 == command.bank[0] for bank in range(p.timing.banks))
            for command in (row, column)
        )
        is_ = {
            one: self._named(m, column.valid & (column.operation == one), one.name.lower())
            for one in ColumnOperation
        }
        # All units multiply in lockstep, each from its bank with the command's parity.
        all_units = (
            is_[ColumnOperation.MULTIPLY]
            | is_[ColumnOperation.FILL_METADATA]
            | is_[ColumnOperation.FILL_SCALES]
        )
        one_bank = is_[ColumnOperation.READ] | is_[ColumnOperation.WRITE]
        # A column that the units cannot accept must not be read.
        ready = Signal()
        m.d.comb += [
            timing.row.valid.eq(row.valid),
            timing.row.operation.eq(row.operation),
            # A single bank is refreshed at a time.
            timing.row.banks.eq(
                Mux(
                    row.all & (row.operation != RowOperation.REFRESH_BANK),
                    parity_of_row,
                    Const(1) << row.bank,
                )
            ),
            # Inputs, metadata and results are in the units: these commands access no bank.
            timing.column.valid.eq(one_bank | (all_units & ready)),
            timing.column.write.eq(is_[ColumnOperation.WRITE]),
            timing.column.banks.eq(Mux(all_units, parity, Const(1) << column.bank)),
        ]
        self._arrays(m, timing, is_[ColumnOperation.WRITE])
        units = self._units(m, timing, is_, all_units)
        m.d.comb += ready.eq(units.ready)
        self._result(m, timing, is_, units)

        busy = is_[ColumnOperation.READ_RESULT] & ~units.valid
        # Violations in the order of `STATUS`.
        broken = Cat(
            timing.violations,
            is_[ColumnOperation.MULTIPLY] & ~ready,
            busy,
            units.nan & ~self.clear_status,
        )
        held = Mux(self.clear_status, 0, self.status.as_value())
        m.d.sync += self.status.eq(held | broken)
        return m

    @staticmethod
    def _named(m: Module, value: Value, name: str) -> Signal:
        """Return the value as a named signal."""
        signal = Signal(len(value), name=name)
        m.d.comb += signal.eq(value)
        return signal

    def _arrays(self, m: Module, timing: BankTiming, writes: Value) -> None:
        """Forward legal commands to the DRAM arrays."""
        p, row, column = self.parameters, self.row_command, self.column_command
        banks = p.timing.banks

        def where(condition: Value, mask: Value) -> Value:
            return mask & condition.replicate(banks)

        activates, precharges, refreshes, of_bank = (
            timing.row_legal & (row.operation == one) for one in RowOperation
        )
        m.d.comb += [
            self.bank_command.activate.eq(where(activates, timing.row.banks)),
            self.bank_command.precharge.eq(where(precharges, timing.row.banks)),
            self.bank_command.refresh.eq(
                refreshes.replicate(banks) | where(of_bank, timing.row.banks)
            ),
            self.bank_command.row.eq(row.row),
            self.bank_command.read.eq(where(timing.column_legal & ~writes, timing.column.banks)),
            self.bank_command.write.eq(where(timing.column_legal & writes, timing.column.banks)),
            self.bank_command.column.eq(column.column),
            self.bank_command.mask.eq(column.mask),
            self.bank_command.data.eq(column.data),
        ]

    def _units(
        self,
        m: Module,
        timing: BankTiming,
        is_: dict[ColumnOperation, Signal],
        all_units: Value,
    ) -> UnitOutputs:
        """Place the units, and connect them to the column command."""
        p, column = self.parameters, self.column_command
        writes = is_[ColumnOperation.WRITE_INPUT] | is_[ColumnOperation.WRITE_METADATA]
        reads = is_[ColumnOperation.READ_RESULT]
        # The phase of all units: they are reset in the same cycle.
        phase = Signal(range(p.unit.pumps))
        if p.unit.pumps > 1:
            m.d.sync += phase.eq(phase + 1)
        halves = [~column.half | (column.upper == upper) for upper in range(2)]
        valid, words, nans, free = [], [], [], []
        for number in range(p.units):
            unit = PimComputeUnit(parameters=p.unit)
            m.submodules[f"unit_{number}"] = unit
            # Two banks per unit: the upper bits of a bank index select the unit.
            mine = column.bank[1:] == number
            m.d.comb += [
                getattr(unit.commands.payload, name).eq(getattr(column, name))
                for name, _field in p.unit.command_layout
                if name not in ("operation", "data")
            ]
            operation = Value.cast(unit.commands.payload.operation)
            m.d.comb += [
                operation.eq(Value.cast(column.operation)),
                Value.cast(unit.commands.payload.data).eq(Value.cast(column.data)),
                unit.commands.valid.eq(
                    (all_units & timing.column_legal)
                    | (writes & Mux(column.all, halves[number >= p.units // 2], mine))
                    | (reads & mine)
                ),
                unit.column.eq(self.bank_data[number]),
                unit.results.ready.eq(1),
                unit.clear_flags.eq(self.clear_status),
            ]
            valid.append(unit.results.valid)
            words.append(
                Value.cast(unit.results.payload) & unit.results.valid.replicate(p.unit.column_bits)
            )
            nans.append(unit.flags.nan)
            free.append(unit.commands.ready)
        # Only the addressed unit has a result.
        word = words[0]
        for other in words[1:]:
            word = word | other
        multiplies = is_[ColumnOperation.MULTIPLY]
        # All units scale the same groups, so one ready bit represents all units.
        ready = ~multiplies | ((phase == 0) & free[0])
        given = self._named(m, Cat(valid).any(), "given")
        return UnitOutputs(ready, given, self._named(m, word, "given_word"), Cat(nans).any())

    def _result(
        self,
        m: Module,
        timing: BankTiming,
        is_: dict[ColumnOperation, Signal],
        units: UnitOutputs,
    ) -> None:
        """Output results in the order of their commands, two cycles after each."""
        column = self.column_command
        reads = is_[ColumnOperation.READ] & timing.column_legal
        # The array responds one cycle after the command, when the next command is on the bus.
        unit = delay_line(m, column.bank[1:], 1, name="unit")[1]
        from_array = delay_line(m, reads, 1, name="from_array", reset=True)[1]
        from_unit = delay_line(m, units.valid, 1, name="from_unit", reset=True)[1]
        sums = delay_line(m, units.data, 1, name="sums")[1]
        m.d.sync += [
            self.result.valid.eq(from_array | from_unit),
            self.result.data.eq(Mux(from_array, self.bank_data[unit], sums)),
        ]
