// Run a verilated design with its streams connected to files, without an interpreter.
//
// PORTS names a generated header: PORT_LIST(X) lists the ports as X(name). A file contains consecutive
// items in the type that Verilator uses for the port: 1, 2, 4 or 8 bytes, or 32-bit words.
//
// The first argument is a file of settings, with a role, names and numbers in each line. Verilator
// reads the other arguments.
//   settings RESET TIMEOUT TRAIL SEED PROGRESS LIMIT
//   source VALID READY PAYLOAD NAME FILE [FIRST BYTES]          drive an input stream
//   sink VALID READY PAYLOAD NAME FILE EXPECTED     receive an output stream
//   drive PORT FILE                                 set an input in every cycle; hold its last item
//   record PORT FILE                                write an output in every cycle
//   waves FILE CYCLES EACH                          dump the first CYCLES cycles of every EACH cycles
//   store VALID READY PAYLOAD VALID READY PAYLOAD NAME FILE     keep sequences of items by key
//   step KEY GIVES TAKES                            the next step of the store
//   external PERIOD AHEAD RESERVED CHANNELS GROUPS BANKS GRANULE COLUMNS DEPTH TIMES... [TRACE]
//                                                   timing of all that follows (harness_external.h)
//   through BASE BYTES [STRIDE]                     place, in it, of the items of the last stream or store
//   memory LATENCY BURSTS TRACE                     connect a memory to the ports that follow
//   file FILE FIRST WRITABLE                        its lines from one address on
//   spread SHIFT SPACE OFFSET WIDTH                 bits of an address that are the lowest in the external memory
//   reads VALID READY PAYLOAD / words VALID READY PAYLOAD / writes VALID READY PAYLOAD
//   channel BITS                                    bandwidth per cycle of the banks that follow
//   bank LATENCY BURSTS BYTES FILE WRITABLE         connect a memory of words to the ports that follow
//   read_port / write_port VALID READY PAYLOAD VALID READY PAYLOAD NAME ADDRESS LENGTH WORD [TRACE]
//   row_reader VALID READY PAYLOAD VALID READY PAYLOAD ROWS LENGTH LATENCY LIMIT    answers to requests
//   row_writer VALID READY PAYLOAD ROWS             store rows
//      ROWS: NAME FILE TILES LANES COUNT HEAD TILE PLACE, and a number of planes, each as FIRST EACH
//      BYTES WIDTH OFFSET; HEAD, TILE, PLACE and LENGTH are offset and width in bits of the payload
//   dram COMMAND DATA UNITS BYTES FILE FIELDS       connect DRAM banks; FIELDS are pairs of offset and width
//   layout CHANNELS LINE ADDRESS R_ADDRESSES R_BEATS BEATS W_ADDRESSES W_ENABLES W_WORDS   in bits
// When all expected items have been received, the program reports the cycle on standard output. Each
// line on standard input then names the settings of another round, in which the design and its
// memories keep their state.
// A cycle is defined as in the cocotb bench: inputs change after the falling edge, outputs are
// sampled just before the rising edge.

#include <chrono>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <sstream>

#include "Vtop.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif
#include PORTS
#include "harness_streams.h"
#include "harness_banks.h"
#include "harness_rows.h"
#include "harness_dram.h"

using Parts = std::vector<std::unique_ptr<Part>>;

// Waveform samples of a long run: the first cycles of each interval.
struct Waves {
    std::string path;
    uint64_t cycles = 0, each = 1;
#if VM_TRACE
    VerilatedVcdC file;
    void open(Vtop& dut) {
        if (!cycles) return;
        dut.trace(&file, 99);
        file.open(path.c_str());
        if (!file.isOpen()) refuse("cannot open " + path);
    }
    void dump(uint64_t cycle, bool high) {
        if (cycle % each < cycles) file.dump(2 * cycle + high);
    }
    void flush() {
        if (cycles) file.flush();
    }
#else
    void open(Vtop&) {
        if (cycles) refuse("the model is not compiled for waves");
    }
    void dump(uint64_t, bool) {}
    void flush() {}
#endif
};

