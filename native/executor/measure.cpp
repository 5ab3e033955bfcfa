#include "executor/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "executor/waits.hpp"
#include "support/errors.hpp"
#include "threads/regions.hpp"

namespace stridewise {
namespace {

// Minimal standard generator: the same data in every process, so that timings can be repeated.
class Random {
  public:
    // Uniform in [-1, 1].
    float next() {
        state_ = static_cast<std::uint32_t>(std::uint64_t{state_} * 48271U % 2147483647U);
        return static_cast<float>(state_) / 1073741823.5F - 1.0F;
    }

  private:
    std::uint32_t state_ = 1;
};

// Fills a buffer with what `next` returns. Large ones repeat it: copies are made as fast as memory
// is written, and no kernel notices.
template <class T, class Next>
void fill_by(Buffer &buffer, const Next &next) {
    constexpr std::size_t kDifferent = 1 << 12;
    auto *data = reinterpret_cast<T *>(buffer.data());
    const std::size_t count = buffer.nbytes() / sizeof(T);
    std::generate_n(data, std::min(count, kDifferent), next);
    for (std::size_t at = kDifferent; at < count; at += kDifferent) {
        std::copy_n(data, std::min(count - at, kDifferent), data + at);
    }
}

template <class T>
void fill_with(Buffer &buffer, Random &random, float scale) {
    fill_by<T>(buffer, [&] { return static_cast<T>(random.next() * scale); });
}

void fill_bf16(Buffer &buffer, Random &random) {
    fill_by<std::uint16_t>(buffer, [&] {
        const float value = random.next();
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        return static_cast<std::uint16_t>(bits >> 16);
    });
}

void fill(Buffer &buffer, const MemoryDesc &desc, Random &random) {
    using Type = dnnl::memory::data_type;
    switch (desc.get().get_data_type()) {
        case Type::f32:
            return fill_with<float>(buffer, random, 1.0F);
        case Type::bf16:
            return fill_bf16(buffer, random);
        case Type::s8:
            return fill_with<std::int8_t>(buffer, random, 63.0F);
        case Type::u8:
            return fill_by<std::uint8_t>(
                buffer, [&] { return static_cast<std::uint8_t>(128.0F + 127.0F * random.next()); });
        case Type::s32:
            return fill_with<std::int32_t>(buffer, random, 63.0F);
        // Half-precision data stay zero, which costs the same time.
        default:
            return;
    }
}

void make_positive(Buffer &buffer) {
    auto *data = reinterpret_cast<float *>(buffer.data());
    std::transform(data, data + buffer.nbytes() / sizeof(float), data,
                   [](float value) { return std::fabs(value) + 0.5F; });
}

#if defined(__x86_64__)
constexpr std::size_t kLine = 64;

// Each flush waits for the one before it.
void flush_in_order(const std::byte *from, const std::byte *to) {
    for (; from < to; from += kLine) _mm_clflush(from);
}

[[gnu::target("clflushopt")]] void flush_in_any_order(const std::byte *from, const std::byte *to) {
    for (; from < to; from += kLine) _mm_clflushopt(const_cast<std::byte *>(from));
}
#endif

// Throws a buffer out of all caches, and leaves the threads of the region awake, as they are
// between the kernels of a network. Elsewhere than on x86 nothing is thrown out, and the figures
// are those of warm caches.
void evict(const Buffer &buffer, int threads) {
#if defined(__x86_64__)
    const auto *data = reinterpret_cast<const std::byte *>(buffer.data());
    const std::size_t lines = (buffer.nbytes() + kLine - 1) / kLine;
    const auto flush =
        __builtin_cpu_supports("clflushopt") != 0 ? flush_in_any_order : flush_in_order;
    on_each_thread(threads, [&](int thread) {
        const auto at = [&](int share) {
            return std::min(
                lines * static_cast<std::size_t>(share) / static_cast<std::size_t>(threads) * kLine,
                buffer.nbytes());
        };
        flush(data + at(thread), data + at(thread + 1));
        _mm_mfence();
    });
#else
    static_cast<void>(buffer);
    static_cast<void>(threads);
#endif
}

template <class Operation>
Operands make_operands(const Operation &operation, const std::vector<int> &cold) {
    std::vector<int> ids = operation.args();
    if (operation.scratchpad_nbytes() > 0) ids.push_back(DNNL_ARG_SCRATCHPAD);
    Operands operands;
    Random random;
    for (const int id : ids) {
        const MemoryDesc desc = operation.arg_desc(id);
        Buffer buffer(std::max(desc.extent(), desc.nbytes()));
        // Tables of places stay zero, and so do those that a pooling keeps for its gradient, as not
        // all numbers are places.
        const bool is_table =
            (id == DNNL_ARG_WEIGHTS && desc.dtype() == "s32") || id == DNNL_ARG_WORKSPACE;
        if (id != DNNL_ARG_SCRATCHPAD && !is_table) fill(buffer, desc, random);
        if (id == DNNL_ARG_VARIANCE) make_positive(buffer);
        if (std::find(cold.begin(), cold.end(), id) != cold.end()) {
            operands.cold.push_back(operands.buffers.size());
        }
        operands.memories.emplace_back(desc.get(), cpu_engine(), buffer.data());
        operands.buffers.push_back(std::move(buffer));
        operands.args.push_back({id, operands.memories.back().get()});
    }
    return operands;
}

template <class Operation>
std::vector<Operands> make_copies(const Operation &operation, const std::vector<int> &cold,
                                  std::size_t spread_nbytes) {
    constexpr std::size_t most = 64;
    std::vector<Operands> copies;
    std::size_t nbytes = 0;
    do {
        copies.push_back(make_operands(operation, cold));
        for (const Buffer &buffer : copies.back().buffers) nbytes += buffer.nbytes();
    } while (nbytes < spread_nbytes && copies.size() < most);
    return copies;
}

// A first run of this many budgets is not worth another one: what it spends on caches and on memory
// that has not been touched is a small part of it.
constexpr std::int64_t kLong = 4;

// Runs of which threads waited for more than this part of the time are repeated, so many times in
// all: threads that were woken may share a processor until the scheduler moves one of them.
constexpr double kDisturbed = 0.02;
constexpr int kAttempts = 4;

// A measurement ends after this many budgets at most: evicting operands may take longer than the
// runs, which alone use up the budget.
constexpr std::int64_t kEvictions = 4;

using Clock = std::chrono::steady_clock;

std::int64_t elapsed(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

}  // namespace

Measurement::Measurement(const Primitive &primitive, const std::vector<int> &cold,
                         std::size_t spread_nbytes)
    : threads_(primitive.threads()),
      copies_(make_copies(primitive, cold, spread_nbytes)),
      execute_([&primitive, stream = dnnl::stream(cpu_engine())](const Operands &operands) {
          check(
              dnnl_primitive_execute(primitive.get(), stream.get(),
                                     static_cast<int>(operands.args.size()), operands.args.data()),
              "could not execute a primitive to measure it");
          check(dnnl_stream_wait(stream.get()), "could not wait for a stream");
      }) {}

Measurement::Measurement(const Kernel &kernel, const std::vector<int> &cold,
                         std::size_t spread_nbytes)
    : threads_(kernel.threads()),
      copies_(make_copies(kernel, cold, spread_nbytes)),
      execute_([&kernel](const Operands &operands) {
          std::vector<void *> data;
          // Operands come in the order of args(), then the scratchpad.
          for (std::size_t i = 0; i < kernel.args().size(); ++i) {
              data.push_back(operands.memories[i].get_data_handle());
          }
          const bool has_scratchpad = operands.memories.size() > data.size();
          kernel.execute(data,
                         has_scratchpad ? operands.memories.back().get_data_handle() : nullptr);
      }) {}

std::size_t Measurement::nbytes() const {
    std::size_t total = 0;
    for (const Operands &operands : copies_) {
        for (const Buffer &buffer : operands.buffers) total += buffer.nbytes();
    }
    return total;
}

std::int64_t Measurement::timed(std::size_t index) const {
    const Operands &operands = copies_[index % copies_.size()];
    for (const std::size_t cold : operands.cold) evict(operands.buffers[cold], threads_);
    const auto before = Clock::now();
    execute_(operands);
    return elapsed(before, Clock::now());
}

Measured Measurement::run(const Runs &runs) const {
    require(runs.least >= 1 && runs.most >= runs.least, "run: expected 1 <= min_runs <= max_runs");
    require(runs.budget_ns >= 0, "run: expected a budget_ns of at least 0");
    Measured best{{}, std::numeric_limits<double>::infinity()};
    with_threads(threads_, [&] {
        const Waits all(threads_);
        const auto warming = Clock::now();
        for (const Operands &operands : copies_) execute_(operands);
        const std::int64_t first = elapsed(warming, Clock::now());
        const bool is_long =
            copies_.size() == 1 && first >= kLong * std::max<std::int64_t>(runs.budget_ns, 1);
        for (int attempt = 0; attempt < (is_long ? 1 : kAttempts); ++attempt) {
            std::vector<std::int64_t> samples;
            if (is_long) samples.push_back(first);
            const Waits waits = is_long ? all : Waits(threads_);
            const auto begin = is_long ? warming : Clock::now();
            std::int64_t spent = is_long ? first : 0;
            for (int i = static_cast<int>(samples.size()); i < runs.most; ++i) {
                const bool is_over = spent >= runs.budget_ns ||
                                     elapsed(begin, Clock::now()) >= kEvictions * runs.budget_ns;
                if (i >= runs.least && is_over) break;
                samples.push_back(timed(static_cast<std::size_t>(i)));
                spent += samples.back();
            }
            const auto passed = std::max<std::int64_t>(elapsed(begin, Clock::now()), 1);
            const double share =
                static_cast<double>(waits.total_ns()) / static_cast<double>(passed);
            if (share < best.waited) best = {std::move(samples), share};
            if (best.waited <= kDisturbed) break;
        }
    });
    return best;
}

}  // namespace stridewise
