#include "threads/imports.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "threads/openmp.hpp"

namespace stridewise {
namespace {

// The tables of a loaded library that say which functions it imports (elf(5)).
class Imports {
  public:
    explicit Imports(const void *inside) {
        Dl_info info;
        void *map = nullptr;
        if (dladdr1(inside, &info, &map, RTLD_DL_LINKMAP) == 0 || map == nullptr) {
            throw std::runtime_error("the address is in no loaded library");
        }
        const auto &library = *static_cast<const link_map *>(map);
        base_ = library.l_addr;
        for (const ElfW(Dyn) *entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) {
            read(*entry);
        }
        dl_iterate_phdr(&find_protected, this);
    }

    // Whether the loader has made the place read-only.
    bool is_protected(const void *place) const {
        const auto at = reinterpret_cast<std::uintptr_t>(place);
        return at >= protected_begin_ && at < protected_end_;
    }

    // Calls `body(name, slot)` for each imported function.
    template <class Body>
    void each(const Body &body) const {
        const auto visit = [&](const ElfW(Rela) *first, std::size_t nbytes) {
            for (std::size_t i = 0; i < nbytes / sizeof *first; ++i) {
                const auto symbol = ELF64_R_SYM(first[i].r_info);
                if (symbol == 0) continue;
                body(names_ + symbols_[symbol].st_name,
                     reinterpret_cast<void **>(base_ + first[i].r_offset));
            }
        };
        visit(calls_, calls_nbytes_);
        visit(others_, others_nbytes_);
    }

  private:
    void read(const ElfW(Dyn) & entry) {
        const auto address = entry.d_un.d_ptr;
        switch (entry.d_tag) {
            case DT_STRTAB:
                names_ = reinterpret_cast<const char *>(address);
                break;
            case DT_SYMTAB:
                symbols_ = reinterpret_cast<const ElfW(Sym) *>(address);
                break;
            case DT_JMPREL:
                calls_ = reinterpret_cast<const ElfW(Rela) *>(address);
                break;
            case DT_PLTRELSZ:
                calls_nbytes_ = entry.d_un.d_val;
                break;
            case DT_RELA:
                others_ = reinterpret_cast<const ElfW(Rela) *>(address);
                break;
            case DT_RELASZ:
                others_nbytes_ = entry.d_un.d_val;
                break;
            default:
                break;
        }
    }

    static int find_protected(dl_phdr_info *info, std::size_t /*nbytes*/, void *self) {
        auto &imports = *static_cast<Imports *>(self);
        if (info->dlpi_addr != imports.base_) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr) &segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_GNU_RELRO) continue;
            imports.protected_begin_ = imports.base_ + segment.p_vaddr;
            imports.protected_end_ = imports.protected_begin_ + segment.p_memsz;
        }
        return 1;
    }

    ElfW(Addr) base_ = 0;
    std::uintptr_t protected_begin_ = 0, protected_end_ = 0;
    const char *names_ = nullptr;
    const ElfW(Sym) *symbols_ = nullptr;
    const ElfW(Rela) *calls_ = nullptr, *others_ = nullptr;
    std::size_t calls_nbytes_ = 0, others_nbytes_ = 0;
};

bool is_openmp(std::string_view name) {
    const auto begins = [&](std::string_view start) {
        return name.substr(0, start.size()) == start;
    };
    return begins("GOMP_") || begins("omp_") || begins("__kmpc_");
}

// Writes to a page for a scope. The table is read-only in libraries that are bound when they are
// loaded (PT_GNU_RELRO), and stays writable in others.
class Writable {
  public:
    Writable(const void *address, bool is_protected) : is_protected_(is_protected) {
        nbytes_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const auto at = reinterpret_cast<std::uintptr_t>(address);
        page_ = reinterpret_cast<void *>(at & ~(nbytes_ - 1));
        if (is_protected_ && mprotect(page_, nbytes_, PROT_READ | PROT_WRITE) != 0) {
            throw std::runtime_error(std::string("the table of imported functions is read-only: ") +
                                     std::strerror(errno));
        }
    }
    ~Writable() {
        if (is_protected_) mprotect(page_, nbytes_, PROT_READ);
    }
    Writable(const Writable &) = delete;
    Writable &operator=(const Writable &) = delete;

  private:
    bool is_protected_;
    std::size_t nbytes_;
    void *page_;
};

}  // namespace

std::vector<std::string> bind_openmp(const void *inside) {
    const Imports imports(inside);
    std::vector<std::string> others;
    imports.each([&](std::string_view name, void **) {
        if (is_openmp(name) && openmp_function(name) == nullptr) others.emplace_back(name);
    });
    if (!others.empty()) return others;
    imports.each([&](std::string_view name, void **slot) {
        void *address = openmp_function(name);
        if (address == nullptr) return;
        const Writable writable(slot, imports.is_protected(slot));
        *slot = address;
    });
    return others;
}

}  // namespace stridewise
