// Bindings of Winograd convolution.
#include "winograd/winograd.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.hpp"
#include "bindings/shared.hpp"
#include "pointwise/pointwise.hpp"
#include "support/errors.hpp"
#include "winograd/fitted.hpp"
#include "winograd/strided.hpp"
#include "winograd/weights.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stridewise {
namespace {

// The two axes of an argument.
std::array<std::int64_t, 2> axes_of(const Dims &values, const char *what) {
    require(values.size() == 2, std::string("winograd: expected ") + what + " of two axes");
    return {values[0], values[1]};
}

struct WinogradGeometry {
    Dims begins, ends, window, dilations;
};

// The options that follow from the descriptors of source and destination.
WinogradOptions winograd_options(const MemoryDesc &src, const MemoryDesc &dst,
                                 const WinogradGeometry &geometry) {
    const Dims from = src.dims(), to = dst.dims();
    require(from.size() == 4 && to.size() == 4, "winograd: expected images of two axes");
    const auto begins = axes_of(geometry.begins, "pads"), ends = axes_of(geometry.ends, "pads");
    WinogradOptions options{};
    options.images = from[0];
    options.channels = from[1];
    options.height = from[2];
    options.width = from[3];
    options.outputs = to[1];
    options.pads = {begins[0], begins[1], ends[0], ends[1]};
    options.window = axes_of(geometry.window, "a window");
    options.dilations = axes_of(geometry.dilations, "dilations");
    options.halves = {is_half(src), is_half(dst)};
    options.source_last = src == MemoryDesc(from, src.dtype(), "acdb");
    options.result_last = options.source_last;
    return options;
}

// Requires that images and operands have the formats of a Winograd kernel.
void check_images(const Kernel &kernel, const MemoryDesc &src, const MemoryDesc &dst,
                  const PostOps &post_ops) {
    const auto check_desc = [&](int arg, const MemoryDesc &given, const char *what) {
        const MemoryDesc wanted = kernel.arg_desc(arg);
        require(given == wanted, std::string("winograd: expected ") + what + " of " +
                                     wanted.repr() + ", got " + given.repr());
    };
    check_desc(DNNL_ARG_SRC, src, "a source");
    check_desc(DNNL_ARG_DST, dst, "a destination");
    for (const auto &post_op : post_ops) {
        const auto *binary = std::get_if<BinaryPostOp>(&post_op);
        if (binary != nullptr) check_desc(DNNL_ARG_DST, binary->operand, "an operand");
    }
}

void init_winograd(Winograd *self, const MemoryDesc &src, const MemoryDesc &dst, bool has_bias,
                   const Dims &begins, const Dims &ends, const Entries &entries, int tile,
                   int lanes, int threads, const Dims &window, const Dims &dilations,
                   std::int64_t groups, std::int64_t pool, bool multiplies_halves,
                   const std::string &isa) {
    const PostOps post_ops = parse_post_ops(entries);
    WinogradOptions options = winograd_options(src, dst, {begins, ends, window, dilations});
    options.groups = groups;
    options.pool = pool;
    options.multiplies_halves = multiplies_halves;
    options.tile = tile;
    options.lanes = lanes;
    options.has_bias = has_bias;
    options.threads = threads;
    options.isa = isa;
    const Winograd made(std::move(options), post_ops);
    check_images(made, src, dst, post_ops);
    new (self) Winograd(made);
}

void init_strided_winograd(StridedWinograd *self, const MemoryDesc &src, const MemoryDesc &dst,
                           bool has_bias, const Dims &begins, const Dims &ends,
                           const Entries &entries, int tile, int lanes, int threads,
                           const Dims &window, const Dims &strides, const Dims &slices,
                           const std::string &isa) {
    const PostOps post_ops = parse_post_ops(entries);
    WinogradOptions options = winograd_options(src, dst, {begins, ends, window, {1, 1}});
    options.result_last = dst == MemoryDesc(dst.dims(), dst.dtype(), "acdb");
    options.groups = 1;
    options.tile = tile;
    options.lanes = lanes;
    options.has_bias = has_bias;
    options.threads = threads;
    options.isa = isa;
    require(slices.empty() || slices.size() == 6, "winograd: expected six numbers for slices");
    WinogradSlices deep;
    if (!slices.empty()) {
        deep = {slices[0], slices[1], slices[2], slices[3], slices[4], slices[5]};
    }
    const StridedWinograd made(options, axes_of(strides, "strides"), deep, post_ops);
    check_images(made, src, dst, post_ops);
    new (self) StridedWinograd(made);
}

template <class Convolution>
void pack_winograd(const Convolution &kernel, nb::handle array, Buffer &buffer, std::int64_t offset,
                   std::int64_t first, std::optional<std::int64_t> given_count) {
    const ArrayBytes bytes(array, PyBUF_C_CONTIGUOUS, "array");
    const std::int64_t outputs = kernel.outputs(), unit = kernel.pair_outputs();
    require(first >= 0 && first <= outputs && first % unit == 0,
            "first: expected a multiple of " + std::to_string(unit) + " up to " +
                std::to_string(outputs) + ", got " + std::to_string(first));
    const std::int64_t count = given_count.value_or(outputs - first);
    const bool is_whole = count == outputs - first;
    require(count >= 0 && count <= outputs - first && (is_whole || count % unit == 0),
            "count: expected a multiple of " + std::to_string(unit) + ", or the " +
                std::to_string(outputs - first) + " outputs that are left, got " +
                std::to_string(count));
    const std::size_t have = bytes.view().nbytes;
    const std::size_t wanted =
        kernel.weights_nbytes() / as_size(outputs, "outputs") * as_size(count, "count");
    require(have == wanted,
            "array: expected " + std::to_string(wanted) + " bytes, got " + std::to_string(have));
    const std::size_t from = as_size(offset, "offset");
    const std::size_t packed = kernel.arg_desc(DNNL_ARG_WEIGHTS).nbytes();
    require(
        from % sizeof(float) == 0 && from <= buffer.nbytes() && packed <= buffer.nbytes() - from,
        "buffer: expected " + std::to_string(packed) + " bytes from offset " +
            std::to_string(from) + " on, a multiple of 4, within the " +
            std::to_string(buffer.nbytes()));
    const auto *weights = static_cast<const float *>(bytes.view().data);
    void *target = buffer.data() + from;
    const nb::gil_scoped_release released;
    kernel.pack(weights, target, first, count);
}

}  // namespace

