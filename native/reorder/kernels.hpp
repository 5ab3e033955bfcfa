// The inner loops of a reorder: one table in portable C++ and one for AVX2. Files that implement it
// include no standard templates. They are compiled for other instruction sets, and the linker could
// select their template instances for the whole program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stridewise {

// A matrix transposition: columns are contiguous in the source, rows in the destination. Offsets
// are in bytes.
struct Transposition {
    const std::byte *src;
    const std::byte *next;  // source of the next transposition, to be prefetched; or null
    std::byte *dst;
    const std::int64_t *rows;     // start of each row in the source
    const std::int64_t *columns;  // start of each column in the destination
    std::int64_t row_count;
    std::int64_t column_count;
    std::int64_t zero_rows;  // rows of zeros after the others
    bool is_packed;          // whether groups of sixteen rows are contiguous in the source
    bool by_columns;         // whether to finish a column before the next one
    bool stream;             // streaming stores; every column then starts and ends at a cache line
};

// Runs that are contiguous on both sides. Offsets are in bytes.
struct Runs {
    const std::byte *src;
    const std::byte *next;  // source of the next runs, to be prefetched
    std::byte *dst;
    const std::int64_t *from;  // start of each run in the source
    const std::int64_t *to;    // start of each run in the destination
    std::int64_t count;
    std::int64_t nbytes;
    bool stream;  // past the caches
};

// Runs of float32 with a conversion, each of a multiple of eight elements. Offsets and sizes are in
// bytes. `nbytes` is the size in the destination.
struct ConvertedRuns {
    Runs runs;       // streamed if groups of sixteen elements are aligned to their size
    bool is_paired;  // whether runs have eight elements and pairs of runs are contiguous in the
                     // destination
};

// Quantization: real = (x - src_zero) * src_scale, then round(real / dst_scale) + dst_zero. Each
// array has one entry per index along the axis of the scales, or a single entry.
struct Quantization {
    const float *src_zero;
    const float *src_scale;
    const float *dst_scale;
    const float *dst_zero;
};

// Converts `count` adjacent elements. `quantization` may be null; `step` (0 or 1) is the stride of
// its arrays.
using Convert = void (*)(const std::byte *src, std::byte *dst, std::int64_t count,
                         const Quantization *quantization, std::int64_t step);

constexpr int kWidths = 5;  // elements of 1, 2, 4, 8 and 16 bytes
enum class Element : int { f32, f16, bf16, s8, u8, s32 };
constexpr int kElements = 6;

struct ReorderKernels {
    void (*transpose[kWidths])(const Transposition &);
    // Two to four rows, and columns that are contiguous for sixteen bytes of each row; null if
    // there is no faster kernel than `transpose`.
    void (*interleave[kWidths])(const Transposition &);
    // Two columns, and rows that are contiguous for sixteen bytes of each column; or null.
    void (*separate[kWidths])(const Transposition &);
    void (*copy)(const Runs &);
    void (*fence)();  // makes streaming stores visible to other threads
    Convert convert[kElements][kElements];
    // Transpositions of single float32 elements with a conversion, by destination type. Rows are a
    // multiple of sixteen, without zeros. Null if there is no kernel.
    void (*transpose_f32[kElements])(const Transposition &);
    // Runs of float32 with a conversion, by destination type; null if there is no kernel.
    void (*convert_f32[kElements])(const ConvertedRuns &);
};

const ReorderKernels &portable_reorder_kernels();
#ifdef STRIDEWISE_AVX2
const ReorderKernels &avx2_reorder_kernels();
#endif

}  // namespace stridewise
