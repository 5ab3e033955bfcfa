#include "bindings/arrays.hpp"

#include <nanobind/stl/shared_ptr.h>

#include "support/errors.hpp"

namespace stridewise {

namespace nb = nanobind;

ArrayBytes::ArrayBytes(nb::handle array, int flags, const std::string &what) {
    if (PyObject_GetBuffer(array.ptr(), &buffer_, flags) == 0) return;
    nb::python_error cause;
    const bool contiguous = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS;
    const std::string expected = flags & PyBUF_WRITABLE ? "a writable C-contiguous"
                                 : contiguous           ? "a C-contiguous"
                                                        : "an";
    throw std::invalid_argument(what + ": expected " + expected + " array, got " +
                                nb::type_name(array.type()).c_str() + " (" +
                                nb::str(cause.value()).c_str() + ")");
}

ArrayBytes::~ArrayBytes() {
    if (buffer_.obj == nullptr) return;
    const nb::gil_scoped_acquire gil;
    PyBuffer_Release(&buffer_);
}

ArrayBytes::ArrayBytes(ArrayBytes &&other) noexcept : buffer_(other.buffer_) {
    other.buffer_.obj = nullptr;
}

std::size_t ArrayBytes::extent(const std::string &what) const {
    if (buffer_.len == 0) return 0;
    if (buffer_.strides == nullptr) return static_cast<std::size_t>(buffer_.len);
    Py_ssize_t last = buffer_.itemsize;
    for (int axis = 0; axis < buffer_.ndim; ++axis) {
        require(buffer_.strides[axis] >= 0, what + ": expected no negative strides");
        last += (buffer_.shape[axis] - 1) * buffer_.strides[axis];
    }
    return static_cast<std::size_t>(last);
}

ArrayList::ArrayList(nb::handle sequence, bool writable, const char *what) {
    const auto fast = nb::steal(PySequence_Fast(sequence.ptr(), "expected a list of arrays"));
    if (!fast.is_valid()) nb::raise_python_error();
    const auto count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(fast.ptr()));
    const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    arrays_.reserve(count);
    views_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast.ptr(), static_cast<Py_ssize_t>(i));
        arrays_.emplace_back(item, flags, what);
        views_.push_back(arrays_.back().view());
    }
}

Constant as_constant(nb::handle object, std::size_t index) {
    if (nb::isinstance<Buffer>(object)) {
        auto buffer = nb::cast<std::shared_ptr<Buffer>>(object);
        const void *data = buffer->data();
        const std::size_t nbytes = buffer->nbytes();
        const Buffer *mapped = buffer->is_mapped() ? buffer.get() : nullptr;
        return {std::move(buffer), data, nbytes, mapped};
    }
    auto array = std::make_shared<ArrayBytes>(object, PyBUF_C_CONTIGUOUS,
                                              "constants[" + std::to_string(index) + "]");
    const View view = array->view();
    return {std::move(array), view.data, view.nbytes};
}

}  // namespace stridewise
