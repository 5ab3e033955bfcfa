// Kernels on elements of any type, and by index.
#include "elements/elements.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/shared.hpp"
#include "elements/running.hpp"
#include "elements/totals.hpp"
#include "indexed/indexed.hpp"
#include "indexed/points.hpp"
#include "indexed/positions.hpp"
#include "selection/top_k.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stridewise {
namespace {

using Given = std::tuple<std::string, Dims, Dims>;

ElementView view_of(const Given &given) {
    const auto &[type, dims, strides] = given;
    return {type, dims, strides};
}

void init_elements(Elements *self, const std::string &op, const std::vector<Given> &sources,
                   const Given &result, int threads) {
    std::vector<ElementView> views;
    for (const auto &source : sources) views.push_back(view_of(source));
    new (self) Elements(op, views, view_of(result), threads);
}

}  // namespace

void bind_elements(nb::module_ &m) {
    nb::class_<Elements, Kernel>(m, "Elements", nb::is_final())
        .def("__init__", &init_elements, "op"_a, "sources"_a, "dst"_a, nb::kw_only(), "threads"_a);
    nb::class_<Running, Kernel>(m, "Running", nb::is_final())
        .def(nb::init<const std::string &, const std::string &, const Dims &, bool, bool, int>(),
             "op"_a, "dtype"_a, "extents"_a, "is_exclusive"_a, "is_reverse"_a, nb::kw_only(),
             "threads"_a);
    nb::class_<Totals, Kernel>(m, "Totals", nb::is_final())
        .def(nb::init<const std::string &, const std::string &, const Dims &, int>(), "op"_a,
             "dtype"_a, "extents"_a, nb::kw_only(), "threads"_a);
    nb::class_<TopK, Kernel>(m, "TopK", nb::is_final())
        .def(nb::init<const std::string &, const Dims &, std::int64_t, bool, int>(), "dtype"_a,
             "extents"_a, "count"_a, "is_largest"_a, nb::kw_only(), "threads"_a);
    nb::class_<GatherElements, Kernel>(m, "GatherElements", nb::is_final())
        .def(
            "__init__",
            [](GatherElements *self, const Dims &data, const Dims &indices, std::int64_t axis,
               std::int64_t nbytes, int words, int threads) {
                new (self) GatherElements({data, indices, axis, nbytes, words}, threads);
            },
            "data"_a, "indices"_a, "axis"_a, nb::kw_only(), "nbytes"_a, "words"_a, "threads"_a);
    nb::class_<ScatterElements, Kernel>(m, "ScatterElements", nb::is_final())
        .def(
            "__init__",
            [](ScatterElements *self, const Dims &data, const Dims &indices, std::int64_t axis,
               std::int64_t nbytes, int words, const std::string &reduction, int threads) {
                new (self)
                    ScatterElements({data, indices, axis, nbytes, words}, reduction, threads);
            },
            "data"_a, "indices"_a, "axis"_a, nb::kw_only(), "nbytes"_a, "words"_a, "reduction"_a,
            "threads"_a);
    nb::class_<GatherPoints, Kernel>(m, "GatherPoints", nb::is_final())
        .def(
            "__init__",
            [](GatherPoints *self, std::int64_t outer, const Dims &extents, std::int64_t count,
               std::int64_t row_nbytes, int words, int threads) {
                new (self) GatherPoints({outer, extents, count, row_nbytes, words}, threads);
            },
            "outer"_a, "extents"_a, "count"_a, nb::kw_only(), "row_nbytes"_a, "words"_a,
            "threads"_a);
    nb::class_<ScatterPoints, Kernel>(m, "ScatterPoints", nb::is_final())
        .def(
            "__init__",
            [](ScatterPoints *self, const Dims &extents, std::int64_t count,
               std::int64_t row_nbytes, int words, const std::string &reduction) {
                new (self) ScatterPoints({1, extents, count, row_nbytes, words}, reduction);
            },
            "extents"_a, "count"_a, nb::kw_only(), "row_nbytes"_a, "words"_a, "reduction"_a);
    nb::class_<GatherRows, Kernel>(m, "GatherRows", nb::is_final())
        .def(nb::init<const MemoryDesc &, const MemoryDesc &, int, int>(), "src"_a, "dst"_a,
             nb::kw_only(), "words"_a = 1, "threads"_a);
    nb::class_<Positions, Kernel>(m, "Positions", nb::is_final())
        .def(nb::init<const std::string &, bool, const MemoryDesc &, const MemoryDesc &, int>(),
             "what"_a, "is_last"_a, "src"_a, "dst"_a, nb::kw_only(), "threads"_a);
    nb::class_<ScatterRows, Kernel>(m, "ScatterRows", nb::is_final())
        .def(nb::init<const std::string &, const MemoryDesc &, const MemoryDesc &, int>(),
             "reduction"_a, "src"_a, "dst"_a, nb::kw_only(), "threads"_a);
}

}  // namespace stridewise
