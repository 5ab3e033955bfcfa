#include "onednn/primitives.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;
using Algorithms = std::map<std::string, algorithm>;

// oneDNN refuses longer lists of post-ops with a misleading out-of-memory status.
constexpr std::size_t kMaxPostOps = 32;

const Algorithms &eltwise_algorithms() {
    static const Algorithms table = {
        {"relu", algorithm::eltwise_relu},
        {"clip", algorithm::eltwise_clip},
        {"clip_v2", algorithm::eltwise_clip_v2},
        {"logistic", algorithm::eltwise_logistic},
        {"tanh", algorithm::eltwise_tanh},
        {"elu", algorithm::eltwise_elu},
        {"swish", algorithm::eltwise_swish},
        {"hardswish", algorithm::eltwise_hardswish},
        {"hardsigmoid", algorithm::eltwise_hardsigmoid},
        {"exp", algorithm::eltwise_exp},
        {"log", algorithm::eltwise_log},
        {"sqrt", algorithm::eltwise_sqrt},
        {"abs", algorithm::eltwise_abs},
        {"square", algorithm::eltwise_square},
        {"gelu_erf", algorithm::eltwise_gelu_erf},
        {"gelu_tanh", algorithm::eltwise_gelu_tanh},
        {"linear", algorithm::eltwise_linear},
        {"pow", algorithm::eltwise_pow},
        {"soft_relu", algorithm::eltwise_soft_relu},
        {"mish", algorithm::eltwise_mish},
        {"round", algorithm::eltwise_round},
    };
    return table;
}

// Comparisons are excluded: as post-ops they make code generation fail in 3.2, and all later code
// generation on the same thread fails, too.
const Algorithms &binary_algorithms() {
    static const Algorithms table = {
        {"add", algorithm::binary_add}, {"sub", algorithm::binary_sub},
        {"mul", algorithm::binary_mul}, {"div", algorithm::binary_div},
        {"max", algorithm::binary_max}, {"min", algorithm::binary_min},
    };
    return table;
}

const Algorithms &pooling_algorithms() {
    static const Algorithms table = {
        {"max", algorithm::pooling_max},
        {"avg_include", algorithm::pooling_avg_include_padding},
        {"avg_exclude", algorithm::pooling_avg_exclude_padding},
    };
    return table;
}

const Algorithms &resampling_algorithms() {
    static const Algorithms table = {
        {"nearest", algorithm::resampling_nearest},
        {"linear", algorithm::resampling_linear},
    };
    return table;
}

const Algorithms &lrn_algorithms() {
    static const Algorithms table = {
        {"across", algorithm::lrn_across_channels},
        {"within", algorithm::lrn_within_channel},
    };
    return table;
}

algorithm find(const Algorithms &table, const std::string &name, const std::string &where) {
    const auto found = table.find(name);
    if (found != table.end()) return found->second;
    std::string known;
    for (const auto &entry : table) known += (known.empty() ? "" : ", ") + entry.first;
    throw std::invalid_argument(where + ": unknown algorithm '" + name + "'; expected one of " +
                                known);
}

struct AppendPostOp {
    dnnl::post_ops &list;

    void operator()(const EltwisePostOp &op) const {
        list.append_eltwise(find(eltwise_algorithms(), op.algorithm, "eltwise post-op"), op.alpha,
                            op.beta);
    }
    void operator()(const SumPostOp &op) const { list.append_sum(op.scale); }
    void operator()(const BinaryPostOp &op) const {
        list.append_binary(find(binary_algorithms(), op.algorithm, "binary post-op"),
                           op.operand.get());
    }
};

std::vector<int> with_operands(std::vector<int> args, const PostOps &post_ops) {
    for (std::size_t i = 0; i < post_ops.size(); ++i) {
        if (std::holds_alternative<BinaryPostOp>(post_ops[i])) {
            args.push_back(post_op_arg(static_cast<int>(i)));
        }
    }
    return args;
}

std::vector<int> weighted_args(bool has_bias, const PostOps &post_ops) {
    std::vector<int> args = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    if (has_bias) args.push_back(DNNL_ARG_BIAS);
    return with_operands(std::move(args), post_ops);
}

int resolve_threads(int threads) {
    require(threads >= 0, "threads: expected at least 1, got " + std::to_string(threads));
    return threads == 0 ? max_threads() : threads;
}

