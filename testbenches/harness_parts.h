// Ports and streams of a verilated design, and what all models at them share.

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
