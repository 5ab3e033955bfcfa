#include "batch_norm/batch_norm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "onednn/primitives.hpp"
#include "pointwise/pointwise.hpp"
#include "support/errors.hpp"
#include "support/images.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

// Parts that all groups together are cut into, and the fewest pixels of a slice.
constexpr std::int64_t kParts = 64, kFewestPixels = 64;
// Pixels whose mean is subtracted before squares of a slice are added up. With the mean of a few,
// nothing cancels out.
constexpr std::int64_t kFirstPixels = 16;
constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

const NormKernels &find_kernels(const std::string &isa, const NormKind &kind) {
#ifdef STRIDEWISE_AVX2
    if (isa == "avx512_bf16") return avx512_bf16_norm_kernels(kind);
    if (isa == "avx512") return avx512_norm_kernels(kind);
    if (isa == "avx2") return avx2_norm_kernels(kind);
#endif
    return portable_norm_kernels(kind);
}

BatchNormOptions checked(BatchNormOptions o) {
    o.isa = known_isa(o.isa, is_half(o.images));
    require(o.images.dtype() == "f32" || is_half(o.images),
            "batch norm: expected float32 or bfloat16, got " + o.images.repr());
    require(o.images.ndims() >= 2 && o.images.ndims() <= 5,
            "batch norm: expected 2 to 5 axes, got " + o.images.repr());
    const Dims dims = o.images.dims();
    require(*std::min_element(dims.begin(), dims.end()) >= 1,
            "batch norm: expected positive extents, got " + o.images.repr());
    require(o.epsilon >= 0, "batch norm: expected an epsilon of 0 or more");
    return o;
}

// Numbers of all channels in the scratchpad, and sums of slices.
class Scratch {
  public:
    Scratch(void *memory, const BatchNormWork &work) : count_(work.padded()) {
        sums = static_cast<double *>(memory);
        products = sums + work.slices() * count_;
        floats_ = reinterpret_cast<float *>(products + work.slices() * count_);
    }
    static std::size_t nbytes(const BatchNormWork &work, std::int64_t rows) {
        return static_cast<std::size_t>(work.padded()) *
               (static_cast<std::size_t>(work.slices()) * 2 * sizeof(double) +
                static_cast<std::size_t>(rows) * sizeof(float));
    }
    float *row(std::int64_t number) const { return floats_ + number * count_; }

    double *sums, *products;

  private:
    std::int64_t count_;
    float *floats_;
};

// In double precision, and the same for both kernels: gradients are masked by the same results.
float norm_factor(float scale, float variance, float epsilon) {
    return static_cast<float>(scale / std::sqrt(static_cast<double>(variance) + epsilon));
}

MemoryDesc bytes_desc(std::size_t nbytes) {
    return MemoryDesc({static_cast<std::int64_t>(nbytes)}, "u8", "a");
}

}  // namespace

BatchNormWork::BatchNormWork(BatchNormOptions options, bool adds, bool masks)
    : options_(checked(std::move(options))) {
    const Dims dims = options_.images.dims();
    const std::size_t rank = dims.size();
    const auto is_stored_as = [&](const std::string &tag) {
        return options_.images == MemoryDesc(dims, options_.images.dtype(), tag);
    };
    const std::string rest = std::string("cde").substr(0, rank - 2);
    std::int64_t inner = 1;
    for (std::size_t axis = 2; axis < rank; ++axis) inner *= dims[axis];
    channels_ = dims[1];
    of_pixels_ = false;
    if (is_stored_as("a" + rest + "b")) {
        groups_ = segments_ = 1;
        width_ = row_stride_ = channels_;
        rows_ = dims[0] * inner;
    } else {
        const bool in_16 = is_stored_as("aB" + rest + "16b");
        const bool in_8 = !in_16 && is_stored_as("aB" + rest + "8b");
        of_pixels_ = !in_16 && !in_8;
        require(!of_pixels_ || is_stored_as("ab" + rest),
                "batch norm: expected images in a known format, got " + options_.images.repr());
        width_ = row_stride_ = in_16 ? 16 : in_8 ? 8 : 1;
        groups_ = ceil_div(channels_, width_);
        segments_ = dims[0];
        rows_ = inner;
    }
    group_stride_ = rows_ * width_;
    segment_stride_ = groups_ * group_stride_;
    slices_ = std::clamp<std::int64_t>(ceil_div(kParts, groups_), 1,
                                       std::max<std::int64_t>(pixels() / kFewestPixels, 1));
    require(padded() == channels_ || (options_.low <= 0 && options_.high >= 0),
            "batch norm: expected bounds on both sides of 0, because spare lanes are 0");
    kernels_ = &find_kernels(options_.isa, {of_pixels_, adds, masks, is_half(options_.images)});
}

