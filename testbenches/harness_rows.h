// Elements by key and index in a mapped file, with streams of requests and of writes.

#pragma once

#include "harness_external.h"

// Bits of a payload; an empty field is zero.
struct Bits {
    size_t offset = 0, width = 0;
    uint64_t of(const Port& payload) const { return field(payload.data, offset, width); }
};

struct RowPort : Part {
    // Adjacent elements of a key, each in whole bytes; offset of the first one in a payload.
    struct Plane {
        uint64_t first, each, bytes;
        size_t width, offset;
    };
    Mapped file;
    const uint64_t& cycle;
    Stream stream;
    Bits head, tile, place;
    // A key is the head times the number of tiles plus the tile. A place is the index of `lanes` elements.
    uint64_t tiles = 1, lanes = 1, count = 1;
    std::vector<Plane> planes;

    explicit RowPort(const uint64_t& now) : cycle(now) {}
    std::string counts() const override { return " " + name + "=" + std::to_string(moved); }
    uint64_t key() const { return head.of(stream.payload) * tiles + tile.of(stream.payload); }

    uint64_t moved = 0;
    // Place of the file in the external memory, and the lane of the port in it.
    uint64_t base = 0;
    Reader* reader = nullptr;
    Writer* writer = nullptr;
    // The bytes of each plane that an access to a place moves.
    template <typename Act>
    void ranges(uint64_t key, uint64_t place, const Act& act) const {
        for (const Plane& plane : planes) {
            const uint64_t element = place * lanes;
            if (element >= plane.each) continue;
            const uint64_t number = std::min(lanes, plane.each - element);
            act(base + plane.first + (key * plane.each + element) * plane.bytes, number * plane.bytes);
        }
    }
    template <typename Copy>
    void each(uint64_t key, uint64_t place, const Copy& copy) const {
        for (const Plane& plane : planes) {
            // The last group may have lanes without an element.
            for (uint64_t lane = 0, element = place * lanes; lane < lanes && element < plane.each; ++lane, ++element) {
                const uint64_t at = plane.first + (key * plane.each + element) * plane.bytes;
                if (at + plane.bytes > file.size) refuse(name + " requests key " + std::to_string(key) + ", which does not exist");
                copy(file.lines + at, plane.offset + lane * plane.width, plane.width);
            }
        }
    }
};

// A request reads the elements in its cycle; writes of the same cycle have no effect on it.
struct RowReader : RowPort {
    struct Answer {
        uint64_t due;
        Bytes payload;
        uint64_t ticket = 0;
    };
    Stream answers;
    // A request reads elements from the first one on, those of a place, or all of `count`.
    Bits length;
    size_t latency = 0, limit = 0;
    Pauses answer_pauses;
    std::deque<Answer> waiting;
    bool offered = false;
    using RowPort::RowPort;

    bool present() const {
        if (waiting.empty()) return false;
        return reader ? reader->has(waiting.front().ticket) : waiting.front().due <= cycle;
    }
    void drive() override {
        stream.ready.set(waiting.size() < limit && !pauses.next());
        if (!offered && !answer_pauses.next() && present()) {
            std::memcpy(answers.payload.data, waiting.front().payload.data(), answers.payload.size);
            waiting.pop_front();
            offered = true;
        }
        answers.valid.set(offered);
    }
    void sample() override {
        if (reader && !offered && !waiting.empty() && !present()) reader->miss(answers.ready.high());
        if (stream.valid.high() && stream.ready.high()) {
            ++transfers;
            const uint64_t first = place.of(stream.payload);
            const uint64_t number = length.width ? (length.of(stream.payload) + lanes - 1) / lanes : count;
            for (uint64_t i = 0; i < number; ++i) {
                Bytes payload(answers.payload.size);
                each(key(), first + i, [&](const uint8_t* element, size_t offset, size_t width) {
                    copy_bits(payload.data(), offset, element, 0, width);
                });
                // The latency counts from the next cycle.
                waiting.push_back({cycle + 1 + latency, std::move(payload)});
                if (reader)
                    ranges(key(), first + i, [&](uint64_t from, uint64_t bytes) {
                        waiting.back().ticket = std::max(waiting.back().ticket, reader->fetch(from, bytes));
                    });
            }
        }
        if (offered && answers.ready.high()) {
            offered = false;
            ++transfers;
            ++moved;
        }
    }
    std::string status() const override { return name + " has " + std::to_string(waiting.size()) + " rows to give"; }
};

struct RowWriter : RowPort {
    // Without places, a key's elements are accessed in order.
    std::map<uint64_t, uint64_t> next;
    using RowPort::RowPort;

    void drive() override { stream.ready.set(!pauses.next() && (!writer || writer->open())); }
    void sample() override {
        if (writer && stream.valid.high() && !writer->open()) writer->wait();
        if (!stream.valid.high() || !stream.ready.high()) return;
        ++transfers;
        ++moved;
        uint64_t at = place.of(stream.payload);
        if (!place.width) {
            uint64_t& counted = next[key()];
            at = counted;
            counted = (counted + 1) % count;
        }
        each(key(), at, [&](uint8_t* element, size_t offset, size_t width) {
            copy_bits(element, 0, stream.payload.data, offset, width);
        });
        if (writer) ranges(key(), at, [&](uint64_t to, uint64_t bytes) { writer->put(to, bytes); });
    }
};
