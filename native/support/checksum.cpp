#include "support/checksum.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "support/errors.hpp"

namespace stridewise {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5;

// Half of a second-level cache, so that data is still in the cache when it is added to the sum.
constexpr std::size_t kSlice = std::size_t{256} << 10;

std::uint64_t rotated(std::uint64_t value, int bits) {
    return value << bits | value >> (64 - bits);
}

std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) {
    return rotated(lane + word * kPrime2, 31) * kPrime1;
}

void check_part(const Buffer &buffer, std::size_t offset, std::size_t nbytes) {
    require(offset <= buffer.nbytes() && nbytes <= buffer.nbytes() - offset,
            std::to_string(nbytes) + " bytes at offset " + std::to_string(offset) +
                " do not fit into the " + std::to_string(buffer.nbytes()) + " of a buffer");
}

template <class Word>
std::uint64_t word_at(const std::byte *data) {
    Word word;
    std::memcpy(&word, data, sizeof word);
    return word;
}

}  // namespace

Checksum::Checksum() : lanes_{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1} {}

void Checksum::add(const std::byte *data, std::size_t nbytes) {
    require(nbytes_ % kStripe == 0, "checksum: expected parts of whole stripes before the last");
    const std::size_t whole = nbytes / kStripe * kStripe;
    auto [a, b, c, d] = lanes_;  // in registers
    for (std::size_t at = 0; at < whole; at += kStripe) {
        a = mixed(a, word_at<std::uint64_t>(data + at));
        b = mixed(b, word_at<std::uint64_t>(data + at + 8));
        c = mixed(c, word_at<std::uint64_t>(data + at + 16));
        d = mixed(d, word_at<std::uint64_t>(data + at + 24));
    }
    lanes_ = {a, b, c, d};
    std::copy(data + whole, data + nbytes, rest_.begin());
    nbytes_ += nbytes;
}

std::uint64_t Checksum::value() const {
    std::uint64_t sum = kPrime5;
    if (nbytes_ >= kStripe) {
        const auto [a, b, c, d] = lanes_;
        sum = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18);
        for (const std::uint64_t lane : lanes_) sum = (sum ^ mixed(0, lane)) * kPrime1 + kPrime4;
    }
    sum += nbytes_;
    const std::byte *at = rest_.data();
    const std::byte *end = at + nbytes_ % kStripe;
    for (; end - at >= 8; at += 8) {
        sum = rotated(sum ^ mixed(0, word_at<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
    }
    for (; end - at >= 4; at += 4) {
        sum = rotated(sum ^ word_at<std::uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    }
    for (; at < end; ++at) {
        sum = rotated(sum ^ word_at<std::uint8_t>(at) * kPrime5, 11) * kPrime1;
    }
    sum = (sum ^ sum >> 33) * kPrime2;
    sum = (sum ^ sum >> 29) * kPrime3;
    return sum ^ sum >> 32;
}

std::uint64_t checksum(const Buffer &buffer, std::size_t offset, std::size_t nbytes) {
    check_part(buffer, offset, nbytes);
    buffer.check_file();
    Checksum sum;
    sum.add(buffer.data() + offset, nbytes);
    return sum.value();
}

std::uint64_t read(Buffer &buffer, int descriptor, std::size_t position, std::size_t offset,
                   std::size_t nbytes) {
    check_part(buffer, offset, nbytes);
    require(!buffer.is_mapped(), "read: expected a buffer that can be written");
    std::byte *data = buffer.data() + offset;
    Checksum sum;
    std::size_t done = 0;   // bytes that were read
    std::size_t added = 0;  // bytes that were added to the sum, in whole stripes
    while (done < nbytes) {
        const std::size_t wanted = std::min(kSlice, nbytes - done);
        const ssize_t count =
            pread(descriptor, data + done, wanted, static_cast<off_t>(position + done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw std::system_error(errno, std::generic_category(), "read");
        require(count > 0, "read: expected " + std::to_string(nbytes) +
                               " bytes, but the file ends after " + std::to_string(done));
        done += static_cast<std::size_t>(count);
        const std::size_t left = done - added;
        const std::size_t whole = done < nbytes ? left - left % Checksum::kStripe : left;
        sum.add(data + added, whole);
        added += whole;
    }
    return sum.value();
}

}  // namespace stridewise
