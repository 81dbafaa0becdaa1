/** Which process of a node the kernel ends first where the memory of the machine or group is out. */
import { writeFileSync } from 'node:fs';

/**
 * -1000 to 1000, added to a process's share of the memory in thousandths. The node and the engines
 * of shipped models have 0. A picture worker has one image, and another worker takes its place. An
 * engine of an added model runs a graph of anybody's, so it goes before the picture of a caller who
 * has nothing to do with it.
 */
const OOM_SCORES = { pictureWorker: '500', addedEngine: '800' } as const;

/** Sets the score of this process. */
export function goFirstWhereMemoryIsOut(as: keyof typeof OOM_SCORES): void {
  try {
    writeFileSync('/proc/self/oom_score_adj', OOM_SCORES[as]);
  } catch (error) {
    // Not Linux, or /proc is not writable: then the kernel decides by itself.
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'EACCES' && code !== 'EROFS') throw error;
  }
}
