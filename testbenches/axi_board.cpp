// Run a verilated design with the AXI shell between a memory and a host, without an interpreter.
//
// PORTS names a generated header: PORT_LIST(X) lists the ports as X(name). The first argument names a
// file of settings:
//   settings RESET LATENCY BURSTS SEED STUCK     cycles of reset, from a request to its first beat or
//                                                response, most waiting bursts, seed of all pauses (0: none),
//                                                and cycles of waiting without a transfer
//   clear PORT                                   an input is 0 before it is driven; at first it is random
//   memory FILE FIRST                            the memory; FIRST is the address of its first byte
//   host PREFIX                                  the AXI4-Lite port of the registers
//   reads PREFIX NAME BYTES / writes PREFIX NAME BYTES      an AXI4 port, and its bytes per beat
// Each line on standard input is a command of the host; its answer is one line on standard output:
//   read OFFSET            VALUE RESPONSE
//   write OFFSET VALUE     RESPONSE
//   wait CYCLES            CYCLE NAME=BYTES ...  after so many cycles: all cycles, bytes moved at each port
//   fail NAME NUMBER CODE  -  a burst of a port, counted from the next one, is answered by CODE
// A burst outside the memory is answered by DECERR. A cycle is defined as in `harness.cpp`.

#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <sstream>

#include "Vtop.h"
#include "verilated.h"
#include PORTS
#include "harness_parts.h"

static const uint64_t OKAY = 0, DECERR = 3, PAGE = 4096, ANSWER = 100000;

static uint64_t number(const Port& from) { return field(from.data, 0, 8 * std::min<size_t>(from.size, 8)); }
static void set(const Port& to, uint64_t value) { std::memcpy(to.data, &value, std::min<size_t>(to.size, 8)); }

struct Space {
    Mapped file;
    uint64_t first;
    // The bytes at an address, or nullptr if they are not all in the memory.
    uint8_t* at(uint64_t address, uint64_t count) const {
        const bool inside = address >= first && address - first <= file.size && count <= file.size - (address - first);
        return inside ? file.lines + (address - first) : nullptr;
    }
};

// One direction of a channel that the design drives: `ready` is this program's.
struct Taken {
    Port valid, ready;
    Pauses pauses;
    Taken() = default;
    explicit Taken(const std::string& name) : valid(port(name + "valid")), ready(port(name + "ready")) {}
    void drive(bool room) { ready.set(room && !pauses.next()); }
    bool transfers() const { return valid.high() && ready.high(); }
};

// A channel that this program drives: an offer is held until its transfer.
struct Given {
    Port valid, ready;
    Pauses pauses;
    Given() = default;
    explicit Given(const std::string& name) : valid(port(name + "valid")), ready(port(name + "ready")) {}
    // Whether a new offer begins in this cycle; the caller then sets the payload.
    bool drive(bool there) {
        if (valid.high()) return false;
        const bool begins = there && !pauses.next();
        valid.set(begins);
        return begins;
    }
    bool transfers() const { return valid.high() && ready.high(); }
    void sample() { sent = transfers(); }
    void clear() {
        if (sent) valid.set(false);
        sent = false;
    }
    bool sent = false;
};

struct Burst {
    uint64_t address, beats, due, code;
};

struct AxiPort : Part {
    const Space& space;
    const uint64_t& cycle;
    uint64_t latency, limit, bytes, moved = 0, fails_in = 0, failure = 0;
    std::deque<Burst> bursts;
    Taken request;
    Port address, length;

    AxiPort(const Space& memory, const uint64_t& now, const std::string& prefix, const char* channel)
        : space(memory), cycle(now), request(prefix + channel), address(port(prefix + channel + "addr")),
          length(port(prefix + channel + "len")) {}
    std::string counts() const override { return " " + name + "=" + std::to_string(moved); }
    void take() {
        if (!request.transfers()) return;
        ++transfers;
        Burst burst{number(address), number(length) + 1, cycle + 1 + latency, OKAY};
        const uint64_t size = burst.beats * bytes;
        if (burst.address % bytes || burst.address / PAGE != (burst.address + size - 1) / PAGE)
            refuse(name + " requests a burst that is not aligned or crosses a page");
        if (!space.at(burst.address, size)) burst.code = DECERR;
        if (fails_in && !--fails_in) burst.code = failure;
        bursts.push_back(burst);
        taken(bursts.back());
    }
    virtual void taken(Burst&) {}
};

struct AxiReads : AxiPort {
    Given answer;
    Port data, response, last;
    // Words of each burst at the time of its request: later writes have no effect.
    std::deque<Bytes> contents;
    uint64_t beat = 0;

