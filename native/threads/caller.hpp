// Jobs with the OpenMP workers of a thread of the application.
#pragma once

#include "threads/teams.hpp"

namespace stridewise {

// Permits `run_on_caller` in this process, until a fork: in the child, the workers of the calling
// thread are lost.
//
// PyTorch computes with GNU OpenMP, whose workers spin for milliseconds after a region. Workers of
// a team in addition would take turns with them on the same processors.
void permit_callers();

// Runs a job on the calling thread and on the workers that OpenMP gives its regions, and returns
// true. Returns false before it runs anything where a team has to run the job: callers are not
// permitted, another thread runs jobs in this way and has not ended, or the settings of the calling
// thread give its regions another number of threads. Throws what the job throws.
bool run_on_caller(int threads, Teams::Job job, const void *data);

}  // namespace stridewise
