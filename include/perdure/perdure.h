// Includes every public header that a program needs: pools, maps, stores. Programs over MPI also
// include mpi.h.
#pragma once

#include "perdure/backup.h"
#include "perdure/found.h"
#include "perdure/map.h"
#include "perdure/options.h"
#include "perdure/pool.h"
#include "perdure/stats.h"
#include "perdure/status.h"
#include "perdure/store.h"
#include "perdure/untyped_map.h"
#include "perdure/versioned_map.h"
#include "perdure/write_batch.h"
