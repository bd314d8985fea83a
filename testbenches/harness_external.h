// One external memory with DRAM channels, through which all ports of a design access their data.
//
// The files of a model hold the content; this model decides only when an access is complete. Times are
// femtoseconds. A granule is the data of one column command, which is one burst of a channel.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "harness_parts.h"

using Time = int64_t;

// Causes for which a port waits; `ROW` contains turnarounds of the data bus.
enum Cause { LATENCY, BANDWIDTH, ROW, REFRESH, QUEUE, CAUSES };
static const char* const CAUSE_NAMES[CAUSES] = {"latency", "bandwidth", "row", "refresh", "queue"};

struct Timing {
    uint64_t channels, groups, banks, granule, columns, depth;
    // tCK, time of a burst on the data bus, and time of a granule on a shared link (0: no link).
    Time clock, transfer, link;
    // Read and write latency of the device, and latency of the controller on the way back.
    Time read, write, controller;
    Time rcd, rp, ras, ccd_s, ccd_l, rrd_s, rrd_l, faw, rtp, wr, wtr, turnaround, rfc, refi, rfcsb, rrefd;
};

struct Access {
    uint64_t channel, group, bank, row;
    Time arrived = 0, entry = 0, issued = -1;
    bool entered = false, write = false;
    uint64_t passed = 0;
    // The channel's clock cycles by cause when the access arrived, and when its column was read.
    std::array<uint64_t, CAUSES> before{}, after{};
};

// The time at which a shared link is free.
struct Link {
    Time free = 0;
};

struct DramChannel {
    struct BankState {
        bool open = false;
        uint64_t row = 0;
        Time activate = 0, precharge = 0, column = 0;
    };
    const Timing& t;
    Link& link;
    std::vector<BankState> banks;
    std::vector<Time> group_column, group_activate;
    std::array<Time, 4> activations;
    size_t oldest = 0;
    std::deque<Access*> reads, writes;
    Time now = 0, column = 0, activate = 0, read_free = 0, write_free = 0, bus_free = 0;
    Time refresh_due, refreshed = 0;
    bool refreshing = false, draining = false;
    std::array<uint64_t, CAUSES> spent{};
    Cause state = LATENCY;
    uint64_t columns_read = 0, columns_written = 0, activated = 0, refreshes = 0;
    // Each command with its time, if a trace is wanted.
    FILE* trace = nullptr;
    uint64_t number = 0;

