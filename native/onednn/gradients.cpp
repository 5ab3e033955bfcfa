#include "onednn/gradients.hpp"

#include <algorithm>

#include "onednn/sequence.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

using dnnl::algorithm;
using dnnl::normalization_flags;
using dnnl::prop_kind;

normalization_flags affine() {
    return normalization_flags::use_scale | normalization_flags::use_shift;
}

MemoryDesc row_of(const MemoryDesc &image) {
    return MemoryDesc({image.dims()[1]}, "f32", "a");
}

dnnl::batch_normalization_forward::primitive_desc forward_norm(const MemoryDesc &src,
                                                               const MemoryDesc &dst,
                                                               float epsilon) {
    // The padding lanes of blocked formats have a variance of zero.
    require(epsilon > 0, "batch_norm: expected a positive epsilon");
    return {cpu_engine(), prop_kind::forward_training, src.get(), dst.get(), epsilon, affine(),
            make_attr({})};
}

dnnl::pooling_forward::primitive_desc forward_pooling(const std::string &algorithm,
                                                      const MemoryDesc &src, const MemoryDesc &dst,
                                                      const Dims &kernel, const Window &window) {
    check_spatial(kernel, src, "kernel", 1);
    return {cpu_engine(),
            prop_kind::forward_training,
            pooling_algorithm(algorithm),
            src.get(),
            dst.get(),
            window.strides,
            kernel,
            library_dilations(window, src),
            window.pads_begin,
            window.pads_end,
            make_attr({})};
}

// Checks that the library stores positions as `places` says: one byte each, beside the results.
void check_places(const dnnl::pooling_forward::primitive_desc &forward, const MemoryDesc &places) {
    const MemoryDesc own(forward.workspace_desc());
    require(own.dtype() == places.dtype() && own.layout() == places.layout(),
            "pooling: expected positions as " + own.repr() + ", got " + places.repr());
}

// Groups of weights that a kernel computes together: groups of the library's as many times as wide,
// which are zero but for the weights of each.
struct Together {
    MemoryDesc whole;  // the weights of the library's groups, row-major
    MemoryDesc each;   // those that are not zero, within the memory of `whole`
    MemoryDesc given;  // the same as the caller has them
};

// Describes groups that are computed together, as many at a time as `whole` has fewer than `given`.
Together together(const MemoryDesc &given, const Dims &whole, const std::string &dtype) {
    const Dims dims = given.dims(), steps = given.get().get_strides();
    require(dims.size() == whole.size() && dims.size() >= 4 && given.get().get_inner_nblks() == 0,
            "groups: expected weights in the user's order");
    const std::int64_t count = dims[0] / whole[0];
    require(count * whole[0] == dims[0] && count * dims[1] == whole[1] &&
                count * dims[2] == whole[2] &&
                std::equal(dims.begin() + 3, dims.end(), whole.begin() + 3, whole.end()),
            "groups: expected weights of several groups each");
    Dims strides(whole.size(), 1);
    for (std::size_t axis = whole.size() - 1; axis > 0; --axis) {
        strides[axis - 1] = strides[axis] * whole[axis];
    }
    // The library takes no stride that is less than the extent times the stride below it, and the
    // groups along the diagonal are one row further apart than their outputs.
    strides[0] += strides[1];
    Dims split = {whole[0], count}, own = {strides[0], dims[1] * strides[1] + dims[2] * strides[2]};
    Dims theirs = {count * steps[0], steps[0]};
    split.insert(split.end(), dims.begin() + 1, dims.end());
    own.insert(own.end(), strides.begin() + 1, strides.end());
    theirs.insert(theirs.end(), steps.begin() + 1, steps.end());
    return {MemoryDesc::strided(whole, dtype, strides), MemoryDesc::strided(split, dtype, own),
            MemoryDesc::strided(split, given.dtype(), theirs)};
}

// Returns the dimensions of weights whose groups are computed together.
Dims wider_groups(const Dims &dims, int count) {
    if (count == 1) return dims;
    require(count > 1 && dims.size() >= 4 && dims[0] % count == 0,
            "groups: expected a number that divides them, got " + std::to_string(count));
    Dims found = dims;
    found[0] /= count;
    found[1] *= count;
    found[2] *= count;
    return found;
}

