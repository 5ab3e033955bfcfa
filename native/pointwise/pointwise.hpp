// Expressions of elementwise operators with any broadcast, in any format, in one pass over memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"
#include "pointwise/kernels.hpp"
#include "pointwise/walk.hpp"

namespace stridewise {

// One operation of an expression. Operands are numbers: of sources, then of literals, then of the
// results of earlier steps.
struct PointwiseStep {
    std::string name;
    std::vector<int> operands;
    float alpha, beta;
};

// Steps over vectors of elements that stay in the first-level cache: each reads and writes all
// elements of a part of the tensor before the next one does.
class Expression {
  public:
    static constexpr std::size_t kMostSources = 8, kMostLiterals = 16, kMostSteps = 16;

    // `grids` are those of all sources and of the result, which count for integers; none where
    // nothing is stored as integers. `isa` is one of pointwise_isas(), "" for the best. Throws
    // std::invalid_argument for unknown operations and operands, and what Walk refuses.
    Expression(const std::vector<PointwiseStep> &steps, std::vector<float> literals,
               const MemoryDesc &result, const std::vector<MemoryDesc> &sources,
               const std::vector<Grid> &grids, const std::string &isa);

    const std::string &isa() const { return isa_; }
    // Computes part `part` of `parts`. The result may lie where a source of its format and element
    // type does.
    void run(const void *const *sources, void *result, int part, int parts) const;

  private:
    // Elements of a part at most, and at most while vectors of many steps share a cache.
    static constexpr std::int64_t kPart = 1024, kShort = 512;

    struct Bound {
        void (*run)(const PointwiseLoop &loop);
        int operands[3];
        float alpha, beta;
    };
    struct Registers;
    // How a source is read: in its place, as one number, or copied in the order of the result.
    enum class Reading { whole, scalar, copied };

    // How elements are stored.
    enum class Type { f32, bf16, s8, u8 };

    struct Element {
        Type type;
        Grid grid;
    };

    struct Source {
        Reading reading;
        Element element;
        std::int64_t span;  // elements of the result in which all parts read the same; 0 for none
    };

    static Element element_of(const MemoryDesc &desc, const std::vector<Grid> &grids,
                              std::size_t at);
    // Chooses the size of parts so that copied operands repeat with them.
    void choose_part();
    void bind(const std::vector<PointwiseStep> &steps);
    // Lets the loops that load and store integers compute the first and the last steps.
    void join_steps(const std::vector<PointwiseStep> &steps);
    // Converts dense elements.
    void widen(const Element &element, const void *from, float *to, std::int64_t count) const;
    // The elements of a source in a part of the tensor; copied to `vector` where they are not used
    // in their place.
    const float *read(std::size_t at, const void *from, std::int64_t begin, std::int64_t count,
                      float *vector) const;
    // Whether the vector of a source holds its elements in a part already; notes what it will hold.
    bool is_held(Registers &registers, std::size_t at, std::int64_t begin,
                 std::int64_t count) const;
    void store(const Registers &registers, void *result, std::int64_t begin,
               std::int64_t count) const;
    // Prepares factors and terms for run_affine; whether all are finite.
    bool fold(Registers &registers, std::int64_t count) const;
    // Computes a part of what is_affine_ says.
    void run_affine(const Registers &registers, const void *source, void *result,
                    std::int64_t begin, std::int64_t count) const;
    void run_part(Registers &registers, const void *const *sources, void *result,
                  std::int64_t begin, std::int64_t count) const;

    std::string isa_;
    Walk walk_;
    const Bfloat16Loops *halves_;
    const ByteLoops *bytes_;
    std::vector<Source> sources_;
    Element result_;
    std::int64_t part_ = kPart;
    std::vector<float> literals_;
    std::vector<Bound> steps_;
    StoredOperation stored_{StoredOperation::none, false};
    int last_ = 0, other_ = 0;  // the operands of what is stored
    int multiplied_ = -1;       // the source that the first step multiplies as integers
    bool is_affine_ = false;    // whether that product and a sum are all there is to compute
};

class Pointwise : public Kernel {
  public:
    Pointwise(const std::vector<PointwiseStep> &steps, std::vector<float> literals,
              const std::vector<MemoryDesc> &sources, const MemoryDesc &result,
              const std::vector<Grid> &grids, int threads, const std::string &isa);

    std::string impl() const override { return "pointwise:" + expression_.isa(); }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    std::vector<MemoryDesc> sources_;
    MemoryDesc result_;
    Expression expression_;
};

// Throws std::invalid_argument unless all are float32 or bfloat16 in known formats.
void check_pointwise(const std::vector<MemoryDesc> &descs);
bool is_half(const MemoryDesc &desc);
bool has_halves(const std::vector<MemoryDesc> &descs);
// The instruction sets with kernels that this processor has and the library may use, best first;
// those for bfloat16 tensors where there are some.
std::vector<std::string> pointwise_isas(bool halves);
// That name, or the best of pointwise_isas() for ""; std::invalid_argument where it has no kernels.
std::string known_isa(const std::string &isa, bool halves);

}  // namespace stridewise
