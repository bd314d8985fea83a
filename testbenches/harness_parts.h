// Models at a verilated design's ports: streams connected to files, memories, stores.

#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <istream>
#include <map>
#include <string>
#include <vector>

using Bytes = std::vector<uint8_t>;

[[noreturn]] static void refuse(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(1);
}

struct Port {
    uint8_t* data = nullptr;
    size_t size = 0;
    void set(uint8_t bit) const { *data = bit; }
    bool high() const { return *data; }
};

static std::map<std::string, Port> ports;

static Port port(const std::string& name) {
    const auto found = ports.find(name);
    if (found == ports.end()) refuse("there is no port " + name);
    return found->second;
}

static FILE* open(const std::string& path, const char* mode) {
    FILE* file = std::fopen(path.c_str(), mode);
    if (!file) refuse("cannot open " + path);
    std::setvbuf(file, nullptr, _IOFBF, 1 << 20);
    return file;
}

static void write_numbers(const std::string& path, const std::vector<uint64_t>& numbers) {
    FILE* to = open(path, "wb");
    std::fwrite(numbers.data(), sizeof numbers[0], numbers.size(), to);
    if (std::fclose(to)) refuse("cannot write " + path);
}

// Little-endian bit fields of a payload.
static uint64_t field(const uint8_t* bits, size_t offset, size_t width) {
    uint64_t value = 0;
    for (size_t i = 0; i < width; ++i) {
        value |= uint64_t(bits[(offset + i) / 8] >> (offset + i) % 8 & 1) << i;
    }
    return value;
}

static void copy_bits(uint8_t* to, size_t to_bit, const uint8_t* from, size_t from_bit, size_t width) {
    if (to_bit % 8 == 0 && from_bit % 8 == 0 && width % 8 == 0) {
        std::memcpy(to + to_bit / 8, from + from_bit / 8, width / 8);
        return;
    }
    for (size_t i = 0; i < width; ++i) {
        const uint8_t mask = 1 << (to_bit + i) % 8;
        const bool bit = from[(from_bit + i) / 8] >> (from_bit + i) % 8 & 1;
        to[(to_bit + i) / 8] = bit ? to[(to_bit + i) / 8] | mask : to[(to_bit + i) / 8] & ~mask;
    }
}

// Pauses in half of all cycles, or none.
struct Pauses {
    uint64_t state = 0;
    bool next() {
        if (!state) return false;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state >> 32 & 1;
    }
};

struct Stream {
    Port valid, ready, payload;
};

static Stream stream(std::istream& line) {
    std::string valid, ready, payload;
    line >> valid >> ready >> payload;
    return {port(valid), port(ready), port(payload)};
}

struct Part {
    std::string name;
    uint64_t transfers = 0;
    Pauses pauses;
    virtual ~Part() = default;
    virtual void drive() = 0;
    virtual void sample() = 0;
    virtual bool done() const { return true; }
    virtual std::string status() const { return ""; }
    virtual std::string counts() const { return ""; }
    // Write the results of a round to files.
    virtual void save() {}
};

struct Source : Part {
    Stream s;
    FILE* file;
    bool offered = false, ended = false;
    // Number of bytes that belong to this round.
    uint64_t left = UINT64_MAX;

    bool fetch() {
        if (!left) return ended = true, false;
        const size_t got = std::fread(s.payload.data, 1, s.payload.size, file);
        left -= got;
        if (got && got != s.payload.size) refuse(name + " ends in the middle of an item");
        ended = !got;
        return got;
    }
    void drive() override {
        if (!offered && !ended && !pauses.next()) offered = fetch();
        s.valid.set(offered);
    }
    void sample() override {
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

    explicit Sink(const uint64_t& now) : cycle(now) {}
    void drive() override { s.ready.set(accepts = !pauses.next()); }
    void sample() override {
        const bool valid = s.valid.high();
        if (held && (!valid || std::memcmp(offer.data(), s.payload.data, s.payload.size)))
            refuse("cycle " + std::to_string(cycle) + ": stream " + name +
                   " deasserted valid or changed the payload before the transfer");
        held = valid && !accepts;
        if (held) offer.assign(s.payload.data, s.payload.data + s.payload.size);
        if (!valid || !accepts) return;
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

// A mapped file.
struct Mapped {
    uint8_t* lines;
    size_t size;
};

static Mapped map_file(const std::string& path, bool writable) {
    const int file = ::open(path.c_str(), writable ? O_RDWR : O_RDONLY);
    struct stat status {};
    void* mapped = MAP_FAILED;
    if (file >= 0 && !fstat(file, &status)) {
        const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        mapped = mmap(nullptr, status.st_size, access, MAP_SHARED | MAP_NORESERVE, file, 0);
    }
    if (mapped == MAP_FAILED) refuse("cannot map " + path);
    close(file);
    return {static_cast<uint8_t*>(mapped), static_cast<size_t>(status.st_size)};
}

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
    };
    std::deque<Burst> bursts;
    bool offered = false;
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
    void drive() override {
        if (has_writes) writes.ready.set(!write_pauses.next());
        reads.ready.set(bursts.size() < limit && !read_pauses.next());
        if (!offered && !pauses.next()) {
            while (!bursts.empty() && bursts.front().due <= cycle && spent(bursts.front()))
                bursts.pop_front();
            if (!bursts.empty() && bursts.front().due <= cycle) {
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
        if (has_writes && writes.valid.high() && writes.ready.high()) write(writes.payload.data);
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
            ++written;
        }
    }
    void fetch(const uint8_t* payload) {
        ++transfers;
        const uint64_t length = field(payload, r_beats, beats);
        const size_t size = words.payload.size;
        // The latency counts from the next cycle.
        Burst burst{cycle + 1 + latency, 0, Bytes(length * size)};
        for (size_t channel = 0; channel < channels; ++channel) {
            const uint64_t first = field(payload, r_addresses + channel * address, address);
            for (uint64_t beat = 0; beat < length; ++beat)
                copy_bits(burst.beats.data() + beat * size, channel * line, at(first + beat, false), 0, line);
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
        taken.ready.set(!pauses.next());
        if (!offered && giving < steps.size() && !pauses.next()) {
            const auto& step = steps[giving];
            bool waits = false;
            for (size_t i = taking; i < giving; ++i) waits |= steps[i].key == step.key;
            if (!waits) {
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
        if (offered && given.ready.high()) {
            offered = false;
            ++transfers;
            if (++place == steps[giving].gives) ++giving, place = 0;
        }
        if (taken.valid.high() && taken.ready.high()) {
            if (taking == steps.size()) refuse(name + " output an item that no step expects");
            ++transfers;
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
