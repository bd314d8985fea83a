// Streams of a verilated design connected to files, memories of lines, and stores of sequences.

#pragma once

#include "harness_external.h"

struct Source : Part {
    Stream s;
    FILE* file;
    bool offered = false, ended = false;
    // Number of bytes that belong to this round.
    uint64_t left = UINT64_MAX;
    // In the external memory: place and size of an item, and items that are requested ahead of their use.
    Reader* reader = nullptr;
    uint64_t base = 0, size = 0, items = 0, requested = 0;
    std::deque<uint64_t> tickets;

    void attach(External& external) {
        const auto here = ftello(file);
        fseeko(file, 0, SEEK_END);
        items = std::min<uint64_t>(left, ftello(file) - here) / s.payload.size;
        fseeko(file, here, SEEK_SET);
        reader = &external.reader(name);
    }
    void read_ahead() {
        for (; requested < items && tickets.size() < std::max<uint64_t>(1, reader->memory.ahead / size); ++requested)
            tickets.push_back(reader->fetch(base + requested * size, size));
    }
    bool present() const { return tickets.empty() || reader->has(tickets.front()); }
    bool fetch() {
        if (!left) return ended = true, false;
        if (!tickets.empty()) tickets.pop_front();
        const size_t got = std::fread(s.payload.data, 1, s.payload.size, file);
        left -= got;
        if (got && got != s.payload.size) refuse(name + " ends in the middle of an item");
        ended = !got;
        return got;
    }
    void drive() override {
        if (reader) read_ahead();
        if (!offered && !ended && !pauses.next() && present()) offered = fetch();
        s.valid.set(offered);
    }
    void sample() override {
        if (!offered && !present()) reader->miss(s.ready.high());
        if (!offered || !s.ready.high()) return;
        offered = false;
        ++transfers;
    }
    bool done() const override { return ended && !offered; }
    std::string counts() const override { return " " + name + "=" + std::to_string(transfers); }
    std::string status() const override {
        return name + " took " + std::to_string(transfers) + (offered ? " and offers one" : "");
    }
};

struct Sink : Part {
    Stream s;
    FILE *file, *cycles;
    uint64_t expected = 0;
    const uint64_t& cycle;
    bool accepts = false, held = false;
    Bytes offer;
    // Place of the first item in the external memory, and size of each.
    Writer* writer = nullptr;
    uint64_t base = 0, size = 0;

    explicit Sink(const uint64_t& now) : cycle(now) {}
    void drive() override { s.ready.set(accepts = !pauses.next() && (!writer || writer->open())); }
    void sample() override {
        const bool valid = s.valid.high();
        if (held && (!valid || std::memcmp(offer.data(), s.payload.data, s.payload.size)))
            refuse("cycle " + std::to_string(cycle) + ": stream " + name +
                   " deasserted valid or changed the payload before the transfer");
        held = valid && !accepts;
        if (held) offer.assign(s.payload.data, s.payload.data + s.payload.size);
        if (valid && writer && !writer->open()) writer->wait();
        if (!valid || !accepts) return;
        if (writer) writer->put(base + transfers * size, size);
        std::fwrite(s.payload.data, 1, s.payload.size, file);
        std::fwrite(&cycle, 1, sizeof cycle, cycles);
        ++transfers;
    }
    bool done() const override { return transfers >= expected; }
    std::string status() const override {
        return name + " gave " + std::to_string(transfers) + " of " + std::to_string(expected);
    }
};

struct Driven : Part {
    Port p;
    FILE* file;
    Bytes next;
    void drive() override {
        if (std::fread(next.data(), 1, p.size, file) == p.size) std::memcpy(p.data, next.data(), p.size);
    }
    void sample() override {}
};

struct Recorded : Part {
    Port p;
    FILE* file;
    void drive() override {}
    void sample() override { std::fwrite(p.data, 1, p.size, file); }
};

