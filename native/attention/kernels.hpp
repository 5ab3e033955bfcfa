// The inner loops of attention: one table for each instruction set. Files that implement it include
// no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

#include "support/bfloat16.hpp"

namespace stridewise {

// Vectors of queries that a group has at most.
constexpr int kMostQueryVectors = 3;

// What is done to scores before their softmax.
enum class ScoreStep { add, multiply, where, where_not };

// Which weights are 0 that are undefined: none, those of rows whose scores are all -inf, or all of
// them, also those of rows with NaN.
enum class Zeroed { none, empty, nan };

// Where the elements of neighboring queries or keys are.
enum class Spread { equal, dense, other };

// The operand of such a step, for a group of queries. Its element for a query and a key is at the
// sum of two offsets.
struct ScoreTerm {
    ScoreStep step;
    Spread row_spread, column_spread;
    bool is_half;      // bfloat16
    float fill;        // of where: what scores become if the operand is not 0; of where_not, if 0
    const void *from;  // the operand of the matrix
    const std::int64_t *rows;     // offset of each query of the group
    const std::int64_t *columns;  // different offsets of keys
    const std::int32_t *places;   // for each key, the number of its offset; null if it is its own
    std::int64_t column_count;    // offsets
    // Scratch: [offset][lane], filled once; if `places` is null, [key of a block][lane].
    float *table;
};

// A group of queries of one matrix, of as many vectors as the loop is for, and the state of its
// softmax. Strides count elements.
struct AttentionGroup {
    const void *queries;
    void *result;
    std::int64_t query_row, query_step;  // from one query to the next; within one
    std::int64_t result_row, result_step;
    std::int64_t count;         // queries; further lanes are unused
    std::int64_t depth, width;  // elements of a query; of a value
    float scale;                // of the scores
    Zeroed zeroed;
    const ScoreTerm *terms;
    std::int64_t term_count;
    float *packed;         // scratch: [element or pair of elements][lane]
    float *sums;           // scratch: [width][lane]
    float *most, *totals;  // scratch: [lane]
};

// A block of keys and values, as words: float32, or pairs of bfloat16 of two elements of a key, or
// of one element of two values. Strides count words.
struct AttentionKeys {
    const float *keys, *values;
    std::int64_t key_row, key_step;      // from one key to the next; within one
    std::int64_t value_row, value_step;  // the same for values or pairs of them
    std::int64_t begin, count;           // keys
    float *scores;                       // scratch: [key][lane]
};

struct AttentionLoops {
    void (*begin)(const AttentionGroup &group);
    void (*attend)(const AttentionGroup &group, const AttentionKeys &keys);
    void (*end)(const AttentionGroup &group);
};

// A copy of rows of keys or values as words.
struct WordCopy {
    const void *from;
    std::int64_t row, step;      // strides of elements
    std::int64_t rows, columns;  // elements
    float *to;
    std::int64_t to_row;  // words
};

struct AttentionKernels {
    // By the number of vectors, less one.
    AttentionLoops of_float32[kMostQueryVectors];
    AttentionLoops of_bfloat16[kMostQueryVectors];
    void (*copy)(const WordCopy &copy);  // of float32
    // Of bfloat16, as of_bfloat16 takes them.
    void (*copy_keys)(const WordCopy &copy);
    void (*copy_values)(const WordCopy &copy);
    bool has_pairs;  // whether of_bfloat16 takes pairs of bfloat16
};

const AttentionKernels &portable_attention_kernels();
#ifdef STRIDEWISE_AVX2
const AttentionKernels &avx2_attention_kernels();
const AttentionKernels &avx512_attention_kernels();
const AttentionKernels &avx512_bf16_attention_kernels();
#endif

}  // namespace stridewise
