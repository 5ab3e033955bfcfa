// Subnormal floating-point numbers, which most processors compute in microcode.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace stridewise {

// Makes the calling thread read and write subnormal numbers as zero, for a scope.
//
// One operation on a subnormal takes 100 to 200 cycles on many processors, so that a product with
// the tail of a softmax takes 30 times as long. Threads that are started in the scope inherit the
// mode (pthread_create(3)).
class SubnormalsFlushed {
  public:
#if defined(__SSE2__)
    SubnormalsFlushed() : previous_(_mm_getcsr()) {
        set(previous_ | kFlushResults | kFlushOperands);
    }
    ~SubnormalsFlushed() { set(previous_); }
#else
    SubnormalsFlushed() = default;
#endif
    SubnormalsFlushed(const SubnormalsFlushed &) = delete;
    SubnormalsFlushed &operator=(const SubnormalsFlushed &) = delete;

#if defined(__SSE2__)
  private:
    // Bits of MXCSR: Intel SDM, volume 1, section 10.2.3.
    static constexpr unsigned kFlushResults = 1U << 15, kFlushOperands = 1U << 6;

    // Writing takes longer than reading.
    static void set(unsigned mode) {
        if (_mm_getcsr() != mode) _mm_setcsr(mode);
    }

    unsigned previous_;
#endif
};

}  // namespace stridewise
