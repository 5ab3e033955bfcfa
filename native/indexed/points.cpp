#include "indexed/points.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "indexed/tables.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

std::int64_t product(const Dims &dims) {
    std::int64_t found = 1;
    for (const std::int64_t extent : dims) found *= extent;
    return found;
}

void check_places(const char *what, const ElementPlaces &places) {
    const std::size_t rank = places.data.size();
    bool fits = rank >= 1 && rank <= DNNL_MAX_NDIMS && places.indices.size() == rank &&
                places.axis >= 0 && places.axis < static_cast<std::int64_t>(rank) &&
                (places.words == 1 || places.words == 2);
    for (std::size_t axis = 0; fits && axis < rank; ++axis) {
        const std::int64_t extent = places.indices[axis];
        const bool is_indexed = static_cast<std::int64_t>(axis) == places.axis;
        fits = extent >= 1 && places.data[axis] >= 1 && (is_indexed || extent <= places.data[axis]);
    }
    for (const std::int64_t nbytes : {1, 2, 4, 8}) {
        if (fits && places.nbytes == nbytes) return;
    }
    require(false, std::string(what) +
                       ": expected indices that lie inside of the data, of one or two words, and "
                       "elements of 1, 2, 4 or 8 bytes");
}

MemoryDesc bytes(std::int64_t count) {
    return {{count}, "u8", "a"};
}
MemoryDesc table(std::int64_t words) {
    return {{words}, "s32", "a"};
}

// Calls body(first, count) for rows of indices, those of which differ in the last axis alone: the
// number of the first index, and of the data's element at its place with 0 along the axis.
template <class Body>
void each_row(const ElementPlaces &places, std::int64_t begin, std::int64_t end, const Body &body) {
    const std::size_t rank = places.data.size();
    std::array<std::int64_t, DNNL_MAX_NDIMS> steps{};
    std::int64_t step = 1;
    for (std::size_t axis = rank; axis-- > 0;) {
        steps[axis] = static_cast<std::int64_t>(axis) == places.axis ? 0 : step;
        step *= places.data[axis];
    }
    const std::int64_t row = places.indices.back();
    for (std::int64_t at = begin; at < end; ++at) {
        std::int64_t rest = at, place = 0;
        for (std::size_t axis = rank - 1; axis-- > 0;) {
            place += rest % places.indices[axis] * steps[axis];
            rest /= places.indices[axis];
        }
        body(at * row, place);
    }
}

// Calls body(index, place) for each index in some rows: its number, and that of the element which
// it means.
template <class Index, class Body>
void each_place(const ElementPlaces &places, const Index *indices, std::int64_t begin,
                std::int64_t end, const Body &body) {
    const auto axis = static_cast<std::size_t>(places.axis);
    const std::int64_t extent = places.data[axis], row = places.indices.back();
    std::int64_t step = 1;
    for (std::size_t inner = axis + 1; inner < places.data.size(); ++inner) {
        step *= places.data[inner];
    }
    const std::int64_t along = axis + 1 == places.data.size() ? 0 : 1;
    each_row(places, begin, end, [&](std::int64_t first, std::int64_t place) {
        for (std::int64_t i = 0; i < row; ++i) {
            const std::int64_t index = indices[first + i];
            body(first + i, place + i * along + (index < 0 ? index + extent : index) * step);
        }
    });
}

template <class Word, class Index>
void gather_words(const ElementPlaces &places, const Index *indices, const void *from, void *to,
                  std::int64_t begin, std::int64_t end) {
    const auto *source = static_cast<const Word *>(from);
    auto *result = static_cast<Word *>(to);
    each_place(places, indices, begin, end,
               [&](std::int64_t at, std::int64_t place) { result[at] = source[place]; });
}

template <class Word, class Index>
void scatter_words(const ElementPlaces &places, const Index *indices, const void *from, void *to,
                   std::int64_t begin, std::int64_t end) {
    const auto *source = static_cast<const Word *>(from);
    auto *result = static_cast<Word *>(to);
    each_place(places, indices, begin, end,
               [&](std::int64_t at, std::int64_t place) { result[place] = source[at]; });
}

template <class Index>
void gather_part(const ElementPlaces &places, const std::vector<void *> &data, std::int64_t begin,
                 std::int64_t end) {
    const auto *indices = static_cast<const Index *>(data[1]);
    const auto gather = places.nbytes == 8   ? &gather_words<std::uint64_t, Index>
                        : places.nbytes == 4 ? &gather_words<std::uint32_t, Index>
                        : places.nbytes == 2 ? &gather_words<std::uint16_t, Index>
                                             : &gather_words<std::uint8_t, Index>;
    gather(places, indices, data[0], data[2], begin, end);
}

