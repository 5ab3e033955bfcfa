// The inner loops of recurrent layers: one table for each instruction set. Files that implement it
// include no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include <cstdint>

namespace stridewise {

// One step of one direction, for rows of a batch.
struct RecurrentStep {
    // What inputs add to the gates, biases included; gate `g` starts at `g * units`.
    const float *gates;
    std::int64_t gates_stride;  // from one row to the next
    // [gate][block of lanes][state][lane]; lanes beyond the units are zero.
    const float *weights;
    const float *bias;    // of the product for the new state of a GRU; null for zero
    const float *before;  // the state of the step before; null for zero
    std::int64_t before_stride;
    float *after;  // the state
    std::int64_t after_stride;
    float *cell;  // of an LSTM, updated
    std::int64_t cell_stride;
    std::int64_t rows, units;
};

struct RecurrentKernels {
    void (*lstm)(const RecurrentStep &step);
    void (*gru)(const RecurrentStep &step);
    void (*tanh)(const RecurrentStep &step);
    void (*relu)(const RecurrentStep &step);
};

const RecurrentKernels &portable_recurrent_kernels(int lanes);
#ifdef STRIDEWISE_AVX2
const RecurrentKernels &avx2_recurrent_kernels();
const RecurrentKernels &avx512_recurrent_kernels();
#endif

}  // namespace stridewise
