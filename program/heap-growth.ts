/**
 * How much garbage a main process lets gather. V8 lets a heap grow by little more than a tenth
 * before it collects it whole wherever little is allocated a second, and counts image files into
 * it. At two jobs a second that was a collection every second job and more than half of the
 * processor time of the two main processes.
 */
import { setFlagsFromString } from 'node:v8';

/** V8 says nothing about a flag it does not know; a test asks it. */
export const GROWTH_FLAG = '--heap-growing-percent';

/**
 * Collected whole at four times what lived last time: live are some 20 MB in a node and 35 MB in a
 * control plane, and processor time is worth more than the megabytes between.
 */
const GROWTH_PERCENT = 300;

/** For a program's main, before it works. */
export function letHeapGrow(): void {
  // V8 reads this flag at the end of each collection, so that it may be set while it runs.
  setFlagsFromString(`${GROWTH_FLAG}=${GROWTH_PERCENT}`);
}
