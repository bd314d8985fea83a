// DRAM banks in a mapped file, driven by the commands of hdl/p3llm/pim/pim_channel.py.

#pragma once

#include "harness_external.h"

// A unit has two banks, whose rows alternate; the order of the two changes after every 16 rows. A position
// is one column of every unit. The file contains the positions in order, each unit by unit. Read data is
// output one cycle later.
struct Dram : Part {
    struct Field {
        size_t offset, width;
    };
    Port command, data;
    Mapped file;
    size_t units, bytes;
    Field activate, precharge, refresh, row, read, write, column, mask, word;
    // Times of the external memory, which the commands must keep.
    External* external = nullptr;
    const uint64_t& cycle;
    static constexpr Time NEVER = INT64_MIN / 2;
    struct Bank {
        bool open = false;
        Time activated = NEVER, precharged = NEVER, read = NEVER, written = NEVER, refreshed = NEVER;
    };
    std::vector<Bank> states;
    Time column_at = NEVER, activated_at = NEVER, written_at = NEVER, refreshed_at = 0;
    // The last refresh of all banks, and of one; the banks of an incomplete set of such refreshes.
    Time whole_at = NEVER, single_at = NEVER;
    uint64_t in_set = 0;
    Time group_at[4] = {NEVER, NEVER, NEVER, NEVER};

    explicit Dram(const uint64_t& now) : cycle(now) {}
    std::vector<uint64_t> rows;
    Bytes latest;
    // Numbers of columns read of all units at once, read of single units, and written.
    uint64_t together = 0, alone = 0, written = 0;

    void begin() {
        rows.assign(2 * units, 0);
        states.assign(2 * units, {});
        latest.assign(units * bytes, 0);
    }
    uint64_t value_of(const Field& which) const { return field(command.data, which.offset, which.width); }
    uint8_t* at(size_t bank, uint64_t number) const {
        const uint64_t place_in_order = rows[bank] * 2 + (bank % 2 ^ (rows[bank] >> 3 & 1));
        const uint64_t position = (place_in_order << column.width) + number;
        const uint64_t place = (position * units + bank / 2) * bytes;
        return place + bytes <= file.size ? file.lines + place : nullptr;
    }
    void drive() override { std::memcpy(data.data, latest.data(), latest.size()); }
    void sample() override {
        if (external) keep_times();
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
    // Refuse a command that is too early. The banks of one command begin together: tFAW does not hold, as
    // in all-bank commands of memories with compute units.
    void keep_times() {
        const Timing& t = external->t;
        const Time now = Time(cycle) * external->period;
        const uint64_t opens = value_of(activate), closes = value_of(precharge);
        const uint64_t reads = value_of(read), writes = value_of(write);
        const auto need = [&](bool legal, const char* rule) {
            if (!legal) refuse("cycle " + std::to_string(cycle) + ": a command of the banks violates " + rule);
        };
        const auto need_idle = [&](const Bank& bank) {
            need(!bank.open && now >= bank.precharged + t.rp, "tRP");
            need(now >= whole_at + t.rfc, "tRFC");
            need(now >= bank.refreshed + t.rfcsb, "tRFCSB");
        };
        const Time write_end = t.write + t.transfer;
        uint64_t groups = 0;
        for (size_t number = 0; number < states.size(); ++number) {
            auto& bank = states[number];
            const uint64_t mask = uint64_t(1) << number;
            if (!((opens | closes | reads | writes) & mask)) continue;
            if ((reads | writes) & mask) {
                need(bank.open && now >= bank.activated + t.rcd, "tRCD");
                groups |= uint64_t(1) << number * 4 / states.size();
                if (reads & mask) bank.read = now;
                if (writes & mask) bank.written = now;
            }
            if (closes & mask && bank.open) {
                need(now >= bank.activated + t.ras, "tRAS");
                need(now >= bank.read + t.rtp, "tRTP");
                need(now >= bank.written + write_end + t.wr, "tWR");
                bank.open = false;
                bank.precharged = now;
            }
            if (opens & mask) {
                need_idle(bank);
                need(now >= activated_at + t.rrd_s, "tRRD");
                need(now >= single_at + t.rrefd, "tRREFD");
                bank.open = true;
                bank.activated = now;
            }
        }
        if (opens) activated_at = now;
        if (reads | writes) {
            need(now >= column_at + t.ccd_s, "tCCD_S");
            for (size_t group = 0; group < 4; ++group) {
                if (!(groups >> group & 1)) continue;
                need(now >= group_at[group] + t.ccd_l, "tCCD_L");
                group_at[group] = now;
            }
            need(!reads || now >= written_at + write_end + t.wtr, "tWTR");
            column_at = now;
            if (writes) written_at = now;
        }
        const uint64_t all = (uint64_t(1) << states.size()) - 1, refreshes = value_of(refresh);
        if (refreshes == all) {
            for (const auto& bank : states) need_idle(bank);
            refreshed_at = whole_at = now;
            in_set = 0;
        } else if (refreshes) {
            auto& bank = states[__builtin_ctzll(refreshes)];
            need(t.rfcsb && !(refreshes & (refreshes - 1)), "the refresh of one bank");
            need_idle(bank);
            need(!(in_set & refreshes), "the set of refreshes of all banks");
            need(now >= single_at + t.rrefd, "tRREFD");
            need(now >= activated_at + t.rrd_s, "tRRD");
            bank.refreshed = single_at = now;
            in_set |= refreshes;
            if (in_set == all) {
                refreshed_at = now;
                in_set = 0;
            }
        }
        // Nine intervals: eight refreshes may be postponed.
        need(now <= refreshed_at + 9 * t.refi, "tREFI");
        external->column_bytes_read += __builtin_popcountll(reads) * bytes;
        external->column_bytes_written += __builtin_popcountll(writes) * bytes;
        if (reads | writes) return;
        if (now < whole_at + t.rfc) external->pause(REFRESH);
        else if (now < activated_at + t.rcd || closes) external->pause(ROW);
    }
    std::string counts() const override {
        return " together=" + std::to_string(together) + " alone=" + std::to_string(alone) +
               " written=" + std::to_string(written);
    }
};
