#include "attention/attention.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "isa/choice.hpp"
#include "support/errors.hpp"
#include "support/images.hpp"
#include "threads/regions.hpp"
#include "threads/shares.hpp"

namespace stridewise {
namespace {

enum : std::size_t { kQueries, kKeys, kValues, kResult };

// The most keys whose scores are in memory, and what it is without a rest.
constexpr std::int64_t kMostKeys = 512, kUsualKeys = 384;
constexpr std::int64_t kLine = 16;  // floats in a cache line
// Floats from one value to the next that put all values into few places of the second-level cache.
constexpr std::int64_t kAliasing = 512;

const AttentionKernels &kernels_of(const std::string &isa) {
#ifdef STRIDEWISE_AVX2
    if (isa == "avx512_bf16") return avx512_bf16_attention_kernels();
    if (isa == "avx512") return avx512_attention_kernels();
    if (isa == "avx2") return avx2_attention_kernels();
#endif
    return portable_attention_kernels();
}

Dims strides_of(const MemoryDesc &desc) {
    Dims strides = desc.get().get_strides(), dims = desc.dims();
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
        if (dims[axis] == 1) strides[axis] = 0;
    }
    return strides;
}

// The offsets of all elements of some axes, the last one fastest.
std::vector<std::int64_t> offsets(const Dims &extents, const Dims &strides) {
    std::vector<std::int64_t> found{0};
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
        std::vector<std::int64_t> next;
        next.reserve(found.size() * static_cast<std::size_t>(extents[axis]));
        for (const std::int64_t first : found) {
            for (std::int64_t i = 0; i < extents[axis]; ++i) {
                next.push_back(first + i * strides[axis]);
            }
        }
        found = std::move(next);
    }
    return found;
}

Spread spread_of(const std::vector<std::int64_t> &offsets) {
    const auto at = [&](std::size_t i) { return offsets[i] - offsets[0]; };
    bool is_equal = true, is_dense = true;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        is_equal = is_equal && at(i) == 0;
        is_dense = is_dense && at(i) == static_cast<std::int64_t>(i);
    }
    if (is_equal) return Spread::equal;
    return is_dense ? Spread::dense : Spread::other;
}

ScoreStep step_of(const std::string &name) {
    if (name == "add") return ScoreStep::add;
    if (name == "mul") return ScoreStep::multiply;
    if (name == "where") return ScoreStep::where;
    require(name == "where_not", "attention: expected add, mul, where or where_not, got " + name);
    return ScoreStep::where_not;
}

Zeroed zeroed_of(const std::string &name) {
    if (name.empty()) return Zeroed::none;
    if (name == "empty") return Zeroed::empty;
    require(name == "nan", "attention: expected zeroed as empty or nan, got " + name);
    return Zeroed::nan;
}

std::int64_t product(const Dims &extents) {
    return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

bool is_strided(const MemoryDesc &desc) {
    return !desc.is_any() && desc.offset() == 0 && desc.get().get_inner_nblks() == 0 &&
           (desc.dtype() == "f32" || desc.dtype() == "bf16");
}

// Elements from one row of copied keys or values to the next: an odd number of cache lines, so that
// rows do not share their places in caches.
std::int64_t panel_row(std::int64_t words) {
    return (ceil_div(words, kLine) | 1) * kLine;
}

}  // namespace

