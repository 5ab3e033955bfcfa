// The Python module stridewise._core. Its signatures are documented in src/stridewise/_core.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <system_error>

#include "bindings/arrays.hpp"
#include "bindings/shared.hpp"
#include "executor/program.hpp"
#include "onednn/memory.hpp"
#include "onednn/primitives.hpp"
#include "support/checksum.hpp"
#include "support/errors.hpp"
#include "threads/imports.hpp"
#include "threads/regions.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stridewise {
namespace {

std::vector<std::size_t> as_sizes(const Dims &values, const char *what) {
    std::vector<std::size_t> sizes;
    for (const auto value : values) sizes.push_back(as_size(value, what));
    return sizes;
}

nb::object view_of(const std::shared_ptr<Buffer> &buffer) {
    if (buffer->is_mapped()) {
        using Bytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;
        return nb::cast(Bytes(buffer->data(), {buffer->nbytes()}, nb::cast(buffer)));
    }
    using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
    return nb::cast(Bytes(buffer->data(), {buffer->nbytes()}, nb::cast(buffer)));
}

using OptionalDesc = std::optional<MemoryDesc>;

Ref parse_ref(const nb::tuple &ref, std::size_t first, const char *what) {
    require(ref.size() == first + 3, std::string(what) + ": expected " + std::to_string(first + 3) +
                                         " values, got " + std::to_string(ref.size()));
    return {static_cast<Space>(nb::cast<int>(ref[first])),
            as_size(nb::cast<std::int64_t>(ref[first + 1]), "index"),
            as_size(nb::cast<std::int64_t>(ref[first + 2]), "offset_bytes")};
}

Arg parse_arg(const nb::tuple &entry) {
    const Ref ref = parse_ref(entry, 2, "argument (id, desc, space, index, offset_bytes)");
    return {nb::cast<int>(entry[0]), nb::cast<MemoryDesc>(entry[1]), ref};
}

std::string effective_isa() {
    // The name is "cpu_isa_avx2" or "cpu_avx2", depending on the release.
    std::string isa = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
    for (const std::string prefix : {"cpu_", "isa_"}) {
        if (isa.rfind(prefix, 0) == 0) isa.erase(0, prefix.size());
    }
    std::transform(isa.begin(), isa.end(), isa.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return isa;
}

std::string version() {
    const dnnl_version_t *version = dnnl_version();
    return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
           std::to_string(version->patch);
}

void bind_errors(nb::module_ &m) {
    nb::register_exception_translator([](const std::exception_ptr &pointer, void *) {
        try {
            std::rethrow_exception(pointer);
        } catch (const std::system_error &error) {
            errno = error.code().value();
            PyErr_SetFromErrno(PyExc_OSError);
        }
    });
    const nb::exception<NativeError> native_error(m, "NativeError", PyExc_RuntimeError);
    // The module owns the class, so a borrowed pointer remains valid for the translator.
    nb::register_exception_translator(
        [](const std::exception_ptr &pointer, void *type) {
            try {
                std::rethrow_exception(pointer);
            } catch (const dnnl::error &error) {
                const NativeError native(error.status, error.message);
                PyErr_SetString(static_cast<PyObject *>(type), native.what());
            }
        },
        native_error.ptr());
}

// The memory of an array that stores a tensor in the layout of `desc`.
ArrayBytes bytes_of(nb::handle array, const MemoryDesc &desc) {
    ArrayBytes bytes(array, PyBUF_STRIDED_RO, "array");
    const std::size_t have = bytes.extent("array");
    require(have >= desc.extent(), "array: expected at least the " + std::to_string(desc.extent()) +
                                       " bytes of " + desc.repr() + ", got " +
                                       std::to_string(have));
    return bytes;
}

void bind_memory(nb::module_ &m) {
    nb::class_<MemoryDesc>(m, "MemoryDesc")
        .def(nb::init<const Dims &, const std::string &, const std::string &>(), "dims"_a,
             "dtype"_a, "tag"_a)
        .def_static("strided", &MemoryDesc::strided, "dims"_a, "dtype"_a, "strides"_a)
        .def("submemory", &MemoryDesc::submemory, "dims"_a, "offsets"_a)
        .def_prop_ro("dims", &MemoryDesc::dims)
        .def_prop_ro("ndims", &MemoryDesc::ndims)
        .def_prop_ro("dtype", &MemoryDesc::dtype)
        .def_prop_ro("nbytes", &MemoryDesc::nbytes)
        .def_prop_ro("extent", &MemoryDesc::extent)
        .def_prop_ro("offset", &MemoryDesc::offset)
        .def_prop_ro("is_any", &MemoryDesc::is_any)
        .def_prop_ro("layout", &MemoryDesc::layout)
        .def(nb::self == nb::self)
        .def("__hash__", &MemoryDesc::hash)
        .def("__repr__", &MemoryDesc::repr);

    nb::class_<Buffer>(m, "Buffer")
        .def(
            "__init__",
            [](Buffer *self, std::int64_t nbytes) { new (self) Buffer(as_size(nbytes, "nbytes")); },
            "nbytes"_a)
        .def_static(
            "from_array",
            [](nb::handle array) {
                const ArrayBytes bytes(array, PyBUF_C_CONTIGUOUS, "array");
                const View view = bytes.view();
                auto buffer = std::make_unique<Buffer>(view.nbytes);
                std::copy_n(static_cast<const std::byte *>(view.data), view.nbytes, buffer->data());
                return buffer;
            },
            "array"_a)
        .def_static(
            "map",
            [](int descriptor, std::int64_t position, std::int64_t nbytes) {
                return Buffer::map(descriptor, as_size(position, "position"),
                                   as_size(nbytes, "nbytes"));
            },
            "descriptor"_a, "position"_a, "nbytes"_a)
        .def_prop_ro("nbytes", &Buffer::nbytes)
        .def_prop_ro("is_mapped", &Buffer::is_mapped)
        .def("array", &view_of)
        .def(
            "checksum",
            [](const Buffer &buffer, std::int64_t offset, std::int64_t nbytes) {
                return checksum(buffer, as_size(offset, "offset"), as_size(nbytes, "nbytes"));
            },
            "offset"_a, "nbytes"_a, ReleaseGil())
        .def(
            "read",
            [](Buffer &buffer, int descriptor, std::int64_t position, std::int64_t offset,
               std::int64_t nbytes) {
                return read(buffer, descriptor, as_size(position, "position"),
                            as_size(offset, "offset"), as_size(nbytes, "nbytes"));
            },
            "descriptor"_a, "position"_a, "offset"_a, "nbytes"_a, ReleaseGil());

    m.def(
        "prepack",
        [](nb::handle array, const MemoryDesc &src, const MemoryDesc &dst, int threads) {
            const ArrayBytes bytes = bytes_of(array, src);
            const nb::gil_scoped_release released;
            return prepack(bytes.data(), src, dst, threads);
        },
        "array"_a, "src"_a, "dst"_a, "threads"_a);
    m.def(
        "prepack_into",
        [](nb::handle array, const MemoryDesc &src, const MemoryDesc &dst, Buffer &buffer,
           std::int64_t offset, int threads) {
            const ArrayBytes bytes = bytes_of(array, src);
            const std::size_t from = as_size(offset, "offset");
            const nb::gil_scoped_release released;
            prepack_into(bytes.data(), src, dst, buffer, from, threads);
        },
        "array"_a, "src"_a, "dst"_a, "buffer"_a, "offset"_a, "threads"_a);
}

using NumberEntries = std::vector<std::tuple<int, int, MemoryDesc>>;

// Takes numbers as (argument, mask, description).
NumbersList parse_numbers(const NumberEntries &entries) {
    NumbersList numbers;
    for (const auto &[arg, mask, desc] : entries) numbers.push_back({arg, mask, desc});
    return numbers;
}

void bind_convolution(nb::module_ &m) {
    using Factory = PrimitiveDesc (*)(const MemoryDesc &, const MemoryDesc &, const OptionalDesc &,
                                      const MemoryDesc &, const Window &, const PostOps &,
                                      const NumbersList &, int);
    const auto bind = [&m](const char *name, Factory factory) {
        m.def(
            name,
            [factory](const MemoryDesc &src, const MemoryDesc &weights, const OptionalDesc &bias,
                      const MemoryDesc &dst, const Dims &strides, const Dims &dilations,
                      const Dims &pads_begin, const Dims &pads_end, const Entries &entries,
                      int threads, const NumberEntries &given) {
                const PostOps post_ops = parse_post_ops(entries);
                const NumbersList numbers = parse_numbers(given);
                const Window window{strides, dilations, pads_begin, pads_end};
                const nb::gil_scoped_release released;
                return factory(src, weights, bias, dst, window, post_ops, numbers, threads);
            },
            "src"_a, "weights"_a, "bias"_a.none(), "dst"_a, "strides"_a, "dilations"_a,
            "pads_begin"_a, "pads_end"_a, "post_ops"_a = Entries(), nb::kw_only(), "threads"_a = 0,
            "numbers"_a = NumberEntries());
    };
    bind("convolution", convolution);
    bind("deconvolution", deconvolution);
    m.def(
        "pooling",
        [](const std::string &alg, const MemoryDesc &src, const MemoryDesc &dst, const Dims &kernel,
           const Dims &strides, const Dims &dilations, const Dims &pads_begin, const Dims &pads_end,
           const Entries &entries, int threads) {
            const PostOps post_ops = parse_post_ops(entries);
            const Window window{strides, dilations, pads_begin, pads_end};
            const nb::gil_scoped_release released;
            return pooling(alg, src, dst, kernel, window, post_ops, threads);
        },
        "alg"_a, "src"_a, "dst"_a, "kernel"_a, "strides"_a, "dilations"_a, "pads_begin"_a,
        "pads_end"_a, "post_ops"_a = Entries(), nb::kw_only(), "threads"_a = 0);
}

void bind_products(nb::module_ &m) {
    using Factory =
        PrimitiveDesc (*)(const MemoryDesc &, const MemoryDesc &, const OptionalDesc &,
                          const MemoryDesc &, const PostOps &, const NumbersList &, int);
    const auto bind = [&m](const char *name, Factory factory) {
        m.def(
            name,
            [factory](const MemoryDesc &src, const MemoryDesc &weights, const OptionalDesc &bias,
                      const MemoryDesc &dst, const Entries &entries, int threads,
                      const NumberEntries &given) {
                const PostOps post_ops = parse_post_ops(entries);
                const NumbersList numbers = parse_numbers(given);
                const nb::gil_scoped_release released;
                return factory(src, weights, bias, dst, post_ops, numbers, threads);
            },
            "src"_a, "weights"_a, "bias"_a.none(), "dst"_a, "post_ops"_a = Entries(), nb::kw_only(),
            "threads"_a = 0, "numbers"_a = NumberEntries());
    };
    bind("matmul", &matmul);
    bind("inner_product", &inner_product);
}

void bind_elementwise(nb::module_ &m) {
    m.def(
        "eltwise",
        [](const std::string &alg, const MemoryDesc &src, const MemoryDesc &dst, float alpha,
           float beta, const Entries &entries, int threads) {
            const PostOps post_ops = parse_post_ops(entries);
            const nb::gil_scoped_release released;
            return eltwise(alg, src, dst, alpha, beta, post_ops, threads);
        },
        "alg"_a, "src"_a, "dst"_a, "alpha"_a = 0.0F, "beta"_a = 0.0F, "post_ops"_a = Entries(),
        nb::kw_only(), "threads"_a = 0);
    m.def(
        "binary",
        [](const std::string &alg, const MemoryDesc &src0, const MemoryDesc &src1,
           const MemoryDesc &dst, const Entries &entries, int threads, const NumberEntries &given) {
            const PostOps post_ops = parse_post_ops(entries);
            const NumbersList numbers = parse_numbers(given);
            const nb::gil_scoped_release released;
            return binary(alg, src0, src1, dst, post_ops, numbers, threads);
        },
        "alg"_a, "src0"_a, "src1"_a, "dst"_a, "post_ops"_a = Entries(), nb::kw_only(),
        "threads"_a = 0, "numbers"_a = NumberEntries());
    m.def(
        "resampling",
        [](const std::string &alg, const MemoryDesc &src, const MemoryDesc &dst,
           const Entries &entries, int threads) {
            const PostOps post_ops = parse_post_ops(entries);
            const nb::gil_scoped_release released;
            return resampling(alg, src, dst, post_ops, threads);
        },
        "alg"_a, "src"_a, "dst"_a, "post_ops"_a = Entries(), nb::kw_only(), "threads"_a = 0);
    m.def("scale_shift", &scale_shift, "src"_a, "dst"_a, "relu"_a, nb::kw_only(), "threads"_a = 0,
          ReleaseGil());
    m.def("batch_norm", &batch_norm, "src"_a, "dst"_a, "epsilon"_a, "affine"_a, nb::kw_only(),
          "threads"_a = 0, ReleaseGil());
    m.def("layer_norm", &layer_norm, "src"_a, "dst"_a, "epsilon"_a, "scale"_a, "shift"_a,
          nb::kw_only(), "threads"_a = 0, ReleaseGil());
    m.def("lrn", &lrn, "src"_a, "dst"_a, "alg"_a, "local_size"_a, "alpha"_a, "beta"_a, "k"_a,
          nb::kw_only(), "threads"_a = 0, ReleaseGil());
    m.def("softmax", &softmax, "src"_a, "dst"_a, "axis"_a, "log"_a, nb::kw_only(), "threads"_a = 0,
          ReleaseGil());
}

void bind_movement(nb::module_ &m) {
    m.def("concat", &concat, "dst"_a, "axis"_a, "srcs"_a, nb::kw_only(), "threads"_a = 0,
          ReleaseGil());
    m.def(
        "reorder",
        [](const MemoryDesc &src, const MemoryDesc &dst, int threads, const NumberEntries &given) {
            const NumbersList numbers = parse_numbers(given);
            const nb::gil_scoped_release released;
            return reorder(src, dst, numbers, threads);
        },
        "src"_a, "dst"_a, nb::kw_only(), "threads"_a = 0, "numbers"_a = NumberEntries());
    m.def("shuffle", &shuffle, "src"_a, "dst"_a, "axis"_a, "group_size"_a, nb::kw_only(),
          "threads"_a = 0, ReleaseGil());
}

void bind_primitives(nb::module_ &m) {
    nb::class_<Primitive>(m, "Primitive")
        .def_prop_ro("impl", &Primitive::impl)
        .def_prop_ro("scratchpad_nbytes", &Primitive::scratchpad_nbytes)
        .def_prop_ro("args", &Primitive::args)
        .def_prop_ro("threads", &Primitive::threads)
        .def("arg_desc", &Primitive::arg_desc, "arg"_a);
    nb::class_<PrimitiveDesc>(m, "PrimitiveDesc")
        .def_prop_ro("impl", &PrimitiveDesc::impl)
        .def_prop_ro("scratchpad_nbytes", &PrimitiveDesc::scratchpad_nbytes)
        .def_prop_ro("args", &PrimitiveDesc::args)
        .def_prop_ro("threads", &PrimitiveDesc::threads)
        .def("arg_desc", &PrimitiveDesc::arg_desc, "arg"_a)
        .def("next", &PrimitiveDesc::next, ReleaseGil())
        .def("create", &PrimitiveDesc::create, ReleaseGil());
    m.def("post_op_arg", &post_op_arg, "index"_a);
    m.attr("ARG_SRC") = DNNL_ARG_SRC;
    m.attr("ARG_SRC_1") = DNNL_ARG_SRC_1;
    m.attr("ARG_SRC_2") = DNNL_ARG_SRC_2;
    m.attr("ARG_DST_1") = DNNL_ARG_DST_1;
    m.attr("ARG_DST") = DNNL_ARG_DST;
    m.attr("ARG_WEIGHTS") = DNNL_ARG_WEIGHTS;
    m.attr("ARG_BIAS") = DNNL_ARG_BIAS;
    m.attr("ARG_SCRATCHPAD") = DNNL_ARG_SCRATCHPAD;
    m.attr("ARG_SCALE") = DNNL_ARG_SCALE;
    m.attr("ARG_SHIFT") = DNNL_ARG_SHIFT;
    m.attr("ARG_MEAN") = DNNL_ARG_MEAN;
    m.attr("ARG_VARIANCE") = DNNL_ARG_VARIANCE;
    m.attr("ARG_MULTIPLE_SRC") = DNNL_ARG_MULTIPLE_SRC;
    m.attr("ARG_SCALES_OF") = DNNL_ARG_ATTR_SCALES;
    m.attr("ARG_ZERO_POINTS_OF") = DNNL_ARG_ATTR_ZERO_POINTS;
}

void init_program(Program *self, std::int64_t arena_nbytes, const nb::sequence &constants,
                  const Dims &input_nbytes, const Dims &output_nbytes, int threads,
                  std::int64_t parts, int lanes, const Dims &parameter_nbytes,
                  const Dims &state_nbytes) {
    std::vector<Constant> held;
    for (const nb::handle constant : constants) held.push_back(as_constant(constant, held.size()));
    new (self) Program(as_size(arena_nbytes, "arena_nbytes"), std::move(held),
                       as_sizes(input_nbytes, "input_nbytes"),
                       as_sizes(output_nbytes, "output_nbytes"), threads, as_size(parts, "parts"),
                       lanes, as_sizes(parameter_nbytes, "parameter_nbytes"),
                       as_sizes(state_nbytes, "state_nbytes"));
}

std::vector<InPlace> parse_in_place(const std::vector<std::pair<int, int>> &pairs) {
    std::vector<InPlace> found;
    for (const auto &[written, read] : pairs) found.push_back({written, read});
    return found;
}

void read_program(Program &program, const nb::tuple &ref, nb::handle array) {
    const ArrayBytes bytes(array, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, "array");
    const Ref place = parse_ref(ref, 0, "ref");
    const nb::gil_scoped_release released;
    program.read(place, bytes.view().data, bytes.view().nbytes);
}

void write_program(Program &program, const std::vector<std::pair<nb::tuple, nb::object>> &values) {
    std::vector<ArrayBytes> arrays;
    std::vector<Written> all;
    for (const auto &[ref, array] : values) {
        arrays.emplace_back(array, PyBUF_C_CONTIGUOUS, "array");
        const View view = arrays.back().view();
        all.push_back({parse_ref(ref, 0, "ref"), view.data, view.nbytes});
    }
    const nb::gil_scoped_release released;
    program.write(all);
}

void run_program(Program &program, nb::handle inputs, nb::handle outputs) {
    const ArrayList in(inputs, false, "inputs");
    const ArrayList out(outputs, true, "outputs");
    const nb::gil_scoped_release released;
    program.run(in.views(), out.views());
}

// Views of tensors of PyTorch for all parts of a program, which declares the bytes of one part.
Program::Views tensor_views(nb::handle tensors, const std::vector<std::size_t> &nbytes,
                            std::size_t parts) {
    static PyObject *const data_ptr = PyUnicode_InternFromString("data_ptr");
    const auto fast = nb::steal(PySequence_Fast(tensors.ptr(), "expected a list of tensors"));
    if (!fast.is_valid()) nb::raise_python_error();
    const auto count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(fast.ptr()));
    require(count == nbytes.size(),
            "expected " + std::to_string(nbytes.size()) + " tensors, got " + std::to_string(count));
    Program::Views views;
    views.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast.ptr(), static_cast<Py_ssize_t>(i));
        const auto address = nb::steal(PyObject_CallMethodNoArgs(item, data_ptr));
        if (!address.is_valid()) nb::raise_python_error();
        void *data = PyLong_AsVoidPtr(address.ptr());
        if (data == nullptr && PyErr_Occurred()) nb::raise_python_error();
        views.push_back({data, nbytes[i] * parts, item});
    }
    return views;
}