// Lines in mapped files. A burst reads all lines written before it.
struct Memory : Part {
    // Addresses from `first` on; read-only files take precedence over the first file.
    struct Region {
        uint64_t first, count;
        uint8_t* lines;
        bool writable;
    };
    std::vector<Region> regions;
    std::vector<std::pair<Mapped, std::pair<uint64_t, bool>>> files;
    size_t latency, limit;
    Stream reads, words, writes;
    bool has_writes = false;
    Pauses read_pauses, write_pauses;
    size_t channels, line, address, r_addresses, r_beats, beats, w_addresses, w_enables, w_words;
    struct Burst {
        uint64_t due;
        size_t next;
        Bytes beats;
        // Of each beat, if the lines are in the external memory.
        std::vector<uint64_t> tickets;
    };
    std::deque<Burst> bursts;
    bool offered = false;
    Reader* reader = nullptr;
    Writer* writer = nullptr;
    uint64_t base = 0;
    // In a space of addresses, the bits of a field that are the lowest ones in the external memory.
    struct Spread {
        size_t shift;
        uint64_t space;
        size_t offset, width;
    };
    std::vector<Spread> spreads;
    uint64_t beats_given = 0, written = 0;
    const uint64_t& cycle;
    // Address and cycle of each line written in this round.
    std::string trace;
    std::vector<uint64_t> traced;

    explicit Memory(const uint64_t& now) : cycle(now) {}
    void save() override {
        write_numbers(trace, traced);
        traced.clear();
    }

    void place() {
        for (const auto& [file, where] : files)
            regions.push_back({where.first, file.size / (line / 8), file.lines, where.second});
    }
    uint8_t* at(uint64_t number, bool writes) {
        for (auto region = regions.rbegin(); region != regions.rend(); ++region)
            if (number - region->first < region->count && (region->writable || !writes))
                return region->lines + (number - region->first) * (line / 8);
        refuse("the memory has no line " + std::to_string(number) + (writes ? " to write" : ""));
    }
    uint64_t place_of(uint64_t number) const {
        for (const auto& [shift, space, offset, width] : spreads) {
            if (number >> shift != space) continue;
            const uint64_t low = number & ((uint64_t(1) << offset) - 1);
            const uint64_t moved = number >> offset & ((uint64_t(1) << width) - 1);
            number = (number >> (offset + width) << offset | low) << width | moved;
            break;
        }
        return base + number * (line / 8);
    }
    bool present(const Burst& burst) const {
        return reader ? reader->has(burst.tickets[burst.next / words.payload.size]) : burst.due <= cycle;
    }
    void drive() override {
        if (has_writes) writes.ready.set(!write_pauses.next() && (!writer || writer->open()));
        reads.ready.set(bursts.size() < limit && !read_pauses.next());
        if (!offered && !pauses.next()) {
            while (!bursts.empty() && spent(bursts.front())) bursts.pop_front();
            if (!bursts.empty() && present(bursts.front())) {
                Burst& burst = bursts.front();
                const size_t size = words.payload.size;
                std::memcpy(words.payload.data, burst.beats.data() + burst.next, size);
                burst.next += size;
                offered = true;
            }
        }
        words.valid.set(offered);
    }
    static bool spent(const Burst& burst) { return burst.next == burst.beats.size(); }
    void sample() override {
        if (has_writes && writes.valid.high()) {
            if (writes.ready.high()) write(writes.payload.data);
            else if (writer && !writer->open()) writer->wait();
        }
        if (reader && !offered && !bursts.empty() && !spent(bursts.front()) && !present(bursts.front()))
            reader->miss(words.ready.high());
        if (reads.valid.high() && reads.ready.high()) fetch(reads.payload.data);
        if (offered && words.ready.high()) {
            offered = false;
            ++transfers;
            ++beats_given;
        }
    }
    void write(const uint8_t* payload) {
        ++transfers;
        for (size_t channel = 0; channel < channels; ++channel) {
            if (!field(payload, w_enables + channel, 1)) continue;
            const uint64_t number = field(payload, w_addresses + channel * address, address);
            copy_bits(at(number, true), 0, payload, w_words + channel * line, line);
            traced.insert(traced.end(), {number, cycle});
            if (writer) writer->put(place_of(number), line / 8);
            ++written;
        }
    }
    void fetch(const uint8_t* payload) {
        ++transfers;
        const uint64_t length = field(payload, r_beats, beats);
        const size_t size = words.payload.size;
        // The latency counts from the next cycle.
        Burst burst{cycle + 1 + latency, 0, Bytes(length * size), {}};
        for (size_t channel = 0; channel < channels; ++channel) {
            const uint64_t first = field(payload, r_addresses + channel * address, address);
            for (uint64_t beat = 0; beat < length; ++beat)
                copy_bits(burst.beats.data() + beat * size, channel * line, at(first + beat, false), 0, line);
        }
        for (uint64_t beat = 0; reader && beat < length; ++beat) {
            uint64_t ticket = 0;
            for (size_t channel = 0; channel < channels; ++channel) {
                const uint64_t first = field(payload, r_addresses + channel * address, address);
                ticket = std::max(ticket, reader->fetch(place_of(first + beat), line / 8));
            }
            burst.tickets.push_back(ticket);
        }
        bursts.push_back(std::move(burst));
    }
    std::string status() const override {
        return "the memory has " + std::to_string(bursts.size()) + " bursts open" +
               (offered ? " and offers a beat" : "");
    }
    std::string counts() const override {
        return " beats=" + std::to_string(beats_given) + " writes=" + std::to_string(written);
    }
};

