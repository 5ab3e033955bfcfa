#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>

#include "attention/attention.hpp"
#include "batch_norm/batch_norm.hpp"
#include "bindings/arrays.hpp"
#include "bindings/shared.hpp"
#include "conv1x1/conv1x1.hpp"
#include "conv_int8/conv_int8.hpp"
#include "conv_windows/conv_windows.hpp"
#include "depthwise/bytes.hpp"
#include "depthwise/depthwise.hpp"
#include "depthwise/transposed.hpp"
#include "depthwise/weights.hpp"
#include "dropout/dropout.hpp"
#include "executor/measure.hpp"
#include "grid/grid_sample.hpp"
#include "isa/choice.hpp"
#include "lookup/lookup.hpp"
#include "onednn/gradients.hpp"
#include "pointwise/pointwise.hpp"
#include "pooling/plain_pooling.hpp"
#include "recurrent/recurrent.hpp"
#include "reduction/reduction.hpp"
#include "support/caches.hpp"
#include "support/errors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stridewise {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Requires that the descriptors of arguments are those of a kernel.
void check_arguments(const Kernel &kernel, const std::map<int, MemoryDesc> &given) {
    for (const auto &[arg, desc] : given) {
        const MemoryDesc wanted = kernel.arg_desc(arg);
        require(desc == wanted,
                kernel.impl() + ": expected " + wanted.repr() + ", got " + desc.repr());
    }
}