// Returns weights in the format of a primitive, after reorders where the caller has others.
Sequence::Tensor read_weights(Sequence &kernel, Sequence::Tensor tensor, const MemoryDesc &given,
                              const MemoryDesc &own) {
    if (given.dims() == own.dims()) return kernel.read_as(tensor, own);
    const Together groups = together(given, own.dims(), own.dtype());
    const auto whole = kernel.between(groups.whole);
    kernel.clear(whole);
    kernel.convert(kernel.within(tensor, groups.given), kernel.within(whole, groups.each));
    return kernel.read_as(whole, own);
}

}  // namespace

std::shared_ptr<Kernel> fitted(const PrimitiveDesc &desc, const std::map<int, MemoryDesc> &given) {
    auto kernel = std::make_shared<Sequence>(desc.threads());
    Sequence::Bound args;
    for (const int id : desc.args()) {
        const MemoryDesc own = desc.arg_desc(id);
        const auto other = given.find(id);
        const bool is_own = other == given.end();
        const auto tensor = kernel->argument(id, is_own ? own : other->second, id == DNNL_ARG_DST);
        args.emplace_back(id, is_own ? tensor : read_weights(*kernel, tensor, other->second, own));
    }
    kernel->add(desc.get(), args);
    return kernel;
}

std::shared_ptr<Kernel> conv_weight_gradient(const MemoryDesc &src, const MemoryDesc &diff_dst,
                                             const MemoryDesc &diff_weights, const Window &window,
                                             int groups_together, int threads) {
    auto kernel = std::make_shared<Sequence>(threads);
    const Dims dilations = library_dilations(window, src);
    const ThreadScope scope(threads);
    const Dims dims = wider_groups(diff_weights.dims(), groups_together);
    const MemoryDesc any(dims, "f32", "any"), weights(dims, src.dtype(), "any");
    const auto direct = algorithm::convolution_direct;
    const dnnl::convolution_forward::primitive_desc hint(
        cpu_engine(), prop_kind::forward_training, direct, src.get(), weights.get(), diff_dst.get(),
        window.strides, dilations, window.pads_begin, window.pads_end, make_attr({}));
    const dnnl::convolution_backward_weights::primitive_desc desc(
        cpu_engine(), direct, src.get(), any.get(), diff_dst.get(), window.strides, dilations,
        window.pads_begin, window.pads_end, hint, make_attr({}));
    const auto x = kernel->argument(DNNL_ARG_SRC, src);
    const auto dy = kernel->argument(DNNL_ARG_DIFF_DST, diff_dst);
    const auto result = kernel->argument(DNNL_ARG_DST, diff_weights, true);
    const auto made = kernel->write_as(result, MemoryDesc(desc.diff_weights_desc()));
    kernel->add(desc, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_WEIGHTS, made}});
    if (dims == diff_weights.dims()) {
        kernel->convert(made, result);
        return kernel;
    }
    const Together groups = together(diff_weights, dims, "f32");
    const auto whole = kernel->between(groups.whole);
    kernel->convert(made, whole);
    kernel->convert(kernel->within(whole, groups.each), kernel->within(result, groups.given));
    return kernel;
}

std::shared_ptr<Kernel> pooling_places(const MemoryDesc &src, const MemoryDesc &dst,
                                       const MemoryDesc &places, const Dims &kernel,
                                       const Window &window, int threads) {
    auto made = std::make_shared<Sequence>(threads);
    const ThreadScope scope(threads);
    const auto forward = forward_pooling("max", src, dst, kernel, window);
    check_places(forward, places);
    made->add(forward, {{DNNL_ARG_SRC, made->argument(DNNL_ARG_SRC, src)},
                        {DNNL_ARG_DST, made->argument(DNNL_ARG_DST, dst, true)},
                        {DNNL_ARG_WORKSPACE, made->argument(DNNL_ARG_WORKSPACE, places, true)}});
    return made;
}

