#include "executor/waits.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace stridewise {
namespace {

std::int64_t own_id() {
    return syscall(SYS_gettid);
}

}  // namespace

Waits::Waits() : caller_(own_id()) {}

std::int64_t Waits::total_ns() const {
    const std::string left_out = caller_ == own_id() ? "" : std::to_string(caller_);
    std::int64_t total = 0;
    std::error_code failed;
    const std::filesystem::directory_iterator tasks("/proc/self/task", failed), end;
    for (auto task = tasks; !failed && task != end; task.increment(failed)) {
        if (task->path().filename() == left_out) continue;
        std::int64_t ran = 0, waited = 0;
        // A thread that ends meanwhile has no such file.
        if (std::ifstream(task->path() / "schedstat") >> ran >> waited) total += waited;
    }
    return total;
}

}  // namespace stridewise
