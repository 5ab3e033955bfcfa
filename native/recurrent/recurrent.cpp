#include "recurrent/recurrent.hpp"

#include <algorithm>
#include <cstring>

#include "isa/choice.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

constexpr int kStateArg = DNNL_ARG_SRC_1, kCellArg = DNNL_ARG_SRC_2, kLastCellArg = DNNL_ARG_DST_1;
// Rows that one task should have at least, so that it reads its weights for several rows.
constexpr std::int64_t kFewestRows = 6;

const RecurrentKernels &kernels_of(const std::string &isa, int lanes) {
#ifdef STRIDEWISE_AVX2
    if (isa == "avx512") return avx512_recurrent_kernels();
    if (isa == "avx2") return avx2_recurrent_kernels();
#endif
    return portable_recurrent_kernels(lanes);
}

bool is_dense(const MemoryDesc &desc) {
    return !desc.is_any() && desc.dtype() == "f32" && desc.dims().size() == 3 &&
           desc.offset() == 0 && desc.extent() == desc.nbytes();
}

}  // namespace

struct Recurrent::Data {
    const float *gates, *weights;
    const float *bias = nullptr, *state = nullptr, *cell = nullptr;
    float *result, *last_cell = nullptr;
};

Recurrent::Recurrent(const MemoryDesc &src, const MemoryDesc &dst, const Options &options)
    : Kernel(options.threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS}),
      src_(src),
      dst_(dst),
      options_(options),
      directions_(options.direction == "bidirectional" ? 2 : 1),
      gates_(1),
      step_(nullptr) {
    require(is_dense(src) && is_dense(dst),
            "recurrent: expected dense tensors of f32 with three axes, got " + src.repr() +
                " and " + dst.repr());
    require(options.direction == "forward" || options.direction == "reverse" || directions_ == 2,
            "recurrent: expected a direction, got " + options.direction);
    if (options.lanes == 0) options_.lanes = kernel_isas(16).front() == "portable" ? 8 : 16;
    const auto known = kernel_isas(options_.lanes);
    isa_ = options.isa.empty() ? known.front() : options.isa;
    require(std::find(known.begin(), known.end(), isa_) != known.end(),
            "recurrent: there are no " + isa_ + " kernels here");
    const RecurrentKernels &kernels = kernels_of(isa_, options_.lanes);
    const std::string &cell = options.cell;
    if (cell == "lstm") step_ = kernels.lstm, gates_ = 4;
    if (cell == "gru") step_ = kernels.gru, gates_ = 3;
    if (cell == "tanh") step_ = kernels.tanh;
    if (cell == "relu") step_ = kernels.relu;
    require(step_ != nullptr, "recurrent: expected lstm, gru, tanh or relu, got " + cell);
    steps_ = dst.dims()[0];
    rows_ = dst.dims()[1];
    units_ = dst.dims()[2] / directions_;
    require(src.dims() == Dims({steps_, rows_, directions_ * gates_ * units_}) && units_ >= 1 &&
                units_ * directions_ == dst.dims()[2] && steps_ >= 1 && rows_ >= 1,
            "recurrent: expected as many units in " + src.repr() + " as in " + dst.repr());
    require((cell == "gru" || !options.has_bias) && (cell == "lstm" || !options.has_cell),
            "recurrent: expected a bias of gru, and a cell of lstm only");
    if (options.has_bias) args_.push_back(DNNL_ARG_BIAS);
    if (options.has_state) args_.push_back(kStateArg);
    if (options.has_cell) args_.push_back(kCellArg);
    args_.push_back(DNNL_ARG_DST);
    if (cell == "lstm") args_.push_back(kLastCellArg);
}

