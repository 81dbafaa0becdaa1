/**
 * How much garbage a main process lets gather. V8 lets a heap grow by little more than a tenth
 * before it collects it whole wherever little is allocated a second. At two jobs a second that was
 * a collection every second job and more than half of the processor time of both main processes.
 *
 * Files and model inputs lie outside the heap; for those V8 collects at every 64 MB, whatever the
 * heap holds, which young-buffers.ts forestalls. `--external-memory-accounted-in-global-limit` would
 * end it, and lets them gather to half of the heap's limit: 1 GB and more in a node of 4 GiB.
 */
import { setFlagsFromString } from 'node:v8';

/** V8 says nothing about a flag it does not know; a test asks it. */
export const GROWTH_FLAG = '--heap-growing-percent';
/** Young garbage is a megabyte or two: waking four threads for it costs more than they save. */
export const YOUNG_FLAG = '--no-parallel-scavenge';

/**
 * Collected whole at four times what lived last time: live are some 20 MB in a node and 35 MB in a
 * control plane, and processor time is worth more than the megabytes between.
 */
const GROWTH_PERCENT = 300;

/** For a program's main, before it works. */
export function letHeapGrow(): void {
  // V8 reads these flags at each collection, so that they may be set while it runs.
  setFlagsFromString(`${GROWTH_FLAG}=${GROWTH_PERCENT}`);
  setFlagsFromString(YOUNG_FLAG);
}