    DramChannel(const Timing& timing, Link& shared)
        : t(timing), link(shared), banks(timing.groups * timing.banks),
          group_column(timing.groups), group_activate(timing.groups), refresh_due(timing.refi) {
        // No activation has happened yet.
        activations.fill(-timing.faw);
    }
    void note(const char* command, uint64_t bank) const {
        if (trace) std::fprintf(trace, "%lld %llu %s %llu\n", (long long)now, (unsigned long long)number, command, (unsigned long long)bank);
    }
    std::deque<Access*>& queue(bool write) { return write ? writes : reads; }
    bool room(bool write) const { return (write ? writes : reads).size() < t.depth; }
    void enter(Access& access) {
        access.entered = true;
        access.entry = now;
        queue(access.write).push_back(&access);
    }
    void advance(Time until) {
        while (now + t.clock <= until) {
            if (reads.empty() && writes.empty() && !refreshing && now + t.clock < refresh_due) {
                // Nothing happens before the next refresh or access.
                const Time target = std::min(until, refresh_due - 1);
                now += std::max<Time>(1, (target - now) / t.clock) * t.clock;
                state = LATENCY;
                continue;
            }
            now += t.clock;
            cycle();
        }
    }
    void cycle() {
        if (!refreshing && now >= refresh_due) refreshing = true;
        if (refreshing) {
            refresh();
        } else if (!reads.empty() || !writes.empty()) {
            choose();
            auto& queued = queue(draining);
            if (!queued.empty()) {
                issue_column(queued);
                issue_row(queued);
            }
        }
        if (now < bus_free || now < link.free) state = BANDWIDTH;
        else if (refreshing || now < refreshed) state = REFRESH;
        else state = reads.empty() && writes.empty() ? LATENCY : ROW;
        ++spent[state];
    }
    // Writes wait until their queue fills or no read is queued: each change of direction costs time.
    void choose() {
        if (draining) draining = !writes.empty() && (reads.empty() || writes.size() > t.depth / 4);
        else draining = reads.empty() || writes.size() >= t.depth - t.depth / 4;
    }
    void refresh() {
        bool open = false, ready = true;
        for (const auto& bank : banks) {
            open = open || bank.open;
            ready = ready && now >= (bank.open ? bank.precharge : bank.activate);
        }
        if (!ready) return;
        for (size_t number = 0; number < banks.size(); ++number) {
            auto& bank = banks[number];
            if (bank.open) note("precharge", number);
            bank.activate = open ? (bank.open ? now + t.rp : bank.activate) : now + t.rfc;
            bank.open = false;
        }
        if (open) return;
        note("refresh", 0);
        ++refreshes;
        refreshed = now + t.rfc;
        refresh_due += t.refi;
        refreshing = false;
    }
    bool hit(const Access& access) const {
        const auto& bank = banks[access.bank];
        return bank.open && bank.row == access.row;
    }
    // An access that later ones have passed too often is served next.
    bool starves(const std::deque<Access*>& queued) const { return queued.front()->passed > 4 * t.depth; }
    void issue_column(std::deque<Access*>& queued) {
        if (now < column || now < link.free || now < (draining ? write_free : read_free)) return;
        const bool first = starves(queued);
        for (size_t place = 0; place < (first ? 1 : queued.size()); ++place) {
            Access& access = *queued[place];
            auto& bank = banks[access.bank];
            if (!hit(access) || now < bank.column || now < group_column[access.group]) continue;
            note(access.write ? "write" : "read", access.bank);
            if (place) ++queued.front()->passed;
            column = now + std::max(t.ccd_s, t.transfer);
            group_column[access.group] = now + t.ccd_l;
            bus_free = now + t.transfer;
            // Within a clock cycle, the link is in use until the next column command.
            if (t.link) link.free = std::max(link.free, now - t.clock) + t.link;
            if (access.write) {
                bank.precharge = std::max(bank.precharge, now + t.write + t.transfer + t.wr);
                read_free = now + t.write + t.transfer + t.wtr;
                ++columns_written;
            } else {
                bank.precharge = std::max(bank.precharge, now + t.rtp);
                write_free = now + t.read + t.transfer + t.turnaround - t.write;
                ++columns_read;
            }
            access.issued = now;
            access.after = spent;
            queued.erase(queued.begin() + place);
            return;
        }
    }
    // The oldest access of a bank decides which row the bank opens next.
    void issue_row(const std::deque<Access*>& queued) {
        if (queued.empty()) return;
        uint64_t hits = 0;
        const bool first = starves(queued);
        if (!first)
            for (const Access* access : queued) hits |= uint64_t(hit(*access)) << access->bank;
        for (const Access* access : queued) {
            const uint64_t mask = uint64_t(1) << access->bank;
            auto& bank = banks[access->bank];
            if (hit(*access)) continue;
            if (!bank.open) {
                if (now < bank.activate || now < activate || now < group_activate[access->group] ||
                    now < activations[oldest] + t.faw)
                    continue;
                note("activate", access->bank);
                ++activated;
                bank = {true, access->row, bank.activate, now + t.ras, now + t.rcd};
                activate = now + t.rrd_s;
                group_activate[access->group] = now + t.rrd_l;
                activations[oldest] = now;
                oldest = (oldest + 1) % activations.size();
                return;
            }
            if (hits & mask || now < bank.precharge) continue;
            note("precharge", access->bank);
            bank.open = false;
            bank.activate = now + t.rp;
            return;
        }
    }
};