void run_tensors(Program &program, nb::list inputs, nb::list outputs) {
    const auto parts = static_cast<std::size_t>(program.parts());
    const auto in = tensor_views(inputs, program.input_nbytes(), parts);
    const auto out = tensor_views(outputs, program.output_nbytes(), parts);
    const nb::gil_scoped_release released;
    program.run(in, out);
}

std::vector<std::vector<std::int64_t>> profile_program(Program &program, nb::handle inputs,
                                                       nb::handle outputs, int runs) {
    const ArrayList in(inputs, false, "inputs");
    const ArrayList out(outputs, true, "outputs");
    const nb::gil_scoped_release released;
    return program.profile(in.views(), out.views(), runs);
}

void trace_program(Program &program, nb::handle inputs, nb::handle outputs,
                   const nb::callable &callback) {
    const ArrayList in(inputs, false, "inputs");
    const ArrayList out(outputs, true, "outputs");
    const nb::gil_scoped_release released;
    program.trace(in.views(), out.views(),
                  [&](std::size_t step, const std::shared_ptr<Buffer> &arena) {
                      const nb::gil_scoped_acquire gil;
                      callback(step, view_of(arena), outputs);
                  });
}

// Returns the Python object that keeps the memory of an argument alive.
nb::object owner_of(const HostView &view) {
    if (view.exporter) return nb::borrow(static_cast<PyObject *>(view.exporter));
    auto *held = new std::shared_ptr<const void>(view.owner);
    return nb::capsule(held, [](void *owner) noexcept {
        delete static_cast<std::shared_ptr<const void> *>(owner);
    });
}

