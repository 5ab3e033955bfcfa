#include "bindings/shared.hpp"

#include <nanobind/stl/string.h>

#include "support/errors.hpp"

namespace nb = nanobind;

namespace stridewise {

std::size_t as_size(std::int64_t value, const char *what) {
    require(value >= 0, std::string(what) + ": expected at least 0, got " + std::to_string(value));
    return static_cast<std::size_t>(value);
}

namespace {

PostOp parse_post_op(const nb::tuple &entry) {
    const auto kind = entry.size() > 0 ? nb::cast<std::string>(entry[0]) : std::string();
    if (kind == "eltwise" && entry.size() == 4) {
        return EltwisePostOp{nb::cast<std::string>(entry[1]), nb::cast<float>(entry[2]),
                             nb::cast<float>(entry[3])};
    }
    if (kind == "sum" && entry.size() == 2) return SumPostOp{nb::cast<float>(entry[1])};
    if (kind == "binary" && entry.size() == 3) {
        return BinaryPostOp{nb::cast<std::string>(entry[1]), nb::cast<MemoryDesc>(entry[2])};
    }
    throw std::invalid_argument(
        "post_ops: expected ('eltwise', algorithm, alpha, beta), ('sum', scale) or "
        "('binary', algorithm, MemoryDesc), got " +
        std::string(nb::repr(entry).c_str()));
}

}  // namespace

PostOps parse_post_ops(const Entries &entries) {
    PostOps post_ops;
    for (const auto &entry : entries) post_ops.push_back(parse_post_op(entry));
    return post_ops;
}

}  // namespace stridewise