void init_depthwise(Depthwise *self, const MemoryDesc &src, const MemoryDesc &dst, bool expands,
                    bool has_bias, bool has_depthwise_bias, const Dims &begins, const Dims &ends,
                    const Entries &entries, std::int64_t between, const Dims &window,
                    const Dims &strides, const Dims &dilations, int lanes, int threads,
                    bool multiplies_halves, const Dims &parts, std::int64_t group,
                    const Dims &slices, const std::string &isa) {
    const Dims from = src.dims(), to = dst.dims();
    require(from.size() == 4 && to.size() == 4, "depthwise: expected images of two axes");
    for (const Dims &given : {begins, ends, window, strides, dilations}) {
        require(given.size() == 2, "depthwise: expected pads and windows of two axes");
    }
    DepthwiseOptions options{};
    options.expands = expands;
    options.images = from[0];
    options.channels = from[1];
    options.height = from[2];
    options.width = from[3];
    options.middle = to[1];
    options.group = group;
    options.pads = {begins[0], begins[1], ends[0], ends[1]};
    options.down = {window[0], strides[0], dilations[0]};
    options.across = {window[1], strides[1], dilations[1]};
    require(slices.empty() || (slices.size() == 6 && slices[0] >= 1 && from[2] % slices[0] == 0),
            "depthwise: expected six numbers for slices, which divide the rows");
    if (!slices.empty()) {
        options.slices = slices[0];
        options.height = from[2] / slices[0];
        options.deep = {slices[1], slices[2], slices[3]};
        options.deep_pads = {slices[4], slices[5]};
    }
    require(parts.size() % 5 == 0, "depthwise: expected five numbers for each part");
    for (std::size_t at = 0; at < parts.size(); at += 5) {
        options.parts.push_back(
            {parts[at], parts[at + 1], parts[at + 2], parts[at + 3], parts[at + 4]});
    }
    options.lanes = lanes;
    options.halves = {is_half(src), is_half(dst)};
    options.multiplies_halves = multiplies_halves;
    options.channels_last = src == MemoryDesc(from, src.dtype(), "acdb");
    options.has_bias = has_bias;
    options.has_depthwise_bias = has_depthwise_bias;
    options.threads = threads;
    options.isa = isa;
    const Depthwise made(std::move(options), parse_post_ops(entries), as_size(between, "between"));
    check_arguments(made, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
    new (self) Depthwise(made);
}

void init_byte_depthwise(ByteDepthwise *self, const MemoryDesc &src, const MemoryDesc &dst,
                         bool has_bias, const Dims &begins, const Dims &ends,
                         const Entries &entries, const std::vector<float> &numbers,
                         const Dims &window, const Dims &strides, const Dims &dilations, int lanes,
                         int threads, const std::string &isa) {
    const Dims from = src.dims(), to = dst.dims();
    require(from.size() == 4 && to.size() == 4, "depthwise_int8: expected images of two axes");
    for (const Dims &given : {begins, ends, window, strides, dilations}) {
        require(given.size() == 2, "depthwise_int8: expected pads and windows of two axes");
    }
    require(numbers.size() == 3,
            "depthwise_int8: expected the zero point of the source, the scale "
            "and the zero point of the result");
    ByteDepthwiseOptions options{};
    options.images = from[0];
    options.channels = from[1];
    options.height = from[2];
    options.width = from[3];
    options.pads = {begins[0], begins[1], ends[0], ends[1]};
    options.down = {window[0], strides[0], dilations[0]};
    options.across = {window[1], strides[1], dilations[1]};
    options.source = src.dtype();
    options.result = dst.dtype();
    options.source_zero = static_cast<int>(numbers[0]);
    options.result_scale = numbers[1];
    options.result_zero = static_cast<int>(numbers[2]);
    options.lanes = lanes;
    options.channels_last = src == MemoryDesc(from, src.dtype(), "acdb");
    options.has_bias = has_bias;
    options.threads = threads;
    options.isa = isa;
    const ByteDepthwise made(std::move(options), parse_post_ops(entries));
    check_arguments(made, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
    new (self) ByteDepthwise(made);
}

void init_byte_conv(ByteConv *self, const MemoryDesc &src, const MemoryDesc &dst, bool has_bias,
                    const Dims &begins, const Dims &ends, const Entries &entries,
                    const std::vector<float> &numbers, const Dims &window, const Dims &strides,
                    const Dims &dilations, int threads, const std::string &isa) {
    const Dims from = src.dims(), to = dst.dims();
    require(from.size() == 4 && to.size() == 4, "conv_int8: expected images of two axes");
    for (const Dims &given : {begins, ends, window, strides, dilations}) {
        require(given.size() == 2, "conv_int8: expected pads and windows of two axes");
    }
    require(numbers.size() == 3,
            "conv_int8: expected the zero point of the source, the scale "
            "and the zero point of the result");
    ByteConvOptions options{};
    options.images = from[0];
    options.channels = from[1];
    options.height = from[2];
    options.width = from[3];
    options.outputs = to[1];
    options.pads = {begins[0], begins[1], ends[0], ends[1]};
    options.down = {window[0], strides[0], dilations[0]};
    options.across = {window[1], strides[1], dilations[1]};
    options.source = src.dtype();
    options.result = dst.dtype();
    options.source_zero = static_cast<int>(numbers[0]);
    options.result_scale = numbers[1];
    options.result_zero = static_cast<int>(numbers[2]);
    options.has_bias = has_bias;
    options.threads = threads;
    options.isa = isa;
    const ByteConv made(std::move(options), parse_post_ops(entries));
    check_arguments(made, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
    new (self) ByteConv(made);
}

void init_conv1x1(Conv1x1 *self, const MemoryDesc &src, const MemoryDesc &dst, bool has_bias,
                  bool has_factor, const Entries &entries, std::int64_t between, int lanes,
                  int threads, const Dims &strides, std::int64_t groups, const std::string &isa) {
    const Dims from = src.dims(), to = dst.dims();
    require(from.size() == 4 && to.size() == 4, "conv1x1: expected images of two axes");
    require(strides.size() == 2, "conv1x1: expected strides of two axes");
    Conv1x1Options options{};
    options.images = from[0];
    options.channels = from[1];
    options.height = from[2];
    options.width = from[3];
    options.outputs = to[1];
    options.down = strides[0];
    options.across = strides[1];
    options.groups = groups;
    options.lanes = lanes;
    options.channels_last = src == MemoryDesc(from, src.dtype(), "acdb");
    options.has_bias = has_bias;
    options.has_factor = has_factor;
    options.halves = {is_half(src), is_half(dst)};
    options.threads = threads;
    options.isa = isa;
    const PostOps post_ops = parse_post_ops(entries);
    const Conv1x1 made(std::move(options), post_ops, as_size(between, "between"));
    const auto check_desc = [&](int arg, const MemoryDesc &given) {
        const MemoryDesc wanted = made.arg_desc(arg);
        require(given == wanted, "conv1x1: expected " + wanted.repr() + ", got " + given.repr());
    };
    check_desc(DNNL_ARG_SRC, src);
    check_desc(DNNL_ARG_DST, dst);
    for (const auto &post_op : post_ops) {
        const auto *binary = std::get_if<BinaryPostOp>(&post_op);
        if (binary != nullptr) check_desc(DNNL_ARG_DST, binary->operand);
    }
    new (self) Conv1x1(made);
}

void init_conv_windows(ConvWindows *self, const MemoryDesc &src, const MemoryDesc &dst,
                       bool has_bias, const Dims &begins, const Dims &ends, const Entries &entries,
                       const Dims &window, const Dims &strides, const Dims &dilations, int lanes,
                       int threads, const std::string &isa) {
    const Dims from = src.dims(), to = dst.dims();
    require(from.size() == 4 && to.size() == 4, "conv_windows: expected images of two axes");
    for (const Dims &given : {begins, ends, window, strides, dilations}) {
        require(given.size() == 2, "conv_windows: expected pads and windows of two axes");
    }
    ConvWindowsOptions options{};
    options.images = from[0];
    options.channels = from[1];
    options.height = from[2];
    options.width = from[3];
    options.outputs = to[1];
    options.pads = {begins[0], begins[1], ends[0], ends[1]};
    options.down = {window[0], strides[0], dilations[0]};
    options.across = {window[1], strides[1], dilations[1]};
    options.lanes = lanes;
    options.source_last = src == MemoryDesc(from, src.dtype(), "acdb");
    options.result_last = dst == MemoryDesc(to, dst.dtype(), "acdb");
    options.has_bias = has_bias;
    options.halves = {is_half(src), is_half(dst)};
    options.threads = threads;
    options.isa = isa;
    const PostOps post_ops = parse_post_ops(entries);
    const ConvWindows made(std::move(options), post_ops);
    check_arguments(made, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
    for (const auto &post_op : post_ops) {
        const auto *binary = std::get_if<BinaryPostOp>(&post_op);
        if (binary != nullptr) check_arguments(made, {{DNNL_ARG_DST, binary->operand}});
    }
    new (self) ConvWindows(made);
}

GradientOptions gradient_options(const std::string &what, const MemoryDesc &src,
                                 const MemoryDesc &other, const Dims &begins, const Dims &window,
                                 const Dims &strides, const Dims &dilations, int lanes, int threads,
                                 const std::string &isa) {
    const Dims from = src.dims(), to = other.dims();
    require(from.size() == 4 && to.size() == 4 && from[0] == to[0] && from[1] == to[1],
            what + ": expected images of two axes with the same channels");
    for (const Dims &given : {begins, window, strides, dilations}) {
        require(given.size() == 2, what + ": expected pads and windows of two axes");
    }
    GradientOptions options{};
    options.images = from[0];
    options.channels = from[1];
    options.from = {from[2], from[3]};
    options.to = {to[2], to[3]};
    options.pads = {begins[0], begins[1]};
    options.window = {DepthwiseAxis{window[0], strides[0], dilations[0]},
                      DepthwiseAxis{window[1], strides[1], dilations[1]}};
    options.lanes = lanes;
    options.is_half = is_half(src);
    options.channels_last = src == MemoryDesc(from, src.dtype(), "acdb");
    options.threads = threads;
    options.isa = isa;
    return options;
}

void init_transposed_depthwise(TransposedDepthwise *self, const MemoryDesc &src,
                               const MemoryDesc &dst, const Dims &begins, const Entries &entries,
                               const Dims &window, const Dims &strides, const Dims &dilations,
                               int lanes, int threads, const std::string &isa) {
    const TransposedDepthwise made(
        gradient_options("transposed depthwise", src, dst, begins, window, strides, dilations,
                         lanes, threads, isa),
        parse_post_ops(entries));
    check_arguments(made, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
    new (self) TransposedDepthwise(made);
}

void init_depthwise_weights(DepthwiseWeightGradient *self, const MemoryDesc &src,
                            const MemoryDesc &diff_dst, const Dims &begins, const Dims &window,
                            const Dims &strides, const Dims &dilations, int lanes, int threads,
                            const std::string &isa) {
    const DepthwiseWeightGradient made(gradient_options("depthwise weights", src, diff_dst, begins,
                                                        window, strides, dilations, lanes, threads,
                                                        isa));
    check_arguments(made, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DIFF_DST, diff_dst}});
    new (self) DepthwiseWeightGradient(made);
}

using PointwiseSteps = std::vector<std::tuple<std::string, std::vector<int>, float, float>>;

void init_pointwise(Pointwise *self, const PointwiseSteps &given,
                    const std::vector<float> &literals, const std::vector<MemoryDesc> &sources,
                    const MemoryDesc &dst, const std::vector<std::pair<float, float>> &numbers,
                    int threads, const std::string &isa) {
    std::vector<PointwiseStep> steps;
    for (const auto &[name, operands, alpha, beta] : given) {
        steps.push_back({name, operands, alpha, beta});
    }
    std::vector<Grid> grids;
    for (const auto &[scale, zero] : numbers) grids.push_back({scale, zero});
    new (self) Pointwise(steps, literals, sources, dst, grids, threads, isa);
}

void init_normalization(Normalization *self, const std::string &algorithm, const MemoryDesc &src,
                        const MemoryDesc &dst, const MemoryDesc &statistics,
                        const std::optional<MemoryDesc> &scale,
                        const std::optional<MemoryDesc> &shift, double epsilon, int threads,
                        const std::string &isa) {
    Normalization::Affine affine;
    if (scale) affine.scale.push_back(*scale);
    if (shift) affine.shift.push_back(*shift);
    new (self) Normalization(algorithm, src, dst, statistics, affine, epsilon, threads, isa);
}

using AttentionSteps = std::vector<std::tuple<std::string, float, MemoryDesc>>;

void init_attention(Attention *self, const MemoryDesc &queries, const MemoryDesc &keys,
                    const MemoryDesc &values, const MemoryDesc &dst, const AttentionSteps &given,
                    float scale, const Dims &query_axes, const Dims &key_axes,
                    const std::string &zeroed, int threads, const std::string &isa) {
    Attention::Options options{scale, {}, query_axes, key_axes, zeroed, threads, isa};
    for (const auto &[name, fill, operand] : given) options.steps.push_back({name, fill, operand});
    new (self) Attention(queries, keys, values, dst, options);
}

void bind_gradients(nb::module_ &m) {
    m.def(
        "fitted",
        [](const PrimitiveDesc &desc, const std::map<int, MemoryDesc> &given) {
            const nb::gil_scoped_release released;
            return fitted(desc, given);
        },
        "desc"_a, "given"_a);
    m.def(
        "conv_weight_gradient",
        [](const MemoryDesc &src, const MemoryDesc &diff_dst, const MemoryDesc &dst,
           const Dims &strides, const Dims &dilations, const Dims &begins, const Dims &ends,
           int groups_together, int threads) {
            const Window window{strides, dilations, begins, ends};
            return conv_weight_gradient(src, diff_dst, dst, window, groups_together, threads);
        },
        "src"_a, "diff_dst"_a, "dst"_a, "strides"_a, "dilations"_a, "pads_begin"_a, "pads_end"_a,
        nb::kw_only(), "groups_together"_a = 1, "threads"_a, ReleaseGil());
    m.def(
        "pooling_places",
        [](const MemoryDesc &src, const MemoryDesc &dst, const MemoryDesc &places,
           const Dims &kernel, const Dims &strides, const Dims &dilations, const Dims &begins,
           const Dims &ends, int threads) {
            const Window window{strides, dilations, begins, ends};
            return pooling_places(src, dst, places, kernel, window, threads);
        },
        "src"_a, "dst"_a, "places"_a, "kernel"_a, "strides"_a, "dilations"_a, "pads_begin"_a,
        "pads_end"_a, nb::kw_only(), "threads"_a, ReleaseGil());
    m.def(
        "pooling_gradient",
        [](const std::string &algorithm, const MemoryDesc &src, const MemoryDesc &diff_dst,
           const std::optional<MemoryDesc> &places, const Dims &kernel, const Dims &strides,
           const Dims &dilations, const Dims &begins, const Dims &ends, int threads) {
            const Window window{strides, dilations, begins, ends};
            return pooling_gradient(algorithm, src, diff_dst, places, kernel, window, threads);
        },
        "algorithm"_a, "src"_a, "diff_dst"_a, "places"_a.none(), "kernel"_a, "strides"_a,
        "dilations"_a, "pads_begin"_a, "pads_end"_a, nb::kw_only(), "threads"_a, ReleaseGil());
    m.def("batch_norm_training", &batch_norm_training, "src"_a, "dst"_a, "epsilon"_a, nb::kw_only(),
          "threads"_a, ReleaseGil());
    m.def("batch_norm_gradient", &batch_norm_gradient, "src"_a, "diff_dst"_a, "dst"_a, "epsilon"_a,
          nb::kw_only(), "threads"_a, ReleaseGil());
    nb::class_<BatchNorm, Kernel>(m, "BatchNorm", nb::is_final())
        .def(
            "__init__",
            [](BatchNorm *self, const MemoryDesc &images, float epsilon, bool adds, float low,
               float high, int threads, const std::string &isa) {
                new (self) BatchNorm({images, epsilon, low, high, threads, isa}, adds);
            },
            "images"_a, "epsilon"_a, nb::kw_only(), "adds"_a = false, "low"_a = -kInfinity,
            "high"_a = kInfinity, "threads"_a, "isa"_a = "");
    nb::class_<BatchNormGradient, Kernel>(m, "BatchNormGradient", nb::is_final())
        .def(
            "__init__",
            [](BatchNormGradient *self, const MemoryDesc &images, float epsilon, bool masks,
               float low, float high, int threads, const std::string &isa) {
                new (self) BatchNormGradient({images, epsilon, low, high, threads, isa}, masks);
            },
            "images"_a, "epsilon"_a, nb::kw_only(), "masks"_a = false, "low"_a = -kInfinity,
            "high"_a = kInfinity, "threads"_a, "isa"_a = "");
    m.attr("ARG_DIFF_DST") = DNNL_ARG_DIFF_DST;
    m.attr("ARG_WORKSPACE") = DNNL_ARG_WORKSPACE;
    m.attr("ARG_DIFF_SCALE") = DNNL_ARG_DIFF_SCALE;
    m.attr("ARG_DIFF_SHIFT") = DNNL_ARG_DIFF_SHIFT;
}

template <class Operation>
void make_measurement(Measurement *self, const Operation &operation, const std::vector<int> &cold,
                      std::int64_t spread_nbytes) {
    const nb::gil_scoped_release released;
    new (self) Measurement(operation, cold, as_size(spread_nbytes, "spread_nbytes"));
}

void bind_measurement(nb::module_ &m) {
    nb::class_<Measurement>(m, "Measurement", nb::is_final())
        .def("__init__", make_measurement<Primitive>, "operation"_a, nb::kw_only(),
             "cold"_a = std::vector<int>(), "spread_nbytes"_a = 0, nb::keep_alive<1, 2>())
        .def("__init__", make_measurement<Kernel>, "operation"_a, nb::kw_only(),
             "cold"_a = std::vector<int>(), "spread_nbytes"_a = 0, nb::keep_alive<1, 2>())
        .def_prop_ro("nbytes", &Measurement::nbytes)
        .def(
            "run",
            [](const Measurement &self, int min_runs, int max_runs, std::int64_t budget_ns) {
                Measured found = self.run({min_runs, max_runs, budget_ns});
                return std::pair(std::move(found.samples), found.waited);
            },
            nb::kw_only(), "min_runs"_a, "max_runs"_a, "budget_ns"_a, ReleaseGil());
}

}  // namespace

void bind_kernels(nb::module_ &m) {
    nb::class_<Kernel>(m, "Kernel")
        .def_prop_ro("impl", &Kernel::impl)
        .def_prop_ro("scratchpad_nbytes", &Kernel::scratchpad_nbytes)
        .def_prop_ro("args", &Kernel::args)
        .def_prop_ro("threads", &Kernel::threads)
        .def("arg_desc", &Kernel::arg_desc, "arg"_a);
    bind_gradients(m);
    bind_winograd(m);
    bind_elements(m);
    nb::class_<Depthwise, Kernel>(m, "Depthwise", nb::is_final())
        .def("__init__", &init_depthwise, "src"_a, "dst"_a, "expands"_a, "has_bias"_a,
             "has_depthwise_bias"_a, "pads_begin"_a, "pads_end"_a, "post_ops"_a, nb::kw_only(),
             "between"_a, "window"_a, "strides"_a, "dilations"_a, "lanes"_a, "threads"_a,
             "multiplies_halves"_a = false, "parts"_a = Dims(), "group"_a = 1, "slices"_a = Dims(),
             "isa"_a = "");
    nb::class_<ByteDepthwise, Kernel>(m, "ByteDepthwise", nb::is_final())
        .def("__init__", &init_byte_depthwise, "src"_a, "dst"_a, "has_bias"_a, "pads_begin"_a,
             "pads_end"_a, "post_ops"_a, "numbers"_a, nb::kw_only(), "window"_a, "strides"_a,
             "dilations"_a, "lanes"_a, "threads"_a, "isa"_a = "");
    nb::class_<ByteConv, Kernel>(m, "ByteConv", nb::is_final())
        .def("__init__", &init_byte_conv, "src"_a, "dst"_a, "has_bias"_a, "pads_begin"_a,
             "pads_end"_a, "post_ops"_a, "numbers"_a, nb::kw_only(), "window"_a, "strides"_a,
             "dilations"_a, "threads"_a, "isa"_a = "");
    nb::class_<ConvWindows, Kernel>(m, "ConvWindows", nb::is_final())
        .def("__init__", &init_conv_windows, "src"_a, "dst"_a, "has_bias"_a, "pads_begin"_a,
             "pads_end"_a, "post_ops"_a, nb::kw_only(), "window"_a, "strides"_a, "dilations"_a,
             "lanes"_a, "threads"_a, "isa"_a = "");
    nb::class_<Conv1x1, Kernel>(m, "Conv1x1", nb::is_final())
        .def("__init__", &init_conv1x1, "src"_a, "dst"_a, "has_bias"_a, "has_factor"_a,
             "post_ops"_a, nb::kw_only(), "between"_a, "lanes"_a, "threads"_a,
             "strides"_a = Dims{1, 1}, "groups"_a = 1, "isa"_a = "");
    nb::class_<TransposedDepthwise, Kernel>(m, "TransposedDepthwise", nb::is_final())
        .def("__init__", &init_transposed_depthwise, "src"_a, "dst"_a, "pads_begin"_a, "post_ops"_a,
             nb::kw_only(), "window"_a, "strides"_a, "dilations"_a, "lanes"_a, "threads"_a,
             "isa"_a = "");
    nb::class_<DepthwiseWeightGradient, Kernel>(m, "DepthwiseWeightGradient", nb::is_final())
        .def("__init__", &init_depthwise_weights, "src"_a, "diff_dst"_a, "pads_begin"_a,
             nb::kw_only(), "window"_a, "strides"_a, "dilations"_a, "lanes"_a, "threads"_a,
             "isa"_a = "");
    m.attr("ARG_DEPTHWISE_WEIGHTS") = kDepthwiseWeights;
    m.attr("ARG_DEPTHWISE_BIAS") = kDepthwiseBias;
    m.def("kernel_isas", &kernel_isas, "lanes"_a, "halves"_a = false);
    m.def("byte_isas", &byte_isas);
    m.def("cache_nbytes", &cache_nbytes, "level"_a);
    nb::class_<Reduction, Kernel>(m, "Reduction", nb::is_final())
        .def(nb::init<const std::string &, const MemoryDesc &, const MemoryDesc &, int,
                      const std::string &>(),
             "algorithm"_a, "src"_a, "dst"_a, nb::kw_only(), "threads"_a, "isa"_a = "");
    nb::class_<Normalization, Kernel>(m, "Normalization", nb::is_final())
        .def("__init__", &init_normalization, "algorithm"_a, "src"_a, "dst"_a, "statistics"_a,
             "scale"_a = nb::none(), "shift"_a = nb::none(), nb::kw_only(), "epsilon"_a = 0.0,
             "threads"_a, "isa"_a = "");
    nb::class_<Pointwise, Kernel>(m, "Pointwise", nb::is_final())
        .def("__init__", &init_pointwise, "steps"_a, "literals"_a, "sources"_a, "dst"_a,
             "grids"_a = std::vector<std::pair<float, float>>(), nb::kw_only(), "threads"_a,
             "isa"_a = "");
    m.def("pointwise_isas", &pointwise_isas, "halves"_a = false);
    nb::class_<Lookup, Kernel>(m, "Lookup", nb::is_final())
        .def(nb::init<const MemoryDesc &, const MemoryDesc &, int, const std::string &>(), "src"_a,
             "dst"_a, nb::kw_only(), "threads"_a, "isa"_a = "");
    m.def("lookup_isas", &lookup_isas);
    nb::class_<GridSample, Kernel>(m, "GridSample", nb::is_final())
        .def(nb::init<const std::string &, const std::string &, bool, const MemoryDesc &,
                      const MemoryDesc &, const MemoryDesc &, int>(),
             "mode"_a, "border"_a, "aligns_corners"_a, "src"_a, "grid"_a, "dst"_a, nb::kw_only(),
             "threads"_a);
    nb::class_<PlainPooling, Kernel>(m, "PlainPooling", nb::is_final())
        .def(nb::init<const std::string &, const MemoryDesc &, const MemoryDesc &, const Dims &,
                      const Dims &, const Dims &, const Dims &, int>(),
             "algorithm"_a, "src"_a, "dst"_a, "window"_a, "strides"_a, "dilations"_a, "begins"_a,
             nb::kw_only(), "threads"_a);
    nb::class_<Recurrent, Kernel>(m, "Recurrent", nb::is_final())
        .def(
            "__init__",
            [](Recurrent *self, const std::string &cell, const std::string &direction,
               const MemoryDesc &src, const MemoryDesc &dst, bool has_bias, bool has_state,
               bool has_cell, int threads, int lanes, const std::string &isa) {
                new (self) Recurrent(
                    src, dst,
                    {cell, direction, has_bias, has_state, has_cell, lanes, threads, isa});
            },
            "cell"_a, "direction"_a, "src"_a, "dst"_a, nb::kw_only(), "has_bias"_a, "has_state"_a,
            "has_cell"_a, "threads"_a, "lanes"_a = 0, "isa"_a = "");
    nb::class_<Attention, Kernel>(m, "Attention", nb::is_final())
        .def("__init__", &init_attention, "queries"_a, "keys"_a, "values"_a, "dst"_a, "steps"_a,
             nb::kw_only(), "scale"_a, "query_axes"_a, "key_axes"_a, "zeroed"_a, "threads"_a,
             "isa"_a = "");
    nb::class_<Dropout, Kernel>(m, "Dropout", nb::is_final())
        .def(nb::init<const MemoryDesc &, double, std::int64_t, int>(), "images"_a, "share"_a,
             "stream"_a, nb::kw_only(), "threads"_a);
    bind_measurement(m);
}

}  // namespace stridewise
