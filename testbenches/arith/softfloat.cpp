// Apply a SoftFloat function to arrays of operands; its structures of one word are passed as that word.

#include <cstddef>
#include <cstdint>

template <typename Result, typename A, typename B = A, typename C = A>
static void apply(void* function, size_t n, const A* a, const B* b, const C* c, Result* result) {
    if (c) {
        auto f = reinterpret_cast<Result (*)(A, B, C)>(function);
        for (size_t i = 0; i < n; i++) result[i] = f(a[i], b[i], c[i]);
    } else if (b) {
        auto f = reinterpret_cast<Result (*)(A, B)>(function);
        for (size_t i = 0; i < n; i++) result[i] = f(a[i], b[i]);
    } else {
        auto f = reinterpret_cast<Result (*)(A)>(function);
        for (size_t i = 0; i < n; i++) result[i] = f(a[i]);
    }
}

#define WORD(bits) uint##bits##_t
#define APPLY(from, to)                                                                        \
    extern "C" void apply_##from##_##to(void* function, size_t n, const WORD(from) * a,        \
                                        const WORD(from) * b, const WORD(from) * c,            \
                                        WORD(to) * result) {                                   \
        apply(function, n, a, b, c, result);                                                   \
    }

APPLY(16, 16)
APPLY(16, 32)
APPLY(32, 16)
APPLY(32, 32)
APPLY(16, 8)
APPLY(32, 8)