template <class Index>
void scatter_part(const ElementPlaces &places, Combination combine, const std::vector<void *> &data,
                  std::int64_t begin, std::int64_t end) {
    const auto *indices = static_cast<const Index *>(data[1]);
    if (combine != nullptr) {
        const auto *from = static_cast<const float *>(data[0]);
        auto *to = static_cast<float *>(data[2]);
        each_place(places, indices, begin, end, [&](std::int64_t at, std::int64_t place) {
            to[place] = combine(to[place], from[at]);
        });
        return;
    }
    const auto scatter = places.nbytes == 8   ? &scatter_words<std::uint64_t, Index>
                         : places.nbytes == 4 ? &scatter_words<std::uint32_t, Index>
                         : places.nbytes == 2 ? &scatter_words<std::uint16_t, Index>
                                              : &scatter_words<std::uint8_t, Index>;
    scatter(places, indices, data[0], data[2], begin, end);
}

void check_indices(const ElementPlaces &places, const void *table) {
    const std::int64_t count = product(places.indices);
    const std::int64_t extent = places.data[static_cast<std::size_t>(places.axis)];
    if (places.words == 2) {
        checked<std::int64_t>(table, count, extent);
    } else {
        checked<std::int32_t>(table, count, extent);
    }
}

void check_rows(const char *what, const RowPlaces &places) {
    const bool fits = places.outer >= 1 && places.count >= 1 && places.row_nbytes >= 1 &&
                      !places.extents.empty() &&
                      *std::min_element(places.extents.begin(), places.extents.end()) >= 1 &&
                      (places.words == 1 || places.words == 2);
    require(fits,
            std::string(what) + ": expected positive extents, and indices of one or two words");
}

MemoryDesc points_of(const RowPlaces &places) {
    const auto depth = static_cast<std::int64_t>(places.extents.size());
    return table(places.outer * places.count * depth * places.words);
}

void check_points(const RowPlaces &places, const void *points) {
    const auto depth = static_cast<std::int64_t>(places.extents.size());
    const std::int64_t count = places.outer * places.count;
    for (std::int64_t axis = 0; axis < depth; ++axis) {
        const std::int64_t extent = places.extents[static_cast<std::size_t>(axis)];
        if (places.words == 2) {
            checked<std::int64_t>(static_cast<const std::int64_t *>(points) + axis, count, extent,
                                  depth);
        } else {
            checked<std::int32_t>(static_cast<const std::int32_t *>(points) + axis, count, extent,
                                  depth);
        }
    }
}

// The row at a point.
std::int64_t row_at(const RowPlaces &places, const void *points, std::int64_t at) {
    const auto depth = static_cast<std::int64_t>(places.extents.size());
    std::int64_t row = 0;
    for (std::int64_t axis = 0; axis < depth; ++axis) {
        const std::int64_t extent = places.extents[static_cast<std::size_t>(axis)];
        const std::int64_t index =
            places.words == 2 ? static_cast<const std::int64_t *>(points)[at * depth + axis]
                              : static_cast<const std::int32_t *>(points)[at * depth + axis];
        row = row * extent + (index < 0 ? index + extent : index);
    }
    return row;
}

Combination combination(const char *what, const std::string &reduction) {
    if (reduction == "none") return nullptr;
    if (reduction == "add") return [](float a, float b) { return a + b; };
    if (reduction == "mul") return [](float a, float b) { return a * b; };
    // NaN in either operand is propagated.
    if (reduction == "max") return [](float a, float b) { return a != a || a > b ? a : b; };
    if (reduction == "min") return [](float a, float b) { return a != a || a < b ? a : b; };
    require(false, std::string(what) + ": expected none, add, mul, max or min, got " + reduction);
    return nullptr;
}

}  // namespace

GatherElements::GatherElements(const ElementPlaces &places, int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}), places_(places) {
    check_places("gather_elements", places);
}

MemoryDesc GatherElements::arg_desc(int arg) const {
    require(takes(arg), "gather_elements: there is no argument " + std::to_string(arg));
    if (arg == DNNL_ARG_SRC) return bytes(product(places_.data) * places_.nbytes);
    const std::int64_t count = product(places_.indices);
    return arg == DNNL_ARG_DST ? bytes(count * places_.nbytes) : table(count * places_.words);
}

void GatherElements::execute(const std::vector<void *> &data, void *) const {
    const std::int64_t rows = product(places_.indices) / places_.indices.back();
    const auto gather =
        places_.words == 2 ? &gather_part<std::int64_t> : &gather_part<std::int32_t>;
    check_indices(places_, data[1]);
    in_parallel(threads_, [&](int part, int parts) {
        gather(places_, data, rows * part / parts, rows * (part + 1) / parts);
    });
}

