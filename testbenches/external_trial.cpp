// Access the model of the external memory without a design.
//
// The file of the argument contains the settings of the memory, then one access per line: the cycle, the
// name of the port, `read` or `write`, the first byte and the number of bytes. Reads begin in their cycle
// and do not wait for each other. The program prints the cycle in which each read is complete, then the
// counts of the memory.

#include <fstream>
#include <iostream>
#include <sstream>

#include "harness_external.h"

int main(int, char** argv) {
    struct Wanted {
        uint64_t cycle, first, bytes, ticket = 0, done = 0;
        std::string port, kind;
    };
    std::ifstream file(argv[1]);
    std::string text;
    std::getline(file, text);
    std::istringstream settings(text);
    uint64_t cycle = 0;
    External external(cycle, settings);
    std::deque<Wanted> coming;
    std::vector<Wanted> reads;
    for (Wanted one; file >> one.cycle >> one.port >> one.kind >> one.first >> one.bytes;) coming.push_back(one);
    for (size_t done = 0; !coming.empty() || done < reads.size(); ++cycle) {
        external.advance(cycle);
        while (!coming.empty() && coming.front().cycle <= cycle) {
            Wanted& one = coming.front();
            if (one.kind == "write") {
                Writer& writer = external.writer(one.port);
                // A later access waits until the port can accept this one.
                if (!writer.open()) {
                    writer.wait();
                    break;
                }
                writer.put(one.first, one.bytes);
            } else {
                one.ticket = external.reader(one.port).fetch(one.first, one.bytes);
                reads.push_back(one);
            }
            coming.pop_front();
        }
        std::map<std::string, bool> waits;
        done = 0;
        for (Wanted& one : reads) {
            Reader& reader = external.reader(one.port);
            const bool there = reader.has(one.ticket);
            if (there && !one.done) one.done = cycle;
            done += there;
            if (!there && one.cycle < cycle) waits[one.port] = true;
        }
        for (const auto& [port, _] : waits) external.reader(port).miss(true);
    }
    external.save();
    for (const Wanted& one : reads) std::cout << one.done << "\n";
    std::cout << external.counts() << "\n";
    return 0;
}
