/** Runs guards' tests with their mutants, each test file in its own process. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ROOT } from './functions.ts';
import type { Guarded, Order, Outcome, Verdict } from './run-mutants.ts';

/** After this the process ends, and the mutant counts as not caught. */
const MUTANT_MS_MAX = 60_000;

/**
 * For guards whose tests are in one file. A bug's leftovers may fail later tests: no mutant counts
 * unless all tests pass at the end without a bug. Guards without a caught mutant are retried, each
 * in its own process.
 */
export async function judge(
  tests: string,
  guarded: readonly Guarded[],
  env: NodeJS.ProcessEnv,
  retriesMax = 1,
): Promise<Verdict[]> {
  const verdicts = await judgeTogether(tests, guarded, env);
  for (const [number, one] of guarded.entries()) {
    if (retriesMax === 0 || verdicts[number]!.isCaught) continue;
    verdicts.splice(number, 1, ...(await judge(tests, [one], env, retriesMax - 1)));
  }
  return verdicts;
}

async function judgeTogether(
  tests: string,
  guarded: readonly Guarded[],
  env: NodeJS.ProcessEnv,
): Promise<Verdict[]> {
  // Killed processes cannot remove their files.
  const scratch = mkdtempSync(path.join(tmpdir(), 'mutated-'));
  const program = path.join(import.meta.dirname, 'run-mutants.ts');
  const preload = `--import=${path.join(import.meta.dirname, 'mutate.ts')}`;
  const child = spawn(process.execPath, [preload, program], {
    cwd: ROOT,
    env: { ...env, TMPDIR: scratch },
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    // A process group, so that all of it can be ended.
    detached: true,
  });
  const end = () => {
    try {
      process.kill(-child.pid!, 'SIGKILL');
    } catch {
      // The whole group has ended.
    }
  };
  const none: Verdict = { isCaught: false, said: 'the process ended, or hung' };
  const verdicts = guarded.map(() => none);
  let unmutated = none;
  const ending = setTimeout(end, MUTANT_MS_MAX);
  child.on('message', ({ number, ...verdict }: Outcome) => {
    ending.refresh();
    if (number === undefined) unmutated = verdict;
    else verdicts[number] = verdict;
  });
  child.send({ tests, guarded, scratch } satisfies Order);
  await once(child, 'close');
  clearTimeout(ending);
  end();
  rmSync(scratch, { recursive: true, force: true });
  if (unmutated.isCaught) return verdicts;
  const said = `the tests fail without a mutant: ${unmutated.said}`;
  return verdicts.map(one => (one.isCaught ? { isCaught: false, said } : one));
}