std::shared_ptr<Kernel> pooling_gradient(const std::string &algorithm, const MemoryDesc &src,
                                         const MemoryDesc &diff_dst,
                                         const std::optional<MemoryDesc> &places,
                                         const Dims &kernel, const Window &window, int threads) {
    auto made = std::make_shared<Sequence>(threads);
    const ThreadScope scope(threads);
    const auto forward = forward_pooling(algorithm, src, diff_dst, kernel, window);
    const auto how = pooling_algorithm(algorithm);
    const dnnl::pooling_backward::primitive_desc backward(
        cpu_engine(), how, src.get(), diff_dst.get(), window.strides, kernel,
        library_dilations(window, src), window.pads_begin, window.pads_end, forward, make_attr({}));
    Sequence::Bound args;
    if (places) {
        require(how == dnnl::algorithm::pooling_max, "pooling: only maxima have positions");
        check_places(forward, *places);
        args.emplace_back(DNNL_ARG_WORKSPACE, made->argument(DNNL_ARG_WORKSPACE, *places));
    } else if (how == dnnl::algorithm::pooling_max) {
        const auto x = made->argument(DNNL_ARG_SRC, src);
        const auto maxima = made->between(diff_dst);
        const auto found = made->between(MemoryDesc(forward.workspace_desc()));
        made->add(forward,
                  {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, maxima}, {DNNL_ARG_WORKSPACE, found}});
        args.emplace_back(DNNL_ARG_WORKSPACE, found);
    }
    args.emplace_back(DNNL_ARG_DIFF_DST, made->argument(DNNL_ARG_DIFF_DST, diff_dst));
    args.emplace_back(DNNL_ARG_DIFF_SRC, made->argument(DNNL_ARG_DST, src, true));
    made->add(backward, args);
    return made;
}

std::shared_ptr<Kernel> batch_norm_training(const MemoryDesc &src, const MemoryDesc &dst,
                                            float epsilon, int threads) {
    auto kernel = std::make_shared<Sequence>(threads);
    const ThreadScope scope(threads);
    const MemoryDesc row = row_of(src);
    Sequence::Bound args = {{DNNL_ARG_SRC, kernel->argument(DNNL_ARG_SRC, src)}};
    for (const int id : {DNNL_ARG_SCALE, DNNL_ARG_SHIFT}) {
        args.emplace_back(id, kernel->argument(id, row));
    }
    args.emplace_back(DNNL_ARG_DST, kernel->argument(DNNL_ARG_DST, dst, true));
    for (const int id : {DNNL_ARG_MEAN, DNNL_ARG_VARIANCE}) {
        args.emplace_back(id, kernel->argument(id, row, true));
    }
    kernel->add(forward_norm(src, dst, epsilon), args);
    return kernel;
}

std::shared_ptr<Kernel> batch_norm_gradient(const MemoryDesc &src, const MemoryDesc &diff_dst,
                                            const MemoryDesc &diff_src, float epsilon,
                                            int threads) {
    auto kernel = std::make_shared<Sequence>(threads);
    const ThreadScope scope(threads);
    const auto hint = forward_norm(src, diff_dst, epsilon);
    const dnnl::batch_normalization_backward::primitive_desc desc(
        cpu_engine(), prop_kind::backward, diff_src.get(), diff_dst.get(), src.get(), epsilon,
        affine(), hint, make_attr({}));
    const MemoryDesc row = row_of(src);
    Sequence::Bound args = {{DNNL_ARG_SRC, kernel->argument(DNNL_ARG_SRC, src)},
                            {DNNL_ARG_DIFF_DST, kernel->argument(DNNL_ARG_DIFF_DST, diff_dst)}};
    for (const int id : {DNNL_ARG_SCALE, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE}) {
        args.emplace_back(id, kernel->argument(id, row));
    }
    args.emplace_back(DNNL_ARG_DIFF_SRC, kernel->argument(DNNL_ARG_DST, diff_src, true));
    for (const int id : {DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT}) {
        args.emplace_back(id, kernel->argument(id, row, true));
    }
    kernel->add(desc, args);
    return kernel;
}

}  // namespace stridewise
