// The loops of elements.hpp: operators as functions of single elements, which the compiler makes
// vectors of where elements lie one after the other. Definitions, with those of quotients by zero,
// are those of stridewise.ops.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "elements/elements.hpp"
#include "elements/extremes.hpp"

namespace stridewise {
namespace {

struct Truth {
    std::uint8_t stored;
};

template <class T>
constexpr bool is_truth = std::is_same_v<T, Truth>;

// Calls `body` with an element of the type of a name; returns what it returns, null for unknown
// names.
template <class Body>
ElementLoop with_type(const std::string &name, const Body &body) {
    if (name == "f32") return body(float{});
    if (name == "f64") return body(double{});
    if (name == "s64") return body(std::int64_t{});
    if (name == "s32") return body(std::int32_t{});
    if (name == "s16") return body(std::int16_t{});
    if (name == "s8") return body(std::int8_t{});
    if (name == "u64") return body(std::uint64_t{});
    if (name == "u32") return body(std::uint32_t{});
    if (name == "u16") return body(std::uint16_t{});
    if (name == "u8") return body(std::uint8_t{});
    if (name == "bool") return body(Truth{});
    return nullptr;
}

// Operands: elements one after the other, a number that is read once, and elements at any step.
template <class T>
using Dense = const T *;

template <class T>
struct Number {
    T value;
    T operator[](std::int64_t) const { return value; }
};

template <class T>
struct Strided {
    const char *from;
    std::int64_t step;
    T operator[](std::int64_t i) const { return *reinterpret_cast<const T *>(from + i * step); }
};

template <class T>
bool is_dense(std::int64_t step) {
    return step == static_cast<std::int64_t>(sizeof(T));
}

template <class T>
Dense<T> dense(const char *from) {
    return reinterpret_cast<Dense<T>>(from);
}

template <class To, class Body>
inline void write_dense(char *to, std::int64_t count, const Body &body) {
    auto *result = reinterpret_cast<To *>(to);
    for (std::int64_t i = 0; i < count; ++i) result[i] = body(i);
}

template <class To, class Body>
inline void write_strided(char *to, std::int64_t step, std::int64_t count, const Body &body) {
    for (std::int64_t i = 0; i < count; ++i) *reinterpret_cast<To *>(to + i * step) = body(i);
}

// Calls body(x, y) with operands that suit vectors; returns false if there are none.
template <class T, class Body>
inline bool with_pair(const char *const *from, const std::int64_t *steps, const Body &body) {
    const Dense<T> x = dense<T>(from[0]), y = dense<T>(from[1]);
    const bool is_x_dense = is_dense<T>(steps[0]), is_y_dense = is_dense<T>(steps[1]);
    if (is_x_dense && is_y_dense) {
        body(x, y);
    } else if (is_x_dense && steps[1] == 0) {
        body(x, Number<T>{*y});
    } else if (steps[0] == 0 && is_y_dense) {
        body(Number<T>{*x}, y);
    } else if (steps[0] == 0 && steps[1] == 0) {
        body(Number<T>{*x}, Number<T>{*y});
    } else {
        return false;
    }
    return true;
}

template <class F, class From, class To>
void unary(const char *const *from, const std::int64_t *steps, char *to, std::int64_t step,
           std::int64_t count) {
    if (is_dense<From>(steps[0]) && is_dense<To>(step)) {
        const Dense<From> x = dense<From>(from[0]);
        return write_dense<To>(to, count, [&](std::int64_t i) { return F::of(x[i]); });
    }
    const Strided<From> x{from[0], steps[0]};
    if (steps[0] == 0 && is_dense<To>(step)) {
        const To found = F::of(x[0]);
        return write_dense<To>(to, count, [&](std::int64_t) { return found; });
    }
    write_strided<To>(to, step, count, [&](std::int64_t i) { return F::of(x[i]); });
}

template <class F, class From, class To>
void binary(const char *const *from, const std::int64_t *steps, char *to, std::int64_t step,
            std::int64_t count) {
    const auto run = [&](const auto &x, const auto &y) {
        write_dense<To>(to, count, [&](std::int64_t i) { return F::of(x[i], y[i]); });
    };
    if (is_dense<To>(step) && with_pair<From>(from, steps, run)) return;
    const Strided<From> x{from[0], steps[0]}, y{from[1], steps[1]};
    write_strided<To>(to, step, count, [&](std::int64_t i) { return F::of(x[i], y[i]); });
}

// --- arithmetic: integers wrap around ---

template <class T>
using Unsigned = std::conditional_t<sizeof(T) <= 4, std::uint32_t, std::uint64_t>;

template <class T>
constexpr bool is_float = std::is_floating_point_v<T>;

struct Add {
    template <class T>
    static T of(T x, T y) {
        if constexpr (is_float<T>) return x + y;
        return static_cast<T>(static_cast<Unsigned<T>>(x) + static_cast<Unsigned<T>>(y));
    }
};

struct Subtract {
    template <class T>
    static T of(T x, T y) {
        if constexpr (is_float<T>) return x - y;
        return static_cast<T>(static_cast<Unsigned<T>>(x) - static_cast<Unsigned<T>>(y));
    }
};

struct Multiply {
    template <class T>
    static T of(T x, T y) {
        if constexpr (is_float<T>) return x * y;
        return static_cast<T>(static_cast<Unsigned<T>>(x) * static_cast<Unsigned<T>>(y));
    }
};

// By zero, integers have the quotient and the remainder 0, as NumPy does. The least number by -1 is
// itself.
template <class T>
bool overflows(T x, T y) {
    if constexpr (std::is_signed_v<T>) return y == -1 && x == std::numeric_limits<T>::min();
    return false;
}

struct Divide {
    template <class T>
    static T of(T x, T y) {
        if constexpr (is_float<T>) return x / y;
        if (y == 0) return 0;
        return overflows(x, y) ? x : static_cast<T>(x / y);
    }
};

// With the sign of the dividend.
struct Remainder {
    template <class T>
    static T of(T x, T y) {
        if constexpr (is_float<T>) {
            return std::fmod(x, y);
        } else {
            return y == 0 || overflows(x, y) ? T{0} : static_cast<T>(x % y);
        }
    }
};

// With the sign of the divisor.
struct Modulo {
    template <class T>
    static T of(T x, T y) {
        const T rest = Remainder::of(x, y);
        if constexpr (is_float<T>) {
            if (rest == 0) return std::copysign(T{0}, y);
            return (rest < 0) != (y < 0) ? rest + y : rest;
        } else if constexpr (std::is_signed_v<T>) {
            return rest != 0 && (rest < 0) != (y < 0) ? static_cast<T>(rest + y) : rest;
        } else {
            return rest;
        }
    }
};

struct Negative {
    template <class T>
    static T of(T x) {
        if constexpr (is_float<T>) return -x;
        return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(x));
    }
};

struct Absolute {
    template <class T>
    static T of(T x) {
        if constexpr (is_float<T>) {
            return std::fabs(x);
        } else if constexpr (std::is_signed_v<T>) {
            return x < 0 ? Negative::of(x) : x;
        } else {
            return x;
        }
    }
};

struct Sign {
    template <class T>
    static T of(T x) {
        if (x > 0) return T{1};
        if constexpr (std::is_signed_v<T>) return x < 0 ? static_cast<T>(-1) : x;
        return x;
    }
};

// --- comparisons and truth values ---

inline Truth truth(bool is_true) {
    return {static_cast<std::uint8_t>(is_true)};
}

struct Equal {
    template <class T>
    static Truth of(T x, T y) {
        if constexpr (is_truth<T>)
            return truth((x.stored != 0) == (y.stored != 0));
        else
            return truth(x == y);
    }
};

#define STRIDEWISE_COMPARISON(Name, operation) \
    struct Name {                              \
        template <class T>                     \
        static Truth of(T x, T y) {            \
            return truth(x operation y);       \
        }                                      \
    }
STRIDEWISE_COMPARISON(Greater, >);
STRIDEWISE_COMPARISON(GreaterEqual, >=);
STRIDEWISE_COMPARISON(Less, <);
STRIDEWISE_COMPARISON(LessEqual, <=);
#undef STRIDEWISE_COMPARISON

struct And {
    static Truth of(Truth x, Truth y) { return truth((x.stored != 0) & (y.stored != 0)); }
};
struct Or {
    static Truth of(Truth x, Truth y) { return truth((x.stored | y.stored) != 0); }
};
struct Xor {
    static Truth of(Truth x, Truth y) { return truth((x.stored != 0) != (y.stored != 0)); }
};
struct Not {
    static Truth of(Truth x) { return truth(x.stored == 0); }
};

struct IsNan {
    template <class T>
    static Truth of(T x) {
        return truth(x != x);
    }
};

struct IsInf {
    template <class T>
    static Truth of(T x) {
        return truth(std::fabs(x) > std::numeric_limits<T>::max());
    }
};
struct IsPositiveInf {
    template <class T>
    static Truth of(T x) {
        return truth(x > std::numeric_limits<T>::max());
    }
};
struct IsNegativeInf {
    template <class T>
    static Truth of(T x) {
        return truth(x < std::numeric_limits<T>::lowest());
    }
};

// --- bits ---

struct BitAnd {
    template <class T>
    static T of(T x, T y) {
        return static_cast<T>(x & y);
    }
};
struct BitOr {
    template <class T>
    static T of(T x, T y) {
        return static_cast<T>(x | y);
    }
};
struct BitXor {
    template <class T>
    static T of(T x, T y) {
        return static_cast<T>(x ^ y);
    }
};
struct BitNot {
    template <class T>
    static T of(T x) {
        return static_cast<T>(~x);
    }
};

// --- functions of floats ---

#define STRIDEWISE_FUNCTION(Name, function) \
    struct Name {                           \
        template <class T>                  \
        static T of(T x) {                  \
            return function(x);             \
        }                                   \
    }
STRIDEWISE_FUNCTION(Acos, std::acos);
STRIDEWISE_FUNCTION(Acosh, std::acosh);
STRIDEWISE_FUNCTION(Asin, std::asin);
STRIDEWISE_FUNCTION(Asinh, std::asinh);
STRIDEWISE_FUNCTION(Atan, std::atan);
STRIDEWISE_FUNCTION(Atanh, std::atanh);
STRIDEWISE_FUNCTION(Cosh, std::cosh);
STRIDEWISE_FUNCTION(Sinh, std::sinh);
STRIDEWISE_FUNCTION(Tan, std::tan);
#undef STRIDEWISE_FUNCTION

// --- conversions ---

// A float without its fraction; the least integer for NaN and for what the integers do not hold, as
// the processor has it.
template <class Integer, class T>
Integer truncated(T x) {
    constexpr T limit = static_cast<T>(std::numeric_limits<Integer>::max() / 2 + 1) * 2;
    const bool fits = x >= -limit && x < limit;
    const auto found = static_cast<Integer>(fits ? x : T{0});
    return fits ? found : std::numeric_limits<Integer>::min();
}

template <class To>
struct Convert {
    template <class From>
    static To of(From x) {
        if constexpr (is_truth<From> && is_truth<To>) {
            return truth(x.stored != 0);
        } else if constexpr (is_truth<From>) {
            return static_cast<To>(x.stored != 0);
        } else if constexpr (is_truth<To>) {
            return truth(x != 0);
        } else if constexpr (!is_float<From> || is_float<To>) {
            return static_cast<To>(x);
        } else if constexpr (std::is_same_v<To, std::uint64_t>) {
            constexpr auto half = static_cast<From>(9223372036854775808.0);
            if (!(x >= half)) return static_cast<To>(truncated<std::int64_t>(x));
            return static_cast<To>(truncated<std::int64_t>(x - half)) ^ (To{1} << 63);
        } else if constexpr (sizeof(To) == 8 || std::is_same_v<To, std::uint32_t>) {
            return static_cast<To>(truncated<std::int64_t>(x));
        } else {
            return static_cast<To>(truncated<std::int32_t>(x));
        }
    }
};

struct Same {
    template <class T>
    static T of(T x) {
        return x;
    }
};

template <class T>
void copy(const char *const *from, const std::int64_t *steps, char *to, std::int64_t step,
          std::int64_t count) {
    if (is_dense<T>(steps[0]) && is_dense<T>(step)) {
        std::memcpy(to, from[0], static_cast<std::size_t>(count) * sizeof(T));
        return;
    }
    unary<Same, T, T>(from, steps, to, step, count);
}

template <class T>
void where(const char *const *from, const std::int64_t *steps, char *to, std::int64_t step,
           std::int64_t count) {
    using Condition = std::uint8_t;
    const auto run = [&](const auto &x, const auto &y) {
        const Dense<Condition> condition = dense<Condition>(from[0]);
        write_dense<T>(to, count, [&](std::int64_t i) {
            const T chosen = x[i], other = y[i];
            return condition[i] != 0 ? chosen : other;
        });
    };
    const bool suits = is_dense<T>(step) && is_dense<Condition>(steps[0]);
    if (suits && with_pair<T>(from + 1, steps + 1, run)) return;
    const Strided<Condition> condition{from[0], steps[0]};
    const Strided<T> x{from[1], steps[1]}, y{from[2], steps[2]};
    write_strided<T>(to, step, count,
                     [&](std::int64_t i) { return condition[i] != 0 ? x[i] : y[i]; });
}

// --- tables ---

template <class T>
ElementLoop find_arithmetic(const std::string &op) {
    if (op == "add") return &binary<Add, T, T>;
    if (op == "sub") return &binary<Subtract, T, T>;
    if (op == "mul") return &binary<Multiply, T, T>;
    if (op == "div") return &binary<Divide, T, T>;
    if (op == "fmod") return &binary<Remainder, T, T>;
    if (op == "mod") return &binary<Modulo, T, T>;
    if (op == "maximum") return &binary<Maximum, T, T>;
    if (op == "minimum") return &binary<Minimum, T, T>;
    if (op == "neg") return &unary<Negative, T, T>;
    if (op == "abs") return &unary<Absolute, T, T>;
    if (op == "sign") return &unary<Sign, T, T>;
    return nullptr;
}

template <class T>
ElementLoop find_comparison(const std::string &op) {
    if (op == "equal") return &binary<Equal, T, Truth>;
    if (op == "greater") return &binary<Greater, T, Truth>;
    if (op == "greater_equal") return &binary<GreaterEqual, T, Truth>;
    if (op == "less") return &binary<Less, T, Truth>;
    if (op == "less_equal") return &binary<LessEqual, T, Truth>;
    return nullptr;
}

ElementLoop find_connective(const std::string &op) {
    if (op == "equal") return &binary<Equal, Truth, Truth>;
    if (op == "logical_and") return &binary<And, Truth, Truth>;
    if (op == "logical_or") return &binary<Or, Truth, Truth>;
    if (op == "logical_xor") return &binary<Xor, Truth, Truth>;
    if (op == "logical_not") return &unary<Not, Truth, Truth>;
    return nullptr;
}

template <class T>
ElementLoop find_bitwise(const std::string &op) {
    if (op == "bitwise_and") return &binary<BitAnd, T, T>;
    if (op == "bitwise_or") return &binary<BitOr, T, T>;
    if (op == "bitwise_xor") return &binary<BitXor, T, T>;
    if (op == "bitwise_not") return &unary<BitNot, T, T>;
    return nullptr;
}

template <class T>
ElementLoop find_function(const std::string &op) {
    if (op == "acos") return &unary<Acos, T, T>;
    if (op == "acosh") return &unary<Acosh, T, T>;
    if (op == "asin") return &unary<Asin, T, T>;
    if (op == "asinh") return &unary<Asinh, T, T>;
    if (op == "atan") return &unary<Atan, T, T>;
    if (op == "atanh") return &unary<Atanh, T, T>;
    if (op == "cosh") return &unary<Cosh, T, T>;
    if (op == "sinh") return &unary<Sinh, T, T>;
    if (op == "tan") return &unary<Tan, T, T>;
    return nullptr;
}

template <class T>
ElementLoop find_loop(const std::string &op, const std::string &result) {
    if constexpr (is_truth<T>) {
        return result == "bool" ? find_connective(op) : nullptr;
    } else {
        if (result == "bool") {
            if constexpr (is_float<T>) {
                if (op == "is_nan") return &unary<IsNan, T, Truth>;
                if (op == "is_inf") return &unary<IsInf, T, Truth>;
                if (op == "is_positive_inf") return &unary<IsPositiveInf, T, Truth>;
                if (op == "is_negative_inf") return &unary<IsNegativeInf, T, Truth>;
            }
            return find_comparison<T>(op);
        }
        if (const auto found = find_arithmetic<T>(op)) return found;
        if constexpr (is_float<T>) {
            return find_function<T>(op);
        } else {
            return find_bitwise<T>(op);
        }
    }
}

// Copies and choices move elements of a size, whatever they are.
template <template <class> class Table>
ElementLoop find_by_size(std::int64_t nbytes) {
    if (nbytes == 1) return Table<std::uint8_t>::loop;
    if (nbytes == 2) return Table<std::uint16_t>::loop;
    if (nbytes == 4) return Table<std::uint32_t>::loop;
    return nbytes == 8 ? Table<std::uint64_t>::loop : nullptr;
}

template <class T>
struct Copies {
    static constexpr ElementLoop loop = &copy<T>;
};
template <class T>
struct Choices {
    static constexpr ElementLoop loop = &where<T>;
};

int count_of_sources(const std::string &op) {
    for (const char *name : {"neg",
                             "abs",
                             "sign",
                             "logical_not",
                             "is_nan",
                             "is_inf",
                             "is_positive_inf",
                             "is_negative_inf",
                             "bitwise_not",
                             "acos",
                             "acosh",
                             "asin",
                             "asinh",
                             "atan",
                             "atanh",
                             "cosh",
                             "sinh",
                             "tan",
                             "copy",
                             "cast"}) {
        if (op == name) return 1;
    }
    return op == "where" ? 3 : 2;
}

}  // namespace