// Sequences of items by key. Each step sends its key's sequence to a stream, padded with zeros,
// and replaces it by the items of another stream. A step waits for earlier steps of its key.
struct Store : Part {
    struct Step {
        uint64_t key, gives, takes;
    };
    Stream given, taken;
    std::string file;
    std::vector<Step> steps;
    std::map<uint64_t, std::vector<Bytes>> kept;
    std::vector<Bytes> received;
    size_t giving = 0, place = 0, taking = 0;
    bool offered = false;
    // In the external memory: place of the first key, distance of two keys, and size of an item.
    Reader* reader = nullptr;
    Writer* writer = nullptr;
    uint64_t base = 0, stride = 0, size = 0;
    std::deque<uint64_t> tickets;

    uint64_t at(uint64_t key, uint64_t item) const { return base + key * stride + item * size; }
    bool waits() const {
        for (size_t i = taking; i < giving; ++i)
            if (steps[i].key == steps[giving].key) return true;
        return false;
    }
    void read_ahead() {
        const auto& step = steps[giving];
        while (place + tickets.size() < step.gives && tickets.size() < std::max<uint64_t>(1, reader->memory.ahead / size))
            tickets.push_back(reader->fetch(at(step.key, place + tickets.size()), size));
    }
    bool present() const { return tickets.empty() || reader->has(tickets.front()); }

    void load() {
        FILE* from = open(file, "rb");
        for (uint64_t head[2]; std::fread(head, sizeof head, 1, from) == 1;) {
            auto& items = kept[head[0]];
            items.assign(head[1], Bytes(given.payload.size));
            for (auto& item : items)
                if (std::fread(item.data(), 1, item.size(), from) != item.size()) refuse(file + " is incomplete");
        }
        std::fclose(from);
    }
    void save() override {
        FILE* to = open(file, "wb");
        for (const auto& [key, items] : kept) {
            const uint64_t head[2] = {key, items.size()};
            std::fwrite(head, sizeof head, 1, to);
            for (const auto& item : items) std::fwrite(item.data(), 1, item.size(), to);
        }
        if (std::fclose(to)) refuse("cannot write " + file);
    }
    void drive() override {
        taken.ready.set(!pauses.next() && (!writer || writer->open()));
        if (!offered && giving < steps.size() && !pauses.next()) {
            const auto& step = steps[giving];
            const bool open = !waits();
            if (open && reader) read_ahead();
            if (open && present()) {
                if (!tickets.empty()) tickets.pop_front();
                const auto& items = kept[step.key];
                if (place < items.size())
                    std::memcpy(given.payload.data, items[place].data(), given.payload.size);
                else
                    std::memset(given.payload.data, 0, given.payload.size);
                offered = true;
            }
        }
        given.valid.set(offered);
    }
    void sample() override {
        if (!offered && !present()) reader->miss(given.ready.high());
        if (writer && taken.valid.high() && !writer->open()) writer->wait();
        if (offered && given.ready.high()) {
            offered = false;
            ++transfers;
            if (++place == steps[giving].gives) ++giving, place = 0;
        }
        if (taken.valid.high() && taken.ready.high()) {
            if (taking == steps.size()) refuse(name + " output an item that no step expects");
            ++transfers;
            if (writer) writer->put(at(steps[taking].key, received.size()), size);
            received.emplace_back(taken.payload.data, taken.payload.data + taken.payload.size);
            if (received.size() == steps[taking].takes) {
                kept[steps[taking++].key] = std::move(received);
                received.clear();
            }
        }
    }
    bool done() const override { return giving == steps.size() && taking == steps.size(); }
    std::string status() const override {
        return name + " gave " + std::to_string(giving) + " sequences and took " + std::to_string(taking) +
               " of " + std::to_string(steps.size());
    }
};