std::int64_t BatchNormWork::slice_pixels(std::int64_t slice) const {
    return pixels() * (slice + 1) / slices_ - pixels() * slice / slices_;
}

void BatchNormWork::run(Loop loop, const NormRows &whole, std::int64_t group, std::int64_t slice,
                        std::int64_t most) const {
    NormRows work = whole;
    const std::int64_t channel = group * width_;
    for (const float **row : {&work.mean, &work.factor, &work.shift, &work.slope, &work.rest}) {
        if (*row != nullptr) *row += channel;
    }
    if (work.sums != nullptr) {
        work.sums += slice * padded() + channel;
        work.products += slice * padded() + channel;
    }
    work.stride = row_stride_;
    std::int64_t pixel = pixels() * slice / slices_;
    const std::int64_t end = pixel + std::min(most, slice_pixels(slice));
    while (pixel < end) {
        const std::int64_t segment = pixel / rows_, row = pixel % rows_;
        const std::int64_t count = std::min(end - pixel, rows_ - row);
        const std::int64_t offset =
            segment * segment_stride_ + group * group_stride_ + row * row_stride_;
        const auto nbytes = offset * element_nbytes(is_half(options_.images));
        work.source = static_cast<const std::byte *>(whole.source) + nbytes;
        if (whole.other != nullptr) {
            work.other = static_cast<const std::byte *>(whole.other) + nbytes;
        }
        if (whole.result != nullptr) work.result = static_cast<std::byte *>(whole.result) + nbytes;
        work.rows = of_pixels_ ? 1 : count;
        work.count = of_pixels_ ? count : width_;
        loop(work);
        pixel += count;
    }
}

template <class Body>
void BatchNormWork::each(bool backwards, const Body &body) const {
    const std::int64_t items = groups_ * slices_;
    in_parallel(options_.threads, [&](int part, int parts) {
        const std::int64_t first = items * part / parts, end = items * (part + 1) / parts;
        for (std::int64_t item = first; item < end; ++item) {
            const std::int64_t own = backwards ? first + end - 1 - item : item;
            body(own / slices_, own % slices_);
        }
    });
}

template <class Body>
void BatchNormWork::each_channels(const Body &body) const {
    in_parallel(options_.threads, [&](int part, int parts) {
        body(padded() * part / parts, padded() * (part + 1) / parts);
    });
}

BatchNorm::BatchNorm(BatchNormOptions options, bool adds)
    : Kernel(options.threads, {DNNL_ARG_SRC, DNNL_ARG_SCALE, DNNL_ARG_SHIFT}),
      work_(std::move(options), adds, false) {
    if (adds) args_.push_back(post_op_arg(0));
    args_.insert(args_.end(), {DNNL_ARG_DST, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE});
}

std::vector<int> BatchNorm::written() const {
    return {DNNL_ARG_DST, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE};
}

// Rows: mean, factor and shift of each channel, then what each slice subtracts.
std::size_t BatchNorm::scratchpad_nbytes() const {
    return Scratch::nbytes(work_, 3 + work_.slices());
}