struct External;

// Accesses of one port in order. `entered` of them are in the queues of their channels.
struct Lane {
    External& memory;
    std::string name;
    std::deque<Access> flight;
    size_t entered = 0;
    Lane(External& external, std::string own) : memory(external), name(std::move(own)) {}
    void push(uint64_t granule, bool write);
    void admit();
};

// Reads of one port, which return in order. A ticket is the number of granules up to the last one needed.
struct Reader : Lane {
    static constexpr size_t HELD = 8;
    uint64_t requested = 0, arrived = 0, waited = 0;
    // The latest granules, which the port holds: an access to one of them needs no other column.
    std::array<std::pair<uint64_t, uint64_t>, HELD> held;
    size_t next = 0;
    // By channel, the clock cycles by cause until the port's latest column command.
    std::vector<std::array<uint64_t, CAUSES>> latest;
    Reader(External& external, std::string own);
    uint64_t fetch(uint64_t first, uint64_t bytes);
    bool has(uint64_t ticket) const { return arrived >= ticket; }
    bool missing = false, wanted = false;
    // The next word is missing in this cycle; the design may be ready for it.
    void miss(bool ready) { missing = true, wanted = ready; }
    void wait(bool idle);
    void collect();
    void attribute(const Access& access);
};

// Posted writes of one port; adjacent bytes of a granule are combined.
struct Writer : Lane {
    static constexpr size_t LIMIT = 16;
    static constexpr Time IDLE = 64;
    uint64_t combined = UINT64_MAX, latest = 0;
    using Lane::Lane;
    bool open() const { return flight.size() - entered < LIMIT; }
    void put(uint64_t first, uint64_t bytes);
    void flush();
    void collect();
    void wait();
};

struct External : Part {
    Timing t;
    Time period = 0;
    const uint64_t& cycle;
    Link link;
    std::vector<std::unique_ptr<DramChannel>> channels;
    std::map<std::string, std::unique_ptr<Reader>> readers;
    std::map<std::string, std::unique_ptr<Writer>> writers;
    std::map<std::string, uint64_t> files;
    // Ports by turns: the first one to enter the queues changes in each cycle.
    std::vector<Lane*> lanes;
    std::array<uint64_t, CAUSES> waits{};
    // Bytes that a stream requests ahead of their use, and the end of the regions in use.
    uint64_t waiting = 0, ahead = 0, placed = 0;
    bool waits_now = false;
    uint64_t moved_before = 0;
    // Bytes of columns that a design with bank commands of its own has accessed.
    uint64_t column_bytes_read = 0, column_bytes_written = 0;