MemoryDesc Recurrent::arg_desc(int arg) const {
    require(takes(arg), "recurrent: there is no argument " + std::to_string(arg));
    if (arg == DNNL_ARG_SRC) return src_;
    if (arg == DNNL_ARG_DST) return dst_;
    if (arg == DNNL_ARG_BIAS) return MemoryDesc({directions_, units_}, "f32", "ab");
    if (arg == DNNL_ARG_WEIGHTS) {
        const std::string tag = options_.lanes == 16 ? "aBc16b" : "aBc8b";
        return MemoryDesc({directions_ * gates_, units_, units_}, "f32", tag);
    }
    return MemoryDesc({directions_, rows_, units_}, "f32", "abc");
}

std::vector<int> Recurrent::written() const {
    if (options_.cell == "lstm") return {DNNL_ARG_DST, kLastCellArg};
    return {DNNL_ARG_DST};
}

// Runs all steps of some rows in one direction.
void Recurrent::run(const Data &data, std::int64_t direction, std::int64_t begin,
                    std::int64_t end) const {
    const std::int64_t blocks = (units_ + options_.lanes - 1) / options_.lanes;
    const std::int64_t states = (direction * rows_ + begin) * units_;
    const bool back = direction == 1 || options_.direction == "reverse";
    RecurrentStep step{};
    step.gates_stride = directions_ * gates_ * units_;
    step.after_stride = directions_ * units_;
    step.weights = data.weights + direction * gates_ * blocks * options_.lanes * units_;
    step.rows = end - begin;
    step.units = units_;
    step.cell_stride = units_;
    if (data.bias != nullptr) step.bias = data.bias + direction * units_;
    if (data.last_cell != nullptr) {
        step.cell = data.last_cell + states;
        const auto nbytes = static_cast<std::size_t>(step.rows * units_) * sizeof(float);
        if (data.cell != nullptr) {
            std::memmove(step.cell, data.cell + states, nbytes);
        } else {
            std::memset(step.cell, 0, nbytes);
        }
    }
    if (data.state != nullptr) {
        step.before = data.state + states;
        step.before_stride = units_;
    }
    for (std::int64_t at = 0; at < steps_; ++at) {
        const std::int64_t row = (back ? steps_ - 1 - at : at) * rows_ + begin;
        step.gates = data.gates + row * step.gates_stride + direction * gates_ * units_;
        step.after = data.result + row * step.after_stride + direction * units_;
        step_(step);
        step.before = step.after;
        step.before_stride = step.after_stride;
    }
}

void Recurrent::execute(const std::vector<void *> &data, void *) const {
    Data found{};
    for (std::size_t at = 0; at < args_.size(); ++at) {
        auto *numbers = static_cast<float *>(data[at]);
        if (args_[at] == DNNL_ARG_SRC) found.gates = numbers;
        if (args_[at] == DNNL_ARG_WEIGHTS) found.weights = numbers;
        if (args_[at] == DNNL_ARG_BIAS) found.bias = numbers;
        if (args_[at] == kStateArg) found.state = numbers;
        if (args_[at] == kCellArg) found.cell = numbers;
        if (args_[at] == DNNL_ARG_DST) found.result = numbers;
        if (args_[at] == kLastCellArg) found.last_cell = numbers;
    }
    // Rows do not depend on each other, so any division gives the same results.
    const std::int64_t wanted = (threads_ + directions_ - 1) / directions_;
    const std::int64_t parts_of_rows =
        std::max<std::int64_t>(1, std::min(wanted, rows_ / kFewestRows));
    const std::int64_t tasks = directions_ * parts_of_rows;
    const int threads = static_cast<int>(std::min<std::int64_t>(threads_, tasks));
    Shares shares(tasks, threads);
    in_parallel(threads, [&](int part, int) {
        for (std::int64_t task = shares.next(part); task >= 0; task = shares.next(part)) {
            const std::int64_t direction = task / parts_of_rows, chunk = task % parts_of_rows;
            run(found, direction, rows_ * chunk / parts_of_rows,
                rows_ * (chunk + 1) / parts_of_rows);
        }
    });
}

}  // namespace stridewise