MemoryDesc BatchNorm::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SCRATCHPAD) return bytes_desc(scratchpad_nbytes());
    require(takes(arg), "batch norm: there is no argument " + std::to_string(arg));
    const bool is_image = arg == DNNL_ARG_SRC || arg == DNNL_ARG_DST || arg == post_op_arg(0);
    return is_image ? work_.options().images : work_.row_desc();
}

void BatchNorm::execute(const std::vector<void *> &data, void *scratchpad) const {
    const Scratch scratch(scratchpad, work_);
    const std::int64_t channels = work_.channels(), padded = work_.padded();
    const std::int64_t slices = work_.slices(), last = static_cast<std::int64_t>(data.size());
    const auto *scale = static_cast<const float *>(data[1]);
    const auto *given_shift = static_cast<const float *>(data[2]);
    auto *means = static_cast<float *>(data[static_cast<std::size_t>(last - 2)]);
    auto *variances = static_cast<float *>(data[static_cast<std::size_t>(last - 1)]);
    float *mean = scratch.row(0), *factor = scratch.row(1), *shift = scratch.row(2);
    NormRows whole{};
    whole.source = data[0];
    whole.low = work_.options().low;
    whole.high = work_.options().high;

    work_.each(false, [&](std::int64_t group, std::int64_t slice) {
        const std::int64_t width = work_.width(), first = group * width;
        float *own = scratch.row(3 + slice);
        double *sums = scratch.sums + slice * padded, *squares = scratch.products + slice * padded;
        const auto clear = [&] {
            std::fill(sums + first, sums + first + width, 0.0);
            std::fill(squares + first, squares + first + width, 0.0);
        };
        NormRows pass = whole;
        pass.mean = own;
        pass.sums = scratch.sums;
        pass.products = scratch.products;
        std::fill(own + first, own + first + width, 0.0F);
        clear();
        work_.run(work_.kernels().moments, pass, group, slice, kFirstPixels);
        const auto count = static_cast<double>(std::min(kFirstPixels, work_.slice_pixels(slice)));
        for (std::int64_t c = first; c < first + width; ++c) {
            own[c] = static_cast<float>(sums[c] / count);
        }
        clear();
        work_.run(work_.kernels().moments, pass, group, slice, kAll);
    });
    work_.each_channels([&](std::int64_t begin, std::int64_t end) {
        const auto pixels = static_cast<double>(work_.pixels());
        for (std::int64_t c = begin; c < end; ++c) {
            mean[c] = factor[c] = shift[c] = 0.0F;
            if (c >= channels) continue;
            double total = 0, spread = 0;
            const auto of = [&](std::int64_t slice) {
                const auto count = static_cast<double>(work_.slice_pixels(slice));
                return scratch.row(3 + slice)[c] + scratch.sums[slice * padded + c] / count;
            };
            for (std::int64_t slice = 0; slice < slices; ++slice) {
                total += of(slice) * static_cast<double>(work_.slice_pixels(slice));
            }
            const double middle = total / pixels;
            for (std::int64_t slice = 0; slice < slices; ++slice) {
                const auto count = static_cast<double>(work_.slice_pixels(slice));
                const double sum = scratch.sums[slice * padded + c], off = of(slice) - middle;
                spread += scratch.products[slice * padded + c] - sum * sum / count;
                spread += off * off * count;
            }
            means[c] = mean[c] = static_cast<float>(middle);
            variances[c] = static_cast<float>(std::max(spread, 0.0) / pixels);
            factor[c] = norm_factor(scale[c], variances[c], work_.options().epsilon);
            shift[c] = given_shift[c];
        }
    });
    whole.mean = mean;
    whole.factor = factor;
    whole.shift = shift;
    whole.other = last == 7 ? data[3] : nullptr;
    whole.result = data[static_cast<std::size_t>(last - 3)];
    work_.each(true, [&](std::int64_t group, std::int64_t slice) {
        work_.run(work_.kernels().apply, whole, group, slice, kAll);
    });
}

BatchNormGradient::BatchNormGradient(BatchNormOptions options, bool masks)
    : Kernel(options.threads,
             {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_SCALE, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE}),
      work_(std::move(options), false, masks),
      masks_(masks) {
    if (masks) args_.push_back(DNNL_ARG_SHIFT);
    args_.insert(args_.end(), {DNNL_ARG_DST, DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT});
}