struct Run {
    Vtop& dut;
    Port clock;
    uint64_t cycle = 0, reset = 0, timeout = 0, trail = 0, seed = 0, limit = 0;
    double progress = 0;
    // Values of this round, followed by those of the whole run.
    Parts parts, memories;
    std::vector<std::unique_ptr<Bank>> banks;
    Channel* channel = nullptr;
    External* external = nullptr;
    Waves waves;
    std::vector<FILE*> written, read;
    std::chrono::steady_clock::time_point started;

    Pauses pauses() {
        // Adjacent seeds of this generator give similar sequences; a multiplication separates them.
        return Pauses{seed ? seed += 0x9E3779B97F4A7C15u : 0};
    }
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    }
    void configure(const std::string& path);
    void add_stream(const std::string& role, std::istream& line);
    void add_external(const std::string& role, std::istream& line);
    void add_memory(const std::string& role, std::istream& line);
    void add_bank(const std::string& role, std::istream& line);
    void add_rows(const std::string& role, std::istream& line);
    void add_dram(std::istream& line);
    Memory& memory() { return static_cast<Memory&>(*memories.back()); }

    template <typename Act>
    void all(const Act& act) const {
        for (const auto& part : parts) act(*part);
        for (const auto& part : memories) act(*part);
    }
    uint64_t moved() const {
        uint64_t sum = 0;
        all([&](const Part& part) { sum += part.transfers; });
        return sum;
    }
    bool done() const {
        bool yes = true;
        all([&](const Part& part) { yes = yes && part.done(); });
        return yes;
    }
    std::string report(std::string (Part::*what)() const, const char* before) const {
        std::string text;
        all([&](const Part& part) {
            if (const auto own = (part.*what)(); !own.empty()) text += before + own;
        });
        return text;
    }
    void edge() {
        clock.set(1);
        dut.eval();
        waves.dump(cycle, true);
        ++cycle;
    }
    void settle() {
        clock.set(0);
        dut.eval();
        waves.dump(cycle, false);
    }
    void step() {
        if (external) external->advance(moved());
        for (const auto& part : parts) part->drive();
        for (const auto& part : memories) part->drive();
        settle();
        for (const auto& part : parts) part->sample();
        for (const auto& part : memories) part->sample();
        edge();
    }
    void round();
    void close();
};

void Run::add_stream(const std::string& role, std::istream& line) {
    std::string path, name;
    if (role == "source") {
        auto part = std::make_unique<Source>();
        part->s = stream(line);
        line >> part->name >> std::quoted(path);
        read.push_back(part->file = open(path, "rb"));
        if (uint64_t first, bytes; line >> first >> bytes) {
            part->left = bytes;
            fseeko(part->file, first, SEEK_SET);
        }
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
        read.push_back(part->file = open(path, "rb"));
        parts.push_back(std::move(part));
    } else if (role == "record") {
        auto part = std::make_unique<Recorded>();
        line >> name >> std::quoted(path);
        part->p = port(name);
        written.push_back(part->file = open(path, "wb"));
        parts.push_back(std::move(part));
    } else if (role == "store") {
        auto part = std::make_unique<Store>();
        part->given = stream(line);
        part->taken = stream(line);
        line >> part->name >> std::quoted(part->file);
        part->load();
        part->pauses = pauses();
        parts.push_back(std::move(part));
    } else if (role == "step") {
        Store::Step step;
        line >> step.key >> step.gives >> step.takes;
        static_cast<Store&>(*parts.back()).steps.push_back(step);
    }
}

void Run::add_external(const std::string& role, std::istream& line) {
    if (role == "external") {
        auto part = std::make_unique<External>(cycle, line);
        external = part.get();
        memories.push_back(std::move(part));
        return;
    }
    Part* part = parts.back().get();
    const auto place = [&](auto& own) { line >> own.base >> own.size; };
    if (auto* source = dynamic_cast<Source*>(part)) {
        place(*source);
        source->attach(*external);
    } else if (auto* sink = dynamic_cast<Sink*>(part)) {
        place(*sink);
        sink->writer = &external->writer(sink->name);
    } else if (auto* store = dynamic_cast<Store*>(part)) {
        place(*store);
        line >> store->stride;
        store->reader = &external->reader(store->name);
        store->writer = &external->writer(store->name);
    }
}

