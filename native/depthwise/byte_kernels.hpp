// The inner loops of a depthwise convolution of integers of 8 bits, for groups of 32 channels: one
// table of kernels for each instruction set. Files that implement it include no standard templates,
// for the reason in winograd/kernels.hpp.
//
// Instructions multiply quads of bytes and add up the products. So each pixel becomes a quad: its
// own byte and those of the pixels that the next three taps of a row of the window read. Words of a
// group are in the order of word_of().
//
// Where quads have more bytes than the window has taps, several neighboring results read the same
// quads, each with weights that are shifted by a stride: its phase.
#pragma once

#include <cstdint>

#include "post_ops/stages.hpp"
#include "support/byte_groups.hpp"

namespace stridewise {

constexpr std::int64_t kQuad = 4;

// Where the channels of a group lie: in pieces of some channels.
struct GroupPixels {
    std::int64_t pixel;     // elements from one pixel to the next
    std::int64_t piece;     // channels of a piece
    std::int64_t next;      // elements from one piece to the next
    std::int64_t channels;  // valid ones
};

// A row of the source of a group of channels, and the positions of padding around it.
struct ByteRow : GroupPixels {
    const std::uint8_t *from, *end;  // the first pixel; the end of the tensor
    std::int64_t row;                // bytes from one row to the next
    std::int64_t before, count;      // positions of padding before the pixels; pixels
    std::int64_t positions;          // that are read
    std::int64_t taps;               // of a quad that have weights of a phase
    std::int64_t step;               // from one position with a quad to the next
    std::int64_t dilation;           // pixels from one tap to the next
    std::uint8_t flip;               // bits of each byte that are inverted
    const std::uint8_t *outside;     // a group of padding
    std::uint32_t *to;               // [position][word]
};

// Weights of a group of channels.
struct ByteWeights {
    const std::uint8_t *from;     // [tap][channel]
    std::int64_t rows, taps;      // of the window
    std::int64_t quads;           // of a row of the window
    std::int64_t stride;          // taps from one phase to the next
    const std::uint8_t *zeros;    // a group of zeros
    const std::uint32_t *padded;  // [word]: a quad of padding
    std::uint32_t *to;            // [row][quad][phase][word]
    std::int32_t *start;          // [word]: what sums start with, so that padding adds zero
};

// What numbers of a group of channels are multiplied by, and then added.
struct ByteLinear {
    float factor[kGroup], term[kGroup];  // [word]
};

// One row of results of a group of channels. Operands of stages have a word for each channel.
struct ByteDepthwiseRow : GroupPixels {
    void *result;
    std::int64_t count;                // results
    bool blocked;                      // channels that are not valid are set to zero
    const std::uint32_t *const *rows;  // one per vertical tap, each at the first result's position
    std::int64_t down;                 // taps of a column of the window
    std::int64_t quads;                // of a row of the window
    std::int64_t stride;               // words from the quads of some results to those of the next
    std::int64_t ahead;                // words from a quad of taps to the next
    const std::uint32_t *weights;      // [row][quad][phase][word]
    const std::int32_t *start;         // [word]
    const ByteLinear *real;            // of sums
    const ByteLinear *after;           // of whole numbers between two limits; nullptr: none
    float low, high;
    const Stage *stages;
    int stage_count;
    std::int64_t offset;       // of the group in the operands of stages
    float times;               // of what the stages give
    const ByteBounds *bounds;  // of results of bytes
};

struct ByteDepthwiseKernels {
    std::int64_t phases;
    void (*gather)(const ByteRow &row);
    void (*pack)(const ByteWeights &weights);
    void (*row)(const ByteDepthwiseRow &row);
};

// Returns the kernels for some quads of a row of a window and up to 1, 2 or 4 phases, with results
// of float32 or of bytes.
const ByteDepthwiseKernels &portable_byte_depthwise(std::int64_t quads, std::int64_t phases,
                                                    bool is_float);
#ifdef STRIDEWISE_AVX2
const ByteDepthwiseKernels &avx2_byte_depthwise(std::int64_t quads, std::int64_t phases,
                                                bool is_float);
const ByteDepthwiseKernels &avx512_vnni_byte_depthwise(std::int64_t quads, std::int64_t phases,
                                                       bool is_float);
#endif

}  // namespace stridewise
