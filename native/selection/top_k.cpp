#include "selection/top_k.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "support/images.hpp"
#include "support/small_vectors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

constexpr std::int64_t kBlock = 16, kShort = 24, kColumns = 16;
constexpr std::int64_t kLeastCapacity = 64;  // elements from which a limit is found
constexpr std::int64_t kByBytes = 64;        // from here on keys are sorted by bytes
constexpr std::int64_t kAllOf = 4;           // where one in so many is kept, all are sorted

// Integers in the order of elements. Zeros of both signs are equal, and so are all NaN.
inline std::uint32_t ordered(float value) {
    if (value != value) return UINT32_MAX;
    const float plain = value == 0.0F ? 0.0F : value;
    std::uint32_t bits;
    std::memcpy(&bits, &plain, sizeof bits);
    return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
inline std::uint64_t ordered(std::int64_t value) {
    return static_cast<std::uint64_t>(value) ^ (std::uint64_t{1} << 63);
}
inline std::uint32_t ordered(std::int32_t value) {
    return static_cast<std::uint32_t>(value) ^ 0x80000000U;
}

// The element of such an integer.
inline void restore(std::uint32_t order, float &value) {
    const std::uint32_t plain = (order & 0x80000000U) != 0 ? order & 0x7FFFFFFFU : ~order;
    std::memcpy(&value, &plain, sizeof value);
}
inline void restore(std::uint32_t order, std::int32_t &value) {
    value = static_cast<std::int32_t>(order ^ 0x80000000U);
}
inline void restore(std::uint64_t order, std::int64_t &value) {
    value = static_cast<std::int64_t>(order ^ (std::uint64_t{1} << 63));
}

// An element and its position, greater the earlier it comes. Those of 32 bits are one number.
struct Packed {
    std::uint64_t key;

    Packed() = default;
    Packed(std::uint32_t rank, std::int64_t position)
        : key(std::uint64_t{rank} << 32 | (UINT32_MAX - static_cast<std::uint64_t>(position))) {}
    std::uint32_t rank() const { return static_cast<std::uint32_t>(key >> 32); }
    std::int64_t position() const {
        return UINT32_MAX - static_cast<std::int64_t>(key & UINT32_MAX);
    }
    bool comes_before(const Packed &other) const { return key > other.key; }
};

struct Ranked {
    std::uint64_t own_rank;
    std::int64_t own_position;

    Ranked() = default;
    Ranked(std::uint64_t rank, std::int64_t position) : own_rank(rank), own_position(position) {}
    std::uint64_t rank() const { return own_rank; }
    std::int64_t position() const { return own_position; }
    bool comes_before(const Ranked &other) const {
        return own_rank != other.own_rank ? own_rank > other.own_rank
                                          : own_position < other.own_position;
    }
};

template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 4, Packed, Ranked>;

template <class Key>
bool comes_before(const Key &a, const Key &b) {
    return a.comes_before(b);
}

template <class Key>
Key *sorted(Key *keys, Key *, std::int64_t count, bool) {
    std::sort(keys, keys + count, comes_before<Key>);
    return keys;
}

// Sorts keys byte by byte, the least one first, between two buffers, and returns the one in which
// they are. Bytes of positions are left out where keys are in the order of these.
Packed *sorted(Packed *keys, Packed *other, std::int64_t count, bool is_in_order) {
    if (count < kByBytes) return sorted<Packed>(keys, other, count, is_in_order);
    constexpr int kBytes = 8, kDigits = 256;
    const int first = is_in_order ? kBytes / 2 : 0;
    std::uint32_t starts[kBytes][kDigits];
    std::memset(starts[first], 0, sizeof starts[0] * static_cast<std::size_t>(kBytes - first));
    const auto digit = [](const Packed &key, int byte) { return ~key.key >> (8 * byte) & 255; };
    for (std::int64_t i = 0; i < count; ++i) {
        for (int byte = first; byte < kBytes; ++byte) ++starts[byte][digit(keys[i], byte)];
    }
    for (int byte = first; byte < kBytes; ++byte) {
        auto &next = starts[byte];
        if (next[digit(keys[0], byte)] == count) continue;
        std::uint32_t start = 0;
        for (std::uint32_t &each : next) start += std::exchange(each, start);
        for (std::int64_t i = 0; i < count; ++i) other[next[digit(keys[i], byte)]++] = keys[i];
        std::swap(keys, other);
    }
    return keys;
}

// How early an element comes, without its position.
template <class T, bool kLargest>
inline auto rank_of(T value) {
    const auto order = ordered(value);
    return kLargest ? order : static_cast<decltype(order)>(~order);
}

// Whether any of a block of elements comes before a limit, or one of both is NaN. The vectors are
// explicit: the compiler makes none of comparisons that are joined.
template <class T, bool kLargest>
inline bool any_before(const T *from, T limit) {
    using Vector = SmallVector<T>;
    auto found = Vector::load(from) != Vector::load(from);
    for (std::int64_t i = 0; i < kBlock; i += Vector::kLanes) {
        const auto x = Vector::load(from + i);
        found |= ~(kLargest ? x <= limit : x >= limit);
    }
    std::uint64_t words[2];
    static_assert(sizeof found == sizeof words);
    std::memcpy(words, &found, sizeof words);
    return (words[0] | words[1]) != 0;
}

// Keeps the elements that come first, in a buffer for more of them: only when it is full, those
// that come later are dropped.
template <class T, bool kLargest>
class Selection {
  public:
    using Key = KeyOf<T>;

    // The buffer has twice the capacity, for sorting.
    Selection(Key *kept, std::int64_t count, std::int64_t capacity)
        : kept_(kept), count_(count), capacity_(capacity) {}

    void scan(const T *from, std::int64_t rows, std::int64_t step) {
        for (std::int64_t row = 0; row < rows;) {
            const std::int64_t end = std::min(rows, row + kBlock);
            const bool is_block = step == 1 && has_limit_ && end - row == kBlock;
            if (is_block && !any_before<T, kLargest>(from + row, limit_)) {
                row = end;
                continue;
            }
            for (; row < end; ++row) offer(from[row * step], row);
        }
    }

    // The first `count` elements, in order.
    const Key *finish() {
        if (size_ > count_) drop();
        return sorted(kept_, kept_ + capacity_, count_, is_in_order_);
    }

  private:
    void offer(T value, std::int64_t position) {
        const auto rank = rank_of<T, kLargest>(value);
        // Positions grow, so an element of the last one's rank comes after it.
        if (has_limit_ && rank <= last_) return;
        kept_[size_++] = {rank, position};
        if (size_ == capacity_ && size_ > count_) drop();
    }

    void drop() {
        std::nth_element(kept_, kept_ + count_ - 1, kept_ + size_, comes_before<Key>);
        size_ = count_;
        is_in_order_ = false;
        last_ = kept_[count_ - 1].rank();
        restore(kLargest ? last_ : ~last_, limit_);
        has_limit_ = true;
    }

    Key *kept_;
    std::int64_t count_, capacity_, size_ = 0;
    decltype(ordered(T{})) last_ = 0;
    T limit_{};
    bool has_limit_ = false, is_in_order_ = true;
};

template <class T, bool kLargest>
void find_line(const T *from, std::int64_t rows, std::int64_t step, std::int64_t count,
               std::int64_t capacity, KeyOf<T> *kept, T *values, std::int64_t *positions) {
    Selection<T, kLargest> selection(kept, count * kAllOf >= rows ? rows : count, capacity);
    selection.scan(from, rows, step);
    const KeyOf<T> *found = selection.finish();
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t position = found[i].position();
        positions[i * step] = position;
        values[i * step] = from[position * step];
    }
}