std::int64_t element_nbytes(const std::string &type) {
    for (const auto &[name, nbytes] :
         {std::pair{"f64", 8}, std::pair{"s64", 8}, std::pair{"u64", 8}, std::pair{"f32", 4},
          std::pair{"s32", 4}, std::pair{"u32", 4}, std::pair{"f16", 2}, std::pair{"bf16", 2},
          std::pair{"s16", 2}, std::pair{"u16", 2}, std::pair{"s8", 1}, std::pair{"u8", 1},
          std::pair{"bool", 1}}) {
        if (type == name) return nbytes;
    }
    require(false, "elements: there is no type " + type);
    return 0;
}

ElementLoop find_element_loop(const std::string &op, const std::vector<std::string> &sources,
                              const std::string &result) {
    if (static_cast<int>(sources.size()) != count_of_sources(op)) return nullptr;
    const bool are_equal = sources.front() == sources.back();
    if (op == "where") {
        const bool fits = sources[0] == "bool" && sources[1] == result && sources[2] == result;
        return fits ? find_by_size<Choices>(element_nbytes(result)) : nullptr;
    }
    if (op == "copy") {
        return sources[0] == result ? find_by_size<Copies>(element_nbytes(result)) : nullptr;
    }
    if (op == "cast") {
        return with_type(sources[0], [&](auto from) {
            using From = decltype(from);
            return with_type(result, [](auto to) -> ElementLoop {
                using To = decltype(to);
                return &unary<Convert<To>, From, To>;
            });
        });
    }
    if (!are_equal || (result != sources[0] && result != "bool")) return nullptr;
    return with_type(sources[0], [&](auto from) { return find_loop<decltype(from)>(op, result); });
}

}  // namespace stridewise
