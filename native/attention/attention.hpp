// Attention: softmax(scale queries keys' + ...) values, without scores in memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/kernels.hpp"
#include "executor/kernel.hpp"

namespace stridewise {

class Attention : public Kernel {
  public:
    static constexpr std::size_t kMostSteps = 8;

    struct Step {
        std::string name;  // "add", "mul", "where", "where_not"
        float fill;        // see ScoreTerm
        MemoryDesc operand;
    };

    struct Options {
        float scale = 1.0F;  // of the scores, before all steps
        std::vector<Step> steps;
        Dims query_axes, key_axes;  // of operands of steps; products are the numbers of both
        std::string zeroed;         // which undefined weights are 0: "" for none, "empty", "nan"
        int threads = 0;
        std::string isa;  // one of kernel_isas(), "" for the best
    };

    // All tensors are float32 or bfloat16, in any strides. `queries` are [batch axes, query,
    // depth], `keys` [batch axes, key, depth], `values` [batch axes, key, width] and `dst` [batch
    // axes, query, width]; batch axes may have extent 1 for all but `dst`. Operands of steps are
    // [batch axes, query axes, key axes], and any of their extents may be 1.
    Attention(const MemoryDesc &queries, const MemoryDesc &keys, const MemoryDesc &values,
              const MemoryDesc &dst, const Options &options);

    std::string impl() const override { return "attention:" + isa_; }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    // Queries, keys, values, result.
    static constexpr std::size_t kTensors = 4;
    // Groups of queries of one task, for which keys and values are copied once.
    static constexpr std::int64_t kMostGroups = 5;

    struct Tensor {
        Dims batch;              // strides along the batch axes, 0 where it is broadcast
        std::int64_t row, step;  // strides of both axes of the matrices
    };

    // The operand of a step.
    struct Term {
        ScoreTerm term;  // without addresses
        Dims batch;
        std::vector<std::int64_t> rows, columns;
        std::vector<std::int32_t> places;
    };

    struct Group;
    struct Scratch;
    struct Task;

    Term term_of(const Step &step, const Dims &query_axes, const Dims &key_axes) const;
    void choose_kernels(const std::string &isa);
    void choose_tasks();
    std::int64_t floats_per_group() const;
    std::int64_t floats_per_thread() const;
    std::int64_t offset(const Dims &strides, std::int64_t matrix) const;
    void run(const Task &task) const;
    void fill(const Task &task, std::int64_t number, Scratch &scratch, float *const *tables,
              Group &group) const;

    std::vector<MemoryDesc> descs_;  // queries, keys, values, dst; then operands of steps
    std::array<Tensor, kTensors> tensors_;
    std::vector<Term> terms_;
    Dims batch_;
    std::int64_t matrices_ = 1, queries_, keys_, depth_, width_;
    float scale_;
    Zeroed zeroed_;
    bool is_half_;

    std::string isa_;
    int lanes_ = 0;
    const AttentionKernels *kernels_ = nullptr;
    const AttentionLoops *loops_ = nullptr;
    bool copies_keys_ = false, copies_values_ = false;
    std::int64_t words_ = 0;  // of a query or key
    std::int64_t keys_at_once_ = 0;
    std::int64_t groups_ = 0, tasks_ = 0;  // of one matrix
};

}  // namespace stridewise
