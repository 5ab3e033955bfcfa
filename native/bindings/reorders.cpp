// The classes of reorders.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/shared.hpp"
#include "reorder/kernel.hpp"
#include "reorder/reorder.hpp"
#include "support/errors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stridewise {
namespace {

ReorderLoop parse_loop(const nb::tuple &entry) {
    return {nb::cast<std::int64_t>(entry[0]), nb::cast<std::int64_t>(entry[1]),
            nb::cast<std::int64_t>(entry[2]), nb::cast<std::int64_t>(entry[3])};
}

std::vector<ReorderLoop> parse_loops(nb::handle entries) {
    std::vector<ReorderLoop> loops;
    for (const auto &entry : nb::cast<std::vector<nb::tuple>>(entries)) {
        loops.push_back(parse_loop(entry));
    }
    return loops;
}

ReorderTile parse_tile(const nb::dict &entry) {
    const auto number = [&](const char *key) { return nb::cast<std::int64_t>(entry[key]); };
    const auto numbers = [&](const char *key) {
        return nb::cast<std::vector<std::int64_t>>(entry[key]);
    };
    return {nb::cast<bool>(entry["is_zero"]),
            nb::cast<bool>(entry["is_runs"]),
            number("src"),
            number("dst"),
            number("scale"),
            parse_loops(entry["loops"]),
            number("width"),
            number("zeros"),
            number("width_scale"),
            numbers("rows"),
            numbers("row_scales"),
            numbers("columns"),
            numbers("column_scales")};
}

std::optional<Element> parse_element(const std::string &name) {
    const std::vector<std::string> names{"f32", "f16", "bf16", "s8", "u8", "s32"};
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return std::nullopt;
    return static_cast<Element>(found - names.begin());
}

void init_reorder(Reorder *self,
                  const std::vector<std::pair<nb::object, std::vector<nb::dict>>> &groups,
                  std::int64_t src_itemsize, std::int64_t dst_itemsize,
                  const std::optional<std::pair<std::string, std::string>> &conversion,
                  const std::vector<std::vector<float>> &scales, std::int64_t src_nbytes,
                  std::int64_t dst_nbytes, std::int64_t fill_nbytes, const std::string &isa) {
    std::vector<ReorderGroup> parsed;
    for (const auto &[loops, tiles] : groups) {
        ReorderGroup group{parse_loops(loops), {}, 1};
        for (const auto &tile : tiles) group.tiles.push_back(parse_tile(tile));
        parsed.push_back(std::move(group));
    }
    ReorderTypes types{src_itemsize, dst_itemsize, std::nullopt};
    if (conversion) {
        const auto from = parse_element(conversion->first), to = parse_element(conversion->second);
        require(from && to, "conversion: expected f32, f16, bf16, s8, u8 or s32");
        types.conversion = std::make_pair(*from, *to);
    }
    require(scales.empty() || scales.size() == 4, "scales: expected none or four lists");
    ReorderScales held;
    if (!scales.empty()) held = {scales[0], scales[1], scales[2], scales[3]};
    new (self) Reorder(std::move(parsed), types, std::move(held), src_nbytes, dst_nbytes,
                       fill_nbytes, isa);
}

// Returns false without writing if the memory of the two may overlap and `apart` is false.
bool run_reorder(const Reorder &reorder, nb::handle src, nb::handle dst, int threads, bool stream,
                 bool apart) {
    const ArrayBytes from(src, PyBUF_STRIDED_RO, "src");
    const ArrayBytes to(dst, PyBUF_STRIDED, "dst");
    const auto fits = [](const ArrayBytes &bytes, std::int64_t wanted, const char *what) {
        const std::size_t have = bytes.extent(what);
        require(have >= static_cast<std::size_t>(wanted),
                std::string(what) + ": expected at least " + std::to_string(wanted) +
                    " bytes, got " + std::to_string(have));
    };
    fits(from, reorder.src_nbytes(), "src");
    fits(to, reorder.dst_nbytes(), "dst");
    const auto first = reinterpret_cast<std::uintptr_t>(from.data());
    const auto second = reinterpret_cast<std::uintptr_t>(to.data());
    if (!apart && first < second + static_cast<std::uintptr_t>(reorder.dst_nbytes()) &&
        second < first + static_cast<std::uintptr_t>(reorder.src_nbytes())) {
        return false;
    }
    auto *target = const_cast<void *>(to.data());
    const nb::gil_scoped_release released;
    reorder.run(from.data(), target, threads, stream);
    return true;
}

}  // namespace

void bind_reorders(nb::module_ &m) {
    nb::class_<Reorder>(m, "Reorder")
        .def("__init__", &init_reorder, "groups"_a, nb::kw_only(), "src_itemsize"_a,
             "dst_itemsize"_a, "conversion"_a.none(), "scales"_a, "src_nbytes"_a, "dst_nbytes"_a,
             "fill_nbytes"_a, "isa"_a)
        .def("run", &run_reorder, "src"_a, "dst"_a, "threads"_a, "stream"_a, "apart"_a);
    nb::class_<ReorderKernel, Kernel>(m, "ReorderKernel", nb::is_final())
        .def(nb::init<Reorder, MemoryDesc, MemoryDesc, int, std::string>(), "reorder"_a, "src"_a,
             "dst"_a, nb::kw_only(), "threads"_a, "isa"_a);
    m.def("reorder_isas", &reorder_isas);
}

}  // namespace stridewise
