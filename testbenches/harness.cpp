// Run a verilated design with its streams on files or pipes, without an interpreter in between.
//
// PORTS names a generated header: PORT_LIST(X) lists the ports as X(name). A file holds one item
// after the other in the type that Verilator gives the port: 1, 2, 4 or 8 octets, or 32-bit words.
//
// The one argument is a file of lines, each a role, names and numbers:
//   settings RESET PATIENCE TRAIL SEED PROGRESS LIMIT
//   source VALID READY PAYLOAD FILE             drive an input stream
//   sink VALID READY PAYLOAD FILE EXPECTED      receive an output stream
//   drive PORT FILE                             set an input every cycle; its last item stays
//   record PORT FILE                            write an output every cycle
//   memory FILE SIZE LATENCY BURSTS             offer the memory behind the ports that follow
//   reads VALID READY PAYLOAD / words VALID READY PAYLOAD / writes VALID READY PAYLOAD
//   layout CHANNELS LINE ADDRESS R_ADDRESSES R_BEATS BEATS W_ADDRESSES W_ENABLES W_WORDS   in bits
// A cycle is that of the cocotb bench: inputs change behind the falling edge, outputs are read just
// before the rising one.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iomanip>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "Vtop.h"
#include "verilated.h"
#include PORTS

using Octets = std::vector<uint8_t>;

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

// Half of all cycles, or none.
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
    uint64_t transfers = 0;
    Pauses pauses;
    virtual ~Part() = default;
    virtual void drive() = 0;
    virtual void sample() = 0;
    virtual bool done() const { return true; }
    virtual std::string status() const { return ""; }
};

struct Source : Part {
    std::string name;
    Stream s;
    FILE* file;
    bool offered = false, ended = false;

    bool fetch() {
        const size_t got = std::fread(s.payload.data, 1, s.payload.size, file);
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
    std::string status() const override {
        return name + " took " + std::to_string(transfers) + (offered ? " and offers one" : "");
    }
};

struct Sink : Part {
    std::string name;
    Stream s;
    FILE *file, *cycles;
    uint64_t expected = 0;
    const uint64_t& cycle;
    bool accepts = false, held = false;
    Octets offer;

