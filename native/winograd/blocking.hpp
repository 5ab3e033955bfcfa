// Blocking of a Winograd convolution for reuse of data in the caches.
#pragma once

#include <cstdint>

#include "support/caches.hpp"

namespace stridewise {

// The matrix products: for each of `window` places, tiles x channels by channels x outputs.
struct WinogradWork {
    std::int64_t window;  // places of a tile
    std::int64_t tiles;
    std::int64_t chunks;  // vectors of channels
    std::int64_t pairs;   // pairs of vectors of outputs
    std::int64_t lanes;   // elements of a vector
    std::int64_t rows;    // tiles of one matrix product, at most
    std::int64_t threads;
};

// The dimension of the work that is divided among threads.
enum class WinogradShare : int {
    blocks,   // blocks of tiles: each thread reads all weights
    outputs,  // the outputs of each block: each thread reads the weights of its outputs
    places,   // places of the window x outputs x groups of tiles of each block; the output
              // transform waits for all products
};

struct WinogradBlocking {
    std::int64_t tiles;  // tiles of a block, which are transformed together
    std::int64_t pairs;  // pairs whose products are kept until all places are done; if places are
                         // divided among threads, pairs of one item
    std::int64_t depth;  // chunks of channels whose weights stay in the first-level cache
    WinogradShare share;
    std::int64_t cuts = 1;  // pieces of the groups of a block, if places are divided among threads
};

// The division of the products of a convolution among threads.
struct WinogradPartition {
    double busy;                  // mean work of the threads relative to the busiest thread
    std::int64_t rows;            // tiles of the smallest matrix product of a whole block
    std::int64_t weights_nbytes;  // most bytes of weights that a thread reads for a block
};

WinogradPartition partition_of(const WinogradWork &work, const WinogradBlocking &blocking);

// Returns the blocking with the least time by a model of cache traffic and arithmetic. Results do
// not depend on the blocking, because the terms of every sum keep their order.
WinogradBlocking choose_blocking(const WinogradWork &work, const Caches &caches);

}  // namespace stridewise
