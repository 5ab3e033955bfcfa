// Python arrays seen as plain bytes, through the buffer protocol: it takes a tenth of the time of
// the general array protocols, and NumPy serves it for every dtype, bfloat16 included.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "executor/program.hpp"

namespace stridewise {

// The bytes of an array, held in place for as long as this object lives.
class ArrayBytes {
  public:
    // `flags` as for PyObject_GetBuffer; ValueError names `what` where the array does not comply.
    ArrayBytes(nanobind::handle array, int flags, const std::string &what);
    ~ArrayBytes();
    ArrayBytes(ArrayBytes &&other) noexcept;
    ArrayBytes(const ArrayBytes &) = delete;
    ArrayBytes &operator=(const ArrayBytes &) = delete;

    View view() const { return {buffer_.buf, static_cast<std::size_t>(buffer_.len), buffer_.obj}; }
    const void *data() const { return buffer_.buf; }
    // Bytes from the first element to just past the last, strides considered.
    std::size_t extent(const std::string &what) const;

  private:
    Py_buffer buffer_{};
};

// The C-contiguous arrays of one side of a call.
class ArrayList {
  public:
    ArrayList(nanobind::handle sequence, bool writable, const char *what);
    const Program::Views &views() const { return views_; }

  private:
    std::vector<ArrayBytes> arrays_;
    Program::Views views_;
};

// A Buffer or a C-contiguous array as a constant that keeps its owner alive.
Constant as_constant(nanobind::handle object, std::size_t index);

}  // namespace stridewise