nb::object array_of(const HostView &view) {
    using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
    using ConstBytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;
    if (view.written) return nb::cast(Bytes(view.data, {view.nbytes}, owner_of(view)));
    return nb::cast(ConstBytes(view.data, {view.nbytes}, owner_of(view)));
}

// A Python function as a host function. Contexts with references to it are created and destroyed
// without the GIL, so only the last release changes the Python reference count.
std::shared_ptr<const HostFunction> host_function(nb::callable function) {
    const std::shared_ptr<nb::callable> held(new nb::callable(std::move(function)),
                                             [](const nb::callable *last) {
                                                 const nb::gil_scoped_acquire gil;
                                                 delete last;
                                             });
    return std::make_shared<const HostFunction>([held](const std::vector<HostView> &views) {
        const nb::gil_scoped_acquire gil;
        nb::list arrays;
        for (const auto &view : views) arrays.append(array_of(view));
        (*held)(arrays);
    });
}

HostArg parse_host_arg(const nb::tuple &entry) {
    require(entry.size() == 5,
            "argument (space, index, offset_bytes, nbytes, written): expected 5 "
            "values, got " +
                std::to_string(entry.size()));
    return {{static_cast<Space>(nb::cast<int>(entry[0])),
             as_size(nb::cast<std::int64_t>(entry[1]), "index"),
             as_size(nb::cast<std::int64_t>(entry[2]), "offset_bytes")},
            as_size(nb::cast<std::int64_t>(entry[3]), "nbytes"),
            nb::cast<bool>(entry[4])};
}