    AxiReads(const Space& memory, const uint64_t& now, const std::string& prefix)
        : AxiPort(memory, now, prefix, "ar"), answer(prefix + "r"), data(port(prefix + "rdata")),
          response(port(prefix + "rresp")), last(port(prefix + "rlast")) {}
    void taken(Burst& burst) override {
        const uint8_t* from = burst.code == OKAY ? space.at(burst.address, burst.beats * bytes) : nullptr;
        contents.push_back(from ? Bytes(from, from + burst.beats * bytes) : Bytes(burst.beats * bytes));
    }
    void drive() override {
        request.drive(bursts.size() < limit);
        answer.clear();
        if (!answer.drive(!bursts.empty() && bursts.front().due <= cycle)) return;
        std::memcpy(data.data, contents.front().data() + beat * bytes, bytes);
        response.set(bursts.front().code);
        last.set(beat + 1 == bursts.front().beats);
    }
    void sample() override {
        take();
        answer.sample();
        if (!answer.sent) return;
        ++transfers;
        moved += bytes;
        if (++beat < bursts.front().beats) return;
        beat = 0;
        bursts.pop_front();
        contents.pop_front();
    }
};

struct AxiWrites : AxiPort {
    Taken words;
    Given answer;
    Port data, strobes, last, response;
    // Words may precede their request.
    std::deque<Bytes> waiting;
    std::deque<Burst> written;
    uint64_t beat = 0;

    AxiWrites(const Space& memory, const uint64_t& now, const std::string& prefix)
        : AxiPort(memory, now, prefix, "aw"), words(prefix + "w"), answer(prefix + "b"), data(port(prefix + "wdata")),
          strobes(port(prefix + "wstrb")), last(port(prefix + "wlast")), response(port(prefix + "bresp")) {}
    void drive() override {
        request.drive(bursts.size() < limit);
        words.drive(waiting.size() < limit);
        answer.clear();
        if (answer.drive(!written.empty() && written.front().due <= cycle)) response.set(written.front().code);
    }
    void sample() override {
        take();
        if (words.transfers()) {
            ++transfers;
            Bytes word(data.data, data.data + bytes);
            for (uint64_t i = 0; i < bytes; ++i) word.push_back(field(strobes.data, i, 1));
            word.push_back(last.high());
            waiting.push_back(word);
        }
        while (!bursts.empty() && !waiting.empty()) {
            Burst& burst = bursts.front();
            const Bytes& word = waiting.front();
            if (word.back() != (beat + 1 == burst.beats)) refuse(name + " sets `wlast` at a wrong beat");
            if (burst.code == OKAY) {
                uint8_t* to = space.at(burst.address + beat * bytes, bytes);
                for (uint64_t i = 0; i < bytes; ++i)
                    if (word[bytes + i]) to[i] = word[i];
            }
            moved += bytes;
            waiting.pop_front();
            if (++beat < burst.beats) continue;
            beat = 0;
            burst.due = cycle + 1 + latency;
            written.push_back(burst);
            bursts.pop_front();
        }
        answer.sample();
        if (answer.sent) {
            ++transfers;
            written.pop_front();
        }
    }
};

// One access to the registers at a time.
struct Host : Part {
    Given write_address, write_data, read_address;
    Taken write_response, read_data;
    Port awaddr, wdata, wstrb, bresp, araddr, rdata, rresp;
    bool asked_address = false, asked_data = false, asked_read = false, ended = false;
    uint64_t value = 0, code = 0;

    explicit Host(const std::string& prefix)
        : write_address(prefix + "aw"), write_data(prefix + "w"), read_address(prefix + "ar"),
          write_response(prefix + "b"), read_data(prefix + "r"), awaddr(port(prefix + "awaddr")),
          wdata(port(prefix + "wdata")), wstrb(port(prefix + "wstrb")), bresp(port(prefix + "bresp")),
          araddr(port(prefix + "araddr")), rdata(port(prefix + "rdata")), rresp(port(prefix + "rresp")) {}
    void drive() override {
        for (Given* one : {&write_address, &write_data, &read_address}) one->clear();
        if (write_address.drive(asked_address)) asked_address = false;
        if (write_data.drive(asked_data)) asked_data = false;
        if (read_address.drive(asked_read)) asked_read = false;
        write_response.drive(true);
        read_data.drive(true);
    }
    void sample() override {
        for (Given* one : {&write_address, &write_data, &read_address}) one->sample();
        if (write_response.transfers()) ended = true, code = number(bresp);
        if (read_data.transfers()) ended = true, code = number(rresp), value = number(rdata);
    }
    void write(uint64_t offset, uint64_t content) {
        set(awaddr, offset);
        set(wdata, content);
        set(wstrb, 15);
        asked_address = asked_data = true;
        ended = false;
    }
    void read(uint64_t offset) {
        set(araddr, offset);
        asked_read = true;
        ended = false;
    }
};

