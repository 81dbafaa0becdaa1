/**
 * Budgets stop files made to be expensive (a JPEG of a thousand scans), not large pictures: each is
 * several times the worst measured cost.
 */
import { readStat } from '../process/proc-files.ts';

export interface Budget {
  readonly base: number;
  readonly perMegapixel: number;
}

export function budgetFor({ base, perMegapixel }: Budget, megapixels: number): number {
  return base + perMegapixel * megapixels;
}

/**
 * Processor time, ms, for decode and for finish each: elapsed time would punish a worker that waits
 * for a processor. Worst measured (2 cores of an AMD EPYC): 45 ms/MP to decode (AVIF), 250 ms/MP to
 * encode (WebP at 1 MP, JPEG XL at 40 MP).
 */
export const CPU_MS_BUDGET: Budget = { base: 10_000, perMegapixel: 1_500 };

/**
 * Elapsed time, ms. A picture that uses it up had the processor for at most a quarter of it, so it
 * is not at fault.
 */
export const WALL_MS_BUDGET: Budget = { base: 60_000, perMegapixel: 6_000 };

/** Bytes. Worst measured: 0.11 GB and 45 bytes a pixel; JPEG XL 0.2 GB and 55. */
export const RESIDENT_BYTES_BUDGET: Budget = { base: 512 * 2 ** 20, perMegapixel: 100 * 2 ** 20 };

export const WATCH_INTERVAL_MS = 100;

/** USER_HZ is 100 on every Linux. */
const MS_PER_TICK = 10;
/** proc(5): utime and stime are fields 14 and 15; field 2 may contain blanks and ends with ")". */
const USER_TICKS = 14 - 3;

/** Sums all threads. Undefined: no /proc, or the process is gone. */
export function readCpuMs(pid: number): number | undefined {
  const fields = readStat(pid);
  if (fields.length === 0) return undefined;
  return (Number(fields[USER_TICKS]) + Number(fields[USER_TICKS + 1])) * MS_PER_TICK;
}
