"""The units of MEADOW, with the dimensions at which each is built."""

from hdl.entry import Entry
from hdl.meadow.wilu.mode_aware_unpacker import ModeAwareUnpacker
from hdl.meadow.wilu.unpacker_parameters import UnpackerParameters
from hdl.meadow.wilu.weight_unpacker import WeightUnpacker, WeightUnpackerParameters

UNITS: tuple[Entry, ...] = (
    Entry(
        summary="takes packets of weight IDs apart, some IDs in every cycle",
        source="Section 5.4, Figure 5 (b)",
        latency="7 cycles from the first packet to the first group; 12 with classes",
        throughput="a packet in, lanes IDs out a cycle",
        unit=ModeAwareUnpacker,
        presets={
            "tiny": UnpackerParameters(lanes=3, packet_bits=64, id_bits=9),
            "tiny_paper_levels": UnpackerParameters(
                lanes=4, packet_bits=64, id_bits=12, classes=False
            ),
            "smollm2": UnpackerParameters(),
            "paper": UnpackerParameters(id_bits=11, classes=False),
            "paper_51": UnpackerParameters(lanes=48, packet_bits=512, id_bits=11, classes=False),
        },
        long=("paper_51",),
    ),
    Entry(
        summary="returns packed weights, some chunks in every cycle",
        source="Section 5.4, Figure 5 (a)",
        latency="1 cycle behind the mode-aware unpacker",
        throughput="lanes chunks a cycle; the next unique matrix comes in meanwhile",
        unit=WeightUnpacker,
        presets={
            "tiny": WeightUnpackerParameters(
                unpacker=UnpackerParameters(lanes=3, packet_bits=64, id_bits=10),
                chunk=1,
                entries=128,
            ),
            "tiny_pairs": WeightUnpackerParameters(
                unpacker=UnpackerParameters(lanes=4, packet_bits=64), entries=256
            ),
            "smollm2": WeightUnpackerParameters(),
            "paper": WeightUnpackerParameters(
                unpacker=UnpackerParameters(classes=False), entries=2048
            ),
        },
    ),
)
"""Every unit of the paper."""
