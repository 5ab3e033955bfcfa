// Parallel regions that are entered from a thread of the application.
#pragma once

#include "threads/teams.hpp"

namespace stridewise {

// Permits `run_on_caller` in this process, until a fork: in the child, the workers of the calling
// thread are lost.
//
// An application that uses the same OpenMP runtime, as PyTorch does, has workers of its own. With
// those of a team there are more threads than processors, and libgomp no longer lets waiting
// threads spin: runs of 1.7 ms took 4.8 ms.
void permit_callers();

// Runs a job on the calling thread, whose regions have `threads` threads, and returns true. Returns
// false before it runs anything where a team has to run the job: callers are not permitted, another
// thread runs jobs in this way and has not ended, or the settings of the calling thread give its
// regions another number of threads. Throws what the job throws.
//
// During the job, the threads are members (Teams::is_member) and flush subnormal numbers, and those
// that share a processor are limited to different ones. All of that ends with the job.
bool run_on_caller(int threads, Teams::Job job, const void *data);

}  // namespace stridewise
