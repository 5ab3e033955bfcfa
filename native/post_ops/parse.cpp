#include "post_ops/parse.hpp"

#include <limits>
#include <map>
#include <string>

#include "support/errors.hpp"

namespace stridewise {
namespace {

const std::map<std::string, StageOp> &eltwise_ops() {
    static const std::map<std::string, StageOp> table = {
        {"relu", StageOp::relu},
        {"clip", StageOp::clip},
        {"linear", StageOp::linear},
        {"round", StageOp::round},
        {"abs", StageOp::abs},
        {"hardsigmoid", StageOp::hardsigmoid},
        {"hardswish", StageOp::hardswish},
        {"logistic", StageOp::logistic},
        {"swish", StageOp::swish},
        {"tanh", StageOp::tanh},
        {"elu", StageOp::elu},
        {"sqrt", StageOp::sqrt},
        {"exp", StageOp::exp},
        {"gelu_erf", StageOp::gelu_erf},
        {"pow", StageOp::pow},
    };
    return table;
}

const std::map<std::string, StageOp> &binary_ops() {
    static const std::map<std::string, StageOp> table = {
        {"add", StageOp::add}, {"sub", StageOp::sub}, {"mul", StageOp::mul},
        {"div", StageOp::div}, {"max", StageOp::max}, {"min", StageOp::min},
    };
    return table;
}

StageOp find_op(const std::map<std::string, StageOp> &table, const std::string &name) {
    const auto found = table.find(name);
    require(found != table.end(), "there is no post-op " + name);
    return found->second;
}

}  // namespace

Stage stage_of(const PostOp &post_op) {
    if (const auto *eltwise = std::get_if<EltwisePostOp>(&post_op)) {
        if (eltwise->algorithm == "relu" && eltwise->alpha == 0.0F) {
            // A multiplication by the slope 0 would turn an infinity into NaN.
            return {StageOp::clip, 0.0F, std::numeric_limits<float>::infinity(), nullptr};
        }
        return {find_op(eltwise_ops(), eltwise->algorithm), eltwise->alpha, eltwise->beta, nullptr};
    }
    if (const auto *sum = std::get_if<SumPostOp>(&post_op)) {
        require(sum->scale == 1.0F, "post-ops: sums are not scaled");
        return {StageOp::sum, 0.0F, 0.0F, nullptr};
    }
    const auto &binary = std::get<BinaryPostOp>(post_op);
    return {find_op(binary_ops(), binary.algorithm), 0.0F, 0.0F, nullptr};
}

}  // namespace stridewise
