// Memories of words in mapped files, behind the ports of hdl/memory/burst_port.py.

#pragma once

#include "harness_parts.h"

// What banks share: so many bits a cycle, of all their ports together. A word that is wider than what
// is there leaves a debt, until which is paid no port moves: so none waits for ever, and the mean is kept.
struct Channel : Part {
    int64_t bits = 0, credit = 0;
    void drive() override { credit = std::min(credit + bits, bits); }
    void sample() override {}
};

struct Bank {
    Channel* channel = nullptr;
    bool open() const { return !channel || channel->credit > 0; }
    void pay(size_t bits) const {
        if (channel) channel->credit -= bits;
    }
    Mapped file;
    size_t octets, latency, limit;
    uint8_t* at(uint64_t number) const {
        if (number >= file.size / octets) refuse("the memory has no word " + std::to_string(number));
        return file.lines + number * octets;
    }
};

struct BankPort : Part {
    const Bank& bank;
    const uint64_t& cycle;
    Stream requests, words;
    // In bits; a request is an address and a length, a word is followed by the bit that ends a burst.
    size_t address, length, width;
    Pauses word_pauses;
    uint64_t moved = 0;

    BankPort(const Bank& behind, const uint64_t& now) : bank(behind), cycle(now) {}
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
        Octets words;
    };
    std::deque<Burst> bursts;
    bool offered = false;
    using BankPort::BankPort;

    void drive() override {
        requests.ready.set(bursts.size() < bank.limit && !pauses.next());
        while (!offered && !bursts.empty() && bursts.front().next == bursts.front().words.size()) bursts.pop_front();
        if (!offered && bank.open() && !word_pauses.next() && !bursts.empty() && bursts.front().due <= cycle) {
            bank.pay(width);
            Burst& burst = bursts.front();
            const Port& payload = words.payload;
            std::memset(payload.data, 0, payload.size);
            copy_bits(payload.data, 0, burst.words.data() + burst.next, 0, width);
            burst.next += bank.octets;
            if (burst.next == burst.words.size()) payload.data[width / 8] |= 1 << width % 8;
            offered = true;
        }
        words.valid.set(offered);
    }
    void sample() override {
        if (requests.valid.high() && requests.ready.high()) {
            ++transfers;
            const auto [first, count] = request();
            if (!count) refuse(name + " asks for no word");
            bank.at(first + count - 1);
            // As it is now: what is written later is not seen. Counted from the next cycle on.
            const uint8_t* from = bank.at(first);
            bursts.push_back({cycle + 1 + bank.latency, 0, Octets(from, from + count * bank.octets)});
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

// Words may come before their request.
struct WritePort : BankPort {
    std::deque<std::pair<uint64_t, bool>> addresses;
    std::deque<Octets> waiting;
    std::string trace;
    std::vector<uint64_t> traced;
    using BankPort::BankPort;

    void drive() override {
        requests.ready.set(!pauses.next());
        words.ready.set(bank.open() && !word_pauses.next());
    }
    void sample() override {
        if (requests.valid.high() && requests.ready.high()) {
            ++transfers;
            const auto [first, count] = request();
            if (!count) refuse(name + " asks for no word");
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
            if (field(waiting.front().data(), width, 1) != last) refuse(name + " ends a burst at another word");
            copy_bits(bank.at(number), 0, waiting.front().data(), 0, width);
            traced.insert(traced.end(), {number, cycle});
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