std::vector<int> BatchNormGradient::written() const {
    return {DNNL_ARG_DST, DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT};
}

// Rows: mean, factor, shift, slope and rest of each channel.
std::size_t BatchNormGradient::scratchpad_nbytes() const {
    return Scratch::nbytes(work_, 5);
}

MemoryDesc BatchNormGradient::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SCRATCHPAD) return bytes_desc(scratchpad_nbytes());
    require(takes(arg), "batch norm: there is no argument " + std::to_string(arg));
    const bool is_image = arg == DNNL_ARG_SRC || arg == DNNL_ARG_DST || arg == DNNL_ARG_DIFF_DST;
    return is_image ? work_.options().images : work_.row_desc();
}

void BatchNormGradient::execute(const std::vector<void *> &data, void *scratchpad) const {
    const Scratch scratch(scratchpad, work_);
    const std::int64_t channels = work_.channels(), padded = work_.padded();
    const std::size_t last = data.size();
    const auto *scale = static_cast<const float *>(data[2]);
    const auto *means = static_cast<const float *>(data[3]);
    const auto *variances = static_cast<const float *>(data[4]);
    const auto *shifts = masks_ ? static_cast<const float *>(data[5]) : nullptr;
    auto *of_scale = static_cast<float *>(data[last - 2]);
    auto *of_shift = static_cast<float *>(data[last - 1]);
    float *mean = scratch.row(0), *factor = scratch.row(1), *shift = scratch.row(2);
    float *slope = scratch.row(3), *rest = scratch.row(4);
    const float epsilon = work_.options().epsilon;
    for (std::int64_t c = 0; c < padded; ++c) {
        const bool is_valid = c < channels;
        mean[c] = is_valid ? means[c] : 0.0F;
        factor[c] = is_valid ? norm_factor(scale[c], variances[c], epsilon) : 0.0F;
        shift[c] = is_valid && masks_ ? shifts[c] : 0.0F;
    }
    NormRows whole{};
    whole.source = data[0];
    whole.other = data[1];
    whole.mean = mean;
    whole.factor = factor;
    whole.shift = shift;
    whole.low = work_.options().low;
    whole.high = work_.options().high;

    NormRows pass = whole;
    pass.sums = scratch.sums;
    pass.products = scratch.products;
    work_.each(false, [&](std::int64_t group, std::int64_t slice) {
        const std::int64_t width = work_.width();
        for (double *sums : {scratch.sums, scratch.products}) {
            double *own = sums + slice * padded + group * width;
            std::fill(own, own + width, 0.0);
        }
        work_.run(work_.kernels().sums, pass, group, slice, kAll);
    });
    work_.each_channels([&](std::int64_t begin, std::int64_t end) {
        const auto pixels = static_cast<double>(work_.pixels());
        for (std::int64_t c = begin; c < end; ++c) {
            slope[c] = rest[c] = 0.0F;
            if (c >= channels) continue;
            double sum = 0, product = 0;
            for (std::int64_t slice = 0; slice < work_.slices(); ++slice) {
                sum += scratch.sums[slice * padded + c];
                product += scratch.products[slice * padded + c];
            }
            const double inverse = 1 / std::sqrt(static_cast<double>(variances[c]) + epsilon);
            of_scale[c] = static_cast<float>(product * inverse);
            of_shift[c] = static_cast<float>(sum);
            const double own = scale[c] * inverse;
            slope[c] = static_cast<float>(-own * inverse * inverse * product / pixels);
            rest[c] = static_cast<float>(-own * sum / pixels);
        }
    });
    whole.slope = slope;
    whole.rest = rest;
    whole.result = data[last - 3];
    work_.each(true, [&](std::int64_t group, std::int64_t slice) {
        work_.run(work_.kernels().gradient, whole, group, slice, kAll);
    });
}

}  // namespace stridewise
