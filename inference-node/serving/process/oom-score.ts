import { writeFileSync } from 'node:fs';

/**
 * The kernel's oom_score_adj. The node and the engines of shipped models have 0. A picture worker
 * holds one image and is replaced. An engine of an added model runs a graph of unknown origin, so
 * it ends before another caller's picture.
 */
const OOM_SCORES = { pictureWorker: '500', addedEngine: '800' } as const;

export function raiseOomScore(as: keyof typeof OOM_SCORES): void {
  try {
    writeFileSync('/proc/self/oom_score_adj', OOM_SCORES[as]);
  } catch (error) {
    // Not Linux, or /proc is read-only: the kernel decides by itself.
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'EACCES' && code !== 'EROFS') throw error;
  }
}