// Some short lines beside one another, so that each cache line is read and written once: each
// element is inserted among those before it.
template <class T, bool kLargest>
void find_short(const T *from, std::int64_t rows, std::int64_t step, std::int64_t columns,
                std::int64_t count, T *values, std::int64_t *positions) {
    KeyOf<T> kept[kColumns][kShort];
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
            auto *keys = kept[column];
            const KeyOf<T> found{rank_of<T, kLargest>(from[row * step + column]), row};
            std::int64_t at = row;
            for (; at > 0 && found.comes_before(keys[at - 1]); --at) keys[at] = keys[at - 1];
            keys[at] = found;
        }
    }
    for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t column = 0; column < columns; ++column) {
            const std::int64_t position = kept[column][i].position();
            positions[i * step + column] = position;
            values[i * step + column] = from[position * step + column];
        }
    }
}

}  // namespace

TopK::TopK(const std::string &type, const Dims &extents, std::int64_t count, bool is_largest,
           int threads)
    : Kernel(threads, {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_DST_1}),
      type_(type),
      count_(count),
      is_largest_(is_largest) {
    require(type == "f32" || type == "s32" || type == "s64",
            "top_k: expected f32, s32 or s64, got " + type);
    require(extents.size() == 3 && *std::min_element(extents.begin(), extents.end()) >= 1 &&
                extents[1] < INT32_MAX && count >= 1 && count <= extents[1],
            "top_k: expected positive extents of three axes, and at most as many elements as rows");
    outer_ = extents[0];
    rows_ = extents[1];
    inner_ = extents[2];
    const bool sorts_all = count * kAllOf >= rows_;
    capacity_ = sorts_all ? rows_ : std::min(rows_, std::max(2 * count, kLeastCapacity));
}