// A dense tensor fills its memory: its elements, padding lanes included, occupy all bytes.
void require_dense(const MemoryDesc &dst, const char *where) {
    if (dst.is_any()) return;
    std::int64_t count = 1;
    for (const auto extent : dst.get().get_padded_dims()) count *= extent;
    const auto nbytes =
        static_cast<std::size_t>(count) * dnnl::memory::data_type_size(dst.get().get_data_type());
    require(dst.extent() == nbytes, std::string(where) + ": expected a dense destination");
}

// The library does not describe scales and zero points: any memory of enough numbers will do.
MemoryDesc query_arg(const_dnnl_primitive_desc_t desc, const std::vector<int> &args,
                     const NumbersList &numbers, int arg) {
    for (const auto &item : numbers) {
        if (item.arg == arg) return item.desc;
    }
    const bool known =
        arg == DNNL_ARG_SCRATCHPAD || std::find(args.begin(), args.end(), arg) != args.end();
    // Querying an operand of a post-op that is not binary reads uninitialized memory in oneDNN.
    require(known, "this primitive has no argument " + std::to_string(arg));
    const auto found = dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, arg);
    if (found == nullptr) throw NativeError(dnnl_unimplemented, "could not query an argument");
    dnnl_memory_desc_t copy = nullptr;
    check(dnnl_memory_desc_clone(&copy, found), "could not clone a memory descriptor");
    return MemoryDesc(dnnl::memory::desc(copy));
}

const_dnnl_primitive_desc_t desc_of(const dnnl::primitive &primitive) {
    const_dnnl_primitive_desc_t desc = nullptr;
    check(dnnl_primitive_get_primitive_desc(primitive.get(), &desc),
          "could not get a primitive's descriptor");
    return desc;
}

const dnnl::memory::desc *optional_desc(const std::optional<MemoryDesc> &desc) {
    return desc ? &desc->get() : nullptr;
}

}  // namespace

dnnl::primitive_attr make_attr(const PostOps &post_ops, const NumbersList &numbers) {
    require(post_ops.size() <= kMaxPostOps, "post_ops: expected at most " +
                                                std::to_string(kMaxPostOps) + ", got " +
                                                std::to_string(post_ops.size()));
    dnnl::post_ops list;
    for (const auto &op : post_ops) std::visit(AppendPostOp{list}, op);
    dnnl::primitive_attr attr;
    // oneDNN's own scratchpad belongs to the thread that creates the primitive; execution from
    // another thread would crash.
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attr.set_post_ops(list);
    for (const auto &item : numbers) {
        if ((item.arg & DNNL_ARG_ATTR_ZERO_POINTS) != 0) {
            attr.set_zero_points_mask(item.arg & ~DNNL_ARG_ATTR_ZERO_POINTS, item.mask);
        } else {
            attr.set_scales_mask(item.arg & ~DNNL_ARG_ATTR_SCALES, item.mask);
        }
    }
    return attr;
}

void check_spatial(const Dims &values, const MemoryDesc &src, const char *name, std::int64_t low) {
    const bool matches = src.ndims() >= 2 && values.size() + 2 == std::size_t(src.ndims());
    require(matches, std::string(name) + ": expected one value for each spatial axis of src");
    for (const auto value : values) {
        require(value >= low, std::string(name) + ": expected values of at least " +
                                  std::to_string(low) + ", got " + std::to_string(value));
    }
}

Dims library_dilations(const Window &window, const MemoryDesc &src) {
    check_spatial(window.strides, src, "strides", 1);
    check_spatial(window.dilations, src, "dilations", 1);
    // Negative end padding is allowed: it describes an input that is only partly used.
    check_spatial(window.pads_begin, src, "pads_begin", 0);
    check_spatial(window.pads_end, src, "pads_end", INT32_MIN);
    Dims skipped = window.dilations;
    for (auto &dilation : skipped) --dilation;
    return skipped;
}

dnnl::algorithm pooling_algorithm(const std::string &name) {
    return find(pooling_algorithms(), name, "pooling");
}

void set_primitive_cache_capacity(int capacity) {
    check(dnnl_set_primitive_cache_capacity(capacity), "could not resize the primitive cache");
}

int post_op_arg(int index) {
    require(index >= 0 && index < static_cast<int>(kMaxPostOps),
            "post_op_arg: expected an index from 0 to 31, got " + std::to_string(index));
    return DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1;
}

std::string Primitive::impl() const {
    const char *name = nullptr;
    check(dnnl_primitive_desc_query(desc_of(primitive_), dnnl_query_impl_info_str, 0, &name),
          "could not query the name of an implementation");
    return name;
}

