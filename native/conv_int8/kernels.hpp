// The inner loops of a convolution of integers of 8 bits with channels last: one table of kernels
// for each instruction set. Files that implement it include no standard templates, for the reason
// in winograd/kernels.hpp.
//
// A row of a window is a row of numbers, whatever the number of channels. Instructions multiply a
// word of them, four bytes or two numbers of 16 bits, by a group of as many weights of each output,
// and add up the products.
#pragma once

#include <cstdint>

#include "post_ops/stages.hpp"
#include "support/byte_groups.hpp"

namespace stridewise {

constexpr std::int64_t kWordBytes = 4;

enum class ElementType : int { f32, u8, s8 };

// The second operand of a stage, at the first pixel and output of the work.
struct ByteConvOperand {
    const void *from;
    ElementType type;
    std::int64_t pixel;  // elements from one pixel to the next; 0 if all have the same numbers
};

// Stages of most residual sums, which are computed in registers: numbers are rounded within bounds,
// and become others, before bytes are added.
struct ByteConvAddition {
    bool rounds;
    float low, high, times, plus;
    int operand;  // index of the stage that adds
};

// Pixels in a row, and the outputs of a panel.
struct ByteConvRow {
    const std::uint8_t *const *rows;  // one per vertical tap, each at the first pixel
    std::int64_t down, words;         // rows of the window, and words of a row
    std::int64_t pixel;               // bytes of the source from one pixel to the next
    std::int64_t count;               // pixels
    const std::uint8_t *weights;      // [row][word][output][number of the word]
    const std::int32_t *start;        // what the sums of each output start with
    const float *factor, *term;       // of each output: sums times factors, plus terms
    const Stage *stages;
    const ByteConvOperand *operands;  // of each stage
    int stage_count;
    const ByteConvAddition *addition;  // what the stages do; or null
    float times, plus;                 // what the stages give, times the first, plus the second
    const ByteBounds *bounds;          // of results of bytes
    ElementType type;                  // of the result
    void *result;
    std::int64_t result_pixel;  // elements from one pixel to the next
    std::int64_t outputs;       // valid ones of the panel
};

// How bytes of the source are copied: without a sign, once some bits are inverted.
struct ByteConvSource {
    std::uint8_t flip, zero;  // the zero point has the same bits inverted
};

struct ByteConvKernels {
    std::int64_t panel;    // outputs of a panel of weights
    std::int64_t numbers;  // of a word
    std::int64_t pixels;   // that are computed together, at most
    // Computes pixels. For panels of which up to half, or more, of the outputs are valid.
    void (*row[2])(const ByteConvRow &row);
    // Groups the weights of a row: `count` for each output of a panel.
    void (*pack)(const std::uint8_t *from, std::int64_t count, std::uint8_t *to);
    // Stores what sums of each output of a panel start with, so that a zero point adds zero. Zero
    // points are subtracted from numbers of 16 bits when these are copied.
    void (*start)(const std::uint8_t *weights, std::int64_t words, std::uint8_t zero,
                  std::int32_t *to);
    // Copies bytes of the source as the numbers of words.
    void (*copy)(const std::uint8_t *from, std::int64_t count, const ByteConvSource &source,
                 std::uint8_t *to);

    // Whether words hold numbers of 16 bits.
    bool widens() const { return numbers < kWordBytes; }
    std::int64_t number_nbytes() const { return kWordBytes / numbers; }
};

const ByteConvKernels &portable_byte_conv();
#ifdef STRIDEWISE_AVX2
const ByteConvKernels &avx2_byte_conv();
const ByteConvKernels &avx512_vnni_byte_conv();
#endif

}  // namespace stridewise