    explicit Sink(const uint64_t& now) : cycle(now) {}
    void drive() override { s.ready.set(accepts = !pauses.next()); }
    void sample() override {
        const bool valid = s.valid.high();
        if (held && (!valid || std::memcmp(offer.data(), s.payload.data, s.payload.size)))
            refuse("cycle " + std::to_string(cycle) + ": stream " + name +
                   " took back or changed an offer that nobody had accepted");
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
    Octets next;
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

// Lines in a mapped file. A burst holds what all writes before it left.
struct Memory : Part {
    uint8_t* lines;
    size_t count, latency, limit;
    Stream reads, words, writes;
    bool has_writes = false;
    Pauses read_pauses, write_pauses;
    size_t channels, line, address, r_addresses, r_beats, beats, w_addresses, w_enables, w_words;
    struct Burst {
        uint64_t due;
        std::deque<Octets> beats;
    };
    std::deque<Burst> bursts;
    bool offered = false;
    uint64_t cycle = 0;

    uint8_t* at(uint64_t number) {
        if (number >= count) refuse("the memory has no line " + std::to_string(number));
        return lines + number * (line / 8);
    }
    void drive() override {
        if (has_writes) writes.ready.set(!write_pauses.next());
        reads.ready.set(bursts.size() < limit && !read_pauses.next());
        if (!offered && !pauses.next()) {
            while (!bursts.empty() && bursts.front().due <= cycle && bursts.front().beats.empty())
                bursts.pop_front();
            if (!bursts.empty() && bursts.front().due <= cycle) {
                const Octets& beat = bursts.front().beats.front();
                std::memcpy(words.payload.data, beat.data(), words.payload.size);
                bursts.front().beats.pop_front();
                offered = true;
            }
        }
        words.valid.set(offered);
    }
    void sample() override {
        ++cycle;
        if (has_writes && writes.valid.high() && writes.ready.high()) write(writes.payload.data);
        if (reads.valid.high() && reads.ready.high()) fetch(reads.payload.data);
        if (offered && words.ready.high()) {
            offered = false;
            ++transfers;
        }
    }
    void write(const uint8_t* payload) {
        ++transfers;
        for (size_t channel = 0; channel < channels; ++channel) {
            if (!field(payload, w_enables + channel, 1)) continue;
            uint8_t* to = at(field(payload, w_addresses + channel * address, address));
            copy_bits(to, 0, payload, w_words + channel * line, line);
        }
    }
    void fetch(const uint8_t* payload) {
        ++transfers;
        Burst burst{cycle + latency, {}};
        const uint64_t length = field(payload, r_beats, beats);
        for (uint64_t beat = 0; beat < length; ++beat) {
            Octets joined(words.payload.size);
            for (size_t channel = 0; channel < channels; ++channel) {
                const uint64_t first = field(payload, r_addresses + channel * address, address);
                copy_bits(joined.data(), channel * line, at(first + beat), 0, line);
            }
            burst.beats.push_back(std::move(joined));
        }
        bursts.push_back(std::move(burst));
    }
    std::string status() const override {
        return "the memory has " + std::to_string(bursts.size()) + " bursts open" +
               (offered ? " and offers a beat" : "");
    }
};

static uint8_t* map_file(const std::string& path, size_t size) {
    const int file = ::open(path.c_str(), O_RDWR);
    void* mapped = file < 0 ? MAP_FAILED
                            : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (mapped == MAP_FAILED) refuse("cannot map " + path);
    close(file);
    return static_cast<uint8_t*>(mapped);
}

int main(int, char** argv) {
    VerilatedContext context;
    Vtop dut{&context, ""};
#define ADD(name) ports[#name] = {reinterpret_cast<uint8_t*>(&dut.name), sizeof(dut.name)};
    PORT_LIST(ADD)

    uint64_t cycle = 0, reset = 0, patience = 0, trail = 0, seed = 0, limit = 0;
    double progress = 0;
    std::vector<std::unique_ptr<Part>> parts;
    std::vector<FILE*> written;
    Memory* memory = nullptr;
    const auto pauses = [&] {
        // Neighbouring seeds of this generator begin alike; a multiplication parts them.
        return Pauses{seed ? seed += 0x9E3779B97F4A7C15u : 0};
    };
    std::ifstream settings(argv[1]);
    for (std::string text, role, name, path; std::getline(settings, text);) {
        std::istringstream line(text);
        line >> role;
        if (role == "settings") {
            line >> reset >> patience >> trail >> seed >> progress >> limit;
        } else if (role == "source") {
            auto part = std::make_unique<Source>();
            part->s = stream(line);
            line >> part->name >> std::quoted(path);
            part->file = open(path, "rb");
            part->pauses = pauses();
            parts.push_back(std::move(part));
        } else if (role == "sink") {
            auto part = std::make_unique<Sink>(cycle);
            part->s = stream(line);
            line >> part->name >> std::quoted(path) >> part->expected;
            written.push_back(part->file = open(path, "wb"));
            written.push_back(part->cycles = open(path + ".cycles", "wb"));
            part->pauses = pauses();
            parts.push_back(std::move(part));
        } else if (role == "drive") {
            auto part = std::make_unique<Driven>();
            line >> name >> std::quoted(path);
            part->p = port(name);
            part->next.resize(part->p.size);
            part->file = open(path, "rb");
            parts.push_back(std::move(part));
        } else if (role == "record") {
            auto part = std::make_unique<Recorded>();
            line >> name >> std::quoted(path);
            part->p = port(name);
            written.push_back(part->file = open(path, "wb"));
            parts.push_back(std::move(part));
        } else if (role == "memory") {
            auto part = std::make_unique<Memory>();
            size_t size;
            line >> std::quoted(path) >> size >> part->latency >> part->limit;
            part->lines = map_file(path, part->count = size);
            part->pauses = pauses();
            part->read_pauses = pauses();
            part->write_pauses = pauses();
            memory = part.get();
            parts.push_back(std::move(part));
        } else if (role == "reads") {
            memory->reads = stream(line);
        } else if (role == "words") {
            memory->words = stream(line);
        } else if (role == "writes") {
            memory->writes = stream(line);
            memory->has_writes = true;
        } else if (role == "layout") {
            line >> memory->channels >> memory->line >> memory->address >> memory->r_addresses >>
                memory->r_beats >> memory->beats >> memory->w_addresses >> memory->w_enables >>
                memory->w_words;
            memory->count /= memory->line / 8;
        }
    }

    const Port clock = port("clk"), resets = port("rst");
    const auto started = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    };
    const auto edge = [&] {
        clock.set(1);
        dut.eval();
        ++cycle;
    };
    resets.set(1);
    for (uint64_t i = 0; i < reset; ++i) {
        clock.set(0);
        dut.eval();
        edge();
    }
    resets.set(0);

    const auto moved = [&] {
        uint64_t all = 0;
        for (const auto& part : parts) all += part->transfers;
        return all;
    };
    const auto done = [&] {
        for (const auto& part : parts)
            if (!part->done()) return false;
        return true;
    };
    const auto step = [&] {
        for (const auto& part : parts) part->drive();
        clock.set(0);
        dut.eval();
        for (const auto& part : parts) part->sample();
        edge();
    };
    uint64_t last_moved = 0, moved_at = cycle, ended_at = 0;
    double shown = 0;
    while (limit ? cycle < reset + limit : !done()) {
        step();
        if (cycle % 256 == 0) {
            if (const uint64_t now = moved(); now != last_moved) last_moved = now, moved_at = cycle;
            const double passed = seconds();
            if (progress > 0 && passed >= shown + progress) {
                shown = passed;
                std::fprintf(stderr, "%llu cycles, %.0f a second\n", (unsigned long long)cycle, cycle / passed);
            }
        }
        if (!limit && cycle > moved_at + patience + 256 && moved() == last_moved) {
            std::string what = "cycle " + std::to_string(cycle) + ": no transfer for " +
                               std::to_string(patience) + " cycles";
            for (const auto& part : parts)
                if (const auto status = part->status(); !status.empty()) what += "; " + status;
            refuse(what);
        }
    }
    ended_at = cycle - reset;
    // Nothing more may come: whoever reads the files counts.
    for (uint64_t i = 0; i < trail; ++i) step();
    const double passed = seconds();
    dut.final();
    for (FILE* file : written)
        if (std::fclose(file)) refuse("cannot write all results");
    std::printf("%llu %llu %.6f\n", (unsigned long long)ended_at, (unsigned long long)cycle, passed);
    return 0;
}