std::size_t TopK::scratchpad_nbytes() const {
    return static_cast<std::size_t>(2 * threads_ * capacity_) * sizeof(Ranked);
}

MemoryDesc TopK::arg_desc(int arg) const {
    if (arg == DNNL_ARG_SCRATCHPAD) {
        return {{static_cast<std::int64_t>(scratchpad_nbytes())}, "u8", "a"};
    }
    require(takes(arg), "top_k: there is no argument " + std::to_string(arg));
    const std::int64_t rows = arg == DNNL_ARG_SRC ? rows_ : count_;
    const std::int64_t nbytes = arg == DNNL_ARG_DST_1 ? 8 : element_nbytes(type_);
    return {{outer_ * rows * inner_ * nbytes}, "u8", "a"};
}

void TopK::execute(const std::vector<void *> &data, void *scratchpad) const {
    if (type_ == "f32") return find<float>(data, scratchpad);
    type_ == "s32" ? find<std::int32_t>(data, scratchpad) : find<std::int64_t>(data, scratchpad);
}

template <class T>
void TopK::find(const std::vector<void *> &data, void *scratchpad) const {
    const auto *from = static_cast<const T *>(data[0]);
    auto *values = static_cast<T *>(data[1]);
    auto *positions = static_cast<std::int64_t *>(data[2]);
    const std::int64_t wide = rows_ <= kShort ? kColumns : 1, blocks = ceil_div(inner_, wide);
    const std::int64_t total = outer_ * blocks;
    in_parallel(threads_, [&](int part, int parts) {
        auto *kept = static_cast<KeyOf<T> *>(scratchpad) + 2 * part * capacity_;
        for (std::int64_t i = total * part / parts; i < total * (part + 1) / parts; ++i) {
            const std::int64_t outer = i / blocks, column = i % blocks * wide;
            const T *source = from + outer * rows_ * inner_ + column;
            const std::int64_t to = outer * count_ * inner_ + column;
            if (rows_ <= kShort) {
                const auto find_some = is_largest_ ? &find_short<T, true> : &find_short<T, false>;
                find_some(source, rows_, inner_, std::min(wide, inner_ - column), count_,
                          values + to, positions + to);
            } else {
                const auto find_one = is_largest_ ? &find_line<T, true> : &find_line<T, false>;
                find_one(source, rows_, inner_, count_, capacity_, kept, values + to,
                         positions + to);
            }
        }
    });
}

}  // namespace stridewise
