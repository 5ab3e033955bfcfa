// Images at places that a grid gives, interpolated between pixels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.hpp"

namespace stridewise {

enum class GridMode { linear, nearest, cubic };
enum class GridBorder { zeros, border, reflection };

// DST of SRC at the places of DNNL_ARG_WEIGHTS, as ONNX defines GridSample.
class GridSample : public Kernel {
  public:
    // `src` and `dst` are f32 images [batch, channels, one to three axes] in one format: plain,
    // channels last, or channels in blocks of 8 or 16. `grid` is f32, dense and row-major:
    // [batch, axes of dst, coordinates], the coordinate of the last axis first. Throws
    // std::invalid_argument for others.
    GridSample(const std::string &mode, const std::string &border, bool aligns_corners,
               const MemoryDesc &src, const MemoryDesc &grid, const MemoryDesc &dst, int threads);

    std::string impl() const override { return "grid_sample:portable"; }
    MemoryDesc arg_desc(int arg) const override;
    void execute(const std::vector<void *> &data, void *scratchpad) const override;

  private:
    struct Taps;
    using Find = void (GridSample::*)(const float *coordinates, std::int64_t count,
                                      Taps &taps) const;

    // Writes the taps of a point between four pixels; false for another one.
    bool find_inside(const float *coordinates, std::int64_t *offsets, float *weights) const;
    // Finds what each of `count` points from `coordinates` on is interpolated from.
    template <GridMode kMode, std::int64_t kAxes>
    void find(const float *coordinates, std::int64_t count, Taps &taps) const;
    template <GridMode kMode>
    static Find finder(std::size_t axes);
    // Interpolates `count` points of an image from `first` on.
    void interpolate(const float *image, float *result, std::int64_t first, std::int64_t count,
                     const Taps &taps) const;

    GridBorder border_;
    bool aligns_corners_;
    MemoryDesc src_, grid_, dst_;
    std::vector<std::int64_t> extents_;  // of the axes of an image
    std::int64_t batch_, pixels_, points_;
    std::int64_t chunks_, width_;  // channels as chunks of neighbors, with their padding
    Find find_;
};

}  // namespace stridewise