struct Board {
    Vtop& dut;
    Port clock;
    uint64_t cycle = 0, reset = 0, latency = 0, bursts = 0, seed = 0, stuck = 0, idle = 0, moved = 0;
    Space space;
    std::unique_ptr<Host> host;
    std::vector<std::unique_ptr<AxiPort>> axi;

    Pauses pauses() {
        // Adjacent seeds of this generator give similar sequences; a multiplication separates them.
        return Pauses{seed ? seed += 0x9E3779B97F4A7C15u : 0};
    }
    template <typename Kind>
    std::unique_ptr<Kind> connected(const std::string& prefix) {
        auto part = std::make_unique<Kind>(space, cycle, prefix);
        part->latency = latency;
        part->limit = bursts;
        part->request.pauses = pauses();
        part->answer.pauses = pauses();
        return part;
    }
    void configure(const std::string& path) {
        std::ifstream settings(path);
        if (!settings) refuse("cannot open " + path);
        for (std::string text, role, prefix; std::getline(settings, text);) {
            std::istringstream line(text);
            line >> role;
            if (role == "settings") {
                line >> reset >> latency >> bursts >> seed >> stuck;
            } else if (role == "clear") {
                line >> prefix;
                const Port input = port(prefix);
                std::memset(input.data, 0, input.size);
            } else if (role == "memory") {
                line >> std::quoted(prefix) >> space.first;
                space.file = map_file(prefix, true);
            } else if (role == "host") {
                line >> prefix;
                host = std::make_unique<Host>(prefix);
                for (Given* one : {&host->write_address, &host->write_data, &host->read_address})
                    one->pauses = pauses();
                for (Taken* one : {&host->write_response, &host->read_data}) one->pauses = pauses();
            } else {
                line >> prefix;
                if (role == "writes") {
                    auto part = connected<AxiWrites>(prefix);
                    part->words.pauses = pauses();
                    axi.push_back(std::move(part));
                } else {
                    axi.push_back(connected<AxiReads>(prefix));
                }
                line >> axi.back()->name >> axi.back()->bytes;
            }
        }
    }
    void settle(bool high) {
        clock.set(high);
        dut.eval();
    }
    void step() {
        host->drive();
        for (const auto& part : axi) part->drive();
        settle(false);
        host->sample();
        for (const auto& part : axi) part->sample();
        settle(true);
        ++cycle;
    }
    void access() {
        const uint64_t began = cycle;
        while (!host->ended) {
            if (cycle > began + ANSWER) refuse("the registers do not answer");
            step();
        }
    }
    // Wait; without transfers at the memory for too long, the design is stuck.
    void wait(uint64_t cycles) {
        for (uint64_t i = 0; i < cycles; ++i) step();
        uint64_t sum = 0;
        for (const auto& part : axi) sum += part->transfers;
        idle = sum == moved ? idle + cycles : 0;
        moved = sum;
        if (idle > stuck) refuse("cycle " + std::to_string(cycle) + ": no transfer for " + std::to_string(idle) + " cycles");
    }
    void command(const std::string& text) {
        std::istringstream line(text);
        std::string what, name;
        line >> what;
        if (what == "wait") {
            uint64_t cycles;
            line >> cycles;
            wait(cycles);
            std::cout << cycle;
            for (const auto& part : axi) std::cout << part->counts();
        } else if (what == "fail") {
            line >> name;
            for (const auto& part : axi)
                if (part->name == name) line >> part->fails_in >> part->failure;
            std::cout << "-";
        } else {
            uint64_t offset, value = 0;
            line >> offset >> value;
            what == "read" ? host->read(offset) : host->write(offset, value);
            access();
            if (what == "read") std::cout << host->value << " ";
            std::cout << host->code;
        }
        std::cout << std::endl;
    }
};

int main(int argc, char** argv) {
    VerilatedContext context;
    // The initial state is decided when the model is constructed.
    context.commandArgs(argc, argv);
    Vtop dut{&context, ""};
#define ADD(name) ports[#name] = {reinterpret_cast<uint8_t*>(&dut.name), sizeof(dut.name)};
    PORT_LIST(ADD)

    Board board{dut, port("clk")};
    board.configure(argv[1]);
    const Port resets = port("rst");
    resets.set(1);
    for (uint64_t i = 0; i < board.reset; ++i) {
        board.settle(false);
        board.settle(true);
    }
    resets.set(0);
    for (std::string line; std::getline(std::cin, line);) board.command(line);
    dut.final();
    return 0;
}