void bind_winograd(nb::module_ &m) {
    nb::class_<Winograd, Kernel>(m, "Winograd", nb::is_final())
        .def("__init__", &init_winograd, "src"_a, "dst"_a, "has_bias"_a, "pads_begin"_a,
             "pads_end"_a, "post_ops"_a, nb::kw_only(), "tile"_a, "lanes"_a, "threads"_a,
             "window"_a = Dims{3, 3}, "dilations"_a = Dims{1, 1}, "groups"_a = 1, "pool"_a = 1,
             "multiplies_halves"_a = false, "isa"_a = "")
        .def("pack_into", &pack_winograd<Winograd>, "array"_a, "buffer"_a, "offset"_a,
             "first"_a = 0, "count"_a = nb::none());
    nb::class_<StridedWinograd, Kernel>(m, "StridedWinograd", nb::is_final())
        .def("__init__", &init_strided_winograd, "src"_a, "dst"_a, "has_bias"_a, "pads_begin"_a,
             "pads_end"_a, "post_ops"_a, nb::kw_only(), "tile"_a, "lanes"_a, "threads"_a,
             "window"_a, "strides"_a, "slices"_a = Dims(), "isa"_a = "")
        .def("pack_into", &pack_winograd<StridedWinograd>, "array"_a, "buffer"_a, "offset"_a,
             "first"_a = 0, "count"_a = nb::none());
    nb::class_<FittedWinograd, Kernel>(m, "FittedWinograd", nb::is_final())
        .def(nb::init<Winograd, bool>(), "kernel"_a, "is_transposed"_a);
    nb::class_<WinogradWeightGradient, Kernel>(m, "WinogradWeightGradient", nb::is_final())
        .def(nb::init<Winograd>(), "forward"_a);
    m.def(
        "winograd_partition",
        [](std::int64_t window, std::int64_t tiles, std::int64_t chunks, std::int64_t pairs,
           std::int64_t lanes, std::int64_t rows, std::int64_t threads, const Dims &sizes) {
            require(std::min({window, tiles, chunks, pairs, lanes, rows, threads}) >= 1 &&
                        sizes.size() == 3 && *std::min_element(sizes.begin(), sizes.end()) >= 1,
                    "winograd_partition: expected positive numbers, and three sizes of caches");
            const WinogradWork work{window, tiles, chunks, pairs, lanes, rows, threads};
            const auto blocking = choose_blocking(work, {sizes[0], sizes[1], sizes[2]});
            const auto found = partition_of(work, blocking);
            static constexpr const char *kNames[] = {"blocks", "outputs", "places"};
            return nb::make_tuple(kNames[static_cast<int>(blocking.share)], found.busy, found.rows,
                                  found.weights_nbytes);
        },
        "window"_a, "tiles"_a, "chunks"_a, "pairs"_a, "lanes"_a, "rows"_a, "threads"_a, "caches"_a);
}

}  // namespace stridewise
