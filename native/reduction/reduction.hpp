// Reductions, softmax and normalizations over any axes, in any format.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/kernel.hpp"
#include "pointwise/pointwise.hpp"
#include "reduction/row_kernels.hpp"
#include "reduction/sweep.hpp"

namespace stridewise {

// Up to two numbers for each result, computed one after the other: the second one knows the first.
class Statistics {
  public:
    // One number: a reduction by a kernel, then a function of the total in double precision.
    struct Pass {
        const ReductionKernel *kernel;
        double (*finish)(double total, double first, double per_term, double epsilon);
    };

    // Throws std::invalid_argument for an unknown algorithm, and what Sweep does.
    Statistics(const std::string &algorithm, const MemoryDesc &source, const MemoryDesc &result,
               double epsilon, const std::string &isa);

    std::size_t count() const { return passes_.size(); }  // of numbers
    std::size_t places() const { return places_; }        // elements of each number's memory
    std::size_t scratch_nbytes() const;
    // Where each number is stored: places() elements, those of the last one of the type of the
    // result that the statistics were made for, all others float32.
    using Numbers = std::array<void *, 2>;
    void run(const void *source, const Numbers &numbers, double *scratch, int threads) const;

  private:
    void run_task(std::int64_t number, const void *source, const Numbers &numbers) const;
    void run_slices(std::size_t pass, const void *source, const Numbers &numbers, double *scratch,
                    int threads) const;
    void finish(std::size_t pass, const Sweep::Task &task, const double *totals,
                const Numbers &numbers) const;
    // What a pass subtracts from elements.
    static const float *shift_of(std::size_t pass, const Numbers &numbers) {
        return pass == 0 ? nullptr : static_cast<const float *>(numbers[0]);
    }

    Sweep sweep_;
    std::vector<Pass> passes_;
    std::size_t places_;
    bool is_half_;  // the result
    double epsilon_;
};

class Reduction : public Kernel {
  public:
    // `algorithm` is one of max, min, sum, mean, mul, l1, l2, sum_square, log_sum and log_sum_exp;
    // the result has the source's extents, but 1 along the axes that go. `isa` is one of
    // pointwise_isas(), "" for the best. Throws std::invalid_argument otherwise.
    Reduction(const std::string &algorithm, const MemoryDesc &source, const MemoryDesc &result,
              int threads, const std::string &isa);

    std::string impl() const override { return "reduction:" + isa_; }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    MemoryDesc source_, result_;
    std::string isa_;
    Statistics statistics_;
    std::shared_ptr<const Walk> padding_;  // of a result in blocks
};

// A tensor as slabs one after the other, each of `width` rows side by side of `count` elements.
struct SideSlabs {
    std::int64_t slabs = 0;  // 0 for another tensor
    std::int64_t count = 0, width = 0;

    // What one thread computes at a time.
    std::int64_t chunks() const { return (width + kSideRows - 1) / kSideRows; }
    std::int64_t units() const { return slabs * chunks(); }
};

// A tensor as images one after the other, each of rows of `width` neighbors. Elements of an image
// that are below each other have the same statistics, scale and shift.
struct Columns {
    std::int64_t images = 0;  // 0 for another tensor
    std::int64_t rows = 0, width = 0;
    std::vector<std::int64_t> starts;                 // of each image among the statistics
    std::vector<std::int64_t> numbers, scale, shift;  // where those of each neighbor are

    // Numbers that are made for all neighbors of an image.
    std::size_t nbytes() const { return static_cast<std::size_t>(3 * width) * sizeof(float); }
};

class Normalization : public Kernel {
  public:
    // What is applied after a normalization: absent, or with extents of the source or 1.
    struct Affine {
        std::vector<MemoryDesc> scale, shift;
    };

    // `algorithm` is one of softmax, log_softmax and norm: (x - mean) / sqrt(variance + epsilon),
    // which alone may have a scale and a shift. `statistics` has the source's extents, but 1 along
    // the axes that are normalized, and is float32. `result` has the format of the source.
    Normalization(const std::string &algorithm, const MemoryDesc &source, const MemoryDesc &result,
                  const MemoryDesc &statistics, const Affine &affine, double epsilon, int threads,
                  const std::string &isa);

    std::string impl() const override { return "normalization:" + isa_; }
    std::size_t scratchpad_nbytes() const override;
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    void run_rows(const std::vector<void *> &data) const;
    void run_sides(const std::vector<void *> &data) const;
    void run_columns(const std::vector<void *> &data, const Statistics::Numbers &numbers,
                     float *scratch) const;
    // Where an element of an argument is stored.
    void *element(const std::vector<void *> &data, std::size_t arg, std::int64_t number) const;
    const float *parameter(const std::vector<void *> &data, int arg) const;
    // Scratch memory that numbers and statistics take.
    std::size_t statistics_nbytes() const;

    std::vector<MemoryDesc> descs_;  // by argument: the source, scale, shift, the destination
    std::string isa_;
    Statistics statistics_;
    Expression expression_;
    const RowKernels *kernels_;
    std::int64_t row_;  // elements of a row if each is a row that is normalized, else 0
    void (*run_rows_)(const DenseRows &rows);
    SideSlabs sides_;
    void (*run_sides_)(const SideRows &rows);
    Columns columns_;
    double epsilon_;
};

}  // namespace stridewise
