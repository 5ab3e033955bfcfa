// Python arrays as plain bytes through the buffer protocol. It takes a tenth of the time of general
// array protocols, and NumPy supports it for every dtype, bfloat16 included.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "executor/program.hpp"

namespace stridewise {

// The bytes of an array, valid as long as this object exists.
class ArrayBytes {
  public:
    // `flags` are those of PyObject_GetBuffer. The ValueError for an unsuitable array names `what`.
    ArrayBytes(nanobind::handle array, int flags, const std::string &what);
    ~ArrayBytes();
    ArrayBytes(ArrayBytes &&other) noexcept;
    ArrayBytes(const ArrayBytes &) = delete;
    ArrayBytes &operator=(const ArrayBytes &) = delete;

    View view() const { return {buffer_.buf, static_cast<std::size_t>(buffer_.len), buffer_.obj}; }
    const void *data() const { return buffer_.buf; }
    // Bytes from the first element to the end of the last one, including gaps of strides.
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