Attention::Attention(const MemoryDesc &queries, const MemoryDesc &keys, const MemoryDesc &values,
                     const MemoryDesc &dst, const Options &options)
    : Kernel(options.threads, {DNNL_ARG_SRC_0, DNNL_ARG_SRC_1, DNNL_ARG_SRC_2, DNNL_ARG_DST}),
      descs_{queries, keys, values, dst},
      scale_(options.scale),
      zeroed_(zeroed_of(options.zeroed)),
      is_half_(dst.dtype() == "bf16") {
    const std::string what = "attention: expected ";
    const auto rank = static_cast<std::size_t>(dst.ndims());
    require(rank >= 2, what + "matrices, got " + dst.repr());
    batch_ = dst.dims();
    batch_.resize(rank - 2);
    for (std::size_t i = 0; i < kTensors; ++i) {
        const MemoryDesc &desc = descs_[i];
        const Dims dims = desc.dims();
        bool fits = is_strided(desc) && desc.dtype() == dst.dtype() && dims.size() == rank;
        for (std::size_t axis = 0; fits && axis < batch_.size(); ++axis) {
            fits = dims[axis] == batch_[axis] || dims[axis] == 1;
        }
        require(fits && product(dims) > 0,
                what + "strided tensors of one type with equal batch axes, got " + desc.repr() +
                    " and " + dst.repr());
        const Dims strides = desc.get().get_strides();
        tensors_[i] = {strides_of(desc), strides[rank - 2], strides[rank - 1]};
        tensors_[i].batch.resize(rank - 2);
    }
    const auto extent = [&](std::size_t tensor, std::size_t axis) {
        return descs_[tensor].dims()[rank - 2 + axis];
    };
    matrices_ = product(batch_);
    queries_ = extent(kQueries, 0);
    keys_ = extent(kKeys, 0);
    depth_ = extent(kKeys, 1);
    width_ = extent(kValues, 1);
    require(extent(kQueries, 1) == depth_ && extent(kValues, 0) == keys_ &&
                extent(kResult, 0) == queries_ && extent(kResult, 1) == width_,
            what + "matrices that fit, got " + queries.repr() + ", " + keys.repr() + " and " +
                values.repr());
    require(options.steps.size() <= kMostSteps, what + "at most 8 steps");
    require(product(options.query_axes) == queries_ && product(options.key_axes) == keys_,
            what + "axes of " + std::to_string(queries_) + " queries and " + std::to_string(keys_) +
                " keys");
    for (const Step &step : options.steps) {
        terms_.push_back(term_of(step, options.query_axes, options.key_axes));
        args_.push_back(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(descs_.size() - kTensors));
        descs_.push_back(step.operand);
    }
    choose_kernels(options.isa);
    choose_tasks();
}

Attention::Term Attention::term_of(const Step &step, const Dims &query_axes,
                                   const Dims &key_axes) const {
    const MemoryDesc &desc = step.operand;
    Dims wanted = batch_;
    wanted.insert(wanted.end(), query_axes.begin(), query_axes.end());
    wanted.insert(wanted.end(), key_axes.begin(), key_axes.end());
    const Dims dims = desc.dims();
    bool fits = is_strided(desc) && dims.size() == wanted.size();
    for (std::size_t axis = 0; fits && axis < dims.size(); ++axis) {
        fits = dims[axis] == wanted[axis] || dims[axis] == 1;
    }
    require(fits,
            "attention: expected strided operands over batch axes, those of queries and those "
            "of keys, got " +
                desc.repr());
    const Dims strides = strides_of(desc);
    const auto row = strides.begin() + static_cast<std::ptrdiff_t>(batch_.size());
    const auto column = row + static_cast<std::ptrdiff_t>(query_axes.size());
    Term found{{},
               Dims(strides.begin(), row),
               offsets(query_axes, Dims(row, column)),
               offsets(key_axes, Dims(column, strides.end())),
               {}};
    // Keys between which the operand does not differ share an offset.
    std::vector<std::int64_t> different = found.columns;
    std::sort(different.begin(), different.end());
    different.erase(std::unique(different.begin(), different.end()), different.end());
    if (different.size() < found.columns.size()) {
        for (const std::int64_t each : found.columns) {
            const auto at = std::lower_bound(different.begin(), different.end(), each);
            found.places.push_back(static_cast<std::int32_t>(at - different.begin()));
        }
        found.columns = std::move(different);
    }
    found.term.step = step_of(step.name);
    found.term.fill = step.fill;
    found.term.is_half = desc.dtype() == "bf16";
    found.term.row_spread = spread_of(found.rows);
    found.term.column_spread = spread_of(found.columns);
    found.term.column_count = static_cast<std::int64_t>(found.columns.size());
    return found;
}

void Attention::choose_kernels(const std::string &isa) {
    const bool is_narrow = isa == "avx2" || kernel_isas(16).front() == "portable";
    lanes_ = is_narrow || isa == "portable" ? 8 : 16;
    const auto known = kernel_isas(lanes_, is_half_);
    isa_ = isa.empty() ? known.front() : isa;
    require(std::find(known.begin(), known.end(), isa_) != known.end(),
            "attention: there are no " + isa_ + " kernels here");
    kernels_ = &kernels_of(isa_);
    loops_ = is_half_ ? kernels_->of_bfloat16 : kernels_->of_float32;
    const bool has_pairs = is_half_ && kernels_->has_pairs;
    words_ = has_pairs ? ceil_div(depth_, 2) : depth_;
    // Keys and values are copied if the loops take other words, or cannot read them where they lie.
    const Tensor &keys = tensors_[kKeys];
    bool is_even = depth_ % 2 == 0 && keys.row % 2 == 0;
    for (const std::int64_t stride : keys.batch) is_even = is_even && stride % 2 == 0;
    copies_keys_ = is_half_ && !(has_pairs && keys.step == 1 && is_even);
    copies_values_ = is_half_ || tensors_[kValues].row % kAliasing == 0;
}

