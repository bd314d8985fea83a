// Run operands from files through a verilated operator and write its results to files.
//
// PORTS names a generated header: TOP is the model's class, INPUTS(X) and OUTPUTS(X) list the ports,
// CLOCKED and HAS_ENABLE define which control ports exist. A port file contains one item per vector in
// the type that Verilator uses for the port.
//
// Arguments: number of vectors, latency in enabled cycles, seed of the pauses (0: none), directory.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "verilated.h"
#include PORTS

static std::vector<char> read_file(const std::string& path, size_t bytes) {
    std::vector<char> content(bytes);
    FILE* file = std::fopen(path.c_str(), "rb");
    if (!file || std::fread(content.data(), 1, bytes, file) != bytes) {
        std::fprintf(stderr, "%s holds fewer than %zu bytes\n", path.c_str(), bytes);
        std::exit(1);
    }
    std::fclose(file);
    return content;
}

static void write_file(const std::string& path, const std::vector<char>& content) {
    FILE* file = std::fopen(path.c_str(), "wb");
    if (!file || std::fwrite(content.data(), 1, content.size(), file) != content.size()) {
        std::fprintf(stderr, "cannot write %s\n", path.c_str());
        std::exit(1);
    }
    std::fclose(file);
}

int main(int, char** argv) {
    const size_t vectors = std::strtoull(argv[1], nullptr, 10);
    const size_t latency = std::strtoull(argv[2], nullptr, 10);
    uint64_t pauses = std::strtoull(argv[3], nullptr, 10);
    const std::string directory = std::string(argv[4]) + "/";

    VerilatedContext context;
    TOP dut{&context};

#define DECLARE_INPUT(port) \
    const auto in_##port = read_file(directory + #port + ".in", vectors * sizeof(dut.port));
#define DECLARE_OUTPUT(port) std::vector<char> out_##port(vectors * sizeof(dut.port));
    INPUTS(DECLARE_INPUT)
    OUTPUTS(DECLARE_OUTPUT)

#if CLOCKED
    dut.rst = 0;
#endif
    for (size_t cycle = 0; cycle < vectors + latency;) {
        bool enabled = true;
#if HAS_ENABLE
        if (pauses) {
            pauses ^= pauses << 13;
            pauses ^= pauses >> 7;
            pauses ^= pauses << 17;
            enabled = pauses & 1;
        }
        dut.enable = enabled;
#endif
        // In a disabled cycle the inputs hold the operands of another vector.
        const size_t in = enabled ? (cycle < vectors ? cycle : vectors - 1) : pauses % vectors;
#define DRIVE(port) std::memcpy(&dut.port, &in_##port[in * sizeof(dut.port)], sizeof(dut.port));
        INPUTS(DRIVE)
#if CLOCKED
        dut.clk = 0;
#endif
        dut.eval();
        if (enabled && cycle >= latency) {
            const size_t out = cycle - latency;
#define SAMPLE(port) std::memcpy(&out_##port[out * sizeof(dut.port)], &dut.port, sizeof(dut.port));
            OUTPUTS(SAMPLE)
        }
#if CLOCKED
        dut.clk = 1;
        dut.eval();
#endif
        cycle += enabled;
    }

#define STORE(port) write_file(directory + #port + ".out", out_##port);
    OUTPUTS(STORE)
    dut.final();
    return 0;
}
