// Memories of words in mapped files, with ports of hdl/memory/burst_port.py.

#pragma once

#include "harness_external.h"

// Bandwidth that banks share, in bits per cycle over all their ports. A word that exceeds the current
// credit causes a debt, during which no port transfers: so no port starves, and the average is exact.
struct Channel : Part {
    int64_t bits = 0, credit = 0;
    void drive() override { credit = std::min(credit + bits, bits); }
    void sample() override {}
};

struct ReadPort;

struct Bank {
    Channel* channel = nullptr;
    // Its read ports are served in round-robin order: in a fixed order, the last ones would wait until
    // the first ones are full, and then use only a part of a cycle's credit.
    std::vector<ReadPort*> readers;
    mutable size_t turn = 0;
    bool open() const { return !channel || channel->credit > 0; }
    void pay(size_t bits) const {
        if (channel) channel->credit -= bits;
    }
    Mapped file;
    size_t bytes, latency, limit;
    // Its place in the external memory.
    External* external = nullptr;
    uint64_t base = 0;
    uint8_t* at(uint64_t number) const {
        if (number >= file.size / bytes) refuse("the memory has no word " + std::to_string(number));
        return file.lines + number * bytes;
    }
};

struct BankPort : Part {
    const Bank& bank;
    const uint64_t& cycle;
    Stream requests, words;
    // Widths in bits. A request is an address and a length; a word is followed by the bit `last`.
    size_t address, length, width;
    Pauses word_pauses;
    uint64_t moved = 0;

    BankPort(const Bank& memory, const uint64_t& now) : bank(memory), cycle(now) {}
    std::string counts() const override { return " " + name + "=" + std::to_string(moved); }
    std::pair<uint64_t, uint64_t> request() const {
        const uint8_t* bits = requests.payload.data;
        return {field(bits, 0, address), field(bits, address, length)};
    }
};

struct ReadPort : BankPort {
    struct Burst {
        uint64_t due;
        size_t next;
        Bytes words;
        // Of each word, if the bank is in the external memory.
        std::vector<uint64_t> tickets;
    };
    std::deque<Burst> bursts;
    bool offered = false;
    Reader* reader = nullptr;
    using BankPort::BankPort;

    bool present() const {
        if (bursts.empty()) return false;
        const Burst& burst = bursts.front();
        return reader ? reader->has(burst.tickets[burst.next / bank.bytes]) : burst.due <= cycle;
    }
    // The first port of a bank drives all of them.
    void drive() override {
        const auto& all = bank.readers;
        if (all.front() != this) return;
        const size_t first = bank.turn;
        for (size_t step = 0; step < all.size(); ++step) {
            const size_t place = (first + step) % all.size();
            if (all[place]->serve()) bank.turn = place + 1;
        }
    }
    // Offer a word if there is one; return whether it is a new one.
    bool serve() {
        const bool before = offered;
        requests.ready.set(bursts.size() < bank.limit && !pauses.next());
        while (!offered && !bursts.empty() && bursts.front().next == bursts.front().words.size()) bursts.pop_front();
        if (!offered && bank.open() && !word_pauses.next() && present()) {
            bank.pay(width);
            Burst& burst = bursts.front();
            const Port& payload = words.payload;
            std::memset(payload.data, 0, payload.size);
            copy_bits(payload.data, 0, burst.words.data() + burst.next, 0, width);
            burst.next += bank.bytes;
            if (burst.next == burst.words.size()) payload.data[width / 8] |= 1 << width % 8;
            offered = true;
        }
        words.valid.set(offered);
        return offered && !before;
    }
    void sample() override {
        if (reader && !offered && !bursts.empty() && !present()) reader->miss(words.ready.high());
        if (requests.valid.high() && requests.ready.high()) {
            ++transfers;
            const auto [first, count] = request();
            if (!count) refuse(name + " requests a burst without words");
            bank.at(first + count - 1);
            // Copy the words now: later writes have no effect. The latency counts from the next cycle.
            const uint8_t* from = bank.at(first);
            bursts.push_back({cycle + 1 + bank.latency, 0, Bytes(from, from + count * bank.bytes), {}});
            for (uint64_t word = first; reader && word < first + count; ++word)
                bursts.back().tickets.push_back(reader->fetch(bank.base + word * bank.bytes, bank.bytes));
        }
        if (offered && words.ready.high()) {
            offered = false;
            ++transfers;
            ++moved;
        }
    }
    std::string status() const override {
        return name + " has " + std::to_string(bursts.size()) + " bursts open" + (offered ? " and offers a word" : "");
    }
};

// Words may precede their request.
struct WritePort : BankPort {
    std::deque<std::pair<uint64_t, bool>> addresses;
    std::deque<Bytes> waiting;
    std::string trace;
    std::vector<uint64_t> traced;
    Writer* writer = nullptr;
    using BankPort::BankPort;

    void drive() override {
        requests.ready.set(!pauses.next());
        words.ready.set(bank.open() && !word_pauses.next() && (!writer || writer->open()));
    }
    void sample() override {
        if (writer && words.valid.high() && !writer->open()) writer->wait();
        if (requests.valid.high() && requests.ready.high()) {
            ++transfers;
            const auto [first, count] = request();
            if (!count) refuse(name + " requests a burst without words");
            for (uint64_t n = 0; n < count; ++n) addresses.push_back({first + n, n + 1 == count});
        }
        if (words.valid.high() && words.ready.high()) {
            ++transfers;
            ++moved;
            bank.pay(width);
            waiting.emplace_back(words.payload.data, words.payload.data + words.payload.size);
        }
        while (!addresses.empty() && !waiting.empty()) {
            const auto [number, last] = addresses.front();
            if (field(waiting.front().data(), width, 1) != last) refuse(name + " sets `last` at a wrong word");
            copy_bits(bank.at(number), 0, waiting.front().data(), 0, width);
            traced.insert(traced.end(), {number, cycle});
            if (writer) writer->put(bank.base + number * bank.bytes, bank.bytes);
            addresses.pop_front();
            waiting.pop_front();
        }
    }
    std::string status() const override {
        return name + " lacks " + std::to_string(addresses.size()) + " words";
    }
    void save() override {
        if (trace.empty()) return traced.clear();
        write_numbers(trace, traced);
        traced.clear();
    }
};
