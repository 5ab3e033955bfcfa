// The steps of recurrent layers for vectors of N lanes.
//
// It includes no standard templates, for the reason in winograd/kernels.hpp.
#pragma once

#include "recurrent/kernels.hpp"
#include "support/vectors.hpp"

namespace stridewise {
namespace {

// The new values of one vector of units of one row, from the sums of the products with the state.
// Each has the number of gates.
template <int N>
struct LstmCell {
    static constexpr int kGates = 4;  // input, output, forget, cell
    using L = Lanes<N>;
    using V = typename L::V;

    static inline V next(const RecurrentStep &step, std::int64_t row, std::int64_t unit,
                         std::int64_t count, const V *sums) {
        const float *gates = step.gates + row * step.gates_stride + unit;
        V given[kGates];
#pragma GCC unroll 4
        for (int g = 0; g < kGates; ++g) {
            given[g] = L::load_some(gates + g * step.units, count) + sums[g];
        }
        float *cell = step.cell + row * step.cell_stride + unit;
        const V kept = L::logistic(given[2]) * L::load_some(cell, count);
        const V state = kept + L::logistic(given[0]) * L::tangent(given[3]);
        L::store_some(cell, state, count);
        return L::logistic(given[1]) * L::tangent(state);
    }
};

template <int N>
struct GruCell {
    static constexpr int kGates = 3;  // update, reset, new state
    using L = Lanes<N>;
    using V = typename L::V;

    static inline V next(const RecurrentStep &step, std::int64_t row, std::int64_t unit,
                         std::int64_t count, const V *sums) {
        const float *gates = step.gates + row * step.gates_stride + unit;
        const V update = L::logistic(L::load_some(gates, count) + sums[0]);
        const V reset = L::logistic(L::load_some(gates + step.units, count) + sums[1]);
        V product = sums[2];
        if (step.bias != nullptr) product += L::load_some(step.bias + unit, count);
        const V fresh = L::tangent(L::load_some(gates + 2 * step.units, count) + reset * product);
        V before{};
        if (step.before != nullptr) {
            before = L::load_some(step.before + row * step.before_stride + unit, count);
        }
        return fresh + update * (before - fresh);
    }
};

template <int N>
struct TanhCell {
    static constexpr int kGates = 1;
    using L = Lanes<N>;
    using V = typename L::V;

    static inline V next(const RecurrentStep &step, std::int64_t row, std::int64_t unit,
                         std::int64_t count, const V *sums) {
        const float *gates = step.gates + row * step.gates_stride + unit;
        return L::tangent(L::load_some(gates, count) + sums[0]);
    }
};

template <int N>
struct ReluCell {
    static constexpr int kGates = 1;
    using L = Lanes<N>;
    using V = typename L::V;

    static inline V next(const RecurrentStep &step, std::int64_t row, std::int64_t unit,
                         std::int64_t count, const V *sums) {
        const float *gates = step.gates + row * step.gates_stride + unit;
        return L::larger(V{}, L::load_some(gates, count) + sums[0]);
    }
};

// ROWS rows by BLOCKS vectors of units. Every sum is taken in the order of the state, whatever the
// number of rows and blocks.
template <int N, typename Cell, int ROWS, int BLOCKS>
inline void recurrent_tile(const RecurrentStep &step, std::int64_t row, std::int64_t block) {
    using L = Lanes<N>;
    using V = typename L::V;
    constexpr int kGates = Cell::kGates, kSums = BLOCKS * kGates;
    const std::int64_t blocks = (step.units + N - 1) / N, panel = step.units * N;
    V sums[ROWS][kSums] = {};
    if (step.before != nullptr) {
        const float *state = step.before + row * step.before_stride;
        const float *weights = step.weights + block * panel;
        for (std::int64_t k = 0; k < step.units; ++k) {
#pragma GCC unroll 8
            for (int at = 0; at < kSums; ++at) {
                const int b = at / kGates, g = at % kGates;
                const V weight = L::load(weights + (g * blocks + b) * panel + k * N);
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; ++r) {
                    sums[r][at] += L::spread(state + r * step.before_stride + k) * weight;
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 2
        for (int b = 0; b < BLOCKS; ++b) {
            const std::int64_t unit = (block + b) * N;
            const std::int64_t left = step.units - unit, count = left < N ? left : N;
            const V found = Cell::next(step, row + r, unit, count, sums[r] + b * kGates);
            L::store_some(step.after + (row + r) * step.after_stride + unit, found, count);
        }
    }
}

// SUMS vectors of sums fit into the registers.
template <int N, template <int> class CellOf, int SUMS>
void recurrent_step(const RecurrentStep &step) {
    using Cell = CellOf<N>;
    constexpr int kMost = SUMS / Cell::kGates, kRows = kMost < 6 ? kMost : 6;
    const std::int64_t blocks = (step.units + N - 1) / N;
    if (step.rows == 1) {  // more vectors of units, as each sum waits for the one before
        std::int64_t block = 0;
        for (; block + 2 <= blocks; block += 2) recurrent_tile<N, Cell, 1, 2>(step, 0, block);
        if (block < blocks) recurrent_tile<N, Cell, 1, 1>(step, 0, block);
        return;
    }
    for (std::int64_t block = 0; block < blocks; ++block) {
        std::int64_t row = 0;
        for (; row + kRows <= step.rows; row += kRows) {
            recurrent_tile<N, Cell, kRows, 1>(step, row, block);
        }
        for (; row + 2 <= step.rows; row += 2) recurrent_tile<N, Cell, 2, 1>(step, row, block);
        if (row < step.rows) recurrent_tile<N, Cell, 1, 1>(step, row, block);
    }
}

template <int N, int SUMS>
constexpr RecurrentKernels kRecurrentKernels = {
    recurrent_step<N, LstmCell, SUMS>,
    recurrent_step<N, GruCell, SUMS>,
    recurrent_step<N, TanhCell, SUMS>,
    recurrent_step<N, ReluCell, SUMS>,
};

}  // namespace
}  // namespace stridewise