void Run::add_memory(const std::string& role, std::istream& line) {
    std::string path;
    if (role == "memory") {
        auto part = std::make_unique<Memory>(cycle);
        line >> part->latency >> part->limit >> part->trace;
        part->pauses = pauses();
        part->read_pauses = pauses();
        part->write_pauses = pauses();
        memories.push_back(std::move(part));
    } else if (role == "file") {
        uint64_t first;
        bool writable;
        line >> std::quoted(path) >> first >> writable;
        memory().files.push_back({map_file(path, writable), {first, writable}});
    } else if (role == "reads") {
        memory().reads = stream(line);
    } else if (role == "words") {
        memory().words = stream(line);
    } else if (role == "writes") {
        memory().writes = stream(line);
        memory().has_writes = true;
    } else if (role == "spread") {
        Memory::Spread spread;
        line >> spread.shift >> spread.space >> spread.offset >> spread.width;
        memory().spreads.push_back(spread);
    } else if (role == "layout") {
        Memory& m = memory();
        line >> m.channels >> m.line >> m.address >> m.r_addresses >> m.r_beats >> m.beats >>
            m.w_addresses >> m.w_enables >> m.w_words;
        m.place();
        if (external) {
            // The address space may be sparse: it takes its whole size.
            m.base = external->place(uint64_t(m.line / 8) << m.address);
            m.reader = &external->reader("words");
            m.writer = &external->writer("writes");
        }
    }
}

void Run::add_bank(const std::string& role, std::istream& line) {
    if (role == "channel") {
        auto part = std::make_unique<Channel>();
        line >> part->bits;
        channel = part.get();
        memories.push_back(std::move(part));
        return;
    }
    if (role == "bank") {
        std::string path;
        bool writable;
        auto bank = std::make_unique<Bank>();
        bank->channel = channel;
        line >> bank->latency >> bank->limit >> bank->bytes >> std::quoted(path) >> writable;
        bank->file = map_file(path, writable);
        if (external) bank->base = external->place(bank->file.size);
        bank->external = external;
        banks.push_back(std::move(bank));
        return;
    }
    const auto fill = [&](BankPort& part) {
        part.requests = stream(line);
        part.words = stream(line);
        line >> part.name >> part.address >> part.length >> part.width;
        part.pauses = pauses();
        part.word_pauses = pauses();
    };
    if (role == "read_port") {
        auto part = std::make_unique<ReadPort>(*banks.back(), cycle);
        fill(*part);
        if (external) part->reader = &external->reader(part->name);
        banks.back()->readers.push_back(part.get());
        memories.push_back(std::move(part));
    } else {
        auto part = std::make_unique<WritePort>(*banks.back(), cycle);
        fill(*part);
        line >> part->trace;
        if (external) part->writer = &external->writer(part->name);
        memories.push_back(std::move(part));
    }
}

void Run::add_rows(const std::string& role, std::istream& line) {
    const auto bits = [&] {
        Bits found;
        line >> found.offset >> found.width;
        return found;
    };
    const auto fill = [&](RowPort& part) {
        std::string path;
        size_t planes;
        part.stream = stream(line);
        line >> part.name >> std::quoted(path) >> part.tiles >> part.lanes >> part.count;
        part.file = map_file(path, true);
        // All ports of a file access the same place.
        if (external) part.base = external->file(path, part.file.size);
        part.head = bits();
        part.tile = bits();
        part.place = bits();
        part.pauses = pauses();
        line >> planes;
        part.planes.resize(planes);
        for (auto& plane : part.planes)
            line >> plane.first >> plane.each >> plane.bytes >> plane.width >> plane.offset;
    };
    if (role == "row_reader") {
        auto part = std::make_unique<RowReader>(cycle);
        part->answers = stream(line);
        fill(*part);
        part->length = bits();
        line >> part->latency >> part->limit;
        part->answer_pauses = pauses();
        if (external) part->reader = &external->reader(part->name);
        memories.push_back(std::move(part));
    } else {
        auto part = std::make_unique<RowWriter>(cycle);
        fill(*part);
        if (external) part->writer = &external->writer(part->name);
        memories.push_back(std::move(part));
    }
}

