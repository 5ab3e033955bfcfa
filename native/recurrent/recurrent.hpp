// Recurrent layers (LSTM, GRU, RNN): the steps over the states, given what inputs add to gates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executor/kernel.hpp"
#include "recurrent/kernels.hpp"

namespace stridewise {

class Recurrent : public Kernel {
  public:
    struct Options {
        std::string cell;  // "lstm", "gru" (the reset gate applies to the product), "tanh", "relu"
        std::string direction;                     // "forward", "reverse", "bidirectional"
        bool has_bias = false;                     // DNNL_ARG_BIAS, of a GRU: [direction, units]
        bool has_state = false, has_cell = false;  // initial ones: [direction, rows, units]
        int lanes = 0;  // of vectors: 8 or 16; 0 for those of the best instruction set
        int threads = 0;
        std::string isa;  // "" for the best one
    };

    // `src` is [step, row, direction * gate * unit], `dst` [step, row, direction * unit]; both are
    // float32 and dense. Weights are [direction * gate, unit, unit] in blocks of `lanes` of axis 1.
    Recurrent(const MemoryDesc &src, const MemoryDesc &dst, const Options &options);

    std::string impl() const override { return "recurrent:" + isa_; }
    MemoryDesc arg_desc(int arg) const override;
    std::vector<int> written() const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Data;
    void run(const Data &data, std::int64_t direction, std::int64_t begin, std::int64_t end) const;

    MemoryDesc src_, dst_;
    Options options_;
    std::string isa_;
    std::int64_t directions_, gates_, steps_, rows_, units_;
    void (*step_)(const RecurrentStep &step);
};

}  // namespace stridewise