std::size_t Primitive::scratchpad_nbytes() const {
    return query_arg(desc_of(primitive_), args_, numbers_, DNNL_ARG_SCRATCHPAD).nbytes();
}

MemoryDesc Primitive::arg_desc(int arg) const {
    return query_arg(desc_of(primitive_), args_, numbers_, arg);
}

MemoryDesc PrimitiveDesc::arg_desc(int arg) const {
    return query_arg(desc_.get(), args_, numbers_, arg);
}

PrimitiveDesc::PrimitiveDesc(dnnl::primitive_desc_base desc, std::vector<int> args, int threads,
                             NumbersList numbers)
    : desc_(std::move(desc)),
      args_(std::move(args)),
      numbers_(std::move(numbers)),
      threads_(threads) {
    for (const auto &item : numbers_) args_.push_back(item.arg);
}

bool PrimitiveDesc::next() {
    const ThreadScope scope(threads_);
    const auto status = dnnl_primitive_desc_next_impl(desc_.get());
    if (status == dnnl_last_impl_reached) return false;
    check(status, "could not move to the next implementation");
    return true;
}

Primitive PrimitiveDesc::create() const {
    auto made = made_with_threads(threads_, [&] { return dnnl::primitive(desc_.get()); });
    return Primitive(std::move(made), args_, numbers_, threads_);
}

namespace {

// A convolution, or a transposed one: the library has a class for each, with the same arguments.
template <class Desc>
PrimitiveDesc windowed(algorithm kind, const MemoryDesc &src, const MemoryDesc &weights,
                       const std::optional<MemoryDesc> &bias, const MemoryDesc &dst,
                       const Window &window, const PostOps &post_ops, const NumbersList &numbers,
                       int threads) {
    const Dims dilations = library_dilations(window, src);
    const auto attr = make_attr(post_ops, numbers);
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    const auto use = prop_kind::forward_inference;
    auto desc =
        bias ? Desc(cpu_engine(), use, kind, src.get(), weights.get(), bias->get(), dst.get(),
                    window.strides, dilations, window.pads_begin, window.pads_end, attr)
             : Desc(cpu_engine(), use, kind, src.get(), weights.get(), dst.get(), window.strides,
                    dilations, window.pads_begin, window.pads_end, attr);
    return PrimitiveDesc(std::move(desc), weighted_args(bias.has_value(), post_ops), resolved,
                         numbers);
}

}  // namespace

PrimitiveDesc convolution(const MemoryDesc &src, const MemoryDesc &weights,
                          const std::optional<MemoryDesc> &bias, const MemoryDesc &dst,
                          const Window &window, const PostOps &post_ops, const NumbersList &numbers,
                          int threads) {
    return windowed<dnnl::convolution_forward::primitive_desc>(
        algorithm::convolution_direct, src, weights, bias, dst, window, post_ops, numbers, threads);
}

PrimitiveDesc deconvolution(const MemoryDesc &src, const MemoryDesc &weights,
                            const std::optional<MemoryDesc> &bias, const MemoryDesc &dst,
                            const Window &window, const PostOps &post_ops,
                            const NumbersList &numbers, int threads) {
    require_dense(dst, "deconvolution");
    return windowed<dnnl::deconvolution_forward::primitive_desc>(algorithm::deconvolution_direct,
                                                                 src, weights, bias, dst, window,
                                                                 post_ops, numbers, threads);
}

PrimitiveDesc resampling(const std::string &algorithm, const MemoryDesc &src, const MemoryDesc &dst,
                         const PostOps &post_ops, int threads) {
    const auto attr = make_attr(post_ops);
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::resampling_forward::primitive_desc desc(
        cpu_engine(), prop_kind::forward_inference,
        find(resampling_algorithms(), algorithm, "resampling"), src.get(), dst.get(), attr);
    return PrimitiveDesc(std::move(desc), with_operands({DNNL_ARG_SRC, DNNL_ARG_DST}, post_ops),
                         resolved);
}