void Run::add_dram(std::istream& line) {
    std::string command, data, path;
    auto part = std::make_unique<Dram>(cycle);
    line >> command >> data >> part->units >> part->bytes >> std::quoted(path);
    for (Dram::Field* field : {&part->activate, &part->precharge, &part->refresh, &part->row, &part->read,
                               &part->write, &part->column, &part->mask, &part->word})
        line >> field->offset >> field->width;
    part->command = port(command);
    part->data = port(data);
    part->file = map_file(path, true);
    part->external = external;
    part->begin();
    memories.push_back(std::move(part));
}

void Run::configure(const std::string& path) {
    parts.clear();
    std::ifstream settings(path);
    if (!settings) refuse("cannot open " + path);
    for (std::string text, role; std::getline(settings, text);) {
        std::istringstream line(text);
        line >> role;
        if (role == "settings")
            line >> reset >> timeout >> trail >> seed >> progress >> limit;
        else if (role == "external" || role == "through")
            add_external(role, line);
        else if (role == "memory" || role == "file" || role == "reads" || role == "words" ||
                 role == "writes" || role == "spread" || role == "layout")
            add_memory(role, line);
        else if (role == "channel" || role == "bank" || role == "read_port" || role == "write_port")
            add_bank(role, line);
        else if (role == "row_reader" || role == "row_writer")
            add_rows(role, line);
        else if (role == "dram")
            add_dram(line);
        else if (role == "waves")
            line >> std::quoted(waves.path) >> waves.cycles >> waves.each;
        else
            add_stream(role, line);
    }
}

void Run::round() {
    const uint64_t began = cycle;
    uint64_t last_moved = 0, moved_at = cycle;
    double shown = 0;
    while (limit ? cycle < began + limit : !done()) {
        step();
        if (cycle % 256 == 0) {
            if (const uint64_t now = moved(); now != last_moved) last_moved = now, moved_at = cycle;
            const double passed = seconds();
            if (progress > 0 && passed >= shown + progress) {
                shown = passed;
                std::cout << "at " << cycle << " " << passed << report(&Part::counts, "") << std::endl;
            }
        }
        if (!limit && cycle > moved_at + timeout + 256 && moved() == last_moved)
            refuse("cycle " + std::to_string(cycle) + ": no transfer for " + std::to_string(timeout) +
                   " cycles" + report(&Part::status, "; "));
    }
    const uint64_t ended = cycle - began;
    // There must be no further items: the reader of the files counts them.
    for (uint64_t i = 0; i < trail; ++i) step();
    const double passed = seconds();
    close();
    std::cout << "done " << ended << " " << cycle << " " << passed << report(&Part::counts, "") << std::endl;
}

void Run::close() {
    for (FILE* file : written)
        if (std::fclose(file)) refuse("cannot write all results");
    for (FILE* file : read) std::fclose(file);
    written.clear();
    read.clear();
    waves.flush();
    all([](Part& part) { part.save(); });
}

int main(int argc, char** argv) {
    VerilatedContext context;
    // The initial state is decided when the model is constructed.
    context.commandArgs(argc, argv);
    context.traceEverOn(VM_TRACE);
    Vtop dut{&context, ""};
#define ADD(name) ports[#name] = {reinterpret_cast<uint8_t*>(&dut.name), sizeof(dut.name)};
    PORT_LIST(ADD)

    Run run{dut, port("clk")};
    run.configure(argv[1]);
    run.waves.open(dut);
    run.started = std::chrono::steady_clock::now();
    const Port resets = port("rst");
    resets.set(1);
    for (uint64_t i = 0; i < run.reset; ++i) {
        run.settle();
        run.edge();
    }
    resets.set(0);
    run.round();
    for (std::string path; std::getline(std::cin, path);) {
        run.configure(path);
        run.started = std::chrono::steady_clock::now();
        run.round();
    }
    dut.final();
    return 0;
}
