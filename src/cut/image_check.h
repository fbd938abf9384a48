// The check of a live image that a killed process has left, before it is used.
//
// WHAT  The kernel can lose stores to the image and say so to a process that is gone: the disk was
//   full or has failed, or it was taken away and mounted again. Then the image is older than it
//   should be, as a whole or in some of its pages. Base and log have everything that was durable.
//   So every line of the image that is not dirty must be as base and log have it.
// INVARIANTS
//   check.Y1  No epoch of the log is later than `begun`: the head says so before an epoch is
//       written. An epoch that counts and that the head does not know yet has its lines dirty.
//   check.Y2  A line of a live chunk that is not dirty is as the last epoch has it that counts and
//       has the line, or as the base if none has. What is neither in the pool nor free need not be:
//       the sectors of the marks, and, once space was given back, zeros. A line that the log has is
//       in a live chunk.
//   check.Y3  No line behind the end of the image is dirty: the image grows before a store.
// LIMITS  A page that the disk has from before, and in which only dirty lines differ, is not found;
//   nor, once space was given back, a line that the disk has as zeros.
//   So an image is used only if there is no sign that its disk was taken away (boot_evidence.h).
// COSTS  Reads the live chunks, the same parts of the base, and the log once, and makes the kernel
//   write again what it has of the live chunks in memory; two bits of memory for each line of the
//   pool.
// Thread safety: one thread.
#pragma once

#include "cut/live_image.h"
#include "cut/log_reader.h"
#include "platform/file_system.h"

namespace perdure {

// `log` has been scanned; `base` is the open file. Changes nothing but what is dirty. Errors:
// corruption (the image cannot be trusted; the message is a clause with `it`); out_of_memory, io.
Status verify_image(LiveImage& image, LogReader& log, FileSystem& files,
                    FileSystem::File base) noexcept;

}  // namespace perdure
