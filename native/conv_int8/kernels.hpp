// The inner loops of a convolution of integers of 8 bits with channels last: one table of kernels
// for each instruction set. Files that implement it include no standard templates, for the reason
// in winograd/kernels.hpp.
//
// A row of a window is a row of bytes, whatever the number of channels. Instructions multiply four
// of them, a quad, with those of 16 outputs, and add up the products.
#pragma once

#include <cstdint>

#include "post_ops/stages.hpp"
#include "support/byte_groups.hpp"

namespace stridewise {

constexpr std::int64_t kPanel = 32;     // outputs of a panel of weights
constexpr std::int64_t kQuadBytes = 4;  // of a word

enum class ElementType : int { f32, u8, s8 };

// The second operand of a stage, at the first pixel and output of the work.
struct ByteConvOperand {
    const void *from;
    ElementType type;
    std::int64_t pixel;  // elements from one pixel to the next; 0 if all have the same numbers
};

// Pixels in a row, and the outputs of a panel.
struct ByteConvRow {
    const std::uint8_t *const *rows;  // one per vertical tap, each at the first pixel
    std::int64_t down, quads;         // rows of the window, and quads of a row
    std::int64_t pixel;               // bytes of the source from one pixel to the next
    std::int64_t count;               // pixels
    const std::uint32_t *weights;     // [row][quad][output]
    const std::int32_t *start;        // what the sums of each output start with
    const float *factor, *term;       // of each output: sums times factors, plus terms
    const Stage *stages;
    const ByteConvOperand *operands;  // of each stage
    int stage_count;
    float times, plus;         // what the stages give, times the first, plus the second
    const ByteBounds *bounds;  // of results of bytes
    ElementType type;          // of the result
    void *result;
    std::int64_t result_pixel;  // elements from one pixel to the next
    std::int64_t outputs;       // valid ones of the panel
};

struct ByteConvKernels {
    // Computes pixels. For panels with up to 16 and with up to 32 outputs.
    void (*row[2])(const ByteConvRow &row);
    // Stores quads of rows of `outputs` bytes, of which `count` are weights of some quad:
    // [row][16].
    void (*pack)(const std::uint8_t *from, std::int64_t count, std::uint32_t *to);
    // Returns what sums of each output start with, so that a zero point adds zero: quads of it
    // times the weights of a panel, with the opposite sign.
    void (*start)(const std::uint32_t *weights, std::int64_t quads, std::uint8_t zero,
                  std::int32_t *to);
};

const ByteConvKernels &portable_byte_conv();
#ifdef STRIDEWISE_AVX2
const ByteConvKernels &avx512_vnni_byte_conv();
#endif

}  // namespace stridewise