PrimitiveDesc pooling(const std::string &algorithm, const MemoryDesc &src, const MemoryDesc &dst,
                      const Dims &kernel, const Window &window, const PostOps &post_ops,
                      int threads) {
    const Dims dilations = library_dilations(window, src);
    check_spatial(kernel, src, "kernel", 1);
    const auto attr = make_attr(post_ops);
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::pooling_forward::primitive_desc desc(cpu_engine(), prop_kind::forward_inference,
                                               find(pooling_algorithms(), algorithm, "pooling"),
                                               src.get(), dst.get(), window.strides, kernel,
                                               dilations, window.pads_begin, window.pads_end, attr);
    return PrimitiveDesc(std::move(desc), with_operands({DNNL_ARG_SRC, DNNL_ARG_DST}, post_ops),
                         resolved);
}

PrimitiveDesc eltwise(const std::string &algorithm, const MemoryDesc &src, const MemoryDesc &dst,
                      float alpha, float beta, const PostOps &post_ops, int threads) {
    const auto attr = make_attr(post_ops);
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::eltwise_forward::primitive_desc desc(cpu_engine(), prop_kind::forward_inference,
                                               find(eltwise_algorithms(), algorithm, "eltwise"),
                                               src.get(), dst.get(), alpha, beta, attr);
    return PrimitiveDesc(std::move(desc), with_operands({DNNL_ARG_SRC, DNNL_ARG_DST}, post_ops),
                         resolved);
}

PrimitiveDesc binary(const std::string &algorithm, const MemoryDesc &src0, const MemoryDesc &src1,
                     const MemoryDesc &dst, const PostOps &post_ops, const NumbersList &numbers,
                     int threads) {
    const auto attr = make_attr(post_ops, numbers);
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::binary::primitive_desc desc(cpu_engine(), find(binary_algorithms(), algorithm, "binary"),
                                      src0.get(), src1.get(), dst.get(), attr);
    return PrimitiveDesc(std::move(desc),
                         with_operands({DNNL_ARG_SRC_0, DNNL_ARG_SRC_1, DNNL_ARG_DST}, post_ops),
                         resolved, numbers);
}

PrimitiveDesc matmul(const MemoryDesc &src, const MemoryDesc &weights,
                     const std::optional<MemoryDesc> &bias, const MemoryDesc &dst,
                     const PostOps &post_ops, const NumbersList &numbers, int threads) {
    const auto attr = make_attr(post_ops, numbers);
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    using Desc = dnnl::matmul::primitive_desc;
    const auto *bias_desc = optional_desc(bias);
    auto desc = bias_desc
                    ? Desc(cpu_engine(), src.get(), weights.get(), *bias_desc, dst.get(), attr)
                    : Desc(cpu_engine(), src.get(), weights.get(), dst.get(), attr);
    return PrimitiveDesc(std::move(desc), weighted_args(bias.has_value(), post_ops), resolved,
                         numbers);
}

PrimitiveDesc inner_product(const MemoryDesc &src, const MemoryDesc &weights,
                            const std::optional<MemoryDesc> &bias, const MemoryDesc &dst,
                            const PostOps &post_ops, const NumbersList &numbers, int threads) {
    const auto attr = make_attr(post_ops, numbers);
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    using Desc = dnnl::inner_product_forward::primitive_desc;
    const auto kind = prop_kind::forward_inference;
    const auto *bias_desc = optional_desc(bias);
    auto desc =
        bias_desc ? Desc(cpu_engine(), kind, src.get(), weights.get(), *bias_desc, dst.get(), attr)
                  : Desc(cpu_engine(), kind, src.get(), weights.get(), dst.get(), attr);
    return PrimitiveDesc(std::move(desc), weighted_args(bias.has_value(), post_ops), resolved,
                         numbers);
}

PrimitiveDesc scale_shift(const MemoryDesc &src, const MemoryDesc &dst, bool relu, int threads) {
    using dnnl::normalization_flags;
    auto flags = normalization_flags::use_global_stats | normalization_flags::use_scale |
                 normalization_flags::use_shift;
    if (relu) flags |= normalization_flags::fuse_norm_relu;
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    // With zero statistics the divisor is exactly 1, also in the padding lanes of blocked formats,
    // where statistics are read as zero.
    constexpr float epsilon = 1.0F;
    dnnl::batch_normalization_forward::primitive_desc desc(
        cpu_engine(), prop_kind::forward_inference, src.get(), dst.get(), epsilon, flags,
        make_attr({}));
    return PrimitiveDesc(std::move(desc),
                         {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_SCALE, DNNL_ARG_SHIFT, DNNL_ARG_MEAN,
                          DNNL_ARG_VARIANCE},
                         resolved);
}