void Attention::choose_tasks() {
    const std::int64_t parts = keys_ <= kMostKeys ? 1 : ceil_div(keys_, kUsualKeys);
    keys_at_once_ = ceil_div(keys_, parts);
    keys_at_once_ += keys_at_once_ % 2;
    // Groups of as many vectors as the registers take; at least two tasks for each thread.
    const std::int64_t vectors = ceil_div(queries_, lanes_);
    const std::int64_t wanted = ceil_div(2 * std::int64_t{threads_}, matrices_);
    groups_ = std::min(vectors, std::max(ceil_div(vectors, kMostQueryVectors), wanted));
    tasks_ = std::min(groups_, std::max(ceil_div(groups_, kMostGroups), wanted));
}

MemoryDesc Attention::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SCRATCHPAD) return MemoryDesc({threads_ * floats_per_thread()}, "f32", "a");
    require(takes(arg), "attention: there is no argument " + std::to_string(arg));
    const auto at = std::find(args_.begin(), args_.end(), arg) - args_.begin();
    return descs_[static_cast<std::size_t>(at)];
}

std::int64_t Attention::floats_per_group() const {
    std::int64_t rows = words_ + width_ + 2;
    for (const Term &term : terms_) rows += term.places.empty() ? 0 : term.term.column_count;
    return rows * lanes_ * kMostQueryVectors;
}

// The scratch of each thread starts in a cache line of its own.
std::int64_t Attention::floats_per_thread() const {
    std::int64_t rows = 1;
    for (const Term &term : terms_) rows += term.places.empty() ? 1 : 0;
    const std::int64_t copied =
        (copies_keys_ ? panel_row(words_) : 0) + (copies_values_ ? panel_row(width_) : 0);
    const std::int64_t floats = ceil_div(groups_, tasks_) * floats_per_group() +
                                keys_at_once_ * (rows * lanes_ * kMostQueryVectors + copied);
    return ceil_div(floats, kLine) * kLine;
}

std::size_t Attention::scratchpad_nbytes() const {
    return static_cast<std::size_t>(threads_ * floats_per_thread()) * sizeof(float);
}

// The first element of a matrix.
std::int64_t Attention::offset(const Dims &strides, std::int64_t matrix) const {
    std::int64_t found = 0;
    for (std::size_t axis = batch_.size(); axis-- > 0; matrix /= batch_[axis]) {
        found += matrix % batch_[axis] * strides[axis];
    }
    return found;
}

struct Attention::Task {
    const std::vector<void *> &data;
    std::int64_t matrix, first, end;  // groups
    float *scratch;

    std::byte *place(std::size_t argument, std::int64_t element, bool is_half) const {
        return static_cast<std::byte *>(data[argument]) + element * element_nbytes(is_half);
    }
};

struct Attention::Scratch {
    float *next;

    float *take(std::int64_t floats) { return std::exchange(next, next + floats); }
};

struct Attention::Group {
    AttentionGroup work;
    std::array<ScoreTerm, kMostSteps> terms;
    const AttentionLoops *loops;
};

