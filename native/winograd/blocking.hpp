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

// What the threads share out among themselves.
enum class WinogradShare : int {
    blocks,   // blocks of tiles: each thread reads all weights
    outputs,  // the outputs of each block: each thread reads the weights of its outputs
    places,   // places of the window x outputs x groups of tiles of each block; the output
              // transform waits for all products
};

struct WinogradBlocking {
    std::int64_t tiles;  // that are transformed together
    std::int64_t pairs;  // whose products are kept until all places of the window are done, or that
                         // are one item where places are shared out
    std::int64_t depth;  // chunks of channels whose weights stay in the first-level cache
    WinogradShare share;
    std::int64_t cuts = 1;  // of the groups of a block where places are shared out
};

// How the products of a convolution are divided among threads.
struct WinogradPartition {
    double busy;                  // the mean share of a block's products of the busiest thread's
    std::int64_t rows;            // of the smallest matrix product of a whole block
    std::int64_t weights_nbytes;  // that one thread reads for a block, at most
};

WinogradPartition partition_of(const WinogradWork &work, const WinogradBlocking &blocking);

// The blocking for which a model of the traffic between caches and arithmetic says the least time.
// Results do not depend on it: every sum has its terms in the same order.
WinogradBlocking choose_blocking(const WinogradWork &work, const Caches &caches);

}  // namespace stridewise