PrimitiveDesc batch_norm(const MemoryDesc &src, const MemoryDesc &dst, float epsilon, bool affine,
                         int threads) {
    using dnnl::normalization_flags;
    auto flags = normalization_flags::none;
    std::vector<int> args = {DNNL_ARG_SRC, DNNL_ARG_DST};
    if (affine) {
        flags |= normalization_flags::use_scale | normalization_flags::use_shift;
        args.insert(args.end(), {DNNL_ARG_SCALE, DNNL_ARG_SHIFT});
    }
    // The padding lanes of blocked formats have a variance of zero.
    require(epsilon > 0, "batch_norm: expected a positive epsilon");
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::batch_normalization_forward::primitive_desc desc(
        cpu_engine(), prop_kind::forward_inference, src.get(), dst.get(), epsilon, flags,
        make_attr({}));
    return PrimitiveDesc(std::move(desc), std::move(args), resolved);
}

PrimitiveDesc layer_norm(const MemoryDesc &src, const MemoryDesc &dst, float epsilon, bool scale,
                         bool shift, int threads) {
    using dnnl::normalization_flags;
    auto flags = normalization_flags::none;
    std::vector<int> args = {DNNL_ARG_SRC, DNNL_ARG_DST};
    if (scale) {
        flags |= normalization_flags::use_scale;
        args.push_back(DNNL_ARG_SCALE);
    }
    if (shift) {
        flags |= normalization_flags::use_shift;
        args.push_back(DNNL_ARG_SHIFT);
    }
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::layer_normalization_forward::primitive_desc desc(
        cpu_engine(), prop_kind::forward_inference, src.get(), dst.get(), epsilon, flags,
        make_attr({}));
    return PrimitiveDesc(std::move(desc), std::move(args), resolved);
}

PrimitiveDesc lrn(const MemoryDesc &src, const MemoryDesc &dst, const std::string &algorithm,
                  std::int64_t local_size, float alpha, float beta, float k, int threads) {
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::lrn_forward::primitive_desc desc(cpu_engine(), prop_kind::forward_inference,
                                           find(lrn_algorithms(), algorithm, "lrn"), src.get(),
                                           dst.get(), local_size, alpha, beta, k, make_attr({}));
    return PrimitiveDesc(std::move(desc), {DNNL_ARG_SRC, DNNL_ARG_DST}, resolved);
}

PrimitiveDesc softmax(const MemoryDesc &src, const MemoryDesc &dst, int axis, bool log,
                      int threads) {
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::softmax_forward::primitive_desc desc(
        cpu_engine(), prop_kind::forward_inference,
        log ? algorithm::softmax_log : algorithm::softmax_accurate, src.get(), dst.get(), axis,
        make_attr({}));
    return PrimitiveDesc(std::move(desc), {DNNL_ARG_SRC, DNNL_ARG_DST}, resolved);
}

PrimitiveDesc concat(const MemoryDesc &dst, int axis, const std::vector<MemoryDesc> &srcs,
                     int threads) {
    require(!srcs.empty(), "concat: expected at least one source");
    std::vector<dnnl::memory::desc> descs;
    std::vector<int> args = {DNNL_ARG_DST};
    for (std::size_t i = 0; i < srcs.size(); ++i) {
        descs.push_back(srcs[i].get());
        args.push_back(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i));
    }
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::concat::primitive_desc desc(cpu_engine(), dst.get(), axis, descs, make_attr({}));
    return PrimitiveDesc(std::move(desc), std::move(args), resolved);
}

PrimitiveDesc reorder(const MemoryDesc &src, const MemoryDesc &dst, const NumbersList &numbers,
                      int threads) {
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::reorder::primitive_desc desc(cpu_engine(), src.get(), cpu_engine(), dst.get(),
                                       make_attr({}, numbers));
    return PrimitiveDesc(std::move(desc), {DNNL_ARG_FROM, DNNL_ARG_TO}, resolved, numbers);
}

PrimitiveDesc shuffle(const MemoryDesc &src, const MemoryDesc &dst, int axis, int group_size,
                      int threads) {
    const int resolved = resolve_threads(threads);
    const ThreadScope scope(resolved);
    dnnl::shuffle_forward::primitive_desc desc(cpu_engine(), prop_kind::forward_inference,
                                               src.get(), dst.get(), axis, group_size,
                                               make_attr({}));
    return PrimitiveDesc(std::move(desc), {DNNL_ARG_SRC, DNNL_ARG_DST}, resolved);
}

}  // namespace stridewise