void Attention::fill(const Task &task, std::int64_t number, Scratch &scratch, float *const *tables,
                     Group &group) const {
    const std::int64_t vectors = ceil_div(queries_, lanes_);
    const std::int64_t first = vectors * number / groups_, end = vectors * (number + 1) / groups_;
    const std::int64_t query = first * lanes_, lanes = (end - first) * lanes_;
    const Tensor &queries = tensors_[kQueries], &result = tensors_[kResult];
    for (std::size_t i = 0; i < terms_.size(); ++i) {
        const Term &term = terms_[i];
        ScoreTerm &found = group.terms[i] = term.term;
        found.from = task.place(kTensors + i, offset(term.batch, task.matrix), found.is_half);
        found.rows = term.rows.data() + query;
        found.columns = term.columns.data();
        found.places = term.places.empty() ? nullptr : term.places.data();
        found.table = term.places.empty() ? tables[i] : scratch.take(found.column_count * lanes);
    }
    group.loops = loops_ + (end - first - 1);
    group.work = {
        task.place(kQueries, offset(queries.batch, task.matrix) + query * queries.row, is_half_),
        task.place(kResult, offset(result.batch, task.matrix) + query * result.row, is_half_),
        queries.row,
        queries.step,
        result.row,
        result.step,
        std::min(lanes, queries_ - query),
        depth_,
        width_,
        scale_,
        zeroed_,
        group.terms.data(),
        static_cast<std::int64_t>(terms_.size()),
        scratch.take(words_ * lanes),
        scratch.take(width_ * lanes),
        scratch.take(lanes),
        scratch.take(lanes)};
}

void Attention::run(const Task &task) const {
    const Tensor &keys = tensors_[kKeys], &values = tensors_[kValues];
    const std::int64_t lanes = std::int64_t{lanes_} * kMostQueryVectors;
    const std::int64_t key_row = panel_row(words_), value_row = panel_row(width_);
    Scratch scratch{task.scratch};
    AttentionKeys block{};
    block.scores = scratch.take(keys_at_once_ * lanes);
    float *key_panel = copies_keys_ ? scratch.take(keys_at_once_ * key_row) : nullptr;
    float *value_panel = copies_values_ ? scratch.take(keys_at_once_ * value_row) : nullptr;
    std::array<float *, kMostSteps> tables{};
    for (std::size_t i = 0; i < terms_.size(); ++i) {
        if (terms_[i].places.empty()) tables[i] = scratch.take(keys_at_once_ * lanes);
    }
    std::array<Group, kMostGroups> groups;
    const std::int64_t count = task.end - task.first;
    for (std::int64_t g = 0; g < count; ++g) {
        Group &group = groups[static_cast<std::size_t>(g)];
        fill(task, task.first + g, scratch, tables.data(), group);
        group.loops->begin(group.work);
    }
    for (std::int64_t begin = 0; begin < keys_; begin += keys_at_once_) {
        block.begin = begin;
        block.count = std::min(keys_at_once_, keys_ - begin);
        const std::byte *key =
            task.place(kKeys, offset(keys.batch, task.matrix) + begin * keys.row, is_half_);
        const std::byte *value =
            task.place(kValues, offset(values.batch, task.matrix) + begin * values.row, is_half_);
        if (copies_keys_) {
            kernels_->copy_keys(
                {key, keys.row, keys.step, block.count, depth_, key_panel, key_row});
            block.keys = key_panel, block.key_row = key_row, block.key_step = 1;
        } else {
            const std::int64_t elements = is_half_ ? 2 : 1;
            block.keys = reinterpret_cast<const float *>(key);
            block.key_row = keys.row / elements, block.key_step = keys.step;
        }
        if (copies_values_) {
            const auto copy = is_half_ ? kernels_->copy_values : kernels_->copy;
            copy({value, values.row, values.step, block.count, width_, value_panel, value_row});
            block.values = value_panel, block.value_row = value_row, block.value_step = 1;
        } else {
            block.values = reinterpret_cast<const float *>(value);
            block.value_row = values.row, block.value_step = values.step;
        }
        for (std::int64_t g = 0; g < count; ++g) {
            const Group &group = groups[static_cast<std::size_t>(g)];
            group.loops->attend(group.work, block);
        }
    }
    for (std::int64_t g = 0; g < count; ++g) {
        const Group &group = groups[static_cast<std::size_t>(g)];
        group.loops->end(group.work);
    }
}

void Attention::execute(const std::vector<void *> &data, void *scratchpad) const {
    const std::int64_t tasks = matrices_ * tasks_;
    const int threads = static_cast<int>(std::min<std::int64_t>(threads_, tasks));
    Shares shares(tasks, threads);
    in_parallel(threads, [&](int part, int) {
        float *scratch = static_cast<float *>(scratchpad) + part * floats_per_thread();
        for (std::int64_t task = shares.next(part); task >= 0; task = shares.next(part)) {
            const std::int64_t matrix = task / tasks_, at = task % tasks_;
            run({data, matrix, groups_ * at / tasks_, groups_ * (at + 1) / tasks_, scratch});
        }
    });
}

}  // namespace stridewise
