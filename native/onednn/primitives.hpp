// Primitive descriptors with one factory per operator, and primitives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "onednn/memory.hpp"
#include "onednn/onednn.hpp"

namespace stridewise {

struct EltwisePostOp {
    std::string algorithm;
    float alpha;
    float beta;
};
struct SumPostOp {
    float scale;
};
struct BinaryPostOp {
    std::string algorithm;
    MemoryDesc operand;
};
using PostOp = std::variant<EltwisePostOp, SumPostOp, BinaryPostOp>;
using PostOps = std::vector<PostOp>;

// Scales or zero points of an argument of a primitive; they are arguments themselves.
struct Numbers {
    int arg;   // DNNL_ARG_ATTR_SCALES or DNNL_ARG_ATTR_ZERO_POINTS, or-ed with the argument
    int mask;  // bit i is set if they vary along axis i of the argument
    MemoryDesc desc;
};
using NumbersList = std::vector<Numbers>;

// Sets the capacity of oneDNN's primitive cache, which is global to the process.
void set_primitive_cache_capacity(int capacity);

// The argument id of the operand of the binary post-op at position `index`.
int post_op_arg(int index);

// An operation that is ready to execute. Copies are cheap, because they share oneDNN's primitive.
class Primitive {
  public:
    Primitive(dnnl::primitive primitive, std::vector<int> args, NumbersList numbers, int threads)
        : primitive_(std::move(primitive)),
          args_(std::move(args)),
          numbers_(std::move(numbers)),
          threads_(threads) {}

    dnnl_primitive_t get() const { return primitive_.get(); }
    std::string impl() const;
    std::size_t scratchpad_nbytes() const;
    const std::vector<int> &args() const { return args_; }
    // Those of args() that an execution writes.
    static std::vector<int> written() { return {DNNL_ARG_DST}; }
    MemoryDesc arg_desc(int arg) const;
    int threads() const { return threads_; }
    // Whether it uses streaming stores for large results without a check of their alignment. It
    // crashes if the result is not aligned to a vector.
    bool streams() const { return primitive_.get_kind() == dnnl::primitive::kind::resampling; }

  private:
    dnnl::primitive primitive_;
    std::vector<int> args_;
    NumbersList numbers_;
    int threads_;
};

// One implementation of an operation, with iteration over the other ones.
//
// oneDNN sizes scratchpads by the number of threads at the creation of a descriptor. So the
// descriptor stores this number and sets it again for every call that depends on it.
class PrimitiveDesc {
  public:
    PrimitiveDesc(dnnl::primitive_desc_base desc, std::vector<int> args, int threads,
                  NumbersList numbers = {});

    std::string impl() const { return desc_.impl_info_str(); }
    std::size_t scratchpad_nbytes() const { return desc_.scratchpad_desc().get_size(); }
    // The arguments of an execution, except the scratchpad.
    const std::vector<int> &args() const { return args_; }
    MemoryDesc arg_desc(int arg) const;
    int threads() const { return threads_; }
    const dnnl::primitive_desc_base &get() const { return desc_; }
    // Returns false if there is none; the descriptor is then unchanged.
    bool next();
    Primitive create() const;

  private:
    dnnl::primitive_desc_base desc_;
    std::vector<int> args_;
    NumbersList numbers_;
    int threads_;
};

struct Window {
    Dims strides;
    Dims dilations;  // 1 is dense, as in ONNX
    Dims pads_begin;
    Dims pads_end;
};

// The attributes of every primitive: post-ops, scales and zero points, and a scratchpad of the
// caller's.
dnnl::primitive_attr make_attr(const PostOps &post_ops, const NumbersList &numbers = {});
// Checks that there is one value for each spatial axis of src, and none below `low`. oneDNN reads
// past the end of lists that are too short.
void check_spatial(const Dims &values, const MemoryDesc &src, const char *name, std::int64_t low);
// Checks a window, and returns its dilations as oneDNN has them: 0 is dense.
Dims library_dilations(const Window &window, const MemoryDesc &src);
// `name` is "max", "avg_include" or "avg_exclude".
dnnl::algorithm pooling_algorithm(const std::string &name);

// In every factory `threads` is the number of threads of the primitive; 0 means the number that is
// set on the calling thread.
PrimitiveDesc convolution(const MemoryDesc &src, const MemoryDesc &weights,
                          const std::optional<MemoryDesc> &bias, const MemoryDesc &dst,
                          const Window &window, const PostOps &post_ops, const NumbersList &numbers,
                          int threads);
// The transpose of a convolution. `weights` are [G, ]O, I, spatial, as for `convolution`. `dst`
// must be dense: the library accepts strides there and then writes out of bounds.
PrimitiveDesc deconvolution(const MemoryDesc &src, const MemoryDesc &weights,
                            const std::optional<MemoryDesc> &bias, const MemoryDesc &dst,
                            const Window &window, const PostOps &post_ops,
                            const NumbersList &numbers, int threads);
// `algorithm` is "nearest" or "linear". Pixel centers are aligned.
PrimitiveDesc resampling(const std::string &algorithm, const MemoryDesc &src, const MemoryDesc &dst,
                         const PostOps &post_ops, int threads);
PrimitiveDesc pooling(const std::string &algorithm, const MemoryDesc &src, const MemoryDesc &dst,
                      const Dims &kernel, const Window &window, const PostOps &post_ops,
                      int threads);
PrimitiveDesc eltwise(const std::string &algorithm, const MemoryDesc &src, const MemoryDesc &dst,
                      float alpha, float beta, const PostOps &post_ops, int threads);
PrimitiveDesc binary(const std::string &algorithm, const MemoryDesc &src0, const MemoryDesc &src1,
                     const MemoryDesc &dst, const PostOps &post_ops, const NumbersList &numbers,
                     int threads);
PrimitiveDesc matmul(const MemoryDesc &src, const MemoryDesc &weights,
                     const std::optional<MemoryDesc> &bias, const MemoryDesc &dst,
                     const PostOps &post_ops, const NumbersList &numbers, int threads);
PrimitiveDesc inner_product(const MemoryDesc &src, const MemoryDesc &weights,
                            const std::optional<MemoryDesc> &bias, const MemoryDesc &dst,
                            const PostOps &post_ops, const NumbersList &numbers, int threads);
// A batch norm with an epsilon of 1. With zero statistics it is exactly a scale and a shift.
PrimitiveDesc scale_shift(const MemoryDesc &src, const MemoryDesc &dst, bool relu, int threads);
// A batch norm with the statistics of its source over all axes except the second.
PrimitiveDesc batch_norm(const MemoryDesc &src, const MemoryDesc &dst, float epsilon, bool affine,
                         int threads);
// Normalizes with the statistics over the last axis.
PrimitiveDesc layer_norm(const MemoryDesc &src, const MemoryDesc &dst, float epsilon, bool scale,
                         bool shift, int threads);
PrimitiveDesc lrn(const MemoryDesc &src, const MemoryDesc &dst, const std::string &algorithm,
                  std::int64_t local_size, float alpha, float beta, float k, int threads);
PrimitiveDesc softmax(const MemoryDesc &src, const MemoryDesc &dst, int axis, bool log,
                      int threads);
PrimitiveDesc concat(const MemoryDesc &dst, int axis, const std::vector<MemoryDesc> &srcs,
                     int threads);
PrimitiveDesc reorder(const MemoryDesc &src, const MemoryDesc &dst, const NumbersList &numbers,
                      int threads);
PrimitiveDesc shuffle(const MemoryDesc &src, const MemoryDesc &dst, int axis, int group_size,
                      int threads);

}  // namespace stridewise
