#include "threads/places.hpp"

#include <algorithm>
#include <cstddef>

namespace stridewise {
namespace {

// The processors of the calling thread before it was limited, and those that it was limited to.
struct Limit {
    bool set = false;
    cpu_set_t allowed, part;
};

thread_local Limit own;

// Finds out the processors of the calling thread. It counts as limited no longer if they were
// changed from outside.
bool look(cpu_set_t &current) {
    if (sched_getaffinity(0, sizeof current, &current) != 0) return false;
    own.set = own.set && CPU_EQUAL(&own.part, &current);
    return true;
}

}  // namespace

void Places::leave() {
    if (!own.set) return;
    cpu_set_t current;
    if (look(current) && own.set) sched_setaffinity(0, sizeof own.allowed, &own.allowed);
    own.set = false;
}

void Places::reset(int threads) {
    leave();
    places_.assign(static_cast<std::size_t>(threads), Place{});
}

void Places::enter(int thread) {
    Place &place = places_[static_cast<std::size_t>(thread)];
    const bool limited = own.set;
    place.processor = sched_getcpu();
    place.known = place.processor >= 0 && place.processor < CPU_SETSIZE && look(place.current);
    if (!place.known) return;
    place.changed = limited && !own.set;
    place.allowed = own.set ? own.allowed : place.current;
}

bool Places::are_shared() const {
    cpu_set_t taken;
    CPU_ZERO(&taken);
    for (const Place &place : places_) {
        if (!place.known) continue;
        if (CPU_ISSET(place.processor, &taken)) return true;
        CPU_SET(place.processor, &taken);
    }
    return false;
}

bool Places::divide() {
    cpu_set_t taken;
    CPU_ZERO(&taken);
    bool divided = true, changed = false;
    for (const Place &place : places_) {
        if (!place.known) return false;
        divided = divided && !CPU_ISSET(place.processor, &taken) &&
                  !CPU_EQUAL(&place.current, &place.allowed);
        changed = changed || place.changed;
        CPU_SET(place.processor, &taken);
    }
    if (divided && !changed) return false;
    for (Place &place : places_) {
        // A change of all threads may be equal to the part that one of them already had.
        if (changed) place.allowed = place.current;
    }
    if (!assign()) {
        for (Place &place : places_) place.part = place.allowed;
    }
    return changed || std::any_of(places_.begin(), places_.end(), [](const Place &place) {
               return !CPU_EQUAL(&place.part, &place.current);
           });
}

// Gives each thread a processor and its part; false if there are not enough.
bool Places::assign() {
    cpu_set_t taken;
    CPU_ZERO(&taken);
    std::vector<Place *> homeless;
    for (Place &place : places_) {
        if (CPU_ISSET(place.processor, &place.allowed) && !CPU_ISSET(place.processor, &taken)) {
            CPU_SET(place.processor, &taken);
        } else {
            homeless.push_back(&place);
        }
    }
    for (Place *place : homeless) {
        place->processor = -1;
        for (int free = 0; free < CPU_SETSIZE && place->processor < 0; ++free) {
            if (CPU_ISSET(free, &place->allowed) && !CPU_ISSET(free, &taken)) {
                place->processor = free;
            }
        }
        if (place->processor < 0) return false;
        CPU_SET(place->processor, &taken);
    }
    for (Place &place : places_) {
        place.part = place.allowed;
        for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
            if (CPU_ISSET(processor, &taken)) CPU_CLR(processor, &place.part);
        }
        CPU_SET(place.processor, &place.part);
    }
    return true;
}

void Places::limit(int thread) {
    const Place &place = places_[static_cast<std::size_t>(thread)];
    own.allowed = place.allowed;
    own.part = place.part;
    own.set = !CPU_EQUAL(&own.part, &own.allowed);
    if (CPU_EQUAL(&place.part, &place.current)) return;
    if (sched_setaffinity(0, sizeof own.part, &own.part) != 0) own.set = false;
}

}  // namespace stridewise