    // A cycle in which such a design cannot access a column, for a cause.
    void pause(Cause cause) {
        waits_now = true;
        ++waits[cause];
    }
    External(const uint64_t& now, std::istream& line) : cycle(now) {
        std::string trace;
        line >> period >> ahead >> placed >> t.channels >> t.groups >> t.banks >> t.granule >> t.columns >> t.depth;
        for (Time* time : {&t.clock, &t.transfer, &t.link, &t.read, &t.write, &t.controller, &t.rcd, &t.rp,
                           &t.ras, &t.ccd_s, &t.ccd_l, &t.rrd_s, &t.rrd_l, &t.faw, &t.rtp, &t.wr, &t.wtr,
                           &t.turnaround, &t.rfc, &t.refi, &t.rfcsb, &t.rrefd})
            if (!(line >> *time)) refuse("the external memory has too few settings");
        FILE* file = line >> trace ? open(trace, "w") : nullptr;
        for (uint64_t number = 0; number < t.channels; ++number) {
            channels.push_back(std::make_unique<DramChannel>(t, link));
            channels.back()->trace = file;
            channels.back()->number = number;
        }
    }
    // Bytes of one row in each channel and bank group: a region begins at a multiple of it.
    uint64_t stripe() const { return t.granule * t.columns * t.groups * t.channels; }
    uint64_t place(uint64_t bytes) {
        const uint64_t first = placed;
        placed += (bytes + stripe() - 1) / stripe() * stripe();
        return first;
    }
    uint64_t file(const std::string& path, uint64_t bytes) {
        const auto [found, added] = files.try_emplace(path, placed);
        if (added) place(bytes);
        return found->second;
    }
    Reader& reader(const std::string& own) { return lane(readers, own); }
    Writer& writer(const std::string& own) { return lane(writers, own); }
    template <typename Kind>
    Kind& lane(std::map<std::string, std::unique_ptr<Kind>>& all, const std::string& own) {
        auto& found = all[own];
        if (!found) {
            found = std::make_unique<Kind>(*this, own);
            lanes.push_back(found.get());
        }
        return *found;
    }
    Time now() const { return Time(cycle) * period; }
    Access access(uint64_t granule, bool write) const {
        Access made;
        made.channel = granule % t.channels;
        granule /= t.channels;
        made.group = granule % t.groups;
        granule /= t.groups * t.columns;
        // A row's bank depends on the bits above it, so that equal strides do not share one bank.
        made.row = granule / t.banks;
        made.bank = (granule + made.row) % t.banks * t.groups + made.group;
        made.arrived = now();
        made.write = write;
        made.before = channels[made.channel]->spent;
        return made;
    }
    void drive() override {}
    void sample() override {}
    // Complete all that happens before this cycle, given the number of transfers at all ports so far.
    void advance(uint64_t moved) {
        for (auto& [_, lane] : readers) lane->wait(moved == moved_before);
        moved_before = moved;
        waiting += waits_now;
        waits_now = false;
        for (size_t place = 0; place < lanes.size(); ++place) lanes[(place + cycle) % lanes.size()]->admit();
        for (auto& channel : channels) channel->advance(now());
        for (auto& [_, lane] : readers) lane->collect();
        for (auto& [_, lane] : writers) lane->collect();
    }
    void save() override {
        for (auto& [_, lane] : writers) lane->flush();
        if (!channels.empty() && channels[0]->trace) std::fflush(channels[0]->trace);
    }
    std::string counts() const override {
        uint64_t read = 0, written = 0, rows = 0, refreshes = 0;
        for (const auto& channel : channels) {
            read += channel->columns_read, written += channel->columns_written;
            rows += channel->activated, refreshes += channel->refreshes;
        }
        std::string text;
        const auto add = [&](const std::string& what, uint64_t count) {
            text += " external." + what + "=" + std::to_string(count);
        };
        add("bytes_read", read * t.granule + column_bytes_read);
        add("bytes_written", written * t.granule + column_bytes_written);
        add("activations", rows);
        add("refreshes", refreshes);
        // The current cycle is added to `waiting` in the next one.
        add("waiting", waiting + waits_now);
        for (int cause = 0; cause < CAUSES; ++cause) add(CAUSE_NAMES[cause], waits[cause]);
        return text;
    }
};

inline void Lane::push(uint64_t granule, bool write) { flight.push_back(memory.access(granule, write)); }

inline void Lane::admit() {
    while (entered < flight.size()) {
        Access& access = flight[entered];
        DramChannel& channel = *memory.channels[access.channel];
        if (!channel.room(access.write)) return;
        channel.enter(access);
        ++entered;
    }
}

inline Reader::Reader(External& external, std::string own)
    : Lane(external, std::move(own)), latest(external.t.channels) {
    held.fill({UINT64_MAX, 0});
}

