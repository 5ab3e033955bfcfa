// Whether tensors of PyTorch have changed, by descriptors of their class. The core thus depends on
// no version of PyTorch, and reads a tensor in a quarter of the time that Python code takes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "bindings/shared.hpp"
#include "onednn/primitives.hpp"
#include "support/errors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stridewise {
namespace {

class TensorWatch {
  public:
    TensorWatch(nb::handle tensors, const std::vector<std::int64_t> &positions,
                const std::vector<std::int64_t> &compared, nb::object version, nb::object address)
        : version_(std::move(version)), address_(std::move(address)) {
        require(Py_TYPE(version_.ptr())->tp_descr_get != nullptr,
                "version: expected a descriptor, such as torch.Tensor._version");
        require(positions.size() == compared.size(), "compared: expected one for each position");
        const nb::object items = nb::steal(fast(tensors));
        for (std::size_t i = 0; i < positions.size(); ++i) {
            const std::size_t at = as_size(positions[i], "position");
            require(at < size(items.ptr()), "position: expected one within the sequence");
            Seen seen{PySequence_Fast_ITEMS(items.ptr())[at], at, 0, nullptr, {}};
            if (!read(seen)) nb::raise_python_error();
            const std::size_t nbytes = as_size(compared[i], "compared");
            require(nbytes == 0 || seen.address != nullptr,
                    "compared: expected a tensor in memory");
            const auto *begin = static_cast<const std::byte *>(seen.address);
            if (nbytes != 0) seen.content.assign(begin, begin + nbytes);
            seen_.push_back(std::move(seen));
        }
    }

    bool holds(nb::handle tensors) const {
        const nb::object items = nb::steal(fast(tensors));
        for (const Seen &seen : seen_) {
            // Reading may run Python code, which may change the sequence.
            if (seen.position >= size(items.ptr())) return false;
            Seen now{
                PySequence_Fast_ITEMS(items.ptr())[seen.position], seen.position, 0, nullptr, {}};
            if (now.tensor != seen.tensor) return false;
            if (!read(now)) {
                PyErr_Clear();  // a tensor that can no longer be read has changed
                return false;
            }
            if (now.version != seen.version || now.address != seen.address) return false;
            const std::size_t nbytes = seen.content.size();
            if (nbytes != 0 && std::memcmp(now.address, seen.content.data(), nbytes) != 0)
                return false;
        }
        return true;
    }

  private:
    // Not owned: the tensor is only compared with those of a call.
    struct Seen {
        PyObject *tensor;
        std::size_t position;
        long long version;
        void *address;
        std::vector<std::byte> content;  // empty where it is not compared
    };

    static PyObject *fast(nb::handle sequence) {
        PyObject *found = PySequence_Fast(sequence.ptr(), "expected a sequence of tensors");
        if (found == nullptr) nb::raise_python_error();
        return found;
    }

    static std::size_t size(PyObject *fast) {
        return static_cast<std::size_t>(PySequence_Fast_GET_SIZE(fast));
    }

    // Fills in version and address of a tensor; returns false with a Python error set.
    bool read(Seen &seen) const {
        PyObject *item = seen.tensor;
        PyObject *type = reinterpret_cast<PyObject *>(Py_TYPE(item));
        const nb::object keeps = nb::borrow(item);
        const auto version =
            nb::steal(Py_TYPE(version_.ptr())->tp_descr_get(version_.ptr(), item, type));
        if (!version.is_valid()) return false;
        seen.version = PyLong_AsLongLong(version.ptr());
        if (seen.version == -1 && PyErr_Occurred()) return false;
        const auto address = nb::steal(PyObject_Vectorcall(address_.ptr(), &item, 1, nullptr));
        if (!address.is_valid()) return false;
        seen.address = PyLong_AsVoidPtr(address.ptr());
        return seen.address != nullptr || !PyErr_Occurred();
    }

    nb::object version_, address_;
    std::vector<Seen> seen_;
};

}  // namespace

void bind_tensors(nb::module_ &m) {
    nb::class_<TensorWatch>(m, "TensorWatch")
        .def(nb::init<nb::handle, const std::vector<std::int64_t> &,
                      const std::vector<std::int64_t> &, nb::object, nb::object>(),
             "tensors"_a, "positions"_a, "compared"_a, "version"_a, "address"_a)
        .def("holds", &TensorWatch::holds, "tensors"_a);
}

}  // namespace stridewise
