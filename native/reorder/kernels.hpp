// The inner loops of a reorder, once in portable C++ and once for AVX2, behind one table.
// Files that implement it include no standard templates: they are compiled for other instruction
// sets, and the linker would be free to use their instances everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stridewise {

// A matrix transposition: columns are contiguous in the source, rows in the destination. Offsets
// are in bytes.
struct Transposition {
    const std::byte *src;
    const std::byte *next;  // the source of the one to come, to be prefetched; or null
    std::byte *dst;
    const std::int64_t *rows;     // per row: where it starts in the source
    const std::int64_t *columns;  // per column: where it starts in the destination
    std::int64_t row_count;
    std::int64_t column_count;
    std::int64_t zero_rows;  // rows of zeros behind the others
    bool is_packed;          // whether rows, sixteen at a time, follow one another in the source
    bool by_columns;         // whether to finish a column before going to the next
    bool stream;             // past the caches; every column then starts and ends at a cache line
};

// Runs that are contiguous on both sides. Offsets are in bytes.
struct Runs {
    const std::byte *src;
    const std::byte *next;  // the source of the runs to come, to be prefetched
    std::byte *dst;
    const std::int64_t *from;  // per run: where it starts in the source
    const std::int64_t *to;    // per run: where it starts in the destination
    std::int64_t count;
    std::int64_t nbytes;
    bool stream;  // past the caches
};

// Runs of float32 that are converted on the way, each to a multiple of eight elements. Offsets and
// sizes are in bytes, `nbytes` of the destination.
struct ConvertedRuns {
    Runs runs;       // streamed where every sixteen elements are aligned to their size
    bool is_paired;  // whether runs are of eight elements, and every second one continues the first
};

// How values become other values: real = (x - src_zero) * src_scale, then
// round(real / dst_scale) + dst_zero. Each array has one entry for each index along the axis of
// the scales, or one entry alone.
struct Quantization {
    const float *src_zero;
    const float *src_scale;
    const float *dst_scale;
    const float *dst_zero;
};

// Converts `count` neighbors. `quantization` may be null; its arrays advance by `step` (0 or 1).
using Convert = void (*)(const std::byte *src, std::byte *dst, std::int64_t count,
                         const Quantization *quantization, std::int64_t step);

constexpr int kWidths = 5;  // elements of 1, 2, 4, 8 and 16 bytes
enum class Element : int { f32, f16, bf16, s8, u8, s32 };
constexpr int kElements = 6;

struct ReorderKernels {
    void (*transpose[kWidths])(const Transposition &);
    // Two or four rows, and columns that follow one another for sixteen bytes of each row; null
    // where there is nothing better than the above.
    void (*interleave[kWidths])(const Transposition &);
    // Two columns, and rows that follow one another for sixteen bytes of each column; or null.
    void (*separate[kWidths])(const Transposition &);
    void (*copy)(const Runs &);
    void (*fence)();  // makes streamed bytes visible to other threads
    Convert convert[kElements][kElements];
    // Transpositions of single float32 elements that are converted on the way, by the type that
    // they become; rows in multiples of sixteen, no zeros. Null where there are none.
    void (*transpose_f32[kElements])(const Transposition &);
    // Runs of float32, by the type that they become; null where there are none.
    void (*convert_f32[kElements])(const ConvertedRuns &);
};

const ReorderKernels &portable_reorder_kernels();
#ifdef STRIDEWISE_AVX2
const ReorderKernels &avx2_reorder_kernels();
#endif

}  // namespace stridewise