inline uint64_t Reader::fetch(uint64_t first, uint64_t bytes) {
    const uint64_t size = memory.t.granule;
    uint64_t ticket = 0;
    for (uint64_t granule = first / size; granule <= (first + bytes - 1) / size; ++granule) {
        const auto known = std::find_if(held.begin(), held.end(), [&](const auto& one) { return one.first == granule; });
        if (known != held.end()) {
            ticket = std::max(ticket, known->second);
            continue;
        }
        push(granule, false);
        ticket = ++requested;
        held[next] = {granule, ticket};
        next = (next + 1) % HELD;
    }
    return ticket;
}

// A port waits for a missing word if the design is ready for it. An idle design waits too: it may become
// ready only when the words of several ports are there.
inline void Reader::wait(bool idle) {
    if (missing && (wanted || idle)) {
        ++waited;
        memory.waits_now = true;
    }
    missing = false;
}

inline void Reader::collect() {
    const Time way = memory.t.read + memory.t.transfer + memory.t.controller;
    while (!flight.empty() && flight.front().issued >= 0 && flight.front().issued + way <= memory.now()) {
        if (waited) attribute(flight.front());
        latest[flight.front().channel] = flight.front().after;
        flight.pop_front();
        --entered;
        ++arrived;
    }
}

// Divide the cycles that the port waited for an access. An access that was requested too late waits for
// the latency of an idle memory. Its other cycles have the causes of the time until its column command.
inline void Reader::attribute(const Access& access) {
    const Time period = memory.period, since = memory.now() - Time(waited) * period;
    const Time way = memory.t.read + memory.t.transfer + memory.t.controller;
    const Time late = std::max<Time>(0, access.arrived + way - since);
    // Clock cycles of its channel since the port's previous access to it, or since the request.
    std::array<uint64_t, CAUSES> parts{};
    const auto& last = latest[access.channel];
    for (const Cause cause : {BANDWIDTH, REFRESH, ROW}) {
        const uint64_t first = std::max(access.before[cause], last[cause]);
        if (access.after[cause] > first) parts[cause] = access.after[cause] - first;
    }
    // A deeper queue could have opened the row while the access waited for a place in it.
    parts[QUEUE] = std::min<uint64_t>(parts[ROW], (access.entry - access.arrived) / memory.t.clock);
    parts[ROW] -= parts[QUEUE];
    const uint64_t sum = parts[BANDWIDTH] + parts[REFRESH] + parts[ROW] + parts[QUEUE];
    uint64_t left = waited;
    const uint64_t latency = sum ? std::min<uint64_t>(waited, (late + period - 1) / period) : waited;
    memory.waits[LATENCY] += latency;
    left -= latency;
    const uint64_t divided = left;
    int largest = BANDWIDTH;
    for (int cause = BANDWIDTH; cause < CAUSES; ++cause) {
        if (parts[cause] > parts[largest]) largest = cause;
        const uint64_t share = sum ? divided * parts[cause] / sum : 0;
        memory.waits[cause] += share;
        left -= share;
    }
    memory.waits[largest] += left;
    waited = 0;
}

inline void Writer::put(uint64_t first, uint64_t bytes) {
    const uint64_t size = memory.t.granule;
    for (uint64_t granule = first / size; granule <= (first + bytes - 1) / size; ++granule) {
        if (granule != combined) flush();
        combined = granule;
    }
    latest = memory.cycle;
    // A granule whose last byte is written is complete.
    if ((first + bytes) % size == 0) flush();
}

inline void Writer::flush() {
    if (combined == UINT64_MAX) return;
    push(combined, true);
    combined = UINT64_MAX;
}

inline void Writer::collect() {
    if (combined != UINT64_MAX && memory.cycle > latest + IDLE) flush();
    while (!flight.empty() && flight.front().issued >= 0) flight.pop_front(), --entered;
}

inline void Writer::wait() {
    memory.waits_now = true;
    const Access& access = flight[entered];
    const Cause cause = memory.channels[access.channel]->state;
    ++memory.waits[cause == LATENCY ? QUEUE : cause];
}
