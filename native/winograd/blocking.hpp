// How the work of a Winograd convolution is cut, so that what is read again is still in a cache.
#pragma once

#include <cstdint>

#include "support/caches.hpp"

namespace stridewise {

// What has to be multiplied: for each of `window` places, tiles x channels by channels x outputs.
struct WinogradWork {
    std::int64_t window;  // places of a tile
    std::int64_t tiles;
    std::int64_t chunks;  // vectors of channels
    std::int64_t pairs;   // pairs of vectors of outputs
    std::int64_t lanes;   // elements of a vector
    std::int64_t rows;    // tiles of one matrix product
    std::int64_t threads;
};

struct WinogradBlocking {
    std::int64_t tiles;  // that are transformed together
    std::int64_t pairs;  // whose products are kept until all places of the window are done
    std::int64_t depth;  // chunks of channels whose weights stay in the first-level cache
    bool share_outputs;  // threads share the outputs of each block, else the blocks
};

// The blocking for which a model of the traffic between caches and arithmetic says the least time.
// Results do not depend on it: every sum has its terms in the same order.
WinogradBlocking choose_blocking(const WinogradWork &work, const Caches &caches);

}  // namespace stridewise