void bind_program(nb::module_ &m) {
    nb::class_<Gate>(m, "Gate")
        .def(nb::init<int>(), "width"_a)
        .def("renew", &Gate::renew)
        .def_prop_ro("width", &Gate::width);
    nb::class_<Program>(m, "Program")
        .def("__init__", &init_program, "arena_nbytes"_a, "constants"_a, "input_nbytes"_a,
             "output_nbytes"_a, "threads"_a, "parts"_a = 1, "lanes"_a = 1,
             "parameter_nbytes"_a = Dims(), "state_nbytes"_a = Dims())
        .def(
            "add_primitive",
            [](Program &program, const Primitive &primitive, const Entries &entries,
               const std::vector<std::pair<int, int>> &in_place) {
                std::vector<Arg> args;
                for (const auto &entry : entries) args.push_back(parse_arg(entry));
                program.add_primitive(primitive, std::move(args), parse_in_place(in_place));
            },
            "primitive"_a, "args"_a, "in_place"_a = std::vector<std::pair<int, int>>())
        .def(
            "add_primitive",
            [](Program &program, std::shared_ptr<Kernel> kernel, const Entries &entries,
               const std::vector<std::pair<int, int>> &in_place) {
                std::vector<Arg> args;
                for (const auto &entry : entries) args.push_back(parse_arg(entry));
                program.add_kernel(std::move(kernel), std::move(args), parse_in_place(in_place));
            },
            "primitive"_a, "args"_a, "in_place"_a = std::vector<std::pair<int, int>>())
        .def(
            "add_copy",
            [](Program &program, const nb::tuple &dst, const nb::tuple &src, std::int64_t nbytes) {
                program.add_copy(parse_ref(dst, 0, "dst"), parse_ref(src, 0, "src"),
                                 as_size(nbytes, "nbytes"));
            },
            "dst"_a, "src"_a, "nbytes"_a)
        .def(
            "add_fill",
            [](Program &program, const nb::tuple &dst, std::int64_t count, float value) {
                program.add_fill(parse_ref(dst, 0, "dst"), as_size(count, "count_f32"), value);
            },
            "dst"_a, "count_f32"_a, "value"_a)
        .def(
            "add_host",
            [](Program &program, nb::callable function, const Entries &entries) {
                std::vector<HostArg> args;
                for (const auto &entry : entries) args.push_back(parse_host_arg(entry));
                program.add_host(host_function(std::move(function)), std::move(args));
            },
            "function"_a, "args"_a)
        .def("freeze", &Program::freeze)
        .def("read", &read_program, "ref"_a, "array"_a)
        .def("write", &write_program, "values"_a)
        .def("run", &run_program, "inputs"_a, "outputs"_a)
        .def("run_tensors", &run_tensors, "inputs"_a, "outputs"_a)
        .def("profile", &profile_program, "inputs"_a, "outputs"_a, "runs"_a)
        .def("trace", &trace_program, "inputs"_a, "outputs"_a, "callback"_a)
        .def_prop_rw("gate", &Program::gate, &Program::set_gate)
        .def_prop_rw("poison", &Program::poison, &Program::set_poison)
        .def_prop_ro("frozen", &Program::frozen)
        .def_prop_ro("threads", &Program::threads)
        .def_prop_ro("parts", &Program::parts)
        .def_prop_ro("lanes", &Program::lanes)
        .def_prop_ro("arena_nbytes", &Program::arena_nbytes)
        .def_prop_ro("step_count", &Program::step_count)
        .def_prop_ro("context_count", &Program::context_count);
}

}  // namespace
}  // namespace stridewise

NB_MODULE(_core, m) {
    using namespace stridewise;
    // A model in a global variable is alive when the interpreter ends. This is not a leak.
    nb::set_leak_warnings(false);
    bind_errors(m);
    bind_memory(m);
    bind_primitives(m);
    bind_convolution(m);
    bind_products(m);
    bind_elementwise(m);
    bind_movement(m);
    bind_kernels(m);
    bind_reorders(m);
    bind_program(m);
    bind_tensors(m);
    m.def("max_threads", &max_threads);
    m.def("bind_openmp", [] { return bind_openmp(reinterpret_cast<const void *>(&dnnl_version)); });
    m.def("permit_callers", &permit_callers);
    m.def("team_count", [] { return Teams::process().count(); });
    m.def("set_primitive_cache_capacity", &set_primitive_cache_capacity, "capacity"_a);
    m.def("effective_isa", &effective_isa);
    m.def("version", &version);
}