ScatterElements::ScatterElements(const ElementPlaces &places, const std::string &reduction,
                                 int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      places_(places),
      combine_(combination("scatter_elements", reduction)) {
    check_places("scatter_elements", places);
    require(combine_ == nullptr || places.nbytes == 4,
            "scatter_elements: expected elements of f32 to combine");
}

MemoryDesc ScatterElements::arg_desc(int arg) const {
    require(takes(arg), "scatter_elements: there is no argument " + std::to_string(arg));
    if (arg == DNNL_ARG_DST) return bytes(product(places_.data) * places_.nbytes);
    const std::int64_t count = product(places_.indices);
    return arg == DNNL_ARG_SRC ? bytes(count * places_.nbytes) : table(count * places_.words);
}

void ScatterElements::execute(const std::vector<void *> &data, void *) const {
    const Dims &dims = places_.indices;
    const std::int64_t rows = product(dims) / dims.back();
    // What differs before the axis is written to other elements: threads share no element, and
    // updates keep their order.
    const std::int64_t outer = product(Dims(dims.begin(), dims.begin() + places_.axis));
    const std::int64_t step = rows / outer;
    const auto scatter =
        places_.words == 2 ? &scatter_part<std::int64_t> : &scatter_part<std::int32_t>;
    check_indices(places_, data[1]);
    in_parallel(threads_, [&](int part, int parts) {
        scatter(places_, combine_, data, outer * part / parts * step,
                outer * (part + 1) / parts * step);
    });
}

GatherPoints::GatherPoints(const RowPlaces &places, int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}), places_(places) {
    check_rows("gather_points", places);
}

MemoryDesc GatherPoints::arg_desc(int arg) const {
    require(takes(arg), "gather_points: there is no argument " + std::to_string(arg));
    if (arg == DNNL_ARG_WEIGHTS) return points_of(places_);
    const std::int64_t rows = arg == DNNL_ARG_SRC ? product(places_.extents) : places_.count;
    return bytes(places_.outer * rows * places_.row_nbytes);
}

void GatherPoints::execute(const std::vector<void *> &data, void *) const {
    const auto *from = static_cast<const char *>(data[0]);
    auto *to = static_cast<char *>(data[2]);
    const std::int64_t total = places_.outer * places_.count, nbytes = places_.row_nbytes;
    const std::int64_t rows = product(places_.extents);
    check_points(places_, data[1]);
    in_parallel(threads_, [&](int part, int parts) {
        for (std::int64_t i = total * part / parts; i < total * (part + 1) / parts; ++i) {
            const std::int64_t row = i / places_.count * rows + row_at(places_, data[1], i);
            std::memcpy(to + i * nbytes, from + row * nbytes, static_cast<std::size_t>(nbytes));
        }
    });
}

ScatterPoints::ScatterPoints(const RowPlaces &places, const std::string &reduction)
    : Kernel(1, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}),
      places_(places),
      combine_(combination("scatter_points", reduction)) {
    check_rows("scatter_points", places);
    require(places.outer == 1 && (combine_ == nullptr || places.row_nbytes % 4 == 0),
            "scatter_points: expected one outer part, and rows of f32 to combine");
}

MemoryDesc ScatterPoints::arg_desc(int arg) const {
    require(takes(arg), "scatter_points: there is no argument " + std::to_string(arg));
    if (arg == DNNL_ARG_WEIGHTS) return points_of(places_);
    const std::int64_t rows = arg == DNNL_ARG_DST ? product(places_.extents) : places_.count;
    return bytes(rows * places_.row_nbytes);
}

void ScatterPoints::execute(const std::vector<void *> &data, void *) const {
    const auto *from = static_cast<const char *>(data[0]);
    auto *to = static_cast<char *>(data[2]);
    const std::int64_t nbytes = places_.row_nbytes;
    check_points(places_, data[1]);
    for (std::int64_t i = 0; i < places_.count; ++i) {
        char *target = to + row_at(places_, data[1], i) * nbytes;
        const char *source = from + i * nbytes;
        if (combine_ == nullptr) {
            std::memcpy(target, source, static_cast<std::size_t>(nbytes));
            continue;
        }
        auto *values = reinterpret_cast<float *>(target);
        const auto *updates = reinterpret_cast<const float *>(source);
        for (std::int64_t k = 0; k < nbytes / 4; ++k) values[k] = combine_(values[k], updates[k]);
    }
}

}  // namespace stridewise
