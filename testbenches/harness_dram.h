// DRAM banks in a mapped file, driven by the commands of hdl/p3llm/pim/pim_channel.py.

#pragma once

#include "harness_parts.h"

// A unit has two banks, whose rows alternate: a position is one column of every unit. The file contains
// the positions in order, each unit by unit. Read data is output one cycle later.
struct Dram : Part {
    struct Field {
        size_t offset, width;
    };
    Port command, data;
    Mapped file;
    size_t units, bytes;
    Field activate, row, read, write, column, mask, word;
    std::vector<uint64_t> rows;
    Bytes latest;
    // Numbers of columns read of all units at once, read of single units, and written.
    uint64_t together = 0, alone = 0, written = 0;

    void begin() {
        rows.assign(2 * units, 0);
        latest.assign(units * bytes, 0);
    }
    uint64_t value_of(const Field& which) const { return field(command.data, which.offset, which.width); }
    uint8_t* at(size_t bank, uint64_t number) const {
        const uint64_t position = ((rows[bank] * 2 + bank % 2) << column.width) + number;
        const uint64_t place = (position * units + bank / 2) * bytes;
        return place + bytes <= file.size ? file.lines + place : nullptr;
    }
    void drive() override { std::memcpy(data.data, latest.data(), latest.size()); }
    void sample() override {
        const uint64_t opens = value_of(activate), reads = value_of(read), writes = value_of(write);
        if (!(opens | reads | writes)) return;
        ++transfers;
        const uint64_t number = value_of(column), opened = value_of(row);
        const size_t count = __builtin_popcountll(reads);
        (count == units ? together : alone) += count;
        for (size_t bank = 0; bank < rows.size(); ++bank) {
            uint8_t* place = at(bank, number);
            if (reads >> bank & 1) {
                // Rows beyond the end of the file were never written and read as zero.
                uint8_t* to = latest.data() + bank / 2 * bytes;
                if (place) std::memcpy(to, place, bytes);
                else std::memset(to, 0, bytes);
            }
            if (writes >> bank & 1) {
                if (!place) refuse("the banks have no column " + std::to_string(number) + " to write");
                ++written;
                for (size_t byte = 0; byte < bytes; ++byte)
                    if (field(command.data, mask.offset + byte, 1))
                        copy_bits(place + byte, 0, command.data, word.offset + 8 * byte, 8);
            }
            if (opens >> bank & 1) rows[bank] = opened;
        }
    }
    std::string counts() const override {
        return " together=" + std::to_string(together) + " alone=" + std::to_string(alone) +
               " written=" + std::to_string(written);
    }
};
