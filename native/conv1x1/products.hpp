// Matrix products of pixels and weights, and what follows: the loops that convolutions share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "conv1x1/kernels.hpp"
#include "support/images.hpp"

namespace stridewise {

// The elements that a result is a sum over: channels in float32, or pairs of them in bfloat16. They
// are runs of equal lengths.
struct ProductRuns {
    std::int64_t length;
    std::vector<std::int64_t> offsets;  // from a pixel to each run, in elements
};

// Pixels of results in rows, and some of their outputs.
struct ProductTile {
    const float *source;                    // what the first pixel reads
    std::int64_t source_row, source_pixel;  // elements from one to the next
    std::int64_t source_chunk;              // from one vector of a run to the next
    bool fetches;                           // whether the source is fetched before
    std::int64_t rows, columns;             // pixels
    const float *weights, *weights_end;     // of the first pair, and behind the last
    const float *bias;                      // of the first pair
    std::int64_t result;                    // elements to the first result
    std::int64_t pair, pair_end;            // vectors of outputs
    float *sums;                            // Products::sum_count() elements
};

class Products {
  public:
    // Weights are [pair of vectors][element of a sum][2 * lane]. At most `pixels` are multiplied
    // at once. Padding lanes of blocked results are set to zero.
    Products(const Conv1x1Kernels &kernels, ProductRuns runs, std::int64_t outputs,
             std::int64_t pixels, const ImageStrides &result, bool is_blocked, HalfSides halves);

    const ProductRuns &runs() const { return runs_; }
    std::int64_t panel() const { return panel_; }  // elements of the weights of a pair
    // Elements of sums of a tile of so many pixels.
    std::int64_t sum_count(std::int64_t pixels) const;
    // Computes a tile. Operands of stages have the strides of the result.
    void run(const ProductTile &tile, const std::vector<Stage> &stages, std::byte *result) const;

    // Limit in bytes of the weights of one product. They stay in the second-level cache beside
    // those that are fetched meanwhile.
    static constexpr std::int64_t kDepthBytes = 64 << 10;

  private:
    struct Place;
    struct Loop;
    struct Fetched;
    // The elements of one product.
    struct Depth {
        std::int64_t run, runs;        // the first one, and their number
        std::int64_t channel;          // of the first run
        std::int64_t channels;         // of each run
        std::int64_t weights, chunks;  // elements before, and whole vectors of runs
    };

    void plan_depths();
    void read(const Loop &loop, const Place &here, Fetched &fetched, ExpandProduct &product) const;

    const Conv1x1Kernels *kernels_;
    ProductRuns runs_;
    std::int64_t outputs_, pairs_, panel_, rows_;
    ImageStrides result_;
    bool is_blocked_;
    HalfSides halves_;
    std::vector<Depth> depths_;
};

}  // namespace stridewise
