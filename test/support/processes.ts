import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

const UNTIL_POLL_MS = 25;

/** At any depth. */
export function descendantsOf(parent: number): { pid: number; command: string }[] {
  const all = readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .flatMap(name => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
        const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
        const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
        const ended = fields[0] === 'Z';
        return ended ? [] : [{ pid: Number(name), parent: Number(fields[1]), command }];
      } catch {
        return []; // ended since the listing
      }
    });
  const below = (pid: number): { pid: number; command: string }[] =>
    all
      .filter(entry => entry.parent === pid)
      .flatMap(entry => [{ pid: entry.pid, command: entry.command }, ...below(entry.pid)]);
  return below(parent);
}

export async function until(
  condition: () => boolean | Promise<boolean>,
  options: { timeoutMs: number; what: string; detail?: () => string },
): Promise<void> {
  // Polls, not time: on a stalled machine time passes without progress.
  const pollsMax = options.timeoutMs / UNTIL_POLL_MS;
  for (let polls = 0; !(await condition()); polls += 1) {
    if (polls > pollsMax) {
      assert.fail(
        `not within ${options.timeoutMs} ms: ${options.what}\n${options.detail?.() ?? ''}`,
      );
    }
    await delay(UNTIL_POLL_MS);
  }
}
